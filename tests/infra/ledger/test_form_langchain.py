"""LangChain messages: stored as they are, given back as they were, and made of any other stored message."""

import subprocess
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
    convert_to_openai_messages,
)
from langchain_core.messages.tool import tool_call
from tests.support.in_form import in_form
from tests.support.json_values import json_values, objects, texts
from tests.support.soak import examples

from chatledger.domain.errors import ConfigurationError, InvalidValueError
from chatledger.domain.forms.reading import parts_of, text_of
from chatledger.domain.limits import json_copy
from chatledger.domain.values import Message, NewMessage
from chatledger.forms import to_langchain, to_openai
from chatledger.infra.ledger import langchain as langchain_library

PNG = "data:image/png;base64,iVBORw0KGgo="
USAGE = {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7, "input_token_details": {"cache_read": 3}}
Values = st.SearchStrategy[Any]


def stored(message: Any, message_id: str | None = None) -> NewMessage:
    """The message as it is stored."""
    return in_form("langchain", message, message_id)


def back(message: Any) -> Any:
    """A message as it is when it was stored and read."""
    (found,) = to_langchain([stored(message)], open_calls="keep")
    return found


def block(kind: str, optional: dict[str, Values] | None = None, **fields: Values) -> Values:
    """A content block, sometimes with fields that providers add."""
    added: dict[str, Values] = {"index": st.integers(0, 3), "extras": objects, **(optional or {})}
    return st.fixed_dictionaries({"type": st.just(kind), **fields}, optional=added)


media_fields: dict[str, Values] = {
    "url": st.sampled_from(["https://example.org/a", PNG]),
    "base64": st.just("AA=="),
    "mime_type": st.sampled_from(["image/png", "audio/wav", "application/pdf", "application/octet-stream", "image/*"]),
    "file_id": st.just("file-1"),
}
image_urls = st.fixed_dictionaries({"url": st.just(PNG)}, optional={"detail": st.just("low")})
blocks = st.one_of(
    texts,
    block("text", text=texts),
    block("reasoning", reasoning=texts),
    block("thinking", {"signature": texts}, thinking=texts),
    block("tool_use", id=texts, name=texts, input=objects),
    block("image_url", image_url=image_urls | st.just(PNG)),
    block("file", file=st.just({"file_id": "file-1"})),
    block("refusal", refusal=texts),
    st.sampled_from(["image", "audio", "video", "file"]).flatmap(lambda kind: block(kind, media_fields)),
    objects,
)
content = texts | st.lists(blocks, max_size=4)
envelope: dict[str, Values] = {
    "id": texts.filter(lambda text: bool(text) and "\0" not in text),
    "name": texts,
    "additional_kwargs": objects,
    "response_metadata": objects,
    "added": json_values,
}
calls = st.builds(tool_call, name=texts, args=objects, id=texts | st.none())
invalid_calls = st.fixed_dictionaries(
    {"name": texts | st.none(), "args": texts | st.none(), "id": texts | st.none(), "error": texts | st.none()}
)


def kind_of(kind: type[BaseMessage], **fields: Values) -> Values:
    optional = {key: values for key, values in envelope.items() if key not in fields}
    return st.fixed_dictionaries({"content": content, **fields}, optional=optional).map(lambda given: kind(**given))


messages: Values = st.one_of(
    kind_of(SystemMessage),
    kind_of(HumanMessage),
    kind_of(
        AIMessage,
        tool_calls=st.lists(calls, max_size=2),
        invalid_tool_calls=st.lists(invalid_calls, max_size=2),
        usage_metadata=st.sampled_from([None, USAGE]),
    ),
    kind_of(ToolMessage, tool_call_id=texts, artifact=json_values, status=st.sampled_from(["success", "error"])),
    kind_of(FunctionMessage, name=texts),
    kind_of(ChatMessage, role=st.sampled_from(["critic", "assistant", "tool", "user", "developer", "system"])),
)


@pytest.mark.soak
@given(messages)
@settings(max_examples=examples(200))
@example(AIMessage(""))
@example(AIMessage([]))
@example(HumanMessage(["one"]))
@example(HumanMessage([{"type": "text", "text": "one"}]))
@example(AIMessage("", tool_calls=[tool_call(name="w", args={}, id="c")]))
@example(
    AIMessage(
        "", invalid_tool_calls=[{"type": "invalid_tool_call", "name": "w", "args": "0", "id": "c", "error": None}]
    )
)
@example(SystemMessage("Be brief.", additional_kwargs={"__openai_role__": "developer"}))
def test_nothing_is_lost(message: BaseMessage) -> None:
    """What is stored gives the message back: class, content, calls, usage, metadata, and whatever providers added."""
    before = message.model_copy(deep=True)
    draft = stored(message)
    expected = message.model_copy(update={"id": draft.id})
    (found,) = to_langchain(msgspec.structs.replace(draft, data=json_copy(draft.data, "data")), open_calls="keep")

    assert before == message, "the caller's message is left alone"
    assert message.id in {None, draft.id}
    assert type(expected) is type(found)
    assert expected == found


def test_calls_with_added_fields_are_kept() -> None:
    """Some providers put more into a call than the constructor of a message takes."""
    message = AIMessage("")
    message.tool_calls = [{**tool_call(name="w", args={}, id="c"), "extras": {"signature": "s"}}]  # type: ignore[typeddict-unknown-key]

    assert message.tool_calls == back(message).tool_calls


def test_a_streamed_answer_is_stored_as_what_it_has_become() -> None:
    chunks = [
        AIMessageChunk(content="Old ", id="a"),
        AIMessageChunk(content="Town.", id="a"),
        AIMessageChunk(content="", id="a", tool_call_chunks=[{"name": "w", "args": '{"x": 1}', "id": "c", "index": 0}]),
    ]
    found = back(chunks[0] + chunks[1] + chunks[2])

    assert AIMessage is type(found)
    assert "Old Town." == found.content
    assert [tool_call(name="w", args={"x": 1}, id="c")] == found.tool_calls


def test_an_answer_with_a_call_is_shown_as_parts() -> None:
    """The shape that search, drawings and user interfaces read, and the same as that of an OpenAI message."""
    ours = AIMessage("One moment.", id="m1", tool_calls=[tool_call(name="weather", args={"city": "Riga"}, id="c1")])
    theirs = {
        "role": "assistant",
        "content": "One moment.",
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Riga"}'}}
        ],
    }

    assert parts_of("openai", theirs) == parts_of("langchain", stored(ours).data)


@pytest.mark.parametrize(
    "message",
    [
        HumanMessage("sunny"),
        HumanMessage(["sunny"]),
        AIMessage(
            [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "sunny", "index": 1}]
        ),
    ],
    ids=["text", "list", "blocks"],
)
def test_text_can_be_searched(message: BaseMessage) -> None:
    """What a reader would read is the text of the stored message."""
    assert "sunny" == text_of("langchain", stored(message).data)


def test_ids_are_those_of_the_messages() -> None:
    """A message that has an id keeps it; one that has none gets one. It is told under the id that it is stored with."""
    named, nameless = HumanMessage("a", id="m1"), HumanMessage("a")

    assert "m1" == stored(named).id
    assert ["m2"] == [one.id for one in to_langchain([stored(named, "m2")])]
    assert stored(nameless).id != stored(nameless).id


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (RemoveMessage(id="m1"), "remove"),
        (BaseMessage(content="a", type="poem"), "poem"),
        (ToolMessage("a", tool_call_id="c", artifact=object()), "JSON"),
        ({"role": "user", "content": "a"}, "langchain"),
    ],
    ids=["removal", "unknown type", "no JSON", "mapping"],
)
def test_no_message_is_refused(message: Any, why: str) -> None:
    with pytest.raises(InvalidValueError, match=why):
        stored(message)


def test_a_turn_becomes_calls_and_results() -> None:
    """An assistant's UIMessage of the AI SDK, which holds a whole turn, in the order in which it happened."""
    turn = {
        "id": "m2",
        "role": "assistant",
        "parts": [
            {"type": "reasoning", "text": "I should look."},
            {"type": "text", "text": "Let me look.", "state": "done"},
            {"type": "tool-weather", "toolCallId": "c1", "state": "output-available", "input": {"x": 1}, "output": {"c": 12}},
            {"type": "dynamic-tool", "toolName": "news", "toolCallId": "c2", "state": "output-error", "errorText": "timeout"},
            {"type": "text", "text": "It is 12 °C."},
        ],
    }  # fmt: skip

    assert [
        AIMessage(
            [{"type": "reasoning", "reasoning": "I should look."}, {"type": "text", "text": "Let me look."}],
            id="m2",
            response_metadata={"output_version": "v1"},
            tool_calls=[tool_call(name="weather", args={"x": 1}, id="c1"), tool_call(name="news", args={}, id="c2")],
        ),
        ToolMessage('{"c":12}', id="m2#1", tool_call_id="c1", name="weather"),
        ToolMessage("timeout", id="m2#2", tool_call_id="c2", name="news", status="error"),
        AIMessage("It is 12 °C.", id="m2#3"),
    ] == to_langchain([turn])


OPENAI_MESSAGES: list[dict[str, Any]] = [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": PNG}}]},
    {
        "role": "assistant",
        "content": "One moment.",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Riga"}'}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "12 °C"},
    {"role": "assistant", "content": "It is 12 °C."},
]  # fmt: skip


def test_openai_messages_become_langchain_messages() -> None:
    """LangChain's own conversion gives the conversation back."""
    found = to_langchain(OPENAI_MESSAGES)

    assert [SystemMessage, HumanMessage, AIMessage, ToolMessage, AIMessage] == [type(message) for message in found]
    converted: Any = convert_to_openai_messages(found)
    assert "weather" == converted[3].pop("name"), "results have the name of their call"
    assert OPENAI_MESSAGES == converted


def test_langchain_messages_become_openai_messages() -> None:
    """The other way round, through what is stored."""
    given_messages = [
        SystemMessage("Be brief.", additional_kwargs={"__openai_role__": "developer"}),
        HumanMessage(["What is it?", {"type": "image", "base64": "AA==", "mime_type": "image/png"}]),
        AIMessage(
            [
                {"type": "text", "text": "One moment."},
                {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Riga"}},
            ],
            tool_calls=[tool_call(name="weather", args={"city": "Riga"}, id="c1")],
            usage_metadata={"input_tokens": 5, "output_tokens": 2, "total_tokens": 7},
        ),
        ToolMessage("12 °C", tool_call_id="c1", artifact={"c": 12}),
        AIMessage("", invalid_tool_calls=[{"type": "invalid_tool_call", "name": "w", "args": "{bad", "id": "c2", "error": "e"}]),
        ChatMessage(content="Too vague.", role="critic"),
    ]  # fmt: skip
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    weather = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Riga"}'}}
    bad = {"id": "c2", "type": "function", "function": {"name": "w", "arguments": "{bad"}}

    assert [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "What is it?"}, image]},
        {"role": "assistant", "content": "One moment.", "tool_calls": [weather]},
        {"role": "tool", "content": "12 °C", "tool_call_id": "c1"},
        {"role": "assistant", "content": None, "tool_calls": [bad]},
        {"role": "tool", "content": "interrupted", "tool_call_id": "c2"},
        {"role": "user", "content": "Too vague.", "name": "critic"},
    ] == to_openai(map(stored, given_messages))


def test_odd_calls_of_openai_become_langchain_calls() -> None:
    """Arguments that are no object are an invalid call; the text for a custom tool is an argument."""
    bad = {"id": "c1", "type": "function", "function": {"name": "w", "arguments": "{bad"}}
    custom = {"id": "c2", "type": "custom", "custom": {"name": "sql", "input": "select 1"}}
    (found,) = to_langchain([{"role": "assistant", "content": None, "tool_calls": [bad, custom]}], open_calls="keep")

    assert isinstance(found, AIMessage)
    assert [tool_call(name="sql", args={"input": "select 1"}, id="c2")] == found.tool_calls
    assert [("w", "{bad", "c1")] == [(call["name"], call["args"], call["id"]) for call in found.invalid_tool_calls]


def test_files_become_langchain_blocks() -> None:
    parts = [
        {"type": "file", "mediaType": "image/png", "url": "https://example.org/a.png"},
        {
            "type": "file",
            "mediaType": "application/pdf",
            "url": "data:application/pdf;base64,AA==",
            "filename": "a.pdf",
        },
        {"type": "file", "mediaType": "audio/*", "url": "https://example.org/a"},
    ]
    (found,) = to_langchain([{"id": "m", "role": "user", "parts": parts}])

    assert [
        {"type": "image", "url": "https://example.org/a.png", "mime_type": "image/png"},
        {"type": "file", "base64": "AA==", "mime_type": "application/pdf", "extras": {"filename": "a.pdf"}},
        {"type": "audio", "url": "https://example.org/a"},
    ] == found.content


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("user", HumanMessage("hi")),
        ("human", HumanMessage("hi")),
        ("ai", AIMessage("hi")),
        ("assistant", AIMessage("hi")),
        ("system", SystemMessage("hi")),
        ("planner", HumanMessage("hi", name="planner")),
        ("tool", HumanMessage("hi", name="tool")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_plain_data_have_the_name_as_role(name: str, expected: BaseMessage) -> None:
    """Text with the name of the message as its role. An unknown role gets no authority: it is a user's, with its name."""
    stored = Message(id="m", name=name, data="hi", created_at=0)

    assert [expected.model_copy(update={"id": "m"})] == to_langchain([stored])
    assert [expected] == to_langchain([(name, "hi")])


def test_what_says_nothing_is_left_out() -> None:
    assert [] == to_langchain([("assistant", None)])


@pytest.mark.soak
def test_nothing_is_imported_before_it_is_used() -> None:
    """Neither LangChain nor the SDK of OpenAI, not even to convert OpenAI messages."""
    program = """
import sys
from chatledger.forms import known_form, to_openai, translate
to_openai([{"role": "user", "content": "hi"}])
translate([], "langchain")
print(sorted({"langchain_core", "openai", "pydantic"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert "[]" == done.stdout.strip()


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without LangChain the error says what to install."""

    def missing(name: str) -> Any:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(langchain_library, "import_module", missing)

    for use in (lambda: stored(HumanMessage("a")), lambda: to_langchain(["a"])):
        with pytest.raises(ConfigurationError, match=r"pip install 'chatledger\[langchain\]'"):
            use()
