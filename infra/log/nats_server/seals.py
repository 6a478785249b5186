"""
Seals: what the block files of a store held when their server had written them, so that a later check need not read every record.

A seal stands for the first bytes of a block: their digest, how many messages they hold, and how many positions the deletions
among them account for. Blocks that are full are sealed while the server runs, all of them when it has ended. A seal never raises
an alarm: a block that differs from it is checked record by record.
"""

import bisect
import logging
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import xxhash

from chatledger.domain.chat.events import StreamDeleted
from chatledger.domain.errors import DECODE_ERRORS
from chatledger.domain.log.codec import BODIES
from chatledger.projections.operating_system import sync

from ..nats.reading import VERSION
from .blocks import BlockRecord, Span, block_files, read_block_record, read_frames
from .directory import DataDirectory, write_private

_EVERY_S: Final = 5.0
_DELETIONS: Final = re.compile(
    b"|".join(re.escape(body.TOPIC.encode()) for body in BODIES if issubclass(body, StreamDeleted))
)
_logger = logging.getLogger(__name__)


class Seal(msgspec.Struct, frozen=True, array_like=True):
    """
    The digest and counts of the first `size` bytes of a block file.

    Args:
        number: Of the block.
        size: In bytes; the whole file when it was sealed.
        modified_ns: When the file was changed last.
        digest: XXH3 of the bytes.
        message_count: How many messages there are that were not erased.
        last: The position of the last one.
        accounted: How many positions without a message the deletions among them account for, at most.
    """

    number: int
    size: int
    modified_ns: int
    digest: bytes
    message_count: int
    last: int
    accounted: int


class Seals(msgspec.Struct):
    """
    The seals of a store.

    Args:
        log_inode: Of the folder of the log: seals of a copy are not believed.
        boot: The run of the machine in which the server was started.
        is_clean: Whether the server has ended, and all is sealed.
        streams: The seals of each stream by the number of the block.
    """

    log_inode: int
    boot: bytes
    is_clean: bool = False
    streams: dict[str, dict[int, Seal]] = {}


def read_seals(directory: DataDirectory) -> Seals | None:
    """Return the seals of a store; None where there are none, or none that can be believed."""
    try:
        seals = msgspec.msgpack.decode(directory.seals_file.read_bytes(), type=Seals)
        return seals if seals.log_inode == directory.log.stat().st_ino else None
    except (OSError, *DECODE_ERRORS):
        return None


def write_seals(directory: DataDirectory, seals: Seals) -> None:
    """
    Replace the seals of a store, not synced: after a crash of the machine they are believed only where the digests are right.

    Raises `OSError`.
    """
    write_private(directory.seals_file, msgspec.msgpack.encode(seals), is_synced=False)


def make_seal(file: Path, raw: bytes, spans: list[Span], *, before: Seal | None = None) -> Seal:
    """
    Return the seal of a block file.

    Args:
        file: The file.
        raw: Its bytes.
        spans: Its records; those after the ones that `before` stands for.
        before: The seal of its beginning.
    """
    stat = file.stat()
    messages = [span for span in spans if span.is_message]
    return Seal(
        number=int(file.stem),
        size=len(raw),
        modified_ns=stat.st_mtime_ns,
        digest=digest_of(raw),
        message_count=len(messages) + (before.message_count if before else 0),
        last=max([span.position for span in messages], default=before.last if before else 0),
        accounted=_accounted(raw, messages) + (before.accounted if before else 0),
    )


def digest_of(raw: bytes | memoryview) -> bytes:
    """Return the digest of a block's bytes."""
    return xxhash.xxh3_128_digest(raw)


def _accounted(raw: bytes, messages: list[Span]) -> int:
    """Return the number of events that deletions among the messages account for: a deletion of version 7 follows six."""
    if not messages:
        return 0
    count = 0
    starts = [span.offset for span in messages]
    new = _DELETIONS.finditer(raw, starts[0])  # to search what a seal stands for would take most of an opening
    for index in {bisect.bisect_right(starts, match.start()) - 1 for match in new}:
        record = read_block_record(raw, messages[index])
        version = record.headers.get(VERSION, "") if isinstance(record, BlockRecord) else ""
        count += max(0, int(version) - 1) if version.isdecimal() else 0
    return count


class Sealer:
    """
    Seals the blocks of a store while its server runs, and all when that has ended.

    `directory`: of the store; this process owns it.
    """

    def __init__(self, directory: DataDirectory, seals: Seals) -> None:
        self._directory, self._seals = directory, seals
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chatledger-sealer", daemon=True)

    def begin(self) -> None:
        """Note that the blocks are about to change, and seal those that are full from time to time."""
        # Without `is_clean`: from now on a kill leaves what says that there was no clean stop.
        self._attempt(lambda: write_seals(self._directory, self._seals))
        self._thread.start()

    def _run(self) -> None:
        while not self._closing.wait(_EVERY_S):
            self._attempt(self._seal_full)

    def stop(self) -> None:
        """Seal no more; the server is about to end."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()

    def finish(self) -> bool:
        """Seal all blocks after the server has ended cleanly, and bring them to the disk; whether that was possible."""
        return self._attempt(self._seal_all)

    def _attempt(self, seal: Callable[[], None]) -> bool:
        try:
            seal()
        except OSError as error:
            _logger.warning(
                "the blocks of %s cannot be sealed, so the next start reads all of them: %s", self._directory.log, error
            )
            return False
        return True

    def _seal_full(self) -> None:
        """Seal the blocks to which nothing is appended any more."""
        is_new = False
        for folder in self._directory.stream_folders():
            sealed = self._seals.streams.setdefault(folder.name, {})
            number = max(sealed, default=0) + 1
            # That there is a next one says that nothing is appended to this one any more.
            while (folder / "msgs" / f"{number + 1}.blk").exists():
                is_new |= _seal_file(folder / "msgs" / f"{number}.blk", sealed)
                number += 1
        if is_new:
            write_seals(self._directory, self._seals)

    def _seal_all(self) -> None:
        for folder in self._directory.stream_folders():
            sealed = self._seals.streams.setdefault(folder.name, {})
            files = block_files(folder)
            # Their messages were erased: a seal of a file that is gone would be taken for a loss.
            for gone in sealed.keys() - {int(file.stem) for file in files}:
                del sealed[gone]
            for file in files:
                seal = sealed.get(int(file.stem))
                if seal is None or not is_unchanged(file, seal):
                    _seal_file(file, sealed)
        # Last: a kill before leaves seals that are believed only where their digests are right.
        self._seals.is_clean = True
        write_seals(self._directory, self._seals)


def is_unchanged(file: Path, seal: Seal) -> bool:
    """Return whether a file has the size and time of change that it had when it was sealed."""
    stat = file.stat()
    return (stat.st_size, stat.st_mtime_ns) == (seal.size, seal.modified_ns)


def _seal_file(file: Path, sealed: dict[int, Seal]) -> bool:
    """Seal a file that was just written, and bring it to the disk; one whose records do not fit into it stays without a seal."""
    number = int(file.stem)
    # Before the file is read: what fails in between leaves no seal, which costs a check; an old one would stand for other bytes.
    sealed.pop(number, None)
    try:
        raw = file.read_bytes()
        sync(file)
    except FileNotFoundError:  # all its messages were erased
        return False
    spans, end = read_frames(raw)
    if end == len(raw):
        sealed[number] = make_seal(file, raw, spans)
    return end == len(raw)
