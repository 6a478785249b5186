"""The rows of versioned values: their keys, versions, writes, and which values were copied from which."""

from collections.abc import Callable, Sequence
from hashlib import blake2b
from struct import Struct
from typing import Final, TypeVar

import msgspec
from xxhash import xxh3_64_digest, xxh3_64_intdigest

from chatledger.domain.errors import DECODE_ERRORS, CorruptStateError
from chatledger.domain.versioned.content import DIGEST_BYTES
from chatledger.domain.versioned.events import FieldRef, Serialized, WriteSlot
from chatledger.domain.versioned.record import StoredWrite, VersionRecord

from ..lmdb.environment import Transaction, drop_prefixed, prefixed
from ..lmdb.keys import id_key, number, to_number
from ..lmdb.tables import Tables

T = TypeVar("T")

(
    RECORD,
    LINE,
    LINE_TEXT,
    PIECE,
    AWAITED,
    COPY,
    STANDING,
    MESSAGE,
    MESSAGE_BY_KEY,
    BARE,
    PSEUDONYM,
    UNEXPLAINED,
    TAKEN,
) = (bytes((kind,)) for kind in range(1, 14))
"""The kinds of rows in `versioned` that a value has, after its number."""
OF_A_LIVING_VALUE: Final = (RECORD, LINE, LINE_TEXT, PIECE, AWAITED, STANDING, BARE, PSEUDONYM, UNEXPLAINED, TAKEN)
"""The kinds of rows that go with a deleted value. Its copies stay known until its events are erased."""

STREAM: Final = b"v"
"""Before the id of the stream of a versioned value, in the table of ids."""
PLAIN_LINE: Final = 0
"""The number of the line "" where it was the first to come: then it has no rows of its own."""
MESSAGE_KEY_BYTES: Final = 16
_END: Final = b"\0"
"""Ends the id of a version in a key; no id contains it."""
_TASK_BYTES: Final = 12
line_number: Final[Callable[[int], bytes]] = Struct(">I").pack
"""Packs the number of a line as it stands in keys."""
CHECKSUM_BYTES: Final = 8
"""The bytes of the checksum before a row."""
numbered_key: Final[Callable[[int, bytes, int], bytes]] = Struct(">QcI").pack
"""
Packs the number of a value, the kind of a row and a number: that of a line for `STANDING`, for `BARE`, whose row is the id of a
version up to which none has any content, and for `AWAITED` as the prefix of the versions that others name as their parent, and that are
still to come; that of a message for `MESSAGE`.
"""
piece_key: Final[Callable[[int, bytes, bytes], bytes]] = Struct(f">Qc{DIGEST_BYTES}s").pack
"""Packs the number of a value, `PIECE`, and the digest of a piece."""
pseudonym_key: Final[Callable[[int, bytes, int, int], bytes]] = Struct(">QcQB").pack
"""Packs the number of a value, `PSEUDONYM`, and the version and the slot of an event that lost a name or content: the row is what stands
there. With `UNEXPLAINED` those without content of which nothing has said why."""
taken_key: Final[Callable[[int, bytes, int], bytes]] = Struct(">QcQ").pack
"""
Packs the number of a value, `TAKEN`, and the first of some versions of events that follow each other, in which is nothing that a rule could
still take out: the row is the last one.
"""
LINE_BYTES: Final = len(line_number(0))
line_prefix: Final[Callable[[int, int], bytes]] = Struct(">QI").pack
"""
Packs the numbers of a value and of a line of it, the prefix of the rows of that line.

The id of a version follows: of one that is there, in `version_rows`, or that has writes, in `version_writes` (`writes_key`).
"""
_UUID_LENGTH: Final = 36


def stream_key(stream_id: str) -> bytes:
    """Return the key of the number of a value, in the table of ids."""
    return STREAM + id_key(stream_id)


def writes_key(prefix: bytes, version_id: str, task: bytes = b"") -> bytes:
    """The writes of one task of a version in a line; without a task what those of all tasks begin with."""
    return prefix + version_id.encode() + _END + task


def task_key(task_id: str) -> bytes:
    return blake2b(task_id.encode(), digest_size=_TASK_BYTES).digest()


def version_of_writes(key: bytes) -> str:
    """The id of the version in such a key."""
    return key[len(line_prefix(0, 0)) : -_TASK_BYTES - len(_END)].decode()


class _Row(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    parent_uuid: bytes
    parent: str | None
    stored_at: int
    position: int
    fields: dict[str, FieldRef]
    frames: tuple[Serialized, ...] = ()
    runtime: str = ""
    run_id: str | None = None
    node: str | None = None
    is_final: bool = False
    is_orphan: bool = False
    skeleton: tuple[str, ...] | None = None


class _RowFields(msgspec.Struct, frozen=True, array_like=True):
    """The beginning of such a row: what follows is not decoded, for who looks at all versions of a value."""

    parent_uuid: bytes
    parent: str | None
    stored_at: int
    position: int
    fields: dict[str, FieldRef]


class _Writes(msgspec.Struct, frozen=True, array_like=True):
    task_id: str
    task_path: str
    written_at: int
    slots: list[WriteSlot]
    later: list[StoredWrite]
    """Those of another call for the same task, such as what it answers when it goes on after an interrupt."""


_encode: Final = msgspec.msgpack.Encoder().encode
_row_decoder: Final = msgspec.msgpack.Decoder(_Row)
_fields_decoder: Final = msgspec.msgpack.Decoder(_RowFields)
_writes_decoder: Final = msgspec.msgpack.Decoder(_Writes)
_DAMAGED: Final = (*DECODE_ERRORS, ValueError)


def sealed(key: bytes, row: object) -> bytes:
    """Return a row as it is stored under a key. The checksum covers the key too, so rows that change places are noticed."""
    encoded = _encode(row)
    return xxh3_64_digest(encoded, xxh3_64_intdigest(key)) + encoded


def is_sealed(key: bytes, raw: bytes) -> bool:
    """Whether a row is what was stored under a key."""
    return xxh3_64_digest(raw[CHECKSUM_BYTES:], xxh3_64_intdigest(key)) == raw[:CHECKSUM_BYTES]


def unsealed(key: bytes, raw: bytes, decoder: msgspec.msgpack.Decoder[T]) -> T:
    """Return what was stored under a key. Raises `CorruptStateError` when it is damaged."""
    row = raw[CHECKSUM_BYTES:]
    if xxh3_64_digest(row, xxh3_64_intdigest(key)) != raw[:CHECKSUM_BYTES]:
        raise damaged()
    try:
        return decoder.decode(row)
    except _DAMAGED as error:
        raise damaged() from error


def damaged() -> CorruptStateError:
    """Return the error for a damaged row; the caller adds whose it is."""
    return CorruptStateError("a part of it is missing or damaged in the index")


def version_row(key: bytes, record: VersionRecord) -> bytes:
    uuid = b"" if record.parent is None else _uuid(record.parent)
    row = _Row(
        uuid,
        None if uuid else record.parent,
        record.stored_at,
        record.position,
        record.fields,
        record.frames,
        record.runtime,
        record.run_id,
        record.node,
        record.is_final,
        record.is_orphan,
        record.skeleton,
    )
    return sealed(key, row)


def read_version(key: bytes, raw: bytes, line: str, version_id: str) -> VersionRecord:
    """The version in the row of that key. Raises `CorruptStateError` when it is damaged."""
    row = unsealed(key, raw, _row_decoder)
    return VersionRecord(
        line,
        version_id,
        _text(row.parent_uuid) if row.parent_uuid else row.parent,
        row.fields,
        row.frames,
        row.runtime,
        row.stored_at,
        row.run_id,
        row.node,
        row.is_final,
        row.is_orphan,
        row.skeleton,
        row.position,
    )


def digests_in(key: bytes, raw: bytes) -> list[bytes]:
    """The digests of the values of the version in the row of that key. Raises `CorruptStateError` when it is damaged."""
    return [ref.digest for ref in unsealed(key, raw, _fields_decoder).fields.values()]


def writes_row(key: bytes, writes: Sequence[StoredWrite]) -> bytes:
    """The row of the writes of one task, under that key: the same whether they came in this order, or by index out of a copy."""
    writes = sorted(writes, key=lambda write: write.index)
    first = writes[0]
    call = first.task_path, first.written_at
    slots = [
        WriteSlot(write.index, write.channel, write.digest)
        for write in writes
        if (write.task_path, write.written_at) == call
    ]
    later = [write for write in writes if (write.task_path, write.written_at) != call]
    return sealed(key, _Writes(first.task_id, *call, slots, later))


def read_writes(key: bytes, raw: bytes) -> list[StoredWrite]:
    """The writes in the row of that key. Raises `CorruptStateError` when it is damaged."""
    row = unsealed(key, raw, _writes_decoder)
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


def note_copy(txn: Transaction, tables: Tables, source_no: int, copy_no: int, copy_key: str) -> None:
    """Note that a value took over what another one had."""
    txn.put(_copies_prefix(source_no) + number(copy_no), copy_key.encode(), db=tables.versioned)


def all_copies(txn: Transaction, tables: Tables, stream_no: int) -> dict[int, str]:
    """The values that were copied from one, from those copies and so on: numbers and keys, also of deleted ones."""
    copies: dict[int, str] = {}
    pending = [stream_no]
    while pending:
        prefix = _copies_prefix(pending.pop())
        for key, copy_key in prefixed(txn, tables.versioned, prefix):
            copy_no = to_number(key[len(prefix) :])
            if copy_no not in copies:
                copies[copy_no] = copy_key.decode()
                pending.append(copy_no)
    return copies


def forget_copies(txn: Transaction, tables: Tables, stream_no: int) -> None:
    """Forget which values were copied from one."""
    drop_prefixed(txn, tables.versioned, _copies_prefix(stream_no))


def is_of_copy(key: bytes) -> bool:
    """
    Whether the row of a key only says that a value was copied.

    A rebuilt index may lack it where the copy is. Where the source is, it goes as soon as the copy needs it no more, and the log has
    the copying until the source is erased there.
    """
    start = len(number(0))
    return key[start : start + 1] == COPY


def _copies_prefix(stream_no: int) -> bytes:
    return number(stream_no) + COPY
