"""Properties of any saves: the conversation is what was set, and no edit changes what another branch shows."""

import uuid
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.engine_world import KINDS, EngineWorld, shown
from tests.support.json_values import json_values
from tests.support.soak import examples

from chatledger import Fragment, NewMessage, assistant, user
from chatledger.fragments import last_assistant_message

turns = st.lists(st.tuples(st.sampled_from(["user", "assistant"]), st.text(max_size=5)), max_size=4)


@pytest.fixture(scope="module", params=KINDS)
def world(request: pytest.FixtureRequest) -> Iterator[EngineWorld]:
    """One ledger for all examples, each of which has chats of its own."""
    with EngineWorld(request.param) as world:
        yield world


def new_chat(world: EngineWorld) -> None:
    world.chat = f"chat {uuid.uuid4().hex}"


def said(role: str, text: str, message_id: str | None = None) -> Fragment:
    return user(text, id=message_id) if role == "user" else assistant(text, message_id)


@settings(max_examples=examples(40))
@given(st.lists(turns, max_size=5))
def test_what_was_set_is_what_is_shown(world: EngineWorld, saves: list[list[tuple[str, str]]]) -> None:
    """In order, before and after each save, for this engine and for new ones (CE-21)."""
    new_chat(world)
    engine, expected = world.engine(), list[str]()
    for messages in saves:
        engine.set(*(said(role, text) for role, text in messages))
        expected += [text for _, text in messages]
        assert shown(engine) == expected
        result = engine.save()
        assert len(result.message_ids) == len(messages)
        assert shown(engine) == expected == shown(world.engine())


@settings(max_examples=examples(40))
@given(st.integers(1, 6), st.lists(st.tuples(st.integers(0, 5), st.text(max_size=5)), min_size=1, max_size=4))
def test_an_edit_changes_no_other_branch(world: EngineWorld, length: int, edits: list[tuple[int, str]]) -> None:
    """
    Edits of any messages of a chain, one save each: all other branches show what they showed (SM-41, SM-43).

    Stored messages are what they were, and the new branch shows what `resolve` said it would.
    """
    new_chat(world)
    engine = world.saved(*(user(f"text {number}", id=f"{world.chat} {number}") for number in range(length)))
    for number, text in edits:
        before = {
            branch.name: world.ledger.get_messages(world.chat, branch=branch.name)
            for branch in world.ledger.list_branches(world.chat)
        }
        own = engine.branch
        engine.set(user(text, id=f"{world.chat} {number % length}"))
        expected = shown(engine)
        result = engine.save()
        after = {name: world.ledger.get_messages(world.chat, branch=name) for name in before}

        assert shown(engine) == expected
        if result.id_map and result.branch != own:
            assert after == before
            assert expected == [*(f"text {n}" for n in range(number % length)), text]
        else:
            assert text == f"text {number % length}"


@settings(max_examples=examples(30))
@given(turns, st.text(max_size=5))
def test_a_correction_says_what_the_last_answer_says(
    world: EngineWorld, before: list[tuple[str, str]], text: str
) -> None:
    """Pending or stored, the most recent answer reads as corrected, and resolving tells so before (CE-12, CE-21)."""
    new_chat(world)
    for is_stored in (False, True):
        new_chat(world)
        engine = world.engine().set(*(said(role, content) for role, content in before))
        if is_stored:
            engine.save()
        engine.set(last_assistant_message(text))
        expected = shown(engine)
        engine.save()

        assert shown(engine) == expected
        assert [one["parts"][0]["text"] for one in engine.resolve().messages if one["role"] == "assistant"][-1] == text


@settings(max_examples=examples(40))
@given(st.lists(json_values, max_size=4))
def test_any_data_come_back(world: EngineWorld, values: list[object]) -> None:
    """What is JSON is stored as it was given, and set again it is skipped (SM-3, SM-47)."""
    new_chat(world)
    drafts = [NewMessage("note", value, id=f"{world.chat} {number}") for number, value in enumerate(values)]
    engine = world.saved(*drafts)

    assert [message.data for message in world.ledger.get_messages(world.chat)] == values
    assert engine.set(*drafts, *world.ledger.get_messages(world.chat)).save().id_map == {}
    assert list(world.branches()) == ["main"]
