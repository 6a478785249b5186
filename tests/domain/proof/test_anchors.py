"""Anchors: what is signed, their files, and proofs that do not lie."""

from base64 import b64encode
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatledger.domain.errors import InvalidValueError
from chatledger.domain.log.merkle import EMPTY
from chatledger.domain.proof.anchors import (
    Anchor,
    AnchorLeaf,
    root_of,
    stream_digest,
)


def leaf_of(chat_id: str, number: int) -> AnchorLeaf:
    filled = bytes([number]) * 32
    return AnchorLeaf(stream_digest(chat_id), number, number * 10, filled, number + 5, filled)


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
        "chatledger-anchor/2\nposition 99\ncreated_at 1700000000000\ncount 2\n"
        f"root {anchor.root.hex()}\nkey {'6b' * 32}\n"
    )
    hashes = {
        digest: sha256(
            b"\0" + digest + number.to_bytes(8) + (10 * number).to_bytes(8) + filled + (number + 5).to_bytes(8) + filled
        ).digest()
        for digest, number, filled in (
            (sha256(b"a").digest(), 1, b"\1" * 32),
            (sha256(b"b").digest(), 2, b"\2" * 32),
        )
    }
    first, second = sorted(hashes)
    bit = 256 - (int.from_bytes(first) ^ int.from_bytes(second)).bit_length()
    assert anchor.root == sha256(b"\1" + bit.to_bytes(2) + hashes[first] + hashes[second]).digest()


def test_the_vector_of_the_format() -> None:
    """Two streams, worked out apart from this program; their digests part at bit 2."""
    stream = bytes.fromhex("4159f791a3339fe8eaf51ea36c04c2575e03f9befc210edb119b13589e15b706")
    hash_ = bytes.fromhex("380d3ef467e016d53f5cd1a608b0b1c6e32c9c755224743ffcec16061328affe")
    one = AnchorLeaf(stream_digest("c"), 3, 5, hash_, 2, stream)
    other = AnchorLeaf(stream_digest("d"), 1, 4, bytes(32), 1, bytes(32))
    assert one.leaf_hash.hex() == "5d831143520e6f9d26d677853ee52eb0704f3359e74fb61e17990d927de83904"
    assert other.leaf_hash.hex() == "64c02ddfff8289207eff2a254564fd2f9c01e1afc9c5fd268391df2f0b518153"
    assert root_of(sorted([one, other])).hex() == "2ef3de65fb48346f237616f2f0d67074118750e166a80770ac45ceef7b5afb9b"


def test_a_chat_that_is_not_there() -> None:
    """The short form of an anchor shows that too, and of no chat that is there."""
    anchor = anchor_of("a", "b", "c", "d", "e")
    short = anchor.without_leaves()
    for chat_id in ("other", "", "f"):
        proof = anchor.proof_of_absence(chat_id)
        assert short.check_absence(chat_id, proof)
        assert not short.check_proof(chat_id, proof)
        forged = msgspec.structs.replace(proof, leaf=msgspec.structs.replace(proof.leaf, version=77))
        assert not short.check_absence(chat_id, forged)
    for chat_id in "abcde":
        assert not short.check_absence(chat_id, anchor.proof(chat_id))
        with pytest.raises(InvalidValueError, match="has chat"):
            anchor.proof_of_absence(chat_id)
    with pytest.raises(InvalidValueError, match="no leaves"):
        short.proof_of_absence("other")


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
    "format": lambda text: text.replace("chatledger-anchor/2", "chatledger-anchor/1"),
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
    "a leaf with a hash that is none": ("leaves", [["00" * 32, 1, 1, "00" * 32, 1, "00" * 31]]),
    "a leaf with a version that is none": ("leaves", [["00" * 32, -1, 1, "00" * 32, 1, "00" * 32]]),
    "a leaf with a position that is none": ("leaves", [["00" * 32, 1, 2**63, "00" * 32, 1, "00" * 32]]),
    "a leaf with a size that is none": ("leaves", [["00" * 32, 1, 1, "00" * 32, -1, "00" * 32]]),
    "a leaf of the format before": ("leaves", [["00" * 32, 1, 1, "00" * 32, "00" * 32]]),
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
            '{\n  "format": "chatledger-anchor/2",\n  "position": 99,\n  "created_at": 1700000000000,\n'
            f'  "count": {count},\n  "root": "{root.hex()}",\n  "key_id": "{sha256(b"k" * 32).hexdigest()[:32]}",\n'
            f'  "public_key": "{b64encode(b"k" * 32).decode()}",\n  "signature": "{b64encode(b"s" * 64).decode()}",\n'
            '  "leaves": ['
        )

    rows = [
        f'["{one.digest.hex()}",{one.version},{one.position},"{one.hash.hex()}",{one.size},"{one.root.hex()}"]'
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
