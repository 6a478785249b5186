"""Checksums of rows. LMDB has none, so a flipped bit would be read as if it had been written."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from xxhash import xxh3_64_digest

from chatledger.domain.errors import CorruptStateError

if TYPE_CHECKING:
    import lmdb

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


def stored_row(txn: "lmdb.Transaction[bytes]", table: "lmdb._Database", key: bytes) -> bytes | None:
    """
    Return the row under a key, without its checksum; None where there is none.

    Raises:
        CorruptStateError: The checksum is wrong.
    """
    stored = txn.get(key, db=table)
    if stored is None:
        return None
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


def _damaged() -> CorruptStateError:
    return CorruptStateError(
        "a row of the index is damaged; rebuild the index, or delete its folder. The log is not affected"
    )
