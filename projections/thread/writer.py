"""Applying the events of a thread to its rows, inside one write transaction."""

from struct import Struct
from typing import Final, assert_never

import msgspec

from chatledger.domain.chat.events import Recorded
from chatledger.domain.chat.state import StreamHead, Tombstone, check_follows, misplaced, next_head
from chatledger.domain.content import Content, Piece, references_of
from chatledger.domain.thread.events import (
    AgentCheckpointPut,
    AgentCheckpointsDeleted,
    AgentContentPut,
    AgentThreadCopied,
    AgentThreadDeleted,
    AgentWritesPut,
    Skeleton,
    TaskWrites,
)
from chatledger.domain.thread.namespaces import is_within
from chatledger.domain.thread.record import CheckpointRecord, StoredWrite, ThreadRecord

from ..content import encode_piece, piece_to_store
from ..lmdb.checksums import with_checksum
from ..lmdb.environment import Transaction, drop_prefixed, prefixed
from ..lmdb.keys import id_key, number
from ..lmdb.tables import Tables
from . import rows
from .reader import MAX_DEPTH, IndexedThread
from .rows import checkpoint_row, note_copy, read_writes, writes_row

_encode: Final = msgspec.msgpack.Encoder().encode
_COUNT: Final = Struct(">I")


class ThreadWriter(IndexedThread):
    """A thread in a write transaction. The record is written by `flush`, everything else at once."""

    def __init__(self, tables: Tables, txn: Transaction, thread_id: str) -> None:
        super().__init__(tables, txn, thread_id)
        self._unused: dict[bytes, Content] = {}
        """The pieces that came with the event, as they are stored, as long as nothing uses them."""
        self._listed: list[bytes] = [] if self.record is None else rows.places_in_lists(self.record)
        """The keys at which the lists have the thread."""

    def apply(self, recorded: Recorded) -> None:
        """Take the next event of the thread in. Raises `ChainIntegrityError` when it does not follow."""
        head = next_head(check_follows(self, recorded), recorded)
        event, body = recorded.event, recorded.body
        if isinstance(body, AgentThreadDeleted):
            self._delete(Tombstone(head, event.occurred_at, event.command_id))
            return
        if not isinstance(
            body, AgentContentPut | AgentCheckpointPut | AgentWritesPut | AgentCheckpointsDeleted | AgentThreadCopied
        ):
            raise misplaced(recorded, "it is of a chat, not of a thread")
        self._touch(head, recorded, owner=getattr(body, "owner", None))
        if isinstance(body, AgentContentPut):
            self._put_pieces(body.pieces)
        elif isinstance(body, AgentCheckpointPut):
            self._put_pieces(body.pieces)
            replaced: list[StoredWrite] = []
            if body.writes and body.parent_id is not None:
                replaced = self._put_writes(body.namespace, body.parent_id, body.writes)
            self._put_checkpoint(_record_of(body, event.occurred_at))
            self._unuse_all(replaced)
        elif isinstance(body, AgentWritesPut):
            self._put_pieces(body.pieces)
            self._unuse_all(self._put_writes(body.namespace, body.checkpoint_id, body.tasks))
        elif isinstance(body, AgentCheckpointsDeleted):
            self._remove(body)
        elif isinstance(body, AgentThreadCopied):
            self._copy(body)
        else:
            assert_never(body)
        for digest in self._unused:
            self._put_threads(digest, 0)
        self._unused.clear()

    def flush(self) -> None:
        """Write what was kept back."""
        if self.thread_no is None or self.record is None:
            return
        self._put(number(self.thread_no) + rows.RECORD, with_checksum(_encode(self.record)))
        self._list(rows.places_in_lists(self.record))

    def _list(self, keys: list[bytes]) -> None:
        """Move the thread to its places in the lists."""
        known, self._listed = self._listed, keys
        for key in known:
            if key not in keys:
                self._txn.delete(key, db=self._tables.agent_order)
        for key in keys:
            if key not in known:
                self._order(key, self.thread_id.encode())

    def _touch(self, head: StreamHead, recorded: Recorded, *, owner: str | None) -> None:
        """Note the event as the last one; the first one makes the thread."""
        time = recorded.event.occurred_at
        if self.record is None:
            self.thread_no = recorded.position
            self._namespace_nos.clear()
            self._txn.put(b"a" + id_key(self.thread_id), number(self.thread_no), db=self._tables.chat_ids)
            self._record = ThreadRecord(self.thread_id, recorded.position, head.version, head, time, time, owner)
        else:
            self._record = msgspec.structs.replace(self.record, head=head, updated_at=time)

    def _put_pieces(self, pieces: tuple[Piece, ...]) -> None:
        for piece in pieces:
            if self.stored_content(piece.digest) is None:
                stored = piece_to_store(piece.content, self.stored_content, self.whole, max_depth=MAX_DEPTH)
                self._txn.put(rows.PAYLOAD + piece.digest, encode_piece(stored), db=self._tables.agent_content)
                if self._txn.get(rows.COUNT + piece.digest, db=self._tables.agent_content) is None:
                    self._unused[piece.digest] = stored.content
                    continue
            count, is_counted = self._uses(piece.digest)
            if count and not is_counted:  # it was waited for, by a copy whose source is erased
                self._put_uses(piece.digest, count, is_counted=True)
                for reference in self._references(piece.digest):
                    self._use(reference)

    def _put_checkpoint(self, checkpoint: CheckpointRecord) -> None:
        known = self.checkpoint(checkpoint.namespace, checkpoint.checkpoint_id)
        for digest in checkpoint.channels.values():
            self._use(digest)
        if known is not None:
            self._drop_checkpoint(known)
        namespace_no = self._need_namespace(checkpoint.namespace)
        self._store(checkpoint)
        self._count(1)
        assert self.thread_no is not None, "events make a thread"
        self._note_awaited(checkpoint)
        where = (self.thread_id, checkpoint.namespace)
        self._order(rows.by_id(checkpoint.checkpoint_id, self.thread_no, namespace_no), _encode(where))
        if checkpoint.run_id is not None:
            key = rows.by_run(checkpoint.run_id, self.thread_no, namespace_no, checkpoint.checkpoint_id)
            self._order(key, _encode((*where, checkpoint.checkpoint_id)))

    def _note_awaited(self, checkpoint: CheckpointRecord) -> None:
        """Note that it came, and that its parent is still to come where that is not there."""
        awaited = self._need_prefix(rows.AWAITED, checkpoint.namespace)
        self._txn.delete(awaited + checkpoint.checkpoint_id.encode(), db=self._tables.agents)
        if checkpoint.parent_id is None or checkpoint.is_orphan:
            return
        parent = checkpoint.parent_id.encode()
        key = self._need_prefix(rows.CHECKPOINT, checkpoint.namespace) + parent
        if self._txn.get(key, db=self._tables.agent_checkpoints) is None:
            self._put(awaited + parent, b"")

    def _drop_checkpoint(self, known: CheckpointRecord) -> None:
        """Forget a checkpoint, but not its writes."""
        namespace_no = self.namespace_no(known.namespace)
        assert self.thread_no is not None, "its thread exists"
        assert namespace_no is not None, "its namespace exists"
        for digest in known.channels.values():
            self._unuse(digest)
        self._txn.delete(self._checkpoint_key(known), db=self._tables.agent_checkpoints)
        self._count(-1)
        self._txn.delete(rows.by_id(known.checkpoint_id, self.thread_no, namespace_no), db=self._tables.agent_order)
        if known.run_id is not None:
            key = rows.by_run(known.run_id, self.thread_no, namespace_no, known.checkpoint_id)
            self._txn.delete(key, db=self._tables.agent_order)

    def _put_writes(self, namespace: str, checkpoint_id: str, tasks: tuple[TaskWrites, ...]) -> list[StoredWrite]:
        """
        Put the writes of tasks in, and return those that they replace, which the caller gives back last.

        What stood in one slot may stand in another now, of another task too, or in the checkpoint, and the event does not bring it
        again.
        """
        replaced: list[StoredWrite] = []
        for task in tasks:
            writes = [
                StoredWrite(task.task_id, slot.index, task.task_path, slot.channel, slot.digest, task.written_at)
                for slot in task.slots
            ]
            replaced += self._merge_writes(namespace, checkpoint_id, task.task_id, writes)
        return replaced

    def _unuse_all(self, writes: list[StoredWrite]) -> None:
        for write in writes:
            self._unuse(write.digest)

    def _merge_writes(
        self, namespace: str, checkpoint_id: str, task_id: str, writes: list[StoredWrite]
    ) -> list[StoredWrite]:
        """Put the writes of one task in, and return those that they replace, whose content is still counted."""
        self._need_namespace(namespace)
        key = rows.writes_key(self._need_prefix(rows.WRITES, namespace), checkpoint_id, rows.task_key(task_id))
        raw = self._txn.get(key, db=self._tables.agent_writes)
        slots = {} if raw is None else {write.index: write for write in read_writes(raw)}
        replaced: list[StoredWrite] = []
        for write in writes:
            taken = slots.get(write.index)
            if taken is not None and write.index >= 0:
                continue
            slots[write.index] = write
            self._use(write.digest)
            if taken is not None:
                replaced.append(taken)
        self._txn.put(key, writes_row([slots[index] for index in sorted(slots)]), db=self._tables.agent_writes)
        return replaced

    def _remove(self, body: AgentCheckpointsDeleted) -> None:
        for namespace in body.namespaces:
            self._drop_namespace(namespace)
        for namespace, checkpoint_id in body.checkpoints:
            self._drop_writes(namespace, checkpoint_id, kept=())
            known = self.checkpoint(namespace, checkpoint_id)
            if known is not None:
                self._drop_checkpoint(known)
        for skeleton in body.skeletons:
            self._strip(skeleton)
        for namespace, checkpoint_id in body.orphans:
            known = self.checkpoint(namespace, checkpoint_id)
            if known is not None:
                self._store(msgspec.structs.replace(known, is_orphan=True))

    def _strip(self, skeleton: Skeleton) -> None:
        known = self.checkpoint(skeleton.namespace, skeleton.checkpoint_id)
        if known is None:
            return
        self._drop_writes(known.namespace, known.checkpoint_id, kept=skeleton.channels)
        for channel, digest in known.channels.items():
            if channel not in skeleton.channels:
                self._unuse(digest)
        kept = {channel: digest for channel, digest in known.channels.items() if channel in skeleton.channels}
        self._store(msgspec.structs.replace(known, channels=kept, skeleton=skeleton.channels))

    def _drop_namespace(self, namespace: str) -> None:
        namespace_no = self.namespace_no(namespace)
        if self.thread_no is None or namespace_no is None:
            return
        for known in list(self.checkpoints(namespace)):
            self._drop_checkpoint(known)
        for key, value in self.all_writes(namespace):
            for write in read_writes(value):
                self._unuse(write.digest)
            self._txn.delete(key, db=self._tables.agent_writes)
        drop_prefixed(self._txn, self._tables.agents, self._need_prefix(rows.AWAITED, namespace))
        text_key = number(self.thread_no) + rows.NAMESPACE_TEXT + namespace_no.to_bytes(4, "big")
        self._txn.delete(text_key, db=self._tables.agents)
        self._txn.delete(number(self.thread_no) + rows.NAMESPACE + id_key(namespace), db=self._tables.agents)
        self._namespace_nos[namespace] = None

    def _drop_writes(self, namespace: str, checkpoint_id: str, *, kept: tuple[str, ...]) -> None:
        prefix = self._prefix(rows.WRITES, namespace)
        if prefix is None:
            return
        for key, value in list(prefixed(self._txn, self._tables.agent_writes, rows.writes_key(prefix, checkpoint_id))):
            writes = read_writes(value)
            for write in writes:
                if write.channel not in kept:
                    self._unuse(write.digest)
            rest = [write for write in writes if write.channel in kept]
            if rest:
                self._txn.put(key, writes_row(rest), db=self._tables.agent_writes)
            else:
                self._txn.delete(key, db=self._tables.agent_writes)

    def _copy(self, body: AgentThreadCopied) -> None:
        """Take over what the source has; nothing when it is erased, and then events of its own follow."""
        source = IndexedThread(self._tables, self._txn, body.source_thread_id)
        if source.thread_no is None or self.thread_no is None:
            return
        note_copy(self._txn, self._tables, source.thread_no, self.thread_no, self.thread_id)
        for namespace in source.namespaces():
            if body.within is not None and not is_within(namespace, body.within):
                continue
            for checkpoint in reversed(list(source.checkpoints(namespace))):  # parents first
                self._put_checkpoint(checkpoint)
            for key, value in source.all_writes(namespace):
                writes = read_writes(value)
                replaced = self._merge_writes(namespace, rows.checkpoint_of_writes(key), writes[0].task_id, writes)
                self._unuse_all(replaced)

    def _delete(self, tombstone: Tombstone) -> None:
        if self.thread_no is not None:
            for namespace in self.namespaces():
                self._drop_namespace(namespace)
            for kind in rows.OF_A_LIVING_THREAD:
                drop_prefixed(self._txn, self._tables.agents, number(self.thread_no) + kind)
            self._list([])
            self._txn.delete(b"a" + id_key(self.thread_id), db=self._tables.chat_ids)
        self._tables.put_tombstone(self._txn, self.stream_id, tombstone)
        self.thread_no, self._record = None, None
        self._namespace_nos.clear()

    def _use(self, digest: bytes) -> None:
        """Count one more use of a piece; with the first one those of what it is made of."""
        fresh = self._unused.pop(digest, None)
        if fresh is not None:  # it came with this event, so there is nothing to look up
            self._put_uses(digest, 1, is_counted=True)
            for reference in references_of(fresh):
                self._use(reference)
            return
        count, is_counted = self._uses(digest)
        if count:
            self._put_uses(digest, count + 1, is_counted=is_counted)
            return
        stored = self.stored_content(digest)
        self._put_threads(digest, self._threads(digest, is_stored=stored is not None) + 1)
        self._put_uses(digest, 1, is_counted=stored is not None)
        if stored is not None:
            for reference in references_of(stored.content):
                self._use(reference)

    def _unuse(self, digest: bytes) -> None:
        """Count one use less; with the last one the piece goes, unless another thread has it."""
        assert self.thread_no is not None, "its thread exists"
        pending = [digest]
        while pending:
            at = pending.pop()
            count, is_counted = self._uses(at)
            if not count:
                continue
            if count > 1:
                self._put_uses(at, count - 1, is_counted=is_counted)
                continue
            if is_counted:
                pending.extend(self._references(at))
            self._txn.delete(rows.use_key(self.thread_no, at), db=self._tables.agents)
            self._release(at)

    def _release(self, digest: bytes) -> None:
        threads = self._threads(digest, is_stored=True)
        if threads > 1:
            self._put_threads(digest, threads - 1)
        else:
            self._txn.delete(rows.COUNT + digest, db=self._tables.agent_content)
            self._txn.delete(rows.PAYLOAD + digest, db=self._tables.agent_content)

    def _threads(self, digest: bytes, *, is_stored: bool) -> int:
        """Return the number of threads that use a piece. Most are used by one, so a stored piece without a row has one."""
        raw = self._txn.get(rows.COUNT + digest, db=self._tables.agent_content)
        if raw is None:
            return int(is_stored)
        threads: int = _COUNT.unpack(raw)[0]
        return threads

    def _put_threads(self, digest: bytes, threads: int) -> None:
        key, table = rows.COUNT + digest, self._tables.agent_content
        if threads == 1 and self._txn.get(rows.PAYLOAD + digest, db=table) is not None:
            self._txn.delete(key, db=table)
        else:
            self._txn.put(key, _COUNT.pack(threads), db=table)

    def _references(self, digest: bytes) -> list[bytes]:
        stored = self.stored_content(digest)
        return [] if stored is None else references_of(stored.content)

    def _uses(self, digest: bytes) -> tuple[int, bool]:
        assert self.thread_no is not None, "its thread exists"
        raw = self._get(rows.use_key(self.thread_no, digest))
        if raw is None:
            return 0, False
        packed = int.from_bytes(raw, "big")
        return packed // 2, bool(packed % 2)

    def _put_uses(self, digest: bytes, count: int, *, is_counted: bool) -> None:
        assert self.thread_no is not None, "its thread exists"
        packed = count * 2 + is_counted
        raw = packed.to_bytes((packed.bit_length() + 7) // 8, "big")
        self._put(rows.use_key(self.thread_no, digest), raw)

    def _need_namespace(self, namespace: str) -> int:
        known = self.namespace_no(namespace)
        if known is not None:
            return known
        record, thread_no = self.record, self.thread_no
        assert record is not None, "events make a thread"
        assert thread_no is not None, "events make a thread"
        packed = record.namespace_count.to_bytes(4, "big")
        self._put(number(thread_no) + rows.NAMESPACE + id_key(namespace), packed)
        self._put(number(thread_no) + rows.NAMESPACE_TEXT + packed, namespace.encode())
        self._namespace_nos[namespace] = record.namespace_count
        self._record = msgspec.structs.replace(record, namespace_count=record.namespace_count + 1)
        return record.namespace_count

    def _count(self, more: int) -> None:
        record = self.record
        assert record is not None, "events make a thread"
        self._record = msgspec.structs.replace(record, checkpoint_count=record.checkpoint_count + more)

    def _need_prefix(self, kind: bytes, namespace: str) -> bytes:
        prefix = self._prefix(kind, namespace)
        assert prefix is not None, "its thread and its namespace exist"
        return prefix

    def _checkpoint_key(self, checkpoint: CheckpointRecord) -> bytes:
        return self._need_prefix(rows.CHECKPOINT, checkpoint.namespace) + checkpoint.checkpoint_id.encode()

    def _store(self, checkpoint: CheckpointRecord) -> None:
        key = self._checkpoint_key(checkpoint)
        self._txn.put(key, checkpoint_row(checkpoint), db=self._tables.agent_checkpoints)

    def _put(self, key: bytes, value: bytes) -> None:
        self._txn.put(key, value, db=self._tables.agents)

    def _order(self, key: bytes, value: bytes) -> None:
        self._txn.put(key, value, db=self._tables.agent_order)


def _record_of(body: AgentCheckpointPut, time: int) -> CheckpointRecord:
    return CheckpointRecord(
        body.namespace,
        body.checkpoint_id,
        body.parent_id,
        body.checkpoint,
        body.metadata,
        body.channels,
        body.runtime,
        time if body.stored_at is None else body.stored_at,
        body.run_id,
    )
