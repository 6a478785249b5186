"""The event loop of a NATS client, in a thread of its own."""
# pyright: reportPrivateUsage=false

from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from threading import Event

import pytest
from eventsourcing.persistence import ProgrammingError

from chatledger.infra.log.nats.errors import OutcomeUnknownError
from chatledger.infra.log.nats.loop_thread import LoopThread


async def nothing() -> None:
    return None


async def farewell() -> None:
    return None


def test_a_call_after_the_end_is_refused() -> None:
    loop = LoopThread()
    loop.call(nothing)
    loop.close(nothing)
    with pytest.raises(ProgrammingError, match="the connection was closed"):
        loop.call(nothing)


def test_the_loop_does_not_end_before_a_call_that_is_being_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is handed to a loop between its last round and its end would never be answered."""
    loop = LoopThread()
    loop.call(nothing)
    portal = loop._portal
    assert portal is not None
    start_task_soon = portal.start_task_soon
    starting, goes_on = Event(), Event()

    def interrupted(function: Callable[..., Awaitable[None]], *args: object) -> Future[None]:
        if function is nothing:
            starting.set()
            assert goes_on.wait(30)
        return start_task_soon(function, *args)

    monkeypatch.setattr(portal, "start_task_soon", interrupted)
    with ThreadPoolExecutor(2) as pool:
        called = pool.submit(loop.start, nothing)
        assert starting.wait(30)
        closed = pool.submit(loop.close, farewell)
        with pytest.raises(TimeoutError):
            closed.result(0.2)
        goes_on.set()
        closed.result(30)

    assert called.result().done()


def test_calls_that_meet_the_end_return_or_are_refused() -> None:
    for _ in range(20):
        loop = LoopThread()
        loop.call(nothing)

        def call(loop: LoopThread = loop) -> None:
            with suppress(ProgrammingError, OutcomeUnknownError):
                while True:
                    loop.call(nothing)

        with ThreadPoolExecutor(3) as pool:
            calling = [pool.submit(call) for _ in range(3)]
            loop.close(nothing)
            for future in calling:
                future.result(30)
