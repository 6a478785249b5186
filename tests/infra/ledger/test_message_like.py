"""Messages that `append` takes: ours, dicts as the APIs have them, objects of SDKs, one or several."""

from pkgutil import resolve_name
from typing import Any

import pytest

import chatledger
from chatledger import InvalidValueError, Ledger, Message, NewMessage, assistant, assistant_text, user
from chatledger.forms import to_anthropic, to_google, to_openai, to_responses

SAID: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Four degrees.", "annotations": []}],
}


def append(ledger: Ledger, messages: Any) -> list[Message]:
    ledger.upsert_chat("c", "ada")
    return ledger.append("c", messages)


@pytest.mark.parametrize(
    ("given", "name", "text", "back"),
    [
        ({"role": "user", "content": "hello giraffe"}, "user", "hello giraffe", to_openai),
        ({"role": "tool", "tool_call_id": "c1", "content": "4 °C"}, "tool", "", to_openai),
        (SAID, "assistant", "Four degrees.", to_responses),
        ({"type": "function_call_output", "call_id": "c1", "output": "4 °C"}, "tool", "", to_responses),
        (
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "4 °C"}]},
            "tool",
            "",
            to_anthropic,
        ),
        ({"role": "model", "parts": [{"text": "Four degrees."}]}, "assistant", "Four degrees.", to_google),
    ],
)
def test_a_dict_is_stored_as_its_api_means_it(given: dict[str, Any], name: str, text: str, back: Any) -> None:
    with chatledger.open("memory:") as ledger:
        (message,) = append(ledger, [given])
        assert (message.name, message.text) == (name, text)
        assert back(ledger.get_messages("c"), open_calls="keep") == [given]


def test_a_ui_message_keeps_its_id() -> None:
    given = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}
    with chatledger.open("memory:") as ledger:
        assert [message.id for message in append(ledger, given)] == ["m1"]
        assert append(ledger, given) == append(ledger, [given])
        assert ledger.get_message("m1").data == given  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "given",
    [
        user("hi"),
        NewMessage("user", "hi"),
        {"role": "user", "content": "hi"},
        {"id": "m1", "role": "user", "parts": []},
    ],
)
def test_one_message_needs_no_list(given: Any) -> None:
    with chatledger.open("memory:") as ledger:
        assert len(append(ledger, given)) == 1


@pytest.mark.xdist_group("sdks")
def test_an_object_of_an_sdk_needs_no_list() -> None:
    given = resolve_name("openai.types.responses:ResponseOutputMessage").model_validate(SAID)
    with chatledger.open("memory:") as ledger:
        assert [message.text for message in append(ledger, given)] == ["Four degrees."]


def test_only_the_words_of_a_dict_are_found() -> None:
    with chatledger.open("memory:") as ledger:
        append(ledger, [{"role": "user", "content": "hello giraffe"}, SAID])
        assert len(ledger.search("giraffe")) == len(ledger.search("degrees")) == 1
        assert ledger.search("role OR content OR user OR output_text") == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([5], r"NewMessage\(name, data\)"),
        ([{"text": "hi"}], r'form="openai"'),
        (None, r"chatledger\.user\(text\)"),
        ([{"role": "user", "content": 5}], "is no message of the form 'openai', or it says no role"),
    ],
)
def test_a_mistake_is_told_with_the_helper(given: Any, words: str) -> None:
    with chatledger.open("memory:") as ledger:
        with pytest.raises(InvalidValueError, match=words):
            append(ledger, given)
        assert ledger.get_messages("c") == []


@pytest.mark.parametrize(
    "message",
    [
        user("hi", metadata={"model": "x"}),
        assistant("hi", metadata={"model": "x"}),
        assistant_text("hi", metadata={"model": "x"}),
        NewMessage("user", "hi", metadata={"model": "x"}),
        NewMessage("user", {"parts": [{"type": "text", "text": "hi"}]}, metadata={"model": "x"}),
        NewMessage(
            "user", {"parts": [{"type": "text", "text": "hi"}], "metadata": {"model": "y"}}, metadata={"model": "x"}
        ),
    ],
)
def test_metadata_come_with_a_message(message: Any) -> None:
    with chatledger.open("memory:") as ledger:
        (stored,) = append(ledger, [message])
        assert (stored.text, stored.metadata, stored.notes) == ("hi", {"model": "x"}, {"model": "x"})


def test_an_engine_keeps_metadata_too() -> None:
    with chatledger.open("memory:") as ledger:
        engine = chatledger.ContextEngine(ledger, "c", "ada")
        engine.set(
            user("hi", metadata={"a": 1}), chatledger.message(NewMessage("user", "ho", metadata={"b": 2}))
        ).save()
        assert [dict(message.metadata) for message in ledger.get_messages("c")] == [{"a": 1}, {"b": 2}]


def test_a_message_without_metadata_has_none() -> None:
    with chatledger.open("memory:") as ledger:
        assert [dict(stored.metadata) for stored in append(ledger, [user("hi"), NewMessage("user", [1])])] == [{}, {}]


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (NewMessage("user", "hi", metadata=[1]), "must be an object"),  # type: ignore[arg-type]
        (NewMessage("user", "hi", metadata={"a": object()}), "not a JSON value"),
    ],
)
def test_impossible_metadata_are_refused(message: NewMessage, words: str) -> None:
    with chatledger.open("memory:") as ledger, pytest.raises(InvalidValueError, match=words):
        append(ledger, [message])
