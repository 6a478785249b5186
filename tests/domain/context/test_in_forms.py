"""Messages as the APIs of models take them: of a chat, or as a program has them in hand."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.domain.forms.stories import FORMS
from tests.support.json_values import json_values
from tests.support.soak import examples

from chatledger import assistant, user
from chatledger.domain.context.messages import last_assistant_message
from chatledger.domain.errors import InvalidValueError, MissingCodecError
from chatledger.domain.forms.reading import known_forms
from chatledger.domain.values import Message, NewMessage
from chatledger.forms import to_anthropic, to_google, to_openai, to_responses, translate

USE = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Riga"}}
CALL = {"id": "call_0", "type": "function", "function": {"name": "weather", "arguments": "{}"}}


def message(number: int, form: str | None, data: Any, name: str = "user") -> Message:
    return Message(id=f"m{number}", name=name, form=form, data=data, created_at=0)


@pytest.mark.guard
@given(data=st.data())
@settings(max_examples=examples(2000, one_in=40))
def test_no_message_stops_a_translation(data: st.DataObject) -> None:
    """Whatever is stored as a message of a form, and however little it is one."""
    odd = st.recursive(
        json_values,
        lambda values: (
            st.dictionaries(
                st.sampled_from(
                    ["role", "content", "parts", "type", "tool_calls", "id", "data", "message", "input", "output"]
                ),
                values
                | st.sampled_from(
                    ["user", "assistant", "tool", "model", "text", "tool_use", "function_call", "reasoning", "ai"]
                ),
            )
            | st.lists(values, max_size=3)
        ),
        max_leaves=12,
    )
    values = data.draw(st.lists(odd, max_size=3))

    for form in (*known_forms(), None):  # a value is drawn once for all forms, as drawing takes ten times as long
        chain = [message(number, form, value) for number, value in enumerate(values)]
        for target in (*FORMS, "langchain"):
            assert isinstance(translate(chain, target).messages, list), (form, target)


def test_every_kind_of_message_is_taken() -> None:
    """Text, pairs, drafts, fragments, UIMessages, messages of another API, and what a ledger gave."""
    handed = [
        "one",
        ("planner", "two"),
        NewMessage("user", "three"),
        user("four"),
        assistant("five"),
        {"id": "m", "role": "user", "parts": [{"type": "text", "text": "six"}]},
        {"role": "user", "parts": [{"text": "seven"}]},
        message(8, None, {"a": None}, "note"),
    ]

    assert [
        {"role": "user", "content": "one"},
        {"role": "user", "content": "two", "name": "planner"},
        {"role": "user", "content": "three"},
        {"role": "user", "content": "four"},
        {"role": "assistant", "content": "five"},
        {"role": "user", "content": "six"},
        {"role": "user", "content": "seven"},
        {"role": "user", "content": '{"a":null}', "name": "note"},
    ] == to_openai(handed)
    assert to_openai(handed[0]) == to_openai(handed[:1])


@pytest.mark.parametrize("value", [5, None, b"x", [5], [{"text": "hi"}], [("user", "hi", 1)]], ids=repr)
def test_anything_else_is_refused(value: Any) -> None:
    with pytest.raises(InvalidValueError, match="expected"):
        to_openai(value)


def test_a_lazy_fragment_is_refused() -> None:
    with pytest.raises(MissingCodecError):
        to_openai([last_assistant_message("fixed")])


def test_an_unknown_form_is_refused() -> None:
    """Its messages are kept, but nobody knows what they say."""
    for chain, form in (([message(0, "acme", {})], "openai"), ([message(0, "openai", {})], "acme")):
        with pytest.raises(InvalidValueError, match=r"no form 'acme'.*register"):
            translate(chain, form)


def test_an_answer_of_anthropic_goes_back_as_the_api_takes_it() -> None:
    """It refuses what only its answers have."""
    answer = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "content": [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1},
    }

    assert [{"role": "assistant", "content": answer["content"]}] == to_anthropic([answer])


def test_anthropic_gets_the_newest_marks_for_its_cache_as_many_as_it_takes() -> None:
    """Each turn of a client came with one, and the API refuses a fifth; what is stored keeps them."""
    turns = [
        {"role": "user", "content": [{"type": "text", "text": f"turn {n}", "cache_control": {"type": "ephemeral"}}]}
        for n in range(6)
    ]
    chain = [message(n, "anthropic", data) for n, data in enumerate(turns)]

    translated = translate(chain, "anthropic")

    assert [False, False, True, True, True, True] == [
        "cache_control" in told["content"][0] for told in translated.messages
    ]
    assert {("m0", "cache_control"), ("m1", "cache_control")} == {
        (lost.message_id, lost.what) for lost in translated.dropped
    }
    assert translated.messages[2:] == turns[2:]
    assert all("cache_control" in turn["content"][0] for turn in turns)


def test_each_thought_that_nothing_follows_is_named_with_its_message() -> None:
    """An answer may not end with thoughts; here it came in two messages of nothing else."""
    thoughts = [{"type": "thinking", "thinking": f"thought {n}", "signature": "EqQB"} for n in range(2)]
    chain = [message(0, "openai", {"role": "user", "content": "Hello"})]
    chain += [
        message(n, "anthropic", {"role": "assistant", "content": [thought]}, "assistant")
        for n, thought in enumerate(thoughts, 1)
    ]

    translated = translate(chain, "anthropic")

    assert ["user"] == [told["role"] for told in translated.messages]
    assert {("m1", "reasoning"), ("m2", "reasoning")} == {(lost.message_id, lost.what) for lost in translated.dropped}


def test_a_result_with_the_name_of_a_call_goes_to_the_newest_of_that_name() -> None:
    """A server that gives calls their names as ids left one open; a call of Gemini, which has none, came since."""
    old = {"id": "weather", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    new = {"role": "model", "parts": [{"functionCall": {"name": "weather", "args": {"city": "Riga"}}}]}
    chain = [
        message(0, "openai", {"role": "assistant", "content": None, "tool_calls": [old]}, "assistant"),
        message(1, "openai", {"role": "user", "content": "And in Riga?"}),
        message(2, "google", new, "assistant"),
        message(3, "openai", {"role": "tool", "tool_call_id": "weather", "content": "Rain."}, "tool"),
    ]

    told = to_openai(chain)

    assert ["interrupted", "Rain."] == [one["content"] for one in told if one["role"] == "tool"]
    assert told[-1]["tool_call_id"] == told[-2]["tool_calls"][0]["id"]


def test_what_is_lost_is_no_part_of_the_message_before() -> None:
    """Who takes the last message off would take what was lost along."""
    upload = {"role": "user", "content": [{"type": "container_upload", "file_id": "f"}]}
    chain = [
        message(0, "anthropic", {"role": "assistant", "content": "Hello"}, "assistant"),
        message(1, "anthropic", upload),
        message(2, "anthropic", {"role": "assistant", "content": "And?"}, "assistant"),
    ]

    for form in ("openai", "responses", "google", "ui"):
        translated = translate(chain, form)
        assert [[0], [2]] == [list(places) for places in translated.origins], form
        assert ["m1"] == [dropped.message_id for dropped in translated.dropped]


def test_an_empty_text_beside_calls_is_no_block() -> None:
    """What most servers that speak OpenAI's language send (anthropic-sdk-python#461)."""
    chain = [{"role": "assistant", "content": "", "tool_calls": [CALL]}, {"role": "assistant", "content": ""}]

    assert ["tool_use"] == [block["type"] for block in to_anthropic(chain)[0]["content"]]


def test_a_response_of_gemini_has_the_name_of_its_call() -> None:
    """Whoever told the result, which elsewhere has the id of the call alone (any-llm#1318)."""
    for chain in (
        [
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "call_0", "content": "Rain."},
        ],
        [
            {"role": "assistant", "content": [USE]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "Rain."}]},
        ],
    ):
        response = to_google(chain)[-1]["parts"][0]["functionResponse"]
        assert ("weather", {"output": "Rain."}) == (response["name"], response["response"])


def test_calls_of_gemini_without_ids_get_ids_of_their_own() -> None:
    """Two calls of one function cannot be told apart by its name (langchain#619); over two turns neither."""
    call = {"functionCall": {"name": "weather", "args": {}}}
    response = {"functionResponse": {"name": "weather", "response": {"output": "Rain."}}}
    turn = [{"role": "model", "parts": [call, call]}, {"role": "user", "parts": [response, response]}]

    for told in (to_openai([*turn, *turn]), to_anthropic([*turn, *turn]), to_responses([*turn, *turn])):
        ids = {
            call_id
            for one in told
            for call_id in (
                *[made["id"] for made in one.get("tool_calls") or []],
                *[block["id"] for block in one.get("content") or [] if isinstance(block, dict) and "id" in block],
                *([one["call_id"]] if one.get("type") == "function_call" else []),
            )
        }
        assert 4 == len(ids)


def test_results_in_blocks_are_words_elsewhere() -> None:
    """As Claude Code writes all results; an image is a file, not its Base64 (found beside ogx#6367)."""
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    result = {
        "type": "tool_result",
        "tool_use_id": "toolu_1",
        "content": [{"type": "text", "text": "README.md"}, image],
    }
    chain = [{"role": "assistant", "content": [USE]}, {"role": "user", "content": [result]}]

    assert "README.md" == to_openai(chain)[1]["content"]
    assert "image_url" == to_openai(chain)[2]["content"][1]["type"]
    assert ["input_text", "input_image"] == [block["type"] for block in to_responses(chain)[1]["output"]]
