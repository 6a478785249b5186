"""Items of the OpenAI Responses API: stored as UIMessages, given back as they were, and made of any other stored message."""

import functools
from pkgutil import resolve_name
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from tests.support.in_form import in_form
from tests.support.json_values import json_values, objects, texts
from tests.support.soak import examples

from chatledger.codecs import to_anthropic, to_openai, to_responses
from chatledger.domain.context.formats.responses import is_responses_item
from chatledger.domain.context.formats.stored import CODECS
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.forms.reading import text_of
from chatledger.domain.limits import same_json

pytestmark = pytest.mark.xdist_group("sdks")  # one worker imports them, which takes seconds


@functools.cache
def api() -> TypeAdapter[Any]:
    return TypeAdapter(resolve_name("openai.types.responses:ResponseInputItemParam"))


SAID: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Four degrees, and rain.", "annotations": []}],
}
CALL: dict[str, Any] = {
    "type": "function_call",
    "call_id": "call_1",
    "name": "weather",
    "arguments": '{"city":"Riga"}',
    "id": "fc_1",
}
OUTPUT: dict[str, Any] = {"type": "function_call_output", "call_id": "call_1", "output": "4 °C, rain"}
THOUGHT: dict[str, Any] = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "The forecast decides."}],
    "encrypted_content": "gAAA",
}

Values = st.SearchStrategy[Any]


def shape(optional: dict[str, Values] | None = None, **fields: Values) -> Values:
    return st.fixed_dictionaries(fields, optional=optional or {})


more: dict[str, Values] = {"id": texts, "status": texts, "x": json_values}
content_parts = st.one_of(
    shape({"annotations": json_values}, type=st.sampled_from(["input_text", "output_text"]), text=texts | json_values),
    shape(type=st.just("refusal"), refusal=texts),
    shape({"detail": texts, "file_id": texts, "x": json_values}, type=st.just("input_image"), image_url=texts),
    shape({"file_data": texts, "file_id": texts, "file_url": texts, "filename": texts}, type=st.just("input_file")),
    json_values,
)
content = texts | st.lists(content_parts, max_size=3)
roles = st.sampled_from(["user", "assistant", "system", "developer", "critic"])
said = shape({"type": st.just("message"), **more}, role=roles, content=content)
written = st.sampled_from(['{"city":"Riga"}', '{"city": "Riga"}', "{bad", "", "null"]) | texts
calls = st.one_of(
    shape(more, type=st.just("function_call"), call_id=texts, name=texts, arguments=written),
    shape(more, type=st.just("custom_tool_call"), call_id=texts, name=texts, input=written),
)
outputs = shape(
    more,
    type=st.sampled_from(["function_call_output", "custom_tool_call_output"]),
    call_id=texts,
    output=content | json_values,
)
thoughts = shape(
    {"encrypted_content": texts | st.none(), "content": json_values, **more},
    type=st.just("reasoning"),
    summary=json_values | st.lists(shape(type=st.just("summary_text"), text=texts), max_size=2),
)


def typed(rest: dict[str, Any], kind: str) -> dict[str, Any]:
    return {**rest, "type": kind}


others = st.builds(typed, objects, st.sampled_from(["web_search_call", "message", "function_call", "reasoning"]))
items = said | calls | outputs | thoughts | others


def stored(item: Any) -> Any:
    return CODECS["responses"](item, "m1")


@given(item=items)
@settings(max_examples=examples(400))
def test_an_item_comes_back_as_it_was(item: dict[str, Any]) -> None:
    fragment = in_form("responses", item, "m1")
    assert same_json(fragment.data, item)
    assert same_json(to_responses([fragment]), [item])


@given(item=items)
def test_every_item_can_be_given_to_the_other_apis(item: dict[str, Any]) -> None:
    fragment = in_form("responses", item, "m1")
    assert {message["role"] for message in to_openai([fragment])} <= {
        "user",
        "assistant",
        "tool",
        "system",
        "developer",
    }
    assert {message["role"] for message in to_anthropic([fragment])} <= {"user", "assistant", "system"}


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (SAID, "Four degrees, and rain."),
        ({"role": "user", "content": "And the wind?"}, "And the wind?"),
        ({"role": "user", "content": [{"type": "input_text", "text": "And the wind?"}]}, "And the wind?"),
        (OUTPUT, ""),  # which is found in what tools said
        (CALL, ""),
        (THOUGHT, ""),
    ],
)
def test_the_text_is_what_was_said(item: dict[str, Any], text: str) -> None:
    assert text_of("responses", item) == text


@pytest.mark.parametrize("item", [SAID, CALL, OUTPUT, THOUGHT])
def test_usual_items_become_parts_that_everybody_knows(item: dict[str, Any]) -> None:
    kinds = {part["type"] for part in stored(item)["parts"]}
    assert kinds <= {"text", "reasoning", "dynamic-tool"}


def test_a_turn_of_items_can_be_given_to_other_apis() -> None:
    turn = [in_form("responses", item, f"m{n}") for n, item in enumerate([THOUGHT, CALL, OUTPUT, SAID])]
    assert [message["role"] for message in to_openai(turn)] == ["assistant", "tool", "assistant"]
    assert [message["role"] for message in to_anthropic(turn)] == ["assistant", "user", "assistant"]


def test_objects_of_the_sdk_are_taken() -> None:
    call = resolve_name("openai.types.responses:ResponseFunctionToolCall").model_validate(CALL)
    message = resolve_name("openai.types.responses:ResponseOutputMessage").model_validate(SAID)
    assert to_responses([in_form("responses", call, "m1"), in_form("responses", message, "m2")]) == [
        CALL,
        SAID,
    ]


def test_a_whole_turn_becomes_items_in_order() -> None:
    tool = {"type": "tool-weather", "toolCallId": "c1", "state": "output-available", "input": {"city": "Riga"}}
    turn = {
        "id": "m1",
        "role": "assistant",
        "parts": [
            {"type": "text", "text": "Let me look."},
            {**tool, "output": "4 °C"},
            {"type": "text", "text": "Four degrees."},
        ],
    }
    found = to_responses([("assistant", turn)])
    assert found == [
        {"role": "assistant", "content": "Let me look."},
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city":"Riga"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "4 °C"},
        {"role": "assistant", "content": "Four degrees."},
    ]
    for item in found:
        api().validate_python(item)


@pytest.mark.parametrize("item", [SAID, CALL, OUTPUT, THOUGHT, {"type": "item_reference", "id": "x"}])
def test_an_item_is_known_by_its_type(item: dict[str, Any]) -> None:
    assert is_responses_item(item)


@pytest.mark.parametrize(
    "other", ["text", {"role": "user", "content": "hi"}, {"role": "user", "parts": []}, {"name": "x"}]
)
def test_what_every_api_has_is_not_taken_for_one(other: Any) -> None:
    assert not is_responses_item(other)


@pytest.mark.parametrize(("item", "words"), [({"content": "x"}, "needs a type")])
def test_what_is_no_item_is_refused(item: Any, words: str) -> None:
    with pytest.raises(InvalidValueError, match=words):
        in_form("responses", item, "m1")
