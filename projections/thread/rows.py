"""The rows of threads: their keys, checkpoints, writes, and which threads were copied from which."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from chatledger.domain.thread.events import Serialized, WriteSlot
from chatledger.domain.thread.record import CheckpointRecord, StoredWrite

from ..lmdb.environment import Transaction, drop_prefixed, prefixed
from ..lmdb.keys import number, to_number
from ..lmdb.tables import Tables
from . import keys

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
    slots: list[WriteSlot]
    later: list[StoredWrite]
    """Those with another path, which a task has no reason for."""


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
    slots = [WriteSlot(one.index, one.channel, one.digest) for one in writes if one.task_path == first.task_path]
    later = [one for one in writes if one.task_path != first.task_path]
    return _encode(_Writes(first.task_id, first.task_path, slots, later))


def read_writes(raw: bytes) -> list[StoredWrite]:
    """The writes in such a row."""
    row = _decode_writes(raw)
    slots = [StoredWrite(row.task_id, slot.index, row.task_path, slot.channel, slot.digest) for slot in row.slots]
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
    if key[start : start + 1] != keys.COPY:
        return False
    return txn.get(key[start + 1 :] + keys.RECORD, db=tables.agents) is None


def _copies(txn: Transaction, tables: Tables, thread_no: int) -> Iterator[tuple[int, str]]:
    prefix = _prefix(thread_no)
    for key, value in prefixed(txn, tables.agents, prefix):
        yield to_number(key[len(prefix) :]), value.decode()


def _prefix(thread_no: int) -> bytes:
    return number(thread_no) + keys.COPY
