"""Appends of several processes on one directory, each with several tasks, to chats that they share."""

import asyncio
import time
from collections.abc import Iterator
from multiprocessing.synchronize import Barrier
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import chatledger
from chatledger import user

from ..log_peer import connect
from ..measure import Row, check_equal, run_together
from ..world import World

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

SPREADS = (4, 8)
"""Over how many processes the tasks are spread."""
TASKS, CHATS = 64, 200
EVENT_BYTES = 500
"""About what an event with one short message takes with its headers."""
STREAM = "bench"


class Took(NamedTuple):
    """Seconds for one append, of all processes together, and of the longest call."""

    each: float
    longest: float


def processes(world: World) -> Iterator[Row]:
    """64 tasks in several processes, next to as many in one."""
    for spread in SPREADS:
        world.report(f"appends by {spread} processes")
        several, one = zip(*((_take(world, spread), _take(world, 1)) for _ in range(2)), strict=True)
        longest = [max(took.longest for took in turns) for turns in (several, one)]
        bare = [_publish_bare(world, count) for count in (spread, 1)]
        yield Row(
            subject="processes",
            name=f"appends by {spread} processes with {TASKS // spread} tasks each, {CHATS} chats",
            peer=f"ours, one process with {TASKS} tasks",
            show="rate",
            ours=[took.each for took in several],
            theirs=[took.each for took in one],
            note=(
                "one message per commit, durability='always', all tasks to the same chats; of all processes together; the "
                f"longest call took {longest[0]:.2f} s, in one process {longest[1]:.2f} s; bare nats-py, as many publishers in as "
                f"many processes: {1 / bare[0]:,.0f}/s, in one: {1 / bare[1]:,.0f}/s"
            ),
        )


def _take(world: World, processes: int) -> Took:
    count, tasks = world.sizes.appends_per_sample, TASKS // processes
    location = world.folder() / "data"
    with chatledger.open(location) as ledger:
        for number in range(CHATS):
            ledger.create_chat(f"chat{number}", "ada")
        took_s, longest_s = run_together(_write, [(location, seed, tasks, count) for seed in range(processes)])
        ledger.sync()
        stored = sum(chat.message_count for chat in ledger.list_chats())
        check_equal("appends by several processes", stored, processes * tasks * count)
    return Took(took_s / (processes * tasks * count), max(longest_s))


def _publish_bare(world: World, processes: int) -> float:
    """Seconds for one message that is published with bare nats-py to a stream with the settings of a ledger's."""
    count, tasks = world.sizes.appends_per_sample, TASKS // processes
    location = world.folder() / "data"
    with chatledger.open(location):
        asyncio.run(_make_stream(location))
        took_s, _ = run_together(_publish, [(location, seed, tasks, count) for seed in range(processes)])
    return took_s / (processes * tasks * count)


async def _make_stream(location: Path) -> None:
    connection = await connect(str(location))
    stream = connection.jetstream()
    config = (await stream.stream_info("chatledger")).config
    await stream.add_stream(config.evolve(name=STREAM, subjects=[f"{STREAM}.>"], sources=None, mirror=None))
    await connection.close()


def _publish(location: Path, seed: int, tasks: int, count: int, start: Barrier, ended: "Queue[float]") -> None:
    async def task(stream: Any, number: int) -> None:
        for _ in range(count):
            await stream.publish(f"{STREAM}.{seed}.{number}", bytes(EVENT_BYTES))

    async def run() -> None:
        connection = await connect(str(location))
        start.wait()
        await asyncio.gather(*(task(connection.jetstream(), number) for number in range(tasks)))
        ended.put(0.0)
        await connection.close()

    asyncio.run(run())


def _write(location: Path, seed: int, tasks: int, count: int, start: Barrier, ended: "Queue[float]") -> None:
    async def task(ledger: chatledger.AsyncLedger, number: int) -> float:
        random, longest_s = Random(f"{seed}/{number}"), 0.0
        for _ in range(count):
            began_s = time.perf_counter()
            await ledger.append(f"chat{random.randrange(CHATS)}", [user("a few words about something")])
            longest_s = max(longest_s, time.perf_counter() - began_s)
        return longest_s

    async def run() -> None:
        async with chatledger.open_async(location) as ledger:
            await ledger.get_chat("chat0")
            start.wait()
            ended.put(max(await asyncio.gather(*(task(ledger, number) for number in range(tasks)))))

    asyncio.run(run())
