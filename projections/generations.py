"""The generations of an index: numbered environments, of which one is current, so that a new one is built beside the old."""

import contextlib
import os
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import Final

import lmdb
import msgspec

from chatledger.domain.chat.events import Recorded, StreamDeleted
from chatledger.domain.chat.state import stream_head
from chatledger.domain.errors import DECODE_ERRORS, LogRegressedError

from .lmdb.environment import INITIAL_MAP_BYTES, Environment, Transaction, make_folder, prefixed, private
from .lmdb.keys import number, to_number
from .lmdb.page_check import find_damage
from .lmdb.tables import Tables
from .log.kinds import kind_of
from .operating_system import OPEN_FLAGS, lock_file, replace, sync

SCHEMA: Final = b"45"
"""Changes whenever rows or keys do; an index of another schema is rebuilt."""

_STATE, _SCHEMA, _IDENTITY, _RETIRED = b"state", b"schema", b"identity", b"retired"
_ERASURE, _ERASED, _REDACTED = b"erasure:", b"erased:", b"redacted"
_RECEIPTS_MS: Final = 30 * 86_400_000
"""Receipts are kept for so long after an erasure: the tombstone stays for ever."""


class IndexState(msgspec.Struct, frozen=True, array_like=True):
    """
    The state of an index: the position of the last event and its hash.

    `missing` counts the positions before it that held no event, `erased` the events that tombstones account for.
    """

    position: int = 0
    hash: bytes = b""
    missing: int = 0
    erased: int = 0


class Erasure(msgspec.Struct, frozen=True, array_like=True):
    """
    A deleted stream whose events, from `first_position` to before `tombstone_position`, are to be erased from the log.

    `owner_digest` is that of the tombstone. `erased_at` is when this index saw that they are gone, in ms. Until then `key` is that of a
    thread, a state or an item: tombstones have digests, and a hold on it names it.

    With `targets` it is a redaction, by the event at `tombstone_position`, in the chat whose first event is at `first_position`: slots
    are to be emptied, given by position. `messages` are the ids and numbers in log order of those that lost their content.
    """

    stream_id: str
    first_position: int
    tombstone_position: int
    event_count: int = 0
    deleted_at: int = 0
    owner_digest: str | None = None
    erased_at: int | None = None
    targets: tuple[tuple[int, tuple[int, ...]], ...] = ()
    messages: tuple[tuple[str, int], ...] = ()
    key: str = ""


_encode: Final = msgspec.msgpack.Encoder().encode
_decode_state: Final = msgspec.msgpack.Decoder(IndexState).decode
_decode_erasure: Final = msgspec.msgpack.Decoder(Erasure).decode


def read_state(path: Path, identity: str) -> IndexState | None:
    """
    Return how far a generation went that does not serve any more, such as one that was open when the machine went down.

    None where its pages do not hang together, or it was built from another log.
    """
    file = path / "data.mdb"
    try:
        if find_damage(file) is not None:
            return None
        env = lmdb.open(str(path), readonly=True, lock=False, max_dbs=1, map_size=max(file.stat().st_size, 1 << 20))
    except (OSError, lmdb.Error):
        return None
    try:
        meta = env.open_db(b"meta", create=False)
        with env.begin(db=meta) as txn:
            raw = txn.get(_STATE)
            is_ours = txn.get(_IDENTITY) == identity.encode()
        return _decode_state(raw) if is_ours and raw is not None else None
    except (lmdb.Error, *DECODE_ERRORS):
        return None
    finally:
        env.close()


class RetiredError(Exception):
    """Another generation took over."""


class Generation(Environment):
    """
    The environment of an index: its tables, and the rows about the whole of it.

    `stale_since_s`: when a scrub first met rows of projections that lag behind a deletion; None when there are none.
    """

    def __init__(self, number: int, path: Path, *, map_bytes: int, is_kept: bool = True) -> None:
        self.number = number
        self.tables = Tables()
        self.stale_since_s: float | None = None
        super().__init__(path, map_bytes=map_bytes, is_kept=is_kept)

    def open_tables(self) -> None:
        super().open_tables()
        self.tables.open(self)

    def discard(self) -> None:
        """Close it and remove its files: it was not finished."""
        self.close()
        shutil.rmtree(self.path, ignore_errors=True)

    def describe(self, identity: str) -> None:
        """Note what log this generation is built from."""

        def change(txn: Transaction) -> None:
            txn.put(_SCHEMA, SCHEMA, db=self.meta)
            txn.put(_IDENTITY, identity.encode(), db=self.meta)

        self.update(change)

    def mismatch(self, identity: str) -> str | None:
        """Why this generation cannot serve that log; None when it can."""
        with self.reading() as txn:
            schema = txn.get(_SCHEMA, db=self.meta)
            built_from = txn.get(_IDENTITY, db=self.meta)
        if schema != SCHEMA:
            return f"it has schema {(schema or b'?').decode()}, this version reads {SCHEMA.decode()}"
        return None if built_from == identity.encode() else "it was built from another log"

    def state(self, txn: Transaction) -> IndexState:
        raw = txn.get(_STATE, db=self.meta)
        return IndexState() if raw is None else _decode_state(raw)

    def is_retired(self, txn: Transaction) -> bool:
        """Whether another generation took over."""
        return txn.get(_RETIRED, db=self.meta) is not None

    def refuse_retired(self, txn: Transaction) -> None:
        """Raise `RetiredError` where another generation took over."""
        if txn.get(_RETIRED, db=self.meta) is not None:
            raise RetiredError

    def retire(self, txn: Transaction) -> None:
        """Send everybody to the current generation."""
        txn.put(_RETIRED, b"", db=self.meta)

    def put_state(self, txn: Transaction, state: IndexState) -> None:
        """Note how far the generation is."""
        txn.put(_STATE, _encode(state), db=self.meta)

    def check_applied(self, txn: Transaction, state: IndexState, recorded: Recorded) -> None:
        """
        Check that an event that is on the log, and not past the generation, was applied, by whomever.

        Raises:
            LogRegressedError: Another one was, at its position: the log lost its end, and gives the positions out again.
        """
        if recorded.position <= state.position and self.head_position(txn, recorded.chat_id) < recorded.position:
            raise LogRegressedError(last_position=recorded.position, seen_position=state.position)

    def head_position(self, txn: Transaction, stream: str) -> int:
        """The position of the last event of a stream that is shown; 0 when there is none."""
        return stream_head(kind_of(stream).read(self.tables, txn, stream)).position

    def put_erasure(self, txn: Transaction, recorded: Recorded, key: str = "") -> None:
        """Note that what a tombstone claims is to be erased from the log, and from the files of the index."""
        body = recorded.body
        assert isinstance(body, StreamDeleted), "it is a tombstone"
        digest: str | None = getattr(body, "owner_digest", None)
        erasure = Erasure(
            *(recorded.chat_id, body.first_position, recorded.position, body.event_count, recorded.occurred_at, digest),
            key=key,
        )
        txn.put(_ERASURE + number(recorded.position), _encode(erasure), db=self.meta)
        txn.delete(_ERASED + number(recorded.position), db=self.meta)  # a cluster may have taken it back
        self.note_dirty(txn)

    def put_redaction(self, txn: Transaction, redaction: Erasure, *, is_due: bool) -> None:
        """Note that content was taken away, and where it is to be erased from the log and the files of the index, if it was there."""
        # What a cluster took back is noted once more, and came before what was redacted since.
        position = max(redaction.tombstone_position, self.redacted_at(txn))
        txn.put(_REDACTED, number(position), db=self.meta)
        if is_due:
            txn.put(_ERASURE + number(redaction.tombstone_position), _encode(redaction), db=self.meta)
            self.note_dirty(txn)

    def redacted_at(self, txn: Transaction) -> int:
        """Return the position of the last event that took content away; 0 for none."""
        raw = txn.get(_REDACTED, db=self.meta)
        return 0 if raw is None else to_number(raw)

    def erasures(self, txn: Transaction, *, after: int = 0) -> list[Erasure]:
        """The deleted streams whose events may still be on the log, in the order of their tombstones; from a position on."""
        cursor, start = txn.cursor(self.meta), _ERASURE + number(after + 1)
        has_next, erasures = cursor.set_range(start), list[Erasure]()
        while has_next and cursor.key().startswith(_ERASURE):
            erasures.append(_decode_erasure(cursor.value()))
            has_next = cursor.next()
        return erasures

    def erased(self, txn: Transaction) -> list[Erasure]:
        """The deleted streams whose events are gone, in the order of their tombstones; those of the last 30 days."""
        return [_decode_erasure(row) for _, row in prefixed(txn, self.meta, _ERASED)]

    def finish_erasure(self, txn: Transaction, erasure: Erasure, *, at_ms: int) -> None:
        """Note that the events are gone, and forget what was noted long ago."""
        key, done = (
            number(erasure.tombstone_position),
            msgspec.structs.replace(erasure, erased_at=at_ms, messages=(), key=""),
        )
        txn.delete(_ERASURE + key, db=self.meta)
        txn.put(_ERASED + key, _encode(done), db=self.meta)
        oldest = txn.cursor(self.meta)
        while oldest.set_range(_ERASED) and oldest.key().startswith(_ERASED):
            if (_decode_erasure(oldest.value()).erased_at or 0) > at_ms - _RECEIPTS_MS:
                return
            oldest.delete()


class Generations:
    """A folder with one environment per generation and a file `CURRENT` that names the live one; see `Environment` for `is_kept`."""

    def __init__(self, root: Path, *, map_bytes: int = INITIAL_MAP_BYTES, is_kept: bool = True) -> None:
        make_folder(root)
        self.root, self._map_bytes, self._is_kept = root, map_bytes, is_kept

    @property
    def current(self) -> int | None:
        try:
            return int((self.root / "CURRENT").read_text())
        except (FileNotFoundError, ValueError):
            return None

    def path(self, generation_no: int) -> Path:
        return self.root / f"{generation_no:06d}"

    def open(self, generation_no: int) -> Generation:
        """Open a generation, which is made if it is not there."""
        path = self.path(generation_no)
        return Generation(generation_no, path, map_bytes=self._map_bytes, is_kept=self._is_kept)

    def create(self, generation_no: int) -> Generation:
        """Open a new one; where that fails, nothing of it is left."""
        try:
            return self.open(generation_no)
        except BaseException:
            shutil.rmtree(self.path(generation_no), ignore_errors=True)
            raise

    def next(self) -> int:
        return max([0, *self._numbers()]) + 1

    def publish(self, generation_no: int) -> None:
        """Make a generation the current one, at once and for all processes."""
        draft = self.root / f"CURRENT.{os.getpid()}"
        with open(draft, "w", opener=private) as file:
            file.write(f"{generation_no}\n")
            file.flush()
            if self._is_kept:
                os.fsync(file.fileno())
        replace(draft, self.root / "CURRENT")
        if self._is_kept:
            sync(self.root)

    def remove_unused(self) -> None:
        """Delete the generations before the current one that no process has open any more."""
        for generation_no in self._numbers():
            if generation_no < (self.current or 0) and not _is_in_use(self.path(generation_no) / "in-use"):
                shutil.rmtree(self.path(generation_no), ignore_errors=True)

    @property
    def has_others(self) -> bool:
        return len(self._numbers()) > 1

    @property
    def is_in_use(self) -> bool:
        return any(_is_in_use(self.path(generation_no) / "in-use") for generation_no in self._numbers())

    def remove_others(self) -> bool:
        """
        Delete all but the current one, also what an interrupted build left; nobody may be building.

        Returns whether they are gone: those that a process still has open are not.
        """
        current = self.current
        for generation_no in self._numbers():
            if generation_no != current and not _is_in_use(self.path(generation_no) / "in-use"):
                shutil.rmtree(self.path(generation_no), ignore_errors=True)
        return all(generation_no == current for generation_no in self._numbers())

    @contextlib.contextmanager
    def building(self, *, is_waiting: bool = True) -> Generator[bool]:
        """
        Wait until no other process builds, and keep others waiting. Gives whether that is so now.

        Without `is_waiting` it may not be so: another one builds.
        """
        fd = os.open(self.root / "building", os.O_RDWR | os.O_CREAT | OPEN_FLAGS, 0o600)
        try:
            try:
                lock_file(fd, is_waiting=is_waiting)
            except BlockingIOError:
                yield False
            else:
                yield True
        finally:
            os.close(fd)

    def _numbers(self) -> list[int]:
        return sorted(int(entry.name) for entry in self.root.iterdir() if entry.name.isdigit())


def _is_in_use(path: Path) -> bool:
    try:
        fd = os.open(path, os.O_RDWR | OPEN_FLAGS)
    except FileNotFoundError:
        return False
    try:
        lock_file(fd)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
