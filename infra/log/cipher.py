"""
Encryption of records: AES-256-GCM, bound to the place that a record has on the log.

    0xC1 'E'   one byte: the length of the key's id   the id   12 bytes: nonce   the ciphertext, 16 bytes of it the tag

No event in clear begins with 0xC1, which msgpack never uses. All that stands before the nonce is authenticated too.
"""

import os
from typing import Final

from eventsourcing.persistence import Cipher
from eventsourcing.utils import Environment

from chatledger.domain.errors import ConfigurationError

from .keys import Keyring, read_keys

MARK: Final = b"\xc1E"
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
_KEY_ENV: Final = "CIPHER_KEY"


class UnreadableRecordError(Exception):
    """Why a record can not be read; its message names no content and no key."""


class UnknownKeyError(UnreadableRecordError):
    """It names a key that was not given."""


def is_encrypted(record: bytes) -> bool:
    """Whether a record says that it is encrypted."""
    return record.startswith(MARK)


def place_of(chat_id: str, version: int, topic: str) -> bytes:
    """What a record is bound to: no two places have the same text."""
    chat, kind = chat_id.encode(), topic.encode()
    return b"%d:%s%d:%s%d" % (len(chat), chat, len(kind), kind, version)


class RecordCipher(Cipher):
    """
    Encrypts with the current key under a fresh random nonce, and decrypts with the key that a record names.

    The eventsourcing library makes one by `CIPHER_TOPIC=chatledger.infra.log.cipher:RecordCipher`, with `CIPHER_KEY` as
    `id:base64`, several separated by commas.

    Raises:
        ConfigurationError: The keys can not be used, or the package `cryptography` is missing.
    """

    def __init__(self, keys: Keyring | Environment) -> None:
        try:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError as error:
            msg = "encryption needs the package cryptography: pip install 'chatledger[crypto]'"
            raise ConfigurationError(msg) from error
        self.keys = keys if isinstance(keys, Keyring) else read_keys(keys.get(_KEY_ENV) or "")
        self._invalid: type[Exception] = InvalidTag
        self._ciphers = {key.id: AESGCM(key.secret) for key in self.keys}
        self._header = _header(self.keys.current.id)
        self._current = self._ciphers[self.keys.current.id]

    def encrypt(self, plaintext: bytes) -> bytes:
        """As `seal`, bound to no place."""
        return self.seal(plaintext, b"")

    def decrypt(self, ciphertext: bytes) -> bytes:
        """As `unseal`, bound to no place."""
        return self.unseal(ciphertext, b"")

    def seal(self, plaintext: bytes, place: bytes) -> bytes:
        """The record of a text at a place, which only `unseal` at that place gives back."""
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


def _header(key_id: str) -> bytes:
    name = key_id.encode("ascii")
    return MARK + bytes([len(name)]) + name
