"""Packing what a message may say beyond what msgpack and others' JSON know: half an emoji, large integers, NaN."""

import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.salts import salts

from chatledger.domain.chat.decide_messages import check_message, is_same_message
from chatledger.domain.chat.events import Event, MessagesAppended
from chatledger.domain.chat.live import LiveCommit, LiveEntry, decode_live, encode_live, packed_chunk, unpacked_chunks
from chatledger.domain.errors import CorruptStateError, InvalidValueError
from chatledger.domain.limits import MAX_JSON_DEPTH, data_copy, json_copy, same_json
from chatledger.domain.log.codec import Envelope, decode_event, encode_event, encode_events
from chatledger.domain.log.large_data import LARGE_BYTES
from chatledger.domain.packing import from_extension, pack, parse_json, readable, unpack
from chatledger.domain.values import Message, NewMessage
from chatledger.domain.wire import encode_json

HALF = "\ud83d"
OTHER_HALF = "\ude00"
ODD: dict[str, Any] = {
    "text": f"cut {HALF}",
    f"{OTHER_HALF} key": {"in": [f"{HALF}"]},
    "large": [2**64, -(2**63) - 1, 10**4299],
    "nan": [math.nan, math.inf, -math.inf],
    "usual": ["😀", 2**64 - 1, -(2**63), 1.5, None, True, {}],
}

any_text = st.text(st.characters(codec=None) | st.sampled_from([HALF, OTHER_HALF]), max_size=8)
any_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**40), 10**40) | st.floats() | any_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4),
    max_leaves=12,
)


def message(data: Any, message_id: str = "m1") -> Message:
    return check_message(NewMessage("tool", data, id=message_id), 7)


def event(*messages: Message) -> Event[MessagesAppended]:
    return Event(
        originator_id="c",
        originator_version=1,
        event_id="e",
        occurred_at=7,
        previous_hash=b"",
        body=MessagesAppended(messages, 0, None, messages[-1].id),
    )


def test_what_python_reads_as_json_is_kept() -> None:
    assert ODD == data_copy(ODD, "data") | {"nan": ODD["nan"]}
    assert same_json(ODD, unpack(pack(ODD)))
    assert list(ODD) == list(unpack(pack(ODD)))


@given(any_json)
def test_any_json_is_kept(value: Any) -> None:
    """What is copied is what Python's `json` writes and reads; two halves of an emoji are one, as it has them."""
    kept = data_copy(value, "data")

    assert same_json(json.loads(json.dumps(value)), kept)
    assert same_json(kept, unpack(pack(kept)))
    assert pack(kept) == pack(unpack(pack(kept)))


@given(any_json)
def test_what_needs_no_extension_is_as_msgspec_has_it(value: Any) -> None:
    try:
        usual = msgspec.msgpack.encode(value)
    except (UnicodeEncodeError, OverflowError):
        return
    assert usual == pack(value)


def test_what_stays_refused() -> None:
    deep: Any = HALF
    for _ in range(MAX_JSON_DEPTH):
        deep = [deep]
    assert deep == data_copy(deep, "data")
    for bad in ([deep], (1,), {1}, b"", {1: HALF}, object(), 10**4300, [-(10**4300)]):
        with pytest.raises(InvalidValueError, match="data"):
            data_copy(bad, "data")


def test_metadata_stay_strict() -> None:
    for bad in (HALF, {HALF: 1}, 2**64, math.nan):
        with pytest.raises(InvalidValueError, match="metadata"):
            json_copy([bad], "metadata")


@pytest.mark.parametrize(
    ("code", "data"), [(1, b"1x"), (1, b""), (2, b"\xff"), (3, b"\x91\x01"), (3, b"\x92\xc0"), (4, b""), (90, b"x")]
)
def test_a_damaged_extension_is_told(code: int, data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError, match=f"extension {code}"):
        from_extension(code, memoryview(data))
    body = encode_event(event(message("x")), salts()).state.replace(
        b"\xa1x", msgspec.msgpack.encode(msgspec.msgpack.Ext(code, data))
    )
    with pytest.raises(CorruptStateError):
        decode_event(MessagesAppended.TOPIC, body)


def test_events_keep_it() -> None:
    stored = event(message("x"), message(ODD, "m2"), message("y", "m3"))

    assert stored == decode_event(MessagesAppended.TOPIC, encode_event(stored, salts()).state)
    assert event(message("x")) != event(message("y"))


def test_no_other_text_of_an_event_may_have_half_an_emoji() -> None:
    """It would be read as none."""
    with pytest.raises(UnicodeEncodeError):
        encode_event(event(msgspec.structs.replace(message(ODD), name=HALF)), salts())


def test_large_data_with_it_lie_beside_the_log() -> None:
    """A long text by itself, but for one in an object that is an extension."""
    long = "x" * LARGE_BYTES + HALF
    for data in ({"a": long, HALF: [long + "y", 2**70]}, [long], {HALF * 9: ["x"] * LARGE_BYTES}, [long, HALF, 2**70]):
        encoded = encode_event(event(message(data)), salts())

        assert len(encoded.state) < LARGE_BYTES
        assert encoded.event == decode_event(
            MessagesAppended.TOPIC, encoded.state, {part.digest: part.data for part in encoded.large}
        )


def test_what_does_not_fit_one_event_is_split() -> None:
    messages = [message([HALF * 300], f"m{number}") for number in range(100)]
    body = MessagesAppended(tuple(messages), 0, None, "m99")

    encoded = encode_events(
        [body],
        stream_id="c",
        version=0,
        previous_hash=b"",
        occurred_at=7,
        event_ids=map(str, range(100)),
        salts=salts(),
        envelope=Envelope(),
        limit_bytes=64 * 1024,
    )

    assert len(encoded) > 1
    assert messages == [one for part in encoded for one in decode_event(part.topic, part.state).body.messages]


def test_a_message_with_nan_equals_itself() -> None:
    """Whichever object NaN is: two readings of one message are equal, and it may be appended again, in another order of its keys."""
    one, other = message(ODD), message(dict(reversed(unpack(pack(ODD)).items())))

    assert one == other
    assert not one != other  # noqa: SIM202 - both operators
    assert one != message({**ODD, "nan": [0.0]})
    assert one != msgspec.structs.replace(other, created_at=8)
    assert is_same_message(one, other)
    assert one != "m1"


def test_live_streams_keep_it() -> None:
    chunks = [packed_chunk(one)[0] for one in (f"cut {HALF}", ODD, b"\xed\xa0\xbd", HALF + OTHER_HALF)]
    draft = NewMessage("tool", ODD, id="m1")
    entry = LiveEntry("committing", 1, count=4, chunks=chunks, commit=LiveCommit("m1", None, draft))

    back = decode_live(encode_live(entry))

    assert same_json([f"cut {HALF}", ODD], [one.data for one in unpacked_chunks(back)][:2])
    assert [b"\xed\xa0\xbd", "😀"] == [one.data for one in unpacked_chunks(back)][2:]
    assert back.commit is not None
    assert back.commit.draft is not None
    assert same_json(ODD, back.commit.draft.data)


def test_json_for_others() -> None:
    """U+FFFD for half an emoji, null for NaN, and all digits; in texts that are derived too."""
    shown = json.loads(encode_json([message(ODD)]))[0]

    assert shown["data"] == {
        "text": "cut \ufffd",
        "\ufffd key": {"in": ["\ufffd"]},
        "large": ODD["large"],
        "nan": [None] * 3,
        "usual": ODD["usual"],
    }
    assert "cut \ufffd" in shown["text"]
    assert "a\ufffd😀\ufffd" == readable(f"a{HALF}{HALF}{OTHER_HALF}{OTHER_HALF}")


def test_json_of_javascript_is_read() -> None:
    assert {"a": f"cut {HALF}", HALF: "😀"} == parse_json(rb'{"a": "cut \ud83d", "\uD83d": "\ud83d\ude00"}')
    for bad in (b'"', rb'["\ud83d", NaN]', rb'["\ud83d"', b"[" * 100_000 + rb'"\ud83d"', b'"\xed\xa0\xbd"'):
        with pytest.raises((ValueError, RecursionError)):
            parse_json(bad)
