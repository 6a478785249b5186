"""Tables of a log by SQLAlchemy: events, counters, bookmarks, large data, live streams, and the log's identity."""

import hashlib
from typing import Any, Final

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

PREFIX: Final = "chatledger"
FORMAT: Final = 1
"""Of the tables. Older versions, whose `chatledger_log` has no such column, fail when they open them."""
EVENTS: Final = "events"
BLOBS: Final = "blobs"
EMPTIED: Final = "emptied"
"""Counts the bytes of rows that were emptied in a file of SQLite since it was written anew."""


class ExactText(TypeDecorator[str]):
    """Text as bytes of UTF-8: no collation makes two ids one, and no character set of a database loses a character."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Any) -> bytes | None:
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


METADATA: Final = MetaData()

IDENTITY: Final = Table(
    f"{PREFIX}_log",
    METADATA,
    Column("one", Integer, primary_key=True, autoincrement=False),
    Column("id", String(64), nullable=False),
    Column("format", Integer, nullable=False),
)
EVENT_RECORDS: Final = Table(
    f"{PREFIX}_events",
    METADATA,
    # Not counted up by the database: an event could become visible after one with a higher position, and what is rolled back
    # would leave a gap.
    Column("id", _NUMBER, primary_key=True, autoincrement=False),
    Column("digest", _DIGEST, nullable=False),
    Column("originator_id", ExactText(), nullable=False),
    Column("originator_version", _NUMBER, nullable=False),
    Column("topic", String(255)),
    Column("state", _BYTES, nullable=False),
    UniqueConstraint("digest", "originator_version", name=f"{PREFIX}_version"),
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
    expression = _CLOCKS.get(dialect)
    return literal(clock_ms(), BigInteger()) if expression is None else literal_column(expression, BigInteger())
