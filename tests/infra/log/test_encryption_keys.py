"""Encryption keys: what is refused, and that they are never shown."""

import base64
import contextlib
import pickle
import secrets

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatledger import ConfigurationError, Encryption
from chatledger.infra.log.cipher import EncryptionKey, Keyring, read_keys
from chatledger.infra.store.opening.encryption import keyring_of

KEYS = [Encryption.new_key(f"k{number}") for number in range(3)]


def b64(secret: bytes) -> str:
    return base64.b64encode(secret).decode()


WEAK = {
    "zeros": bytes(32),
    "equal bytes": b"\xa5" * 32,
    "counting up": bytes(range(32)),
    "counting down": bytes(range(32, 0, -1)),
    "counting by threes": bytes((7 + 3 * number) % 256 for number in range(32)),
    "a short pattern": bytes.fromhex("deadbeef") * 8,
    "two equal halves": bytes.fromhex("feffe9928665731c6d6a8f9467308308") * 2,
    "a password": b"correct horse battery staple 123",
    "hex digits": b"0f9c71d1a4b7e2680f9c71d1a4b7e268",
    "the example of NIST": bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4"),
}
MALFORMED = {
    "nothing": "",
    "blanks": " , ",
    "no base64": "k1:not base64!",
    "16 bytes": "k1:" + b64(secrets.token_bytes(16)),
    "33 bytes": "k1:" + b64(secrets.token_bytes(33)),
    "no key": "k1:",
    "no id": ":" + KEYS[0].partition(":")[2],
    "an id with a blank": "my key:" + KEYS[0].partition(":")[2],
    "an id that is too long": "k" * 33 + ":" + KEYS[0].partition(":")[2],
    "key and id swapped": KEYS[0].partition(":")[2] + ":k1",
    "the same id twice": f"{KEYS[0]},k0:{KEYS[1].partition(':')[2]}",
}


@pytest.mark.parametrize("secret", WEAK.values(), ids=list(WEAK))
def test_weak_keys_are_refused(secret: bytes) -> None:
    """GS-25: a key that is known or easily guessed is no key."""
    with pytest.raises(ConfigurationError, match="number 2 is known or easily guessed") as caught:
        read_keys([KEYS[0], f"weak:{b64(secret)}"])

    assert b64(secret) not in str(caught.value)


@pytest.mark.parametrize("text", MALFORMED.values(), ids=list(MALFORMED))
def test_malformed_keys_are_refused(text: str) -> None:
    """The error names the key by its number; no part of the text is repeated, as it may be the key."""
    with pytest.raises(ConfigurationError) as caught:
        Encryption(text)

    assert all(len(part) < 20 or part not in str(caught.value) for part in text.replace(":", ",").split(","))


@pytest.mark.parametrize("keys", [7, None, [b"bytes"], [None]], ids=repr)
def test_keys_are_text(keys: object) -> None:
    with pytest.raises(ConfigurationError, match="encryption keys are text"):
        Encryption(keys)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] - the point of the test


def test_every_way_to_give_keys() -> None:
    """One text, several, urlsafe base64, blanks between: the order stays, the first one is for new records."""
    text = f" {KEYS[0]}, {KEYS[1].replace('+', '-').replace('/', '_')} "

    assert read_keys(text) == read_keys(KEYS[:2]) == read_keys([KEYS[0], KEYS[1]])
    assert read_keys(text) != read_keys(KEYS[1::-1])
    assert read_keys(text).current.id == "k0"
    assert read_keys(text).get("k2") is None


def test_a_key_without_an_id_gets_one() -> None:
    """Always the same for the same key, and another one for another key."""
    bare = [Encryption.new_key() for _ in range(2)]
    first, again, second = (read_keys(text).current for text in (bare[0], bare[0], bare[1]))

    assert first == again
    assert first.id != second.id


def test_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read at every open, so that a rotation needs no new program; not set and empty are errors, never no encryption."""
    monkeypatch.delenv("CHATLEDGER_ENCRYPTION_KEY", raising=False)
    encryption = Encryption.from_environment()
    for text in (None, "", "  "):
        if text is not None:
            monkeypatch.setenv("CHATLEDGER_ENCRYPTION_KEY", text)
        with pytest.raises(ConfigurationError, match="CHATLEDGER_ENCRYPTION_KEY is not set"):
            keyring_of(encryption)
    monkeypatch.setenv("CHATLEDGER_ENCRYPTION_KEY", KEYS[0])
    assert keyring_of(encryption) == read_keys(KEYS[0])
    monkeypatch.setenv("CHATLEDGER_ENCRYPTION_KEY", ",".join(KEYS))
    assert keyring_of(encryption) == read_keys(KEYS)


def test_keys_are_never_shown() -> None:
    """Not by repr, str, format or pickle, of whatever holds them."""
    secret = KEYS[0].partition(":")[2]
    keyring = read_keys(KEYS)
    raw = base64.b64decode(secret)
    for shown in (keyring, keyring.current, Encryption(KEYS), Encryption(lambda: KEYS), Encryption.from_environment()):
        text = f"{shown!r} {shown!s} {[shown]}"
        assert secret not in text
        assert repr(raw) not in text
    for holder in (keyring, keyring.current, Encryption(KEYS)):
        with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
            pickle.dumps(holder)


@pytest.mark.parametrize("key_id", ["", "with blank", "a:b", "a,b", "k" * 33, "ключ"])
def test_new_keys_have_proper_ids(key_id: str) -> None:
    with pytest.raises(ConfigurationError, match="1 to 32 letters"):
        Encryption.new_key(key_id)


@given(st.binary(min_size=32, max_size=32))
def test_reading_keys_is_total(secret: bytes) -> None:
    """Any 32 bytes are a key or refused as a weak one; a key that is taken is these bytes."""
    with contextlib.suppress(ConfigurationError):
        assert read_keys(f"k:{b64(secret)}") == Keyring([EncryptionKey("k", secret)])


def test_where_the_index_may_lie_is_checked() -> None:
    with pytest.raises(ConfigurationError, match="index_at_rest must be"):
        Encryption(KEYS, index_at_rest="disk")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] - the point
