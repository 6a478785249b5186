"""`Encryption`: what `open` is told about keys, and the index of an encrypted log, which lies in memory and goes with its ledger."""

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Literal, get_args

from chatledger.domain.errors import ConfigurationError
from chatledger.projections.generations import Generations
from chatledger.projections.index import Index
from chatledger.projections.lmdb.environment import INITIAL_MAP_BYTES, make_folder, private

from ...log.cipher import Keyring, new_key, read_keys
from ...log.witness import logs_noted
from ..temp_folders import Scratch, is_in_memory, memory_folder
from . import KEY_ENV

IndexAtRest = Literal["memory", "plain"]
Keys = str | Sequence[str]


class Encryption:
    """
    Encryption of a log at rest: AES-256-GCM of every event, with keys that only you have.

    A key is 32 random bytes in base64, with an id before it: `2026-01:<base64>`. New events are encrypted with the first
    key. Those written with another one stay readable as long as it is given too. There is no default key, and without its
    keys a log cannot be read by anybody.

    Args:
        keys: One key or several, as text separated by commas or as a list; or a function that returns them, which is
            called whenever a ledger is opened.
        index_at_rest: The index holds the messages in clear. With "memory" it is kept on a file system in memory and built
            again after a restart of the machine. With "plain" it lies where `index=` of `open` says, which should be a
            volume that is encrypted itself.

    Raises:
        ConfigurationError: There is no key, or one is malformed or weak. Keys from a function are checked at open.

    Example:
        chatledger.open("./chatledger-data", encryption=Encryption.from_environment())
    """

    def __init__(self, keys: Keys | Callable[[], Keys], *, index_at_rest: IndexAtRest = "memory") -> None:
        if index_at_rest not in get_args(IndexAtRest):
            msg = f"index_at_rest must be 'memory' or 'plain', not {index_at_rest!r}"
            raise ConfigurationError(msg)
        self.index_at_rest: IndexAtRest = index_at_rest
        self._keys = keys if callable(keys) else read_keys(keys)

    @staticmethod
    def from_environment(variable: str = KEY_ENV, *, index_at_rest: IndexAtRest = "memory") -> "Encryption":
        """Keys from an environment variable. Opening raises `ConfigurationError` when it is not set."""

        def keys() -> str:
            text = os.environ.get(variable)
            if not (text and text.strip()):
                msg = f"encryption is on, but {variable} is not set; it holds the key as 'id:base64'"
                raise ConfigurationError(msg)
            return text

        return Encryption(keys, index_at_rest=index_at_rest)

    @staticmethod
    def new_key(key_id: str | None = None) -> str:
        """
        Return a new random key, e.g. `2026-01:<base64>`. Keep it where your other secrets are; chatledger keeps it nowhere.

        Args:
            key_id: 1 to 32 letters, digits, dots, dashes or underscores. It stands in clear beside each event.
        """
        return new_key(key_id)

    def __repr__(self) -> str:
        keys = "…" if callable(self._keys) else ", ".join(repr(key.id) for key in self._keys)
        return f"Encryption({keys}, index_at_rest={self.index_at_rest!r})"


def keyring_of(encryption: Encryption) -> Keyring:
    """The keys as they are now. Raises `ConfigurationError`."""
    keys = encryption._keys  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - kept from users, not from this module
    return read_keys(keys()) if callable(keys) else keys


def check_index(encryption: Encryption, index: Path | None) -> None:
    """Raise `ConfigurationError` unless there is a place where the index may lie; `index` is where it is asked for."""
    if encryption.index_at_rest == "plain":
        if index is None:
            msg = "index_at_rest='plain' needs index=folder, on a volume that is encrypted itself"
            raise ConfigurationError(msg)
    elif index is None:
        memory_folder()
    elif not is_in_memory(index):
        msg = (
            f"{index} is not in memory, and the index of an encrypted log holds its messages in clear. Leave out index=, "
            "or say index_at_rest='plain' if that volume is encrypted itself"
        )
        raise ConfigurationError(msg)


def scratch_beside(index: Path | None) -> Scratch:
    """Return the place for temporary data derived from an encrypted log: beside its index, checked by `check_index`."""
    if index is None:
        return Scratch(memory_folder())
    make_folder(index)
    return Scratch(index)


def index_folder(identity: str) -> Path:
    """Return the default folder for the index of an encrypted log."""
    return memory_folder() / folder_name(identity)


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
