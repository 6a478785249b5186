"""Large data of events, stored by reference, and putting the events together again."""

from itertools import count

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.salts import salts
from tests.support.soak import examples

from chatledger.domain.chat.events import Body, ChatUpdated, MessagesAppended
from chatledger.domain.errors import CorruptStateError, PayloadTooLargeError
from chatledger.domain.log.codec import EncodedEvent, Envelope, encode_events
from chatledger.domain.log.large_data import (
    LARGE_BYTES,
    REFERENCE_BYTES,
    data_digest,
    find_large,
    has_references,
    large_data,
    put_together,
    references_in,
    stored_size,
    with_references,
)
from chatledger.domain.values import Message


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


sizes = st.sampled_from([0, 10, LARGE_BYTES - 5, LARGE_BYTES - 4, LARGE_BYTES + 1, 300_000])


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(sizes, st.sampled_from("xy"), st.booleans()), min_size=1, max_size=5))
def test_an_event_is_put_together_as_it_was(kinds: list[tuple[int, str, bool]]) -> None:
    """Whatever messages are large, alike, or within each other, the bytes and so the hashes are those of the whole event."""
    messages = [_message(n, [char * size] if is_list else char * size) for n, (size, char, is_list) in enumerate(kinds)]
    body = MessagesAppended(tuple(messages))
    state = msgspec.msgpack.encode([body, "tail"])
    large = find_large(body, state)
    stored = with_references(state, large)
    blobs = {part.digest: state[part.start : part.start + part.size] for part in large}

    assert len(large) == sum(len(msgspec.msgpack.encode(one.data)) > LARGE_BYTES for one in messages)
    assert all(data_digest(data) == digest for digest, data in blobs.items())
    assert has_references(stored)
    assert references_in(stored) == large
    assert put_together(stored, lambda part: blobs[part.digest]) == state
    assert len(stored) <= stored_size(state, large) + 8


def test_what_is_taken_out() -> None:
    """Long texts wherever they are, so that equal ones are found in different messages; all data if these are not enough."""
    file = "x" * 300_000
    parts = {"id": "m1", "parts": [{"text": "see"}, {"url": file, "n": 1}, {"url": file + "y"}]}
    rest = [["n" * 10] * 40_000, file]
    encode = msgspec.msgpack.encode

    assert [encode(file), encode(file + "y")] == large_data(_message(1, parts))
    assert [encode(file)] == large_data(_message(1, {file: 1}))
    assert [encode(rest)] == large_data(_message(1, rest))
    assert [encode("\U0001f600" * 66_000)] == large_data(_message(1, ["\U0001f600" * 66_000]))
    assert [] == large_data(_message(1, {"a": "x" * 200_000}))


def test_a_copy_of_large_data_inside_other_data() -> None:
    """The same bytes may stand in an earlier message, which is larger and not equal."""
    inner = "x" * (LARGE_BYTES + 10)
    body = MessagesAppended((_message(1, [inner, ["y"] * LARGE_BYTES]), _message(2, inner), _message(3, inner)))
    state = msgspec.msgpack.encode(body)
    large = find_large(body, state)
    blobs = {part.digest: state[part.start : part.start + part.size] for part in large}

    assert 3 == len(large)
    assert 2 == len(blobs)
    assert state == put_together(with_references(state, large), lambda part: blobs[part.digest])


def test_the_limits_count_what_they_speak_of() -> None:
    """Large data count against the limit of messages, the rest against that of events, in which there are references."""
    large = _message(1, "x" * 2_000_000)
    (one,) = _sealed(MessagesAppended((large,)), limit=40_000)
    assert 1 == len(one.large)
    assert 300 > len(one.state) - one.large[0].size + REFERENCE_BYTES
    with pytest.raises(PayloadTooLargeError) as caught:
        _sealed(MessagesAppended((large,)), message_limit=2_000_000)
    assert (2_000_005, 2_000_000) == (caught.value.size_bytes, caught.value.limit_bytes)
    assert _sealed(MessagesAppended((large,)), message_limit=2_000_005)
    with pytest.raises(PayloadTooLargeError) as caught:
        _sealed(MessagesAppended((_message(1, "x" * 250_000),)), limit=200_000)
    assert 200_000 == caught.value.limit_bytes
    with pytest.raises(PayloadTooLargeError):
        _sealed(ChatUpdated({"title": "x" * 2_000_000}))


def test_each_large_message_is_an_event_of_its_own() -> None:
    """So that no event takes more memory than one message, or the limit of events."""
    messages = [_message(number, "x" * 700_000) for number in range(4)]
    encoded = _sealed(MessagesAppended(tuple(messages), 0, None, "m3"))

    assert [1, 1, 1, 1] == [len(one.large) for one in encoded]


@pytest.mark.parametrize(
    "stored",
    [b"\xc1R", b"\xc1R\0\0\0\x05abc", b"\xc1R\0\0\0\1\x91", b"\xc1R\0\0\0\x02\x91\x90"],
)
def test_damaged_lists_are_refused(stored: bytes) -> None:
    """What is no list of references."""
    with pytest.raises(CorruptStateError, match="large data"):
        references_in(stored)


def test_overlapping_references_are_refused() -> None:
    """No event is stored so."""
    listed = msgspec.msgpack.encode([[10, 20, b"a"], [15, 20, b"b"]])
    with pytest.raises(CorruptStateError):
        references_in(b"\xc1R" + len(listed).to_bytes(4, "big") + listed)


def test_what_is_large_is_exact() -> None:
    """Data of just the limit stay in the event: texts, all that is beside them, and the data as a whole."""
    encode = msgspec.msgpack.encode
    just = "x" * (LARGE_BYTES - 5)  # with the header of a text
    file = "y" * 300_000
    for data, parts in (
        (just, []),
        (just + "x", [just + "x"]),
        ([just, "z"], [[just, "z"]]),
        ([just + "x", "z"], [just + "x"]),
        ([file, just[:-1]], [file]),
        ([file, just], [[file, just]]),
        (["\U0001f600" * (LARGE_BYTES // 4)], ["\U0001f600" * (LARGE_BYTES // 4)]),
    ):
        assert [encode(part) for part in parts] == large_data(_message(1, data))


def test_the_largest_of_several_messages_counts() -> None:
    """The limit is that of a message, wherever it stands in its event."""
    messages = (_message(1, "x" * 300_000), _message(2, "y" * 400_000), _message(3, "z"))
    with pytest.raises(PayloadTooLargeError) as caught:
        _sealed(MessagesAppended(messages), message_limit=300_100)
    assert ("c", 400_005, 300_100) == (caught.value.chat_id, caught.value.size_bytes, caught.value.limit_bytes)


def test_references_one_after_the_other() -> None:
    """From the first byte on, of any size, and without anything between them."""
    parts = [(0, 0, b"a"), (0, 5, b"b"), (5, 1, b"c")]
    listed = msgspec.msgpack.encode(parts)

    assert parts == [tuple(part) for part in references_in(b"\xc1R" + len(listed).to_bytes(4, "big") + listed)]
    for damaged in ([(0, -1, b"a")], [(0, 5, b"a"), (4, 1, b"b")], [(-1, 5, b"a")]):
        listed = msgspec.msgpack.encode(damaged)
        with pytest.raises(CorruptStateError, match="large data"):
            references_in(b"\xc1R" + len(listed).to_bytes(4, "big") + listed)
