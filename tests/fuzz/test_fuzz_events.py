"""Records that claim too much, and events that are nested too deeply; `test_fuzz_targets` has all others that are damaged."""

from typing import Any, cast

import msgspec
import pytest
from tests.fuzz.fuzz_inputs import DEEP
from tests.fuzz.fuzz_samples import SampleEvent, events, mappers
from tests.fuzz.targets_events import framed

from chatledger import CorruptStateError
from chatledger.domain.log.codec import decode_event
from chatledger.infra.log.compression import MAX_BYTES, ZstdCompressor


def _claiming(size: int) -> bytes:
    """A frame of some bytes that says it holds so many."""
    header = b"\xe0" + size.to_bytes(8, "little")  # one segment, its size in eight bytes
    return framed(header + b"\x01\0\0")


@pytest.mark.parametrize("size", [MAX_BYTES + 1, 2**40, 2**63])
def test_a_frame_that_claims_too_much_is_refused_before_memory_is_taken(size: int) -> None:
    place = events()[0]
    with pytest.raises(CorruptStateError, match="claims to be larger"):
        mappers()["plain"].recorded(place.stored_as(_claiming(size)))


def test_what_compresses_well_is_refused_beyond_the_limit() -> None:
    """64 MiB of zeros take 6 KB, a ratio of more than 10,000: the limit is on what comes out."""
    import zstandard

    record = framed(zstandard.compress(bytes(MAX_BYTES + 1))[4:])
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
