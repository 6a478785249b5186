"""The index of an encrypted log: it lies in memory, and leaves on the disk only how far it was."""

import contextlib
import hashlib
import logging
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from chatledger.domain.errors import ChatledgerError
from chatledger.domain.undecodable import UNDECODABLE
from chatledger.projections.environment import INITIAL_MAP_BYTES
from chatledger.projections.generation import IndexState
from chatledger.projections.generations import Generations
from chatledger.projections.index import Index

from .log import EventLog
from .log.regression import refuse_if_regressed

SEEN_FILE: Final = "SEEN"
NOTES_FILE: Final = "NOTES"
"""In the folder in memory: where the notes of its ledger are, on the disk."""
_logger = logging.getLogger(__name__)


class Seen(msgspec.Struct, frozen=True):
    """The last event that an index had seen, of which log. Its hash tells nothing about its content."""

    identity: str
    position: int
    hash: bytes


class IndexInMemory(Index):
    """
    An index that a restart of the machine takes away.

    A log that went back meanwhile must be noticed all the same: it would give out positions again that were acknowledged.
    So a note of the last event that was seen is written when the index is opened and closed.

    Args:
        root: The folder in memory.
        notes: The folder on the disk for the note; where the index of a log in clear would lie.
    """

    def __init__(self, root: Path, notes: Path, *, identity: str, map_bytes: int = INITIAL_MAP_BYTES) -> None:
        super().__init__(root, identity=identity, map_bytes=map_bytes)
        self._root, self._notes, self._log_identity = root, notes, identity

    def check(self, log: EventLog) -> None:
        """Raise `LogRegressedError` when the log does not hold what was seen before."""
        seen = read_note(self._notes)
        if seen is None or seen.identity != self._log_identity:
            return
        refuse_if_regressed(log, position=seen.position, event_hash=seen.hash)

    def open(self) -> str | None:
        """As declared in `Index`; notes how far it is."""
        with contextlib.suppress(OSError):  # a disk that is read-only is no reason to fail
            self._notes.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self._root / NOTES_FILE).write_bytes(os.fsencode(self._notes))
        remove_orphans(self._root.parent)
        reason = super().open()
        if reason is None:
            self.note()
        return reason

    def close(self) -> None:
        """As declared in `Index`; notes how far it was."""
        with contextlib.suppress(ChatledgerError):  # closed already, or never opened
            self.note()
        super().close()

    def note(self) -> None:
        """Write down how far the index is. A disk that is full or read-only is no reason to fail."""
        state = self.state
        try:
            self._write_note(state)
        except OSError as error:
            _logger.warning("the note of the position that was seen could not be written to %s: %s", self._notes, error)

    def _write_note(self, state: IndexState) -> None:
        seen = read_note(self._notes)
        is_behind = seen is not None and seen.identity == self._log_identity and seen.position >= state.position
        if not state.position or is_behind:
            return
        self._notes.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=self._notes, prefix=f"{SEEN_FILE}.")
        with os.fdopen(handle, "wb") as file:
            file.write(msgspec.json.encode(Seen(self._log_identity, state.position, state.hash)))
            file.flush()
            os.fsync(file.fileno())
        Path(draft).replace(self._notes / SEEN_FILE)


def folder_name(identity: str) -> str:
    """What the folder of the index of a log is called."""
    return hashlib.sha256(identity.encode()).hexdigest()[:32]


def remove_orphans(memory: Path) -> None:
    """Remove indexes of ledgers that are gone, and that nobody has open: they hold in clear what was deleted with the ledger."""
    for file in memory.glob(f"*/{NOTES_FILE}"):
        with contextlib.suppress(OSError):
            notes = Path(os.fsdecode(file.read_bytes()))
            seen = read_note(notes)
            is_anothers = seen is not None and folder_name(seen.identity) != file.parent.name
            if (is_anothers or not notes.exists()) and not Generations(file.parent).is_in_use:
                shutil.rmtree(file.parent)


def read_note(notes: Path) -> Seen | None:
    """The last event that an index in memory had seen; None when there is no note, or none that can be read."""
    try:
        return msgspec.json.decode((notes / SEEN_FILE).read_bytes(), type=Seen)
    except (OSError, *UNDECODABLE):
        return None
