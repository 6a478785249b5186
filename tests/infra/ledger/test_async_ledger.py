"""The asynchronous face of a ledger, on a real server."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.ledger_world import HeldLog

import chatledger
from chatledger import AsyncLedger, LedgerClosedError, NewMessage, Recorded, user
from chatledger.errors import ChatNotFoundError, InvalidValueError


@pytest.mark.anyio
async def test_commands_and_questions(tmp_path: Path) -> None:
    """Every kind of method answers as the synchronous one does."""
    async with chatledger.open_async(tmp_path / "ledger", durability="fast") as ledger:
        await ledger.create_chat("trip", "ada", title="Riga")
        first, second = await ledger.append("trip", [user("Plan"), NewMessage("assistant", "Old Town?")])
        branch = await ledger.fork("trip", first.id)
        await ledger.append("trip", [NewMessage("assistant", "The coast")])
        await ledger.set_checkpoint("trip", "draft", second.id)

        assert branch.name == "main-v2"
        assert ["Plan", "The coast"] == [message.text for message in await ledger.get_messages("trip")]
        assert ["Plan", "Old Town?"] == [message.text for message in await ledger.get_chain(second.id)]
        assert ["main", "main-v2"] == [branch.name for branch in await ledger.list_branches("trip")]
        assert ["draft"] == [checkpoint.name for checkpoint in await ledger.list_checkpoints("trip")]
        assert 3 == len((await ledger.graph("trip")).nodes)
        assert [second.id] == (await ledger.versions(second.id)).ids[:1]
        assert "main" == (await ledger.show(second.id)).name == (await ledger.get_page("trip")).branch
        assert "Riga" == (await ledger.rename_branch("trip", "main", "Riga")).name
        assert await ledger.delete_branch("trip", "main-v2")
        assert ["Riga"] == [branch.name for branch in await ledger.branches_of(first.id)]
        assert await ledger.get_position() == await ledger.sync()


def test_what_was_written_is_there_for_others(tmp_path: Path) -> None:
    """A synchronous ledger reads what an asynchronous one wrote."""

    async def write() -> None:
        async with chatledger.open_async(tmp_path, durability="fast") as ledger:
            await ledger.create_chat("trip", "ada")
            await ledger.append("trip", [user("Plan")])

    anyio.run(write)
    with chatledger.open(tmp_path, durability="fast") as ledger:
        assert ["Plan"] == [message.text for message in ledger.get_messages("trip")]


@pytest.mark.anyio
async def test_concurrent_appends_are_all_there(async_ledger: AsyncLedger) -> None:
    """A hundred tasks that append to one chat make one chain of all their messages."""
    await async_ledger.create_chat("trip", "ada")

    async def add(number: int) -> None:
        await async_ledger.append("trip", [NewMessage("user", number)])

    async with anyio.create_task_group() as tasks:
        for number in range(100):
            tasks.start_soon(add, number)

    assert list(range(100)) == sorted(message.data for message in await async_ledger.get_messages("trip"))


@pytest.mark.anyio
async def test_history_is_an_async_iterator(async_ledger: AsyncLedger) -> None:
    await async_ledger.create_chat("trip", "ada")
    for number in range(3):
        await async_ledger.append("trip", [NewMessage("user", number)])

    kinds = [recorded.type async for recorded in async_ledger.history("trip")]
    later = [recorded.position async for recorded in async_ledger.history(after=2)]

    assert ["chat_created", *["message_appended"] * 3] == kinds
    assert [3, 4] == later


@pytest.mark.anyio
async def test_an_export_reads_no_chat_before_its_turn(async_ledger: AsyncLedger) -> None:
    """What is deleted meanwhile is left out, as by a `Ledger`; and one chat at a time is in memory."""
    for chat_id in ("a", "b", "c"):
        await async_ledger.create_chat(chat_id, "ada")
    exported: list[str] = []
    doomed = ""
    async for one in async_ledger.export_all():
        exported.append(one.id)
        doomed = doomed or next(chat_id for chat_id in ("c", "b") if chat_id != one.id)
        await async_ledger.delete_chat(doomed)

    assert {"a", "b", "c"} - {doomed} == set(exported)
    assert len(exported) == 2


@pytest.mark.anyio
@pytest.mark.parametrize("location", ["memory:", "path"])
async def test_feed_follows_and_ends_with_the_ledger(location: str, tmp_path: Path) -> None:
    """The feed gives what was there, then what comes, each once and in order, and ends when the ledger is closed."""
    seen: list[Recorded] = []
    ledger = chatledger.open_async(tmp_path if location == "path" else location, durability="fast")
    await ledger.create_chat("trip", "ada")
    caught_up = anyio.Event()

    async def watch() -> None:
        async for recorded in ledger.feed(0, topics={"message_appended"}):
            seen.append(recorded)
            if len(seen) == 20:
                caught_up.set()

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            for number in range(20):
                await ledger.append("trip", [NewMessage("user", number)])
            await caught_up.wait()
            await ledger.close()

    assert list(range(2, 22)) == [recorded.position for recorded in seen]


@pytest.mark.anyio
async def test_cancelled_feed_returns_at_once(async_ledger: AsyncLedger) -> None:
    with anyio.move_on_after(0.05) as scope:
        async for _ in async_ledger.feed():
            pass

    assert scope.cancelled_caught


WRITES: dict[str, Callable[[AsyncLedger], Coroutine[Any, Any, Any]]] = {
    "append": lambda ledger: ledger.append("trip", [user("Plan")]),
    "append, of a user": lambda ledger: ledger.for_user("ada").append("trip", [user("Plan")]),
    "update_chat": lambda ledger: ledger.update_chat("trip", title="Plan"),
}


@pytest.mark.parametrize("call", WRITES)
def test_a_cancelled_task_waits_for_what_it_writes(call: str) -> None:
    """However often it is cancelled; what it wrote is there when it is over."""

    async def main() -> None:
        async with chatledger.open_async("memory:") as ledger:
            await ledger.create_chat("trip", "ada")
            log = HeldLog(ledger.blocking(), "before")
            task = asyncio.create_task(WRITES[call](ledger))
            assert await asyncio.to_thread(log.reached.wait, 30)
            for _ in range(3):
                task.cancel()
                await asyncio.sleep(0.01)
                assert not task.done()
            log.go.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await ledger.last_position() == 2

    asyncio.run(main())


@pytest.mark.anyio
async def test_errors_pass_through(async_ledger: AsyncLedger) -> None:
    with pytest.raises(ChatNotFoundError, match="'nowhere'"):
        await async_ledger.append("nowhere", [user("hello")])


@pytest.mark.anyio
async def test_opens_on_first_use_only(tmp_path: Path) -> None:
    """Making the object opens nothing; closing one that was never used does nothing."""
    ledger = chatledger.open_async(tmp_path / "ledger")

    assert not (tmp_path / "ledger").exists()

    await ledger.close()
    with pytest.raises(LedgerClosedError):
        await ledger.get_chat("trip")


@pytest.mark.anyio
async def test_concurrent_first_uses_open_once(tmp_path: Path) -> None:
    """Tasks that use a new ledger at the same moment share one."""
    ledger: AsyncLedger = chatledger.open_async(tmp_path / "ledger", durability="fast")
    before = set(threading.enumerate())

    async def ask() -> None:
        await ledger.get_chat("trip")

    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(ask)

    followers = [thread for thread in set(threading.enumerate()) - before if thread.name == "chatledger-follower"]
    assert 1 == len(followers)
    await ledger.close()


def _members(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_both_ledgers_have_the_same_members() -> None:
    """What a `Ledger` has an `AsyncLedger` has too; beside it what only makes sense there."""
    assert _members(chatledger.Ledger) == _members(AsyncLedger) - {"run", "opened", "waiting", "blocking"}
    assert _members(chatledger.LedgerView) == _members(chatledger.AsyncLedgerView) - {"run"}


@pytest.mark.anyio
async def test_a_ledger_opens_when_it_is_awaited() -> None:
    """Also a user's; awaiting an open one again changes nothing."""
    ledger = await chatledger.open_async("memory:")
    assert ledger.opened is not None
    assert await ledger is ledger
    assert (await ledger.for_user("ada")).opened is not None
    await ledger.close()
    with pytest.raises(LedgerClosedError):
        await ledger


@pytest.mark.anyio
async def test_what_is_a_property_is_awaited(async_ledger: AsyncLedger) -> None:
    await async_ledger.create_chat("trip", "ada")
    assert await async_ledger.position == await async_ledger.last_position() == 1
    assert async_ledger.location == "memory:"
    assert await async_ledger.wait(0)
    assert not await async_ledger.wait(1, timeout_s=0.01)
    async with async_ledger.as_of(1) as view:
        assert await view.position == 1
        assert await view.get_chat("trip")
    with pytest.raises(LedgerClosedError):
        await view.get_chat("trip")


@pytest.mark.anyio
async def test_an_asynchronous_function_is_not_run(async_ledger: AsyncLedger) -> None:
    """Its coroutine would be awaited by nobody."""

    async def ask(ledger: chatledger.Ledger) -> int:
        return ledger.position

    with pytest.raises(InvalidValueError, match="ordinary function"):
        _ = await async_ledger.run(ask)
    with pytest.raises(InvalidValueError, match="ordinary function"):
        await async_ledger.run(partial(_called, ask))


def _called(function: Callable[[chatledger.Ledger], Any], ledger: chatledger.Ledger) -> Any:
    return function(ledger)


@pytest.mark.anyio
async def test_calls_do_not_wait_for_tasks_that_wait(async_ledger: AsyncLedger) -> None:
    """More of them than the ledger has threads."""
    last = await async_ledger.last_position()
    async with anyio.create_task_group() as group:
        for _ in range(100):
            group.start_soon(partial(async_ledger.wait, last, timeout_s=60))
        await anyio.wait_all_tasks_blocked()
        with anyio.fail_after(20):
            assert await async_ledger.get_chat("absent") is None
        group.cancel_scope.cancel()
