"""Correcting the last answer without knowing its id (CE-11 to CE-14)."""

import uuid
from typing import Any

import pytest
from tests.support.engine_world import EngineWorld, data, shown
from tests.support.ledger_world import length

from chatledger import Fragment, InvalidValueError, NewMessage, assistant, user
from chatledger.domain.context.fragments import Lazy
from chatledger.errors import MissingCodecError, UnknownLazyTypeError
from chatledger.fragments import is_lazy_fragment, is_message_fragment, last_assistant_message


def test_what_it_is() -> None:
    """A message named `assistant`, to be stored, without id and codec, marked lazily (CE-11)."""
    fragment = last_assistant_message("better")

    assert is_message_fragment(fragment)
    assert is_lazy_fragment(fragment)
    assert (fragment.name, fragment.persist, fragment.id, fragment.codec) == ("assistant", True, None, None)
    assert fragment.lazy is not None
    assert (fragment.lazy.type, fragment.lazy.content) == ("last-assistant", "better")


def test_without_an_earlier_answer_it_is_a_new_one(world: EngineWorld) -> None:
    """Under a new id, which `resolve` shows before (CE-12, CE-21); answers of other branches do not count."""
    engine = world.saved(user("one", id="m1"), assistant("two", "m2"))
    engine.rewind("m1")
    engine.set(last_assistant_message("hi"))
    before = engine.resolve(), engine.resolve()
    result = engine.save()
    (new,) = result.message_ids

    assert uuid.UUID(new)
    assert result.id_map == {}
    assert before[0] == before[1] == engine.resolve()
    assert world.branches() == {"main": ["m1", "m2"], "main-v2": ["m1", new]}
    assert world.message(new).data == data("hi", new, "assistant")


def test_a_pending_answer_is_replaced_in_the_queue(world: EngineWorld) -> None:
    """
    In its place and under its id; no branch (CE-13, acceptance CE).

    The source chains the message onto itself and fails.
    """
    engine = world.saved(user("one", id="m1"), assistant("stored", "m2"))
    engine.set(assistant("first", "a1"), user("between", id="u1"), last_assistant_message("better"))
    assert shown(engine) == ["one", "stored", "better", "between"]
    result = engine.save()

    assert world.branches() == {"main": ["m1", "m2", "a1", "u1"]}
    assert world.message("a1").data == data("better", "a1", "assistant")
    assert result.id_map == {}


def test_the_newest_pending_answer_counts(world: EngineWorld) -> None:
    """Newest first (CE-12)."""
    engine = world.engine().set(assistant("one", "a1"), assistant("two", "a2"), last_assistant_message("better"))

    assert shown(engine) == ["one", "better"]


def test_the_last_answer_of_the_chain_is_found(world: EngineWorld) -> None:
    """However far back, whoever wrote it, and whatever its data are; from the present head of the own branch (CE-12, SM-30)."""
    engine = world.saved(assistant("early", "a1"), *(user(str(number)) for number in range(120)))
    assert list(engine.set(last_assistant_message("better")).save().id_map) == ["a1"]

    world.engine().set(assistant("by another", "x1")).save()
    assert list(engine.set(last_assistant_message("best")).save().id_map) == ["x1"]

    world.ledger.append(world.chat, [NewMessage("assistant", None, id="odd"), NewMessage("note", "x", id="n1")])
    assert list(engine.set(last_assistant_message("best")).save().id_map) == ["odd"]

    engine.rewind("a1")
    engine.set(user("aside", id="u1")).save()
    assert list(engine.set(last_assistant_message("best")).save().id_map) == ["a1"]


def test_a_stored_answer_is_edited(world: EngineWorld) -> None:
    """Each correction makes a branch, wherever in the chain the answer is (CE-13)."""
    engine = world.saved(user("one", id="m1"), assistant("two", "m2"), user("three", id="m3"))
    first = engine.set(last_assistant_message("better")).save()
    second = engine.set(last_assistant_message("best")).save()

    assert list(first.id_map) == ["m2"]
    assert second.id_map == {first.id_map["m2"]: second.head_message_id}
    assert world.branches() == {
        "main": ["m1", "m2", "m3"],
        "main-v2": ["m1", first.id_map["m2"]],
        "main-v2-v2": ["m1", second.head_message_id],
    }
    assert shown(engine) == ["one", "best"]


def test_equal_content_is_skipped(world: EngineWorld) -> None:
    """No branch, no event (CE-13)."""
    engine = world.saved(user("one", id="m1"), assistant("two", "m2", agent_id="guide", reply_to="m1"))
    events = length(world.ledger)
    result = engine.set(last_assistant_message("two")).save()

    assert (result.branch, result.message_ids, result.id_map) == ("main", ["m2"], {})
    assert length(world.ledger) == events


def test_a_correction_keeps_where_the_answer_comes_from(world: EngineWorld) -> None:
    """Agent and reply stay; what changes is the text."""
    engine = world.saved(user("one", id="m1"), assistant("two", "m2", agent_id="guide", reply_to="m1"))
    new = engine.set(last_assistant_message("better")).save().id_map["m2"]

    assert (world.message(new).agent_id, world.message(new).reply_to) == ("guide", "m1")


def test_two_corrections_of_one_answer(world: EngineWorld) -> None:
    """The later one counts, and there is one branch (CE-12: other lazy fragments are excluded)."""
    engine = world.saved(user("one", id="m1"), assistant("two", "m2"))
    engine.set(last_assistant_message("better"), last_assistant_message("best"))
    assert shown(engine) == ["one", "best"]
    engine.save()

    assert list(world.branches()) == ["main", "main-v2"]
    assert shown(engine) == ["one", "best"]


def test_an_unknown_lazy_type(world: EngineWorld) -> None:
    """`UnknownLazyTypeError` from save and resolve; it stays pending, nothing is stored (CE-14)."""
    engine = world.saved(user("one", id="m1"))
    engine.set(user("two"), Fragment("assistant", type="message", lazy=Lazy("first-assistant", "x")))
    for call in (engine.save, engine.resolve, engine.get_messages):
        with world.nothing_happens(engine), pytest.raises(UnknownLazyTypeError, match="'first-assistant'"):
            call()


@pytest.mark.parametrize("content", [5, None, ["text"], b"text"], ids=repr)
def test_lazy_content_is_text(world: EngineWorld, content: Any) -> None:
    """Whoever made the marker."""
    engine = world.saved(user("one", id="m1"))
    engine.set(Fragment("assistant", type="message", lazy=Lazy("last-assistant", content)))
    with world.nothing_happens(engine), pytest.raises(InvalidValueError, match="must be text"):
        engine.save()


def test_a_lazy_fragment_elsewhere(world: EngineWorld) -> None:
    """Still lazy where its data are needed: `MissingCodecError` (CE-14)."""
    engine = world.saved(user("one", id="m1"))
    with pytest.raises(MissingCodecError, match="still lazy"):
        world.ledger.append(world.chat, [last_assistant_message("x")])

    assert world.chain() == ["m1"]
    assert engine.pending == []


def test_a_correction_does_not_swallow_a_later_answer(world: EngineWorld) -> None:
    """It corrects what was the last answer when it was set; an answer that is set afterwards stays what it is."""
    engine = world.saved(user("q", id="q"), assistant("old", "a0"))
    engine.set(last_assistant_message("fixed"), user("next", id="n"), assistant("new", "a1"))
    result = engine.save()

    assert result.branch == "main-v2"
    assert world.branches()["main-v2"] == ["q", result.id_map["a0"], "n", "a1"]
