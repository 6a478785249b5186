"""
Checkpoints of LangGraph: ours against its own savers in memory and on SQLite.

Workload A is one thread with a message at every fifth checkpoint, B one with a message at every checkpoint, each of 512
characters. The whole graph has two messages and three checkpoints per turn.
"""

import asyncio
import gc
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages

import chatledger
from chatledger.langgraph import LedgerSaver

from ..measure import Row, bytes_on_disk, check_equal, take_turns
from ..world import Durability, World

THREAD: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
_PER_SAMPLE = 10
_MAX_SAMPLES = 20
"""More would mostly measure the collector, which runs before each sample while millions of the peers' objects are alive."""
_FORKS = 5


class Thread:
    """One thread that grows, in one saver."""

    def __init__(self, saver: Any, folder: Path | None, *, every: int, runner: asyncio.Runner | None = None) -> None:
        self.saver, self.folder = saver, folder
        self.ids: list[str] = []
        self._every, self._runner = every, runner
        self._messages: list[AnyMessage] = []
        self._tasks = 0

    def grow(self, count: int) -> None:
        """So many checkpoints more."""
        steps = [self._step() for _ in range(count)]
        if self._runner is None:
            for step in steps:
                self.saver.put(*step)
        else:
            self._runner.run(self._put_all(steps))

    async def _put_all(self, steps: Sequence[Any]) -> None:
        for step in steps:
            await self.saver.aput(*step)

    def _step(self) -> tuple[Any, Any, Any, Any]:
        number = len(self.ids)
        new = {"branch:to:a": f"{number + 1:032}.1"}
        if number % self._every == 0:
            text = f"{number:06} {'lorem ipsum ' * 50}"[:512]
            self._messages = [*self._messages, HumanMessage(text, id=f"m{number}")]
            new["messages"] = f"{number // self._every + 1:032}.1"
        versions = {"messages": f"{number // self._every + 1:032}.1", **new}
        checkpoint: dict[str, Any] = {
            "v": 4,
            "id": str(uuid6(clock_seq=number)),
            "ts": "2026-01-01T00:00:00+00:00",
            "channel_values": {"messages": self._messages, "branch:to:a": None},
            "channel_versions": versions,
            "versions_seen": {"a": dict(versions)},
            "updated_channels": None,
        }
        config = at(self.ids[-1]) if self.ids else THREAD
        self.ids.append(checkpoint["id"])
        return config, checkpoint, {"source": "loop", "step": number, "parents": {}}, new

    def latest(self) -> Any:
        """The newest checkpoint."""
        return self.saver.get_tuple(THREAD)

    def first(self, count: int) -> int:
        """So many of the newest, one after the other."""
        return sum(1 for _ in self.saver.list(THREAD, limit=count))

    def hold(self, count: int) -> int:
        """So many of the newest, all at once."""
        return len(list(self.saver.list(THREAD, limit=count)))

    def write(self, count: int) -> None:
        """The writes of so many tasks of the newest."""
        for _ in range(count):
            self._tasks += 1
            writes = [("messages", [AIMessage(f"answer {self._tasks} " * 10, id=f"a{self._tasks}")]), ("x", 1)]
            self.saver.put_writes(at(self.ids[-1]), writes, f"task{self._tasks}")

    def fork(self) -> None:
        """Another state below a checkpoint in the middle, as `update_state` does it."""
        found = self.saver.get_tuple(at(self.ids[len(self.ids) // 2]))
        values = found.checkpoint["channel_values"]
        values["messages"].append(HumanMessage("forked", id="f"))
        checkpoint: dict[str, Any] = {**found.checkpoint, "id": str(uuid6(clock_seq=-1))}
        checkpoint["channel_versions"] = {**checkpoint["channel_versions"], "messages": f"{10**6:032}.1"}
        new = {"messages": f"{10**6:032}.1"}
        self.saver.put(found.config, checkpoint, {"source": "fork", "step": 1, "parents": {}}, new)

    def copy_by_hand(self, target: str) -> None:
        """Copy a thread as a user does where the saver has no `copy_thread`."""
        for found in reversed(list(self.saver.list(THREAD))):
            parent: dict[str, str] = (
                {}
                if found.parent_config is None
                else {"checkpoint_id": found.parent_config["configurable"]["checkpoint_id"]}
            )
            config = {"configurable": {"thread_id": target, "checkpoint_ns": "", **parent}}
            self.saver.put(config, found.checkpoint, found.metadata, found.checkpoint["channel_versions"])


def at(checkpoint_id: str) -> Any:
    return {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": checkpoint_id}}


def langgraph(world: World) -> Iterator[Row]:
    """Both workloads, and the whole graph. What takes the peers long for the same reason in both is done in A only."""
    for name, every in (("A", 5), ("B", 1)):
        with ExitStack() as stack:
            yield from _workload(world, stack, name, every, is_whole=name == "A")
    yield from _whole_graph(world)


def _workload(world: World, stack: ExitStack, name: str, every: int, *, is_whole: bool) -> Iterator[Row]:
    count = world.sizes.checkpoints
    threads = _threads(world, stack, every)
    world.report(f"LangGraph, workload {name}: {count:,} checkpoints")
    repeats = min(_MAX_SAMPLES, max(1, count // _PER_SAMPLE))
    size = count // repeats
    puts = take_turns(
        {who: partial(one.grow, size) for who, one in threads.items()},
        repeats=repeats,
        is_warm=False,
        are_all_needed=True,
    )
    for ours, peer in (
        ("async always", "AsyncSqliteSaver"),
        ("async fast", "AsyncSqliteSaver"),
        ("always", "SqliteSaver"),
        ("fast", "SqliteSaver"),
        ("always", "InMemorySaver"),
    ):
        durability = ours.removeprefix("async ")
        way = "aput" if ours.startswith("async") else "put"
        yield Row(
            subject="langgraph",
            name=f"{name}: {way}, durability='{durability}'",
            peer=peer,
            show="rate",
            ours=[seconds / size for seconds in puts[ours]],
            theirs=[seconds / size for seconds in puts[peer]],
            note="nothing outlives the process there"
            if peer == "InMemorySaver"
            else "SQLite syncs every commit (WAL, FULL)",
        )
    mine, peers = threads["always"], {who: threads[who] for who in ("SqliteSaver", "InMemorySaver")}
    for peer, theirs in peers.items():
        check_equal(name, _values(mine.latest()), _values(theirs.latest()))
        compare = partial(world.compare, subject="langgraph", peer=peer, note="sync methods")
        yield compare(mine.latest, theirs.latest, name=f"{name}: get the latest")
        yield compare(partial(mine.first, 10), partial(theirs.first, 10), name=f"{name}: list 10")
    yield from _once(name, mine, peers["SqliteSaver"], count, is_held=is_whole)
    yield _bytes_row(f"{name}: bytes on disk", mine, peers["SqliteSaver"])
    yield from _additions(name, mine, peers["SqliteSaver"])
    if is_whole:
        yield from _whole_threads(name, mine, peers["SqliteSaver"])


def _threads(world: World, stack: ExitStack, every: int) -> dict[str, Thread]:
    threads: dict[str, Thread] = {}
    runner = stack.enter_context(asyncio.Runner())
    durabilities: tuple[Durability, ...] = ("always", "fast")
    for durability in durabilities:
        for way in ("", "async "):
            folder = world.folder()
            ledger = stack.enter_context(chatledger.open(folder, durability=durability))
            threads[way + durability] = Thread(LedgerSaver(ledger), folder, every=every, runner=runner if way else None)
    folder = world.folder()
    saver = stack.enter_context(SqliteSaver.from_conn_string(str(folder / "peer.db")))
    threads["SqliteSaver"] = Thread(saver, folder, every=every)
    folder = world.folder()
    context = AsyncSqliteSaver.from_conn_string(str(folder / "peer.db"))
    threads["AsyncSqliteSaver"] = Thread(runner.run(context.__aenter__()), folder, every=every, runner=runner)
    stack.callback(lambda: runner.run(context.__aexit__(None, None, None)))
    threads["InMemorySaver"] = Thread(InMemorySaver(), None, every=every)
    return threads


def _values(found: Any) -> Any:
    return found.checkpoint["channel_values"], found.metadata


def _once(name: str, mine: Thread, theirs: Thread, count: int, *, is_held: bool) -> Iterator[Row]:
    """Long lists, once each way."""
    for how, what in (("one after the other", "first"), ("held together", "hold")):
        if what == "hold" and not is_held:
            return
        calls: dict[str, Callable[[], object]] = {
            "ours": partial(getattr(mine, what), count),
            "theirs": partial(getattr(theirs, what), count),
        }
        samples = take_turns(calls, repeats=1, is_warm=False)  # they take seconds
        yield Row(
            subject="langgraph",
            name=f"{name}: list {count:,}, {how}",
            peer="SqliteSaver",
            ours=samples["ours"],
            theirs=samples["theirs"],
            note="sync methods",
        )


def _additions(name: str, mine: Thread, theirs: Thread) -> Iterator[Row]:
    """Writes of tasks, and forks."""
    samples = take_turns(
        {"ours": partial(mine.write, 10), "theirs": partial(theirs.write, 10)}, repeats=5, is_warm=False
    )
    yield Row(
        subject="langgraph",
        name=f"{name}: put_writes of two, durability='always'",
        peer="SqliteSaver",
        show="rate",
        ours=[seconds / 10 for seconds in samples["ours"]],
        theirs=[seconds / 10 for seconds in samples["theirs"]],
    )
    samples = take_turns({"ours": mine.fork, "theirs": theirs.fork}, repeats=_FORKS, is_warm=False)
    yield Row(
        subject="langgraph",
        name=f"{name}: fork in the middle, durability='always'",
        peer="SqliteSaver",
        ours=samples["ours"],
        theirs=samples["theirs"],
        note="get_tuple and put, sync methods",
    )


def _whole_threads(name: str, mine: Thread, theirs: Thread) -> Iterator[Row]:
    """Copying a thread, and deleting it."""
    for what, ours, other in (
        ("copy the thread", partial(mine.saver.copy_thread, "t", "u"), partial(theirs.copy_by_hand, "u")),
        ("delete the thread", partial(mine.saver.delete_thread, "t"), partial(theirs.saver.delete_thread, "t")),
    ):
        samples = take_turns({"ours": ours, "theirs": other}, repeats=1, is_warm=False)
        by_hand = "by hand there, which has no `copy_thread`" if what.startswith("copy") else "once"
        yield Row(
            subject="langgraph",
            name=f"{name}: {what}",
            peer="SqliteSaver",
            ours=samples["ours"],
            theirs=samples["theirs"],
            note=by_hand,
        )


def _bytes_row(name: str, mine: Thread, theirs: Thread) -> Row:
    assert mine.folder is not None
    assert theirs.folder is not None
    with sqlite3.connect(theirs.folder / "peer.db") as connection:
        connection.execute("pragma wal_checkpoint(truncate)")
    connection.close()
    log, index = (bytes_on_disk(mine.folder / part) for part in ("log", "index"))
    return Row(
        subject="langgraph",
        name=name,
        peer="SqliteSaver",
        show="bytes",
        ours=[float(log + index)],
        theirs=[float(bytes_on_disk(theirs.folder))],
        note=f"log {log / 1e6:.1f} MB and index {index / 1e6:.1f} MB",
    )


class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


def _graph(saver: Any) -> Any:
    def answer(state: Chat) -> dict[str, Any]:
        number = len(state["messages"])
        return {"messages": [AIMessage(f"{number:06} {'dolor sit amet ' * 40}"[:512], id=f"a{number}")]}

    graph: Any = StateGraph(Chat)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    return graph.compile(checkpointer=saver)


def _whole_graph(world: World) -> Iterator[Row]:
    """Turns of a graph with a plain channel: an input, and two steps."""
    turns, config = world.sizes.turns, {"configurable": {"thread_id": "t"}}
    world.report(f"LangGraph, a graph of {turns} turns")
    with ExitStack() as stack:
        folders = {who: world.folder() for who in ("ours", "theirs")}
        savers: dict[str, Any] = {
            "ours": LedgerSaver(stack.enter_context(chatledger.open(folders["ours"]))),
            "theirs": stack.enter_context(SqliteSaver.from_conn_string(str(folders["theirs"] / "peer.db"))),
        }
        graphs = {who: _graph(saver) for who, saver in savers.items()}
        took: dict[str, list[float]] = {"ours": [], "theirs": []}
        for turn in range(turns):
            gc.collect()
            text = f"{turn:06} {'consectetur ' * 50}"[:512]
            for who, graph in graphs.items():
                start = time.perf_counter()
                graph.invoke({"messages": [HumanMessage(text, id=f"h{turn}")]}, config)
                took[who].append(time.perf_counter() - start)
        check_equal("graph", *(graph.get_state(config).values for graph in graphs.values()))
        name = f"{turns} turns of a graph"
        yield Row(
            subject="langgraph",
            name=f"{name}: one of the last 10",
            peer="SqliteSaver",
            ours=took["ours"][-10:],
            theirs=took["theirs"][-10:],
        )
        yield world.compare(
            lambda: graphs["ours"].get_state(config),
            lambda: graphs["theirs"].get_state(config),
            subject="langgraph",
            name=f"{name}: get_state",
            peer="SqliteSaver",
            note="",
        )
        mine, theirs = (Thread(savers[who], folders[who], every=1) for who in ("ours", "theirs"))
        yield _bytes_row(f"{name}: bytes on disk", mine, theirs)
