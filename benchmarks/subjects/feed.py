"""How long an event takes to whoever follows the log, next to bare subscriptions of nats-py to the same stream."""

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, cast

import nats
from nats.js.api import ConsumerConfig, DeliverPolicy

import chatledger
from chatledger import Ledger, user

from ..measure import Row, check_equal
from ..world import World

_TIMEOUT_S: Final = 60.0
_SERIES: Final = 5
_PAUSE_S: Final = 0.002
"""Between two events, so that one does not wait for the other."""
_CHILD: Final = """
import sys, time
import chatledger
from benchmarks.subjects import feed

getattr(feed, "print_" + sys.argv[1])(sys.argv[2])
"""


def feed(world: World) -> Iterator[Row]:
    """From the beginning of an append to the arrival of its event, in a thread and in another process."""
    sizes = world.sizes
    folder = world.folder() / "ledger"
    runs: dict[str, list[list[float]]] = {}
    with chatledger.open(folder, durability="fast") as ledger:
        ledger.create_chat("chat", "ada")
        followers: dict[str, Callable[[], Any]] = {
            "ours, thread": lambda: _thread(lambda notify: follow_ours(ledger, notify)),
            "push, thread": lambda: _thread(lambda notify: asyncio.run(follow_push(str(folder), notify))),
            "pull, thread": lambda: _thread(lambda notify: asyncio.run(follow_pull(str(folder), notify))),
            "ours, process": lambda: _process("ours", folder),
            "push, process": lambda: _process("push", folder),
            "pull, process": lambda: _process("pull", folder),
        }
        for turn in range(min(_SERIES, sizes.repeats)):
            for name in followers if turn % 2 == 0 else reversed(list(followers)):
                world.report(f"feed latency, {name}")
                with followers[name]() as arrivals:
                    runs.setdefault(name, []).append(_latencies(ledger, arrivals, sizes.feed_events))
    yield from _rows(runs)


def _rows(runs: dict[str, list[list[float]]]) -> Iterator[Row]:
    note = (
        "from the call of append to the arrival of its event, durability='fast', one event at a time; the append itself is "
        "part of it; a sample is the median or the 99th percentile of one series"
    )
    for where in ("thread", "process"):
        for peer in ("push", "pull"):
            for what, share in (("median", 0.5), ("p99", 0.99)):
                yield Row(
                    subject="feed",
                    name=f"feed latency, another {where}, {what}",
                    peer=f"nats-py, {peer}",
                    ours=[_quantile(series, share) for series in runs[f"ours, {where}"]],
                    theirs=[_quantile(series, share) for series in runs[f"{peer}, {where}"]],
                    note=note,
                )


def _quantile(series: list[float], share: float) -> float:
    return sorted(series)[min(len(series) - 1, int(len(series) * share))]


def _latencies(ledger: Ledger, arrivals: "SimpleQueue[float]", count: int) -> list[float]:
    """Seconds for each of so many appends."""
    found: list[float] = []
    for number in range(count + 1):
        begun = time.perf_counter()
        ledger.append("chat", [user(str(number))])
        found.append(arrivals.get(timeout=_TIMEOUT_S) - begun)
        time.sleep(_PAUSE_S)
    check_equal("events that arrived beside those expected", arrivals.qsize(), 0)
    return found[1:]  # the first one warms up


@contextmanager
def _thread(follow: Callable[[Callable[[float | None], bool]], None]) -> Generator["SimpleQueue[float]"]:
    """Follow in a thread: `follow` calls what it is given with None when it has begun, then with each time of arrival."""
    arrivals: SimpleQueue[float] = SimpleQueue()
    begun, ended = threading.Event(), threading.Event()

    def notify(arrived: float | None) -> bool:
        if arrived is None:
            begun.set()
        else:
            arrivals.put(arrived)
        return not ended.is_set()

    thread = threading.Thread(target=follow, args=(notify,), daemon=True)
    thread.start()
    assert begun.wait(_TIMEOUT_S), "the follower began"
    try:
        yield arrivals
    finally:
        ended.set()
        thread.join(_TIMEOUT_S)


@contextmanager
def _process(kind: str, folder: Path) -> Generator["SimpleQueue[float]"]:
    """Follow in another process, whose clock is the same."""
    arrivals: SimpleQueue[float] = SimpleQueue()
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD, kind, str(folder)],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdin is not None
    out = child.stdout

    def collect() -> None:
        for line in out:
            arrivals.put(float(line))

    assert child.stdout.readline() == "begun\n", "the follower began"
    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    try:
        yield arrivals
    finally:
        child.kill()
        child.wait(_TIMEOUT_S)
        thread.join(_TIMEOUT_S)
        child.stdin.close()
        child.stdout.close()


def follow_ours(ledger: Ledger, notify: Callable[[float | None], bool]) -> None:
    """A feed from now on."""
    with ledger.feed() as events:
        threading.Thread(target=_close_at_end, args=(events, notify), daemon=True).start()
        for _ in events:
            if not notify(time.perf_counter()):
                return


def _close_at_end(events: chatledger.Feed, notify: Callable[[float | None], bool]) -> None:
    while notify(None):
        time.sleep(0.05)
    events.close()


async def follow_push(folder: str, notify: Callable[[float | None], bool]) -> None:
    """An ordered push consumer of nats-py, with a callback."""
    connection = await _connect(folder)

    async def arrived(_: Any) -> None:
        notify(time.perf_counter())

    await connection.jetstream().subscribe(
        "chatledger.e.>", cb=arrived, ordered_consumer=True, config=ConsumerConfig(deliver_policy=DeliverPolicy.NEW)
    )
    while notify(None):  # noqa: ASYNC110 - it is asked from another thread whether to go on
        await asyncio.sleep(0.05)
    await connection.close()


async def follow_pull(folder: str, notify: Callable[[float | None], bool]) -> None:
    """A pull consumer of nats-py, one message a request, each acknowledged."""
    connection = await _connect(folder)
    subscription = await connection.jetstream().pull_subscribe(
        "chatledger.e.>", stream="chatledger", config=ConsumerConfig(deliver_policy=DeliverPolicy.NEW)
    )
    while notify(None):
        try:
            (message,) = await subscription.fetch(1, timeout=0.5)
        except TimeoutError:
            continue
        notify(time.perf_counter())
        await message.ack()
    await connection.close()


async def _connect(folder: str) -> Any:
    endpoint = json.loads((Path(folder) / "endpoint.json").read_bytes())
    untyped = cast("Any", nats)
    return await untyped.connect(endpoint["url"], token=endpoint["token"])


def _print(arrived: float | None, begun: list[bool]) -> bool:
    if arrived is not None:
        print(arrived, flush=True)
    elif not begun:
        begun.append(True)
        print("begun", flush=True)
    return True


def print_ours(folder: str) -> None:
    """The times of arrival at a feed, on stdout."""
    begun: list[bool] = []
    with chatledger.open(folder, durability="fast") as ledger:
        follow_ours(ledger, lambda arrived: _print(arrived, begun))


def print_push(folder: str) -> None:
    """The times of arrival at a push consumer, on stdout."""
    begun: list[bool] = []
    asyncio.run(follow_push(folder, lambda arrived: _print(arrived, begun)))


def print_pull(folder: str) -> None:
    """The times of arrival at a pull consumer, on stdout."""
    begun: list[bool] = []
    asyncio.run(follow_pull(folder, lambda arrived: _print(arrived, begun)))
