"""
Deleted messages whose bytes are still in the block files of a stream, and overwriting them while no server runs.

nats-server first writes down that a message is deleted, and then overwrites it, by writing the whole block anew beside the
old file and renaming it. If it dies in between, the message counts as deleted ever after, is not touched again, and can be
read in the file; so can what the unfinished new file holds.

The format of the files is described in `infra/doctor/blocks.py`. Here a file is read as the server reads it: up to the first
bytes that are no record.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Final

import msgspec

from .record_hash import CHECKSUM_BYTES, block_key, record_hash

_HEAD: Final = Struct("<IQQH")
_HAS_HEADERS: Final = 1 << 31
_ERASED, _DELETED = 1 << 63, 1 << 62
_LARGEST: Final = 32 * 1024 * 1024
_UNFINISHED: Final = (".blk.tmp", ".new")
"""What files end with that a server has not come to rename: an erasure's, and those of a compaction."""


class Leftovers(msgspec.Struct, frozen=True):
    """
    What deletions left in one file of a stream.

    Args:
        file: A block, or a copy of one that was not finished.
        places: (offset, position) of each record that was deleted and can be read; none for a copy.
    """

    file: Path
    places: tuple[tuple[int, int], ...] = ()


class _Block:
    """A block file, up to the first bytes that are no record."""

    def __init__(self, file: Path) -> None:
        self.raw = file.read_bytes()
        self.key = block_key(file.parent.parent.name, int(file.stem))

    def entries(self) -> Iterator[tuple[int, int]]:
        """(offset, sequence with its marks) of each record."""
        raw, at, size = self.raw, 0, len(self.raw)
        unpack, least = _HEAD.unpack_from, _HEAD.size + CHECKSUM_BYTES
        while at + least <= size:
            length, sequence, _, subject_bytes = unpack(raw, at)
            length &= _HAS_HEADERS - 1
            if not least + subject_bytes <= length <= min(size - at, _LARGEST):
                return
            yield at, sequence
            at += length

    def record(self, at: int) -> bytes | None:
        """The record at an offset; None when its checksum is wrong."""
        length = _HEAD.unpack_from(self.raw, at)[0] & (_HAS_HEADERS - 1)
        record = self.raw[at : at + length]
        return record if record_hash(record, self.key) == record[-CHECKSUM_BYTES:] else None


def find_deleted(folder: Path, prefix: bytes) -> Iterator[Leftovers]:
    """
    What was deleted in a stream, and can still be read in its files.

    A deletion is noted behind its message, in the same block or a later one. So the blocks are read from the last to the first,
    and one of them is in memory at a time, with the positions of the deletions that concern earlier ones.

    Args:
        folder: Of the stream. No server runs on it.
        prefix: What the subjects begin with whose messages are erased when they are deleted.
    """
    notes: dict[int, tuple[Path, int]] = {}
    for file in sorted(_blocks(folder), key=lambda file: int(file.stem), reverse=True):
        block = _Block(file)
        records: dict[int, int] = {}
        for at, sequence in block.entries():
            if sequence & _DELETED:
                notes[sequence ^ _DELETED] = file, at
            elif not sequence & _ERASED:
                records[sequence] = at
        doomed = [
            position
            for position in records.keys() & notes.keys()
            if block.raw.startswith(prefix, records[position] + _HEAD.size)
        ]
        # A flipped bit must not make a deletion out of something else.
        places = sorted(
            (records[position], position)
            for position in doomed
            if block.record(records[position]) is not None and _is_noted(*notes[position])
        )
        if places:
            yield Leftovers(file, tuple(places))
        if records:
            lowest = min(records)
            notes = {position: place for position, place in notes.items() if position < lowest}
    for file in _unfinished(folder):
        yield Leftovers(file)


def overwrite_deleted(folder: Path, prefix: bytes) -> int:
    """
    Overwrite what `find_deleted` finds as the server does it, and remove unfinished copies; how many files that changed.

    Whenever it dies, a file is as it was before or as it is afterwards.
    """
    count = 0
    for leftovers in find_deleted(folder, prefix):
        if leftovers.places:
            _replace(leftovers.file, _overwritten(leftovers))
        else:
            leftovers.file.unlink()
        count += 1
    if count:
        sync_folder(folder / "msgs")
    return count


def sync_folder(folder: Path) -> None:
    """Bring to the disk which files a folder has."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _overwritten(leftovers: Leftovers) -> bytes:
    block = _Block(leftovers.file)
    raw = bytearray(block.raw)
    for at, position in leftovers.places:
        length = _HEAD.unpack_from(raw, at)[0] & (_HAS_HEADERS - 1)
        erased = _HEAD.pack(length, position | _ERASED, 0, 0) + bytes(length - _HEAD.size)
        raw[at : at + length] = erased[:-CHECKSUM_BYTES] + record_hash(erased, block.key)
    return bytes(raw)


def _replace(file: Path, content: bytes) -> None:
    draft = file.with_name(f"{file.name}.tmp")
    mode = file.stat().st_mode & 0o777
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as new:
        new.write(content)
        new.flush()
        os.fsync(new.fileno())
    draft.replace(file)


def _is_noted(file: Path, at: int) -> bool:
    return _Block(file).record(at) is not None


def _blocks(folder: Path) -> Iterator[Path]:
    return (file for file in (folder / "msgs").glob("*.blk") if file.stem.isdecimal())


def _unfinished(folder: Path) -> Iterator[Path]:
    # A rename replaces the block at once, so what still has the other name never is the only copy.
    return (file for file in sorted((folder / "msgs").glob("*")) if file.name.endswith(_UNFINISHED))
