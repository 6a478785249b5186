"""Events as JSON: what the feed, webhooks and the command line show."""

import msgspec
from tests.support.cases import case
from tests.support.stories import CHAT, Story, user

from chatledger.domain.chat.events import ChatCreated, Event, MessagesAppended, Recorded


def test_an_event_is_shown_with_its_envelope() -> None:
    """All names are part of the interface; hashes are in hex, and the kind is without its schema version."""
    event = Event(
        CHAT,
        3,
        "e3",
        1_700_000_000_001,
        b"\x01\xab",
        ChatCreated("ada", "T", {"k": 1}, "b1"),
        0,
        "me",
        "co",
        "ca",
        "cmd",
    )
    recorded = Recorded(9, event, b"\x02\xcd")
    shown = {
        "position": 9,
        "event_id": "e3",
        "type": "chat_created",
        "schema_version": 2,
        "chat_id": CHAT,
        "version": 3,
        "occurred_at": 1_700_000_000_001,
        "actor": "me",
        "correlation_id": "co",
        "causation_id": "ca",
        "command_id": "cmd",
        "hash": "02cd",
        "previous_hash": "01ab",
        "payload": {
            "user_id": "ada",
            "title": "T",
            "metadata": {"k": 1},
            "branch_id": "b1",
            "created_at": None,
            "expires_at": None,
            "updated_at": None,
            "branch_created_at": None,
        },
    }

    assert shown == recorded.to_dict()
    assert {**shown, "occurred_at": "2023-11-14T22:13:20.001Z"} == recorded.to_dict(times="iso")


def test_every_payload_is_json_of_the_fields_of_its_kind() -> None:
    """Values within values too, such as messages."""
    story = Story().chain("m1")
    story.append(user("m2", {"parts": []}))
    for recorded in story.events:
        with case(recorded.type):
            payload = recorded.to_dict()["payload"]
            assert msgspec.to_builtins(recorded.body) == payload
            assert recorded.body.__struct_fields__ == tuple(payload)
            assert msgspec.json.encode(payload)
    assert isinstance(recorded.body, MessagesAppended)
    assert payload["messages"][0]["data"] == {"parts": []}
