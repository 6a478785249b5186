"""Valid bytes of every kind that is read, made by the code that writes them."""

import base64
import json
from functools import cache
from typing import Final, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from eventsourcing.persistence import JSONTranscoder, Notification
from tests.recorded.record import SAMPLES
from tests.recorded.record_states import SAMPLES as STATE_SAMPLES
from tests.recorded.record_threads import SAMPLES as THREAD_SAMPLES
from tests.support.salts import salts

import chatledger
from chatledger import Encryption
from chatledger.admin import Anchor, AnchorLeaf
from chatledger.domain.chat.events import Event, MessagesAppended
from chatledger.domain.log.codec import encode_event
from chatledger.domain.log.large_data import carrying
from chatledger.domain.values import Message
from chatledger.infra.log.bookmarks import Bookmark, encode_bookmark
from chatledger.infra.log.cipher import RecordCipher
from chatledger.infra.log.mapper import StructMapper, ZstdCompressor
from chatledger.infra.store.opening.encryption import keyring_of

KEY: Final = "k:q83vASNFZ4mrze8BI0VniavN7wEjRWeJEDJUdpi63P4="


class SampleEvent(NamedTuple):
    """An encoded event and where it stands."""

    topic: str
    chat_id: str
    version: int
    state: bytes

    def stored_as(self, state: bytes) -> Notification:
        """A record in its place that holds these bytes."""
        return Notification(self.chat_id, self.version, self.topic, state, 7)


@cache
def events() -> tuple[SampleEvent, ...]:
    """At least one event of each type."""
    found = (sample for file in (SAMPLES, THREAD_SAMPLES, STATE_SAMPLES) for sample in json.loads(file.read_text()))
    return tuple(
        SampleEvent(
            sample["topic"], sample["value"]["chat_id"], sample["value"]["version"], bytes.fromhex(sample["state"])
        )
        for sample in found
    )


@cache
def mappers() -> dict[str, StructMapper]:
    """Every way to store records, all of which are able to read each other's compressed ones."""
    cipher = RecordCipher(keyring_of(Encryption(KEY)))
    return {
        "plain": StructMapper(JSONTranscoder()),
        "compressed": StructMapper(JSONTranscoder(), compressor=ZstdCompressor()),
        "encrypted": StructMapper(JSONTranscoder(), compressor=ZstdCompressor(), cipher=cipher),
    }


def records(event: SampleEvent) -> list[bytes]:
    """An event as each mapper stores it."""
    place = (event.chat_id, event.version, event.topic)
    return [mapper.pack(event.state, place) for mapper in mappers().values()]


LARGE: Final = ({"a": ["x" * 300_000]}, ["y"] * 300_000)


@cache
def referring() -> tuple[bytes, ...]:
    """Encoded events with references to large data, alone and with these."""
    messages = tuple(Message(id=f"m{n}", name="user", data=data, created_at=1) for n, data in enumerate(LARGE))
    encoded = encode_event(Event("c", 1, "e", 1, b"", MessagesAppended(messages), 0), salts())
    return encoded.state, carrying(encoded.state, [part.data for part in encoded.large])


def anchors() -> list[bytes]:
    """An anchor with leaves, and one without."""
    leaf = AnchorLeaf(b"d" * 32, 3, 7, b"h" * 32, 2, b"t" * 32)
    anchor = Anchor(
        position=7,
        created_at=1,
        count=1,
        root=b"r" * 32,
        public_key=b"p" * 32,
        signature=b"s" * 64,
        leaves=(leaf,),
    )
    return [anchor.to_json().encode(), anchor.without_leaves().to_json().encode()]


def excerpts() -> list[bytes]:
    """An excerpt of two messages that came together, which rests on an anchor and is signed."""
    key = Ed25519PrivateKey.from_private_bytes(bytes(32))
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("c", "u")
        ledger.append("c", [chatledger.user("salt", id="m1"), chatledger.user("pepper", id="m2")])
        text = ledger.prove("m2", key=pem, anchor=ledger.anchor(pem), expires_at=None)
    return [base64.urlsafe_b64decode(text + "==")]


def bookmarks() -> list[bytes]:
    """The place of a reader of a feed."""
    mark = Bookmark(name="mail", index=1, count=4, position=9, holder="h", log_id="l", saved_at=1)
    return [encode_bookmark(mark)]
