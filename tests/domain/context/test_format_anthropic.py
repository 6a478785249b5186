"""Messages of the Anthropic API: stored as UIMessages, given back as they were, and made of any other stored message."""

import functools
from pkgutil import resolve_name
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from tests.support.in_form import in_form
from tests.support.json_values import ids, json_values, objects, texts
from tests.support.soak import examples

from chatledger.codecs import to_anthropic, to_openai
from chatledger.domain.context.formats.anthropic import is_anthropic_message
from chatledger.domain.context.formats.stored import CODECS
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.forms.reading import text_of
from chatledger.domain.limits import same_json

pytestmark = pytest.mark.xdist_group("sdks")  # one worker imports them, which takes seconds


@functools.cache
def api() -> TypeAdapter[Any]:
    return TypeAdapter(resolve_name("anthropic.types:MessageParam"))


PNG = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
USE = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Riga"}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "4 °C, rain"}
THOUGHT = {"type": "thinking", "thinking": "The forecast decides.", "signature": "EqQB"}

Values = st.SearchStrategy[Any]


def shape(optional: dict[str, Values] | None = None, **fields: Values) -> Values:
    return st.fixed_dictionaries(fields, optional=optional or {})


more: dict[str, Values] = {"cache_control": json_values, "citations": json_values, "x": json_values}
sources = st.one_of(
    shape(type=st.just("base64"), media_type=texts | st.just("image/png"), data=texts),
    shape(type=st.just("url"), url=texts | st.just("https://example.org/a.png")),
    shape(type=st.just("file"), file_id=texts),
    json_values,
)
text_blocks = shape(more, type=st.just("text"), text=texts | json_values)
media_blocks = shape(more, type=st.sampled_from(["image", "document"]), source=sources)
thoughts = shape(more, type=st.just("thinking"), thinking=texts, signature=texts) | shape(
    type=st.just("redacted_thinking"), data=texts
)
uses = shape(more, type=st.just("tool_use"), id=texts, name=texts, input=objects | json_values)
results = shape(
    {"content": texts | st.lists(text_blocks | media_blocks, max_size=2), "is_error": st.booleans(), **more},
    type=st.just("tool_result"),
    tool_use_id=texts,
)
odd_blocks = json_values | objects.map(lambda rest: {**rest, "type": "tool_result"})
blocks = text_blocks | media_blocks | thoughts | uses | results | odd_blocks
messages = shape(
    {"fields": json_values},
    role=st.sampled_from(["user", "assistant", "system"]),
    content=texts | st.lists(blocks, max_size=4),
)


def stored(message: Any) -> Any:
    return CODECS["anthropic"](message, "m1")


@given(message=messages)
@settings(max_examples=examples(300))
def test_a_message_comes_back_as_it_was(message: dict[str, Any]) -> None:
    fragment = in_form("anthropic", message, "m1")
    assert same_json(fragment.data, message)
    assert same_json(to_anthropic([fragment]), [message])


@given(message=messages)
def test_every_message_can_be_given_to_openai(message: dict[str, Any]) -> None:
    for made in to_openai([("user", stored(message))]):
        assert made["role"] in {"user", "assistant", "tool", "system"}


@given(role=st.sampled_from(["user", "assistant", "moderator"]), text=texts, message_id=ids)
def test_any_text_becomes_a_message_of_the_api(role: str, text: str, message_id: str) -> None:
    found = to_anthropic([(role, {"id": message_id, "role": role, "parts": [{"type": "text", "text": text}]})])
    assert found == [{"role": "assistant" if role == "assistant" else "user", "content": text}]
    api().validate_python(found[0])


def test_blocks_become_the_parts_that_chat_interfaces_know() -> None:
    assert stored({"role": "assistant", "content": [THOUGHT, {"type": "text", "text": "Let me look."}, USE]}) == {
        "id": "m1",
        "role": "assistant",
        "parts": [
            {
                "type": "reasoning",
                "text": "The forecast decides.",
                "providerMetadata": {"anthropic": {"signature": "EqQB"}},
            },
            {"type": "text", "text": "Let me look."},
            {
                "type": "dynamic-tool",
                "toolName": "weather",
                "toolCallId": "toolu_1",
                "state": "input-available",
                "input": {"city": "Riga"},
            },
        ],
    }


def test_only_what_was_said_is_text() -> None:
    assert (
        text_of("anthropic", {"role": "assistant", "content": [THOUGHT, {"type": "text", "text": "Rain."}, USE]})
        == "Rain."
    )
    assert text_of("anthropic", {"role": "user", "content": [RESULT]}) == ""


def test_results_are_from_a_tool_and_go_back_as_the_users() -> None:
    message = {"role": "user", "content": [RESULT]}
    assert stored(message)["role"] == "tool"
    assert to_anthropic([("tool", stored(message))]) == [message]


def test_a_tools_results_come_right_after_the_calls_for_openai() -> None:
    call = {"role": "assistant", "content": [USE]}
    answer = {"role": "user", "content": [RESULT, {"type": "text", "text": "And tomorrow?"}]}
    roles = [made["role"] for made in to_openai([("assistant", stored(call)), ("user", stored(answer))])]
    assert roles == ["assistant", "tool", "user"]


def test_a_whole_turn_becomes_calls_and_results_in_order() -> None:
    turn = {
        "id": "m1",
        "role": "assistant",
        "parts": [
            {"type": "step-start"},
            {"type": "text", "text": "Let me look."},
            {
                "type": "tool-weather",
                "toolCallId": "c1",
                "state": "output-error",
                "input": {"city": "Riga"},
                "errorText": "offline",
            },
            {"type": "step-start"},
            {"type": "reasoning", "text": "unsigned"},
            {"type": "text", "text": "I cannot tell."},
        ],
    }
    found = to_anthropic([("assistant", turn)])
    assert found == [
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Let me look."},
                {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Riga"}},
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "offline", "is_error": True}],
        },
        {"role": "assistant", "content": "I cannot tell."},
    ]
    for message in found:
        api().validate_python(message)


def test_an_openai_tool_message_becomes_a_result() -> None:
    found = to_anthropic([{"role": "tool", "tool_call_id": "call_1", "content": "4 °C"}])
    assert found == [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": "4 °C"}]}]


def test_an_answer_of_the_sdk_is_stored_whole_and_goes_back_as_the_api_takes_it() -> None:
    answer = resolve_name("anthropic.types:Message").model_validate(
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude",
            "content": [{"type": "text", "text": "Riga."}],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 3, "output_tokens": 2},
        }
    )
    fragment = in_form("anthropic", answer, "m1")
    assert stored(fragment.data)["metadata"]["chatledger"]["anthropic"]["answer"]["usage"]["output_tokens"] == 2
    assert to_anthropic([fragment]) == [{"role": "assistant", "content": [{"type": "text", "text": "Riga."}]}]


def test_images_and_documents_are_files() -> None:
    image = {"type": "image", "source": PNG}
    linked = {"type": "document", "source": {"type": "url", "url": "https://example.org/a.pdf"}, "title": "Guide"}
    parts = stored({"role": "user", "content": [image, linked]})["parts"]
    assert [(part["type"], part["url"]) for part in parts] == [
        ("file", "data:image/png;base64,iVBORw0KGgo="),
        ("file", "https://example.org/a.pdf"),
    ]


@pytest.mark.parametrize("block", [THOUGHT, USE, RESULT, {"type": "image", "source": PNG}])
def test_a_message_is_known_by_its_blocks(block: dict[str, Any]) -> None:
    assert is_anthropic_message({"role": "user", "content": [block]})


@pytest.mark.parametrize(
    "other", ["text", {"role": "user", "content": "hi"}, {"role": "user", "content": [{"type": "text", "text": "hi"}]}]
)
def test_what_every_api_has_is_not_taken_for_one(other: Any) -> None:
    assert not is_anthropic_message(other)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"role": "tool", "content": "x"}, "needs a role"),
        ({"content": "x"}, "needs a role"),
        ({"role": "user", "content": 5}, "text or a list of blocks"),
        ({"role": "user", "content": [object()]}, "not a JSON value"),
    ],
)
def test_what_is_no_message_is_refused(message: Any, words: str) -> None:
    with pytest.raises(InvalidValueError, match=words):
        in_form("anthropic", message, "m1")
