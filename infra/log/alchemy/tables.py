"""Tables of a log by SQLAlchemy: events, counters, bookmarks, large data, live streams, and the log's identity."""

import hashlib
from typing import Any, Final

from eventsourcing_sqlalchemy.models import EventRecord  # type: ignore[attr-defined]  # the library has no types there
from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    UniqueConstraint,
    literal,
    literal_column,
)
from sqlalchemy.dialects.mysql import LONGBLOB
from sqlalchemy.types import TypeDecorator

from ..envelope import clock_ms

PREFIX: Final = "chatledger_sql"
EVENTS: Final = "events"
BLOBS: Final = "blobs"


class ExactText(TypeDecorator[str]):
    """Text as bytes of UTF-8: no collation makes two ids one, and no character set of a database loses a character."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Any) -> bytes | None:
        """Encode a text."""
        del dialect
        return None if value is None else value.encode()

    def process_result_value(self, value: Any, dialect: Any) -> str | None:
        """Decode what was stored."""
        del dialect
        return None if value is None else bytes(value).decode()


def digest(text: str) -> str:
    """Return the key of a text of any length: databases index 1,700 to 3,072 bytes, and ids have up to 2,048."""
    return hashlib.sha256(text.encode()).hexdigest()


_NUMBER: Final = BigInteger().with_variant(Integer(), "sqlite")
_BYTES: Final = LargeBinary().with_variant(LONGBLOB(), "mysql", "mariadb")
_DIGEST: Final = String(64)


class PositionedEvent(EventRecord):  # type: ignore[misc]  # the library has no types
    """
    The columns of a stored event. Its position is not counted up by the database but taken from a counter.

    The library's own record has a UUID for an originator, and at most 64 KiB on MySQL.
    """

    __abstract__ = True

    id = Column(_NUMBER, primary_key=True, autoincrement=False)
    digest = Column(_DIGEST, nullable=False)
    originator_id = Column(ExactText(), nullable=False)  # type: ignore[var-annotated]
    originator_version = Column(_NUMBER, nullable=False)
    topic = Column(String(255))
    state = Column(_BYTES, nullable=False)

    __table_args__ = (UniqueConstraint("digest", "originator_version", name=f"{PREFIX}_version"),)


METADATA: Final = MetaData()

IDENTITY: Final = Table(
    f"{PREFIX}_log",
    METADATA,
    Column("one", Integer, primary_key=True, autoincrement=False),
    Column("id", String(64), nullable=False),
)
COUNTERS: Final = Table(
    f"{PREFIX}_counters",
    METADATA,
    Column("name", String(32), primary_key=True),
    Column("last", _NUMBER, nullable=False),
)
BOOKMARKS: Final = Table(
    f"{PREFIX}_feeds",
    METADATA,
    Column("digest", _DIGEST, primary_key=True),
    Column("value", ExactText(), nullable=False),
    Column("revision", _NUMBER, nullable=False),
)
BLOB_ENTRIES: Final = Table(
    f"{PREFIX}_blobs",
    METADATA,
    Column("position", _NUMBER, primary_key=True, autoincrement=False),
    Column("name", String(255), nullable=False),
    Column("entry", _BYTES, nullable=False),
    Index(f"{PREFIX}_blob_names", "name", "position"),
)
LIVE_ENTRIES: Final = Table(
    f"{PREFIX}_live",
    METADATA,
    Column("chat", _DIGEST, primary_key=True),
    Column("stream", _DIGEST, primary_key=True),
    Column("number", _NUMBER, primary_key=True, autoincrement=False),
    Column("at", _NUMBER, nullable=False),
    Column("entry", _BYTES, nullable=False),
)

_CLOCKS: Final = {
    "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
    "postgresql": "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)",
    "mysql": "CAST(UNIX_TIMESTAMP(SYSDATE(3)) * 1000 AS SIGNED)",
    "mariadb": "CAST(UNIX_TIMESTAMP(SYSDATE(3)) * 1000 AS SIGNED)",
    "mssql": "DATEDIFF_BIG(millisecond, '1970-01-01', SYSUTCDATETIME())",
    "oracle": "ROUND((CAST(SYS_EXTRACT_UTC(SYSTIMESTAMP) AS DATE) - DATE '1970-01-01') * 86400000)",
}


def clock(dialect: str) -> ColumnElement[int]:
    """Return the time in ms since the epoch, by the clock of the database; by that of this process where it has none we know."""
    found = _CLOCKS.get(dialect)
    return literal(clock_ms(), BigInteger()) if found is None else literal_column(found, BigInteger())
