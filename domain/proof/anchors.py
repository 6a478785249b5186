"""
Anchors: a signed statement of where every stream of a log ended at one position.

A stream is a chat, or what else the log keeps under an id of its own. The statement is a Merkle root over one leaf for each
stream; a third party checks it later with the anchor, the public key and the log.
"""

import base64
from collections.abc import Sequence
from hashlib import sha256
from itertools import pairwise
from struct import Struct
from typing import Any, Final, Self, cast

import msgspec

from ..errors import InvalidValueError
from ..wire import Value

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


FORMAT: Final = "chatledger-anchor/1"
_NUMBERS: Final = Struct(">QQ")
_HASH_BYTES: Final = 32
_KEY_BYTES: Final = 32
_SIGNATURE_BYTES: Final = 64


def stream_digest(chat_id: str) -> bytes:
    """Return the name of a stream in an anchor: SHA-256 over its id in UTF-8."""
    return sha256(chat_id.encode()).digest()


def key_id_of(public_key: bytes) -> str:
    """A short name of an Ed25519 public key: the first 16 bytes of SHA-256 over its 32 bytes, in hexadecimal digits."""
    return sha256(public_key).hexdigest()[:32]


class AnchorLeaf(Value, frozen=True, array_like=True, order=True):
    """
    The end of a stream: its last event by version, position and hash, and the positions of those before it.

    `digest` is SHA-256 over the stream's id. `trail` is a hash over the position and hash of each event since the last
    tombstone. A deleted chat ends with its tombstone.
    """

    digest: bytes
    version: int
    position: int
    hash: bytes
    trail: bytes

    def encoded(self) -> bytes:
        """The value in the Merkle tree: digest, version and position (8 bytes each, big-endian), hash, trail."""
        return self.digest + _NUMBERS.pack(self.version, self.position) + self.hash + self.trail

    def to_row(self) -> list[Any]:
        """Return it as it stands in files: hashes in hexadecimal digits."""
        return [self.digest.hex(), self.version, self.position, self.hash.hex(), self.trail.hex()]

    @classmethod
    def from_row(cls, values: Any) -> Self:
        """
        Return the leaf of a file.

        Raises:
            ValueError, TypeError: It is none.
        """
        digest, version, position, event_hash, trail = values
        return cls(_hash(digest), _count(version), _count(position), _hash(event_hash), _hash(trail))


class InclusionProof(Value, frozen=True):
    """The proof that a stream is in an anchor: its leaf, its number, and the hashes from there to the root."""

    leaf: AnchorLeaf
    index: int
    path: tuple[bytes, ...]


class Anchor(Value, frozen=True):
    """
    A signed statement about the content of a log at one position.

    Args:
        position: The last position that it covers.
        created_at: When it was signed, in ms, as the signer's clock said.
        count: How many streams there were.
        root: The Merkle root over the leaves in the order of their digests.
        public_key: The 32 bytes of the Ed25519 key that goes with the signature. Compare it with one that you trust.
        signature: Over `signed_bytes`.
        leaves: One for each stream; or none, in the short form that goes with inclusion proofs.
    """

    position: int
    created_at: int
    count: int
    root: bytes
    public_key: bytes
    signature: bytes
    leaves: tuple[AnchorLeaf, ...] = ()

    @property
    def key_id(self) -> str:
        """A short name of the public key."""
        return key_id_of(self.public_key)

    def signed_bytes(self) -> bytes:
        """The bytes that are signed: format, position, time, count, root and key, one a line, each ended by a line feed."""
        lines = (
            FORMAT,
            f"position {self.position}",
            f"created_at {self.created_at}",
            f"count {self.count}",
            f"root {self.root.hex()}",
            f"key {self.public_key.hex()}",
        )
        return "".join(f"{line}\n" for line in lines).encode()

    def leaf(self, chat_id: str) -> AnchorLeaf | None:
        """Return the leaf of a chat; None when it is not in the anchor."""
        digest = stream_digest(chat_id)
        return next((leaf for leaf in self.leaves if leaf.digest == digest), None)

    def proof(self, chat_id: str) -> InclusionProof:
        """
        The proof that a chat is in this anchor, for somebody who has the anchor without its leaves.

        Raises:
            InvalidValueError: The anchor does not have that chat.
        """
        leaf = self.leaf(chat_id)
        if leaf is None:
            msg = (
                f"the anchor of position {self.position} does not have chat {chat_id!r}: it was created later, or never"
            )
            raise InvalidValueError(msg)
        index = self.leaves.index(leaf)
        return InclusionProof(leaf, index, inclusion_path([one.encoded() for one in self.leaves], index))

    def check_proof(self, chat_id: str, proof: InclusionProof) -> bool:
        """Whether a proof shows that the chat ended, at this anchor, where the proof's leaf says. Needs no leaves."""
        if proof.leaf.digest != stream_digest(chat_id):
            return False
        found = root_from_path(proof.leaf.encoded(), index=proof.index, size=self.count, path=proof.path)
        return found == self.root

    def without_leaves(self) -> "Anchor":
        """The short form, whose size does not depend on the log's."""
        return msgspec.structs.replace(self, leaves=())

    def check_leaves(self) -> None:
        """Raise `InvalidValueError` unless the leaves are those that the root stands for."""
        digests = [leaf.digest for leaf in self.leaves]
        is_sorted = all(one < other for one, other in pairwise(digests))
        if len(self.leaves) != self.count or not is_sorted or root_of(self.leaves) != self.root:
            msg = (
                f"the {len(self.leaves):,} leaves of the anchor of position {self.position} are not those of its root: the file "
                "was changed or is incomplete; take another copy of it"
            )
            raise InvalidValueError(msg)

    def to_json(self) -> str:
        """The anchor file: JSON with one leaf a line, hashes in hexadecimal digits, key and signature in base64."""
        head = {
            "format": FORMAT,
            "position": self.position,
            "created_at": self.created_at,
            "count": self.count,
            "root": self.root.hex(),
            "key_id": self.key_id,
            "public_key": base64.b64encode(self.public_key).decode(),
            "signature": base64.b64encode(self.signature).decode(),
        }
        lines = [msgspec.json.encode(leaf.to_row()).decode() for leaf in self.leaves]
        start = msgspec.json.format(msgspec.json.encode(head)).decode().removesuffix("\n}")
        listed = ",\n    ".join(lines)
        return f'{start},\n  "leaves": [\n    {listed}\n  ]\n}}\n' if lines else f'{start},\n  "leaves": []\n}}\n'

    @staticmethod
    def from_json(text: str | bytes) -> "Anchor":
        """
        The anchor of a file. Neither signature nor leaves are checked yet.

        Raises:
            InvalidValueError: It is no anchor, or one of a newer format, or its key id is not that of its key.
        """
        try:
            found: Any = msgspec.json.decode(text)
            _check_format(found)
            anchor = Anchor(
                position=_count(found["position"]),
                created_at=int(found["created_at"]),
                count=_count(found["count"]),
                root=_hash(found["root"]),
                public_key=_sized(base64.b64decode(found["public_key"], validate=True), _KEY_BYTES),
                signature=_sized(base64.b64decode(found["signature"], validate=True), _SIGNATURE_BYTES),
                leaves=tuple(map(AnchorLeaf.from_row, found["leaves"])),
            )
            _check_key_id(anchor, found["key_id"])
        except InvalidValueError:
            raise
        except (msgspec.MsgspecError, ValueError, TypeError, KeyError, RecursionError) as error:
            msg = f"this is no anchor of chatledger, or it is damaged ({error}); take the file that 'chatledger anchor' wrote"
            raise InvalidValueError(msg) from error
        return anchor


def root_of(leaves: Sequence[AnchorLeaf]) -> bytes:
    """The Merkle root over leaves, which are in the order of their digests."""
    return merkle_root([leaf.encoded() for leaf in leaves])


def _check_format(found: Any) -> None:
    known = cast("dict[str, Any]", found).get("format") if isinstance(found, dict) else None
    if known != FORMAT:
        msg = f"the file has the format {known!r}, this version reads {FORMAT!r}; it is no anchor, or of a newer chatledger"
        raise InvalidValueError(msg)


def _check_key_id(anchor: Anchor, key_id: object) -> None:
    if key_id != anchor.key_id:
        msg = (
            f"the key id of the anchor of position {anchor.position} is not that of its public key, {anchor.key_id}: the file was "
            "changed after it was signed; take another copy of it"
        )
        raise InvalidValueError(msg)


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        msg = f"{value!r} is no count"
        raise ValueError(msg)
    return value


def _hash(text: str) -> bytes:
    return _sized(bytes.fromhex(text), _HASH_BYTES)


def _sized(raw: bytes, size: int) -> bytes:
    if len(raw) != size:
        msg = f"{len(raw)} bytes instead of {size}"
        raise ValueError(msg)
    return raw
