"""Checksums of rows. LMDB has none, so a flipped bit would be read as if it had been written."""

from collections.abc import Sequence
from typing import Final

from xxhash import xxh3_64_digest, xxh3_64_intdigest

from chatledger.domain.errors import CorruptStateError

CHECKSUM_BYTES: Final = 4
KEYED_BYTES: Final = 8
"""The bytes of the checksum before a row that is stored under a key."""


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


def check_sums(stored: Sequence[bytes]) -> None:
    """
    Compare the checksums of many stored rows, in less time than one by one.

    Raises:
        CorruptStateError: A checksum is wrong.
    """
    sums = [row[-CHECKSUM_BYTES:] for row in stored]
    if [xxh3_64_digest(row[:-CHECKSUM_BYTES])[-CHECKSUM_BYTES:] for row in stored] != sums:
        raise _damaged()


def view_without_checksum(stored: bytes) -> memoryview:
    """Return a view of a stored row without its checksum, for long rows that are read in part."""
    row = memoryview(stored)[:-CHECKSUM_BYTES]
    if xxh3_64_digest(row)[-CHECKSUM_BYTES:] != stored[-CHECKSUM_BYTES:]:
        raise _damaged()
    return row


def with_keyed_checksum(key: bytes, row: bytes) -> bytes:
    """Return a row as it is stored under a key. The checksum covers the key too, so rows that change places are noticed."""
    return _keyed_checksum(key, row) + row


def without_keyed_checksum(key: bytes, stored: bytes) -> bytes | None:
    """Return the row that was stored under a key; None when the stored bytes are not those that were put there."""
    row = stored[KEYED_BYTES:]
    return row if _keyed_checksum(key, row) == stored[:KEYED_BYTES] else None


def _keyed_checksum(key: bytes, row: bytes) -> bytes:
    return xxh3_64_digest(row, xxh3_64_intdigest(key))


def _damaged() -> CorruptStateError:
    return CorruptStateError(
        "a row of the index is damaged; rebuild the index, or delete its folder. The log is not affected"
    )
