"""Large data and live streams in tables beside the events, by SQLAlchemy."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

from sqlalchemy import ColumnElement, Connection, and_, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from chatledger.domain.chat.live import LiveKey

from ..blob_storage import CHUNK_BYTES, BlobChangedError, BlobEntry
from ..live_storage import (
    LIVE_PAGE,
    MAX_ENTRY_BYTES,
    LiveAbsentError,
    LiveChangedError,
    LiveReading,
    PolledReading,
    StoredEnds,
    StoredEntry,
)
from .database import erase_rows, take_positions
from .tables import BLOB_ENTRIES as _BLOBS
from .tables import BLOBS, clock
from .tables import LIVE_ENTRIES as _LIVE

_LARGE: Final = "the large data of messages"
_A_STREAM: Final = "a live stream"
_PAGE: Final = 8


class Transactions(Protocol):
    """The transactions of a log; see `AlchemyLog`. Errors are ledger errors, and speak of the first argument."""

    dialect: str

    def reading(self, what: str, /) -> AbstractContextManager[Connection]: ...
    def writing(self, what: str, /) -> AbstractContextManager[Connection]: ...
    def emptying(self, what: str, /) -> AbstractContextManager[Connection]: ...


class AlchemyBlobStorage:
    """Implements `BlobStorage` in a table. A counter gives the positions, so that none is given twice."""

    chunk_bytes = CHUNK_BYTES

    def __init__(self, log: Transactions) -> None:
        self._log = log

    def last(self, name: str) -> BlobEntry | None:
        newest = select(_BLOBS.c.position, _BLOBS.c.entry).where(_BLOBS.c.name == name)
        with self._log.reading(_LARGE) as connection:
            row = connection.execute(newest.order_by(_BLOBS.c.position.desc()).limit(1)).first()
        return None if row is None else BlobEntry(row.position, bytes(row.entry))

    def add(self, name: str, entry: bytes, *, expected: int) -> int:
        with self._log.writing(_LARGE) as connection:
            position = take_positions(connection, BLOBS, 1)
            newest = select(func.max(_BLOBS.c.position)).where(_BLOBS.c.name == name)
            # Under the lock of the counter, so nobody adds between this look and the insert.
            if (connection.execute(newest).scalar() or 0) != expected:
                raise BlobChangedError
            connection.execute(insert(_BLOBS).values(position=position, name=name, entry=entry))
        return position

    def read(self, name: str, *, after: int, until: int) -> Iterator[BlobEntry]:
        entries = select(_BLOBS.c.position, _BLOBS.c.entry).order_by(_BLOBS.c.position).limit(_PAGE)
        while True:
            page = entries.where(_BLOBS.c.name == name, _BLOBS.c.position > after, _BLOBS.c.position <= until)
            with self._log.reading(_LARGE) as connection:
                rows = connection.execute(page).all()
            if not rows:
                return
            for row in rows:
                after = row.position
                yield BlobEntry(row.position, bytes(row.entry))

    def erase(self, name: str, *, until: int) -> None:
        self._delete(_BLOBS.c.name == name, _BLOBS.c.position <= until)

    def remove(self, name: str, position: int) -> None:
        self._delete(_BLOBS.c.name == name, _BLOBS.c.position == position)

    def _delete(self, *which: ColumnElement[bool]) -> None:
        with self._log.emptying(_LARGE) as connection:
            take_positions(connection, BLOBS, 0)  # waits for who is adding
            erase_rows(connection, _BLOBS, *which)

    def names(self) -> list[str]:
        with self._log.reading(_LARGE) as connection:
            return [name for name in connection.execute(select(_BLOBS.c.name).distinct()).scalars() if name]

    def now_ms(self) -> int:
        with self._log.reading(_LARGE) as connection:
            return int(connection.execute(select(clock(self._log.dialect))).scalar_one())


class AlchemyLiveStorage:
    """Implements `LiveStorage` in a table. The first entry of a stream is locked while it is added to or dropped."""

    max_entry_bytes = MAX_ENTRY_BYTES

    def __init__(self, log: Transactions) -> None:
        self._log = log

    def make(self) -> None:
        """Implement `LiveStorage.make`."""

    def create(self, key: LiveKey, record: bytes) -> int:
        with self._log.writing(_A_STREAM) as connection:
            try:
                self._insert(connection, key, 1, record)
            except IntegrityError as error:
                raise LiveChangedError from error
        return 1

    def add(self, key: LiveKey, record: bytes, *, expected: int) -> int:
        number = expected + 1
        with self._log.writing(_A_STREAM) as connection:
            # A drop locks the same row: an entry that is being added must not outlive its stream.
            if not _lock(connection, key):
                raise LiveAbsentError
            last = connection.execute(select(func.max(_LIVE.c.number)).where(_is_of(key))).scalar_one()
            if last == expected:
                self._insert(connection, key, number, record)
                return number
            there = select(_LIVE.c.entry).where(_is_of(key), _LIVE.c.number == number)
            stored = connection.execute(there).scalar()
        if stored is not None and bytes(stored) == record:  # the answer was lost
            return number
        raise LiveChangedError

    def _insert(self, connection: Connection, key: LiveKey, number: int, record: bytes) -> None:
        now = clock(self._log.dialect)
        values = {"chat": key.chat, "stream": key.stream, "number": number, "at": now, "entry": record}
        connection.execute(insert(_LIVE).values(values))

    def ends(self, key: LiveKey) -> StoredEnds | None:
        idle = (clock(self._log.dialect) - _LIVE.c.at).label("idle")
        entries = select(_LIVE.c.number, _LIVE.c.entry, idle).where(_is_of(key)).limit(1)
        with self._log.reading(_A_STREAM) as connection:
            last = connection.execute(entries.order_by(_LIVE.c.number.desc())).first()
            first = connection.execute(entries.order_by(_LIVE.c.number)).first()
        if last is None:
            return None
        return StoredEnds(None if first is None else _stored(first), _stored(last), max(0, int(last.idle)) / 1000)

    def open(self, key: LiveKey, *, after: int) -> LiveReading:
        entries = select(_LIVE.c.number, _LIVE.c.entry).where(_is_of(key)).order_by(_LIVE.c.number).limit(LIVE_PAGE)

        def read(after: int) -> list[StoredEntry]:
            with self._log.reading(_A_STREAM) as connection:
                return [_stored(row) for row in connection.execute(entries.where(_LIVE.c.number > after))]

        return PolledReading(read, lambda: self.ends(key) is None, after)

    def list_keys(self, chat: str | None = None) -> list[LiveKey]:
        keys = select(_LIVE.c.chat, _LIVE.c.stream).where(_LIVE.c.number == 1)
        with self._log.reading(_A_STREAM) as connection:
            rows = connection.execute(keys if chat is None else keys.where(_LIVE.c.chat == chat)).all()
        return [LiveKey(row.chat, row.stream) for row in rows if row.chat]

    def drop(self, key: LiveKey) -> None:
        with self._log.emptying(_A_STREAM) as connection:
            _lock(connection, key)
            erase_rows(connection, _LIVE, _is_of(key))


def _is_of(key: LiveKey) -> ColumnElement[bool]:
    return and_(_LIVE.c.chat == key.chat, _LIVE.c.stream == key.stream)


def _lock(connection: Connection, key: LiveKey) -> bool:
    """Lock the first entry of a stream, which an update does on every database; whether there is one."""
    first = update(_LIVE).where(_is_of(key), _LIVE.c.number == 1).values(at=_LIVE.c.at)
    return connection.execute(first).rowcount > 0


def _stored(row: Any) -> StoredEntry:
    return StoredEntry(row.number, bytes(row.entry))
