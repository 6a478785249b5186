"""The mapper as the eventsourcing library uses it: with its own compressor and cipher."""

import os
import zlib
from dataclasses import replace

import pytest
from eventsourcing.cipher import AESCipher
from eventsourcing.persistence import Compressor, JSONTranscoder, MapperDeserialisationError, StoredEvent
from eventsourcing.utils import Environment

import chatledger
from chatledger.infra.log.mapper import StructMapper


class Zlib(Compressor):
    """The compressor that `COMPRESSOR_TOPIC=zlib` selects, as a class."""

    def compress(self, data: bytes) -> bytes:
        return zlib.compress(data)

    def decompress(self, data: bytes) -> bytes:
        return zlib.decompress(data)


def _mapper(*, sealed: bool) -> StructMapper:
    if not sealed:
        return StructMapper(JSONTranscoder())
    key = AESCipher.create_key(32)
    return StructMapper(JSONTranscoder(), compressor=Zlib(), cipher=AESCipher(Environment(env={"CIPHER_KEY": key})))


def _stored(mapper: StructMapper) -> list[StoredEvent]:
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("trip", "ada")
        ledger.append("trip", [chatledger.user("the password is swordfish" * 20)])
        return [mapper.to_stored_event(recorded.event) for recorded in ledger.history()]


@pytest.mark.parametrize("sealed", [False, True])
def test_events_come_back_as_they_were(sealed: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """What the mapper stores it gives back, and only what is not sealed can be read by others."""
    mapper = _mapper(sealed=sealed)
    created, appended = _stored(mapper)

    assert ("trip", 1, "chatledger.chat_created/2") == (
        created.originator_id,
        created.originator_version,
        created.topic,
    )
    assert sealed != (b"swordfish" in appended.state)
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("trip", "ada")
        (event,) = (recorded.event for recorded in ledger.history())
    stored = mapper.to_stored_event(event)
    assert event == mapper.to_domain_event(stored)
    assert stored.state != mapper.to_stored_event(event).state  # other salts
    first, second = mapper.to_domain_event(created), mapper.to_domain_event(appended)
    assert (1, 2) == (first.originator_version, second.originator_version)


@pytest.mark.parametrize("sealed", [False, True])
def test_an_event_in_a_foreign_place_is_refused(sealed: bool) -> None:  # noqa: FBT001 - as above
    """A stored event that was moved to another chat or version, or whose bytes changed, is no event."""
    mapper = _mapper(sealed=sealed)
    stored = _stored(mapper)[1]
    for damaged in (
        replace(stored, originator_id="other"),
        replace(stored, originator_version=7),
        replace(stored, state=os.urandom(len(stored.state))),
    ):
        with pytest.raises(MapperDeserialisationError):
            mapper.to_domain_event(damaged)
