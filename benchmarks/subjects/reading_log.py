"""A rebuild next to merely reading the log, and what it takes of memory."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from chatledger import Ledger

from ..log_peer import read_by_pull, read_by_push
from ..measure import Row, check_equal, take_turns
from ..world import World


def reading_log(world: World) -> Iterator[Row]:
    """Rebuilds of events with one message and with many, and the memory of long ones."""
    for per_event in (1, 100):
        yield from _rebuild(world, per_event)
    yield from _memory(world)


def _rebuild(world: World, per_event: int) -> Iterator[Row]:
    count, pair = world.sizes.rebuilt, world.events(per_event)
    ledger, folder = pair.ledger, pair.peer.path.with_name("ledger")
    events = ledger.get_position()
    read = {"pull": read_by_pull, "push": read_by_push}
    sizes = {name: asyncio.run(run(str(folder), events)) for name, run in read.items()}
    check_equal("reading the log", sizes["pull"], sizes["push"])
    whole: list[float] = []
    without_search: list[float] = []

    def rebuild() -> None:
        without, took = _timed_rebuild(ledger)
        without_search.append(without)
        whole.append(took)

    world.report("rebuild and reading the log")
    samples = take_turns(
        {
            "ours": rebuild,
            **{name: partial(_read, run, folder, events) for name, run in read.items()},
        },
        repeats=world.sizes.import_repeats,
        is_warm=False,
    )
    fastest = min(read, key=lambda name: min(samples[name]))
    name = f"rebuild of {count:,} messages, {per_event} in an event"
    row = partial(
        Row,
        subject="reading_log",
        peer=f"nats-py, {fastest}",
        show="rate",
        theirs=[seconds / count for seconds in samples[fastest]],
    )
    yield row(
        name=f"{name}, chains and catalogue",
        ours=[seconds / count for seconds in without_search],
        note=(
            "the limit: all events read by the fastest means that nats-py has (a pull of 1,000 at a time, or a push, without "
            "acknowledgements), nothing decoded; ours reads, decodes, checks the hash chain, and builds the index but for search"
        ),
    )
    yield row(
        name=f"{name}, all",
        ours=[seconds / count for seconds in whole],
        note="as above, ours with the search index",
    )


def _read(run: Callable[[str, int], Coroutine[Any, Any, int]], folder: Path, events: int) -> None:
    asyncio.run(run(str(folder), events))


def _timed_rebuild(ledger: Ledger) -> tuple[float, float]:
    """How long a rebuild took until the log was read and indexed but for search, and in all."""
    start = time.perf_counter()
    read: list[float] = []

    def progress(done: int, total: int) -> None:
        if done == total and not read:
            read.append(time.perf_counter() - start)

    ledger.rebuild(progress=progress)
    return read[0], time.perf_counter() - start


def _memory(world: World) -> Iterator[Row]:
    """Peak memory of a rebuild, of many messages and of a tenth as many."""
    longest = world.sizes.longest
    grown = [float(world.rebuilt(length).grown) for length in (longest, longest // 10)]
    yield Row(
        subject="reading_log",
        name=f"memory of a rebuild of {longest:,} messages",
        peer=f"ours, {longest // 10:,}",
        show="bytes",
        ours=[grown[0]],
        theirs=[grown[1]],
        note="how much the memory of a process that opened the ledger grows at most, pages of the file not counted; with search",
    )
