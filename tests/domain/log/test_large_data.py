"""Large data of events: what is taken out of them, what stands for it, and events that travel with it."""

from hashlib import sha256
from itertools import count
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.page_verifier import hash_of_event
from tests.support.salts import named_salts, salts
from tests.support.soak import examples

from chatledger.domain.chat.events import Body, ChatUpdated, MessagesAppended
from chatledger.domain.errors import CorruptStateError, PayloadTooLargeError
from chatledger.domain.log.codec import EncodedEvent, Envelope, decode_event, encode_events, references_in
from chatledger.domain.log.large_data import (
    LARGE_BYTES,
    Reference,
    UnknownContentError,
    carried,
    carrying,
    data_digest,
    is_carrying,
    take_out,
)
from chatledger.domain.log.parts import event_hash, without
from chatledger.domain.packing import pack
from chatledger.domain.values import Message

TOPIC = MessagesAppended.TOPIC
HALF = "\ud83d"

FOURTH = (
    "93029397b26d6573736167655f617070656e6465642f32a16302a26532cd03e8c42000000000000000000000000000000000000000000000"
    "0000000000000000000000c0c0929395a26d31c0c0a475736572a76d657373616765c092c410a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a081a1"
    "74c7280400000000000493e029927e273accc68286005017f7fa6e4f27bddb4db3083ff8b8d4c3667905b7fa9395a26d3200c0a475736572"
    "a76d657373616765c092c410a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1c7280500000000000927c5fbaccf0fe5820071b15fe4696204e654bb"
    "9eb0138b0dd144f9938fba53694c09"
)
FOURTH_HASH = "c84a4615b9e8bdc238139f80ecff1546b1ba9baa2c26e90b3eff798f7f8d6b8b"


def _message(number: int, data: object) -> Message:
    return Message(id=f"m{number}", name="user", data=data, created_at=number)


def _sealed(body: Body, *, limit: int = 1024 * 1024, message_limit: int = 2**26) -> list[EncodedEvent]:
    return encode_events(
        [body],
        stream_id="c",
        version=0,
        previous_hash=b"",
        occurred_at=1,
        event_ids=(f"e{number}" for number in count()),
        salts=salts(),
        envelope=Envelope(),
        limit_bytes=limit,
        message_limit_bytes=message_limit,
    )


def _texts(data: object) -> list[str]:
    return [part.data.decode(errors="surrogatepass") for part in take_out(data).large]


sizes = st.sampled_from([0, 10, LARGE_BYTES - 4, LARGE_BYTES, LARGE_BYTES + 1, 300_000])


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(sizes, st.sampled_from(["x", "é", HALF]), st.sampled_from("tld")), min_size=1, max_size=5))
def test_events_come_back_with_their_large_data(kinds: list[tuple[int, str, str]]) -> None:
    """Whatever messages are large, or alike; the event itself is small, and its hash needs nothing but it."""

    def data_of(text: str, shape: str) -> Any:
        return {"t": text, "l": [text], "d": {"a": [text], text[:5]: 2**70}}[shape]

    messages = [_message(n, data_of(char * size, shape)) for n, (size, char, shape) in enumerate(kinds)]
    encoded = _sealed(MessagesAppended(tuple(messages)))
    restored: list[Message] = []
    for one in encoded:
        references = references_in(TOPIC, one.state)
        contents = {part.digest: part.data for part in one.large}

        assert [part.digest for part in one.large] == [reference.digest for reference in references]
        assert [len(part.data) for part in one.large] == [reference.size for reference in references]
        assert len(one.state) < LARGE_BYTES * 4
        assert event_hash(one.state) == one.hash
        assert carried(carrying(one.state, list(contents.values()))) == (one.state, contents)
        if references:
            with pytest.raises(UnknownContentError):
                decode_event(TOPIC, one.state)
        restored += decode_event(TOPIC, one.state, contents).body.messages
    is_whole = [one.data for one in restored] == [one.data for one in messages]
    assert is_whole


def test_what_is_taken_out() -> None:
    """Long texts wherever they are, so that equal ones are found in different messages; all data if these are not enough."""
    file = "x" * 300_000
    parts = {"id": "m1", "parts": [{"text": "see"}, {"url": file, "n": 1}, {"url": file + "y"}]}
    rest = [["n" * 10] * 40_000, file]

    assert [file, file + "y"] == _texts(parts)
    assert [file] == _texts([file])
    assert [pack(rest)] == [part.data for part in take_out(rest).large]
    assert ["\U0001f600" * 66_000] == _texts(["\U0001f600" * 66_000])
    assert () == take_out({"a": "x" * 200_000}).large
    for keyed in ({file: 1}, {"a": {HALF: file}}):
        assert [pack(keyed)] == [part.data for part in take_out(keyed).large]


def test_what_is_large_is_exact() -> None:
    """Data of just the limit stay in the event: texts, all that is beside them, and the data as a whole."""
    just = "x" * LARGE_BYTES
    file = "y" * 300_000
    left = "x" * (LARGE_BYTES - 1 - 43 - 5)  # beside an extension of 43 bytes, in a list, with the header of a text
    for data, texts in (
        ("x" * (LARGE_BYTES - 5), []),
        (just + "x", [just + "x"]),
        ([just + "x", "z"], [just + "x"]),
        ([file, left], [file]),
        (["\U0001f600" * (LARGE_BYTES // 4) + "x"], ["\U0001f600" * (LARGE_BYTES // 4) + "x"]),
    ):
        assert texts == _texts(data)
    for whole in (just, [just, "z"], [file, left + "x"], ["\U0001f600" * (LARGE_BYTES // 4)]):
        assert [pack(whole)] == [part.data for part in take_out(whole).large]


def test_the_bytes_of_large_data() -> None:
    """Test vector 4: a text of 300,000 characters in an object, and a list of as many texts."""
    text, items = "x" * 300_000, ["y"] * 300_000
    messages = [
        Message(id=message_id, parent_id=parent, name="user", type="message", data=data, created_at=1000)
        for message_id, parent, data in (("m1", None, {"t": text}), ("m2", "m1", items))
    ]
    (one,) = encode_events(
        [MessagesAppended(tuple(messages))],
        stream_id="c",
        version=1,
        previous_hash=bytes(32),
        occurred_at=1000,
        event_ids=["e2"],
        salts=named_salts(0xA0, 0xA1),
        envelope=Envelope(),
    )
    listed = b"\xdd" + (300_000).to_bytes(4) + b"\xa1y" * 300_000

    assert FOURTH == one.state.hex()
    assert FOURTH_HASH == one.hash.hex() == hash_of_event(one.state).hex()
    assert [
        Reference(is_text=True, size=300_000, digest=sha256(text.encode()).digest()),
        Reference(is_text=False, size=len(listed), digest=sha256(listed).digest()),
    ] == references_in(TOPIC, one.state)
    assert [text.encode(), listed] == [part.data for part in one.large]


def test_large_data_leave_no_digest_behind() -> None:
    """Once the content of a slot was taken away, nothing shows which file it had; the hash stays."""
    (one,) = _sealed(MessagesAppended((_message(1, "x" * 300_000),)))
    bare = without(one.state, [3])

    assert one.hash == event_hash(bare)
    assert one.large[0].digest in one.state
    assert one.large[0].digest not in bare
    assert [] == references_in(TOPIC, bare)


def test_the_limits_count_what_they_speak_of() -> None:
    """Large data count against the limit of messages, the rest against that of events, in which there are references."""
    large = _message(1, "x" * 2_000_000)
    (one,) = _sealed(MessagesAppended((large,)), limit=40_000)
    assert 1 == len(one.large)
    assert 300 > len(one.state)
    with pytest.raises(PayloadTooLargeError) as caught:
        _sealed(MessagesAppended((large,)), message_limit=2_000_000)
    assert (2_000_005, 2_000_000) == (caught.value.size_bytes, caught.value.limit_bytes)
    assert _sealed(MessagesAppended((large,)), message_limit=2_000_005)
    with pytest.raises(PayloadTooLargeError) as caught:
        _sealed(MessagesAppended((_message(1, "x" * 250_000),)), limit=200_000)
    assert 200_000 == caught.value.limit_bytes
    with pytest.raises(PayloadTooLargeError):
        _sealed(ChatUpdated({"title": "x" * 2_000_000}))


@pytest.mark.parametrize("data", ["x" * 300_000, ["x"] * 300_000, {"a": ["x" * 300_000, "z"]}])
def test_the_size_of_a_message_is_that_of_its_data(data: Any) -> None:
    """Packed whole, whatever lies beside the log, and without its notes."""
    message = msgspec.structs.replace(_message(1, data), notes={"n": "x" * 1000})
    with pytest.raises(PayloadTooLargeError) as caught:
        _sealed(MessagesAppended((message,)), message_limit=len(pack(data)) - 1)
    assert len(pack(data)) == caught.value.size_bytes
    assert _sealed(MessagesAppended((message,)), message_limit=len(pack(data)))


def test_each_large_message_is_an_event_of_its_own() -> None:
    """So that no event takes more memory than one message, or the limit of events."""
    messages = [_message(number, "x" * 700_000) for number in range(4)]
    encoded = _sealed(MessagesAppended(tuple(messages), 0, None, "m3"))

    assert [1, 1, 1, 1] == [len(one.large) for one in encoded]


def test_the_largest_of_several_messages_counts() -> None:
    """The limit is that of a message, wherever it stands in its event."""
    messages = (_message(1, "x" * 300_000), _message(2, "y" * 400_000), _message(3, "z"))
    with pytest.raises(PayloadTooLargeError) as caught:
        _sealed(MessagesAppended(messages), message_limit=300_100)
    assert ("c", 400_005, 300_100) == (caught.value.chat_id, caught.value.size_bytes, caught.value.limit_bytes)


@pytest.mark.parametrize("record", [b"\xc1L", b"\xc1L\x91\xc4\0", b"\xc1L\x92\xc4\0\x91\x01", b"\xc1L\x92\xa1x\x90"])
def test_damaged_records_are_refused(record: bytes) -> None:
    """What is no event with its large data."""
    assert is_carrying(record)
    with pytest.raises(CorruptStateError, match="large data"):
        carried(record)


def test_a_damaged_reference_is_refused() -> None:
    """An extension of another length, and content that is no text, or not packed."""
    ((one,), (short,)) = (_sealed(MessagesAppended((_message(1, data),))) for data in (["x" * 300_000], ["x" * 41]))
    content = {one.large[0].digest: b"\xff"}
    with pytest.raises(CorruptStateError):
        decode_event(TOPIC, one.state, content)
    damaged = short.state.replace(b"\xd9\x29" + b"x" * 41, b"\xc7\x28\x04" + b"x" * 40)
    with pytest.raises(UnknownContentError):
        decode_event(TOPIC, damaged)
    for length in (39, 41):
        with pytest.raises(CorruptStateError):
            decode_event(TOPIC, short.state.replace(b"\xd9\x29" + b"x" * 41, b"\xc7%c\x04" % length + b"x" * length))
    assert [Reference(is_text=True, size=int.from_bytes(b"x" * 8), digest=b"x" * 32)] == references_in(TOPIC, damaged)
    assert data_digest(b"x" * 300_000) == one.large[0].digest
