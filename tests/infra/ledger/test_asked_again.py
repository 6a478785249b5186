"""Each decision of the ledger is a function of the state that it is given, however often it is asked: see `Store.execute`."""

import ast
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import anyio
import pytest
from tests.support.asked_again import asking_again
from tests.support.ledger_world import ROOT, internals, text

import chatledger
from chatledger import ContextEngine, Ledger, MessageHistory, NewMessage, user
from chatledger.domain.chat.decide_chats import decide_update_chat
from chatledger.domain.chat.events import Body
from chatledger.domain.versioned.keys import state_id
from chatledger.importers import import_chats
from chatledger.infra.ledger.drafts import new_id
from chatledger.infra.ledger.graph.state_store import StateStore
from chatledger.infra.ledger.threads import Threads
from chatledger.infra.testing.story import tell_story
from chatledger.items import ItemPut, ItemStore
from chatledger.projections.log.kinds import CHATS

Decide = Callable[[Any, int], list[Body]]


def keeps_the_first() -> Decide:
    seen: list[Any] = []

    def decide(state: Any, _now: int) -> list[Body]:
        if state.chat is not None and not seen:
            seen.append(state.chat)
        return decide_update_chat(state, metadata={"n": seen[0].metadata["n"] + 1})

    return decide


def writes_at_the_second_call() -> Decide:
    seen: list[Any] = []

    def decide(state: Any, _now: int) -> list[Body]:
        is_known = bool(seen) and seen[-1] == state.chat
        seen.append(state.chat)
        return decide_update_chat(state, title="known") if is_known else []

    return decide


def counts_calls() -> Decide:
    count = 0

    def decide(state: Any, _now: int) -> list[Body]:
        nonlocal count
        count += 1
        return decide_update_chat(state, metadata={"n": count})

    return decide


def consumes() -> Decide:
    numbers = iter(range(100))
    return lambda state, _now: decide_update_chat(state, metadata={"n": next(numbers)})


def makes_ids() -> Decide:
    return lambda state, _now: decide_update_chat(state, title=new_id())


class Keeping:
    """A decision that is a method."""

    number = 0

    def decided(self, of: str, state: Any, _now: int) -> list[Body]:
        self.number += 1
        return decide_update_chat(state, title=f"{of} {self.number}")


@pytest.mark.parametrize(
    "make",
    [
        keeps_the_first,
        writes_at_the_second_call,
        counts_calls,
        consumes,
        makes_ids,
        lambda: partial(Keeping().decided, "a"),
    ],
)
def test_what_keeps_something_is_noticed(ledger: Ledger, make: Callable[[], Decide]) -> None:
    with asking_again():
        ledger.create_chat("c", "u", metadata={"n": 0})
        ledger.update_chat("c", metadata={"n": 7})
        with pytest.raises(pytest.fail.Exception, match="keeps"):
            internals(ledger).execute(CHATS, "c", make())
        ledger.update_chat("c", updater=lambda chat: {"metadata": {"n": (chat.metadata or {})["n"] + 1}})
    chat = ledger.get_chat("c")
    assert chat is not None
    assert chat.metadata == {"n": 8}


def tell_the_rest(ledger: Ledger) -> None:
    """Call what the story leaves out."""
    ledger.upsert_chat("c", "u", metadata={"n": 0})
    ledger.update_chat("c", updater=lambda chat: {"title": f"{chat.metadata}"})
    engine = ContextEngine(ledger, "c", "u")
    for number in (1, 2):
        engine.set(user(f"question {number}", id="q"), NewMessage("assistant", "answer", id=f"a{number}")).save()
    engine.track_usage({"total_tokens": 3})
    ledger.show("q")
    ledger.record_run("c", "r", thread_id="c", assistant_id="a", trigger_message_id="q", message_id="a1")
    ledger.mark_stale(ledger.plan_regeneration("c", "q", 0))
    ledger.set_member("c", "v", "reader")
    ledger.remove_member("c", "v")
    ledger.set_members("c", {"w": "reader"})
    assert ledger.revoke_link("c", ledger.create_link("c", ttl_seconds=60).id)
    history = MessageHistory(ledger, "c")
    history.add([user("a question", id="h1"), user("another", id="h2")])
    history.replace("h1", [user("a question", id="h1")])
    assert history.pop() is not None
    ledger.create_chat("ends", "u", expires_at=1, members={"v": "writer"})
    ledger.sweep()
    with ledger.live("c", id="l") as live:
        live.write("words")
        live.commit()
    ledger.redact("h2", keep="…")
    ledger.update_chat("c", title="Earlier", metadata={"n": 9})
    ledger.update_chat("c", title="Later")
    assert ledger.redact_words("c")
    ledger.create_branch("c", "aside", None)
    ledger.append("c", user("aside"), branch="aside")
    assert ledger.merge("c", "aside", summary="so it was").outcome == "merged"
    ledger.hold("chat", "c", reason="case 12")
    ledger.hold("user", "p")
    assert ledger.release("chat", "c")
    ledger.create_chat("begins held", "p")
    ledger.release("user", "p")
    ledger.set_retention("of p", keep_days=30, user_id="p")
    assert ledger.sweep(now=2**42).chats == ["begins held"]
    assert ledger.remove_retention("of p")
    ledger.create_chat("of a person", "p")
    ledger.erase_user("p")
    ledger.set_member("c", "q", "reader")
    ledger.erase_user("q", pseudonym="somebody")
    ledger.import_chat(ledger.export_chat("c"), chat_id="copy")
    with chatledger.open("memory:") as other:
        assert len(list(import_chats(other, map(ledger.export_chat, ("c", "story chat"))))) == 2
        for thread in ("story thread", "story thread copy"):
            other.import_value(ledger.export_thread(thread))
        other.import_value(ledger.export_state(state_id("u", "story state")))
    items = ItemStore(ledger)
    items.write([ItemPut(namespace=("n",), key=key, value={"x": 1}, ttl_seconds=60) for key in ("a", "b")])
    items.end(("n",), "b")
    items.refresh(("n",), "a")
    items.delete(("n",), "a")
    states = StateStore(ledger)
    states.update(state_id("u", "s"), {"x": 1}, node="a")
    time.sleep(0.01)
    assert states.cleanup(0.001)
    Threads(ledger).migrate("story thread", [])
    with ledger.for_user("u") as own:
        own.append("c", [text("of the user")])


async def tell_awaiting() -> None:
    async with chatledger.open_async("memory:") as ledger:
        await ledger.create_chat("c", "u")
        await ledger.append("c", [text("begun")])


def sites() -> Iterator[str]:
    """The functions of the ledger that hand decisions to a store: `file:function`."""
    for path in (ROOT / "infra" / "ledger").rglob("*.py"):
        for function in ast.walk(ast.parse(path.read_text())):
            if not isinstance(function, ast.FunctionDef):
                continue
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and _is_handing(call):
                    yield f"{path.relative_to(ROOT)}:{function.name}"


def _is_handing(call: ast.Call) -> bool:
    assert isinstance(call.func, ast.Attribute)
    first = call.args[0] if call.args else None
    is_of_kind = isinstance(first, ast.Name) and first.id in {"CHATS", "THREADS", "STATES"}
    return (call.func.attr in {"execute", "begin"} and is_of_kind) or (
        call.func.attr == "submit" and len(call.args) == 4
    )


@pytest.mark.guard
def test_each_decision_is_asked_again() -> None:
    """All calls of the ledger that write, on states that others wrote and on none, before the one that counts."""
    with asking_again() as asked:
        with chatledger.open("memory:") as ledger:
            tell_story(ledger)
            tell_the_rest(ledger)
            ledger.verify()
        anyio.run(tell_awaiting)

    # What is carried on takes a thousand runs, see test_carried_branch.
    assert set(sites()) - asked.sites == {"infra/ledger/regenerations.py:carry_on"}
