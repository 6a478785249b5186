"""Checksums of rows. LMDB has none, so a flipped bit would be read as if it had been written."""

from typing import Final

from xxhash import xxh3_64_digest

from chatledger.domain.errors import CorruptStateError

CHECKSUM_BYTES: Final = 4


def with_checksum(row: bytes) -> bytes:
    """Return a row with its checksum appended, as it is stored."""
    return row + xxh3_64_digest(row)[-CHECKSUM_BYTES:]


def is_sound(stored: bytes) -> bool:
    """Whether the checksum of a stored row is right."""
    return xxh3_64_digest(stored[:-CHECKSUM_BYTES])[-CHECKSUM_BYTES:] == stored[-CHECKSUM_BYTES:]


def without_checksum(stored: bytes) -> bytes:
    """
    Return a stored row without its checksum.

    Raises:
        CorruptStateError: The checksum is wrong.
    """
    row = stored[:-CHECKSUM_BYTES]
    if xxh3_64_digest(row)[-CHECKSUM_BYTES:] != stored[-CHECKSUM_BYTES:]:
        raise _damaged()
    return row


def view_without_checksum(stored: bytes) -> memoryview:
    """Return a stored row without its checksum and without a copy, for long rows of which little is read."""
    row = memoryview(stored)[:-CHECKSUM_BYTES]
    if xxh3_64_digest(row)[-CHECKSUM_BYTES:] != stored[-CHECKSUM_BYTES:]:
        raise _damaged()
    return row


def _damaged() -> CorruptStateError:
    return CorruptStateError(
        "a row of the index is damaged; rebuild the index, or delete its folder. The log is not affected"
    )
