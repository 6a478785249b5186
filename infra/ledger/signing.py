"""Ed25519 keys from PEM files, and signing anchors with them."""

import os
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

import msgspec

from chatledger.domain.errors import ConfigurationError, InvalidValueError
from chatledger.domain.proof.anchors import Anchor, AnchorLeaf, root_of
from chatledger.projections.lmdb.environment import absolute_path

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

PemSource = str | os.PathLike[str] | bytes
"""The path of a PEM file, or its content as bytes."""

_MAKE = "openssl genpkey -algorithm ed25519 -out anchor.key"
_EXPORT = "openssl pkey -in anchor.key -pubout -out anchor.pub"
_NO_SIGNATURE = bytes(64)


def load_private_key(source: PemSource) -> "Ed25519PrivateKey":
    """
    The key that signs.

    Raises:
        ConfigurationError: There is no such file, or it holds no Ed25519 private key that is readable without a password.
    """
    _require_library()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key = _load(source, lambda pem: load_pem_private_key(pem, password=None), "private", _MAKE)
    if not isinstance(key, Ed25519PrivateKey):
        raise _wrong(key, "private", _MAKE)
    return key


def read_signing_key(source: PemSource) -> bytes:
    """
    Return the PEM of a key that signs anchors, once it was tried: a server fails at its start, not at the first anchor.

    Raises:
        ConfigurationError: As `load_private_key`.
    """
    load_private_key(source)
    return source if isinstance(source, bytes) else absolute_path(source).read_bytes()


def load_public_key(source: PemSource) -> "Ed25519PublicKey":
    """
    The key that signatures are checked with.

    Raises:
        ConfigurationError: There is no such file, or it holds no Ed25519 public key.
    """
    _require_library()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    key = _load(source, load_pem_public_key, "public", _EXPORT)
    if not isinstance(key, Ed25519PublicKey):
        raise _wrong(key, "public", _EXPORT)
    return key


def _load(source: PemSource, load: Callable[[bytes], object], what: str, how: str) -> object:
    """The key in a file, of whatever kind; or why there is none."""
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        pem = source if isinstance(source, bytes) else absolute_path(source).read_bytes()
    except OSError as error:
        msg = f"the {what} key {source!s} cannot be read: {error.strerror or error}; '{how}' makes one"
        raise ConfigurationError(msg) from error
    try:
        return load(pem)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        return error


def _wrong(key: object, what: str, how: str) -> ConfigurationError:
    # The library raises `TypeError` for a key that is encrypted.
    hint = (
        "it needs a password; write it without one for this purpose"
        if isinstance(key, TypeError)
        else f"'{how}' makes one"
    )
    return ConfigurationError(f"this is no Ed25519 {what} key in PEM; {hint}")


def sign(leaves: Sequence[AnchorLeaf], *, position: int, created_at: int, key: "Ed25519PrivateKey") -> Anchor:
    """The anchor of a log whose streams end at these leaves, which are in the order of their digests."""
    draft = Anchor(
        position=position,
        created_at=created_at,
        count=len(leaves),
        root=root_of(leaves),
        public_key=key.public_key().public_bytes_raw(),
        signature=_NO_SIGNATURE,
        leaves=tuple(leaves),
    )
    return msgspec.structs.replace(draft, signature=key.sign(draft.signed_bytes()))


def check_signature(anchor: Anchor, public_key: "Ed25519PublicKey | None") -> None:
    """
    Check who signed an anchor: the holder of `public_key`, or, where None is given, of the key that is named in it.

    Raises:
        InvalidValueError: Somebody else, or the anchor was changed.
        ConfigurationError: The library is missing.
    """
    _require_library()
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if public_key is not None and public_key.public_bytes_raw() != anchor.public_key:
        msg = (
            f"the anchor of position {anchor.position} was signed with another key, {anchor.key_id}, than the one given; ask its "
            "signer which key is right"
        )
        raise InvalidValueError(msg)
    try:
        Ed25519PublicKey.from_public_bytes(anchor.public_key).verify(anchor.signature, anchor.signed_bytes())
    except (InvalidSignature, ValueError) as error:
        msg = (
            f"the signature of the anchor of position {anchor.position} is wrong: the file was changed after it was signed; take "
            "another copy of it"
        )
        raise InvalidValueError(msg) from error


def _require_library() -> None:
    if find_spec("cryptography") is None:
        msg = "signing and checking anchors needs cryptography: pip install 'chatledger[crypto]'"
        raise ConfigurationError(msg)
