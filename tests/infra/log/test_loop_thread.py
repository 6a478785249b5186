"""The event loop of a NATS client, in a thread of its own."""
# pyright: reportPrivateUsage=false

from threading import Event, Thread

import pytest
from eventsourcing.persistence import ProgrammingError

from chatledger.infra.log.nats.client import LoopThread


async def nothing() -> None:
    return None


def test_a_call_after_the_end_is_refused() -> None:
    loop = LoopThread()
    loop.call(nothing)
    loop.close(nothing)
    with pytest.raises(ProgrammingError, match="the connection was closed"):
        loop.call(nothing)


def test_a_call_that_another_thread_overtakes_with_the_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop ends between the look whether it runs and the call: of threads that follow the log, one in many."""
    loop = LoopThread()
    loop.call(nothing)
    looked, ended = Event(), Event()
    running = loop._running
    raised: list[BaseException] = []

    def overtaken() -> object:
        portal = running()
        looked.set()
        assert ended.wait(30)
        return portal

    def follow() -> None:
        try:
            loop.call(nothing)
        except ProgrammingError as error:
            raised.append(error)

    monkeypatch.setattr(loop, "_running", overtaken)
    thread = Thread(target=follow)
    thread.start()
    assert looked.wait(30)
    loop.close(nothing)
    ended.set()
    thread.join()

    assert [str(error) for error in raised] == ["the connection was closed"]
