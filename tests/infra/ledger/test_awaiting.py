"""Calls in worker threads: what tasks get of them, and when."""

import asyncio
import gc
import os
import threading
import time
from contextvars import ContextVar
from functools import partial

import anyio
import anyio.lowlevel
import pytest

from chatledger.infra.ledger.aio.awaiting import in_thread

_who: ContextVar[str] = ContextVar("who", default="nobody")


def _fail() -> None:
    msg = "no"
    raise LookupError(msg)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_answers_errors_and_the_context() -> None:
    token = _who.set("ada")
    assert await in_thread(lambda: (_who.get(), threading.current_thread() is threading.main_thread())) == (
        "ada",
        False,
    )
    _who.reset(token)
    with pytest.raises(LookupError, match="no"):
        await in_thread(_fail)


@pytest.mark.anyio
async def test_the_end_of_an_iterator_is_an_error_and_not_a_hang() -> None:
    """A future takes no `StopIteration`."""
    with pytest.raises(RuntimeError, match="StopIteration"):
        await in_thread(lambda: next(iter(())))


def test_a_call_may_run_a_loop_of_its_own() -> None:
    """Also where AnyIO runs the outer one, and has noted in the context which library that is."""

    async def inner() -> int:
        await anyio.lowlevel.checkpoint()
        return 7

    async def outer() -> int:
        return await in_thread(lambda: anyio.run(inner))

    assert anyio.run(outer) == 7


@pytest.mark.anyio
async def test_many_calls_at_once() -> None:
    barrier = threading.Barrier(20, timeout=30)

    def meet(number: int) -> int:
        barrier.wait()
        return number

    numbers = await asyncio.gather(*(in_thread(partial(meet, number)) for number in range(20)))
    assert numbers == list(range(20))


@pytest.mark.anyio
async def test_more_calls_than_threads_wait_for_one() -> None:
    """Each gets its own answer or error, and afterwards the threads serve again."""
    may_end = threading.Event()

    def meet(number: int) -> int:
        assert may_end.wait(30)
        if number % 10 == 3:
            _fail()
        return number

    calls = [asyncio.create_task(in_thread(partial(meet, number))) for number in range(200)]
    await asyncio.sleep(0.05)
    may_end.set()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [answer for answer in answers if not isinstance(answer, LookupError)] == [
        number for number in range(200) if number % 10 != 3
    ]
    assert await in_thread(lambda: 7) == 7


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.anyio
async def test_a_cancelled_task_waits_for_the_end_of_its_call(times: int) -> None:
    """However often it is cancelled; what the call wrote is there when the task is over."""
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def write() -> str:
        begun.set()
        assert may_end.wait(30)
        ended.set()
        return "written"

    task = asyncio.create_task(in_thread(write))
    assert await asyncio.to_thread(begun.wait, 30)
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


@pytest.mark.anyio
async def test_a_task_that_is_cancelled_when_its_call_has_ended() -> None:
    """The answer and the cancellation come in the same round of the loop."""
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def write() -> None:
        begun.set()
        assert may_end.wait(30)
        ended.set()

    task = asyncio.create_task(in_thread(write))
    assert await asyncio.to_thread(begun.wait, 30)
    may_end.set()
    assert ended.wait(30)
    time.sleep(0.01)  # noqa: ASYNC251 - the loop must not take the answer in yet
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_call_that_is_cancelled_before_it_begins_is_not_made() -> None:
    """While all threads are busy; nobody waits for them then."""
    may_end = threading.Event()
    made: list[int] = []

    async def ask() -> None:
        busy = [asyncio.create_task(in_thread(lambda: may_end.wait(30))) for _ in range(100)]
        task = asyncio.create_task(in_thread(lambda: made.append(1)))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not may_end.is_set()
        may_end.set()
        assert all(await asyncio.gather(*busy))

    asyncio.run(asyncio.wait_for(ask(), 30))
    assert not made


def test_a_forked_process_has_threads_of_its_own() -> None:
    async def ask() -> int:
        return await in_thread(lambda: 7)

    assert asyncio.run(ask()) == 7
    child = os.fork()
    if not child:
        os._exit(asyncio.run(asyncio.wait_for(ask(), 20)))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_a_cancelled_scope_waits_for_the_end_of_its_call() -> None:
    """As a cancelled task does."""
    ended: list[bool] = []

    def write() -> None:
        time.sleep(0.2)
        ended.append(True)

    with anyio.move_on_after(0.05) as scope:
        await in_thread(write)
        await anyio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    assert ended


def test_the_threads_end_with_their_loop() -> None:
    async def ask() -> threading.Thread:
        return await in_thread(threading.current_thread)

    thread = asyncio.run(ask())
    gc.collect()
    thread.join(30)
    assert not thread.is_alive()
