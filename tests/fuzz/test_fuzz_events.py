"""Damaged events: whatever stands in a record, reading it gives an event or an error of ours."""

import zlib
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fuzz.fuzz_inputs import DEEP, WILD, nearly, odd_msgpack, only_ours
from tests.fuzz.fuzz_samples import SampleEvent, events, mappers, records, referring

from chatledger import CorruptStateError, Recorded
from chatledger.domain.codec import decode_event
from chatledger.domain.events import Event
from chatledger.domain.large_data import LargeData, put_together, references_in
from chatledger.infra.log.compression import MARK, MAX_BYTES, ZstdCompressor

FEW = settings(max_examples=80, deadline=None)
any_event = st.sampled_from(events())


@given(event=any_event, data=st.data())
@FEW
def test_an_encoded_event(event: SampleEvent, data: st.DataObject) -> None:
    state = data.draw(nearly([event.state]) | odd_msgpack([event.state]) | st.sampled_from(WILD))
    found = only_ours(lambda: decode_event(event.topic, state))
    assert found is None or isinstance(found, Event)


@given(event=any_event, mapper=st.sampled_from(sorted(mappers())), data=st.data())
@FEW
def test_a_record(event: SampleEvent, mapper: str, data: st.DataObject) -> None:
    """Compressed, encrypted, both or neither, and read with any of these settings."""
    state = data.draw(nearly(records(event)) | st.sampled_from(WILD))
    found = only_ours(lambda: mappers()[mapper].recorded(event.stored_as(state)))
    assert found is None or isinstance(found, Recorded)


@given(event=any_event, mapper=st.sampled_from(["plain", "compressed"]), data=st.data())
@FEW
def test_a_compressed_frame_with_a_right_checksum(event: SampleEvent, mapper: str, data: st.DataObject) -> None:
    """The checksum keeps chance out, not malice."""
    import zstandard

    frame = data.draw(nearly([zstandard.compress(event.state)[4:]]))
    record = MARK + zlib.crc32(frame).to_bytes(4, "little") + frame
    only_ours(lambda: mappers()[mapper].recorded(event.stored_as(record)))


@given(event=any_event, data=st.data())
@FEW
def test_damaged_text_in_a_sealed_record(event: SampleEvent, data: st.DataObject) -> None:
    """Who has the key may write anything."""
    cipher = mappers()["encrypted"].cipher
    assert cipher is not None
    place = (event.chat_id, event.version, event.topic)
    plain = data.draw(nearly([event.state, *referring()]) | odd_msgpack([event.state]))
    record = mappers()["encrypted"].pack(plain, place)
    only_ours(lambda: mappers()["encrypted"].recorded(event.stored_as(record)))


@given(stored=nearly(referring()))
@FEW
def test_references_to_large_data(stored: bytes) -> None:
    """Nothing is fetched, and no memory taken, for a list of references that is damaged."""
    fetched: list[LargeData] = []

    def fetch(part: LargeData) -> bytes:
        fetched.append(part)
        return b""

    only_ours(lambda: references_in(stored))
    only_ours(lambda: put_together(stored, fetch))
    assert len(fetched) <= len(stored)


def _claiming(size: int) -> bytes:
    """A frame of some bytes that says it holds so many."""
    header = b"\xe0" + size.to_bytes(8, "little")  # one segment, its size in eight bytes
    return MARK + zlib.crc32(header + b"\x01\0\0").to_bytes(4, "little") + header + b"\x01\0\0"


@pytest.mark.parametrize("size", [MAX_BYTES + 1, 2**40, 2**63])
def test_a_frame_that_claims_too_much_is_refused_before_memory_is_taken(size: int) -> None:
    place = events()[0]
    with pytest.raises(CorruptStateError, match="claims to be larger"):
        mappers()["plain"].recorded(place.stored_as(_claiming(size)))


def test_what_compresses_well_is_refused_beyond_the_limit() -> None:
    """64 MiB of zeros take 6 KB, a ratio of more than 10,000: the limit is on what comes out."""
    import zstandard

    frame = zstandard.compress(bytes(MAX_BYTES + 1))[4:]
    record = MARK + zlib.crc32(frame).to_bytes(4, "little") + frame
    assert len(record) < MAX_BYTES // 10_000
    with pytest.raises(CorruptStateError, match="claims to be larger"):
        mappers()["plain"].recorded(events()[0].stored_as(record))
    fitting = bytes(MAX_BYTES)
    assert ZstdCompressor().decompress(ZstdCompressor().compress(fitting)) == fitting


@pytest.mark.parametrize("event", events()[:1], ids=["chat_created"])
@pytest.mark.parametrize("opening", [b"\x91", b"\x81\xa1a"], ids=["lists", "objects"])
def test_deep_nesting_is_refused(event: SampleEvent, opening: bytes) -> None:
    whole = msgspec.msgpack.decode(event.state, type=list[Any])
    body = next(cast("list[Any]", value) for value in whole if isinstance(value, list))
    body[2] = msgspec.Raw(b"\x81\xa1a" + opening * DEEP + b"\xc0")  # the metadata
    with pytest.raises(CorruptStateError, match="damaged"):
        decode_event(event.topic, msgspec.msgpack.encode(whole))
