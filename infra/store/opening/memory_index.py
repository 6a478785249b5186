"""The index of an encrypted log: it lies in memory, and goes when its ledger is gone."""

import contextlib
import hashlib
import os
import shutil
from pathlib import Path
from typing import Final

from chatledger.projections.generations import Generations
from chatledger.projections.index import Index
from chatledger.projections.lmdb.environment import INITIAL_MAP_BYTES, private

from ...log.witness import logs_noted

WITNESS_FILE: Final = "WITNESS"
"""In the folder in memory: where the witness of its log is, on the disk."""


class IndexInMemory(Index):
    """
    An index that a restart of the machine takes away.

    Args:
        root: The folder in memory.
        witness: The folder of the witness, on the disk.
        identity: Of the log.
        map_bytes: As in `Index`.
    """

    def __init__(self, root: Path, witness: Path, *, identity: str, map_bytes: int = INITIAL_MAP_BYTES) -> None:
        super().__init__(root, identity=identity, map_bytes=map_bytes)
        self._root, self._witness = root, witness

    def open(self) -> str | None:
        """Implement `Index.open`; removes the indexes of ledgers that are gone."""
        with open(self._root / WITNESS_FILE, "wb", opener=private) as file:
            file.write(os.fsencode(self._witness))
        remove_orphans(self._root.parent)
        return super().open()


def folder_name(identity: str) -> str:
    """Return what the folder of the index of a log is called."""
    return hashlib.sha256(identity.encode()).hexdigest()[:32]


def remove_orphans(memory: Path) -> None:
    """Remove indexes of ledgers that are gone, and that nobody has open: they hold in clear what was deleted with the ledger."""
    for file in memory.glob(f"*/{WITNESS_FILE}"):
        with contextlib.suppress(OSError):
            witness = Path(os.fsdecode(file.read_bytes()))
            logs = logs_noted(witness)
            is_gone = not witness.exists() or (logs and file.parent.name not in logs)
            if is_gone and not Generations(file.parent).is_in_use:
                shutil.rmtree(file.parent)
