"""
The block files of a JetStream store, read without a server.

A server that meets a damaged record drops the rest of its block, cuts the file, and says nothing. So the files are read here
as they lie on the disk, and what follows the damage is found again. A record is, little-endian:

    4 length, bit 31: has headers | 8 sequence, bit 63: erased, bit 62: says that a sequence was deleted | 8 time |
    2 length of the subject | subject | [4 length of the headers | headers] | payload | 8 checksum

The checksums are not computed: whether an event is the one that was written, its hash chain tells.
"""

from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Final

import msgspec

_HEAD: Final = Struct("<IQQH")
_SIZE: Final = Struct("<I")
_CHECKSUM_BYTES: Final = 8
_HAS_HEADERS: Final = 1 << 31
_ERASED, _DELETED = 1 << 63, 1 << 62
_LARGEST: Final = 64 * 1024 * 1024
_FARTHEST: Final = 1 << 32
"""So many positions without a record no log has that one machine wrote."""


class BlockRecord(msgspec.Struct, frozen=True):
    """A message in a block file."""

    position: int
    subject: str
    headers: dict[str, str]
    payload: bytes


class Deleted(msgspec.Struct, frozen=True):
    """A sequence that was deleted, or erased."""

    position: int


class DamagedBytes(msgspec.Struct, frozen=True):
    """Bytes of a file that are no record."""

    file: Path
    offset: int
    length: int


Entry = BlockRecord | Deleted | DamagedBytes


def read_blocks(folder: Path, stream: str) -> Iterator[Entry]:
    """What the block files of a stream hold, in their order. `folder` is that of the stream."""
    files = sorted((folder / "msgs").glob("*.blk"), key=lambda file: int(file.stem) if file.stem.isdecimal() else 0)
    for file in files:
        yield from _entries(file, file.read_bytes(), f"{stream}.".encode())


def _entries(file: Path, raw: bytes, prefix: bytes) -> Iterator[Entry]:
    at = last = 0
    while at < len(raw):
        found = _entry_at(raw, at, prefix, last)
        if found is None:
            resumed = _next_record(raw, at + 1, prefix, last)
            yield DamagedBytes(file, at, resumed - at)
            at = resumed
            continue
        length, entry = found
        if isinstance(entry, BlockRecord):
            if _is_misplaced(raw, at + length, prefix, last, entry.position):
                yield DamagedBytes(file, at, length)
                at += length
                continue
            last = entry.position
        yield entry
        at += length


def _is_misplaced(raw: bytes, after: int, prefix: bytes, last: int, position: int) -> bool:
    """
    Whether a record has the position of a later one, or one that no log comes to, as of a flipped bit.

    The records of a file ascend. To believe such a position would be to refuse all that follow.
    """
    if position == last + 1:
        return False
    while (found := _entry_at(raw, after, prefix, last)) is not None:
        length, entry = found
        if isinstance(entry, BlockRecord):
            return entry.position <= position
        after += length
    return position > last + _FARTHEST


def _entry_at(raw: bytes, at: int, prefix: bytes, last: int) -> tuple[int, Entry] | None:
    """The record at an offset and its length; None when there is none."""
    if at + _HEAD.size + _CHECKSUM_BYTES > len(raw):
        return None
    packed, sequence, _, subject_bytes = _HEAD.unpack_from(raw, at)
    length = packed & (_HAS_HEADERS - 1)
    if not _HEAD.size + _CHECKSUM_BYTES + subject_bytes <= length <= min(len(raw) - at, _LARGEST):
        return None
    position = sequence & (_DELETED - 1)
    if sequence & (_ERASED | _DELETED):
        return (length, Deleted(position)) if subject_bytes == 0 and 0 <= position < 2**48 else None
    start = at + _HEAD.size + subject_bytes
    subject = raw[at + _HEAD.size : start]
    if not (subject.startswith(prefix) and last < position < 2**48):
        return None
    headers: dict[str, str] = {}
    end = at + length - _CHECKSUM_BYTES
    if packed & _HAS_HEADERS:
        if start + _SIZE.size > end:
            return None
        (size,) = _SIZE.unpack_from(raw, start)
        start += _SIZE.size
        if start + size > end:
            return None
        headers = _headers(raw[start : start + size])
        start += size
    return length, BlockRecord(position, subject.decode(errors="replace"), headers, raw[start:end])


def _next_record(raw: bytes, at: int, prefix: bytes, last: int) -> int:
    """Where the next record begins, found by its subject; the end of the file when there is none."""
    while (found := raw.find(prefix, at)) >= 0:
        start = found - _HEAD.size
        if start >= at - 1 and start > 0 and _entry_at(raw, start, prefix, last) is not None:
            return start
        at = found + 1
    return len(raw)


def _headers(raw: bytes) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in raw.split(b"\r\n")[1:]:
        name, found, value = line.partition(b":")
        if found:
            headers[name.decode(errors="replace")] = value.strip().decode(errors="replace")
    return headers
