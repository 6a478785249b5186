"""Both kinds of engine are one: the same methods, and what only asynchronous callers can do, tasks and cancellation."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from tests.support.ledger_world import HeldLog, check_chat, internals

import chatledger
from chatledger import AsyncContextEngine, AsyncLedger, ContextEngine, Ledger, LogUnavailableError, assistant, user
from chatledger.errors import MessageNotFoundError
from chatledger.fragments import fragment, hint


def public(cls: type) -> dict[str, Any]:
    return {name: member for name, member in inspect.getmembers_static(cls) if not name.startswith("_")}


def parameters(function: Any) -> list[inspect.Parameter]:
    """Names, kinds and defaults; how an annotation is written may differ."""
    given = inspect.signature(function).parameters.values()
    return [one.replace(annotation=inspect.Parameter.empty) for one in given]


METHODS = sorted(name for name, member in public(ContextEngine).items() if inspect.isfunction(member))


def test_both_have_the_same_members() -> None:
    """Methods and properties."""
    assert set(public(ContextEngine)) - set(public(AsyncContextEngine)) == set()
    # What computed values get is a property of both, but the ledger's engine keeps it beneath.
    assert set(public(AsyncContextEngine)) - set(public(ContextEngine)) <= {"sandbox"}


@pytest.mark.parametrize("name", ["__init__", *METHODS])
def test_both_take_the_same_arguments(name: str) -> None:
    """The same names in the same order, with the same defaults."""
    ours, theirs = parameters(getattr(ContextEngine, name)), parameters(getattr(AsyncContextEngine, name))

    assert [(one.name, one.kind, one.default) for one in ours] == [(one.name, one.kind, one.default) for one in theirs]
    assert "args" not in {one.name for one in ours}


@pytest.mark.parametrize("name", METHODS)
def test_which_methods_are_awaited(name: str) -> None:
    """All but those that only note what to do; none of the synchronous engine."""
    is_awaited = inspect.iscoroutinefunction(getattr(AsyncContextEngine, name))

    assert is_awaited == (name not in {"set", "unset", "discard", "fork", "live"})
    assert not inspect.iscoroutinefunction(getattr(ContextEngine, name))


@pytest.mark.parametrize("name", sorted(public(ContextEngine)))
def test_every_member_is_documented(name: str) -> None:
    """In both."""
    assert inspect.getdoc(getattr(ContextEngine, name))
    assert inspect.getdoc(getattr(AsyncContextEngine, name))


@pytest.mark.anyio
async def test_no_loop_is_needed_for_a_synchronous_engine(ledger: Ledger) -> None:
    """It also works inside a running one, where computed values are evaluated in a thread of their own."""

    async def greeting() -> str:
        await anyio.lowlevel.checkpoint()
        return "be kind"

    engine = ContextEngine(ledger, "trip", "ada").set(fragment("hint", greeting), user("hello"))
    engine.save()

    assert "<hint>be kind</hint>" == engine.resolve().system_prompt


@pytest.mark.anyio
async def test_what_tasks_set_is_all_there(async_ledger: AsyncLedger) -> None:
    """Many tasks, each with an engine of its own, on one chat: one chain with all turns, each turn whole."""
    await AsyncContextEngine(async_ledger, "trip", "ada").save()

    async def talk(number: int) -> None:
        engine = AsyncContextEngine(async_ledger, "trip", "ada")
        for turn in range(4):
            mine = f"{number}.{turn}"
            engine.set(user(mine, id=f"u{mine}"), assistant(mine, f"a{mine}"))
            await saved(engine)
            await engine.track_usage({"total_tokens": 1})

    async with anyio.create_task_group() as tasks:
        for number in range(10):
            tasks.start_soon(talk, number)

    messages = [message.id for message in await async_ledger.get_messages("trip")]
    assert sorted(messages) == sorted(f"{who}{n}.{t}" for who in "ua" for n in range(10) for t in range(4))
    assert messages[1::2] == [f"a{one[1:]}" for one in messages[::2]]
    chat = await async_ledger.get_chat("trip")
    assert chat is not None
    assert chat.metadata == {"usage": {"total_tokens": 40}}


async def saved(engine: AsyncContextEngine) -> None:
    """Save, again while others are faster."""
    while True:
        try:
            await engine.save()
        except chatledger.HeadConflictError:
            continue
        return


Scenario = Callable[[AsyncContextEngine, AsyncLedger, HeldLog], Awaitable[None]]


def cancelled_save(when: str, scenario: Scenario) -> None:
    """A chat with m1 and m2, an edit of m2 and a new message pending, and a log that holds the next append."""

    async def main() -> None:
        async with chatledger.open_async("memory:") as ledger:
            engine = AsyncContextEngine(ledger, "trip", "ada").set(user("one", id="m1"), user("two", id="m2"))
            await engine.save()
            engine.set(user("two, better", id="m2"), assistant("three", "m3"))
            log = HeldLog(await ledger.run(lambda one: one), when)
            await scenario(engine, ledger, log)
            await engine.save()

            assert engine.pending == []
            assert engine.branch == "main-v2"
            assert [one.text for one in await ledger.get_messages("trip", branch="main")] == ["one", "two"]
            assert [one.text for one in await ledger.get_messages("trip")] == ["one", "two, better", "three"]
            assert [one.name for one in await ledger.list_branches("trip")] == ["main", "main-v2"]
            await ledger.run(lambda one: check_chat(one, "trip"))

    asyncio.run(main())


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_cancelled_scope_waits_for_the_write(when: str) -> None:
    """The outcome is known: the save is done and the queue empty, or nothing has happened."""

    async def scenario(engine: AsyncContextEngine, ledger: AsyncLedger, log: HeldLog) -> None:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(engine.save)
                await anyio.to_thread.run_sync(log.reached.wait)
                scope.cancel()
                log.go.set()
        assert scope.cancelled_caught
        assert engine.pending == []

    cancelled_save(when, scenario)


async def cancelled(task: "asyncio.Task[Any]", log: HeldLog) -> None:
    """Cancel a save whose append is held; it waits for that."""
    await asyncio.to_thread(log.reached.wait)
    task.cancel()
    await asyncio.sleep(0.01)
    assert not task.done()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_cancelled_task_leaves_the_queue(when: str) -> None:
    """`Task.cancel` waits for the thread too: the messages stay pending, and the next save stores them once."""

    async def scenario(engine: AsyncContextEngine, ledger: AsyncLedger, log: HeldLog) -> None:
        task = asyncio.create_task(engine.save())
        await cancelled(task, log)
        log.go.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [one.id for one in engine.pending] == ["m2", "m3"]
        assert [one["id"] for one in (await engine.resolve()).messages][:1] == ["m1"]

    cancelled_save(when, scenario)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_save_beside_one_that_was_cancelled(when: str) -> None:
    """While the cancelled one is still on its way: both are the same command, which happens once."""

    async def scenario(engine: AsyncContextEngine, ledger: AsyncLedger, log: HeldLog) -> None:
        task = asyncio.create_task(engine.save())
        await cancelled(task, log)
        again = asyncio.create_task(engine.save())
        await asyncio.sleep(0)
        log.go.set()
        assert (await again).branch == "main-v2"
        with pytest.raises(asyncio.CancelledError):
            await task

    cancelled_save(when, scenario)


def test_a_cancelled_first_use() -> None:
    """The chat is there once, and the engine begins anew."""

    async def main() -> None:
        async with chatledger.open_async("memory:") as ledger:
            log = HeldLog(await ledger.run(lambda one: one), "before")
            engine = AsyncContextEngine(ledger, "trip", "ada", metadata={"a": 1}).set(user("one", id="m1"))
            task = asyncio.create_task(engine.save())
            await cancelled(task, log)
            assert engine.branch is None
            log.go.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            await engine.save()

            assert [recorded.type async for recorded in ledger.history("trip")] == ["chat_created", "message_appended"]

    asyncio.run(main())


def test_errors_pass_through_and_leave_no_coroutine(ledger: Ledger, recwarn: pytest.WarningsRecorder) -> None:
    """Neither a half-run coroutine nor a warning is left by a refusal of the synchronous engine."""
    engine = ContextEngine(ledger, "trip", "ada").set(hint("x"))
    for _ in range(3):
        with pytest.raises(MessageNotFoundError):
            engine.rewind("nowhere")

    def broken(*args: Any, **kwargs: Any) -> list[int]:
        msg = "down"
        raise LogUnavailableError(msg)

    internals(ledger).log.append = broken
    with pytest.raises(LogUnavailableError, match="down"):
        engine.set(user("x")).save()
    assert not recwarn.list
