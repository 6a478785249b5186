"""Events that are nested too deeply; `test_fuzz_targets` has all others that are damaged."""

from typing import Any, cast

import msgspec
import pytest
from tests.fuzz.fuzz_inputs import DEEP
from tests.fuzz.fuzz_samples import SampleEvent, events

from chatledger import CorruptStateError
from chatledger.domain.log.codec import decode_event


@pytest.mark.parametrize("event", events()[:1], ids=["chat_created"])
@pytest.mark.parametrize("opening", [b"\x91", b"\x81\xa1a"], ids=["lists", "objects"])
def test_deep_nesting_is_refused(event: SampleEvent, opening: bytes) -> None:
    whole = msgspec.msgpack.decode(event.state, type=list[Any])
    body = next(cast("list[Any]", value) for value in whole if isinstance(value, list))
    body[2] = msgspec.Raw(b"\x81\xa1a" + opening * DEEP + b"\xc0")  # the metadata
    with pytest.raises(CorruptStateError, match="damaged"):
        decode_event(event.topic, msgspec.msgpack.encode(whole))
