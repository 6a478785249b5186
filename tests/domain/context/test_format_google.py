"""Contents of Google's Gemini API: stored as UIMessages, given back as they were, and made of any other stored message."""

from pkgutil import resolve_name
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.in_form import in_form
from tests.support.json_values import json_values, objects, texts
from tests.support.soak import examples

from chatledger.codecs import to_google, to_openai
from chatledger.domain.context.formats.google import is_google_content
from chatledger.domain.context.formats.stored import CODECS
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.forms.reading import text_of
from chatledger.domain.limits import same_json

pytestmark = pytest.mark.xdist_group("sdks")  # one worker imports them, which takes seconds

CALL = {"functionCall": {"name": "weather", "args": {"city": "Riga"}}}
RESPONSE = {"functionResponse": {"name": "weather", "response": {"output": "4 °C, rain"}}}
IMAGE = {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}

Values = st.SearchStrategy[Any]


def shape(optional: dict[str, Values] | None = None, **fields: Values) -> Values:
    return st.fixed_dictionaries(fields, optional=optional or {})


more: dict[str, Values] = {"thoughtSignature": texts, "videoMetadata": json_values, "thought": st.booleans()}
camel = st.one_of(
    shape(more, text=texts | json_values),
    shape(more, functionCall=shape({"id": texts, "args": objects | json_values, "x": json_values}, name=texts)),
    shape(more, functionResponse=shape({"id": texts, "response": json_values, "parts": json_values}, name=texts)),
    shape(more, inlineData=shape({"displayName": texts}, mimeType=texts | st.just("image/png"), data=texts)),
    shape(more, fileData=shape({"mimeType": texts}, fileUri=texts | st.just("gs://a/b.pdf"))),
    shape(executableCode=json_values),
)
snake = st.one_of(
    shape({"thought_signature": texts, "thought": st.booleans()}, text=texts),
    shape(more, function_call=shape({"id": texts, "args": objects}, name=texts)),
    shape(function_response=shape({"id": texts, "response": objects}, name=texts)),
    shape(inline_data=shape({"display_name": texts}, mime_type=texts, data=texts)),
    shape(file_data=shape(file_uri=texts, mime_type=texts) | shape(file_uri=texts, mimeType=texts)),
)
contents = shape(
    {"role": st.sampled_from(["user", "model", "function"]), "x": json_values},
    parts=st.lists(camel | snake | json_values, max_size=4),
)


def stored(content: Any) -> Any:
    return CODECS["google"](content, "m1")


@given(content=contents)
@settings(max_examples=examples(400))
def test_a_content_comes_back_as_it_was(content: dict[str, Any]) -> None:
    fragment = in_form("google", content, "m1")
    assert same_json(fragment.data, content)
    assert same_json(to_google([fragment]), [content])


def text_in(message: dict[str, Any]) -> str:
    content: str | list[dict[str, Any]] | None = message["content"]
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] for block in content or [] if "text" in block)


@given(content=contents)
def test_every_content_can_be_given_to_openai(content: dict[str, Any]) -> None:
    fragment = in_form("google", content, "m1")
    made = to_openai([fragment])
    assert {message["role"] for message in made} <= {"user", "assistant", "tool"}
    assert text_of("google", content) in "\n".join(text_in(message) for message in made)


@pytest.mark.parametrize("style", ["camel", "snake"])
def test_objects_of_the_sdk_are_taken(style: str) -> None:
    types = resolve_name("google.genai.types")
    content = types.Content(
        role="model",
        parts=[
            types.Part(text="Let me look."),
            types.Part(function_call=types.FunctionCall(name="weather", args={"city": "Riga"})),
            types.Part(inline_data=types.Blob(mime_type="image/png", data=b"png")),
        ],
    )
    given = content if style == "snake" else content.model_dump(mode="json", by_alias=True, exclude_unset=True)
    fragment = in_form("google", given, "m1")
    assert [part["type"] for part in stored(fragment.data)["parts"]] == ["text", "dynamic-tool", "file"]
    (back,) = to_google([fragment])
    assert types.Content.model_validate(back) == content


def test_only_what_was_said_is_text() -> None:
    thought = {"text": "The forecast decides.", "thought": True}
    assert text_of("google", {"role": "model", "parts": [thought, {"text": "Rain."}, CALL]}) == "Rain."


def test_calls_and_responses_fit_each_other_elsewhere() -> None:
    turn = [{"role": "model", "parts": [CALL]}, {"role": "user", "parts": [RESPONSE]}]
    call, answer = to_openai([in_form("google", content, "m") for content in turn])
    assert call["tool_calls"][0]["id"] == answer["tool_call_id"]
    assert answer["content"] == '{"output":"4 °C, rain"}'


def test_a_whole_turn_becomes_calls_and_responses_in_order() -> None:
    tool = {"type": "tool-weather", "toolCallId": "c1", "state": "output-available", "input": {"city": "Riga"}}
    parts = [{"type": "text", "text": "Let me look."}, {**tool, "output": "4 °C"}, {"type": "text", "text": "Cold."}]
    found = to_google([("assistant", {"id": "m1", "role": "assistant", "parts": parts})])
    assert found == [
        {
            "role": "model",
            "parts": [
                {"text": "Let me look."},
                {"functionCall": {"name": "weather", "id": "c1", "args": {"city": "Riga"}}},
            ],
        },
        {
            "role": "user",
            "parts": [{"functionResponse": {"name": "weather", "id": "c1", "response": {"output": "4 °C"}}}],
        },
        {"role": "model", "parts": [{"text": "Cold."}]},
    ]
    for content in found:
        resolve_name("google.genai.types").Content.model_validate(content)


@pytest.mark.parametrize("part", [CALL, RESPONSE, IMAGE, {"text": "hi"}, {"inline_data": {}}])
def test_a_content_is_known_by_its_parts(part: dict[str, Any]) -> None:
    assert is_google_content({"role": "user", "parts": [part]})


@pytest.mark.parametrize(
    "other",
    [
        "text",
        {"role": "user", "content": "hi"},
        {"role": "user", "parts": [{"type": "text", "text": "hi"}]},
        {"parts": []},
    ],
)
def test_what_every_api_has_is_not_taken_for_one(other: Any) -> None:
    assert not is_google_content(other)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"role": "assistant", "parts": []}, "needs a role"),
        ({"role": "user", "parts": "hi"}, "must be a list"),
    ],
)
def test_what_is_no_content_is_refused(content: Any, words: str) -> None:
    with pytest.raises(InvalidValueError, match=words):
        in_form("google", content, "m1")
