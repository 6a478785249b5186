"""Rows with a checksum: LMDB has none, and a flipped bit would be read as if it had been written."""

from hashlib import blake2b
from typing import Final

from xxhash import xxh3_64_digest

from chatledger.domain.errors import CorruptStateError

SEAL_BYTES: Final = 4
_KEYED_BYTES: Final = 12


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


def seal_keyed(key: bytes, row: bytes) -> bytes:
    """Return a row as it is stored under a key, which the checksum covers: nor can rows change places."""
    return _keyed_checksum(key, row) + row


def unseal_keyed(key: bytes, stored: bytes) -> bytes | None:
    """Return the row that was stored under a key; None when this is not what was stored there."""
    row = stored[_KEYED_BYTES:]
    return row if _keyed_checksum(key, row) == stored[:_KEYED_BYTES] else None


def _keyed_checksum(key: bytes, row: bytes) -> bytes:
    return blake2b(row, digest_size=_KEYED_BYTES, key=key).digest()


def _damaged() -> CorruptStateError:
    return CorruptStateError(
        "a row of the index is damaged; rebuild the index, or delete its folder. The log is not affected"
    )
