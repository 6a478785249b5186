"""
Merkle trees: of a stream's events, of an event's parts, and of the streams in an anchor.

The first two have the shape of RFC 9162: the left side of a node has the largest power of two of leaves that is less than all.
A tree that grows is kept as its peaks, the roots of the complete trees it consists of, largest first. The third is a radix tree over
digests, so that a new stream moves no other one.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import sha256
from itertools import pairwise
from typing import Final

HASH_BYTES: Final = 32
DIGEST_BITS: Final = 256
EMPTY: Final = sha256(b"").digest()
"""The root of a tree without leaves."""
EVENTS, PARTS = b"\x01", b"\x11"
"""The first byte of the hash of a node: in a tree of a stream's events or of an anchor, and in one of an event's parts."""

Subtree = Callable[[int, int], bytes]
"""(first leaf, behind the last one) to the root of these leaves."""
RadixPath = Sequence[tuple[int, bytes]]
"""From below to above: the bit in which the two sides of a node differ, and the hash of the other side."""


def event_leaf(position: int, event_hash: bytes) -> bytes:
    """Return the hash of an event in the tree of its stream."""
    return sha256(b"\0" + position.to_bytes(8) + event_hash).digest()


def node(left: bytes, right: bytes, kind: bytes = EVENTS) -> bytes:
    """Return the hash of a node, from those of its sides."""
    return sha256(kind + left + right).digest()


def grown(size: int, peaks: bytes, leaf: bytes) -> bytes:
    """Return the peaks of a tree of `size` leaves after one more leaf."""
    # A peak for each bit of the size: one more leaf carries as adding one to a binary number does.
    while size & 1:
        leaf = sha256(b"\x01" + peaks[-HASH_BYTES:] + leaf).digest()
        peaks = peaks[:-HASH_BYTES]
        size >>= 1
    return peaks + leaf


def root_of_peaks(peaks: bytes) -> bytes:
    if not peaks:
        return EMPTY
    root = peaks[-HASH_BYTES:]
    for at in range(len(peaks) - 2 * HASH_BYTES, -1, -HASH_BYTES):
        root = node(peaks[at : at + HASH_BYTES], root)
    return root


def subtree_of(leaves: Sequence[bytes], kind: bytes = EVENTS) -> Subtree:
    """Return what gives the roots of any leaves of a tree that is at hand."""

    def root(start: int, end: int) -> bytes:
        if end - start == 1:
            return leaves[start]
        middle = start + _left(end - start)
        return node(root(start, middle), root(middle, end), kind)

    return root


def _left(size: int) -> int:
    """The number of leaves on the left side of a tree of two or more."""
    return 1 << (size - 1).bit_length() - 1


def multi_path(subtree: Subtree, size: int, numbers: Collection[int]) -> tuple[bytes, ...]:
    """
    Return the hashes that lead from some leaves of a tree to its root, those of the lower levels first, on a level from the left.

    For one leaf they are the inclusion path of RFC 9162.
    """
    return tuple(subtree(start, end) for start, end in _lacking(size, numbers))


def _lacking(size: int, numbers: Collection[int]) -> list[tuple[int, int]]:
    """The subtrees whose roots cannot be computed from these leaves, those of the lower levels first."""
    shown = sorted(numbers)
    lacking: list[tuple[int, int, int]] = []

    def visit(start: int, end: int, level: int) -> None:
        if bisect_left(shown, start) == bisect_left(shown, end):
            lacking.append((level, start, end))
        elif end - start > 1:
            left = _left(end - start)
            visit(start, start + left, left)  # a shorter right side stands on the level of the left one
            visit(start + left, end, left)

    visit(0, size, size)
    return [(start, end) for _, start, end in sorted(lacking)]


def root_from_multi_path(
    size: int, leaves: Mapping[int, bytes], path: Sequence[bytes], kind: bytes = EVENTS
) -> bytes | None:
    """Return the root of the tree of `size` leaves that has these ones by number; None where the path does not fit."""
    if not leaves or not all(0 <= number < size for number in leaves):
        return None
    lacking = _lacking(size, leaves)
    if len(lacking) != len(path):
        return None
    roots = dict(zip(lacking, path, strict=True))

    def root(start: int, end: int) -> bytes:
        if (start, end) in roots:
            return roots[start, end]
        if end - start == 1:
            return leaves[start]
        middle = start + _left(end - start)
        return node(root(start, middle), root(middle, end), kind)

    return root(0, size)


def consistency_path(subtree: Subtree, earlier: int, size: int) -> tuple[bytes, ...]:
    """Return the proof of RFC 9162 that a tree of `size` leaves is the one of `earlier` leaves with more behind them."""
    path: list[bytes] = []
    start, end, is_whole = 0, size, True
    while earlier != end:
        middle = start + _left(end - start)
        if earlier <= middle:
            path.append(subtree(middle, end))
            end = middle
        else:
            path.append(subtree(start, middle))
            start, is_whole = middle, False
    if not is_whole:
        path.append(subtree(start, end))
    return tuple(reversed(path))


def is_consistent(earlier: int, earlier_root: bytes, size: int, root: bytes, path: Sequence[bytes]) -> bool:
    """Whether a path shows that the tree of `size` leaves goes on from the one of `earlier`; see section 2.1.4.2 of RFC 9162."""
    if not 0 < earlier <= size:
        return False
    if earlier == size:
        return not path and earlier_root == root
    rest = list(path) if earlier & (earlier - 1) else [earlier_root, *path]
    if not rest:
        return False
    first, last = earlier - 1, size - 1
    while first & 1:
        first, last = first >> 1, last >> 1
    old = new = rest[0]
    for hash_ in rest[1:]:
        if not last:
            return False
        if first & 1 or first == last:
            old, new = node(hash_, old), node(hash_, new)
            while first and not first & 1:
                first, last = first >> 1, last >> 1
        else:
            new = node(new, hash_)
        first, last = first >> 1, last >> 1
    return not last and (old, new) == (earlier_root, root)


def _bit(digest: bytes, number: int) -> int:
    """A bit of a digest; 0 is the highest one."""
    return digest[number >> 3] >> (7 - (number & 7)) & 1


def _first_difference(left: bytes, right: bytes) -> int:
    return DIGEST_BITS - (int.from_bytes(left) ^ int.from_bytes(right)).bit_length()


def _radix_node(bit: int, left: bytes, right: bytes) -> bytes:
    return sha256(b"\x01" + bit.to_bytes(2) + left + right).digest()


def radix_root(digests: Sequence[bytes], leaves: Sequence[bytes]) -> bytes:
    """Return the root of the radix tree over digests, which are in order and different, with the hashes of their leaves."""
    if not digests:
        return EMPTY
    # Nodes that still wait for their right side, on the way down; each differs in a later bit than the one above it.
    waiting: list[tuple[int, bytes]] = []
    right = leaves[0]
    for (before, digest), leaf in zip(pairwise(digests), leaves[1:], strict=True):
        bit = _first_difference(before, digest)
        while waiting and waiting[-1][0] > bit:
            right = _radix_node(*waiting.pop(), right)
        waiting.append((bit, right))
        right = leaf
    while waiting:
        right = _radix_node(*waiting.pop(), right)
    return right


def radix_path(
    digests: Sequence[bytes], leaves: Sequence[bytes], digest: bytes
) -> tuple[int, tuple[tuple[int, bytes], ...]]:
    """
    Return the leaf of the radix tree where the search for a digest ends, by number, and its path.

    Of a digest that is not there, the path shows just that. There is at least one leaf.
    """
    start, end = 0, len(digests)
    path: list[tuple[int, bytes]] = []
    while end - start > 1:
        bit = _first_difference(digests[start], digests[end - 1])
        ones = (int.from_bytes(digests[start]) >> (DIGEST_BITS - 1 - bit) | 1) << (DIGEST_BITS - 1 - bit)
        middle = bisect_left(digests, ones.to_bytes(HASH_BYTES), start, end)
        if _bit(digest, bit):
            path.append((bit, radix_root(digests[start:middle], leaves[start:middle])))
            start = middle
        else:
            path.append((bit, radix_root(digests[middle:end], leaves[middle:end])))
            end = middle
    return start, tuple(reversed(path))


def root_from_radix_path(digest: bytes, leaf: bytes, path: RadixPath) -> bytes | None:
    """Return the root that the path of a leaf leads to; None where the path does not fit."""
    below = DIGEST_BITS
    for bit, other in path:
        if not 0 <= bit < below:
            return None
        leaf = _radix_node(bit, other, leaf) if _bit(digest, bit) else _radix_node(bit, leaf, other)
        below = bit
    return leaf


def shows_absence(digest: bytes, neighbour: bytes, path: RadixPath) -> bool:
    """Whether the path of the leaf of another digest is where that of this one would be, so that it is not in the tree."""
    return digest != neighbour and all(_bit(digest, bit) == _bit(neighbour, bit) for bit, _ in path)
