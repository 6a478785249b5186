"""Rows with a checksum: LMDB has none, and a flipped bit would be read as if it had been written."""

from typing import Final

from xxhash import xxh3_64_digest

from chatledger.domain.errors import CorruptStateError

SEAL_BYTES: Final = 4


def seal(row: bytes) -> bytes:
    """A row as it is stored."""
    return row + xxh3_64_digest(row)[-SEAL_BYTES:]


def is_sound(stored: bytes) -> bool:
    """Whether it is what was stored."""
    return xxh3_64_digest(stored[:-SEAL_BYTES])[-SEAL_BYTES:] == stored[-SEAL_BYTES:]


def unseal(stored: bytes) -> bytes:
    """
    The row again.

    Raises:
        CorruptStateError: It is not what was stored.
    """
    row = stored[:-SEAL_BYTES]
    if xxh3_64_digest(row)[-SEAL_BYTES:] != stored[-SEAL_BYTES:]:
        raise _damaged()
    return row


def unsealed_view(stored: bytes) -> memoryview:
    """The same without a copy, for long rows of which little is read. Raises `CorruptStateError`, as above."""
    row = memoryview(stored)[:-SEAL_BYTES]
    if xxh3_64_digest(row)[-SEAL_BYTES:] != stored[-SEAL_BYTES:]:
        raise _damaged()
    return row


def _damaged() -> CorruptStateError:
    return CorruptStateError(
        "a row of the index is damaged; rebuild the index, or delete its folder. The log is not affected"
    )
