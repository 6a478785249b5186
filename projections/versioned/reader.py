"""One versioned value as the index has it at one moment: the state that decisions read, and the source of answers."""

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from copy import copy
from functools import cached_property
from typing import Final, Self, cast

import msgspec

from chatledger.domain.chat.events import Body
from chatledger.domain.chat.state import Tombstone
from chatledger.domain.errors import CorruptStateError
from chatledger.domain.versioned.content import Content, Edited, ListNode, references_of
from chatledger.domain.versioned.keys import Family, family_of_stream
from chatledger.domain.versioned.record import StoredWrite, VersionedRecord, VersionRecord

from ..chat.reader import IndexedChat
from ..lmdb.checksums import KEYED_BYTES, without_keyed_checksum
from ..lmdb.environment import Transaction, prefixed
from ..lmdb.keys import id_key, number, to_number
from ..lmdb.tables import Tables
from . import rows
from .lists import read_record
from .pieces import LEAF, MAX_DEPTH, StoredPiece, elements_of, endless_list, incomplete_list, leaf_of
from .rows import digests_in, read_version, read_writes

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
        return self._get(rows.awaited_prefix(self.stream_no, line_no) + version_id.encode()) is not None

    def newest(self, line: str) -> VersionRecord | None:
        """The version with the greatest id that is no skeleton."""
        return next((record for record in self.versions(line) if record.skeleton is None), None)

    def versions(self, line: str, *, before: str | None = None) -> Iterator[VersionRecord]:
        """All of a line, newest first, skeletons too; only those with smaller ids than `before`."""
        for key, raw, version_id in self._version_rows(line, before):
            yield read_version(key, raw, line, version_id)

    def version_ids(self, line: str = "", *, before: str | None = None) -> Iterator[str]:
        """The ids of the versions of a line, newest first, also of damaged ones; only those smaller than `before`."""
        for _, _, version_id in self._version_rows(line, before):
            yield version_id

    def _version_rows(self, line: str, before: str | None) -> Iterator[tuple[bytes, bytes, str]]:
        prefix = self._prefix(line)
        if prefix is None:
            return
        start = prefix + (b"\xff" if before is None else before.encode())  # no byte of an id is 255
        cursor = self._txn.cursor(self._tables.version_rows)
        is_there = cursor.prev() if cursor.set_range(start) else cursor.last()
        while is_there and (key := cursor.key()).startswith(prefix):
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
            for key, raw, _ in self._version_rows(line, None):
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
        key = rows.piece_key(self.stream_no, digest)
        raw = self._get(key)
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
            is_leaf = raw.startswith(_LEAF_ROW, KEYED_BYTES) and without_keyed_checksum(key, raw) is not None
            yield key[len(prefix) :], LEAF if is_leaf else rows.unsealed(key, raw, _piece_decoder)

    def line_no(self, line: str) -> int | None:
        """The number of a line; None when nothing is in it."""
        if line not in self._line_nos:
            raw: bytes | None = None
            if not line and self._has_plain_line():
                raw = rows.line_number(rows.PLAIN_LINE)
            elif self.stream_no is not None:
                raw = self._get(number(self.stream_no) + rows.LINE + id_key(line))
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
            return self.stream_no is not None and self._get(number(self.stream_no) + rows.LINE + id_key("")) is None

    def _prefix(self, line: str) -> bytes | None:
        """The prefix of rows within a line; None when nothing is in it."""
        line_no = self.line_no(line)
        return None if line_no is None or self.stream_no is None else rows.line_prefix(self.stream_no, line_no)

    def _get(self, key: bytes) -> bytes | None:
        return self._txn.get(key, db=self._tables.versioned)


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
