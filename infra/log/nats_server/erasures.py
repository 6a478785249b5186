"""
Erasures under way, noted in the data directory, and finishing those that were interrupted before a server starts.

    erasing-<random>   an erasure is under way, and locked by its process; or it was interrupted, and nobody has the lock
    erasures-checked   the block files were looked through since this version has the directory

While a server runs, what it answers is enough: it has overwritten a message before it says that it is deleted. But of a message
that was deleted when a server died nobody can say whether it was overwritten, also not the next server. See `overwriting.py`.
"""

import contextlib
import logging
import os
import secrets
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from chatledger.domain.errors import ConfigurationError, LogUnavailableError
from chatledger.projections.operating_system import OPEN_FLAGS, lock_file, sync

from ..nats.rewritten import REDACTED
from .blocks import DELETED, ERASED, HEAD, Span, are_intact, block_files, block_key, hashed_part, read_frames
from .directory import CHECKED, DataDirectory, OwnerLock

_UNFINISHED: Final = (".blk.tmp", ".new")
"""The suffixes of files that a server did not come to rename, after an erasure or a compaction."""


class Leftovers(msgspec.Struct, frozen=True):
    """
    The leftovers of deletions in one file of a stream.

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
        from .record_hash import record_hashes

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
    Find records that were deleted from a stream, and can still be read in its files.

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
    for file in sorted((folder / "msgs").glob("*")):
        # A rename replaces the block at once, so what still has the other name never is the only copy.
        if file.name.endswith(_UNFINISHED):
            yield Leftovers(file)


def overwrite_deleted(folder: Path, prefix: bytes) -> int:
    """
    Overwrite what `find_deleted` finds as the server does it, and remove unfinished copies; how many files that changed.

    Whenever it dies, a file is as it was before or as it is afterwards.
    """
    count = 0
    for leftovers in find_deleted(folder, prefix):
        if leftovers.places:
            # As a whole, in a new file: a kill within must not leave a block that the server would cut.
            _replace(leftovers.file, _Block(leftovers.file).overwritten(leftovers.places))
        else:
            leftovers.file.unlink()
        count += 1
    if count:
        sync(folder / "msgs")
    return count


def _replace(file: Path, content: bytes) -> None:
    draft = file.with_name(f"{file.name}.tmp")
    mode = file.stat().st_mode & 0o777
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as new:
        new.write(content)
        new.flush()
        # Before the rename: after a power cut, the name must not stand for an empty file.
        os.fsync(new.fileno())
    draft.replace(file)


MARK: Final = "erasing-"
_logger = logging.getLogger(__name__)


@contextlib.contextmanager
def erasing(directory: DataDirectory) -> Generator[None]:
    """
    Note that messages are being erased, from before the first one until all are known to be overwritten.

    Raises:
        LogUnavailableError: It could not be noted, and nothing was erased; or what was erased could not be synced.
    """
    mark = directory.path / f"{MARK}{secrets.token_hex(8)}"
    try:
        # The mark before the first deletion, and it goes after the last sync: at every kill in between it is there.
        lock = OwnerLock.try_take(mark)
        sync(mark.parent)
        # With "fast" the deletion itself may not be on the disk yet. After a power cut nothing would account for what it erased.
        for folder in _streams(directory):
            for block in block_files(folder)[-2:]:
                sync(block)
    except (ConfigurationError, OSError) as error:
        msg = f"an erasure could not be noted in {mark.parent}, and was not begun: {error}"
        raise LogUnavailableError(msg) from error
    assert lock is not None, "nobody else has that name"
    try:
        yield
        _settle(mark, directory)
    finally:
        lock.abandon()


def _settle(mark: Path, directory: DataDirectory) -> None:
    try:
        # The server syncs the content of a block that it writes anew, but not its new name.
        for folder in _streams(directory):
            sync(folder / "msgs")
        mark.unlink(missing_ok=True)
    except OSError as error:
        msg = f"what was erased in {directory.path} may not have reached the disk: {error}"
        raise LogUnavailableError(msg) from error


def interrupted(directory: DataDirectory) -> list[Path]:
    return [mark for mark in sorted(directory.path.glob(f"{MARK}*")) if _is_interrupted(mark)]


def is_due(directory: DataDirectory) -> bool:
    """Whether the next start of a server looks through the files."""
    return not (directory.path / CHECKED).exists() or any(directory.path.glob(f"{MARK}*"))


def find_unfinished(directory: DataDirectory) -> Iterator[Leftovers]:
    """Find the leftovers of interrupted erasures in the files. Only while no server runs."""
    for folder in _streams(directory):
        yield from find_deleted(folder, _prefix(folder))


def finish_interrupted_erasures(directory: DataDirectory) -> None:
    """
    Overwrite what interrupted erasures left, before a server starts. Only for the holder of the directory's lock.

    Where that fails, as on a full disk, it is logged and left to the next start.
    """
    if not is_due(directory):
        return
    # Listed before the files are read: one that comes meanwhile is of an erasure that was not looked for.
    marks = list(directory.path.glob(f"{MARK}*"))
    try:
        count = sum(overwrite_deleted(folder, _prefix(folder)) for folder in _streams(directory))
        (directory.path / CHECKED).touch(mode=0o600)
        for mark in filter(_is_interrupted, marks):
            mark.unlink()
    except OSError as error:
        _logger.warning(
            "an interrupted erasure in %s could not be finished; the next open tries again: %s", directory.path, error
        )
        return
    if count:
        _logger.info("an interrupted erasure in %s was finished: %d files had something left", directory.path, count)


def _is_interrupted(mark: Path) -> bool:
    """Whether nobody works on an erasure any more, and it was not finished."""
    try:
        descriptor = os.open(mark, os.O_RDWR | OPEN_FLAGS)
    except FileNotFoundError:
        return False
    try:
        # Its process holds the lock until it is done; the kernel takes it from one that was killed.
        lock_file(descriptor)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return mark.exists()


def _streams(directory: DataDirectory) -> list[Path]:
    return [folder for folder in directory.stream_folders() if (folder / "msgs").is_dir()]


def _prefix(folder: Path) -> bytes:
    """Return the prefix of the subjects of messages with content. The position of a feed is not erased but replaced."""
    kind = "b" if folder.name.endswith("-blobs") else "r" if folder.name.endswith(REDACTED) else "e"
    return f"{folder.name}.{kind}.".encode()
