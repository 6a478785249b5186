"""A rebuild next to merely reading the log, and what it takes of memory."""

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import chatledger
from chatledger import Ledger

from ..log_peer import read_by_pull, read_by_push
from ..measure import Row, check_equal, take_turns
from ..world import World, make_chain

_WATCH_S: Final = 0.005
_CHILD: Final = """
import sys
from benchmarks.subjects import reading_log

reading_log.print_growth(sys.argv[1])
"""


def reading_log(world: World) -> Iterator[Row]:
    """Rebuilds of events with one message and with many, and the memory of long ones."""
    for per_event in (1, 100):
        yield from _rebuild(world, per_event)
    yield from _memory(world)


def _rebuild(world: World, per_event: int) -> Iterator[Row]:
    count, folder = world.sizes.rebuilt, world.folder() / "ledger"
    with chatledger.open(folder, durability="fast") as ledger:
        world.report(f"storing {count:,} messages, {per_event} in an event")
        make_chain(ledger, "chat", count, seed=5, per_commit=per_event)
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
    """What a rebuild takes of memory at most, of many messages and of a tenth as many."""
    longest = world.sizes.longest
    grown: list[float] = []
    for length in (longest, longest // 10):
        folder = world.stored(length)
        world.report(f"memory of a rebuild of {length:,} messages")
        grown.append(_growth(folder))
    yield Row(
        subject="reading_log",
        name=f"memory of a rebuild of {longest:,} messages",
        peer=f"ours, {longest // 10:,}",
        show="bytes",
        ours=[grown[0]],
        theirs=[grown[1]],
        note="how much the memory of a process that opened the ledger grows at most, pages of the file not counted; with search",
    )


def _growth(folder: Path) -> float:
    answer = subprocess.run(
        [sys.executable, "-c", _CHILD, str(folder)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return float(max(1, json.loads(answer.stdout)))


def print_growth(folder: str) -> None:
    """How much memory a rebuild took at most beyond what was used before, in bytes, on stdout."""
    with chatledger.open(folder, durability="fast") as ledger:
        before, peak, ended = _anonymous_bytes(), [0], threading.Event()

        def watch() -> None:
            while not ended.wait(_WATCH_S):
                peak[0] = max(peak[0], _anonymous_bytes())

        watcher = threading.Thread(target=watch)
        watcher.start()
        ledger.rebuild()
        ended.set()
        watcher.join()
        print(max(peak[0], _anonymous_bytes()) - before)


def _anonymous_bytes() -> int:
    """The memory of this process that is no page of a file."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))
