"""Reading of messages in every form."""

import json
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatledger.domain import forms
from chatledger.domain.forms.items import Call, File, Json, Own, Reasoning, Refusal, Result, Text
from chatledger.domain.forms.model import FormName
from chatledger.domain.forms.plain import compact
from chatledger.domain.forms.reading import items_of, known_form, name_of, parts_of, role_of, text_of
from chatledger.domain.search.fields import search_texts
from chatledger.domain.values import Message, Redaction

TEXTS = st.text(st.characters(), max_size=8)
CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Riga"}'}}
USE = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Riga"}}
PNG = "iVBORw0KGgo="
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
RAN = {
    "type": "tool-weather",
    "toolCallId": "c1",
    "state": "output-available",
    "input": {"city": "Riga"},
    "output": {"sky": "grey", "degrees": 9},
}

CASES: list[tuple[str, str | None, Any, str, list[Any]]] = [
    ("text of no form", None, "Riga?", "user", [Text("Riga?")]),
    ("JSON of no form", None, {"a": ["x", 1]}, "user", [Text('{"a":["x",1]}')]),
    ("an unknown form", "acme", {"said": "Riga"}, "user", [Text('{"said":"Riga"}')]),
    ("a UIMessage", "ui", {"id": "1", "role": "user", "parts": [{"type": "text", "text": "Hi"}]}, "user", [Text("Hi")]),
    (
        "a UIMessage with parallel calls: results come after the last of them",
        "ui",
        {"role": "assistant", "parts": [RAN, {**RAN, "toolCallId": "c2"}, {"type": "text", "text": "Grey."}]},
        "assistant",
        [
            Call("c1", "weather", {"city": "Riga"}),
            Call("c2", "weather", {"city": "Riga"}),
            Result("c1", "weather", [Json({"sky": "grey", "degrees": 9})]),
            Result("c2", "weather", [Json({"sky": "grey", "degrees": 9})]),
            Text("Grey."),
        ],
    ),
    (
        "steering ends a step",
        "ui",
        {
            "role": "assistant",
            "parts": [RAN, {"type": "steering-message", "parts": [{"type": "text", "text": "Wait"}]}],
        },
        "assistant",
        [
            Call("c1", "weather", {"city": "Riga"}),
            Result("c1", "weather", [Json({"sky": "grey", "degrees": 9})]),
            Text("Wait"),
        ],
    ),
    (
        "reasoning of Anthropic in a UIMessage",
        "ui",
        {
            "role": "assistant",
            "parts": [
                {"type": "reasoning", "text": "Hm", "providerMetadata": {"anthropic": {"signature": "EqQB"}}},
                {"type": "source-url", "url": "https://example.org"},
            ],
        },
        "assistant",
        [
            Reasoning("Hm", "anthropic", {"signature": "EqQB"}),
            Own("ui", {"type": "source-url", "url": "https://example.org"}),
        ],
    ),
    (
        "an answer of OpenAI",
        "openai",
        {"role": "assistant", "content": "", "refusal": "No.", "tool_calls": [CALL]},
        "assistant",
        [Refusal("No."), Call("call_1", "weather", raw='{"city": "Riga"}')],
    ),
    (
        "a result of OpenAI",
        "openai",
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "Rain."}]},
        "tool",
        [Result("call_1", None, [Text("Rain.")])],
    ),
    ("an item of Responses", "responses", {"role": "user", "content": "Hi"}, "user", [Text("Hi")]),
    (
        "a call of Responses",
        "responses",
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
        "assistant",
        [Call("c1", "weather", raw="{}")],
    ),
    (
        "an output of Responses",
        "responses",
        {"type": "function_call_output", "call_id": "c1", "output": "Rain."},
        "tool",
        [Result("c1", None, "Rain.")],
    ),
    (
        "reasoning of Responses",
        "responses",
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm"}]},
        "assistant",
        [Reasoning("Hm", "responses", {"id": "rs_1"})],
    ),
    (
        "Anthropic's results in a message of the user",
        "anthropic",
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t", "content": [IMAGE], "is_error": True}],
        },
        "tool",
        [Result("t", None, [File("image/png", PNG)], is_error=True)],
    ),
    (
        "Anthropic's results and a text",
        "anthropic",
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}, {"type": "text", "text": "Go"}]},
        "user",
        [Result("t", None, ""), Text("Go")],
    ),
    (
        "Anthropic's thoughts",
        "anthropic",
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm", "signature": ""}, USE]},
        "assistant",
        [Reasoning("Hm"), Call("toolu_1", "weather", {"city": "Riga"})],
    ),
    (
        "Gemini in the keys of its SDK",
        "google",
        {"role": "model", "parts": [{"function_call": {"name": "weather"}, "thought_signature": "AA=="}]},
        "assistant",
        [Call(None, "weather", None, None, "google", "AA==")],
    ),
    (
        "Gemini's responses",
        "google",
        {"role": "user", "parts": [{"functionResponse": {"name": "weather", "response": {"error": "Down"}}}]},
        "tool",
        [Result(None, "weather", "Down", is_error=True)],
    ),
    ("no message at all", "google", ["x"], "user", [Text('["x"]')]),
    ("an empty answer", "google", {"role": "model", "parts": []}, "assistant", []),
]


@pytest.mark.parametrize(
    ("form", "data", "role", "whats"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_reading(form: str | None, data: Any, role: str, whats: list[Any]) -> None:
    """Each block of a message is an item; the role is `tool` where all are results."""
    assert whats == [item.what for item in items_of(form, data, "user")]
    assert role == role_of(form, data)


def test_text_of_any_json_is_its_strings() -> None:
    """Nothing else would be known to be text."""
    assert "a\nb" == text_of(None, {"x": "a", "y": [1, "b"]}) == text_of("acme", {"x": "a", "y": ["b"]})
    assert "Riga?" == text_of("ui", "Riga?")


def test_parts_of_a_call_and_of_a_result() -> None:
    """A result has its call's part where the call is in the same message, else one of its own."""
    call = {"role": "assistant", "content": "See", "tool_calls": [CALL]}
    result = {"role": "tool", "tool_call_id": "call_1", "content": "Rain."}

    assert [
        {"type": "text", "text": "See"},
        {
            "type": "dynamic-tool",
            "toolName": "weather",
            "toolCallId": "call_1",
            "state": "input-available",
            "input": {"city": "Riga"},
        },
    ] == parts_of("openai", call)
    assert ["output-available", "Rain."] == [parts_of("openai", result)[0][key] for key in ("state", "output")]
    assert [RAN] == parts_of("ui", {"role": "assistant", "parts": [RAN]})


def test_search_fields_of_a_foreign_form() -> None:
    """Arguments, results and thoughts of every form are found in their fields."""
    data = {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": "Hm"}, {"type": "text", "text": "See"}, USE],
    }

    assert {"text": "See", "tools": "Riga", "reasoning": "Hm"} == search_texts("anthropic", data, "assistant")
    assert {"tools": "Riga"} == search_texts("openai", {"role": "assistant", "tool_calls": [CALL]}, "assistant")


@given(st.dictionaries(TEXTS, st.none() | st.booleans() | st.integers() | TEXTS | st.floats(), max_size=3))
def test_compact_json_is_that_of_python(value: dict[str, Any]) -> None:
    """Whichever encoder writes it: halves of emoji, large integers and NaN included."""
    assert json.dumps(value, ensure_ascii=False, separators=(",", ":")) == compact(value)


def test_the_type_of_names_has_all_forms_that_are_written() -> None:
    modules = [import_module(f"{forms.__name__}.{module.name}") for module in iter_modules(forms.__path__)]
    built_in = [module.FORM for module in modules if hasattr(module, "FORM")]
    assert all(known_form(form.name) is not None for form in built_in)
    assert sorted(form.name for form in built_in if form.write is not None) == sorted(get_args(FormName))


@pytest.mark.parametrize(
    ("data", "name"),
    [
        ({"type": "user", "message": {"role": "user", "content": ""}}, "user"),
        ({"type": "user", "isMeta": True, "message": {"role": "user", "content": "Caveat"}}, "bookkeeping"),
        ({"type": "summary", "summary": "A trip"}, "bookkeeping"),
    ],
)
def test_what_nobody_said_in_a_transcript_is_bookkeeping(data: Any, name: str) -> None:
    assert name_of(data, "claude-code") == name
    assert role_of("claude-code", data, "event") == ("event" if name == "bookkeeping" else name)


def test_a_message_says_its_role() -> None:
    """By its data where their form says one, else by its name; a redacted one by what is left."""
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "7"}]}
    assert Message(id="m", name="user", data=result, form="anthropic", created_at=0).role == "tool"
    assert Message(id="m", name="human", data="hi", created_at=0).role == "user"
    assert Message(id="m", name="assistant", data=None, created_at=0, redacted=Redaction()).role == "assistant"
