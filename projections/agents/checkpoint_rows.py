"""Checkpoints and writes as rows: without what their keys say, and with ids that are UUIDs as 16 bytes."""

from collections.abc import Sequence
from typing import Final

import msgspec

from chatledger.domain.agents.events import Serialized, WriteSlot
from chatledger.domain.agents.record import CheckpointRecord, StoredWrite

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
