"""The parts of an event: test vectors, redaction, and agreement with a verifier that was written from the page alone."""

import random
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.domain.log.test_codec import events
from tests.support.page_verifier import NoEventError, hash_of_event
from tests.support.salts import named_salts, salts
from tests.support.soak import examples

from chatledger.domain.chat.events import Event, MessagesAppended
from chatledger.domain.errors import CorruptStateError
from chatledger.domain.log.codec import Envelope, decode_event, encode_event, encode_events
from chatledger.domain.log.parts import (
    NO_PARTS,
    event_hash,
    join,
    leaves_of,
    list_header,
    parts_root,
    take_apart,
    without,
)
from chatledger.domain.values import UNEXPLAINED, Message

FIRST = bytes.fromhex(
    "9302939ab26d6573736167655f617070656e6465642f32a16302a26532cd03e8c420000102030405060708090a0b0c0d0e0f101112131415161718"
    "191a1b1c1d1e1f0000000095c410a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a3616461c0c0c0c0919395a26d31c0c0a475736572a76d65737361676"
    "5c092c410a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a26869"
)
FIRST_HASH = "6613a8ec4189eced75729fc246951a1e24a345772179476fed9fcdcc65ee02bf"
SECOND = bytes.fromhex(
    "9302939ab26d6573736167655f617070656e6465642f32a16303a26533cd03e8c4206613a8ec4189eced75729fc246951a1e24a345772179476fed"
    "9fcdcc65ee02bf00000000c0c0939395a26d32a26d31c0a475736572a76d657373616765c092c410a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1619"
    "395a26d3300c0a475736572a76d657373616765c420bcd7baa8e61f5ee09c4bcbc66d14a1df8816f1744de08757a045a1892201bfc5c42002cd5b"
    "836eaff152ac9fe3e868bdf88bbfb4cbcfc1d541b481d88d4cd73a8fd59395a26d3400c0a475736572a76d657373616765c092c410a3a3a3a3a3a3"
    "a3a3a3a3a3a3a3a3a3a3c0"
)
SECOND_HASH = "380d3ef467e016d53f5cd1a608b0b1c6e32c9c755224743ffcec16061328affe"
SECOND_ROOT = "729ec613700cf834791e30cf750349822323e689500e919c4a5d77db3a275357"


def _message(message_id: str, data: Any, parent_id: str | None = None, **rest: Any) -> Message:
    return Message(id=message_id, parent_id=parent_id, name="user", type="message", data=data, created_at=1000, **rest)


def _written(messages: Sequence[Message], version: int, previous: bytes, firsts: Sequence[int], **envelope: str) -> Any:
    body = MessagesAppended(tuple(messages), 0, messages[0].parent_id, messages[-1].id)
    (event,) = encode_events(
        [body],
        stream_id="c",
        version=version - 1,
        previous_hash=previous,
        occurred_at=1000,
        event_ids=[f"e{version}"],
        salts=named_salts(*firsts),
        envelope=Envelope(**envelope),
    )
    return event


def test_the_first_vector() -> None:
    """One message and an actor, byte by byte."""
    event = _written([_message("m1", "hi")], 2, bytes(range(32)), [0xA1, 0xA0], actor="ada")

    assert FIRST == event.state
    assert FIRST_HASH == event.hash.hex() == event_hash(FIRST).hex() == hash_of_event(FIRST).hex()
    assert event.event == decode_event(event.topic, FIRST)


def test_the_second_vector() -> None:
    """Three messages; sender and content of the second one redacted, and the hash as before."""
    messages = [_message("m2", "a", "m1"), _message("m3", 7, "m2", sender_id="bob"), _message("m4", None, "m3")]
    whole = _written(messages, 3, bytes.fromhex(FIRST_HASH), [0xA1, 0xEE, 0xA2, 0xA3])
    bare = without(whole.state, [4, 5])

    assert bytes.fromhex("92c410eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeea3626f62") in whole.state
    assert bytes.fromhex("92c410a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a207") in whole.state
    assert SECOND == bare
    assert {SECOND_HASH} == {one.hex() for one in (whole.hash, event_hash(whole.state), event_hash(bare))}
    apart = take_apart(bare)
    leaves = leaves_of([apart.head, *apart.parts])
    assert ["f3eba485", "0bcb6999", "edb2094a", "80a93252"] == [leaf.hex()[:8] for leaf in leaves]
    assert ["1338", "a8e3", "7416", "77a1"] == [leaf.hex()[-4:] for leaf in leaves]
    assert SECOND_ROOT == parts_root(leaves[1:]).hex()
    shown = decode_event(whole.topic, bare)
    redacted = msgspec.structs.replace(messages[1], data=None, sender_id=None, redacted=UNEXPLAINED)
    assert (4, 5) == shown.redacted
    assert (messages[0], redacted, messages[2]) == shown.body.messages


@given(events, st.integers(0, 2**32))
@settings(max_examples=examples(150), deadline=None)
def test_redacted_in_any_order_the_hash_stays(event: Event[Any], seed: int) -> None:
    """After each step, in any groups: the same hash, the same bytes in the end, and no salt or content left."""
    chance = random.Random(seed)
    state = whole = encode_event(event, salts()).state
    apart = take_apart(whole)
    order = list(range(2 * len(apart.parts) + 2))
    chance.shuffle(order)
    while order:
        count = chance.randint(1, len(order))
        state = without(state, order[:count])
        del order[:count]
        assert event_hash(whole) == event_hash(state) == hash_of_event(state)
    slots = [bytes(slot) for part in (apart.head, *apart.parts) for slot in part[1:] if len(slot) > 1]

    assert state == without(whole, range(2 * len(apart.parts) + 2))
    assert not [slot for slot in slots if slot[3:19] in state]
    assert [slot for slot in slots if b"\xc4\x20" + sha256(slot).digest() in state] == slots


@given(events, st.booleans(), st.data())
@settings(max_examples=examples(300), deadline=None)
def test_every_mutation_is_refused_by_both(event: Event[Any], is_redacted: bool, data: st.DataObject) -> None:  # noqa: FBT001 - drawn
    """A byte changed, dropped or added anywhere gives another hash or none; the page's verifier says the same of it."""
    state = encode_event(event, salts()).state
    if is_redacted:
        state = without(state, data.draw(st.sets(st.integers(0, 7))))
    expected = event_hash(state)
    assert expected == hash_of_event(state)
    for _ in range(10):
        at, count = data.draw(st.integers(0, len(state))), data.draw(st.integers(0, 3))
        mutated = state[:at] + data.draw(st.binary(max_size=3)) + state[at + count :]
        if mutated != state:
            assert expected not in {_ours(mutated), _of_page(mutated)}


def _ours(state: bytes) -> bytes | None:
    try:
        return event_hash(state)
    except CorruptStateError:
        return None


def _of_page(state: bytes) -> bytes | None:
    try:
        return hash_of_event(state)
    except NoEventError:
        return None


FRAMES = {
    "a longer header of the event": b"\xdc\x00\x03" + SECOND[1:],
    "a longer version": b"\x93\xcc\x02" + SECOND[2:],
    "another version": b"\x93\x03" + SECOND[2:],
    "a longer header of the head": SECOND[:2] + b"\xdc\x00\x03" + SECOND[3:],
    "a longer list": SECOND.replace(b"\xc0\xc0\x93\x93\x95", b"\xc0\xc0\xdc\x00\x03\x93\x95"),
    "the longest list": SECOND.replace(b"\xc0\xc0\x93\x93\x95", b"\xc0\xc0\xdd\x00\x00\x00\x03\x93\x95"),
    "bytes behind the end": SECOND + b"\xc0",
    "a slot that is text": FIRST[:-20] + b"\xa2hi",
    "a slot of bare bytes": FIRST.replace(b"\xc0\xc0\xc0\xc0\x91", b"\xc0\xc0\xc0\xc4\x01a\x91"),
    "a short commitment": SECOND.replace(b"\xc4\x20\xbc", b"\xc4\x1f"),
    "a slot with a long header": FIRST[:-21] + b"\xdc\x00\x02" + FIRST[-20:],
    "a slot of a salt alone": FIRST[:-21] + b"\x91" + FIRST[-20:-2],
    "a salt of 17 bytes": FIRST[:-19] + b"\x11\x00" + FIRST[-18:],
}


@pytest.mark.parametrize("state", FRAMES.values(), ids=FRAMES)
def test_events_have_one_form(state: bytes) -> None:
    """What the hash does not cover is refused in any other form, by both."""
    with pytest.raises(CorruptStateError):
        event_hash(state)
    with pytest.raises(NoEventError):
        hash_of_event(state)


@pytest.mark.guard
@pytest.mark.parametrize("count", [0, 1, 2, 3, 15, 16, 17, 255, 65_535, 65_536])
def test_lists_of_any_length(count: int) -> None:
    """Each number of parts has one header, and a tree of the shape of RFC 9162."""
    part = (b"\x90", b"\xc0", b"\xc0")
    state = join((b"\x90", b"\xc0", b"\xc0"), [part] * count)

    assert count == len(take_apart(state).parts)
    assert list_header(count) == msgspec.msgpack.encode([None] * count)[: len(list_header(count))]
    assert event_hash(state) == hash_of_event(state)


def test_the_root_of_no_parts() -> None:
    """An event without parts is covered, too."""
    assert sha256(b"").digest() == NO_PARTS == parts_root([])
