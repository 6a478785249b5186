"""Old logs open for ever: the bytes in `events.json` were written once and are never changed, see `record.py`."""

import json
from typing import Any

import pytest
from tests.recorded.record import SAMPLES

from chatledger.domain.codec import decode_event, encode_event, event_hash
from chatledger.domain.events import BODIES, Recorded
from chatledger.domain.folded import FoldedChat

RECORDED: list[dict[str, Any]] = json.loads(SAMPLES.read_text())


def recorded(sample: dict[str, Any]) -> Recorded:
    state = bytes.fromhex(sample["state"])
    event = decode_event(sample["topic"], state)
    return Recorded(sample["value"]["position"], event, event_hash(sample["topic"], state))


def names(sample: dict[str, Any]) -> str:
    return f"{sample['topic']} {sample['value']['version']}"


@pytest.mark.parametrize("sample", RECORDED, ids=names)
def test_recorded_bytes_have_their_meaning(sample: dict[str, Any]) -> None:
    """Bytes of every version decode to the values that were written, key order and types of numbers included."""
    assert json.dumps(sample["value"]) == json.dumps(recorded(sample).to_dict())


@pytest.mark.parametrize("sample", RECORDED, ids=names)
def test_recorded_hashes_match(sample: dict[str, Any]) -> None:
    """The hash of stored bytes is what it was: the next event names it."""
    assert sample["hash"] == event_hash(sample["topic"], bytes.fromhex(sample["state"])).hex()


@pytest.mark.parametrize("sample", RECORDED, ids=names)
def test_recorded_bytes_are_written_again_alike(sample: dict[str, Any]) -> None:
    """The present version writes the same bytes; when it adds a field, this shows that stored hashes are of stored bytes."""
    assert sample["state"] == encode_event(recorded(sample).event).hex()


def test_every_topic_has_a_sample() -> None:
    """A new kind of event, or a new version of one, needs bytes here: run `record.py`."""
    assert {body.TOPIC for body in BODIES} <= {sample["topic"] for sample in RECORDED}


def test_recorded_events_are_one_stream() -> None:
    """Together they fold to a chat in its second life, so their hashes chain."""
    chat = FoldedChat("trip/漢", map(recorded, RECORDED)).chat

    assert chat is not None
    assert ("", None, 1_600_000_000_000, 0) == (chat.user_id, chat.title, chat.created_at, chat.message_count)
