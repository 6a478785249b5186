"""Old logs open for ever: the bytes in `events.json` were written once and are never changed, see `record.py`."""

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.recorded.record import SAMPLES
from tests.recorded.record_states import SAMPLES as STATE_SAMPLES
from tests.recorded.record_threads import SAMPLES as THREAD_SAMPLES

from chatledger.domain.chat.events import Recorded
from chatledger.domain.chat.replay import ReplayedChat
from chatledger.domain.log.codec import BODIES, decode_event, encode_event
from chatledger.domain.log.parts import event_hash, take_apart
from chatledger.infra.log.nats_server.directory import FORMAT

RECORDED: list[dict[str, Any]] = json.loads(SAMPLES.read_text())
THREADS: list[dict[str, Any]] = json.loads(THREAD_SAMPLES.read_text())
STATES: list[dict[str, Any]] = json.loads(STATE_SAMPLES.read_text())


def recorded(sample: dict[str, Any]) -> Recorded:
    state = bytes.fromhex(sample["state"])
    event = decode_event(sample["topic"], state)
    return Recorded(sample["value"]["position"], event, event_hash(state))


def added_fields(sample: dict[str, Any]) -> list[str]:
    """Fields that later versions have besides in such an event; its bytes leave these out."""
    return [name for name in recorded(sample).body.__struct_fields__ if name not in sample["value"]["payload"]]


def salts_in(state: bytes) -> Iterator[bytes]:
    """The salts of an event in the order in which they were taken: those of the parts, and then content and sender of the head."""
    (_, who, what), parts = take_apart(state)
    slots = [slot for part in parts for slot in part[1:]]
    return (bytes(slot)[3:19] for slot in (*slots, what, who) if len(slot) > 1)


def names(sample: dict[str, Any]) -> str:
    return f"{sample['topic']} {sample['value']['version']}"


@pytest.mark.parametrize("sample", [*RECORDED, *THREADS, *STATES], ids=names)
def test_recorded_bytes_are_for_ever(sample: dict[str, Any]) -> None:
    """
    Bytes of every version decode to the values that were written, key order and types of numbers included.

    The hash of stored bytes is what it was: the next event names it. The present version writes the same bytes with the same salts,
    unless it has fields that these lack.
    """
    event = recorded(sample)
    value = event.to_dict()
    added = [value["payload"].pop(name) for name in added_fields(sample)]
    state = bytes.fromhex(sample["state"])

    assert json.dumps(sample["value"]) == json.dumps(value)
    assert [None] * len(added) == added
    assert sample["hash"] == event_hash(state).hex()
    assert added or state == encode_event(event.event, salts_in(state)).state


def test_every_topic_has_a_sample() -> None:
    """A new kind of event, or a new version of one, needs bytes here: run `record.py`."""
    assert {body.TOPIC for body in BODIES} <= {sample["topic"] for sample in (*RECORDED, *THREADS, *STATES)}


def test_every_optional_field_has_a_sample() -> None:
    """A field that was added to an event needs bytes in which it says something: a stream in `record.py` goes on with them."""
    samples = [*RECORDED, *THREADS, *STATES]
    optional = {
        (body.TOPIC, field.name): field.default
        for body in BODIES
        for field in msgspec.structs.fields(body)
        if field.default is not msgspec.NODEFAULT
    }
    said = {
        (sample["topic"], name)
        for sample in samples
        for name, value in sample["value"]["payload"].items()
        if value not in (optional.get((sample["topic"], name)), [])
    }

    assert set[tuple[str, str]]() == optional.keys() - said


def test_the_format_of_directories_changes_with_the_bytes() -> None:
    """
    Older versions refuse a directory by its number, and take records that they do not know for damaged otherwise.

    Where this fails, raise `FORMAT`, and add the new number with the digest to `formats.json`.
    """
    states = [sample["state"] for sample in (*RECORDED, *THREADS, *STATES)]
    formats = json.loads(Path(__file__).with_name("formats.json").read_text())

    assert {**formats, str(FORMAT): sha256("\n".join(states).encode()).hexdigest()} == formats
    assert str(FORMAT) == max(formats, key=int)


def test_recorded_events_are_one_stream() -> None:
    """Together they fold to a chat in its last life, so their hashes chain."""
    chat = ReplayedChat("trip/漢", map(recorded, RECORDED)).chat

    assert chat is not None
    assert ("ada", None, 1_700_000_000_035, 1) == (chat.user_id, chat.title, chat.created_at, chat.message_count)
    assert chat.expires_at is None
