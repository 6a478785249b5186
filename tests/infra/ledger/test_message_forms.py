"""A message keeps the form that it came in: it is stored as it is, with the name of its form, and notes beside it."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, message_to_dict

import chatledger
from chatledger import ContextEngine, InvalidValueError, Ledger, NewMessage, assistant, user
from chatledger.errors import MessageConflictError
from chatledger.forms import to_langchain

USE = {"type": "tool_use", "id": "t", "name": "weather", "input": {"city": "Riga"}}
GIVEN: list[tuple[dict[str, Any], str, str]] = [
    ({"id": "u", "role": "user", "parts": [{"type": "text", "text": "hi"}], "metadata": {"a": 1}}, "ui", "user"),
    ({"role": "user", "content": "hi", "name": "ada", "odd": [1]}, "openai", "user"),
    ({"role": "tool", "tool_call_id": "c", "content": "rain"}, "openai", "tool"),
    ({"type": "function_call", "call_id": "c", "name": "w", "arguments": "{}"}, "responses", "assistant"),
    ({"type": "function_call_output", "call_id": "c", "output": "rain"}, "responses", "tool"),
    ({"role": "assistant", "content": [{**USE, "cache_control": {"type": "ephemeral"}}]}, "anthropic", "assistant"),
    ({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "r"}]}, "anthropic", "tool"),
    ({"role": "model", "parts": [{"functionCall": {"name": "w", "args": {}}}]}, "google", "assistant"),
    ({"parts": [{"text": "hi"}]}, "google", "user"),
    ({"type": "user", "uuid": "x", "message": {"role": "user", "content": "hi"}}, "claude-code", "user"),
    ({"type": "custom-title", "sessionId": "s", "customTitle": "Trip"}, "claude-code", "bookkeeping"),
    ({"type": "system", "uuid": "x", "subtype": "info", "content": "hook"}, "claude-code", "bookkeeping"),
]


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with chatledger.open("memory:") as opened:
        opened.create_chat("c", "ada")
        yield opened


@pytest.mark.parametrize(("given", "form", "name"), GIVEN)
def test_data_are_stored_as_they_came(ledger: Ledger, given: dict[str, Any], form: str, name: str) -> None:
    """Told by their shape or said, appended, added or set; neither what is stored nor what was given is rewritten."""
    before = copy.deepcopy(given)
    stored = [*ledger.append("c", given), *ledger.append("c", copy.deepcopy(given) | {"id": "2"}, form=form)]
    ledger.add_messages("c", [copy.deepcopy(given) | {"id": "3"}], form=form)
    ContextEngine(ledger, "c", "ada").set(copy.deepcopy(given) | {"id": "4"}, form=form).save()

    assert before == given
    assert given == stored[0].data
    assert {(form, name)} == {(one.form, one.name) for one in [*stored, *ledger.get_messages("c")]}
    assert [{**given, "id": "2"}, {**given, "id": "4"}] == [one.data for one in ledger.get_messages("c")[-2:]]


def test_forms_survive_reopening_and_rebuilding(tmp_path: Path) -> None:
    """The log says the form of each message; the index reads it from there."""
    with chatledger.open(tmp_path) as ledger:
        ledger.create_chat("c", "ada")
        written = ledger.append("c", [given for given, _, _ in GIVEN])
        ledger.append("c", NewMessage("note", {"role": "x", "content": 1}, None, id="n", metadata={"page": 3}))
        ledger.rebuild()
        assert written == ledger.get_messages("c")[:-1]
        last = ledger.get_message("n")
        assert last is not None
        assert (None, {"page": 3}, {"page": 3}) == (last.form, last.notes, dict(last.metadata))
        assert ledger.verify().message_count == len(written) + 1


@pytest.mark.parametrize("form", ["acme", "acme-2"])
def test_a_form_may_have_any_name(ledger: Ledger, form: str) -> None:
    """The message is kept, and its strings are its text."""
    given = {"role": "robot", "says": ["beep", {"and": "boop"}]}
    (stored,) = ledger.append("c", given, form=form)

    assert (form, "robot", given, "robot\nbeep\nboop") == (stored.form, stored.name, stored.data, stored.text)
    assert [stored] == [hit.message for hit in ledger.search("boop")]


@pytest.mark.parametrize(
    ("given", "form", "words"),
    [
        ({"text": "hi"}, None, r'form="openai"'),
        ({"role": "user"}, None, r'form="openai"'),
        ({"says": "hi"}, "acme", "says no role"),
        ({"content": "hi"}, "openai", "role"),
        ({"role": "user", "content": "hi"}, "", "must not be empty"),
        ({"role": "user", "content": "hi"}, 5, "must be text"),
        ({"role": "user", "content": "hi"}, "ui", "says no role"),
    ],
)
def test_what_has_no_form_is_refused(ledger: Ledger, given: Any, form: Any, words: str) -> None:
    """In `set` too; the error says what can be done."""
    engine = ContextEngine(ledger, "c", "ada")
    for call in (lambda: ledger.append("c", given, form=form), lambda: engine.set(given, form=form)):
        with pytest.raises(InvalidValueError, match=words):
            call()
    assert (ledger.get_messages("c"), engine.pending) == ([], [])


def test_a_form_is_said_of_mappings_alone(ledger: Ledger) -> None:
    """What `user` makes is a UIMessage, text is text, and a `NewMessage` says its own."""
    shared = {"role": "user", "content": "hi"}
    stored = ledger.append(
        "c",
        [shared, user("hi"), assistant("ho"), "hi", NewMessage("user", shared), NewMessage("x", [1])],
        form="anthropic",
    )

    assert ["anthropic", "ui", "ui", None, "openai", None] == [one.form for one in stored]
    assert ("user", "hi") == (stored[3].name, stored[3].data)


@pytest.mark.parametrize(
    ("draft", "form"),
    [
        (NewMessage("user", {"role": "user", "content": "hi"}), "openai"),
        (NewMessage("user", {"role": "user", "content": "hi"}, None), None),
        (NewMessage("user", {"role": "user", "content": "hi"}, "acme"), "acme"),
        (NewMessage("user", "hi"), None),
        (NewMessage("event", {"kind": "opened"}), None),
    ],
)
def test_a_draft_says_its_form_or_is_looked_at(ledger: Ledger, draft: NewMessage, form: str | None) -> None:
    """Given it counts, None included; not given the shape tells it."""
    (stored,) = ledger.append("c", draft)
    ContextEngine(ledger, "e", "ada").set(chatledger.message(draft)).save()

    assert (draft.data, form) == (stored.data, stored.form)
    assert [(draft.data, form)] == [(one.data, one.form) for one in ledger.get_messages("e")]


@pytest.mark.parametrize("form", ["ui", "openai", "responses", "anthropic", "google", "claude-code", "langchain"])
def test_a_message_of_an_api_is_an_object(ledger: Ledger, form: str) -> None:
    with pytest.raises(InvalidValueError, match=form):
        ledger.append("c", NewMessage("user", "hi", form))


def test_an_object_of_langchain_is_stored_as_langchain_writes_it(ledger: Ledger) -> None:
    """Under its own id; and its dict is the same message."""
    message = AIMessage("Let me look.", id="a1", tool_calls=[{"name": "w", "args": {}, "id": "c"}])
    (stored,) = ledger.append("c", message)
    written = message_to_dict(message)

    assert ("a1", "langchain", "assistant", "ai") == (stored.id, stored.form, stored.name, stored.data["type"])
    assert written["data"]["tool_calls"] == stored.data["data"]["tool_calls"]
    assert [message] == to_langchain([stored])[:1]  # and an answer to the call, which is open
    assert "langchain" == ledger.append("c", {"type": "ai", "data": {"content": "hi"}})[0].form


def test_an_edit_is_told_under_its_id_and_stored_as_it_came(ledger: Ledger) -> None:
    """So whoever sends back what it was told changes nothing (SM-45)."""
    engine = ContextEngine(ledger, "c", "ada").set(user("one", id="m1"))
    engine.save()
    edited = engine.set(user("two", id="m1")).save().id_map["m1"]
    told = engine.resolve().messages

    stored = ledger.get_message(edited)
    assert stored is not None
    assert "m1" == stored.data["id"]
    assert [edited] == [one["id"] for one in told]
    assert {} == engine.set(*told).save().id_map
    assert ["main", "main-v2"] == [branch.name for branch in ledger.list_branches("c")]


NOTES: list[tuple[dict[str, Any], dict[str, Any], bool]] = [
    ({}, {}, True),
    ({"metadata": {"a": 1}}, {"metadata": {"a": 1}}, True),
    ({"metadata": {"a": 1}}, {"metadata": {"a": 2}}, False),
    ({"metadata": {"a": 1}}, {}, False),
    ({"metadata": {}}, {}, True),
    ({"metadata": {"chatledger": {"cache": {}}}}, {}, True),
    ({"metadata": {"a": 1, "chatledger": {"cache": {}}}}, {"metadata": {"a": 1}}, True),
    ({"form": "acme"}, {"form": "acme"}, True),
    ({"form": "acme"}, {"form": None}, False),
    ({"form": "acme"}, {"form": "openai"}, False),
    ({"type": "message"}, {"type": "other"}, False),
    ({"sender_id": "ada"}, {}, False),
]


@pytest.mark.parametrize(("first", "second", "is_same"), NOTES)
def test_what_is_the_same_message(
    ledger: Ledger, first: dict[str, Any], second: dict[str, Any], *, is_same: bool
) -> None:
    """Its name, type, form, attribution, data and what the writer noted; not what this library noted."""
    data = {"role": "user", "content": "hi"}
    ledger.append("c", NewMessage("user", data, id="m", **first))
    if is_same:
        ledger.append("c", NewMessage("user", data, id="m", **second))
    else:
        with pytest.raises(MessageConflictError):
            ledger.append("c", NewMessage("user", data, id="m", **second))
    assert 1 == len(ledger.get_messages("c"))


def test_data_that_differ_in_their_bytes_alone_are_the_same(ledger: Ledger) -> None:
    """The order of keys says nothing; an id in data of another form than `ui` does."""
    ledger.append("c", NewMessage("user", {"role": "user", "content": "hi"}, id="m"))
    ledger.append("c", NewMessage("user", {"content": "hi", "role": "user"}, id="m"))
    ledger.append("c", NewMessage("user", {"id": "1", "role": "user", "parts": []}, id="u"))
    ledger.append("c", NewMessage("user", {"id": "2", "role": "user", "parts": []}, id="u"))
    with pytest.raises(MessageConflictError):
        ledger.append("c", NewMessage("user", {"id": "1", "role": "user", "content": "hi"}, id="m"))

    assert ["m", "u"] == [one.id for one in ledger.get_messages("c")]


def test_metadata_are_those_of_the_message_and_the_notes_over_them(ledger: Ledger) -> None:
    ui = {"role": "user", "parts": [], "metadata": {"a": 1, "b": 1}}
    stored = ledger.append(
        "c",
        [
            NewMessage("user", ui, metadata={"b": 2, "c": 2}),
            NewMessage("user", {"metadata": {"a": 1}}, metadata={"c": 2}),
            user("hi", metadata={"locale": "de"}),
        ],
    )

    assert [{"a": 1, "b": 2, "c": 2}, {"c": 2}, {"locale": "de"}] == [dict(one.metadata) for one in stored]
    assert ui == stored[0].data
    assert "metadata" not in stored[2].data
    shown = stored[0].to_dict()
    assert ("ui", ui, {"b": 2, "c": 2}, "") == tuple(shown[key] for key in ("form", "data", "notes", "text"))


def test_what_programs_put_in_counts_as_no_turn(ledger: Ledger) -> None:
    """Whether that is noted beside the message, of whatever form, or stands in a UIMessage."""
    ledger.append(
        "c",
        [
            user("one"),
            user("nudge", metadata={"synthetic": True}),
            NewMessage("user", {"role": "user", "content": "nudge"}, metadata={"synthetic": {"once_ids": ["w"]}}),
            {"role": "user", "parts": [], "metadata": {"synthetic": True}},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "r"}]},
        ],
    )

    assert 1 == ContextEngine(ledger, "c", "ada").turn_count()
