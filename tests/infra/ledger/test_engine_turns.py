"""Questions of engines to a chain: its turns, what has fired on it, and its end, whatever its length (CE-22 to CE-24, CE-31)."""

from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.engine_world import EngineWorld, data
from tests.support.operation_counting import counting
from tests.support.soak import examples

import chatledger
from chatledger import ContextEngine, Ledger, NewMessage, assistant, user
from chatledger.domain.context.summary import LazySummary, is_real_user_message, summarise
from chatledger.infra.ledger.engine.store_port import ChainReader
from chatledger.infra.ledger.port import store_of
from chatledger.reminders import (
    ReminderContext,
    day_changed,
    elapsed_exceeds,
    every_n_turns,
    every_of_last_n,
    last_assistant_length,
    once,
    reminder,
    within_last_n,
)

CHAT = "trip"
IDS = ("a", "b", "ab", "long " * 200)


def check_chain(ledger: Ledger, head: str) -> None:
    """Check that a reader says of a chain what the messages of the chain say."""
    chain = ledger.get_chain(head)
    whole = summarise(chain)
    turns = [message for message in chain if is_real_user_message(message)]
    reader = ChainReader(store_of(ledger), head)
    summary = LazySummary(reader)

    assert (whole.turn, whole.message_count) == (reader.turn, reader.message_count)
    assert (turns[0] if turns else None, turns[-1] if turns else None) == (reader.first_turn(), reader.last_turn())
    assert chain[::-1] == list(reader.backwards())
    assert whole.once_ids == reader.fired()
    assert whole.once_ids == {once_id for once_id in IDS if reader.has_fired(once_id)}
    assert (whole.last_message, whole.last_message_at) == (summary.last_message, summary.last_message_at)
    assert whole.assistant_replies == tuple(summary.assistant_replies)


def ui(role: str, once_ids: list[str], *, is_synthetic: bool) -> Any:
    metadata = {"once_ids": once_ids, "synthetic": {"source": "test"} if is_synthetic else None}
    return {"role": role, "parts": [{"type": "text", "text": role}], "metadata": metadata}


nodes = st.tuples(
    st.integers(0, 3), st.sampled_from(["user", "assistant"]), st.lists(st.sampled_from(IDS), max_size=2), st.booleans()
)


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(nodes, min_size=1, max_size=24))
def test_a_chain_is_asked_as_it_is_read(tree: list[tuple[int, str, list[str], bool]]) -> None:
    """On each node of any tree of messages; and a rebuilt index says the same."""
    with chatledger.open("memory:") as ledger:
        ledger.create_chat(CHAT, "ada")
        for at, (back, name, once_ids, is_synthetic) in enumerate(tree):
            parent = None if back > at else None if at == 0 else f"m{max(0, at - 1 - back)}"
            message = NewMessage(name, ui(name, once_ids, is_synthetic=is_synthetic), id=f"m{at}", parent_id=parent)
            ledger.add_messages(CHAT, [message])
        for at in range(len(tree)):
            check_chain(ledger, f"m{at}")
        ledger.verify()
        ledger.rebuild()
        for at in range(len(tree)):
            check_chain(ledger, f"m{at}")


batches = st.lists(
    st.tuples(st.integers(0, 6), st.lists(st.booleans(), min_size=1, max_size=9)), min_size=1, max_size=6
)


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(1, 4), batches)
def test_turns_of_lines_in_blocks(size: int, batches: list[tuple[int, list[bool]]]) -> None:
    """Messages that are added together, wherever a line begins, and in blocks that end within lines."""
    with pytest.MonkeyPatch.context() as patch, chatledger.open("memory:") as ledger:
        for module in ("chains", "writer"):
            patch.setattr(f"chatledger.projections.chat.{module}.TURN_BLOCK", size)
        ledger.create_chat(CHAT, "ada")
        ids: list[str] = []
        for back, are_users in batches:
            parent = ids[-1 - back] if back < len(ids) else None
            line: list[NewMessage] = []
            for is_user in are_users:
                line.append(NewMessage("user" if is_user else "assistant", "said", id=f"m{len(ids)}", parent_id=parent))
                parent = f"m{len(ids)}"
                ids.append(parent)
            ledger.add_messages(CHAT, line)
        for _ in range(2):
            for message_id in ids:
                check_chain(ledger, message_id)
            ledger.rebuild()


def filled(ledger: Ledger, turns: int) -> None:
    """A conversation that begins with the program, and each turn has a question and an answer."""
    ledger.create_chat(CHAT, "ada")
    ledger.append(CHAT, [NewMessage("system", "Be kind.", id="s")])
    messages = [one for at in range(turns) for one in (user("question", id=f"q{at}"), assistant("answer", f"a{at}"))]
    for start in range(0, len(messages), 500):
        ledger.append(CHAT, [_draft(message) for message in messages[start : start + 500]])


def _draft(message: Any) -> NewMessage:
    return NewMessage(message.name, message.data, id=message.id) if isinstance(message, NewMessage) else message


def own(context: ReminderContext) -> bool:
    """A condition of one's own, which looks at all that is cheap."""
    assert context.last_message is not None
    return context.turn > 1 and "never" not in context.chain.once_ids and bool(context.chain.assistant_replies[-1:])


REMINDERS = (
    reminder("always"),
    reminder("turns", when=every_n_turns(2)),
    reminder("once", when=once("w")),
    reminder("day", when=day_changed("UTC")),
    reminder("elapsed", when=elapsed_exceeds(1)),
    reminder("length", when=last_assistant_length({"gte": 1})),
    reminder("window", when=within_last_n(2, last_assistant_length({"gte": 1_000}))),
    reminder("all", when=every_of_last_n(3, last_assistant_length({"lte": 1_000}))),
    reminder("own", when=own),
)

QUESTIONS: dict[str, Callable[[ContextEngine], object]] = {
    "turn_count": lambda engine: engine.turn_count(),
    "first_user_message": lambda engine: engine.first_user_message(),
    "head_message": lambda engine: engine.head_message(),
    "regenerate": lambda engine: engine.regenerate(),
    "resolve": lambda engine: engine.resolve(last_n=3),
    "save": lambda engine: engine.set(user("next")).save(),
}


def test_the_length_of_a_chat_costs_nothing() -> None:
    """As much is read at 100 messages as at 5,000, with every kind of condition, by an engine that is new."""
    read: list[dict[str, int]] = []
    for turns in (50, 2_500):
        with chatledger.open("memory:") as ledger:
            filled(ledger, turns)
            read.append({name: _asked(ledger, question) for name, question in QUESTIONS.items()})

    # A tree of more pages may take a step more here and there.
    assert all(read[1][name] <= read[0][name] + 4 for name in QUESTIONS), read


def _asked(ledger: Ledger, question: Callable[[ContextEngine], object]) -> int:
    engine = ContextEngine(ledger, CHAT, "ada").set(*REMINDERS)
    engine.head_message()
    with counting() as counted:
        question(engine)
    return counted["get"] + counted["move"] + counted["row"]


def test_no_condition_reads_no_chain() -> None:
    """A reminder that always fires costs no more than what the save itself asks."""

    def asked(*given: Any) -> int:
        with chatledger.open("memory:") as ledger:
            filled(ledger, 100)
            engine = ContextEngine(ledger, CHAT, "ada").set(*given)
            engine.head_message()
            with counting() as counted:
                engine.set(user("next", id="n")).save()
            assert (ledger.get_messages(CHAT)[-1].text == "next") is not bool(given)
            return counted["get"] + counted["move"] + counted["row"]

    assert asked(reminder("Be brief")) <= asked() + 20


def test_turns_after_everything_that_moves_a_branch(world: EngineWorld) -> None:
    """Edits, rewinds, moved heads, regenerations and pending messages: the count is always that of the chain."""
    engine = world.engine().set(user("one", id="m1"), assistant("1", "a1"), user("two", id="m2"), assistant("2", "a2"))
    engine.save()
    assert (engine.turn_count(), engine.first_user_message()) == (2, world.message("m1"))
    engine.set(user("two, better", id="m2"))
    assert engine.turn_count() == 2
    engine.save()
    assert (engine.branch, engine.turn_count()) == ("main-v2", 2)
    edited = engine.set(user("one, better", id="m1")).save()
    assert (engine.turn_count(), engine.first_user_message()) == (1, world.message(edited.id_map["m1"]))
    engine.rewind("a2")
    assert engine.turn_count() == 2
    engine.regenerate("a1")
    assert engine.turn_count() == 1
    engine.discard()
    world.ledger.move_head(world.chat, engine.branch or "", "a1", expected="a2")
    assert engine.turn_count() == 1
    engine.set(user("three", id="m3"), user("four", id="m4"))

    assert engine.turn_count() == 3
    for branch in world.ledger.list_branches(world.chat):
        check_chain(world.ledger, branch.head_message_id or "")


def test_a_pending_first_message_is_the_first(world: EngineWorld) -> None:
    """Also where only a program spoke before."""
    synthetic = {**data("tick", "s1"), "metadata": {"synthetic": {"a": 1}}}
    engine = world.saved(user(synthetic, id="s1"), assistant("hello", "a1"))
    assert (engine.turn_count(), engine.first_user_message()) == (0, None)
    engine.set(user("one", id="m1"))
    first = engine.first_user_message()

    assert first is not None
    assert (first.id, first.parent_id, engine.turn_count()) == ("m1", "a1", 1)


def test_as_of_the_past_the_engine_of_today_goes_on(world: EngineWorld) -> None:
    """A view of the past has its chains; the engine, on the present, has its own."""
    engine = world.saved(user("one", id="m1"), assistant("1", "a1"))
    position = world.ledger.position
    engine.set(user("two", id="m2")).save()
    with world.ledger.as_of(position) as past:
        store = cast("Any", past)._as_of_store
        assert [ChainReader(store, head).turn for head in ("a1", "m2")] == [1, 0]

    assert engine.turn_count() == 2
