"""Rows with a checksum: LMDB has none, and a flipped bit would be read as if it had been written."""

from typing import Final
from zlib import crc32

from chatledger.domain.errors import CorruptStateError

SEAL_BYTES: Final = 4


def seal(row: bytes) -> bytes:
    """A row as it is stored."""
    return row + crc32(row).to_bytes(SEAL_BYTES, "big")


def is_sound(stored: bytes) -> bool:
    """Whether it is what was stored."""
    return crc32(stored[:-SEAL_BYTES]) == int.from_bytes(stored[-SEAL_BYTES:], "big")


def unseal(stored: bytes) -> bytes:
    """
    The row again.

    Raises:
        CorruptStateError: It is not what was stored.
    """
    if not is_sound(stored):
        msg = "a row of the index is damaged; rebuild the index, or delete its folder. The log is not affected"
        raise CorruptStateError(msg)
    return stored[:-SEAL_BYTES]
