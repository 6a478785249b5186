"""One thread as the index has it at one moment: the state that decisions read, and the source of answers."""

from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from chatledger.domain.chat.events import Body
from chatledger.domain.chat.state import Tombstone
from chatledger.domain.content import Content, Edited, ListNode, references_of
from chatledger.domain.errors import CorruptStateError
from chatledger.domain.thread.events import THREAD_PREFIX, thread_stream
from chatledger.domain.thread.record import CheckpointRecord, StoredWrite, ThreadRecord

from ..chat.lists import joined_chats
from ..chat.reader import IndexedChat, chat_at
from ..content import StoredPiece, decode_piece, elements_of, endless_list, incomplete_list, leaf_of
from ..lmdb.checksums import without_checksum
from ..lmdb.environment import Transaction, prefixed
from ..lmdb.keys import id_key, number, to_number
from ..lmdb.tables import Tables
from . import rows
from .rows import read_checkpoint, read_writes

_NAMESPACE_NO_BYTES: Final = 4
MAX_DEPTH: Final = 64
"""So many lists may grow out of one another before one is stored whole."""

_decode_record: Final = msgspec.msgpack.Decoder(ThreadRecord).decode


def thread_at(txn: Transaction, tables: Tables, thread_no: int) -> str | None:
    """Return the id of the stream of the thread of a number; None when there is none."""
    record = record_of_thread(txn, tables, thread_no)
    return None if record is None else thread_stream(record.thread_id)


def record_of_thread(txn: Transaction, tables: Tables, thread_no: int) -> ThreadRecord | None:
    """Return the record of the thread of a number; None when there is none."""
    raw = txn.get(number(thread_no) + rows.RECORD, db=tables.agents)
    return None if raw is None else _decode_record(without_checksum(raw))


def thread_no_of(txn: Transaction, tables: Tables, thread_id: str) -> int | None:
    """The number of a living thread: the position of its first event."""
    raw = txn.get(b"a" + id_key(thread_id), db=tables.chat_ids)
    return None if raw is None else to_number(raw)


class IndexedThread:
    """A `ThreadState` that answers from one transaction."""

    is_taken = False

    def __init__(self, tables: Tables, txn: Transaction, thread_id: str) -> None:
        self.thread_id = thread_id
        self.name = f"thread {thread_id!r}"
        """The name of the thread in errors."""
        self.stream_id = THREAD_PREFIX + thread_id
        self._tables, self._txn = tables, txn
        self.thread_no = thread_no_of(txn, tables, thread_id)
        self._record: ThreadRecord | UnsetType | None = UNSET
        self._namespace_nos: dict[str, int | None] = {}

    @property
    def record(self) -> ThreadRecord | None:
        """None when there is no such thread."""
        if self._record is UNSET:
            raw = None if self.thread_no is None else self._get(number(self.thread_no) + rows.RECORD)
            self._record = None if raw is None else _decode_record(without_checksum(raw))
        return self._record

    @property
    def stream_no(self) -> int | None:
        """The number of the thread: the position of its first event."""
        return self.thread_no

    @property
    def owner(self) -> str | None:
        """The owner of the thread, or of the chat with its id where it names none; None when it is nobody's."""
        record = self.record
        if record is not None and record.owner is not None:
            return record.owner
        chat_no = self._tables.chat_no(self._txn, self.thread_id)
        return IndexedChat(self._tables, self._txn, self.thread_id, chat_no).owner

    @property
    def tombstone(self) -> Tombstone | None:
        """The last deletion of a thread of this id."""
        return self._tables.tombstone(self._txn, self.stream_id)

    def check_may_write(self, bodies: Sequence[Body] | None = None) -> None:
        """Do nothing: only a user may not; see `UserThread`."""

    def command(self, command_id: str) -> tuple[int, int] | None:
        """Always None: repeating what is done to a thread changes nothing."""
        del command_id
        return None

    def namespaces(self) -> list[str]:
        """In the order in which they came up."""
        if self.thread_no is None:
            return []
        prefix = number(self.thread_no) + rows.NAMESPACE_TEXT
        return [value.decode() for _, value in prefixed(self._txn, self._tables.agents, prefix)]

    def checkpoint(self, namespace: str, checkpoint_id: str) -> CheckpointRecord | None:
        """A checkpoint, skeletons too."""
        prefix = self._prefix(rows.CHECKPOINT, namespace)
        raw = (
            None
            if prefix is None
            else self._txn.get(prefix + checkpoint_id.encode(), db=self._tables.agent_checkpoints)
        )
        return None if raw is None else read_checkpoint(raw, namespace, checkpoint_id)

    def is_awaited(self, namespace: str, checkpoint_id: str) -> bool:
        """Whether there may be checkpoints whose parent it is, though it is not there yet."""
        prefix = self._prefix(rows.AWAITED, namespace)
        return prefix is not None and self._get(prefix + checkpoint_id.encode()) is not None

    def latest(self, namespace: str) -> CheckpointRecord | None:
        """The checkpoint with the greatest id that is no skeleton."""
        return next((one for one in self.checkpoints(namespace) if one.skeleton is None), None)

    def checkpoints(self, namespace: str, *, before: str | None = None) -> Iterator[CheckpointRecord]:
        """All of a namespace, newest first, skeletons too; only those with smaller ids than `before`."""
        prefix = self._prefix(rows.CHECKPOINT, namespace)
        if prefix is None:
            return
        start = _after(prefix) if before is None else prefix + before.encode()
        cursor = self._txn.cursor(self._tables.agent_checkpoints)
        found = cursor.prev() if cursor.set_range(start) else cursor.last()
        while found and (key := cursor.key()).startswith(prefix):
            yield read_checkpoint(cursor.value(), namespace, key[len(prefix) :].decode())
            found = cursor.prev()

    def writes(self, namespace: str, checkpoint_id: str) -> list[StoredWrite]:
        """The pending writes of a checkpoint, be it there or not, by task path, task and index."""
        prefix = self._prefix(rows.WRITES, namespace)
        if prefix is None:
            return []
        listed = prefixed(self._txn, self._tables.agent_writes, rows.writes_key(prefix, checkpoint_id))
        found = [write for _, value in listed for write in read_writes(value)]
        return sorted(found, key=lambda write: (write.task_path, write.task_id, write.index))

    def writes_of_task(self, namespace: str, checkpoint_id: str, task_id: str) -> list[StoredWrite]:
        """Return the writes of one task, which are one row, however many tasks there are."""
        prefix = self._prefix(rows.WRITES, namespace)
        if prefix is None:
            return []
        key = rows.writes_key(prefix, checkpoint_id, rows.task_key(task_id))
        raw = self._txn.get(key, db=self._tables.agent_writes)
        return [] if raw is None else read_writes(raw)

    def all_writes(self, namespace: str) -> list[tuple[bytes, bytes]]:
        """The rows of the writes of a namespace, with their keys."""
        prefix = self._prefix(rows.WRITES, namespace)
        return [] if prefix is None else list(prefixed(self._txn, self._tables.agent_writes, prefix))

    def checkpoint_ids(self, namespace: str) -> list[str]:
        """The ids of all checkpoints of a namespace, and of those that only have writes yet; ascending."""
        found = {rows.checkpoint_of_writes(key) for key, _ in self.all_writes(namespace)}
        return sorted(found | {one.checkpoint_id for one in self.checkpoints(namespace)})

    def has_content(self, digest: bytes) -> bool:
        """Whether the thread has this piece."""
        return self.thread_no is not None and self._get(rows.use_key(self.thread_no, digest)) is not None

    def content(self, digest: bytes) -> Content | None:
        """A piece; of a list all elements."""
        stored = self.stored_content(digest)
        if stored is not None and isinstance(stored.content, ListNode) and stored.content.base:
            return ListNode(self.elements(digest))
        return None if stored is None else self.whole(stored.content)

    def elements(self, digest: bytes) -> bytes:
        """The digests of all elements of a list that is stored."""
        known = self._tables.caches.lists.get(digest)
        if known is not None:
            return known
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
        lists = self._tables.caches.lists
        return elements_of(node, self.stored_content, max_depth=MAX_DEPTH, where=self.name, remembered=lists)

    def stored_content(self, digest: bytes) -> StoredPiece | None:
        """A piece as it is stored."""
        raw = self._txn.get(rows.PAYLOAD + digest, db=self._tables.agent_content)
        return None if raw is None else decode_piece(raw)

    def namespace_no(self, namespace: str) -> int | None:
        """The number of a namespace; None when nothing is in it."""
        if namespace not in self._namespace_nos:
            thread_no = self.thread_no
            raw = None if thread_no is None else self._get(number(thread_no) + rows.NAMESPACE + id_key(namespace))
            if raw is not None and len(raw) != _NAMESPACE_NO_BYTES:
                msg = f"a namespace of thread {self.thread_id!r} is damaged in the index; rebuild it"
                raise CorruptStateError(msg)
            self._namespace_nos[namespace] = None if raw is None else int.from_bytes(raw, "big")
        return self._namespace_nos[namespace]

    def _prefix(self, kind: bytes, namespace: str) -> bytes | None:
        """The prefix of rows of one kind within a namespace; None when nothing is in it."""
        namespace_no = self.namespace_no(namespace)
        if self.thread_no is None or namespace_no is None:
            return None
        return rows.namespace_key(self.thread_no, kind, namespace_no)

    def beside(self, thread_id: str) -> "IndexedThread":
        """Another thread at the same moment."""
        return IndexedThread(self._tables, self._txn, thread_id)

    def _get(self, key: bytes) -> bytes | None:
        return self._txn.get(key, db=self._tables.agents)


def load_contents(
    thread: IndexedThread,
    roots: list[bytes],
    is_known: Callable[[bytes], bool],
    found: dict[bytes, Content],
) -> dict[bytes, Content]:
    """
    The pieces that these are made of, themselves too, as they are stored; without those that are known and what is only in them.

    They are added to `found`, which is given back; what is there already is not read again.
    """
    pending = list(roots)
    grown: list[bytes] = []
    while pending:
        digest = pending.pop()
        if digest in found or is_known(digest):
            continue
        stored = thread.stored_content(digest)
        if stored is None:
            msg = f"a value of thread {thread.thread_id!r} is missing in the index; rebuild it"
            raise CorruptStateError(msg)
        content = thread.whole(stored.content) if isinstance(stored.content, Edited) else stored.content
        found[digest] = content
        pending.extend(references_of(content))
        if isinstance(content, ListNode) and content.base:
            grown.append(digest)
    _check_ends(thread, found, grown)
    return found


def _check_ends(thread: IndexedThread, found: dict[bytes, Content], grown: list[bytes]) -> None:
    """Raise `CorruptStateError` unless lists grew out of lists, and the first of them out of none."""
    checked: set[bytes] = set()
    for digest in grown:
        path: list[bytes] = []
        at = digest
        while at in found and at not in checked:
            node = found[at]
            if not isinstance(node, ListNode):
                raise incomplete_list(thread.name)
            path.append(at)
            if len(path) > MAX_DEPTH:
                raise endless_list(thread.name)
            if not node.base:
                break
            at = node.base
        checked.update(path)


def listed_threads(
    txn: Transaction,
    tables: Tables,
    *,
    user_id: str | None = None,
    is_by_change: bool = False,
    is_ascending: bool = True,
    after: int | None = None,
) -> Iterator[tuple[int, str]]:
    """
    Threads as positions and ids, in the order of the positions of their first events, or of their last ones.

    Of a user those that name it as their owner, those that name nobody, and those of other owners whose ids are those of chats
    that the user is a member of. `after` is the position before the first one.
    """
    lists = [
        _listed(txn, tables, rows.listing(owner, is_by_change=is_by_change), is_ascending=is_ascending, after=after)
        for owner in ([None] if user_id is None else [user_id, ""])
    ]
    if user_id is None:
        return lists[0]
    # Of those there are as many as the user has joined chats, so they are put in order here.
    shared = _shared(txn, tables, user_id, is_by_change=is_by_change)
    wanted = (one for one in shared if after is None or (one[0] > after if is_ascending else one[0] < after))
    return merge(*lists, sorted(wanted, reverse=not is_ascending), reverse=not is_ascending)


def _shared(txn: Transaction, tables: Tables, user_id: str, *, is_by_change: bool) -> Iterator[tuple[int, str]]:
    for chat_no in joined_chats(txn, tables, user_id):
        chat_id = chat_at(txn, tables, chat_no)
        record = None if chat_id is None else IndexedThread(tables, txn, chat_id).record
        if record is not None and record.owner not in {None, user_id}:
            yield record.head.position if is_by_change else record.first_position, record.thread_id


def _listed(
    txn: Transaction, tables: Tables, listing: bytes, *, is_ascending: bool, after: int | None
) -> Iterator[tuple[int, str]]:
    cursor = txn.cursor(tables.agent_order)
    if is_ascending:
        found = cursor.set_range(listing + number(0 if after is None else after + 1))
    else:
        start = listing + (b"\xff" * 9 if after is None else number(after))
        found = cursor.prev() if cursor.set_range(start) else cursor.last()
    while found and cursor.key().startswith(listing):
        yield to_number(cursor.key()[len(listing) :]), cursor.value().decode()
        found = cursor.next() if is_ascending else cursor.prev()


def listed_checkpoints(
    txn: Transaction, tables: Tables, *, before: str | None = None, resume: bytes | None = None
) -> Iterator[tuple[bytes, str, str, str]]:
    """The checkpoints of all threads by id, the greatest first: (key, thread id, namespace, checkpoint id)."""
    cursor = txn.cursor(tables.agent_order)
    start = resume or (_after(rows.BY_ID) if before is None else rows.BY_ID + before.encode() + b"\0")
    found = cursor.prev() if cursor.set_range(start) else cursor.last()
    while found and (key := cursor.key()).startswith(rows.BY_ID):
        thread_id, namespace = _decode_owner(cursor.value())
        yield key, thread_id, namespace, key[1:-13].decode()
        found = cursor.prev()


def checkpoints_of_run(txn: Transaction, tables: Tables, run_id: str) -> list[tuple[str, str, str]]:
    """The checkpoints that a run made: (thread id, namespace, checkpoint id)."""
    return [_decode_triple(value) for _, value in prefixed(txn, tables.agent_order, rows.runs_prefix(run_id))]


_decode_owner: Final = msgspec.msgpack.Decoder(tuple[str, str]).decode
_decode_triple: Final = msgspec.msgpack.Decoder(tuple[str, str, str]).decode


def _after(prefix: bytes) -> bytes:
    """The first key behind all that begin with a prefix, whose last byte is not 255."""
    return prefix[:-1] + bytes((prefix[-1] + 1,)) if prefix[-1] < 255 else prefix + b"\xff" * 300
