"""OpenAI chat messages: stored as UIMessages, given back as they were, and made of any other stored message."""

import copy
import functools
from pkgutil import resolve_name
from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from tests.support.in_form import in_form
from tests.support.json_values import ids, json_values, objects, texts
from tests.support.soak import examples

from chatledger.codecs import OPENAI, to_openai
from chatledger.domain.context.formats.from_openai import ui_of
from chatledger.domain.context.messages import last_assistant_message
from chatledger.domain.errors import InvalidValueError, MissingCodecError
from chatledger.domain.forms.detect import form_of
from chatledger.domain.forms.reading import text_of
from chatledger.domain.limits import json_copy, same_json
from chatledger.domain.values import Message, NewMessage
from chatledger.infra.ledger.drafts import assistant, user

pytestmark = pytest.mark.xdist_group("sdks")  # one worker imports them, which takes seconds

CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Riga"}'}}


@functools.cache
def api() -> TypeAdapter[Any]:
    return TypeAdapter(resolve_name("openai.types.chat:ChatCompletionMessageParam"))


PNG = "data:image/png;base64,iVBORw0KGgo="

Values = st.SearchStrategy[Any]


def shape(optional: dict[str, Values] | None = None, **fields: Values) -> Values:
    return st.fixed_dictionaries(fields, optional=optional or {})


def extended(part: Values) -> Values:
    """With extra fields that the API does not define."""
    return st.tuples(extras, part).map(lambda both: {**both[0], **both[1]})


extras: Values = st.dictionaries(st.sampled_from(["cache_control", "x", "index"]), json_values, max_size=2)
addresses = st.sampled_from(
    ["https://example.org/a", PNG, "data:;base64,AA==", "data:text/plain,x", "data:image/png", ""]
)
uploads = st.sampled_from(["data:application/pdf;base64,AA==", PNG, "JVBERi0=", "data:audio/wav;base64,AA=="])
text_parts = extended(shape(type=st.just("text"), text=texts))
refusal_parts = extended(shape(type=st.just("refusal"), refusal=texts))
image = extended(shape({"detail": st.sampled_from(["low", None])}, url=addresses))
sound = extended(shape(data=texts | st.just("UklGRg=="), format=st.sampled_from(["wav", "mp3", "mpeg", "flac"])))
file = extended(shape({"file_id": st.sampled_from(["file-1", ""]), "file_data": uploads, "filename": texts}))
media = extended(
    st.one_of(
        shape(type=st.just("image_url"), image_url=image),
        shape(type=st.just("input_audio"), input_audio=sound),
        shape(type=st.just("file"), file=file),
    )
)
odd_parts = json_values | objects.map(lambda rest: {**rest, "type": "image_url"})
user_content = texts | st.lists(text_parts | media | odd_parts, max_size=3)
said = texts | st.lists(text_parts | refusal_parts | odd_parts, max_size=3)
written: Values = st.one_of(
    st.sampled_from(['{"city":"Riga"}', '{"city": "Riga"}', "{bad", "", "null", "{}", "[1.0]", "1e400", '"\\ud800"']),
    st.integers(90, 300).map(lambda depth: "[" * depth + "]" * depth),
    texts,
)
function = extended(shape(name=texts, arguments=written))
tool_calls = st.lists(
    st.one_of(
        extended(shape(type=st.just("function"), id=texts, function=function)),
        extended(shape(type=st.just("custom"), id=texts, custom=extended(shape(name=texts, input=written)))),
        json_values,
        objects.map(lambda rest: {**rest, "type": "function"}),
    ),
    max_size=3,
)
unknown = st.dictionaries(
    st.sampled_from(["audio", "annotations", "reasoning_content", "parts", "metadata"]), json_values
)


def messages_of(role: str, content: Values, **more: Values) -> Values:
    optional = {"content": content | st.none(), "name": texts | st.none(), **more}
    return st.tuples(unknown, shape(optional, role=st.just(role))).map(lambda both: {**both[0], **both[1]})


messages = st.one_of(
    *(messages_of(role, said) for role in ("system", "developer", "function", "critic")),
    messages_of("user", user_content),
    messages_of("tool", said, tool_call_id=texts),
    messages_of(
        "assistant",
        said,
        refusal=texts | st.none(),
        tool_calls=tool_calls | st.none(),
        function_call=st.just({"name": "f", "arguments": "{}"}),
    ),
)


@pytest.mark.soak
@given(messages, ids)
@settings(max_examples=examples(300))
@example({"role": "assistant"}, "m")
@example({"role": "assistant", "content": None}, "m")
@example({"role": "assistant", "content": []}, "m")
@example({"role": "assistant", "content": "", "tool_calls": [CALL]}, "m")
@example(
    {"role": "assistant", "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "f", "input": "x"}}]}, "m"
)
@example({"role": "assistant", "content": [{"type": "text", "text": "one"}]}, "m")
@example({"role": "tool", "content": "12 °C"}, "m")
@example({"role": "critic", "content": "hm"}, "m")
def test_nothing_is_lost(message: dict[str, Any], message_id: str) -> None:
    """What is stored gives the message back, whatever the API defines and whatever else stands in it."""
    before = copy.deepcopy(message)
    fragment = in_form("openai", message, message_id)
    stored = ui_of(fragment.data, message_id)

    assert before == message, "the caller's message is left alone"
    assert same_json(message, fragment.data)
    assert [message] == OPENAI.to_model(fragment.name, json_copy(stored, "data"))
    assert message_id == stored["id"] == fragment.id
    assert fragment.name in {stored["role"], "tool", "developer"}


STATES = (
    "input-streaming", "input-available", "approval-requested", "approval-responded", "output-available", "output-error",
    "output-denied",
)  # fmt: skip
ui_parts = st.one_of(
    shape(type=st.sampled_from(["text", "reasoning"]), text=texts),
    st.just({"type": "step-start"}),
    st.just({"type": "source-url", "sourceId": "s", "url": "https://example.org"}),
    st.just({"type": "source-document", "sourceId": "s", "mediaType": "text/plain", "title": "T"}),
    st.just({"type": "reasoning-file", "mediaType": "image/png", "url": PNG}),
    st.just({"type": "custom", "kind": "openai.compaction"}),
    st.just({"type": "steering-message", "id": "s", "parts": [{"type": "text", "text": "And Oslo?"}]}),
    st.just({"type": "file", "mediaType": "image/png", "url": PNG}),
    st.just({"type": "file", "mediaType": "video/mp4", "url": "https://example.org/a.mp4"}),
    shape(type=st.just("data-weather"), data=json_values),
    shape(
        type=st.sampled_from(["dynamic-tool", "tool-weather"]),
        toolName=st.just("weather"),
        toolCallId=st.sampled_from(["c1", "c2"]),
        state=st.sampled_from(STATES),
        input=json_values,
        output=json_values,
        errorText=st.just("failed"),
        approval=shape(id=st.just("a"), approved=st.booleans(), reason=texts),
    ),
    json_values,
)


@given(
    st.sampled_from(["system", "user", "assistant", "tool", "planner"]),
    st.lists(ui_parts, max_size=6) | texts | json_values,
)
@settings(max_examples=examples(200))
def test_any_stored_message_becomes_messages_of_the_api(role: str, content: Any) -> None:
    """Whatever was stored: known roles, content of their kinds, and every result after the call that it answers."""
    called: set[str] = set()
    for message in OPENAI.to_model(role, _stored(role, content)):
        api().validate_python(message)
        assert message["role"] in {"system", "user", "assistant", "tool"}
        assert _is_content(message.get("content"), of_user=message["role"] == "user") or "tool_calls" in message
        assert "tool" != message["role"] or message["tool_call_id"] in called or role == "tool"
        for call in message.get("tool_calls", []):
            assert "function" == call["type"]
            assert isinstance(call["function"]["arguments"], str)
            called.add(call["id"])


def _stored(role: str, content: Any) -> Any:
    # Lists are parts; whatever else was generated is stored as it is.
    return {"id": "m", "role": role, "parts": cast("Any", content)} if isinstance(content, list) else content


def _is_content(content: Any, *, of_user: bool) -> bool:
    kinds = {"text", "image_url", "input_audio", "file"} if of_user else {"text"}
    return isinstance(content, str) or (bool(content) and all(part["type"] in kinds for part in content))


def test_an_answer_with_a_call_is_stored_as_parts() -> None:
    """The shape that search, drawings and user interfaces read."""
    message = {"role": "assistant", "content": "One moment.", "tool_calls": [CALL]}

    assert {
        "id": "m1",
        "role": "assistant",
        "parts": [
            {"type": "text", "text": "One moment."},
            {
                "type": "dynamic-tool",
                "toolName": "weather",
                "toolCallId": "call_1",
                "state": "input-available",
                "input": {"city": "Riga"},
            },
        ],
    } == ui_of(message, "m1")


def test_files_are_stored_as_file_parts() -> None:
    """Images, audio and files have the media type and the address that a user interface shows them by."""
    content = [
        {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "https://example.org/a"}},
        {"type": "input_audio", "input_audio": {"data": "AA==", "format": "mp3"}},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,AA==", "filename": "a.pdf"}},
    ]

    stored = ui_of({"role": "user", "content": content}, "m1")

    assert [
        ("file", "image/png", PNG, None),
        ("file", "image/*", "https://example.org/a", None),
        ("file", "audio/mpeg", "data:audio/mpeg;base64,AA==", None),
        ("file", "application/pdf", "data:application/pdf;base64,AA==", "a.pdf"),
    ] == [(part["type"], part["mediaType"], part["url"], part.get("filename")) for part in stored["parts"]]


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": [{"type": "text", "text": "sunny", "cache_control": {"type": "ephemeral"}}]},
        {"role": "assistant", "content": None, "refusal": "sunny"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "sunny"}]},
        {"role": "developer", "content": "sunny"},
    ],
    ids=["with details", "refusal", "refusal part", "developer"],
)
def test_text_can_be_searched(message: dict[str, Any]) -> None:
    """What a reader would read is the text of the stored message."""
    assert "sunny" == text_of("openai", message)


def test_a_developer_is_shown_as_system() -> None:
    """UIMessages have no such role; the message goes back with its own."""
    fragment = in_form("openai", {"role": "developer", "content": "Be brief."})

    assert ("developer", "system") == (fragment.name, ui_of(fragment.data, "m1")["role"])
    assert {"role": "developer", "content": "Be brief."} == fragment.data


class Completed:
    """An answer as the SDK gives it."""

    def model_dump(self, *, mode: str, exclude_unset: bool) -> dict[str, Any]:
        assert (mode, exclude_unset) == ("json", True)
        return {"role": "assistant", "content": None, "refusal": None, "tool_calls": [CALL]}


class CompletedCall:
    def model_dump(self, *, mode: str, exclude_unset: bool) -> dict[str, Any]:
        return CALL


@pytest.mark.parametrize(
    "message",
    [
        Completed(),
        {"role": "assistant", "content": None, "refusal": None, "tool_calls": (CompletedCall(),)},
        None,
    ],
    ids=["message", "call in a message", "the real one"],
)
def test_objects_of_the_sdk_are_taken(message: Any) -> None:
    """Whole answers, and dictionaries that hold objects; they come back as the SDK would send them."""
    expected = {"role": "assistant", "content": None, "refusal": None, "tool_calls": [CALL]}
    if message is None:
        message = resolve_name("openai.types.chat:ChatCompletionMessage").model_validate(expected)

    assert expected == in_form("openai", message).data


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ({"content": "hi"}, "role"),
        ({"role": "", "content": "hi"}, "role"),
        ({"role": 1, "content": "hi"}, "role"),
        ({"role": "user", "content": 1}, "text or a list"),
        ({"role": "user", "content": {"type": "text"}}, "text or a list"),
        ({"role": "user", "content": "hi", "score": float("nan")}, "JSON"),
        ({"role": "user", "content": "hi", "extra": b""}, "JSON"),
    ],
)
def test_no_message_is_refused(message: Any, why: str) -> None:
    with pytest.raises(InvalidValueError, match=why):
        in_form("openai", message)


def test_ids_are_made() -> None:
    first, second = (
        in_form("openai", {"role": "user", "content": "a"}),
        in_form("openai", {"role": "user", "content": "a"}),
    )

    assert first.id
    assert first.id != second.id


def test_a_changed_input_wins_over_what_the_model_wrote() -> None:
    """Whoever corrects the parsed input of a stored call is not overruled by the text that it came from."""
    spaced = {**CALL, "function": {"name": "weather", "arguments": '{"city": "Riga"}'}}
    stored = ui_of({"role": "assistant", "content": None, "tool_calls": [spaced]}, "m1")
    stored["parts"][0]["input"] = {"city": "Oslo"}

    (message,) = to_openai([stored])
    assert '{"city":"Oslo"}' == message["tool_calls"][0]["function"]["arguments"]


def test_a_turn_becomes_calls_and_results() -> None:
    """An assistant's UIMessage of the AI SDK, which holds a whole turn, in the order in which it happened."""
    turn: dict[str, Any] = {
        "id": "m2",
        "role": "assistant",
        "parts": [
            {"type": "step-start"},
            {"type": "reasoning", "text": "I should look."},
            {"type": "text", "text": "Let me look.", "state": "done", "providerMetadata": {"openai": {"itemId": "i"}}},
            {"type": "tool-weather", "toolCallId": "c1", "state": "output-available", "input": {"city": "Riga"}, "output": {"c": 12}},
            {"type": "dynamic-tool", "toolName": "news", "toolCallId": "c2", "state": "output-error", "input": {}, "errorText": "timeout"},
            {"type": "step-start"},
            {"type": "tool-book", "toolCallId": "c3", "state": "output-denied", "input": {}, "approval": {"id": "a", "approved": False, "reason": "too dear"}},
            {"type": "text", "text": "It is 12 °C."},
            {"type": "tool-mail", "toolCallId": "c4", "state": "input-streaming", "input": {"to": "a"}},
        ],
    }  # fmt: skip

    assert [
        {
            "role": "assistant",
            "content": "Let me look.",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Riga"}'}},
                {"id": "c2", "type": "function", "function": {"name": "news", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": '{"c":12}'},
        {"role": "tool", "tool_call_id": "c2", "content": "timeout"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c3", "type": "function", "function": {"name": "book", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c3", "content": "too dear"},
        {"role": "assistant", "content": "It is 12 °C."},
    ] == to_openai([turn])


@pytest.mark.parametrize(
    ("approval", "results"),
    [
        ({"id": "a"}, []),
        ({"id": "a", "approved": True}, []),
        ({"id": "a", "approved": False}, ["Tool execution denied."]),
        ({"id": "a", "approved": False, "reason": "too dear"}, ["too dear"]),
    ],
)
def test_a_call_that_was_just_denied_has_a_result(approval: dict[str, Any], results: list[str]) -> None:
    """As in the AI SDK, the model gets it with the next request; a call that is approved, or not yet, has none."""
    part = {"type": "tool-book", "toolCallId": "c1", "state": "approval-responded", "input": {}, "approval": approval}
    messages = to_openai([{"role": "assistant", "parts": [part]}])

    assert results == [message["content"] for message in messages if message["role"] == "tool"]


def test_results_in_a_message_of_a_tool() -> None:
    """Other runtimes store results as tool parts of a message of their own."""
    part = {"type": "dynamic-tool", "toolName": "w", "toolCallId": "c1", "state": "output-available", "output": "12 °C"}

    assert [{"role": "tool", "tool_call_id": "c1", "content": "12 °C"}] == to_openai(
        [{"role": "tool", "parts": [part]}]
    )


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("user", "hi", {"role": "user", "content": "hi"}),
        ("human", "hi", {"role": "user", "content": "hi"}),
        ("ai", "hi", {"role": "assistant", "content": "hi"}),
        ("system", "hi", {"role": "system", "content": "hi"}),
        ("planner", "hi", {"role": "user", "content": "hi", "name": "planner"}),
        ("the <planner>", "hi", {"role": "user", "content": "hi", "name": "the_planner_"}),
        ("x" * 80, "hi", {"role": "user", "content": "hi", "name": "x" * 64}),
        ("tool", "12 °C", {"role": "user", "content": "12 °C", "name": "tool"}),
        ("function", "12 °C", {"role": "user", "content": "12 °C", "name": "function"}),
        ("user", {"city": "Riga"}, {"role": "user", "content": '{"city":"Riga"}'}),
        ("user", {"role": "system", "content": "hi"}, {"role": "system", "content": "hi"}),
    ],
    ids=["user", "human", "ai", "system", "unknown", "unknown with blanks", "unknown and long", "tool", "function", "object", "openai"],
)  # fmt: skip
def test_plain_data_have_the_name_as_role(name: str, data: Any, expected: dict[str, Any]) -> None:
    """Text with the name of the message as its role. An unknown role gets no authority: it is a user's, with its name."""
    assert [expected] == to_openai([(name, data)])
    assert [expected] == to_openai([Message(id="m", name=name, data=data, created_at=0, form=form_of(data))])


@pytest.mark.parametrize(
    "data",
    [
        None,
        {"role": "assistant", "parts": []},
        {"role": "assistant", "parts": [{"type": "reasoning", "text": "hm"}]},
        {"role": "user", "parts": [{"type": "data-form", "data": {"city": "Riga"}}]},
    ],
    ids=["none", "no parts", "reasoning", "data"],
)
def test_what_says_nothing_is_left_out(data: Any) -> None:
    assert [] == to_openai([("assistant", data)])


def test_every_kind_of_message_is_taken() -> None:
    """Text, what helpers make, what a ledger takes and gives, UIMessages, and OpenAI messages."""
    kept: dict[str, Any] = {"role": "tool", "tool_call_id": "call_1", "content": "12 °C"}
    given: list[Any] = [
        "one",
        user("two"),
        assistant("three"),
        NewMessage("user", "four"),
        {"id": "m", "role": "user", "parts": [{"type": "text", "text": "five"}]},
        kept,
        in_form("openai", kept),
    ]

    found = to_openai(given)
    assert ["one", "two", "three", "four", "five", "12 °C", "12 °C"] == [message["content"] for message in found]
    assert [kept, kept] == found[-2:]


@pytest.mark.parametrize("value", [1, None, {"text": "hi"}, ("user",), ("user", "a", "b"), (1, "a")])
def test_anything_else_is_refused(value: Any) -> None:
    with pytest.raises(InvalidValueError, match="message"):
        to_openai([value])


@pytest.mark.parametrize("value", [None, 1, b"hi", print])
def test_what_holds_no_messages_is_refused(value: Any) -> None:
    with pytest.raises(InvalidValueError, match=r"^expected messages, not"):
        to_openai(value)


@pytest.mark.parametrize(
    "value",
    ["hi", {"role": "user", "content": "hi"}, user("hi"), NewMessage("user", "hi")],
    ids=lambda one: type(one).__name__,
)
def test_one_message_needs_no_list(value: Any) -> None:
    assert [{"role": "user", "content": "hi"}] == to_openai(value)


def test_a_lazy_fragment_is_refused() -> None:
    with pytest.raises(MissingCodecError):
        to_openai([last_assistant_message("fixed")])
