"""The rows of threads: their keys, checkpoints, writes, and which threads were copied from which."""

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Final

import msgspec

from chatledger.domain.thread.events import Serialized, WriteSlot
from chatledger.domain.thread.record import CheckpointRecord, StoredWrite, ThreadRecord

from ..lmdb.environment import Transaction, drop_prefixed, prefixed
from ..lmdb.keys import id_key, number, to_number
from ..lmdb.tables import Tables

RECORD, NAMESPACE, NAMESPACE_TEXT, CHECKPOINT, WRITES, USE, COPY, AWAITED = (bytes((kind,)) for kind in range(1, 9))
"""The kinds of rows that a thread has, after its number."""
OF_A_LIVING_THREAD: Final = (RECORD, NAMESPACE, NAMESPACE_TEXT, CHECKPOINT, WRITES, USE, AWAITED)
"""The kinds of rows that go with a deleted thread. Its copies stay known until its events are erased."""

_END: Final = b"\0"
"""Ends a checkpoint id in a key; no id contains it."""
_TASK_BYTES: Final = 12

PAYLOAD, COUNT = b"p", b"c"
"""The two rows of a piece of content, before its digest."""

BY_ID, BY_RUN, BY_BEGINNING, BY_CHANGE, OWNED_BY_BEGINNING, OWNED_BY_CHANGE = b"z", b"r", b"n", b"u", b"o", b"v"
"""The lists over all threads. The longest one is the last, as pages get full only where all that comes goes last."""


def writes_key(prefix: bytes, checkpoint_id: str, task: bytes = b"") -> bytes:
    """The writes of one task of a checkpoint in a namespace; without a task what those of all tasks begin with."""
    return prefix + checkpoint_id.encode() + _END + task


def task_key(task_id: str) -> bytes:
    """A task as part of a key."""
    return blake2b(task_id.encode(), digest_size=_TASK_BYTES).digest()


def checkpoint_of_writes(key: bytes) -> str:
    """The checkpoint id in such a key."""
    return key[13 : -_TASK_BYTES - 1].decode()


def namespace_key(thread_no: int, kind: bytes, namespace_no: int) -> bytes:
    """
    Return the prefix of rows of one kind within a namespace.

    The id of a checkpoint follows: of one that is there (`CHECKPOINT`), or others name as their parent (`AWAITED`), or that
    has writes (`writes_key`).
    """
    return number(thread_no) + kind + namespace_no.to_bytes(4, "big")


def use_key(thread_no: int, digest: bytes) -> bytes:
    """Return the key of a thread's use count of a piece."""
    return number(thread_no) + USE + digest


def by_id(checkpoint_id: str, thread_no: int, namespace_no: int) -> bytes:
    """A checkpoint in the list of all, by id."""
    return BY_ID + checkpoint_id.encode() + _END + number(thread_no) + namespace_no.to_bytes(4, "big")


def by_run(run_id: str, thread_no: int, namespace_no: int, checkpoint_id: str) -> bytes:
    """A checkpoint in the list of a run."""
    return runs_prefix(run_id) + number(thread_no) + namespace_no.to_bytes(4, "big") + checkpoint_id.encode()[:60]


def runs_prefix(run_id: str) -> bytes:
    """Return the prefix of the keys of one run."""
    return BY_RUN + id_key(run_id)[:380] + _END


def listing(user_id: str | None, *, is_by_change: bool) -> bytes:
    """
    Return the prefix of the keys of a list of threads: of all, or of those that name a user as their owner, or with "" none.

    The position of the last event of the thread follows, or that of its first one.
    """
    if user_id is None:
        return BY_CHANGE if is_by_change else BY_BEGINNING
    return (OWNED_BY_CHANGE if is_by_change else OWNED_BY_BEGINNING) + _digest(user_id)


def places_in_lists(record: ThreadRecord) -> list[bytes]:
    """Return the keys of a thread in the lists."""
    begun, changed = number(record.first_position), number(record.head.position)
    return [
        listing(user_id, is_by_change=is_by_change) + (changed if is_by_change else begun)
        for user_id in (None, record.owner or "")
        for is_by_change in (False, True)
    ]


def _digest(user_id: str) -> bytes:
    return blake2b(user_id.encode(), digest_size=16).digest()


_UUID_LENGTH: Final = 36


class _Row(msgspec.Struct, frozen=True, array_like=True):
    parent_id: str | None
    parent_uuid: bytes
    checkpoint: Serialized
    metadata: Serialized
    channels: dict[str, bytes]
    runtime: str
    stored_at: int
    run_id: str | None
    is_orphan: bool
    skeleton: tuple[str, ...] | None


class _Writes(msgspec.Struct, frozen=True, array_like=True):
    task_id: str
    task_path: str
    written_at: int
    slots: list[WriteSlot]
    later: list[StoredWrite]
    """Those of another call for the same task, such as what it answers when it goes on after an interrupt."""


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Row).decode
_decode_writes: Final = msgspec.msgpack.Decoder(_Writes).decode


def checkpoint_row(record: CheckpointRecord) -> bytes:
    """The row of a checkpoint."""
    uuid = b"" if record.parent_id is None else _uuid(record.parent_id)
    row = _Row(
        None if uuid else record.parent_id,
        uuid,
        record.checkpoint,
        record.metadata,
        record.channels,
        record.runtime,
        record.stored_at,
        record.run_id,
        record.is_orphan,
        record.skeleton,
    )
    return _encode(row)


def read_checkpoint(raw: bytes, namespace: str, checkpoint_id: str) -> CheckpointRecord:
    """The checkpoint in the row of that key."""
    row = _decode(raw)
    return CheckpointRecord(
        namespace,
        checkpoint_id,
        _text(row.parent_uuid) if row.parent_uuid else row.parent_id,
        row.checkpoint,
        row.metadata,
        row.channels,
        row.runtime,
        row.stored_at,
        row.run_id,
        row.is_orphan,
        row.skeleton,
    )


def writes_row(writes: Sequence[StoredWrite]) -> bytes:
    """The row of the writes of one task."""
    first = writes[0]
    call = first.task_path, first.written_at
    slots = [WriteSlot(one.index, one.channel, one.digest) for one in writes if (one.task_path, one.written_at) == call]
    later = [one for one in writes if (one.task_path, one.written_at) != call]
    return _encode(_Writes(first.task_id, *call, slots, later))


def read_writes(raw: bytes) -> list[StoredWrite]:
    """The writes in such a row."""
    row = _decode_writes(raw)
    slots = [
        StoredWrite(row.task_id, slot.index, row.task_path, slot.channel, slot.digest, row.written_at)
        for slot in row.slots
    ]
    return slots + row.later


def _uuid(some_id: str) -> bytes:
    """The bytes of an id that is a UUID; none of another one."""
    if len(some_id) != _UUID_LENGTH:
        return b""
    try:
        raw = bytes.fromhex(some_id.replace("-", ""))
    except ValueError:
        return b""
    return raw if _text(raw) == some_id else b""


def _text(raw: bytes) -> str:
    digits = raw.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def note_copy(txn: Transaction, tables: Tables, source_no: int, copy_no: int, copy_id: str) -> None:
    """Note that a thread took over what another one had."""
    txn.put(_prefix(source_no) + number(copy_no), copy_id.encode(), db=tables.agents)


def all_copies(txn: Transaction, tables: Tables, thread_no: int) -> dict[int, str]:
    """The threads that were copied from one, from those copies and so on: numbers and ids, also of deleted ones."""
    found: dict[int, str] = {}
    pending = [thread_no]
    while pending:
        for copy_no, copy_id in _copies(txn, tables, pending.pop()):
            if copy_no not in found:
                found[copy_no] = copy_id
                pending.append(copy_no)
    return found


def forget_copies(txn: Transaction, tables: Tables, thread_no: int) -> None:
    """Forget which threads were copied from one."""
    drop_prefixed(txn, tables.agents, _prefix(thread_no))


def is_of_deleted_copy(txn: Transaction, tables: Tables, key: bytes) -> bool:
    """Whether the row of a key only says that a thread was copied which is deleted. A rebuilt index may lack it."""
    start = len(number(0))
    if key[start : start + 1] != COPY:
        return False
    return txn.get(key[start + 1 :] + RECORD, db=tables.agents) is None


def _copies(txn: Transaction, tables: Tables, thread_no: int) -> Iterator[tuple[int, str]]:
    prefix = _prefix(thread_no)
    for key, value in prefixed(txn, tables.agents, prefix):
        yield to_number(key[len(prefix) :]), value.decode()


def _prefix(thread_no: int) -> bytes:
    return number(thread_no) + COPY
