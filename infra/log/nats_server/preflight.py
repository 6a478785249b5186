"""
The pre-flight: whether the files of a store are sound, before a server starts on them.

A server that meets a damaged record while it starts drops what follows in that block, gives the positions out again, and says
nothing. So nothing starts on a store with damage, and not one byte of it is changed. What vouches for a block is a seal that equals
it, or else the checksums of its records. After a clean stop in this run of the machine, older blocks of a large log are believed
when nobody wrote to their files since.

Lost records leave no damage behind where a file was cut between two of them, or is gone. So the positions without a message
are compared with what deletions account for, and the last position with what the witness has seen.
"""

import logging
from pathlib import Path
from typing import Final

from chatledger.domain.errors import ChainIntegrityError, CorruptStateError, LogRegressedError
from chatledger.projections.operating_system import sync

from ..nats.rewritten import REDACTED
from ..witness import boot_id, read_last_seen
from .blocks import Damage, block_files, block_key, scan_block
from .directory import DataDirectory
from .seals import Seal, Seals, digest_of, is_unchanged, make_seal, read_seals

ALWAYS_READ_BYTES: Final = 256 * 1024 * 1024
"""So much at the end of each stream is read before every start; it takes 50 ms."""
_FOREIGN_RECORDS: Final = 8
"""So many records of a store, and none with the right checksum: they are of a server that writes them in another way."""
_REMEDY: Final = (
    "Nothing was changed. 'chatledger doctor' says what is damaged, and 'chatledger doctor --repair' keeps all that can be read, "
    "with --backup FOLDER also what a backup has; or restore a backup"
)
_logger = logging.getLogger(__name__)


def check_store(directory: DataDirectory, stream: str) -> Seals:
    """
    Refuse a store with damage, before a server starts on it.

    Args:
        directory: Of the store; this process owns it, and no server runs.
        stream: The stream that holds the log.

    Returns:
        The seals of all blocks.

    Raises:
        CorruptStateError: A record is damaged.
        ChainIntegrityError: Events are gone that no deletion accounts for.
        LogRegressedError: The log ends before what was acknowledged.
    """
    before = read_seals(directory)
    boot = boot_id()
    is_same_boot = before is not None and bool(boot) and before.boot == boot
    is_clean = before is not None and before.is_clean
    is_trusted = is_clean and is_same_boot and (directory.index / "CURRENT").exists()
    seals = Seals(log_inode=directory.log.stat().st_ino, boot=boot)
    seen = read_last_seen(directory.witness)
    # What stands in for messages of the log accounts for them, so its stream comes first.
    for folder in sorted(directory.stream_folders(), key=lambda folder: folder.name == stream):
        check = _StreamCheck(
            folder, {} if before is None else before.streams.get(folder.name, {}), is_trusted=is_trusted
        )
        if not check.run():
            _logger.warning("the blocks in %s were not checked: no checksum in them is of the known kind", folder)
            continue
        acknowledged = seen.position if seen is not None and folder.name == stream else 0
        if is_same_boot and not is_clean:
            # With "fast" the server that was killed synced once a second; the next one does not know what is left to sync.
            directory.sync_stream(folder.name)
            for file in check.unsealed:
                sync(file)
        check.refuse_damage(acknowledged, may_be_cut=not is_clean, may_be_torn=not (is_clean or is_same_boot))
        if folder.name == stream:
            rewritten = seals.streams.get(stream + REDACTED, {}).values()
            check.refuse_losses(acknowledged, sum(seal.message_count for seal in rewritten))
        elif is_clean:
            check.refuse_shrunk()
        seals.streams[folder.name] = check.sealed
    return seals


class _StreamCheck:
    """The blocks of one stream; `sealed` are those that were looked at, `unsealed` the files that grew behind their seal."""

    def __init__(self, folder: Path, before: dict[int, Seal], *, is_trusted: bool) -> None:
        self._folder, self._before, self._is_trusted = folder, before, is_trusted
        self._damaged: list[tuple[Path, Damage]] = []
        self._ends_with: Damage | None = None
        self._intact_count = 0
        self.sealed: dict[int, Seal] = {}
        self.unsealed: list[Path] = []

    def run(self) -> bool:
        """Look at each block; False when nothing here is as our server writes it, as with compressed or encrypted blocks."""
        files = block_files(self._folder)
        to_come = sum(file.stat().st_size for file in files)
        for file in files:
            seal = self._before.get(int(file.stem))
            self._ends_with = None
            is_old = to_come > ALWAYS_READ_BYTES
            to_come -= file.stat().st_size
            if seal is None or not (self._is_trusted and is_old and is_unchanged(file, seal)):
                seal = self._check(file, seal)
            self.sealed[seal.number] = seal
        framed_count = sum(damage.sequence is not None for _, damage in self._damaged)
        return bool(self._intact_count or self._before) or framed_count < _FOREIGN_RECORDS

    def _check(self, file: Path, seal: Seal | None) -> Seal:
        """Check the records that no seal stands for."""
        raw = file.read_bytes()
        if seal is not None and not (seal.size <= len(raw) and seal.digest == digest_of(memoryview(raw)[: seal.size])):
            # The block was written anew, as an erasure does it: all of it is checked.
            seal = None
        start = 0 if seal is None else seal.size
        if start < len(raw):
            self.unsealed.append(file)
        stream = self._folder.name
        scan = scan_block(raw, block_key(stream, int(file.stem)), f"{stream}.".encode(), start)
        self._intact_count += len(scan.spans)
        self._damaged += [(file, damage) for damage in scan.damages]
        if scan.damages and scan.damages[-1].offset + scan.damages[-1].length == len(raw):
            self._ends_with = scan.damages[-1]
        return make_seal(file, raw, scan.spans, before=seal)

    @property
    def _last(self) -> int:
        return max((seal.last for seal in self.sealed.values()), default=0)

    def refuse_damage(self, acknowledged: int, *, may_be_cut: bool, may_be_torn: bool) -> None:
        """
        Raise `CorruptStateError` when there is damage, but for an interrupted write behind all that was acknowledged.

        Args:
            acknowledged: The position up to which it is known that messages were acknowledged.
            may_be_cut: Whether the server may have been killed while it wrote: the file ends inside the last record.
            may_be_torn: Whether the machine may have gone down: what stands at the end may be anything.
        """
        end = self._ends_with
        if end is not None and self._last >= acknowledged and (may_be_torn or (may_be_cut and end.is_cut)):
            file, damage = self._damaged.pop()
            _logger.warning(
                "%s: the last message was not written to its end, and its writer was not told that it was; the server "
                "removes %d bytes",
                *(file, damage.length),
            )
        if self._damaged:
            file, damage = self._damaged[0]
            more = f", and {len(self._damaged) - 1:,} more places are" if self._damaged[1:] else " is"
            place = "" if damage.sequence is None else f" (position {damage.sequence & (2**62 - 1)})"
            msg = f"{file}: the record at byte {damage.offset:,}{place}{more} damaged. {_REMEDY}"
            raise CorruptStateError(msg)

    def refuse_shrunk(self) -> None:
        """Raise `CorruptStateError` when a file ends earlier than at the clean stop, or is gone: no server ran since."""
        for number, seal in self._before.items():
            file = self._folder / "msgs" / f"{number}.blk"
            size = file.stat().st_size if file.exists() else 0
            if size < seal.size and seal.message_count:
                msg = f"{file}: {size:,} bytes are left of {seal.size:,}. {_REMEDY}"
                raise CorruptStateError(msg)

    def refuse_losses(self, acknowledged: int, rewritten: int) -> None:
        """Raise `ChainIntegrityError` when messages are gone that left no damage behind, and that are not `rewritten` elsewhere."""
        # Every position was given to an event, and only deletions and redactions take events away.
        missing = self._last - sum(seal.message_count for seal in self.sealed.values())
        accounted = sum(seal.accounted for seal in self.sealed.values()) + rewritten
        if missing > accounted:
            msg = (
                f"{missing} positions up to {self._last} of the log in {self._folder} hold no event, but deletions "
                f"account for {accounted} only: events are lost. {_REMEDY}"
            )
            raise ChainIntegrityError(msg)
        # The file was cut between two records, or is gone: there is no damage to see, only an end that is too early.
        if acknowledged > self._last:
            raise LogRegressedError(last_position=self._last, seen_position=acknowledged)
