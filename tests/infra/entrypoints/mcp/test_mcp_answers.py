"""Sizes of answers, hidden messages, URIs, and arguments of any form."""

from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.soak import examples

import chatledger
from chatledger import ChatledgerError, InvalidValueError, NewMessage
from chatledger.infra.entrypoints.mcp.answers import (
    MAX_ANSWER_CHARS,
    ResourceName,
    ShownMessage,
    parse_uri,
    transcript,
    uri_of,
)
from chatledger.infra.entrypoints.mcp.reading import READING, Surroundings, Transcript, read_branch
from chatledger.infra.entrypoints.mcp.resources import MAX_MESSAGE_BYTES, read_resource
from chatledger.infra.entrypoints.mcp.tools import WRITING

TOOLS = {tool.name: tool for tool in (*READING, *WRITING)}
LONGEST = MAX_ANSWER_CHARS + 10_000


def ask(ledger: chatledger.Ledger, tool: str, **arguments: Any) -> Any:
    return TOOLS[tool].answer(ledger, arguments)


def chars(messages: list[ShownMessage]) -> int:
    return sum(len(said.text) for said in messages)


@given(
    st.lists(st.integers(0, LONGEST), min_size=1, max_size=30), st.integers(1, MAX_ANSWER_CHARS), st.integers(1, 100)
)
@example([50_000, 100, 50_000, 50_000, 100], MAX_ANSWER_CHARS, 100)
@settings(max_examples=examples(100), deadline=None)
def test_pages_have_a_size_and_leave_nothing_out(sizes: list[int], each: int, limit: int) -> None:
    """Whatever the lengths of messages: no answer is too large, and paging back reaches every message once."""
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("c", "ann")
        ledger.append("c", [NewMessage("user", "x" * size, id=f"m{n}") for n, size in enumerate(sizes)])
        found: list[ShownMessage] = []
        before: str | None = None
        while before is not None or not found:
            page = read_branch(ledger, "c", before=before, limit=limit, max_characters=each)
            assert page.messages
            assert chars(page.messages) <= MAX_ANSWER_CHARS
            found[:0] = page.messages
            before = page.before

    assert [said.id for said in found] == [f"m{n}" for n in range(len(sizes))]
    for said, size in zip(found, sizes, strict=True):
        assert len(said.text) + said.omitted_characters == size
        assert len(said.text) <= each


@given(st.lists(st.integers(0, LONGEST), min_size=1, max_size=15), st.data())
@settings(max_examples=examples(100), deadline=None)
def test_surroundings_are_around_the_message(sizes: list[int], data: st.DataObject) -> None:
    """The message is there whatever its size, with its nearest neighbours without a gap."""
    middle, n = data.draw(st.integers(0, len(sizes) - 1)), data.draw(st.integers(0, 20))
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("c", "ann")
        ledger.append("c", [NewMessage("user", "x" * size, id=f"m{i}") for i, size in enumerate(sizes)])
        found: Surroundings = ask(ledger, "read_around", message=f"m{middle}", n=n, max_characters=MAX_ANSWER_CHARS)

    numbers = [int(said.id[1:]) for said in found.messages]
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    assert max(0, middle - n) <= numbers[0] <= middle <= numbers[-1] <= middle + n
    assert chars(found.messages) <= 2 * MAX_ANSWER_CHARS


def test_a_hit_says_which_agent_worked_where(ledger: chatledger.Ledger) -> None:
    """In a session of a coding agent; elsewhere, and where the metadata have something else, it says nothing of it."""
    told: dict[str, dict[str, Any]] = {"kept": {"agent": "codex", "cwd": "/src"}, "odd": {"agent": 7}, "plain": {}}
    for name, metadata in told.items():
        ledger.create_chat(name, "ann", metadata=metadata or None)
        ledger.append(name, [NewMessage("user", "sesame", id=name)])
    hits = ask(ledger, "search_conversations", query="sesame").hits

    assert {"kept": ("codex", "/src"), "odd": (None, None), "plain": (None, None)} == {
        hit.conversation: (hit.agent, hit.cwd) for hit in hits
    }


def test_what_is_hidden_is_not_read(ledger: chatledger.Ledger) -> None:
    """Hidden messages are not for models: no tool, resource or transcript has their text."""
    ledger.create_chat("c", "ann")
    ledger.append("c", [NewMessage("user", text, id=text) for text in ("before", "middle", "after")])
    ledger.append("c", [NewMessage("user", "sesame", id="h"), NewMessage("user", "end", id="e")])
    ledger.annotate("c", "h", hidden=True)
    page: Transcript = ask(ledger, "read_conversation", conversation="c")
    answers = [
        page,
        ask(ledger, "read_around", message="h"),
        ask(ledger, "search_conversations", query="sesame"),
        ask(ledger, "diff", a="after", b="e"),
        ask(ledger, "history", conversation="c"),
        *(
            read_resource(ledger, parse_uri(uri))
            for uri in (uri_of("c"), uri_of("c", "branches", "main"), uri_of("c", "messages", "h"))
        ),
        transcript(page.messages),
    ]

    assert [said.is_hidden for said in page.messages] == [False, False, False, True, False]
    for answer in answers:
        assert b"sesame" not in msgspec.json.encode(answer)


def test_a_message_is_read_as_a_whole(ledger: chatledger.Ledger) -> None:
    """What an answer cuts, its resource has, up to a limit."""
    ledger.create_chat("c", "ann")
    ledger.append("c", [NewMessage("user", {"parts": [{"type": "text", "text": "x" * 90_000}]}, id="long")])
    ledger.append("c", [NewMessage("user", "x" * MAX_MESSAGE_BYTES, id="longer")])
    (said, _) = ask(ledger, "read_conversation", conversation="c").messages
    whole = msgspec.json.decode(read_resource(ledger, parse_uri(said.uri)))

    assert (len(said.text), said.omitted_characters) == (4_000, 86_000)
    assert len(whole["message"]["text"]) == len(whole["data"]["parts"][0]["text"]) == 90_000
    with pytest.raises(InvalidValueError, match="sent as a whole"):
        read_resource(ledger, parse_uri(uri_of("c", "messages", "longer")))


names = st.text(min_size=1, max_size=20)


@given(names, names)
@settings(max_examples=examples(300))
def test_any_id_has_a_uri(chat_id: str, name: str) -> None:
    assert parse_uri(uri_of(chat_id)) == ResourceName(chat_id)
    assert parse_uri(uri_of(chat_id, "branches", name)) == ResourceName(chat_id, "branches", name)
    assert parse_uri(uri_of(chat_id, "messages", name)) == ResourceName(chat_id, "messages", name)
    assert parse_uri(uri_of(chat_id, "checkpoints", name)) == ResourceName(chat_id, "checkpoints", name)


@given(st.text() | st.text().map("chatledger://chats/".__add__))
@settings(max_examples=examples(300))
def test_any_text_is_a_uri_or_refused(text: str) -> None:
    try:
        named = parse_uri(text)
    except InvalidValueError:
        return
    assert named.chat_id


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["c", "m0", "main", "\x00"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(sorted(TOOLS)), st.data())
@settings(max_examples=examples(300), deadline=None)
def test_arguments_of_any_form_are_answered_or_refused(name: str, data: st.DataObject) -> None:
    """Whatever a model sends: an answer, or an error of the ledger that says what is wrong."""
    declared = TOOLS[name].input_schema["properties"]
    likely = st.sampled_from(["c", "m0", "main", "1", "2026-01-01"])
    arguments = data.draw(st.fixed_dictionaries({}, optional=dict.fromkeys(declared, likely | json_values)))
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("c", "ann")
        ledger.append("c", [NewMessage("user", "hello", id="m0")])
        try:
            answer = ask(ledger, name, **arguments)
        except ChatledgerError:
            return
        assert msgspec.json.encode(answer)
