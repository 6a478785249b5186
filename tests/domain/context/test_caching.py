"""Prompt caching: what comes first, where a prefix ends, its hash, and what a report says of two prompts."""

import hashlib
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.soak import examples

from chatledger.domain.context.caching import (
    CacheTurn,
    cache_report,
    plan_cache,
    record_of,
    stable_first,
    with_record,
)
from chatledger.domain.context.estimate import rough_tokens
from chatledger.domain.context.fragments import Fragment
from chatledger.domain.forms.translate import translate
from chatledger.domain.render.prepared import Renderer
from chatledger.domain.values import Message
from chatledger.renderers import MarkdownRenderer, TomlRenderer, XmlRenderer

RULES = Fragment("rules", "Be brief.")
NOW = Fragment("now", "10:00").with_metadata(volatile=True)


def say(number: int, text: str | None = None, record: dict[str, Any] | None = None) -> Message:
    """Messages of the user have even numbers, answers have odd ones."""
    name = ("user", "assistant")[number % 2]
    data = {"id": f"m{number}", "role": name, "parts": [{"type": "text", "text": text or f"text {number}"}]}
    notes = None if record is None else with_record(None, record)
    return Message(id=f"m{number}", chat_id="c", name=name, data=data, created_at=0, form="ui", notes=notes)


def planned(
    fragments: list[Fragment],
    messages: list[Message],
    provider: Any = "anthropic",
    form: str = "anthropic",
    renderer: Renderer | None = None,
) -> Any:
    render = (renderer or XmlRenderer()).render
    prompt = stable_first(fragments, render)
    return plan_cache(
        provider,
        prompt,
        messages,
        lambda chain: translate(chain, form).messages,
        form=form,
        counter=rough_tokens,
        render=render,
    )


def test_volatile_fragments_come_last() -> None:
    """Each kind in its order; the system prompt is the blocks one after another, and the mark is on the stable one."""
    plan = planned([NOW, RULES, Fragment("role", "You plan trips.")], []).plan

    first, second = plan.system
    assert first == {
        "type": "text",
        "text": "<rules>Be brief.</rules>\n<role>You plan trips.</role>",
        "cache_control": {"type": "ephemeral"},
    }
    assert second == {"type": "text", "text": "\n<now>10:00</now>"}
    assert [point.messages for point in plan.breakpoints] == [0]


@pytest.mark.parametrize("renderer", [XmlRenderer(), MarkdownRenderer(), TomlRenderer()], ids=repr)
def test_blocks_are_the_prompt(renderer: Renderer) -> None:
    """In every form; where stable fragments do not come out first, as in TOML, there is no breakpoint among them."""
    table = Fragment("table", {"a": 1})
    prompt = stable_first([NOW, table], renderer.render)
    plan = planned([NOW, table], [], renderer=renderer).plan

    assert "".join(block["text"] for block in plan.system) == prompt.text == renderer.render([table, NOW])
    assert (
        bool(plan.breakpoints)
        == ("cache_control" in plan.system[0])
        == prompt.text.startswith(renderer.render([table]))
    )


def test_openai_needs_no_marks() -> None:
    """Its cache finds prefixes by itself: the breakpoints are the same."""
    messages = [say(number) for number in range(5)]
    plan, marked = planned([RULES, NOW], messages, "openai", "openai"), planned([RULES, NOW], messages)

    assert all("cache_control" not in block for block in plan.plan.system)
    assert "cache_control" not in str(plan.messages)
    assert [point.messages for point in plan.plan.breakpoints] == [0, 3, 5]
    assert str(marked.messages).count("cache_control") == 2


def test_marks_stand_in_the_last_block_that_can_carry_one() -> None:
    """Not in thinking, and not in an empty text; the stored messages are not changed."""
    blocks: list[dict[str, Any]] = [
        {"type": "text", "text": "hm"},
        {"type": "thinking", "thinking": "so", "signature": "x"},
        {"type": "text", "text": ""},
    ]
    data = {"role": "assistant", "content": blocks}
    answer = Message(id="m1", chat_id="c", name="assistant", data=data, created_at=0, form="anthropic")
    before = msgspec.json.encode(answer)

    first, second = planned([], [say(0), answer]).messages

    assert first["content"] == [{"type": "text", "text": "text 0", "cache_control": {"type": "ephemeral"}}]
    assert ["cache_control" in block for block in second["content"]] == [True]
    assert msgspec.json.encode(answer) == before


def test_marks_that_messages_were_stored_with_do_not_count() -> None:
    """A request has at most four, also if each message came with one of its own, in results of tools too."""
    mark = {"cache_control": {"type": "ephemeral"}}
    text = {"type": "text", "text": "rain", **mark}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [text], **mark}
    given: list[dict[str, Any]] = [
        {"role": "user", "content": [text]},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "t", "name": "weather", "input": {"a": 1}, **mark}],
        },
        {"role": "user", "content": [result, text]},
        {"role": "user", "content": [text]},
    ]
    messages = [
        msgspec.structs.replace(say(2 * number), data=one, form="anthropic") for number, one in enumerate(given)
    ]

    marked, unmarked = planned([RULES], messages), planned([RULES], messages, "openai")

    assert str(marked.messages).count("cache_control") == 1
    assert "cache_control" in str(marked.messages[-1])
    assert str(unmarked.messages[2:]) == str(given[2:])
    assert str(unmarked.messages).count("cache_control") == 4


@settings(max_examples=examples(100))
@given(st.integers(0, 12), st.lists(st.sampled_from([RULES, NOW, Fragment("role", "You.")]), max_size=4))
def test_prefixes(length: int, fragments: list[Fragment]) -> None:
    """Each is the hash of all before it, grows, and depends on nothing after it; at most three, which leaves one for tools."""
    messages = [say(number) for number in range(length)]
    plan = planned(fragments, messages, "openai", "ui")
    prompt = stable_first(fragments, XmlRenderer().render)

    assert len(plan.plan.breakpoints) <= 3
    tokens = [point.tokens for point in plan.plan.breakpoints]
    assert tokens == sorted(tokens)
    for point in plan.plan.breakpoints:
        text = prompt.text[: prompt.stable] if not point.messages else prompt.text
        written = [text.encode(), *(msgspec.json.encode(one.data) for one in messages[: point.messages])]
        assert point.prefix == hashlib.sha256(b"\n".join(written)).hexdigest()


def conversation(*prompts: list[Fragment], **changes: Any) -> list[CacheTurn]:
    """The report on a conversation with one answer to each of these prompts."""
    messages: list[Message] = []
    for number, fragments in enumerate(prompts):
        messages.append(say(2 * number))
        sent = changes[f"sent_{number}"](messages) if f"sent_{number}" in changes else messages
        provider, form = changes.get(f"to_{number}", ("anthropic", "anthropic"))
        messages.append(say(2 * number + 1, record=planned(fragments, sent, provider, form).record))
    return cache_report(messages)


def test_a_prefix_that_is_kept() -> None:
    found = conversation([RULES], [RULES], [RULES])

    assert [(turn.message_id, turn.is_kept) for turn in found] == [("m1", True), ("m3", True), ("m5", True)]
    assert cache_report([say(0), say(1)]) == []


LATER = Fragment("now", "11:00").with_metadata(volatile=True)
HINT = Fragment("hint", "a", id="h1")


@pytest.mark.parametrize(
    ("before", "after", "fragment", "reason"),
    [
        ([RULES], [Fragment("rules", "Be long.")], "rules", "fragment rules changed"),
        ([RULES, NOW], [RULES, LATER], "now", "volatile fragment now changed"),
        ([RULES], [RULES, HINT], "hint (h1)", "fragment hint (h1) was added"),
        ([RULES, NOW], [RULES, HINT, NOW], "hint (h1)", "fragment hint (h1) was added"),
        ([RULES, HINT], [RULES], "hint (h1)", "volatile fragment hint (h1) was removed"),
        ([HINT, RULES], [RULES], "hint (h1)", "fragment hint (h1) was removed"),
        ([HINT, RULES], [RULES, HINT], "rules", "fragment rules moved forward"),
        ([RULES], [HINT], "hint (h1)", "fragment hint (h1) took the place of rules"),
    ],
)
def test_which_fragment_changed(before: list[Fragment], after: list[Fragment], fragment: str, reason: str) -> None:
    turn = conversation(before, after)[1]

    assert (turn.is_kept, turn.part, turn.fragment) == (False, "system", fragment)
    assert turn.reason == reason


def _without_the_first_turn(messages: list[Message]) -> list[Message]:
    return messages[2:]


def _with_an_edit(messages: list[Message]) -> list[Message]:
    return [say(0, "edited"), *messages[1:]]


CHANGES: list[tuple[dict[str, Any], str, str]] = [
    ({"to_1": ("openai", "openai")}, "provider", "'anthropic'"),
    ({"to_1": ("anthropic", "ui")}, "form", "'anthropic'"),
    ({"sent_1": _without_the_first_turn}, "messages", "begins with another message"),
    ({"sent_1": _with_an_edit}, "messages", "edited"),
]


@pytest.mark.parametrize(("changes", "part", "words"), CHANGES)
def test_what_else_changes(changes: Any, part: str, words: str) -> None:
    turn = conversation([RULES], [RULES], **changes)[1]

    assert (turn.is_kept, turn.part, turn.fragment) == (False, part, None)
    assert words in turn.reason


def test_a_record_stands_beside_other_notes() -> None:
    """It leaves them as they were, in a message of any form; a damaged one counts as none."""
    record = planned([RULES], [say(0)]).record
    several: list[dict[str, Any] | None] = [None, {"a": 1}, {"chatledger": {"name": "x"}}]
    for notes in several:
        carried = with_record(notes, record)
        answer = msgspec.structs.replace(say(1), data="rain", form=None, notes=carried)

        assert record == msgspec.json.decode(msgspec.json.encode(record_of(answer)))
        assert (notes or {}).items() <= {**carried, "chatledger": {"name": "x"}}.items()
        assert "cache" not in (notes or {}).get("chatledger", {})
    assert record_of(msgspec.structs.replace(say(1), notes={"chatledger": {"cache": {"provider": 1}}})) is None
    assert record_of(say(1)) is None
