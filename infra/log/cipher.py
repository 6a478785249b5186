"""
Encryption of records: AES-256-GCM, bound to the place that a record has on the log.

    0xC1 'E'   one byte: the length of the key's id   the id   12 bytes: nonce   the ciphertext, 16 bytes of it the tag

No event in clear begins with 0xC1, which msgpack never uses. All that stands before the nonce is authenticated too.
"""

import base64
import binascii
import hashlib
import hmac
import itertools
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from typing import Final

from eventsourcing.persistence import Cipher
from eventsourcing.utils import Environment

from chatledger.domain.errors import ConfigurationError
from chatledger.domain.extras import needing

KEY_BYTES: Final = 32
_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,32}")
_MIN_DISTINCT: Final = 16
"""Fewer different bytes in 32 do not happen by chance: 30 are usual, and 16 or less have a chance below 1 in 10**18."""
_PUBLISHED: Final = frozenset(
    {
        # The AES-256 key of NIST SP 800-38A, which many examples repeat; that of the GCM paper has two equal halves.
        bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4"),
    }
)
_ADVICE: Final = "make one with chatledger.Encryption.new_key()"


class EncryptionKey:
    """A key and its id. Only the id is ever shown, and keys are not pickled."""

    __slots__ = ("_secret", "id")

    def __init__(self, key_id: str, secret: bytes) -> None:
        self.id, self._secret = key_id, secret

    @property
    def secret(self) -> bytes:
        """The 32 bytes."""
        return self._secret

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, EncryptionKey)
            and self.id == other.id
            and hmac.compare_digest(self._secret, other._secret)
        )

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"Key({self.id!r})"

    def __reduce__(self) -> str | tuple[object, ...]:
        msg = "an encryption key is not pickled; give each process its keys by its configuration"
        raise TypeError(msg)


class Keyring:
    """Keys by id; the first one is for new records, the others are for reading old ones."""

    def __init__(self, keys: Sequence[EncryptionKey]) -> None:
        self._keys = {key.id: key for key in keys}
        self.current = keys[0]

    def get(self, key_id: str) -> EncryptionKey | None:
        return self._keys.get(key_id)

    def __iter__(self) -> Iterator[EncryptionKey]:
        return iter(self._keys.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Keyring) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment] # nobody collects keyrings

    def __repr__(self) -> str:
        return f"Keyring({', '.join(repr(key.id) for key in self)})"


def read_keys(text: str | Sequence[str]) -> Keyring:
    """
    The keys in a text such as `2026:<base64>,2025:<base64>`, or in several such texts.

    Without an id, a key gets one that is computed from it.

    Raises:
        ConfigurationError: There is none, one is malformed or weak, or two have the same id. Says which by its number.
    """
    texts = [text] if isinstance(text, str) else text
    if not isinstance(texts, Sequence) or not all(isinstance(part, str) for part in texts):
        msg = "encryption keys are text such as 'id:base64', or a list of such texts"
        raise ConfigurationError(msg)
    parts = [part.strip() for text in texts for part in text.split(",") if part.strip()]
    keys = [_key(part, number) for number, part in enumerate(parts, 1)]
    if not keys:
        msg = f"encryption is on, but there is no key; {_ADVICE}"
        raise ConfigurationError(msg)
    for number, key in enumerate(keys, 1):
        # Records name their key by its id: with two of one id, what the first one cannot open would seem damaged.
        if key.id in {other.id for other in keys[: number - 1]}:
            msg = f"encryption key number {number} has the id of an earlier one; every key needs an id of its own"
            raise ConfigurationError(msg)
    return Keyring(keys)


def new_key(key_id: str | None = None) -> str:
    """A new random key, as `id:base64`, or bare without an id."""
    if key_id is not None and not _ID.fullmatch(key_id):
        msg = "the id of a key has 1 to 32 letters, digits, dots, dashes or underscores"
        raise ConfigurationError(msg)
    while True:
        secret = secrets.token_bytes(KEY_BYTES)
        if not _is_weak(secret):
            return ("" if key_id is None else f"{key_id}:") + base64.b64encode(secret).decode()


def _key(text: str, number: int) -> EncryptionKey:
    # No part of the text is shown: what stands in the place of the id may be the key.
    key_id, has_id, encoded = text.rpartition(":")
    if has_id and not _ID.fullmatch(key_id):
        msg = (
            f"encryption key number {number} is malformed: before the colon stands an id of 1 to 32 letters, digits, dots, "
            f"dashes or underscores; {_ADVICE}"
        )
        raise ConfigurationError(msg)
    try:
        secret = base64.b64decode(encoded.translate({ord("-"): "+", ord("_"): "/"}), validate=True)
    except (binascii.Error, ValueError):
        secret = b""
    if len(secret) != KEY_BYTES:
        msg = f"encryption key number {number} is malformed: it must be the base64 of {KEY_BYTES} bytes; {_ADVICE}"
        raise ConfigurationError(msg)
    if _is_weak(secret):
        msg = f"encryption key number {number} is known or easily guessed, so it protects nothing; {_ADVICE}"
        raise ConfigurationError(msg)
    return EncryptionKey(key_id if has_id else hashlib.sha256(b"chatledger key id " + secret).hexdigest()[:8], secret)


def _is_weak(secret: bytes) -> bool:
    steps = {(after - before) % 256 for before, after in itertools.pairwise(secret)}
    half = len(secret) // 2
    return (
        len(steps) == 1  # all equal, or counting up or down
        or len(set(secret)) < _MIN_DISTINCT
        or secret[:half] == secret[half:]
        or all(0x20 <= byte < 0x7F for byte in secret)  # text, such as a password or hex digits
        or secret in _PUBLISHED
    )


MARK: Final = b"\xc1E"
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
_KEY_ENV: Final = "CIPHER_KEY"


class UnreadableRecordError(Exception):
    """Why a record cannot be read; its message names no content and no key."""


class UnknownKeyError(UnreadableRecordError):
    """The record names a key that was not given."""


def key_named(record: bytes) -> bytes | None:
    """The id of the key that a record names; None where it is not encrypted."""
    start = len(MARK) + 1
    return record[start : start + record[start - 1]] if record.startswith(MARK) and len(record) >= start else None


def is_encrypted(record: bytes) -> bool:
    return record.startswith(MARK)


def place_of(stream_id: str, version: int, topic: str) -> bytes:
    """Return the associated data of a record: no two places have the same bytes."""
    chat, kind = stream_id.encode(), topic.encode()
    return b"%d:%s%d:%s%d" % (len(chat), chat, len(kind), kind, version)


class RecordCipher(Cipher):
    """
    Encrypts with the current key under a fresh random nonce, and decrypts with the key that a record names.

    The eventsourcing library makes one by `CIPHER_TOPIC=chatledger.infra.log.cipher:RecordCipher`, with `CIPHER_KEY` as
    `id:base64`, several separated by commas.

    Raises:
        ConfigurationError: The keys cannot be used, or the package `cryptography` is missing.
    """

    def __init__(self, keys: Keyring | Environment) -> None:
        with needing("crypto", "encryption"):
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        self.keys = keys if isinstance(keys, Keyring) else read_keys(keys.get(_KEY_ENV) or "")
        self._invalid: type[Exception] = InvalidTag
        self._ciphers = {key.id: AESGCM(key.secret) for key in self.keys}
        key_id = self.keys.current.id.encode("ascii")
        self._header = MARK + bytes([len(key_id)]) + key_id
        self._current = self._ciphers[self.keys.current.id]

    def encrypt(self, plaintext: bytes) -> bytes:
        """Encrypt a text, bound to no place."""
        return self.seal(plaintext, b"")

    def decrypt(self, ciphertext: bytes) -> bytes:
        """Decrypt a record that is bound to no place."""
        return self.unseal(ciphertext, b"")

    def seal(self, plaintext: bytes, place: bytes) -> bytes:
        """Encrypt a text for a place; only `unseal` at the same place decrypts it."""
        nonce = os.urandom(_NONCE_BYTES)
        return self._header + nonce + self._current.encrypt(nonce, plaintext, self._header + place)

    def unseal(self, record: bytes, place: bytes) -> bytes:
        """
        The text of a record.

        Raises:
            UnreadableRecordError: It is in clear, damaged, of another place, or encrypted with a key that is not here.
        """
        if not record.startswith(MARK):
            msg = "it is not encrypted, and clear text is not accepted where encryption is on"
            raise UnreadableRecordError(msg)
        start = len(MARK) + 1 + (record[len(MARK)] if len(record) > len(MARK) else 0)
        header, nonce = record[:start], record[start : start + _NONCE_BYTES]
        if len(record) < start + _NONCE_BYTES + _TAG_BYTES:
            msg = "it is too short to be an encrypted record"
            raise UnreadableRecordError(msg)
        key_id = header[len(MARK) + 1 :].decode("ascii", "backslashreplace")
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            msg = f"it needs the key {key_id!r}, which was not given; those given are {', '.join(map(repr, self._ciphers))}"
            raise UnknownKeyError(msg)
        try:
            return cipher.decrypt(nonce, record[start + _NONCE_BYTES :], header + place)
        except self._invalid:
            msg = f"the key {key_id!r} does not open it: another key was used, it was altered, or it belongs elsewhere"
            raise UnreadableRecordError(msg) from None

    def __repr__(self) -> str:
        return f"RecordCipher({self.keys!r})"
