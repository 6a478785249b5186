"""Records: any event comes back as it was, any altered byte is found, nothing is taken in a foreign place."""

import base64
import builtins
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from eventsourcing.persistence import JSONTranscoder, MapperDeserialisationError, Notification, StoredEvent
from eventsourcing.utils import Environment
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.salts import salts

from chatledger import ConfigurationError, CorruptStateError, Encryption, Message
from chatledger.domain.chat.events import Event, MessagesAppended
from chatledger.domain.log.codec import EncodedEvent, encode_event
from chatledger.domain.log.parts import event_hash
from chatledger.infra.log.cipher import RecordCipher, UnreadableRecordError, is_encrypted, place_of, read_keys
from chatledger.infra.log.mapper import StructMapper, ZstdCompressor

KEY = Encryption.new_key("k1")
CIPHER = RecordCipher(read_keys(KEY))
MAPPERS = {
    "plain": StructMapper(JSONTranscoder()),
    "compressed": StructMapper(JSONTranscoder(), compressor=ZstdCompressor()),
    "encrypted": StructMapper(JSONTranscoder(), cipher=CIPHER),
    "both": StructMapper(JSONTranscoder(), compressor=ZstdCompressor(), cipher=CIPHER),
}
PROTECTED = [MAPPERS["encrypted"], MAPPERS["both"]]

ids = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20)
places = st.tuples(ids, st.integers(1, 2**40), ids)


@st.composite
def events(draw: st.DrawFn) -> Event[MessagesAppended]:
    chat_id = draw(ids)
    text = draw(st.text(st.characters(exclude_categories=["Cs"]), max_size=30)) * draw(st.integers(0, 60))
    message = Message(id=draw(ids), parent_id=None, name="user", type="message", data=text, created_at=1)
    return Event(
        originator_id=chat_id,
        originator_version=draw(st.integers(1, 2**40)),
        event_id="e",
        occurred_at=1,
        previous_hash=draw(st.binary(max_size=32)),
        body=MessagesAppended(messages=(message,)),
        rest=0,
    )


def noted(stored: StoredEvent) -> Notification:
    return Notification(stored.originator_id, stored.originator_version, stored.topic, stored.state, 1)


def empty_event(version: int) -> Event[MessagesAppended]:
    return Event(
        originator_id="c",
        originator_version=version,
        event_id="e",
        occurred_at=1,
        previous_hash=b"",
        body=MessagesAppended(messages=()),
        rest=0,
    )


@pytest.mark.parametrize("mapper", MAPPERS.values(), ids=list(MAPPERS))
@given(event=events())
def test_any_event_comes_back(mapper: StructMapper, event: Event[MessagesAppended]) -> None:
    """Its hash is that of the plain event, so the chain does not depend on how records are stored."""
    state = encode_event(event, salts()).state
    encoded = EncodedEvent(event, event.body.TOPIC, state, b"")
    recorded = mapper.recorded(noted(mapper.store_encoded(encoded)))

    assert recorded.event == event == mapper.recorded(noted(mapper.to_stored_event(event))).event
    assert recorded.hash == event_hash(state)


@pytest.mark.parametrize("mapper", PROTECTED, ids=["encrypted", "both"])
@given(event=events(), data=st.data())
def test_any_altered_byte_is_found(mapper: StructMapper, event: Event[MessagesAppended], data: st.DataObject) -> None:
    """GS-26: whichever byte of a record is another one, or missing, or too much, it is not read."""
    stored = mapper.to_stored_event(event)
    place = data.draw(st.integers(0, len(stored.state) - 1))
    other = data.draw(st.integers(1, 255))
    state = bytearray(stored.state)
    state[place] ^= other
    for altered in (bytes(state), stored.state[:place], stored.state + bytes([other])):
        with pytest.raises(CorruptStateError):
            mapper.recorded(noted(replace(stored, state=altered)))


@given(here=places, there=places)
@example(here=("a", 1, "bc"), there=("ab", 1, "c"))
@example(here=("1:a", 1, "b"), there=("a", 1, "b"))
@example(here=("a", 11, "b"), there=("a", 1, "1b"))
def test_places_do_not_collide(here: tuple[str, int, str], there: tuple[str, int, str]) -> None:
    """GS-24: what is bound to one place opens there and nowhere else."""
    record = CIPHER.seal(b"text", place_of(*here))

    assert CIPHER.unseal(record, place_of(*here)) == b"text"
    if here != there:
        with pytest.raises(UnreadableRecordError):
            CIPHER.unseal(record, place_of(*there))


@pytest.mark.parametrize("mapper", PROTECTED, ids=["encrypted", "both"])
@pytest.mark.parametrize(
    "change",
    [{"originator_id": "other"}, {"originator_version": 4}, {"topic": "chatledger.chat_created/2"}],
    ids=["chat", "version", "topic"],
)
def test_a_record_is_bound_to_its_place(mapper: StructMapper, change: dict[str, object]) -> None:
    """Scenario 9, on the mapper alone: the cipher refuses it before anything is decoded."""
    moved = replace(mapper.to_stored_event(empty_event(3)), **change)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] - a table of changes
    with pytest.raises(CorruptStateError, match="belongs elsewhere"):
        mapper.recorded(noted(moved))
    with pytest.raises(MapperDeserialisationError, match="belongs elsewhere"):
        mapper.to_domain_event(moved)


def test_nonces_are_fresh() -> None:
    """GS-24: twelve random bytes for every record; equal texts give different records."""
    records = [CIPHER.seal(b"the same", b"place") for _ in range(1000)]
    nonces = {record[5:17] for record in records}

    assert len(nonces) == 1000
    assert len({record[17:] for record in records}) == 1000
    assert all(len({nonce[place] for nonce in nonces}) > 200 for place in range(12))


def test_it_is_plain_aes_gcm() -> None:
    """A record can be opened with any other implementation, from what the documentation says."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    record = CIPHER.seal(b"text", place_of("chat", 7, "topic/1"))
    header, nonce, ciphertext = record[:5], record[5:17], record[17:]
    secret = base64.b64decode(KEY.partition(":")[2])

    assert header == b"\xc1E\x02k1"
    assert AESGCM(secret).decrypt(nonce, ciphertext, header + b"4:chat7:topic/17") == b"text"


def test_the_seam_of_the_library() -> None:
    """An application of the eventsourcing library chooses it by its settings."""
    cipher = RecordCipher(Environment(env={"CIPHER_KEY": f"{KEY},{Encryption.new_key('k0')}"}))
    assert cipher.decrypt(cipher.encrypt(b"text")) == b"text"
    assert CIPHER.decrypt(cipher.encrypt(b"text")) == b"text"
    with pytest.raises(ConfigurationError, match="there is no key"):
        RecordCipher(Environment(env={}))
    assert KEY.partition(":")[2] not in repr(cipher)


def test_records_in_clear_are_told_apart() -> None:
    """No event in clear looks like an encrypted or a compressed one."""
    event = MAPPERS["plain"].to_stored_event(empty_event(1))
    assert event.state[0] >> 4 == 0b1001  # an array of msgpack
    assert not is_encrypted(event.state)


def test_many_threads() -> None:
    """One cipher and one compressor serve all threads."""
    compressor = MAPPERS["both"].compressor
    assert compressor is not None

    def work(number: int) -> None:
        text = f"thread {number} ".encode() * 200
        for version in range(1, 60):
            place = place_of(str(number), version, "t")
            record = CIPHER.seal(compressor.compress(text), place)
            assert compressor.decompress(CIPHER.unseal(record, place)) == text

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))


def test_a_library_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to install."""
    real = builtins.__import__

    def refuse(name: str, *args: object, **kwargs: object) -> object:
        if name.partition(".")[0] == "cryptography":
            raise ImportError(name)
        return real(name, *args, **kwargs)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] - passed on

    for module in [module for module in sys.modules if module.partition(".")[0] == "cryptography"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ConfigurationError, match=r"pip install 'chatledger\[crypto\]'"):
        RecordCipher(read_keys(KEY))
