"""Merkle trees: the definitions, growth by peaks, consistency, paths of several leaves, and radix trees."""

import random
from collections.abc import Sequence
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.soak import IS_SOAK

from chatledger.domain.log.merkle import (
    EMPTY,
    PARTS,
    consistency_path,
    event_leaf,
    grown,
    is_consistent,
    multi_path,
    node,
    radix_path,
    radix_root,
    root_from_multi_path,
    root_from_radix_path,
    root_of_peaks,
    shows_absence,
    subtree_of,
)

LEAVES = [sha256(number.to_bytes(4)).digest() for number in range(2100)]
VECTORS = [
    bytes.fromhex(text)
    for text in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f")
]
digests = st.binary(min_size=32, max_size=32)


def naive_root(leaves: Sequence[bytes]) -> bytes:
    """The definition in section 2.1.1 of RFC 9162."""
    if len(leaves) < 2:
        return leaves[0] if leaves else sha256(b"").digest()
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    return sha256(b"\1" + naive_root(leaves[:split]) + naive_root(leaves[split:])).digest()


def naive_path(number: int, start: int, end: int) -> list[bytes]:
    """The definition of an inclusion path in section 2.1.3.1."""
    if end - start == 1:
        return []
    split = 1
    while split * 2 < end - start:
        split *= 2
    middle = start + split
    if number < middle:
        return [*naive_path(number, start, middle), naive_root(LEAVES[middle:end])]
    return [*naive_path(number, middle, end), naive_root(LEAVES[start:middle])]


def test_known_roots() -> None:
    """Roots that the authors of Certificate Transparency publish."""
    leaves = [sha256(b"\0" + value).digest() for value in VECTORS]
    assert EMPTY.hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert [naive_root(leaves[:count]).hex() for count in (1, 2, 3, 8)] == [
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
        "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
        "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
    ]
    peaks = b""
    for count, leaf in enumerate(leaves):
        peaks = grown(count, peaks, leaf)
    assert root_of_peaks(peaks) == naive_root(leaves)


def test_peaks_are_the_whole_tree_at_every_size() -> None:
    """To 2,000 leaves, of which all sizes to 300 are looked at, those around powers of two, and some more."""
    peaks = b""
    whole = subtree_of(LEAVES)
    for size in range(2100):
        if IS_SOAK or size < 300 or size % 64 in {63, 0, 1} or size % 10 == 3:
            assert root_of_peaks(peaks) == (whole(0, size) if size else EMPTY)
        assert len(peaks) == 32 * size.bit_count()
        peaks = grown(size, peaks, LEAVES[size])
    assert whole(0, 777) == naive_root(LEAVES[:777])


def test_the_leaf_of_an_event() -> None:
    """SHA-256 over a zero byte, the position in eight bytes, and the hash."""
    assert event_leaf(258, b"h" * 32) == sha256(bytes([0, 0, 0, 0, 0, 0, 0, 1, 2]) + b"h" * 32).digest()


def test_consistency_of_all_sizes() -> None:
    """All pairs to 50 (130 where there is time), and any to 2,000: the proof holds, and no other one does."""
    chance = random.Random(5)
    pairs = [(earlier, size) for size in range(1, 131 if IS_SOAK else 51) for earlier in range(1, size + 1)]
    pairs += [(chance.randint(1, size), size) for size in chance.sample(range(1000, 2100), 50)]
    whole = subtree_of(LEAVES)
    roots = {size: whole(0, size) for size in {count for pair in pairs for count in pair}}
    for earlier, size in pairs:
        path = consistency_path(whole, earlier, size)
        assert is_consistent(earlier, roots[earlier], size, roots[size], path)
        assert len(path) <= (size - 1).bit_length() + 1
        assert not is_consistent(earlier, roots[earlier], size, roots[size], [*path, roots[size]])
        assert not is_consistent(earlier, b"x" * 32, size, roots[size], path)
        assert not is_consistent(earlier, roots[earlier], size, b"x" * 32, path)
        for at in range(len(path)):
            assert not is_consistent(earlier, roots[earlier], size, roots[size], [*path[:at], *path[at + 1 :]])
            bent = [*path[:at], bytes(32), *path[at + 1 :]]
            assert not is_consistent(earlier, roots[earlier], size, roots[size], bent)
    for earlier, size in ((0, 5), (6, 5), (-1, 5)):
        assert not is_consistent(earlier, EMPTY, size, roots[5], [])


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6, 7, 8, 9, 31, 32, 33, 100])
def test_a_path_of_one_leaf_is_that_of_the_rfc(size: int) -> None:
    """In the same order; any other path, leaf or number leads elsewhere or nowhere."""
    whole, root = subtree_of(LEAVES), naive_root(LEAVES[:size])
    for number in range(size):
        path = multi_path(whole, size, [number])
        assert list(path) == naive_path(number, 0, size)
        assert root_from_multi_path(size, {number: LEAVES[number]}, path) == root
        assert root_from_multi_path(size, {number: LEAVES[number + 1]}, path) != root
        assert root_from_multi_path(size, {number: LEAVES[number]}, [*path, root]) is None
        assert root_from_multi_path(size, {size: LEAVES[number]}, path) is None
        assert root_from_multi_path(size, {-1: LEAVES[number]}, path) is None
        assert root_from_multi_path(size, {}, path) is None
        for at in range(len(path)):
            bent = [*path[:at], bytes(32), *path[at + 1 :]]
            assert root_from_multi_path(size, {number: LEAVES[number]}, bent) != root


@given(st.integers(1, 300), st.data())
def test_paths_of_several_leaves(size: int, data: st.DataObject) -> None:
    """They lead to the root, in either kind of tree, and have no more hashes than the paths of each."""
    numbers = data.draw(st.sets(st.integers(0, size - 1), min_size=1, max_size=20))
    for kind in (b"\1", PARTS):
        whole = subtree_of(LEAVES, kind)
        path = multi_path(whole, size, numbers)
        known = {number: LEAVES[number] for number in numbers}
        assert root_from_multi_path(size, known, path, kind) == whole(0, size)
        assert len(path) <= sum(len(multi_path(whole, size, [number])) for number in numbers)
        some = min(numbers)
        assert root_from_multi_path(size, {**known, some: bytes(32)}, path, kind) != whole(0, size)
    assert root_from_multi_path(size, known, path) != subtree_of(LEAVES, PARTS)(0, size) or size == 1


def naive_radix(entries: Sequence[tuple[bytes, bytes]], bit: int = 0) -> bytes:
    """Split at the first bit in which digests differ."""
    if len(entries) == 1:
        return entries[0][1]
    while len({_bit(digest, bit) for digest, _ in entries}) == 1:
        bit += 1
    sides = [[entry for entry in entries if _bit(entry[0], bit) == side] for side in (0, 1)]
    return sha256(b"\1" + bit.to_bytes(2) + naive_radix(sides[0], bit) + naive_radix(sides[1], bit)).digest()


def _bit(digest: bytes, number: int) -> int:
    return int(f"{int.from_bytes(digest):0256b}"[number])


@given(st.sets(digests | st.binary(min_size=2, max_size=2).map(lambda end: bytes(30) + end), max_size=40), digests)
def test_radix_trees(known: set[bytes], other: bytes) -> None:
    """The root is the definition; each leaf has a path, and each other digest one that shows its absence."""
    ordered = sorted(known)
    leaves = [sha256(digest).digest() for digest in ordered]
    root = radix_root(ordered, leaves)
    assert root == (naive_radix(list(zip(ordered, leaves, strict=True))) if known else EMPTY)
    for at, digest in enumerate(ordered):
        number, path = radix_path(ordered, leaves, digest)
        assert number == at
        assert root_from_radix_path(digest, leaves[at], path) == root
        assert not shows_absence(digest, digest, path)
        assert root_from_radix_path(digest, bytes(32), path) != root
        if path:
            assert root_from_radix_path(digest, leaves[at], path[1:]) != root
            assert root_from_radix_path(digest, leaves[at], path[::-1]) != root or len(path) == 1
            assert root_from_radix_path(digest, leaves[at], [(256, path[0][1])]) is None
    if known and other not in known:
        number, path = radix_path(ordered, leaves, other)
        assert root_from_radix_path(ordered[number], leaves[number], path) == root
        assert shows_absence(other, ordered[number], path)
        for at, digest in enumerate(ordered):
            if at != number:
                assert not shows_absence(other, digest, radix_path(ordered, leaves, digest)[1])


def test_a_node_is_over_both_sides() -> None:
    assert node(b"l", b"r") == sha256(b"\1lr").digest()
    assert node(b"l", b"r", PARTS) == sha256(b"\x11lr").digest()
