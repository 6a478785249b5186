"""
Deleted messages whose bytes are still in the block files of a stream, and overwriting them while no server runs.

nats-server first writes down that a message is deleted, and then overwrites it, by writing the whole block anew beside the
old file and renaming it. If it dies in between, the message counts as deleted ever after, is not touched again, and can be
read in the file; so can what the unfinished new file holds.

The format of the files is described in `blocks.py`. Here a file is read as the server reads it: up to the first
bytes that are no record.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from .blocks import DELETED, ERASED, HEAD, Span, are_intact, block_files, hashed_part, read_frames
from .record_hash import block_key, record_hashes

_UNFINISHED: Final = (".blk.tmp", ".new")
"""What files end with that a server has not come to rename: an erasure's, and those of a compaction."""


class Leftovers(msgspec.Struct, frozen=True):
    """
    What deletions left in one file of a stream.

    Args:
        file: A block, or a copy of one that was not finished.
        places: Each record that was deleted and can be read; none for a copy.
    """

    file: Path
    places: tuple[Span, ...] = ()


class _Block:
    """A block file, up to the first bytes that are no record."""

    def __init__(self, file: Path) -> None:
        self.raw = file.read_bytes()
        self.spans, _ = read_frames(self.raw)
        self._key = block_key(file.parent.parent.name, int(file.stem))

    def is_intact(self, span: Span) -> bool:
        """Whether the checksum of a record is right."""
        return are_intact(self.raw, [span], self._key)[0]

    def overwritten(self, spans: Sequence[Span]) -> bytes:
        """The block with these records overwritten as the server does it."""
        raw = bytearray(self.raw)
        for offset, length, sequence in spans:
            head = HEAD.pack(length, sequence | ERASED, 0, 0)
            erased = head + bytes(length - HEAD.size)
            part = hashed_part(erased, Span(0, length, sequence))
            checksum = record_hashes(self._key, [part]).astype("<u8").tobytes()
            raw[offset : offset + length] = erased[: -len(checksum)] + checksum
        return bytes(raw)


def find_deleted(folder: Path, prefix: bytes) -> Iterator[Leftovers]:
    """
    What was deleted in a stream, and can still be read in its files.

    A deletion is noted behind its message, in the same block or a later one. So the blocks are read from the last to the first,
    and one of them is in memory at a time, with the positions of the deletions that concern earlier ones.

    Args:
        folder: Of the stream. No server runs on it.
        prefix: What the subjects begin with whose messages are erased when they are deleted.
    """
    notes: dict[int, tuple[Path, Span]] = {}
    for file in reversed(block_files(folder)):
        block = _Block(file)
        records: dict[int, Span] = {}
        for span in block.spans:
            if span.sequence & DELETED:
                notes[span.position] = file, span
            elif span.is_message:
                records[span.position] = span
        doomed = [
            position
            for position in records.keys() & notes.keys()
            if block.raw.startswith(prefix, records[position].offset + HEAD.size)
        ]
        # A flipped bit must not make a deletion out of something else.
        places = sorted(
            records[position]
            for position in doomed
            if block.is_intact(records[position]) and _Block(notes[position][0]).is_intact(notes[position][1])
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
            _replace(leftovers.file, _Block(leftovers.file).overwritten(leftovers.places))
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


def _replace(file: Path, content: bytes) -> None:
    draft = file.with_name(f"{file.name}.tmp")
    mode = file.stat().st_mode & 0o777
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as new:
        new.write(content)
        new.flush()
        os.fsync(new.fileno())
    draft.replace(file)


def _unfinished(folder: Path) -> Iterator[Path]:
    # A rename replaces the block at once, so what still has the other name never is the only copy.
    return (file for file in sorted((folder / "msgs").glob("*")) if file.name.endswith(_UNFINISHED))
