"""Merkle trees: the vectors of RFC 6962's reference implementation, the definition itself, and proofs that do not lie."""

from base64 import b64encode
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatledger.domain.errors import InvalidValueError
from chatledger.domain.proof.anchors import (
    EMPTY,
    Anchor,
    AnchorLeaf,
    inclusion_path,
    merkle_root,
    root_from_path,
    root_of,
    stream_digest,
)

VECTORS = [bytes.fromhex(text) for text in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657", "60" * 16)]
trees = st.lists(st.binary(max_size=8), min_size=1, max_size=40)


def naive_root(values: Sequence[bytes]) -> bytes:
    """The definition in section 2.1 of RFC 6962."""
    if not values:
        return sha256(b"").digest()
    if len(values) == 1:
        return sha256(b"\0" + values[0]).digest()
    split = 1
    while split * 2 < len(values):
        split *= 2
    return sha256(b"\1" + naive_root(values[:split]) + naive_root(values[split:])).digest()


def test_known_roots() -> None:
    """Roots that the authors of Certificate Transparency publish."""
    assert EMPTY.hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert merkle_root([]) == EMPTY
    assert merkle_root(VECTORS[:1]).hex() == "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"
    assert merkle_root(VECTORS[:2]).hex() == "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"
    assert merkle_root(VECTORS[:3]).hex() == "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77"


@given(trees)
def test_root_is_the_definition(values: list[bytes]) -> None:
    assert merkle_root(values) == naive_root(values)


@given(trees, st.data())
def test_a_proof_leads_to_the_root_and_from_nowhere_else(values: list[bytes], data: st.DataObject) -> None:
    """The path of a value gives the root; with another value, place, size or path it does not."""
    index = data.draw(st.integers(0, len(values) - 1))
    path, root = inclusion_path(values, index), merkle_root(values)
    assert root_from_path(values[index], index=index, size=len(values), path=path) == root
    assert len(path) <= len(values).bit_length()

    assert root_from_path(values[index] + b"x", index=index, size=len(values), path=path) != root
    assert root_from_path(values[index], index=index, size=len(values), path=[*path, root]) is None
    assert root_from_path(values[index], index=len(values), size=len(values), path=path) is None
    if path:
        assert root_from_path(values[index], index=index, size=len(values), path=path[:-1]) is None
        other = data.draw(st.integers(0, len(path) - 1))
        bent = [*path[:other], bytes(32), *path[other + 1 :]]
        assert root_from_path(values[index], index=index, size=len(values), path=bent) != root


@given(trees, st.data())
def test_any_change_changes_the_root(values: list[bytes], data: st.DataObject) -> None:
    """A value that is changed, dropped, added or moved."""
    index = data.draw(st.integers(0, len(values) - 1))
    root = merkle_root(values)
    assert merkle_root([*values[:index], values[index] + b"x", *values[index + 1 :]]) != root
    assert merkle_root([*values[:index], *values[index + 1 :]]) != root
    assert merkle_root([*values, values[index]]) != root
    moved = [*values[index:], *values[:index]]
    assert (merkle_root(moved) == root) == (moved == values)


# Anchors


def leaf_of(chat_id: str, number: int) -> AnchorLeaf:
    filled = bytes([number]) * 32
    return AnchorLeaf(stream_digest(chat_id), number, number * 10, filled, filled)


def anchor_of(*chat_ids: str) -> Anchor:
    leaves = tuple(sorted(leaf_of(chat_id, number) for number, chat_id in enumerate(chat_ids, 1)))
    return Anchor(
        position=99,
        created_at=1_700_000_000_000,
        count=len(leaves),
        root=root_of(leaves),
        public_key=b"k" * 32,
        signature=b"s" * 64,
        leaves=leaves,
    )


def test_signed_bytes_are_fixed() -> None:
    """What a signature is over must never change, or old anchors could not be checked: worked out by hand."""
    anchor = anchor_of("a", "b")
    assert anchor.signed_bytes().decode() == (
        "chatledger-anchor/1\nposition 99\ncreated_at 1700000000000\ncount 2\n"
        f"root {anchor.root.hex()}\nkey {'6b' * 32}\n"
    )
    numbers = {
        "a": (1).to_bytes(8, "big") + (10).to_bytes(8, "big"),
        "b": (2).to_bytes(8, "big") + (20).to_bytes(8, "big"),
    }
    values = [sha256(b"a").digest() + numbers["a"] + b"\1" * 64, sha256(b"b").digest() + numbers["b"] + b"\2" * 64]
    first, second = (sha256(b"\0" + value).digest() for value in sorted(values))
    assert anchor.root == sha256(b"\1" + first + second).digest()


@given(st.sets(st.text(max_size=5), max_size=20))
def test_an_anchor_file_gives_the_anchor(chat_ids: set[str]) -> None:
    anchor = anchor_of(*sorted(chat_ids))
    assert Anchor.from_json(anchor.to_json()) == anchor
    assert Anchor.from_json(anchor.to_json()).to_json() == anchor.to_json()
    anchor.check_leaves()


def test_proofs_of_chats() -> None:
    """A proof shows where one chat ended to somebody who has the short form of the anchor, and shows nothing else."""
    anchor = anchor_of("a", "b", "c", "d", "e")
    short = anchor.without_leaves()
    for chat_id in "abcde":
        proof = anchor.proof(chat_id)
        assert short.check_proof(chat_id, proof)
        assert not short.check_proof("other", proof)
        forged = msgspec.structs.replace(proof, leaf=msgspec.structs.replace(proof.leaf, version=77))
        assert not short.check_proof(chat_id, forged)
    with pytest.raises(InvalidValueError, match="'other'"):
        anchor.proof("other")


def test_leaves_that_are_not_those_of_the_root() -> None:
    """Changed, dropped or in another order."""
    anchor = anchor_of("a", "b", "c")
    one, two, three = anchor.leaves
    for leaves in ((one, two), (two, one, three), (one, two, msgspec.structs.replace(three, version=7)), ()):
        with pytest.raises(InvalidValueError, match="leaves"):
            msgspec.structs.replace(anchor, leaves=leaves).check_leaves()


DAMAGES: dict[str, Callable[[str], str]] = {
    "empty": lambda _: "{}",
    "list": lambda _: "[1]",
    "text": lambda _: "no json",
    "format": lambda text: text.replace("chatledger-anchor/1", "chatledger-anchor/2"),
    "position": lambda text: text.replace('"position": 99', '"position": -1'),
    "root": lambda text: text.replace('"root": "', '"root": "00'),
    "signature": lambda text: text.replace('"signature": "', '"signature": "!'),
    "leaf": lambda text: text.replace('"leaves": [', '"leaves": [[1],'),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_no_anchor(damage: str) -> None:
    """A clear error, whatever the file holds."""
    with pytest.raises(InvalidValueError, match="anchor"):
        Anchor.from_json(DAMAGES[damage](anchor_of("a").to_json()))


ENDS: dict[str, tuple[str, Any]] = {
    "a count below 0": ("count", -1),
    "a count of more bits": ("count", 2**63),
    "a count that is none": ("count", 1.0),
    "a position that is none": ("position", True),
    "a time that is none": ("created_at", "soon"),
    "a short root": ("root", "00" * 31),
    "a long root": ("root", "00" * 33),
    "a short key": ("public_key", "AAAA"),
    "a short signature": ("signature", "AAAA"),
    "a key that is none": ("public_key", "!" + b64encode(b"k" * 32).decode()),
    "a signature that is none": ("signature", "!" + b64encode(b"s" * 64).decode()),
    "leaves that are none": ("leaves", 5),
    "a leaf with a hash that is none": ("leaves", [["00" * 32, 1, 1, "00" * 32, "00" * 31]]),
    "a leaf with a version that is none": ("leaves", [["00" * 32, -1, 1, "00" * 32, "00" * 32]]),
    "a leaf with a position that is none": ("leaves", [["00" * 32, 1, 2**63, "00" * 32, "00" * 32]]),
    "another key id": ("key_id", "00" * 16),
}


@pytest.mark.parametrize("end", ENDS)
def test_values_that_no_anchor_has(end: str) -> None:
    """The error says that it is about an anchor, and of a key id which."""
    name, value = ENDS[end]
    found = msgspec.json.decode(anchor_of("a").to_json())
    with pytest.raises(InvalidValueError, match="position 99" if name == "key_id" else "no anchor of chatledger"):
        Anchor.from_json(msgspec.json.encode({**found, name: value}))


def test_values_that_an_anchor_may_have() -> None:
    """From 0 to the last number of 63 bits."""
    found = msgspec.json.decode(anchor_of("a").to_json())
    for value in (0, 2**63 - 1):
        anchor = Anchor.from_json(msgspec.json.encode({**found, "position": value, "count": value}))
        assert (value, value) == (anchor.position, anchor.count)


def test_the_file_of_an_anchor() -> None:
    """Its form never changes, for it is kept for years: worked out by hand, one leaf a line."""
    anchor = anchor_of("a", "b")

    def head(count: int, root: bytes) -> str:
        return (
            '{\n  "format": "chatledger-anchor/1",\n  "position": 99,\n  "created_at": 1700000000000,\n'
            f'  "count": {count},\n  "root": "{root.hex()}",\n  "key_id": "{sha256(b"k" * 32).hexdigest()[:32]}",\n'
            f'  "public_key": "{b64encode(b"k" * 32).decode()}",\n  "signature": "{b64encode(b"s" * 64).decode()}",\n'
            '  "leaves": ['
        )

    rows = [
        f'["{one.digest.hex()}",{one.version},{one.position},"{one.hash.hex()}","{one.trail.hex()}"]'
        for one in anchor.leaves
    ]

    assert head(2, anchor.root) + f"\n    {rows[0]},\n    {rows[1]}\n  ]\n}}\n" == anchor.to_json()
    assert head(0, EMPTY) + "]\n}\n" == anchor_of().to_json()
    assert anchor_of() == Anchor.from_json(anchor_of().to_json())


def test_leaves_are_told_apart() -> None:
    """None twice, and a chat that is not there has none; the short form has the same root."""
    anchor = anchor_of("a", "b")
    assert [leaf_of("a", 1), leaf_of("b", 2), None] == [anchor.leaf(chat_id) for chat_id in ("a", "b", "c")]
    twice = (anchor.leaves[0], anchor.leaves[0])
    with pytest.raises(InvalidValueError, match="2 leaves of the anchor of position 99"):
        msgspec.structs.replace(anchor, leaves=twice, root=root_of(twice)).check_leaves()
    with pytest.raises(InvalidValueError, match="leaves"):
        msgspec.structs.replace(anchor, count=3).check_leaves()
    assert msgspec.structs.replace(anchor, leaves=()) == anchor.without_leaves()
