"""Messages of one API for another one: calls stay calls, results results; and no stored parts stop a conversion."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.json_values import json_values, texts
from tests.support.soak import examples

import chatledger
from chatledger.codecs import to_anthropic, to_google, to_openai, to_responses
from chatledger.errors import InvalidValueError

APIS: dict[str, tuple[Callable[[Any], list[dict[str, Any]]], tuple[dict[str, Any], dict[str, Any]]]] = {
    "openai": (
        to_openai,
        (
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "rain"},
        ),
    ),
    "responses": (
        to_responses,
        (
            {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "rain"},
        ),
    ),
    "anthropic": (
        to_anthropic,
        (
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "weather", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "rain"}]},
        ),
    ),
    "google": (
        to_google,
        (
            {"role": "model", "parts": [{"functionCall": {"name": "weather", "id": "c1", "args": {}}}]},
            {
                "role": "user",
                "parts": [{"functionResponse": {"name": "c1", "id": "c1", "response": {"output": "rain"}}}],
            },
        ),
    ),
}
"""Of each API: what gives its messages, and the call of a tool and its result there."""


@pytest.mark.parametrize("source", APIS)
@pytest.mark.parametrize("target", APIS)
def test_a_result_is_one_for_every_api(source: str, target: str) -> None:
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("trip", "ada")
        stored = ledger.append("trip", list(APIS[source][1]))
    convert, expected = APIS[target]
    told = convert(stored)
    if source == "google" != target:  # its results are objects
        told = json.loads(json.dumps(told).replace(json.dumps('{"output":"rain"}'), '"rain"'))

    assert told == list(expected)


def test_text_beside_a_result_stays_where_it_is() -> None:
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "rain"}
    message: Any = ("user", {"role": "user", "content": [result, {"type": "text", "text": "thanks"}]})

    response = {"name": "c1", "id": "c1", "response": {"output": "rain"}}
    assert to_google([message]) == [{"role": "user", "parts": [{"functionResponse": response}, {"text": "thanks"}]}]


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


states = [
    "input-available",
    "output-available",
    "output-error",
    "output-denied",
    "approval-responded",
    "input-streaming",
]
parts = json_values | some(
    type=st.sampled_from(
        ["text", "reasoning", "file", "tool-x", "dynamic-tool", "step-start", "steering-message", "data-google"]
    )
    | json_values,
    **dict.fromkeys(["text", "input", "output", "errorText", "toolName", "url", "mediaType", "data"], json_values),
    **dict.fromkeys(["rawInput", "parts", "role", "providerReference"], json_values),
    **dict.fromkeys(["providerMetadata", "callProviderMetadata", "approval"], json_values),
    toolCallId=texts | json_values,
    state=st.sampled_from(states) | json_values,
)


@given(
    role=st.sampled_from(["user", "assistant", "system", "tool", "critic"]) | json_values,
    stored=st.lists(parts, max_size=3),
)
@settings(max_examples=examples(50))
def test_no_stored_parts_stop_a_conversion(role: Any, stored: list[Any]) -> None:
    """Whatever somebody stored as a UIMessage, every API gets a list of messages, or an error of ours."""
    for convert, _ in APIS.values():
        try:
            assert isinstance(convert([("user", {"role": role, "parts": stored})]), list)
        except InvalidValueError:
            continue
