"""`resolve` within limits: what is given, what is left out and told, in each form; and the context of a run."""

import re
import uuid
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.engine_world import KINDS, EngineWorld, data, texts
from tests.support.in_form import in_form
from tests.support.soak import examples

from chatledger import ContextEngine, InvalidValueError, Ledger, NewMessage, assistant, user
from chatledger.domain.forms.model import FormName
from chatledger.errors import ConfigurationError, ContextTooLargeError
from chatledger.fragments import hint
from chatledger.tokens import Omitted, rough_tokens


@pytest.fixture(scope="module", params=KINDS)
def shared(request: pytest.FixtureRequest) -> Iterator[EngineWorld]:
    """One ledger for all examples, each of which has a chat of its own."""
    with EngineWorld(request.param) as world:
        yield world


def talk(world: EngineWorld, turns: int) -> ContextEngine:
    """An engine on a chat of so many turns: q0, a0, q1, a1, ..."""
    said = ((user(f"question {at}", id=f"q{at}"), assistant(f"answer {at}", f"a{at}")) for at in range(turns))
    return world.saved(*(message for turn in said for message in turn))


def test_last_messages_and_what_was_left_out(world: EngineWorld) -> None:
    engine = talk(world, 50)

    found = engine.resolve(last_n=5)

    assert texts(found.messages) == ["question 48", "answer 48", "question 49", "answer 49"]
    assert found.omitted == Omitted(count=96, first_id="q0", last_id="a47")
    assert found.tokens is None
    assert engine.resolve(last_n=100).omitted is None
    assert engine.resolve(last_n=100).messages == engine.resolve().messages


def test_tokens_are_those_of_prompt_and_messages(world: EngineWorld) -> None:
    engine = talk(world, 9).set(hint("Be brief."))
    prompt = rough_tokens("<hint>Be brief.</hint>")
    turn = rough_tokens("question 8") + rough_tokens("answer 8")

    found = engine.resolve(max_tokens=prompt + 2 * turn + 1)

    assert texts(found.messages) == ["question 7", "answer 7", "question 8", "answer 8"]
    assert found.tokens == prompt + 2 * turn
    assert found.omitted == Omitted(count=14, first_id="q0", last_id="a6")
    assert engine.resolve(max_tokens=10_000).omitted is None


def test_pending_messages_count_and_come_last(world: EngineWorld) -> None:
    engine = talk(world, 3).set(user("and now?", id="p1"))

    assert texts(engine.resolve(last_n=3).messages) == ["question 2", "answer 2", "and now?"]
    engine.set(user("or now?", id="p2"))
    found = engine.resolve(last_n=1)
    assert texts(found.messages) == ["or now?"]
    assert found.omitted == Omitted(count=7, first_id="q0", last_id="p1")


def test_a_new_chat_has_room(world: EngineWorld) -> None:
    engine = world.engine().set(user("one", id="p1"), user("two", id="p2"))

    assert engine.resolve(last_n=1).omitted == Omitted(count=1, first_id="p1", last_id="p1")
    engine.discard()
    assert engine.resolve(last_n=1, max_tokens=1).messages == []


def test_the_newest_turn_is_not_cut(world: EngineWorld) -> None:
    """The error says by how much it is too large, and nothing changes."""
    engine = talk(world, 3)
    with world.nothing_happens(engine), pytest.raises(ContextTooLargeError, match="1 more than last_n=1") as raised:
        engine.resolve(last_n=1)
    assert (raised.value.argument, raised.value.size, raised.value.limit) == ("last_n", 2, 1)

    with pytest.raises(ContextTooLargeError, match="max_tokens=4") as raised:
        engine.resolve(max_tokens=4)
    assert raised.value.size == rough_tokens("question 2") + rough_tokens("answer 2")
    with pytest.raises(ContextTooLargeError) as raised:
        engine.set(hint("x" * 400)).resolve(max_tokens=50)
    assert raised.value.system_tokens == rough_tokens(f"<hint>{'x' * 400}</hint>")


def test_counters(world: EngineWorld) -> None:
    """A function or the name of an encoding, as elsewhere; each text is counted once."""
    engine, seen = talk(world, 40), list[str]()

    def words(text: str) -> int:
        seen.append(text)
        return len(text.split())

    assert len(engine.resolve(max_tokens=161, counter=words).messages) == 80
    assert len(seen) == 81
    with pytest.raises(InvalidValueError, match="unknown encoding"):
        engine.resolve(max_tokens=12, counter="o200k")
    with pytest.raises(InvalidValueError, match="counter"):
        engine.resolve(max_tokens=12, counter=7)  # type: ignore[arg-type]


def test_files_are_told_as_uncounted(world: EngineWorld) -> None:
    picture = {"type": "file", "mediaType": "image/png", "url": "https://example.org/a.png"}
    engine = world.saved(user({"role": "user", "parts": [{"type": "text", "text": "this?"}, picture]}))

    found = engine.resolve(max_tokens=100)

    assert (found.tokens, found.uncounted) == (2, 1)


def agent(world: EngineWorld) -> ContextEngine:
    """A chat of three turns with a tool each, as the OpenAI API has them."""
    messages: list[Any] = []
    for at in range(3):
        tool = {"id": f"call {at}", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
        messages += [
            user(f"question {at}", id=f"q{at}"),
            in_form("openai", {"role": "assistant", "content": None, "tool_calls": [tool]}, f"c{at}"),
            in_form("openai", {"role": "tool", "tool_call_id": f"call {at}", "content": "rain"}, f"t{at}"),
            assistant(f"answer {at}", f"a{at}"),
        ]
    return world.saved(*messages)


def test_no_result_without_its_call_in_any_form(world: EngineWorld) -> None:
    """Whatever the limit, the messages are those of whole turns, as the whole context has them at its end."""

    def shown(messages: list[Any]) -> str:
        return re.sub(r"'message_id': \d+", "", repr(messages))  # Strands counts the messages of a window from 0

    engine = agent(world)
    for form in get_args(FormName):
        whole, one = engine.resolve(form=form).messages, len(engine.resolve(form=form, last_n=4).messages)
        for last_n in (4, 7, 8, 11, 12):
            found = engine.resolve(form=form, last_n=last_n)
            turns = last_n // 4
            assert shown(found.messages) == shown(whole[len(whole) - turns * one :])
            assert (found.omitted.last_id if found.omitted else None) == {1: "a1", 2: "a0", 3: None}[turns]
        with pytest.raises(ContextTooLargeError):
            engine.resolve(form=form, last_n=3)


def test_hidden_and_replaced_messages(world: EngineWorld) -> None:
    """Hidden ones take no room, replacements stand where the replaced ones stood, and what is left out is told by what is stored."""
    engine = talk(world, 4)
    world.ledger.annotate(world.chat, "a2", hidden=True)
    (other,) = world.ledger.add_messages(world.chat, [_answer("better", parent_id="q3")])
    world.ledger.annotate(world.chat, "a3", replaced_by=other.id)

    found = engine.resolve(last_n=3)

    assert texts(found.messages) == ["question 2", "question 3", "better"]
    assert found.omitted == Omitted(count=4, first_id="q0", last_id="a1")
    assert engine.resolve(last_n=2).omitted == Omitted(count=6, first_id="q0", last_id="a2")


def _answer(text: str, *, parent_id: str) -> NewMessage:
    return NewMessage("assistant", data(text, "b", "assistant"), id="b", parent_id=parent_id)


@settings(max_examples=examples(40))
@given(st.integers(0, 60), st.sets(st.integers(0, 59), max_size=9), st.integers(1, 40))
def test_the_end_of_the_whole_context(shared: EngineWorld, length: int, hidden: set[int], last_n: int) -> None:
    """Whatever is hidden, a limited context is the end of the whole one, and with what was left out it is the chain."""
    shared.chat = f"chat {uuid.uuid4().hex}"
    prefix = shared.chat
    engine = shared.saved(*(user(f"{at}", id=f"{prefix} {at}") for at in range(length)))
    for at in hidden:
        if at < length:
            shared.ledger.annotate(shared.chat, f"{prefix} {at}", hidden=True)
    whole = texts(engine.resolve().messages)

    found = engine.resolve(last_n=last_n)

    assert texts(found.messages) == whole[-last_n:]
    assert len(found.messages) == min(last_n, len(whole))
    if found.omitted is None:
        assert len(found.messages) == len(whole)
    else:
        assert found.omitted.first_id == f"{prefix} 0"
        assert found.omitted.last_id == f"{prefix} {found.omitted.count - 1}"
        assert int(texts(found.messages)[0]) == found.omitted.count + sum(
            at in hidden for at in range(found.omitted.count, int(texts(found.messages)[0]))
        )


def test_context_of_a_run_in_tokens(ledger: Ledger) -> None:
    """`get_context` counts as `resolve` does; without a limit of tokens `last_n` cuts anywhere, as ever."""
    ledger.create_chat("c", "ada")
    for at in range(40):
        ledger.append("c", [user(f"question {at}", id=f"q{at}"), assistant(f"answer {at}", f"a{at}")])

    found = ledger.get_context("c", "q39", max_tokens=15)

    assert [message.id for message in found] == ["q37", "a37", "q38", "a38", "q39"]
    assert found[0].parent_id == "a36"
    assert [message.id for message in ledger.get_context("c", "q39", 4, max_tokens=1_000)] == ["q38", "a38", "q39"]
    assert [message.id for message in ledger.get_context("c", "q39", 2)] == ["a38", "q39"]
    assert ledger.get_context("c", "q39", 0) == []
    with pytest.raises(ContextTooLargeError):
        ledger.get_context("c", "q39", max_tokens=2)
    with pytest.raises((InvalidValueError, ConfigurationError)):
        ledger.get_context("c", "q39", max_tokens=2, counter="none")
