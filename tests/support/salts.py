"""Salts of events that are the same whenever they are asked for."""

from collections.abc import Iterator
from itertools import count

from chatledger.domain.log.parts import SALT_BYTES


def salts(first: int = 0) -> Iterator[bytes]:
    """Yield numbers as salts, from one on."""
    return (number.to_bytes(SALT_BYTES) for number in count(first))


def named_salts(*firsts: int) -> Iterator[bytes]:
    """Yield salts of one byte repeated: `a0a0…`, `a1a1…`, as test vectors have them."""
    return (bytes([first]) * SALT_BYTES for first in firsts)
