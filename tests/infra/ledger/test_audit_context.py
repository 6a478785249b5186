"""`context`: who acts, and on whose behalf, along threads, tasks and nested blocks."""

import contextlib
import contextvars
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.ledger_world import store_behind
from tests.support.soak import examples

import chatledger
from chatledger import AsyncContextEngine, AsyncLedger, ContextEngine, InvalidValueError, Ledger, Recorded, user
from chatledger.infra.log.port import LostRaceError
from chatledger.items import ItemPut, ItemStore


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with chatledger.open("memory:") as opened:
        opened.create_chat("trip", "ada")
        yield opened


def who(recorded: Recorded) -> tuple[str | None, str | None, str | None]:
    return recorded.actor, recorded.event.correlation_id, recorded.event.causation_id


def last(ledger: Ledger, chat_id: str = "trip") -> tuple[str | None, str | None, str | None]:
    *_, recorded = ledger.history(chat_id)
    return who(recorded)


names = st.none() | st.sampled_from(["a", "b", "c"])
blocks = st.recursive(
    st.just(("write",)),
    lambda inner: st.tuples(
        st.just("with"), st.tuples(names, names, names), st.lists(inner, max_size=3), st.booleans()
    ),
    max_leaves=8,
)
Said = tuple[str | None, str | None, str | None]


class LeaveError(Exception):
    """Leaves a block in the middle."""


@settings(max_examples=examples(40), deadline=None)
@given(story=st.lists(blocks, min_size=1, max_size=3))
def test_the_innermost_word_counts(story: list[Any]) -> None:
    """In any nesting each event carries, field by field, what was said last around it; also after a block failed."""
    expected: list[Said] = []
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("trip", "ada")

        def play(block: Any, said: Said) -> None:
            if block[0] == "write":
                expected.append(said)
                ledger.append("trip", [user("hello")])
                return
            _, given, inner, is_failing = block
            actor, correlation_id, causation_id = given
            now = tuple(new if new is not None else old for new, old in zip(given, said, strict=True))
            with (
                contextlib.suppress(LeaveError),
                ledger.context(actor=actor, correlation_id=correlation_id, causation_id=causation_id),
            ):
                for one in inner:
                    play(one, (now[0], now[1], now[2]))
                if is_failing:
                    raise LeaveError
            expected.append(said)
            ledger.append("trip", [user("after")])

        for block in story:
            play(block, (None, None, None))
        written = [who(recorded) for recorded in ledger.history(topics={"message_appended"})]

    assert expected == written


@pytest.mark.parametrize("value", ["", 5, "\0", "x" * 2049], ids=["empty", "int", "nul", "long"])
@pytest.mark.parametrize("name", ["actor", "correlation_id", "causation_id", "command_id"])
def test_what_is_said_is_an_id(ledger: Ledger, name: str, value: Any) -> None:
    """A value that breaks the rules is refused before anything inside runs."""
    with pytest.raises(InvalidValueError, match=name), ledger.context(**{name: value}):
        pytest.fail("the block must not run")


def test_several_ledgers_share_it(ledger: Ledger) -> None:
    """It belongs to the work that is done, not to a ledger; a ledger of one user records it too."""
    with chatledger.open("memory:") as other, ledger.context(actor="agent"):
        other.create_chat("trip", "ada")
        ledger.for_user("ada").append("trip", [user("hello")])

        assert ("agent", None, None) == last(ledger) == last(other)


# Threads


def test_a_new_thread_begins_with_nothing(ledger: Ledger) -> None:
    """Threads and executors start with an empty context, as Python does it; what one says does not reach another."""
    with ledger.context(actor="outer"), ThreadPoolExecutor(2) as pool:
        pool.submit(ledger.append, "trip", [user("hello")]).result()

        assert (None, None, None) == last(ledger)

        def act() -> None:
            with ledger.context(actor="inner"):
                ledger.append("trip", [user("hello")])

        pool.submit(act).result()
        assert ("inner", None, None) == last(ledger)
        ledger.append("trip", [user("hello")])
        assert ("outer", None, None) == last(ledger)


def test_a_copied_context_goes_along(ledger: Ledger) -> None:
    """`contextvars.copy_context().run` takes it to another thread, as it was when it was copied."""
    with ThreadPoolExecutor(2) as pool:
        with ledger.context(actor="outer", correlation_id="request"):
            copied = contextvars.copy_context()
        pool.submit(copied.run, ledger.append, "trip", [user("hello")]).result()

        assert ("outer", "request", None) == last(ledger)
        ledger.append("trip", [user("hello")])
        assert (None, None, None) == last(ledger)


def test_threads_at_the_same_moment(ledger: Ledger) -> None:
    """Each thread writes in its own name, however they interleave."""
    barrier = threading.Barrier(8)

    def act(name: str) -> None:
        ledger.create_chat(name, "ada")
        barrier.wait(30)
        for _ in range(5):
            with ledger.context(actor=name, correlation_id=f"request of {name}"):
                ledger.append(name, [user("hello")])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(act, [f"actor {number}" for number in range(8)]))
    for recorded in ledger.history(topics={"message_appended"}):
        if recorded.chat_id != "trip":
            assert (recorded.chat_id, f"request of {recorded.chat_id}", None) == who(recorded)


# Tasks


async def seen(ledger: AsyncLedger, chat_id: str) -> list[tuple[str | None, str | None, str | None]]:
    return [who(recorded) async for recorded in ledger.history(chat_id, topics={"message_appended"})]


@pytest.mark.anyio
async def test_the_threads_of_an_async_ledger_know_it(async_ledger: AsyncLedger) -> None:
    """Each awaited call records what holds in the task that awaits it, also one of a limited ledger."""
    await async_ledger.create_chat("trip", "ada")
    with async_ledger.context(actor="outer"):
        await async_ledger.append("trip", [user("hello")])
        with async_ledger.context(correlation_id="request"):
            await async_ledger.for_user("ada").append("trip", [user("hello")])
        await async_ledger.run(lambda sync: sync.append("trip", [user("hello")]))
    await async_ledger.append("trip", [user("hello")])

    assert [("outer", None, None), ("outer", "request", None), ("outer", None, None), (None, None, None)] == (
        await seen(async_ledger, "trip")
    )


@pytest.mark.anyio
async def test_tasks_have_their_own(async_ledger: AsyncLedger) -> None:
    """A task begins with what held where it was started, and what it says stays its own while others run."""

    async def act(name: str) -> None:
        await async_ledger.create_chat(name, "ada")
        for turn in range(5):
            with async_ledger.context(actor=name, causation_id=str(turn)):
                await anyio.lowlevel.checkpoint()
                await async_ledger.append(name, [user("hello")])
        await async_ledger.append(name, [user("hello")])

    with async_ledger.context(actor="outer", correlation_id="request"):
        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(act, f"actor {number}")
    for number in range(8):
        name = f"actor {number}"
        own = [(name, "request", str(turn)) for turn in range(5)]
        assert [*own, ("outer", "request", None)] == await seen(async_ledger, name)


# One user's ledger


def test_what_a_users_ledger_writes_is_in_the_name_of_that_user(ledger: Ledger) -> None:
    """From chats and streamed answers to items and deletions; unless the context names somebody."""
    ada, position = ledger.for_user("ada"), ledger.position
    ada.append("trip", [user("hello")])
    with ledger.context(actor="support", correlation_id="ticket 7"):
        ada.append("trip", [user("what support said")])
    with ledger.context(correlation_id="turn 1"):
        ContextEngine(ada, "trip", "ada").set(user("hello")).save()
    with ada.live("trip") as answer:
        answer.write("hello")
        answer.commit()
    said = [who(recorded) for recorded in ledger.history("trip", after=position)]
    assert said == [("ada", None, None), ("support", "ticket 7", None), ("ada", "turn 1", None), ("ada", None, None)]

    position = ledger.position
    ItemStore(ada).put(("memories",), "colour", {"is": "green"})
    ada.delete_chat("trip")
    assert [recorded.actor for recorded in ledger.history(after=position)] == ["ada", "ada"]
    ledger.for_user("").create_chat("local", "")  # the user without a name
    ledger.create_chat("trip", "ada")
    assert last(ledger) == last(ledger, "local") == (None, None, None)


def test_the_second_attempt_is_in_the_name_of_the_user_too(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several changes together, that of one whose race was lost is made by who waits for it."""
    log = store_behind(ledger).log
    append = log.append

    def lose(*args: Any, **options: Any) -> list[int]:
        monkeypatch.setattr(log, "append", append)
        raise LostRaceError

    position = ledger.position
    monkeypatch.setattr(log, "append", lose)
    ItemStore(ledger.for_user("ada")).write(
        [ItemPut(namespace=("memories",), key=key, value={"is": "green"}) for key in "ab"]
    )
    assert [recorded.actor for recorded in ledger.history(after=position)] == ["ada", "ada"]


@pytest.mark.anyio
async def test_an_async_ledger_of_a_user_writes_in_the_name_of_that_user(async_ledger: AsyncLedger) -> None:
    ada = async_ledger.for_user("ada")
    await ada.create_chat("talk", "ada")
    with ada.context(actor="support"):
        await ada.append("talk", [user("hello")])
    async with ada.live("talk") as answer:
        await answer.write("hello")
        await answer.commit()
    assert [recorded.actor async for recorded in async_ledger.history("talk")] == ["ada", "support", "ada"]


# The context engine


def test_an_engine_records_it(ledger: Ledger) -> None:
    """Whatever an engine writes, from its chat to its saves and branches, is in the name of who uses it."""
    with ledger.context(actor="agent", correlation_id="turn 1"):
        engine = ContextEngine(ledger, "talk", "ada").set(user("hello", id="q"))
        engine.save()
        engine.checkpoint("here")
        engine.set(user("hello again", id="q")).save()

    events = list(ledger.history("talk"))
    assert ["chat_created", "message_appended", "checkpoint_set", "branch_created", "message_appended"] == [
        recorded.type for recorded in events
    ]
    assert {("agent", "turn 1", None)} == set(map(who, events))


@pytest.mark.anyio
async def test_an_asynchronous_engine_records_it(async_ledger: AsyncLedger) -> None:
    """In each task what that task says."""

    async def turn(name: str) -> None:
        with async_ledger.context(actor=name):
            engine = AsyncContextEngine(async_ledger, name, "ada").set(user("hello"))
            await engine.save()
            await engine.set(user("hello again")).save()

    async with anyio.create_task_group() as tasks:
        for number in range(4):
            tasks.start_soon(turn, f"agent {number}")
    for number in range(4):
        assert {(f"agent {number}", None, None)} == set(await seen(async_ledger, f"agent {number}"))
