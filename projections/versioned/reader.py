"""One versioned value as the index has it at one moment: the state that decisions read, and the source of answers."""

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from copy import copy
from functools import cached_property
from typing import Any, Final, Self, cast

import msgspec

from chatledger.domain.chat.events import Body
from chatledger.domain.chat.state import Tombstone
from chatledger.domain.errors import CorruptStateError
from chatledger.domain.holds import mark
from chatledger.domain.legal_hold import LegalHold
from chatledger.domain.versioned.content import (
    Compound,
    Content,
    DictNode,
    Edited,
    Leaf,
    ListNode,
    Parts,
    references_of,
    split_digests,
)
from chatledger.domain.versioned.keys import Family, family_of_stream
from chatledger.domain.versioned.record import StoredWrite, VersionedRecord, VersionRecord
from chatledger.domain.versioned.serials import UnreadValue, plain_value

from ..chat.reader import IndexedChat
from ..lmdb.environment import Transaction, prefixed
from ..lmdb.keys import id_key, number, to_number
from ..lmdb.tables import Tables
from . import rows
from .lists import read_record
from .pieces import LEAF, MAX_DEPTH, StoredPiece, elements_of, endless_list, incomplete_list, leaf_of
from .rows import digests_in, read_version, read_writes

_SENT: Final = ("node", "arg")
_SNAPSHOT_PARTS: Final = 1


_name_decoder: Final = msgspec.msgpack.Decoder(str)
_piece_decoder: Final = msgspec.msgpack.Decoder(StoredPiece)
_LEAF_ROW: Final = msgspec.msgpack.encode(LEAF)[:3]
"""How the row of a leaf begins, behind its checksum: with the lengths of two arrays, and the tag of its kind."""


def stream_at(txn: Transaction, tables: Tables, family: Family, stream_no: int) -> str | None:
    """Return the id of the stream of the value of a number, "" where its first events do not tell it; None for other numbers."""
    if txn.get(number(stream_no) + rows.RECORD, db=tables.versioned) is None:
        return None
    record = read_record(txn, tables, stream_no)
    if record is None or not record.key:
        return ""
    stream = family.stream_of(record.key)
    return stream if txn.get(rows.stream_key(stream), db=tables.chat_ids) == number(stream_no) else None


class IndexedVersioned:
    """
    A `VersionedState` that answers from one transaction.

    Whatever is read is verified: rows have a checksum. A damaged one raises `CorruptStateError`, and hides no other one.
    """

    is_taken = False

    def __init__(self, tables: Tables, txn: Transaction, stream_id: str) -> None:
        self.stream_id, self.family = stream_id, family_of_stream(stream_id)
        self._tables, self._txn = tables, txn
        raw = txn.get(rows.stream_key(stream_id), db=tables.chat_ids)
        self.stream_no: int | None = None if raw is None else to_number(raw)
        """The number of the value: the position of its first event."""
        self._line_nos: dict[str, int | None] = {}

    @property
    def key(self) -> str:
        """The key that was asked for; "" where the stream does not tell it and there is no such value."""
        key = self.family.key_of(self.stream_id)
        return key if key is not None else "" if self.record is None else self.record.key

    @property
    def name(self) -> str:
        """The name of the value in errors."""
        return f"{self.family.name} {self.family.shown(self.key)!r}"

    def _read_record(self) -> VersionedRecord | None:
        return None if self.stream_no is None else read_record(self._txn, self._tables, self.stream_no)

    # Read at its first use, as versions are read also where it is damaged. For types it is the attribute that it becomes then.
    record: VersionedRecord | None = cast("VersionedRecord | None", cached_property(_read_record))
    """None when there is no such value. Raises `CorruptStateError` when it is damaged."""

    @property
    def owner(self) -> str | None:
        """The owner: as the key names it, or the beginning of the stream, or else that of the chat of the same id; None when it is nobody's."""
        record = self.record
        if record is not None and record.owner is not None:
            return record.owner
        named = self.family.owner_of(self.key) if self.key else None
        if named is not None or self.family.key_of(self.stream_id) is None:
            return named
        chat_no = self._tables.chat_no(self._txn, self.key)
        return IndexedChat(self._tables, self._txn, self.key, chat_no).owner

    @property
    def holds(self) -> tuple[LegalHold, ...]:
        return () if self.record is None else self.record.holds

    def mark(self, holds: Sequence[LegalHold]) -> list[Body]:
        """Return the event after which these are the holds on it; none where they are."""
        return mark(self.record, None, holds)

    @property
    def read_from(self) -> tuple[Transaction, Tables]:
        return self._txn, self._tables

    def pseudonym(self, version: int, slot: int) -> str | None:
        """The name that stands in the place of another one in the head of an event; None where nothing was replaced."""
        return self._pseudonym_row(version, slot) or None

    def is_unexplained(self, version: int, slot: int) -> bool:
        """Whether an event lacks what was in a slot of its head, and no event has said what stands there."""
        return self._pseudonym_row(version, slot) == ""

    @property
    def head_position(self) -> int:
        """The position of its last event; 0 when there is no such value."""
        return 0 if self.record is None else self.record.head.position

    def untaken(self) -> Iterator[tuple[int, int]]:
        """Yield the first and the last version of events that follow each other, and that may have content to take out."""
        record, stream_no = self.record, self.stream_no
        if record is None or stream_no is None:
            return
        first = record.first_version
        for key, raw in prefixed(self._txn, self._tables.versioned, number(stream_no) + rows.TAKEN):
            if first < (start := to_number(key[-len(number(0)) :])):
                yield first, start - 1
            first = to_number(raw) + 1
        if first <= record.head.version:
            yield first, record.head.version

    def _pseudonym_row(self, version: int, slot: int) -> str | None:
        """The same; "" where the event lacks a name, and what stands in its place comes later on the log."""
        if self.stream_no is None:
            return None
        key = rows.pseudonym_key(self.stream_no, rows.PSEUDONYM, version, slot)
        raw = self._txn.get(key, db=self._tables.versioned)
        return None if raw is None else rows.unsealed(key, raw, _name_decoder)

    @property
    def tombstone(self) -> Tombstone | None:
        """The last deletion of a value of this key."""
        return self._tables.tombstone(self._txn, self.stream_id)

    def check_may_write(self, bodies: Sequence[Body] | None = None) -> None:
        """Do nothing: only a user may not; see `UserVersioned`."""

    def command(self, command_id: str) -> tuple[int, int] | None:
        """Always None: repeated commands are told by the version that they put or expect."""
        del command_id
        return None

    def beside(self, stream_id: str) -> "IndexedVersioned":
        """Another value at the same moment."""
        return IndexedVersioned(self._tables, self._txn, stream_id)

    def absent(self) -> Self:
        """The same stream without its value."""
        absent = copy(self)
        absent.stream_no, absent.record, absent._line_nos = None, None, {}  # noqa: SLF001 - of the same class
        return absent

    def lines(self) -> list[str]:
        """In the order in which they came up."""
        record = self.record
        if self.stream_no is None or record is None:
            return []
        prefix = number(self.stream_no) + rows.LINE_TEXT
        named = [value.decode() for _, value in prefixed(self._txn, self._tables.versioned, prefix)]
        return ["", *named] if record.has_plain_line else named

    def version(self, line: str, version_id: str) -> VersionRecord | None:
        """A version, skeletons too. Raises `CorruptStateError` when it is damaged."""
        prefix = self._prefix(line)
        if prefix is None:
            return None
        key = prefix + version_id.encode()
        raw = self._txn.get(key, db=self._tables.version_rows)
        return None if raw is None else read_version(key, raw, line, version_id)

    def is_awaited(self, line: str, version_id: str) -> bool:
        """Whether there may be versions whose parent it is, though it is not there yet."""
        line_no = self.line_no(line)
        if self.stream_no is None or line_no is None:
            return False
        return (
            self._txn.get(
                rows.numbered_key(self.stream_no, rows.AWAITED, line_no) + version_id.encode(),
                db=self._tables.versioned,
            )
            is not None
        )

    def newest(self, line: str) -> VersionRecord | None:
        """The version with the greatest id that is no skeleton."""
        return next((record for record in self.versions(line) if record.skeleton is None), None)

    def versions(self, line: str, *, before: str | None = None) -> Iterator[VersionRecord]:
        """All of a line, newest first, skeletons too; only those with smaller ids than `before`."""
        for key, raw, version_id in self._version_rows(line, before):
            yield read_version(key, raw, line, version_id)

    def unpruned(self, line: str) -> Iterator[VersionRecord]:
        """The newest of a line, down to where none has any content: what rules have thinned out is not read again."""
        for key, raw, version_id in self._version_rows(line, None, after=self.bare_until(line)):
            yield read_version(key, raw, line, version_id)

    def bare_until(self, line: str) -> str | None:
        """The id of a version up to which none of a line has any content; None where nobody noted one."""
        line_no = self.line_no(line)
        if self.stream_no is None or line_no is None:
            return None
        raw = self._txn.get(rows.numbered_key(self.stream_no, rows.BARE, line_no), db=self._tables.versioned)
        return None if raw is None else raw.decode()

    def versions_after(self, line: str, version_id: str) -> Iterator[VersionRecord]:
        """Yield the versions of a line with greater ids, the least first, skeletons too."""
        prefix, cursor = self._prefix(line), self._txn.cursor(self._tables.version_rows)
        is_there = prefix is not None and cursor.set_range(prefix + version_id.encode() + b"\0")  # no id contains NUL
        while is_there and prefix is not None and (key := cursor.key()).startswith(prefix):
            yield read_version(key, cursor.value(), line, key[len(prefix) :].decode())
            is_there = cursor.next()

    def version_ids(self, line: str = "", *, before: str | None = None) -> Iterator[str]:
        """The ids of the versions of a line, newest first, also of damaged ones; only those smaller than `before`."""
        for _, _, version_id in self._version_rows(line, before):
            yield version_id

    def _version_rows(
        self, line: str, before: str | None, *, after: str | None = None
    ) -> Iterator[tuple[bytes, bytes, str]]:
        prefix = self._prefix(line)
        if prefix is None:
            return
        start = prefix + (b"\xff" if before is None else before.encode())  # no byte of an id is 255
        end = None if after is None else prefix + after.encode()
        cursor = self._txn.cursor(self._tables.version_rows)
        is_there = cursor.prev() if cursor.set_range(start) else cursor.last()
        while is_there and (key := cursor.key()).startswith(prefix) and (end is None or key > end):
            yield key, cursor.value(), key[len(prefix) :].decode()
            is_there = cursor.prev()

    def writes(self, line: str, version_id: str) -> list[StoredWrite]:
        """The pending writes of a version, be it there or not, by task path, task and index."""
        prefix = self._prefix(line)
        if prefix is None:
            return []
        listed = prefixed(self._txn, self._tables.version_writes, rows.writes_key(prefix, version_id))
        writes = [write for key, raw in listed for write in read_writes(key, raw)]
        return sorted(writes, key=lambda write: (write.task_path, write.task_id, write.index))

    def writes_of_task(self, line: str, version_id: str, task_id: str) -> list[StoredWrite]:
        """Return the writes of one task, which are one row, however many tasks there are."""
        prefix = self._prefix(line)
        if prefix is None:
            return []
        key = rows.writes_key(prefix, version_id, rows.task_key(task_id))
        raw = self._txn.get(key, db=self._tables.version_writes)
        return [] if raw is None else read_writes(key, raw)

    def roots(self, lines: Iterable[str]) -> list[bytes]:
        """The digests of all values of versions and writes of some lines."""
        roots: list[bytes] = []
        for line in lines:
            for key, raw, _ in self._version_rows(line, None, after=self.bare_until(line)):
                roots += digests_in(key, raw)
            for _, writes in self.all_writes(line):
                roots += (write.digest for write in writes)
        return roots

    def all_writes(self, line: str) -> list[tuple[str, list[StoredWrite]]]:
        """The writes of a line, task by task, each with the id of its version."""
        prefix = self._prefix(line)
        if prefix is None:
            return []
        listed = prefixed(self._txn, self._tables.version_writes, prefix)
        return [(rows.version_of_writes(key), read_writes(key, raw)) for key, raw in listed]

    def ids_with_writes(self, line: str) -> list[str]:
        """The ids of all versions of a line, and of those that only have writes yet; ascending."""
        return sorted({version_id for version_id, _ in self.all_writes(line)} | {*self.version_ids(line)})

    def ids_with_content(self, line: str) -> list[str]:
        """The same without those of which only the places are left; see `unpruned`."""
        listed = self._version_rows(line, None, after=self.bare_until(line))
        return sorted({version_id for version_id, _ in self.all_writes(line)} | {key for _, _, key in listed})

    def has_content(self, digest: bytes) -> bool:
        """Whether the value has this piece, and it is sound."""
        try:
            return self.content(digest) is not None
        except CorruptStateError:
            return False

    def content(self, digest: bytes) -> Content | None:
        """A piece; of a list all elements. Raises `CorruptStateError` when it is damaged."""
        stored = self.stored_content(digest)
        if stored is not None and isinstance(stored.content, ListNode) and stored.content.base:
            return ListNode(self.elements(digest))
        return None if stored is None else self.whole(stored.content)

    def need_content(self, digest: bytes) -> Content:
        """A piece that must be there. Raises `CorruptStateError` when it is missing or damaged."""
        content = self.content(digest)
        if content is None:
            raise rows.damaged()
        return content

    def elements(self, digest: bytes) -> bytes:
        """The digests of all elements of a list that is stored."""
        remembered = self._tables.caches.lists.get(digest)
        if remembered is not None:
            return remembered
        stored = self.stored_content(digest)
        if stored is None or not isinstance(stored.content, ListNode):
            raise incomplete_list(self.name)
        elements = self.elements_of(stored.content)
        self._tables.caches.lists.put(digest, elements, len(elements))
        return elements

    def whole(self, content: Content) -> Content:
        """A piece as it is stored, without the ones that it came out of."""
        if isinstance(content, Edited):
            return leaf_of(content, self.stored_content, self.name)
        return ListNode(self.elements_of(content)) if isinstance(content, ListNode) and content.base else content

    def elements_of(self, node: ListNode) -> bytes:
        """The digests of all elements of a list, as it is stored."""
        return elements_of(node, self.stored_content, where=self.name, remembered=self._tables.caches.lists)

    def stored_content(self, digest: bytes) -> StoredPiece | None:
        """A piece as it is stored. Raises `CorruptStateError` when it is damaged."""
        if self.stream_no is None:
            return None
        key = rows.piece_key(self.stream_no, rows.PIECE, digest)
        raw = self._txn.get(key, db=self._tables.versioned)
        return None if raw is None else rows.unsealed(key, raw, _piece_decoder)

    def stored_pieces(self) -> Iterator[tuple[bytes, StoredPiece]]:
        """
        Yield all pieces with their digests, in the order of these. Leaves stand there without their content, which is most of all
        the bytes, and which is made of nothing.
        """
        if self.stream_no is None:
            return
        prefix = number(self.stream_no) + rows.PIECE
        for key, raw in prefixed(self._txn, self._tables.versioned, prefix):
            is_leaf = raw.startswith(_LEAF_ROW, rows.CHECKSUM_BYTES) and rows.is_sealed(key, raw)
            yield key[len(prefix) :], LEAF if is_leaf else rows.unsealed(key, raw, _piece_decoder)

    def line_no(self, line: str) -> int | None:
        """The number of a line; None when nothing is in it."""
        if line not in self._line_nos:
            raw: bytes | None = None
            if not line and self._has_plain_line():
                raw = rows.line_number(rows.PLAIN_LINE)
            elif self.stream_no is not None:
                raw = self._txn.get(number(self.stream_no) + rows.LINE + id_key(line), db=self._tables.versioned)
            if raw is not None and len(raw) != rows.LINE_BYTES:
                msg = f"a line of {self.name} is damaged in the index; rebuild it"
                raise CorruptStateError(msg)
            self._line_nos[line] = None if raw is None else int.from_bytes(raw, "big")
        return self._line_nos[line]

    def _has_plain_line(self) -> bool:
        try:
            return self.record is not None and self.record.has_plain_line
        except CorruptStateError:
            # Versions are read all the same where the record is damaged.
            if self.stream_no is None:
                return False
            key = number(self.stream_no) + rows.LINE + id_key("")
            return self._txn.get(key, db=self._tables.versioned) is None

    def _prefix(self, line: str) -> bytes | None:
        """The prefix of rows within a line; None when nothing is in it."""
        line_no = self._line_nos.get(line)
        if line_no is None:
            line_no = self.line_no(line)
        return None if line_no is None or self.stream_no is None else rows.line_prefix(self.stream_no, line_no)


@contextlib.contextmanager
def named_damage(state: IndexedVersioned, key: str, version_id: str | None = None) -> Generator[None]:
    """Let errors of damaged rows say which value and version it is, and nothing of what is in them."""
    try:
        yield
    except CorruptStateError as error:
        number_text = version_id.lstrip("0") if version_id and state.family.is_numbered else version_id
        which = "" if number_text is None else f" at version {number_text}"
        msg = (
            f"{state.family.name} {state.family.shown(key)!r}{which} cannot be read: {error}; rebuild the index, or read an earlier "
            "version"
        )
        version = int(version_id) if version_id is not None and version_id.isdecimal() else None
        raise CorruptStateError(msg, chat_id=key, version=version) from error


def load_contents(
    state: IndexedVersioned,
    roots: Iterable[bytes],
    is_known: Callable[[bytes], bool],
    pieces: dict[bytes, Content],
) -> dict[bytes, Content]:
    """
    The pieces that these are made of, themselves too, as they are stored; without those that are known and what is only in them.

    They are added to `pieces`, which is given back; what is there already is not read again.
    """
    pending = list(roots)
    grown: list[bytes] = []
    while pending:
        digest = pending.pop()
        if digest in pieces or is_known(digest):
            continue
        stored = state.stored_content(digest)
        if stored is None:
            msg = f"a value of {state.name} is missing in the index; rebuild it"
            raise CorruptStateError(msg)
        content = state.whole(stored.content) if isinstance(stored.content, Edited) else stored.content
        pieces[digest] = content
        pending.extend(references_of(content))
        if isinstance(content, ListNode) and content.base:
            grown.append(digest)
    _check_ends(state, pieces, grown)
    return pieces


def _check_ends(state: IndexedVersioned, pieces: dict[bytes, Content], grown: list[bytes]) -> None:
    """Raise `CorruptStateError` unless lists grew out of lists, and the first of them out of none."""
    checked: set[bytes] = set()
    for digest in grown:
        path: list[bytes] = []
        at = digest
        while at in pieces and at not in checked:
            node = pieces[at]
            if not isinstance(node, ListNode):
                raise incomplete_list(state.name)
            path.append(at)
            if len(path) > MAX_DEPTH:
                raise endless_list(state.name)
            if not node.base:
                break
            at = node.base
        checked.update(path)


class PlainReader:
    """Reads values of one thread or state; each piece once."""

    def __init__(self, value: IndexedVersioned) -> None:
        self._value = value
        self._read: dict[bytes, Any] = {}

    def value(self, digest: bytes) -> Any:
        """Return a value as `plain_value` gives it; an `UnreadValue` where it is missing or damaged. Readers do not change it."""
        if digest not in self._read:
            try:
                self._read[digest] = self._of(digest)
            except CorruptStateError:
                self._read[digest] = UnreadValue("damaged", 0)
        return self._read[digest]

    def last(self, digest: bytes) -> Any:
        """Return the last element of a list, without reading the others where they are stored one by one; else the value."""
        stored = self._value.stored_content(digest)
        content = None if stored is None else stored.content
        if isinstance(content, ListNode):
            children = content.children or self._value.elements(digest)
            return self.value(split_digests(children)[-1]) if children else None
        whole = self.value(digest)
        elements = cast("list[Any]", whole) if isinstance(whole, list) else [whole]
        return elements[-1] if elements else None

    def _of(self, digest: bytes) -> Any:
        content = self._value.content(digest)
        if isinstance(content, Leaf):
            return plain_value(content.type, content.data)
        if isinstance(content, Parts):
            parts = [self._value.need_content(part) for part in split_digests(content.children)]
            return plain_value(content.type, b"".join(part.data for part in parts if isinstance(part, Leaf)))
        if not isinstance(content, ListNode | DictNode | Compound):
            return UnreadValue("missing", 0)
        values = [self.value(child) for child in split_digests(content.children)]
        if isinstance(content, DictNode):
            return dict(zip(content.keys, values, strict=True))
        if isinstance(content, Compound):
            # A packet to a node, or a snapshot of a delta channel.
            return values[0] if len(values) == _SNAPSHOT_PARTS else dict(zip(_SENT, values, strict=False))
        return values
