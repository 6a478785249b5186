"""
The messages of versioned values: threads, states and items. Each is kept once, with the version that had it first.

They are numbered in the order in which they came, as those of a chat are, and the search index takes them in under the number of the value
that its record names. What is looked at of a version is what the version before it had not, so a list that grows costs what was added.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol

import msgspec

from chatledger.domain.errors import CorruptStateError
from chatledger.domain.values import HitPlace, Message
from chatledger.domain.versioned.content import (
    Compound,
    Content,
    DictNode,
    Edited,
    Leaf,
    ListNode,
    Parts,
    split_digests,
)
from chatledger.domain.versioned.keys import FAMILIES, THREAD, Family
from chatledger.domain.versioned.messages import (
    HeldMessage,
    element_of_leaf,
    elements_of_leaf,
    may_have_messages,
    messages_of,
)
from chatledger.domain.versioned.record import StoredWrite, VersionedRecord, VersionRecord

from ..chat.reader import IndexedChat
from ..lmdb.environment import Transaction, drop_prefixed, prefixed
from ..lmdb.keys import number, to_number
from ..lmdb.tables import Tables
from . import lists, rows
from .lists import searched_values
from .reader import IndexedVersioned

if TYPE_CHECKING:
    from ..search.indexer import SearchWriter

OF_AGENTS: Final = 1 << 31
"""The segment of a message of a chat is below this. That of another one is this, with the family and the number of the line."""
_FAMILY_SHIFT: Final = 29
_UNSEARCHED: Final = ("__", "branch:", "join:")
"""How the names of fields begin that are LangGraph's own, and hold what stands in others too."""
_NEAR: Final = 1024
"""So many versions are looked at for the one to name for a message. LangGraph's delta channels keep at most about so many pruned ones."""
_TOTAL: Final = b"messages of agents"
_encode: Final = msgspec.msgpack.Encoder().encode


class MessageRow(msgspec.Struct, frozen=True, array_like=True):
    """
    Where a message of a value is.

    Args:
        digest: The piece that has it.
        element: The place in the list that the piece is; -1 where it is none, or is looked at as a whole.
        at: Which of the messages there it is.
        line_no: The number of its line.
        version: The first version that has it; with `is_write` that which it waits at to be taken up.
        field: The field of that.
        created_at: When that was stored, in ms.
    """

    digest: bytes
    element: int
    at: int
    line_no: int
    version: str
    field: str
    created_at: int
    is_write: bool = False


_row_decoder: Final = msgspec.msgpack.Decoder(MessageRow)


def segment_of(family: Family, line_no: int) -> int:
    """The segment under which the search index has the messages of a line of a value."""
    return OF_AGENTS | FAMILIES.index(family) << _FAMILY_SHIFT | line_no


def kind_of(segment: int) -> Literal["chat", "thread", "state", "item"]:
    """Return what a message is in, by its segment."""
    return "chat" if segment < OF_AGENTS else FAMILIES[(segment & ~OF_AGENTS) >> _FAMILY_SHIFT].name


def segments_of(family: Family | None) -> tuple[int, int]:
    """Return the first segment of a family, or of all, and that behind the last one."""
    first = OF_AGENTS if family is None else segment_of(family, 0)
    return first, OF_AGENTS << 1 if family is None else first + (1 << _FAMILY_SHIFT)


def count_all(txn: Transaction, tables: Tables) -> int:
    """The number of the messages of all values."""
    raw = txn.get(_TOTAL, db=tables.meta)
    return 0 if raw is None else to_number(raw)


def readable_values(
    txn: Transaction, tables: Tables, owner: str | None, chat_nos: Sequence[int], joined: Collection[int] = ()
) -> list[int]:
    """
    Return the numbers of the messages of an owner's values, and of the threads of these chats that are their owners' or nobody's.

    `joined` are the chats of others among them, whose owners' threads may be read. Costs no more for a chat that has no thread.
    """
    own = [] if owner is None else [messages_no for messages_no, _, _ in searched_values(txn, tables, owner)]
    nobodys = [stream_no for _, _, stream_no in islice(searched_values(txn, tables, ""), len(chat_nos))]
    looked_at = chat_nos
    if owner is not None and len(nobodys) < len(chat_nos):
        # The threads that name nobody are fewer: of the owner's chats only those that have one are looked at.
        keys = (lists.record_at(txn, tables, stream_no).key for stream_no in nobodys)
        of_nobody = {tables.chat_no(txn, key) for key in keys if key}
        looked_at = [chat_no for chat_no in chat_nos if chat_no in of_nobody or chat_no in joined]
    elif next(searched_values(txn, tables), None) is None:
        return own
    readable = dict.fromkeys(own)
    for chat_no in looked_at:
        profile = IndexedChat(tables, txn, "", chat_no).profile
        assert profile is not None, "a listed chat has a profile"
        record = IndexedVersioned(tables, txn, THREAD.stream_of(profile.id)).record
        if record is not None and record.message_count and record.owner in {None, profile.user_id}:
            readable[record.messages_no] = None
    return list(readable)


def value_at(txn: Transaction, tables: Tables, messages_no: int) -> IndexedVersioned | None:
    """Return the value whose messages have a number in the search index; None for other numbers."""
    place = lists.searched_at(txn, tables, messages_no)
    if place is None:
        return None
    family, stream_no = place
    return IndexedVersioned(tables, txn, family.stream_of(lists.record_at(txn, tables, stream_no).key))


class _PlacedMessage(NamedTuple):
    """A message, and where it is: a piece, the element of that, and which of the messages there."""

    message: HeldMessage
    digest: bytes
    element: int
    at: int


class HeldMessages:
    """The messages of a value at one moment."""

    def __init__(self, txn: Transaction, tables: Tables, value: IndexedVersioned) -> None:
        self._txn, self._tables, self.value = txn, tables, value
        self._first_living: dict[tuple[int, str], str | None] = {}
        """Of versions that were looked at: the first below them that is not pruned."""

    def row(self, ordinal: int) -> MessageRow:
        """Where a message is, by its number. Raises `CorruptStateError` where there is none."""
        key = rows.numbered_key(self._need_no(), rows.MESSAGE, ordinal)
        raw = self._txn.get(key, db=self._tables.versioned)
        if raw is None:
            raise rows.damaged()
        return rows.unsealed(key, raw, _row_decoder)

    def held(self, row: MessageRow) -> HeldMessage:
        """The message there. Raises `CorruptStateError` where it cannot be read."""
        leaf = _joined(self.value, _content(self.value, row.digest))
        messages = [] if leaf is None else messages_of(element_of_leaf(leaf, row.element))
        if row.at >= len(messages):
            raise rows.damaged()
        return messages[row.at]

    def messages(self, first: int = 0, count: int | None = None) -> Iterator[tuple[int, MessageRow, Message]]:
        """Yield the messages from a number on: the number, where each is, and what it says. Raises as `held` does."""
        record = self.value.record
        end = 0 if record is None else record.message_count
        for ordinal in range(first, end if count is None else min(end, first + count)):
            row = self.row(ordinal)
            yield ordinal, row, message_at(row, self.held(row))

    def bodies(self, first: int, count: int) -> Iterator[tuple[tuple[int, int], bytes]]:
        """Yield messages as those of chats are stored, with their places in the search index."""
        for ordinal, row, message in self.messages(first, count):
            yield (segment_of(self.value.family, row.line_no), ordinal), body_of(message)

    def place(self, ordinal: int) -> HitPlace:
        """Where a message is, for those who look for it."""
        row, value = self.row(ordinal), self.value
        version = self._shown(row)
        return HitPlace(
            kind=value.family.name,
            id=value.key,
            namespace=self._line(row),
            version=version.lstrip("0") if version and value.family.is_numbered else version,
            field=row.field,
            owner=value.owner,
        )

    def _shown(self, row: MessageRow) -> str | None:
        """Return the version to name for a message: the one that took it up, and of pruned ones the next below that is not."""
        line = self._line(row)
        version = self.value.version(line, row.version)
        if version is not None and version.skeleton is None and not row.is_write:
            return version.id
        is_there = version is not None and version.skeleton is None
        return self._below(line, row) or (row.version if is_there else None)

    def _below(self, line: str, row: MessageRow) -> str | None:
        """Return the first version below that of a message that is not pruned; None where none is near, however long the line is."""
        passed, living = [row.version], self._first_living.get((row.line_no, row.version))
        for later in islice(self.value.versions_after(line, row.version), _NEAR if living is None else 0):
            if later.parent == passed[-1]:  # of several the first
                living = later.id if later.skeleton is None else self._first_living.get((row.line_no, later.id))
                if living is not None:
                    break
                passed.append(later.id)
        # Prunings leave long rows of skeletons, and a page of hits has many messages of one such row.
        self._first_living.update(((row.line_no, version_id), living) for version_id in passed)
        return living

    def was_there(self, ordinal: int, position: int, time: int | None) -> bool:
        """Whether a message was there at a position of the log, and at a time in ms."""
        row = self.row(ordinal)
        version = self.value.version(self._line(row), row.version)
        # A write has no position of its own: it counts with the version that it waits at.
        is_there = version is None or version.position <= position
        return is_there and (time is None or row.created_at <= time)

    def _line(self, row: MessageRow) -> str:
        raw = self._txn.get(
            number(self._need_no()) + rows.LINE_TEXT + rows.line_number(row.line_no), db=self._tables.versioned
        )
        return "" if raw is None else raw.decode()

    def _need_no(self) -> int:
        assert self.value.stream_no is not None, "a value with messages is there"
        return self.value.stream_no


def message_at(row: MessageRow, held: HeldMessage) -> Message:
    """Return what a search shows of a message."""
    message_id = row.digest.hex() if held.id is None else held.id
    return Message(id=message_id, name=held.role, data=held.data, form=held.form, created_at=row.created_at)


def body_of(message: Message) -> bytes:
    """Return a message as those of chats are stored, as far as a search reads it."""
    said = {"name": message.name, "created_at": message.created_at, "data": message.data, "form": message.form}
    return _encode(said)


class MessageWriter(HeldMessages):
    """
    Keeps the messages of a value in a write transaction.

    `value`: the value, whose record and content are those after what was put. Its record counts its messages.
    """

    def __init__(self, txn: Transaction, tables: Tables, value: IndexedVersioned) -> None:
        super().__init__(txn, tables, value)
        self._search: SearchWriter | None = None

    def take_version(self, version: VersionRecord) -> None:
        """Take in what a version has that the one before it had not."""
        self._take(self._of_version(version), version.parent)

    def take_writes(self, line: str, version_id: str, writes: Sequence[StoredWrite], time: int) -> None:
        """Take in what tasks wrote at a version."""
        written = [*self._of_writes(line, version_id, writes, time)]
        if any(message.id is None for _, message in written):
            # On a busy machine LangGraph puts the writes of a step after the checkpoint that took them up, where they got their ids.
            later = islice(self.value.versions_after(line, version_id), _NEAR)
            children = [version for version in later if version.parent == version_id]
            taken_up = {message.key(without_id=True) for child in children for _, message in self._of_version(child)}
            written = [
                (row, message) for row, message in written if message.id is not None or message.key() not in taken_up
            ]
        self._take(written)

    def all_messages(self) -> Sequence[Message] | None:
        """Return all messages; None where some cannot be read."""
        try:
            return [message for _, _, message in self.messages()]
        except CorruptStateError:
            return None

    def recount(self, position: int, earlier: Sequence[Message] | None, *, is_forced: bool) -> None:
        """
        Take in what is left after versions were removed, or all that was copied.

        `position`: that of the event: the new number of the messages in the search index, where they are numbered anew.
        `is_forced`: whether they are numbered anew though the same ones are left.
        """
        listed = _Listed()
        for line in self.value.lines():
            for version_id in self.value.ids_with_content(line):
                version = self._intact_version(line, version_id)
                if version is not None:
                    take(listed, self._of_version(version), version.parent)
                time = 0 if version is None else version.stored_at
                take(listed, self._of_writes(line, version_id, self.value.writes(line, version_id), time))
        ordinals = {key[-rows.MESSAGE_KEY_BYTES :]: to_number(raw) for key, raw in self._keys()}
        stored_rows = {key: row for key in ordinals if (row := self.find(key)) is not None}
        is_same = {key: row.line_no for key, row in stored_rows.items()} == {
            key: row.line_no for key, (row, _) in listed.items()
        }
        if is_same and earlier is not None and not is_forced:
            for key, (row, _) in listed.items():
                # The search index has the time that it had first.
                self._put_row(ordinals[key], msgspec.structs.replace(row, created_at=stored_rows[key].created_at))
            return
        self.forget(earlier)
        self.value.record = msgspec.structs.replace(self._need_record(), messages_no=position)
        for key, (row, message) in listed.items():
            self.add(key, row, message)

    def forget(self, messages: Sequence[Message] | None) -> None:
        """Take all messages, which are these, out of the rows and the search index; out of that goes everything where nobody knows them."""
        from ..search.indexer import forget_messages

        record = self._need_record()
        if not record.message_count:
            return
        self.flush()
        if self._tables.caches.sink is not None:
            self._tables.caches.sink.drop(record.messages_no)
        forget_messages(self._txn, self._tables, record.messages_no, messages)
        for place in lists.searched_places(self.value.family, record):
            self._txn.delete(place, db=self._tables.version_lists)
        for kind in (rows.MESSAGE, rows.MESSAGE_BY_KEY):
            drop_prefixed(self._txn, self._tables.versioned, number(self._need_no()) + kind)
        self._count(-record.message_count)
        self.value.record = msgspec.structs.replace(record, message_count=0)
        self._search = None

    def flush(self) -> None:
        """Write what was kept back for the search index."""
        if self._search is not None:
            self._search.flush()

    def find(self, key: bytes) -> MessageRow | None:
        """Where the message with a key is; None also where that is damaged."""
        raw = self._txn.get(self._by_key(key), db=self._tables.versioned)
        with suppress(CorruptStateError):
            return None if raw is None else self.row(to_number(raw))
        return None

    def move(self, key: bytes, to_key: bytes, row: MessageRow) -> None:
        """Note that a message is elsewhere, and has another key."""
        raw = self._txn.get(self._by_key(key), db=self._tables.versioned)
        assert raw is not None, "only a message that is there moves"
        self._txn.delete(self._by_key(key), db=self._tables.versioned)
        self._txn.put(self._by_key(to_key), raw, db=self._tables.versioned)
        self._put_row(to_number(raw), row)

    def add(self, key: bytes, row: MessageRow, held: HeldMessage) -> None:
        record = self._need_record()
        ordinal, messages_no = record.message_count, record.messages_no
        self._put_row(ordinal, row)
        self._txn.put(self._by_key(key), number(ordinal), db=self._tables.versioned)
        self.value.record = msgspec.structs.replace(record, message_count=ordinal + 1)
        self._count(1)
        if not ordinal:
            for listed in lists.searched_places(self.value.family, record):
                self._txn.put(listed, lists.searched_row(self.value.family, record), db=self._tables.version_lists)
        message, place = message_at(row, held), (segment_of(self.value.family, row.line_no), ordinal)
        sink = self._tables.caches.sink
        if sink is not None:
            sink.add(messages_no, ordinal, place, [body_of(message)])
            return
        if self._search is None:
            from ..search.indexer import SearchWriter

            self._search = SearchWriter(self._txn, self._tables, messages_no)
        self._search.add(message, ordinal, place)

    def _take(self, messages: Iterable[tuple[MessageRow, HeldMessage]], parent: str | None = None) -> None:
        if self._need_record().key:  # else nobody could be told whose they are
            take(self, messages, parent)

    def _of_version(self, version: VersionRecord) -> Iterator[tuple[MessageRow, HeldMessage]]:
        before_id = version.parent
        if before_id is None and self.value.family.is_numbered:
            before_id = next(self.value.version_ids(version.line, before=version.id), None)
        before = None if before_id is None else self._intact_version(version.line, before_id)
        earlier = {} if before is None else before.fields
        for name, ref in version.fields.items():
            old = earlier.get(name)
            if (old is None or ref.digest != old.digest) and _is_searched(name):
                for placed in _new_messages(self.value, ref.digest, None if old is None else old.digest):
                    yield self._placed(placed, version.line, version.id, name, version.stored_at), placed.message

    def _of_writes(
        self, line: str, version_id: str, writes: Sequence[StoredWrite], time: int
    ) -> Iterator[tuple[MessageRow, HeldMessage]]:
        for write in writes:
            if _is_searched(write.channel):
                for placed in _new_messages(self.value, write.digest, None):
                    row = self._placed(placed, line, version_id, write.channel, write.written_at or time)
                    yield msgspec.structs.replace(row, is_write=True), placed.message

    def _intact_version(self, line: str, version_id: str) -> VersionRecord | None:
        with suppress(CorruptStateError):  # what is damaged keeps nothing else from being written
            return self.value.version(line, version_id)
        return None

    def _placed(self, placed: "_PlacedMessage", line: str, version_id: str, field: str, time: int) -> MessageRow:
        line_no = self.value.line_no(line)
        assert line_no is not None, "a version is in a line"
        return MessageRow(placed.digest, placed.element, placed.at, line_no, version_id, field, time)

    def _put_row(self, ordinal: int, row: MessageRow) -> None:
        key = rows.numbered_key(self._need_no(), rows.MESSAGE, ordinal)
        self._txn.put(key, rows.sealed(key, row), db=self._tables.versioned)

    def _by_key(self, key: bytes) -> bytes:
        return number(self._need_no()) + rows.MESSAGE_BY_KEY + key

    def _keys(self) -> Iterator[tuple[bytes, bytes]]:
        return prefixed(self._txn, self._tables.versioned, number(self._need_no()) + rows.MESSAGE_BY_KEY)

    def _count(self, change: int) -> None:
        self._txn.put(_TOTAL, number(count_all(self._txn, self._tables) + change), db=self._tables.meta)

    def _need_record(self) -> VersionedRecord:
        record = self.value.record
        assert record is not None, "events make a value"
        return record


class MessageKeeper(Protocol):
    """Keeps messages by their keys."""

    def find(self, key: bytes) -> MessageRow | None:
        """Where the message with a key is."""
        ...

    def move(self, key: bytes, to_key: bytes, row: MessageRow) -> None:
        """Note that a message is elsewhere, and has another key."""

    def add(self, key: bytes, row: MessageRow, held: HeldMessage) -> None:
        """Keep a message."""


def take(keeper: MessageKeeper, messages: Iterable[tuple[MessageRow, HeldMessage]], parent: str | None = None) -> None:
    """
    Have messages kept that are not there.

    What was written at the `parent` of a version, and is in that, is the message of that version, also where it got its id only there.
    """
    for row, message in messages:
        key = message.key()
        keys = [key] if message.id is None else [key, message.key(without_id=True)]
        for there in keys:
            earlier = keeper.find(there)
            is_taken_up = earlier is not None and earlier.is_write and not row.is_write and earlier.version == parent
            if earlier is not None and (there == key or is_taken_up):
                if is_taken_up:
                    keeper.move(there, key, msgspec.structs.replace(row, created_at=earlier.created_at))
                break
        else:
            keeper.add(key, row, message)


class _Listed(dict[bytes, tuple[MessageRow, HeldMessage]]):
    """Messages by their keys, in memory."""

    def find(self, key: bytes) -> MessageRow | None:
        kept = self.get(key)
        return None if kept is None else kept[0]

    def move(self, key: bytes, to_key: bytes, row: MessageRow) -> None:
        self[to_key] = row, self.pop(key)[1]

    def add(self, key: bytes, row: MessageRow, held: HeldMessage) -> None:
        self[key] = row, held


def _is_searched(field: str) -> bool:
    return not field.startswith(_UNSEARCHED)


def _new_messages(value: IndexedVersioned, digest: bytes, earlier: bytes | None) -> Iterator[_PlacedMessage]:
    """Yield the messages that a piece has and the one before it had not; those in pieces that are damaged or still to come are left out."""
    with suppress(CorruptStateError):
        content, before = _content(value, digest), None if earlier is None else _content(value, earlier)
        if isinstance(content, ListNode):
            children = _new_children(value, digest, content, earlier if isinstance(before, ListNode) else None)
            pairs: Sequence[tuple[bytes, bytes | None]] = [(child, None) for child in children]
        elif isinstance(content, DictNode):
            old = (
                dict(zip(before.keys, split_digests(before.children), strict=True))
                if isinstance(before, DictNode)
                else {}
            )
            pairs = [
                (child, old.get(key)) for key, child in zip(content.keys, split_digests(content.children), strict=True)
            ]
        elif isinstance(content, Compound):
            pairs = [(child, None) for child in split_digests(content.children)]
        else:
            yield from _in_leaf(value, digest, content, before)
            return
        for child, old_child in pairs:
            if child != old_child:
                yield from _new_messages(value, child, old_child)


def _content(value: IndexedVersioned, digest: bytes) -> Content | None:
    stored = value.stored_content(digest)
    if stored is None:
        return None
    return value.whole(stored.content) if isinstance(stored.content, Edited) else stored.content


def _new_children(value: IndexedVersioned, digest: bytes, node: ListNode, earlier: bytes | None) -> Sequence[bytes]:
    if earlier is None:
        return split_digests(value.elements(digest))
    if node.base == earlier:  # it grew, and nothing of what it was is read
        return split_digests(node.children)
    whole, before = value.elements(digest), value.elements(earlier)
    if whole.startswith(before):
        return split_digests(whole[len(before) :])
    there = frozenset(split_digests(before))
    return [child for child in split_digests(whole) if child not in there]


def _in_leaf(
    value: IndexedVersioned, digest: bytes, content: Content | None, before: Content | None
) -> Iterator[_PlacedMessage]:
    if isinstance(content, Parts):
        there = frozenset(split_digests(before.children) if isinstance(before, Parts) else ())
        parts = split_digests(content.children)
        # Beside what is new the part before it: a long text that was changed begins there.
        looked_at = {at for new, part in enumerate(parts) if part not in there for at in (new - 1, new) if at >= 0}
        if not any(may_have_messages(_part(value, parts[at])) for at in sorted(looked_at)):
            return
    leaf, earlier = _ends(value, content, before) or (_joined(value, content), _joined(value, before))
    if leaf is None or not may_have_messages(leaf.data):
        return
    for element, part in elements_of_leaf(leaf, earlier):
        for at, message in enumerate(messages_of(part)):
            yield _PlacedMessage(message, digest, element, at)


def _ends(value: IndexedVersioned, content: Content | None, before: Content | None) -> tuple[Leaf, Leaf] | None:
    """Return a list and the one that it was appended to, each without the parts that are the same; None where it was not appended to."""
    if not (isinstance(content, Parts) and isinstance(before, Parts)):
        return None
    parts, earlier = split_digests(content.children), split_digests(before.children)
    same = next((at for at, pair in enumerate(zip(parts, earlier, strict=False)) if pair[0] != pair[1]), len(earlier))
    ends = [b"".join(_part(value, part) for part in of_one[same:]) for of_one in (parts, earlier)]
    is_appended = content.type.startswith("msgpack[") and ends[0].startswith(ends[1])
    return (Leaf(content.type, ends[0]), Leaf(before.type, ends[1])) if is_appended else None


def _joined(value: IndexedVersioned, content: Content | None) -> Leaf | None:
    """A value that was serialized as a whole; None for others."""
    if isinstance(content, Parts):
        return Leaf(content.type, b"".join(_part(value, part) for part in split_digests(content.children)))
    return content if isinstance(content, Leaf) else None


def _part(value: IndexedVersioned, digest: bytes) -> bytes:
    content = _content(value, digest)
    return content.data if isinstance(content, Leaf) else b""
