"""Inspection of a context engine, and its scratch copies (CE-28 to CE-30)."""

import asyncio
import gc
import json
import time
import weakref
from typing import Any, cast

import pytest
from tests.support.engine_world import EngineWorld, as_set, data, shown
from tests.support.ledger_world import length

import chatledger
from chatledger import (
    AsyncContextEngine,
    AsyncLedger,
    ContextEngine,
    InvalidValueError,
    Ledger,
    LedgerClosedError,
    assistant,
    user,
)
from chatledger.errors import ModelNotFoundError
from chatledger.fragments import LoadContext, fragment, hint, requires_sandbox, role
from chatledger.reminders import reminder
from chatledger.renderers import MarkdownRenderer
from chatledger.tokens import ModelInfo

MODELS = {"small": ModelInfo(provider="acme", input_price=2.0, context=20, output=10)}


# Estimates


def test_estimate(world: EngineWorld) -> None:
    """Context, stored and pending messages; the cost is that of the input (CE-29)."""
    engine = world.saved(user("1234", id="m1")).set(hint("be brief"), assistant("12345678", "m2"), reminder("12345678"))
    costs = engine.estimate("small", models=MODELS, tokenizer=len)

    assert [(one.id, one.name, one.tokens) for one in costs.fragments] == [
        (None, "hint", len("<hint>be brief</hint>")),
        ("m1", "user", 4),
        ("m2", "assistant", 8),
    ]
    assert costs.tokens == sum(one.tokens for one in costs.fragments) == 33
    assert costs.cost == pytest.approx(33 / 1_000_000 * 2.0)
    assert (costs.model, costs.provider) == ("small", "acme")
    assert (costs.limits.context, costs.limits.output, costs.limits.exceeds_context) == (20, 10, True)


def test_estimate_of_an_edit(world: EngineWorld) -> None:
    """What `resolve` gives: without what the edit leaves behind, and with the prompt as it will be sent (CE-21)."""
    engine = world.saved(user("1234", id="m1"), assistant("12345678", "m2"), user("long" * 100, id="m3"))
    engine.set(assistant("12", "m2"), hint("be brief"))
    found = engine.estimate("small", MarkdownRenderer(), models=MODELS, tokenizer=len)

    assert [one.tokens for one in found.fragments] == [len("## Hint\nbe brief"), 4, 2]


def test_models_are_given(world: EngineWorld) -> None:
    """None is known by itself; nothing is fetched (CE-29: the source fetches prices over the network)."""
    engine = world.saved(user("one", id="m1"))
    with world.nothing_happens(engine):
        with pytest.raises(ModelNotFoundError, match="'small'"):
            engine.estimate("small")
        with pytest.raises(ModelNotFoundError, match="'large'"):
            engine.inspect("large", models=MODELS)
        with pytest.raises(InvalidValueError, match="tokenizer"):
            engine.estimate("small", models=MODELS, tokenizer=lambda text: -1)


# Inspection


def test_inspect(world: EngineWorld) -> None:
    """All that the engine holds, as JSON (CE-30)."""
    before = int(time.time() * 1000)
    engine = world.saved(user("one", id="m1"), assistant("two", "m2"))
    engine.checkpoint("here")
    engine.set(role("guide"), hint("be brief"), assistant("two, better", "m2"), user("three", id="m3"))
    with world.nothing_happens(engine):
        found = engine.inspect("small", models=MODELS)

    assert json.loads(json.dumps(found)) == found
    assert set(found) == {"estimate", "rendered", "fragments", "graph", "meta"}
    assert found["estimate"]["model"] == "small"
    assert found["rendered"] == engine.resolve().system_prompt
    assert [(one["name"], one["rendered"]) for one in found["fragments"]["context"]] == [
        ("role", "<role>guide</role>"),
        ("hint", "<hint>be brief</hint>"),
    ]
    assert [one["id"] for one in found["fragments"]["pending"]] == ["m2", "m3"]
    assert found["fragments"]["persisted"] == [
        {"id": "m1", "name": "user", "data": data("one", "m1")},
        {"id": "m2", "name": "assistant", "data": data("two", "m2", "assistant")},
    ]
    assert [one["id"] for one in found["graph"]["nodes"]] == ["m1", "m2"]
    assert found["graph"]["checkpoints"] == [{"name": "here", "message_id": "m2"}]
    assert (found["meta"]["chat_id"], found["meta"]["branch"]) == (world.chat, "main")
    assert before <= found["meta"]["timestamp"] <= time.time() * 1000


def test_inspect_without_a_model(world: EngineWorld) -> None:
    """There is no estimate; reminders, computed values and another renderer are JSON all the same."""
    engine = world.engine()
    empty = engine.inspect()
    assert (empty["estimate"], empty["rendered"], empty["graph"]["nodes"]) == (None, "", [])
    assert empty["fragments"] == {"context": [], "pending": [], "persisted": []}
    assert json.dumps(empty)
    found = engine.set(reminder("x"), fragment("now", lambda: "computed"), user("one", id="m1")).inspect(
        None, MarkdownRenderer()
    )

    assert json.loads(json.dumps(found)) == found
    assert found["rendered"] == "## Now\n- computed"


# Computed values


def test_computed_values_are_put_in_place_once(world: EngineWorld) -> None:
    """On the engine's own copy; they get the engine and the sandbox (CE-10)."""
    seen: list[Any] = []

    @requires_sandbox
    def answer(load: LoadContext) -> str:
        seen.append((load.context, load.sandbox))
        return f"answer {len(seen)}"

    given = fragment("note", answer)
    engine = world.engine(sandbox="box").set(given)
    first, second = engine.resolve().system_prompt, engine.resolve().system_prompt

    assert first == second == "<note>answer 1</note>"
    assert [one[1] for one in seen] == ["box"]
    assert seen[0][0].chat_id == world.chat
    assert world.engine(sandbox="box").set(given).resolve().system_prompt == "<note>answer 2</note>"


def test_what_is_set_while_values_are_computed_stays(world: EngineWorld) -> None:
    """A computed value that sets something itself does not lose it."""
    engine = world.engine()

    def nosy(load: LoadContext) -> str:
        load.context.set(hint("from inside"))
        return "x"

    engine.set(fragment("note", nosy)).resolve()

    assert [one.name for one in engine.fragments] == ["note", "hint"]


# Scratch copies


def test_fork(world: EngineWorld) -> None:
    """Context in a new chat of the same user, in memory, without messages; the original knows nothing of it (CE-28)."""
    engine = world.saved(user("one", id="m1")).set(role("guide"), hint("be brief"), user("pending", id="p1"))
    events = length(world.ledger)
    with engine.fork() as scratch:
        assert scratch.chat_id != engine.chat_id
        assert scratch.user_id == engine.user_id
        assert scratch.pending == []
        assert scratch.resolve().system_prompt == engine.resolve().system_prompt
        assert scratch.resolve().messages == []
        scratch.set(hint("only here"), user("aside", id="m1")).save()
        scratch.unset("x")
        assert shown(scratch) == ["aside"]

    assert length(world.ledger) == events
    assert [one.name for one in engine.fragments] == ["role", "hint"]
    assert as_set(engine.pending) == [("p1", "user")]
    assert world.ledger.get_chat(scratch.chat_id) is None


def test_forks_are_apart(world: EngineWorld) -> None:
    """Also those of one engine, and forks of forks, before and after the first use."""
    engine = world.engine().set(hint("x"))
    with engine.fork() as one, one.set(hint("y")).fork() as two:
        one.set(user("in one", id="m1")).save()
        two.set(user("in two", id="m1")).save()

        assert (shown(one), shown(two)) == (["in one"], ["in two"])
        assert [one.data for one in two.fragments] == ["x", "y"]
    assert length(world.ledger) == 0


def test_a_fork_computes_for_itself(world: EngineWorld) -> None:
    """Resolvers and sandbox go along (CE-28)."""
    seen: list[Any] = []

    def answer(load: LoadContext) -> str:
        seen.append((load.context.chat_id, load.sandbox))
        return "computed"

    engine = world.engine(sandbox="box").set(fragment("note", answer))
    with engine.fork() as scratch:
        assert scratch.resolve().system_prompt == "<note>computed</note>"
        assert seen == [(scratch.chat_id, "box")]
    engine.resolve()

    assert seen[1:] == [(engine.chat_id, "box")]


def test_a_closed_fork_is_over(world: EngineWorld) -> None:
    """Closing it again does nothing; closing an engine on a ledger does nothing at all."""
    scratch = world.engine().set(hint("x")).fork()
    scratch.set(user("one", id="m1")).save()
    scratch.close()
    scratch.close()
    with pytest.raises(LedgerClosedError):
        scratch.save()
    engine = world.saved(user("one", id="m1"))
    engine.close()
    with engine:
        pass

    assert shown(engine) == ["one"]


def test_a_forgotten_asynchronous_fork_is_closed() -> None:
    """It too gives back its memory and its folder, though closing it could not be awaited."""

    async def main() -> None:
        async with chatledger.open_async("memory:") as ledger:
            scratch = AsyncContextEngine(ledger, "trip", "ada").fork()
            await scratch.set(user("one")).save()
            inner: AsyncLedger = cast("Any", scratch)._ledger
            opened.append(await inner.run(lambda ledger: ledger))

    opened: list[Ledger] = []
    asyncio.run(main())
    gc.collect()

    with pytest.raises(LedgerClosedError):
        opened[0].list_chats()


def test_a_forgotten_fork_is_closed() -> None:
    """A synchronous scratch copy gives back its memory and its folder when nobody holds it."""
    with EngineWorld("sync") as world:
        scratch: ContextEngine | None = world.engine().set(hint("x")).fork()
        assert scratch is not None
        scratch.set(user("one")).save()
        ledger: Ledger = cast("Any", scratch)._ledger
        gone = weakref.ref(scratch)
        del scratch
        gc.collect()

        assert gone() is None
        with pytest.raises(LedgerClosedError):
            ledger.list_chats()
