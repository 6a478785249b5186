"""
Merkle trees as in RFC 6962: one hash over many values, and short proofs that a value is among them.

The hash of a value is SHA-256 over 0x00 and the value, that of a node SHA-256 over 0x01 and the hashes of its two children,
so that no node can be passed off as a value. The left child of a node has as many values as the largest power of two that
is less than all.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Final

EMPTY: Final = sha256(b"").digest()
"""The root of a tree without values."""


def leaf_hash(value: bytes) -> bytes:
    """The hash of a value."""
    return sha256(b"\0" + value).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of a node, from those of its children."""
    return sha256(b"\1" + left + right).digest()


def merkle_root(values: Sequence[bytes]) -> bytes:
    """The hash over all values, in this order."""
    level = [leaf_hash(value) for value in values]
    if not level:
        return EMPTY
    while len(level) > 1:
        level = _above(level)
    return level[0]


def inclusion_path(values: Sequence[bytes], index: int) -> tuple[bytes, ...]:
    """The hashes that lead from value number `index` to the root: its neighbours, from below to above; O(log) of them."""
    level = [leaf_hash(value) for value in values]
    path: list[bytes] = []
    while len(level) > 1:
        neighbour = index ^ 1
        if neighbour < len(level):  # the last one of an odd level has none, and moves up as it is
            path.append(level[neighbour])
        level, index = _above(level), index // 2
    return tuple(path)


def root_from_path(value: bytes, *, index: int, size: int, path: Sequence[bytes]) -> bytes | None:
    """The root of the tree of `size` values in which this is value number `index`; None where the path does not fit."""
    if not 0 <= index < size:
        return None
    found, rest = leaf_hash(value), list(path)
    while size > 1:
        if index ^ 1 < size:
            if not rest:
                return None
            neighbour = rest.pop(0)
            found = node_hash(neighbour, found) if index % 2 else node_hash(found, neighbour)
        index, size = index // 2, (size + 1) // 2
    return None if rest else found


def _above(level: list[bytes]) -> list[bytes]:
    pairs = [node_hash(level[at], level[at + 1]) for at in range(0, len(level) - 1, 2)]
    return [*pairs, level[-1]] if len(level) % 2 else pairs
