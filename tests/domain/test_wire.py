"""Values on the wire: `to_dict`, and what pydantic makes of them."""

import importlib
import inspect
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from pydantic import BaseModel, TypeAdapter, ValidationError
from tests.support.cases import case
from tests.support.json_values import json_values

import chatledger
import chatledger.events
from chatledger import Chat, Graph, GraphNode, Message, NewMessage, SearchHit, SearchHits
from chatledger.domain.wire import Value, encode_json, iso, to_json

INPUTS = {
    # What an export has of a versioned value is as the log has it, in bytes: it is written as lines, and read again.
    "ImportedValue",
    "ImportedVersion",
    "Piece",
    "FieldRef",
    "StoredWrite",
    "Call",
    "File",
    "Form",
    "FormItem",
    "Json",
    "Own",
    "Reasoning",
    "Refusal",
    "Result",
    "Rules",
    "Text",
    "Translated",
    "WrittenTurn",
    "Fragment",
    "LoadContext",
    "ReplayAnswer",
    "Limits",
    "Login",
    "Principal",
    "Endpoint",
    "Named",
    "ReminderContext",
    "ChainSummary",
    "ChatImport",
    "Fit",
    "Save",
}
"""Structs that an application makes or computes with, and sends nowhere."""


class Turn(BaseModel):
    """A model of an application that holds our values."""

    chat: Chat
    messages: list[Message]


def make_message(data: Any = "hi", created_at: int = 1_000) -> Message:
    return Message(id="m", chat_id="c", name="user", data=data, created_at=created_at)


def public_structs() -> list[type[msgspec.Struct]]:
    files = Path(chatledger.__file__).parent.glob("[!_]*.py")
    modules = [chatledger, *(importlib.import_module(f"chatledger.{file.stem}") for file in files)]
    values = (getattr(module, name) for module in modules for name in getattr(module, "__all__", ()))
    return sorted(
        {v for v in values if inspect.isclass(v) and issubclass(v, msgspec.Struct)}, key=lambda cls: cls.__name__
    )


def test_every_public_value_goes_over_the_wire() -> None:
    left_out = {cls.__name__ for cls in public_structs() if not issubclass(cls, (Value, chatledger.events.Body))}
    assert left_out == INPUTS


def test_pydantic_describes_what_to_dict_gives() -> None:
    for cls in public_structs():
        if issubclass(cls, Value):
            with case(cls):
                schema = TypeAdapter(cls).json_schema(mode="serialization")
                if cls.to_dict is Value.to_dict:
                    tags = {cls.__struct_config__.tag_field} - {None}
                    assert {*schema["properties"], *tags} == {*cls.__struct_fields__, *cls.derived, *tags}


def test_a_message_shows_its_text_and_every_field() -> None:
    data = {"parts": [{"type": "text", "text": "Riga?"}]}
    message = msgspec.structs.replace(make_message(data), form="ui", notes={"page": 3})
    assert message.to_dict() == {
        "id": "m",
        "chat_id": "c",
        "parent_id": None,
        "name": "user",
        "type": None,
        "data": data,
        "form": "ui",
        "notes": {"page": 3},
        "text": "Riga?",
        "created_at": 1_000,
        "sender_id": None,
        "agent_id": None,
        "reply_to": None,
        "copied_from": None,
        "merged_from": [],
        "annotation": None,
        "redacted": None,
        "is_stale": False,
        "is_hidden": False,
    }


def test_times_are_milliseconds_or_iso_in_inner_values_too() -> None:
    graph = Graph(
        chat_id="c",
        nodes=[GraphNode(id="m", parent_id=None, role="user", content="hi", created_at=1_772_357_400_250)],
        branches=[],
        checkpoints=[],
    )
    assert graph.to_dict()["nodes"][0]["created_at"] == 1_772_357_400_250
    assert graph.to_dict(times="iso")["nodes"][0]["created_at"] == "2026-03-01T09:30:00.250Z"


@pytest.mark.parametrize(
    ("milliseconds", "written"), [(-1, "1969-12-31T23:59:59.999Z"), (2**63, 2**63), (-(2**62), -(2**62))]
)
def test_times_beyond_the_calendar_stay_numbers(milliseconds: int, written: str | int) -> None:
    assert iso(milliseconds) == written


def test_only_times_are_written_as_such() -> None:
    """Neither numbers of other fields, nor metadata with a key like a time."""
    chat = Chat(id="c", user_id="u", created_at=0, updated_at=0, metadata={"seen_at": 5}, message_count=3)
    written = chat.to_dict(times="iso")
    assert (written["metadata"], written["message_count"]) == ({"seen_at": 5}, 3)


def test_what_to_dict_gave_is_a_copy() -> None:
    message = make_message({"parts": []})
    message.to_dict()["data"]["parts"].append("spoilt")
    assert message.data == {"parts": []}


@given(data=json_values)
def test_a_model_survives_json(data: Any) -> None:
    turn = Turn(chat=Chat(id="c", user_id="u", created_at=0, updated_at=0), messages=[make_message(data)])
    assert Turn.model_validate_json(turn.model_dump_json()) == turn
    assert Turn.model_validate(turn.model_dump()) == turn
    assert json.loads(turn.model_dump_json())["messages"][0] == json.loads(json.dumps(make_message(data).to_dict()))


@given(data=json_values)
def test_what_is_encoded_is_what_to_json_gives(data: Any) -> None:
    value = [make_message([data]), {"a": data}, data]
    assert encode_json(value) == msgspec.json.encode(to_json(value))


def test_a_new_message_is_taken_from_a_request() -> None:
    given = TypeAdapter(NewMessage).validate_json('{"name": "user", "data": "hi"}')
    assert given == NewMessage(name="user", data="hi")


@pytest.mark.parametrize("body", ['{"name": "user"}', '{"name": 1, "data": "hi"}', "[]"])
def test_a_wrong_request_is_refused_by_pydantic(body: str) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(NewMessage).validate_json(body)


def test_search_hits_are_a_list_for_pydantic_and_say_more_as_a_dict() -> None:
    hits = SearchHits([SearchHit(message=make_message(), rank=-0.5, snippet="hi", matches=[[0, 2]])], is_degraded=True)
    assert hits.to_dict() == {"hits": [hits[0].to_dict()], "is_degraded": True, "pending": 0}
    assert json.loads(TypeAdapter(SearchHits).dump_json(hits)) == [hits[0].to_dict()]


def test_an_event_is_written_by_its_own_to_dict() -> None:
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("c", "u")
        (event,) = ledger.history("c")
    assert json.loads(TypeAdapter(list[chatledger.Recorded]).dump_json([event])) == [event.to_dict()]
    assert event.to_dict(times="iso")["occurred_at"] == iso(event.event.occurred_at)
