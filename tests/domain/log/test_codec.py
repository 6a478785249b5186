from contextlib import suppress
from itertools import pairwise, repeat
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.json_values import ids, json_values, objects, texts, times
from tests.support.salts import salts
from tests.support.soak import examples

from chatledger.domain.chat.decide_redact import CAUSES
from chatledger.domain.chat.events import (
    Body,
    BranchActivated,
    BranchCreated,
    BranchDeleted,
    BranchRenamed,
    ChatCreated,
    ChatDeleted,
    ChatUpdated,
    CheckpointDeleted,
    CheckpointSet,
    ContentRedacted,
    Event,
    HeadMoved,
    LinkCreated,
    LinkRevoked,
    MemberRemoved,
    MemberSet,
    MessagesAnnotated,
    MessagesAppended,
    Recorded,
    RegenerationApproved,
    RegenerationBegun,
    RunChanged,
    RunRecorded,
)
from chatledger.domain.chat.runs import RUN_STATUSES, CarryOver, PlannedRun, RecordedRun, Stretch
from chatledger.domain.errors import CorruptStateError, PayloadTooLargeError, UnsupportedFormatError
from chatledger.domain.limits import MAX_ID_BYTES
from chatledger.domain.log.codec import (
    BODIES,
    MAX_EVENT_BYTES,
    NO_HASH,
    EncodedEvent,
    Envelope,
    decode_event,
    encode_event,
    encode_events,
    place_of_event,
)
from chatledger.domain.log.parts import event_hash, take_apart, without
from chatledger.domain.values import Message

optional_ids = st.none() | ids
counts = st.integers(0, 2**63)
numbers = st.integers(0, 2**31)
messages = st.builds(
    Message,
    id=ids,
    parent_id=optional_ids,
    name=ids,
    type=optional_ids,
    data=json_values,
    created_at=times,
    sender_id=optional_ids,
    agent_id=optional_ids,
    reply_to=optional_ids,
    copied_from=optional_ids,
    form=optional_ids,
    notes=st.none() | objects,
)
id_lists = st.lists(ids, max_size=2)
runs = st.builds(
    RecordedRun,
    id=ids,
    run_id=ids,
    thread_id=ids,
    assistant_id=ids,
    runtime=ids,
    trigger_message_id=optional_ids,
    references=id_lists,
    message_id=optional_ids,
    checkpoint_id=optional_ids,
    status=st.sampled_from(RUN_STATUSES),
    created_at=times,
    updated_at=times,
    repeats=optional_ids,
    regeneration_id=optional_ids,
)
planned_runs = st.builds(
    PlannedRun,
    run_id=ids,
    assistant_id=ids,
    runtime=ids,
    trigger_message_id=optional_ids,
    message_id=optional_ids,
    checkpoint_id=optional_ids,
    depth=st.integers(1, 2**31),
    cause=st.sampled_from(["trigger", "reference"]),
    thread_id=ids,
    references=id_lists,
)
stretches = st.builds(Stretch, first=optional_ids, last=optional_ids, run_ids=id_lists.map(tuple))
carries = st.builds(CarryOver, branch_id=ids, stretches=st.lists(stretches, max_size=3).map(tuple))
bodies: st.SearchStrategy[Body] = st.one_of(
    st.builds(ChatCreated, ids, st.none() | texts, st.none() | objects, ids, st.none() | times),
    st.builds(ChatUpdated, st.fixed_dictionaries({}, optional={"title": st.none() | texts, "metadata": objects})),
    st.builds(ChatDeleted, counts, counts, counts, counts, counts, st.none() | texts),
    st.builds(
        MessagesAppended, st.lists(messages, max_size=3).map(tuple), st.none() | numbers, optional_ids, optional_ids
    ),
    st.builds(BranchCreated, numbers, ids, ids, optional_ids, times, st.booleans()),
    st.builds(BranchActivated, numbers, ids),
    st.builds(BranchRenamed, numbers, ids, ids),
    st.builds(BranchDeleted, numbers, ids),
    st.builds(HeadMoved, numbers, ids, optional_ids, optional_ids),
    st.builds(CheckpointSet, ids, ids, ids, times),
    st.builds(CheckpointDeleted, ids, ids),
    st.builds(
        ContentRedacted,
        id_lists.map(tuple),
        st.lists(st.tuples(numbers, st.lists(numbers, max_size=3).map(tuple)), max_size=3).map(tuple),
        st.sampled_from(CAUSES),
        objects,
        st.none() | texts,
    ),
    st.builds(MemberSet, ids, st.sampled_from(["reader", "writer"])),
    st.builds(MemberRemoved, ids),
    st.builds(LinkCreated, ids, texts, st.none() | numbers, optional_ids, st.none() | times),
    st.builds(LinkRevoked, ids),
    st.builds(MessagesAnnotated, st.lists(ids, max_size=3).map(tuple), objects),
    st.builds(RunRecorded, runs),
    st.builds(RunChanged, ids, objects),
    st.builds(
        RegenerationBegun,
        ids,
        ids,
        ids,
        st.lists(planned_runs, max_size=2).map(tuple),
        id_lists.map(tuple),
        st.none() | times,
        st.none() | carries,
    ),
    st.builds(RegenerationApproved, ids, id_lists.map(tuple)),
)
events = st.builds(
    Event[Any],
    originator_id=ids,
    originator_version=st.integers(1, 2**63),
    event_id=ids,
    occurred_at=times,
    previous_hash=st.just(NO_HASH) | st.binary(min_size=32, max_size=32),
    body=bodies,
    rest=st.integers(0, 1000),
    actor=optional_ids,
    correlation_id=optional_ids,
    causation_id=optional_ids,
    command_id=optional_ids,
)


def encoded(
    parts: list[Body], *, chat_id: str = "c", limit: int = MAX_EVENT_BYTES, **envelope: Any
) -> list[EncodedEvent]:
    return encode_events(
        parts,
        stream_id=chat_id,
        version=0,
        previous_hash=NO_HASH,
        occurred_at=2**62,
        event_ids=repeat("e" * 36),
        salts=salts(),
        envelope=Envelope(**envelope),
        limit_bytes=limit,
    )


def test_every_kind_is_tried() -> None:
    """A new kind of event has to join these tests."""
    assert 29 == len(BODIES)
    assert len(BODIES) == len({body.TOPIC for body in BODIES})


@given(events)
@settings(max_examples=examples(300))
def test_events_come_back(event: Event[Any]) -> None:
    """Encoding is deterministic, and decoding gives the same event with the same key order."""
    state = encode_event(event, salts()).state
    found = decode_event(event.body.TOPIC, state)

    assert event == found
    assert state == encode_event(found, salts()).state
    assert (state == encode_event(event, salts(1)).state) == (
        event_hash(state) == event_hash(encode_event(event, salts(1)).state)
    )


@given(events)
def test_an_event_as_json(event: Event[Any]) -> None:
    """Every event has a form of JSON values with the envelope of PS-20."""
    recorded = Recorded(5, event, event_hash(encode_event(event, salts()).state))
    found = msgspec.json.decode(msgspec.json.encode(recorded.to_dict()))

    assert (5, 2, recorded.type) == (found["position"], found["schema_version"], found["type"])
    assert f"chatledger.{recorded.type}/2" == event.body.TOPIC
    assert set(event.body.__struct_fields__) == set(found["payload"])


@given(st.sampled_from(BODIES), st.binary(max_size=200))
@settings(max_examples=examples(500))
def test_random_bytes_are_corrupt(body: type[Body], state: bytes) -> None:
    """Bytes that are no event raise `CorruptStateError` and nothing else."""
    with suppress(CorruptStateError):
        decode_event(body.TOPIC, state)


@given(events, st.sampled_from(BODIES), st.data())
@settings(max_examples=examples(300))
def test_damaged_bytes_are_corrupt_or_another_event(event: Event[Any], body: type[Body], data: st.DataObject) -> None:
    """Cut, lengthened or changed at any place, and under any topic: an event, or `CorruptStateError`."""
    state = encode_event(event, salts()).state
    at = data.draw(st.integers(0, len(state) - 1))
    other = data.draw(st.binary(max_size=4))
    for damaged in (state[:at], state + other, state[:at] + other + state[at + 1 :]):
        with suppress(CorruptStateError):
            decode_event(body.TOPIC, damaged)


@pytest.mark.parametrize(
    "value",
    [
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\x91" * 100_000,
        b"\x81\x90" * 50_000,
        b"\xa2\xff\xff",
        b"\xc1",
        b"\xc7\x0c\xff" + b"\xff" * 12,
        b"\x81\x81\x01\x02\x03",
    ],
    ids=["array", "map", "binary", "deep", "deep map", "no text", "unused", "time", "key"],
)
def test_hostile_bytes_are_corrupt(value: bytes) -> None:
    """Lengths beyond the end, endless nesting and values that cannot be are damage, not another error."""
    whole = encode_event(encoded([ChatUpdated({"title": 7})])[0].event, salts()).state
    assert whole.endswith(b"\x81\xa5title\x07\x90")
    with pytest.raises(CorruptStateError):
        decode_event(ChatUpdated.TOPIC, whole[:-2] + value + b"\x90")


@pytest.mark.parametrize("topic", ["", "chatledger.chat_created/3", "chatledger.unknown/2", "builtins:eval"])
def test_an_unknown_topic_is_newer(topic: str) -> None:
    """A topic nobody knows is not damage: a newer version wrote it (PS-26)."""
    with pytest.raises(UnsupportedFormatError, match="upgrade"):
        decode_event(topic, b"\x90")


def test_fields_of_a_newer_version_are_passed_over() -> None:
    """A field that was added at the end does not hinder an older reader."""
    event = encoded([CheckpointDeleted("1", "cp")])[0].event
    version, (structure, who, what), parts = msgspec.msgpack.decode(encode_event(event, salts()).state)
    longer = msgspec.msgpack.encode([version, [[*structure, "new"], who, [*what, "new"]], parts])

    assert event == decode_event(CheckpointDeleted.TOPIC, longer)


def test_a_log_of_the_old_format_is_refused_in_words() -> None:
    """The first format is not read any more: the error says how to bring the chats over."""
    for topic in ("chatledger.message_appended/1", "chatledger.unknown/1"):
        with pytest.raises(UnsupportedFormatError, match="'chatledger export' of the version that wrote it"):
            decode_event(topic, b"\x90")


def test_an_event_is_of_the_type_of_its_record() -> None:
    """The topic stands in the event too, so that a record cannot be taken for one of another kind."""
    created = encoded([BranchActivated(1, "idea")])[0]
    with pytest.raises(CorruptStateError, match="'branch_activated/2'"):
        decode_event(BranchDeleted.TOPIC, created.state)


@given(st.lists(st.integers(0, 300), min_size=1, max_size=40), st.integers(16_385, 17_500))
@example([300] * 40, 17_000)
def test_split_respects_the_limit(sizes: list[int], limit: int) -> None:
    """Messages keep their order, each part fits, and the head moves with the last one only (PS-25)."""
    parents = [None, *(f"m{number}" for number in range(len(sizes)))]
    all_messages = tuple(
        Message(id=f"m{number}", parent_id=parents[number], name="user", data="x" * size, created_at=2**40)
        for number, size in enumerate(sizes)
    )
    body = MessagesAppended(all_messages, 2, "from", all_messages[-1].id)
    written = encoded([ChatUpdated({}), body, ChatUpdated({})], limit=limit)
    parts = [event.event.body for event in written]
    middle = [part for part in parts if isinstance(part, MessagesAppended)]

    assert [ChatUpdated({}), *middle, ChatUpdated({})] == parts
    assert all_messages == tuple(message for part in middle for message in part.messages)
    assert all(part.messages for part in middle)
    assert [(None, None, None)] * (len(middle) - 1) == [(p.branch, p.from_head, p.to_head) for p in middle[:-1]]
    assert (2, "from", body.to_head) == (middle[-1].branch, middle[-1].from_head, middle[-1].to_head)
    assert all(len(event.state) <= limit for event in written)
    assert parts == [decode_event(event.topic, event.state).body for event in written]


def test_split_leaves_room_for_the_longest_ids() -> None:
    """Whatever the lengths of chat id, branch, heads, actor and command ids are, each part fits the limit."""
    longest = "x" * MAX_ID_BYTES
    limit = 64 * 1024
    names: dict[str, Any] = {
        "actor": longest,
        "correlation_id": longest,
        "causation_id": longest,
        "command_id": longest,
    }
    largest = 0
    for size in range(46_800, 49_100, 20):  # one of them fills the part as far as it goes
        drafts = [
            Message(id=key, name="user", data="x" * count, created_at=1) for key, count in (("a", size), ("b", 9))
        ]
        written = encoded([MessagesAppended(tuple(drafts), 1, longest, longest)], chat_id=longest, limit=limit, **names)
        largest = max(largest, *(len(event.state) for event in written))

    assert largest <= limit


def test_small_events_are_not_split() -> None:
    """What fits stays one event, so it is one commit on every log."""
    body = MessagesAppended(
        tuple(Message(id=f"m{n}", name="user", data="x" * 50, created_at=1) for n in range(10_000)), 0, None, "m9"
    )

    assert [body] == [event.event.body for event in encoded([body])]


def test_an_event_too_large_is_refused() -> None:
    """Content is never cut; the error says how large it is and what the limit (PS-25)."""
    with pytest.raises(PayloadTooLargeError) as caught:
        encoded([ChatUpdated({}), ChatUpdated({"title": "x" * MAX_EVENT_BYTES})])

    assert ("c", MAX_EVENT_BYTES) == (caught.value.chat_id, caught.value.limit_bytes)
    assert caught.value.size_bytes > MAX_EVENT_BYTES


def test_the_limit_is_exact() -> None:
    """An event of just the limit is written, one byte more is not."""
    size = len(encoded([ChatUpdated({"title": "x" * 100})])[0].state)

    assert encoded([ChatUpdated({"title": "x" * 100})], limit=size)
    with pytest.raises(PayloadTooLargeError):
        encoded([ChatUpdated({"title": "x" * 100})], limit=size - 1)


def test_every_redaction_of_an_event_fits() -> None:
    """Each slot counts as no less than its commitment, so an event of just the limit has room for all of them."""
    body = MessagesAppended(tuple(Message(id="m", name="u", data=0, sender_id="s", created_at=1) for _ in range(9)), 0)
    (whole,) = encoded([body], actor="a")
    bare = without(whole.state, range(100))

    assert len(bare) > len(whole.state)
    assert encoded([body], actor="a", limit=len(bare) + 10**6)
    with pytest.raises(PayloadTooLargeError) as caught:
        encoded([ChatUpdated({"title": ""})], actor="a", limit=10)
    shorter = without(encoded([ChatUpdated({"title": ""})], actor="a")[0].state, range(2))
    assert caught.value.size_bytes == len(shorter)


def test_commits_of_several_events_count_down() -> None:
    """`rest` says how many events of the same commit follow; each names the hash of the one before (PS-21)."""
    bodies = [ChatUpdated({"title": str(number)}) for number in range(4)]
    encoded = encode_events(
        bodies,
        stream_id="c",
        version=7,
        previous_hash=b"before",
        occurred_at=5,
        event_ids=list("abcd"),
        salts=salts(),
        envelope=Envelope(actor="ada", correlation_id="co", causation_id="ca", command_id="cmd"),
    )

    assert [3, 2, 1, 0] == [event.event.rest for event in encoded]
    assert [8, 9, 10, 11] == [event.event.originator_version for event in encoded]
    assert [b"before", *(event.hash for event in encoded[:-1])] == [event.event.previous_hash for event in encoded]
    assert [event_hash(event.state) for event in encoded] == [event.hash for event in encoded]
    assert {("ada", "co", "ca", "cmd", 5)} == {
        (e.actor, e.correlation_id, e.causation_id, e.command_id, e.occurred_at) for e, *_ in encoded
    }


def test_each_event_has_an_id() -> None:
    """No event is left out because there were too few ids."""
    with pytest.raises(ValueError, match="an id each"):
        encode_events(
            [ChatUpdated({}), ChatUpdated({})],
            stream_id="c",
            version=0,
            previous_hash=NO_HASH,
            occurred_at=1,
            event_ids=["e"],
            salts=salts(),
            envelope=Envelope(),
        )


@given(st.lists(st.integers(1, 40), min_size=2, max_size=30), st.integers(1, 400))
@example([5, 5, 5, 5], 2)
def test_parts_are_as_large_as_they_can_be(sizes: list[int], room: int) -> None:
    """An event ends before the message that does not fit any more, and at no other."""
    drafts = [Message(id="m", name="user", data="x" * size, created_at=1) for size in sizes]
    (whole,) = encoded([MessagesAppended(tuple(drafts), changed_at=7)])
    lengths = [sum(map(len, part)) + 1 for part in take_apart(whole.state).parts]
    if room == 2:  # times the size of the first message: it just fits
        room = 2 * counted(lengths[0])
    written = encoded([MessagesAppended(tuple(drafts), changed_at=7)], limit=room + 17 * 1024)
    cut = [[sum(map(len, part)) + 1 for part in take_apart(event.state).parts] for event in written]

    assert lengths == [length for event in cut for length in event]
    assert all(sum(map(counted, event)) <= room or len(event) == 1 for event in cut)
    assert all(sum(map(counted, event)) + counted(after[0]) > room for event, after in pairwise(cut))
    assert all(event.event.body.changed_at == 7 for event in written)


def counted(length: int) -> int:
    """The size of a part without a sender: its structure takes 10 bytes, and its slot no less than a commitment."""
    return max(length, 10 + 2 + 34)


def test_the_place_of_any_event() -> None:
    """Also of one that a newer version wrote; what is no event is damaged."""
    event = encoded([CheckpointDeleted("1", "cp")], actor="ada")[0].event
    state = encode_event(event, salts()).state

    assert ("checkpoint_deleted/2", "c", 1) == msgspec.structs.astuple(place_of_event(state))[:3]
    for damaged in (b"", b"\xc1", b"\x90", state[:-1], b"\x93\x03" + state[2:]):
        with pytest.raises(CorruptStateError, match="event"):
            place_of_event(damaged)
