"""
Anchors: a signed statement of where every stream of a log ended at one position.

A stream is a chat, or what else the log keeps under an id of its own. The statement is the root of a radix tree over one leaf for each
stream; a third party checks it later with the anchor, the public key and the log, or with the path of one stream.
"""

import base64
from collections.abc import Sequence
from hashlib import sha256
from itertools import pairwise
from struct import Struct
from typing import Any, Final, Self, cast

import msgspec

from ..errors import InvalidValueError
from ..log.merkle import radix_path, radix_root, root_from_radix_path, shows_absence
from ..wire import Value

FORMAT: Final = "chatledger-anchor/2"
_LEAF: Final = Struct(">c32sQQ32sQ32s")
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
    The end of a stream: its last event by version, position and hash, and all since its last tombstone by the root of their tree.

    `digest` is SHA-256 over the stream's id. `size` counts the events since the last tombstone, with it; `root` is that of the
    Merkle tree over their positions and hashes. A deleted chat ends with its tombstone.
    """

    digest: bytes
    version: int
    position: int
    hash: bytes
    size: int
    root: bytes

    @property
    def leaf_hash(self) -> bytes:
        """Its hash in the tree: over 00, digest, version and position (8 bytes each, big-endian), hash, size and root."""
        return sha256(_LEAF.pack(b"\0", *msgspec.structs.astuple(self))).digest()

    def to_row(self) -> list[Any]:
        """Return it as it stands in files: hashes in hexadecimal digits."""
        return [self.digest.hex(), self.version, self.position, self.hash.hex(), self.size, self.root.hex()]

    @classmethod
    def from_row(cls, values: Any) -> Self:
        """
        Return the leaf of a file.

        Raises:
            ValueError, TypeError: It is none.
        """
        digest, version, position, event_hash, size, root = values
        return cls(_hash(digest), _count(version), _count(position), _hash(event_hash), _count(size), _hash(root))


class InclusionProof(Value, frozen=True):
    """
    The proof that a stream is in an anchor: its leaf, and its path in the radix tree.

    The path has for each node above the leaf, from below on, the bit in which the digests below it differ, and the hash of its
    other side. One that ends at the leaf of another stream shows that a stream is not in the anchor.
    """

    leaf: AnchorLeaf
    path: tuple[tuple[int, bytes], ...]


class Anchor(Value, frozen=True):
    """
    A signed statement about the content of a log at one position.

    Args:
        position: The last position that it covers.
        created_at: When it was signed, in ms, as the signer's clock said.
        count: How many streams there were.
        root: The root of the radix tree over the leaves.
        public_key: The 32 bytes of the Ed25519 key that goes with the signature. Compare it with one that you trust.
        signature: Over `signed_bytes`.
        leaves: One for each stream; or none, in the short form that goes with inclusion proofs.
        timestamp: What a time stamp authority (RFC 3161) answered of the signature; empty where none was asked.
    """

    position: int
    created_at: int
    count: int
    root: bytes
    public_key: bytes
    signature: bytes
    leaves: tuple[AnchorLeaf, ...] = ()
    timestamp: bytes = b""

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
        proof = self._search(chat_id)
        if proof is None or proof.leaf.digest != stream_digest(chat_id):
            msg = (
                f"the anchor of position {self.position} does not have chat {chat_id!r}: it was created later, or never"
            )
            raise InvalidValueError(msg)
        return proof

    def proof_of_absence(self, chat_id: str) -> InclusionProof:
        """
        The proof that a chat is not in this anchor: the leaf where the search for it ends.

        Raises:
            InvalidValueError: The anchor has that chat, or no leaves.
        """
        proof = self._search(chat_id)
        if proof is None or proof.leaf.digest == stream_digest(chat_id):
            why = "has no leaves" if proof is None else f"has chat {chat_id!r}"
            msg = f"the anchor of position {self.position} {why}"
            raise InvalidValueError(msg)
        return proof

    def _search(self, chat_id: str) -> InclusionProof | None:
        if not self.leaves:
            return None
        digests, hashes = [leaf.digest for leaf in self.leaves], [leaf.leaf_hash for leaf in self.leaves]
        index, path = radix_path(digests, hashes, stream_digest(chat_id))
        return InclusionProof(self.leaves[index], path)

    def check_proof(self, chat_id: str, proof: InclusionProof) -> bool:
        """Whether a proof shows that the chat ended, at this anchor, where the proof's leaf says. Needs no leaves."""
        return proof.leaf.digest == stream_digest(chat_id) and self._leads_to_root(proof)

    def check_absence(self, chat_id: str, proof: InclusionProof) -> bool:
        """Whether a proof shows that this anchor does not have a chat. Needs no leaves."""
        return shows_absence(stream_digest(chat_id), proof.leaf.digest, proof.path) and self._leads_to_root(proof)

    def _leads_to_root(self, proof: InclusionProof) -> bool:
        return root_from_radix_path(proof.leaf.digest, proof.leaf.leaf_hash, proof.path) == self.root

    def without_leaves(self) -> "Anchor":
        """The short form, whose size does not depend on the log's."""
        return msgspec.structs.replace(self, leaves=())

    def check_leaves(self) -> None:
        """Raise `InvalidValueError` unless the leaves are those that the root stands for."""
        digests = [leaf.digest for leaf in self.leaves]
        is_sorted = all(digest < following for digest, following in pairwise(digests))
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
        if self.timestamp:
            head["timestamp"] = base64.b64encode(self.timestamp).decode()
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
            values: Any = msgspec.json.decode(text)
            _check_format(values)
            anchor = Anchor(
                position=_count(values["position"]),
                created_at=int(values["created_at"]),
                count=_count(values["count"]),
                root=_hash(values["root"]),
                public_key=_sized(base64.b64decode(values["public_key"], validate=True), _KEY_BYTES),
                signature=_sized(base64.b64decode(values["signature"], validate=True), _SIGNATURE_BYTES),
                leaves=tuple(map(AnchorLeaf.from_row, values["leaves"])),
                timestamp=base64.b64decode(values.get("timestamp", ""), validate=True),
            )
            _check_key_id(anchor, values["key_id"])
        except InvalidValueError:
            raise
        except (msgspec.MsgspecError, ValueError, TypeError, KeyError, RecursionError) as error:
            msg = f"this is no anchor of chatledger, or it is damaged ({error}); take the file that 'chatledger anchor' wrote"
            raise InvalidValueError(msg) from error
        return anchor


def root_of(leaves: Sequence[AnchorLeaf]) -> bytes:
    """The root of the radix tree over leaves, which are in the order of their digests."""
    return radix_root([leaf.digest for leaf in leaves], [leaf.leaf_hash for leaf in leaves])


def path_to_rows(path: Sequence[tuple[int, bytes]]) -> list[list[Any]]:
    """Return a path in a radix tree as it stands in files."""
    return [[bit, hash_.hex()] for bit, hash_ in path]


def path_from_rows(rows: Any) -> tuple[tuple[int, bytes], ...]:
    """
    Return the path of a file.

    Raises:
        ValueError, TypeError: It is none.
    """
    return tuple((_count(bit), _hash(hash_)) for bit, hash_ in rows)


def _check_format(values: Any) -> None:
    format_ = cast("dict[str, Any]", values).get("format") if isinstance(values, dict) else None
    if format_ != FORMAT:
        msg = f"the file has the format {format_!r}, this version reads {FORMAT!r}; it is no anchor, or of a newer chatledger"
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
