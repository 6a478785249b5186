"""Appends of several processes on one directory, each with several tasks, to chats that they share."""

import asyncio
import multiprocessing
import time
from collections.abc import Iterator
from multiprocessing.synchronize import Barrier
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import chatledger
from chatledger import user

from ..measure import Row, check_equal
from ..world import World

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

PROCESSES, TASKS, CHATS = 8, 8, 200


def processes(world: World) -> Iterator[Row]:
    """Eight processes with eight tasks each, next to one process with as many tasks."""
    world.report(f"appends by {PROCESSES} processes")
    count = world.sizes.appends_per_sample
    samples = [
        (_seconds(world, PROCESSES, TASKS, count), _seconds(world, 1, PROCESSES * TASKS, count)) for _ in range(2)
    ]
    yield Row(
        subject="processes",
        name=f"appends by {PROCESSES} processes with {TASKS} tasks each, {CHATS} chats",
        peer=f"ours, one process with {PROCESSES * TASKS} tasks",
        show="rate",
        ours=[several for several, _ in samples],
        theirs=[one for _, one in samples],
        note="one message per commit, durability='always'; of all processes together",
    )


def _seconds(world: World, processes: int, tasks: int, count: int) -> float:
    """For one append, of all processes together."""
    location = world.folder() / "data"
    with chatledger.open(location) as ledger:
        for number in range(CHATS):
            ledger.create_chat(f"chat{number}", "ada")
        spawning = multiprocessing.get_context("spawn")
        start, ended = spawning.Barrier(processes + 1), spawning.Queue()
        workers = [
            spawning.Process(target=_write, args=(location, seed, tasks, count, start, ended))
            for seed in range(processes)
        ]
        for worker in workers:
            worker.start()
        start.wait()
        began_s = time.perf_counter()
        for _ in workers:
            ended.get()
        took_s = time.perf_counter() - began_s
        for worker in workers:
            worker.join()
        ledger.sync()
        stored = sum(chat.message_count for chat in ledger.list_chats())
        check_equal("appends by several processes", stored, processes * tasks * count)
    return took_s / (processes * tasks * count)


def _write(location: Path, seed: int, tasks: int, count: int, start: Barrier, ended: "Queue[int]") -> None:
    async def task(ledger: chatledger.AsyncLedger, number: int) -> None:
        random = Random(f"{seed}/{number}")
        for _ in range(count):
            await ledger.append(f"chat{random.randrange(CHATS)}", [user("a few words about something")])

    async def run() -> None:
        async with chatledger.open_async(location) as ledger:
            await ledger.get_chat("chat0")
            start.wait()
            await asyncio.gather(*(task(ledger, number) for number in range(tasks)))
            ended.put(seed)

    asyncio.run(run())
