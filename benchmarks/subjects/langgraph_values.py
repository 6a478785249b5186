"""
Values of LangGraph's states by shape, and the steps of its graphs: ours against its own saver on SQLite.

Time is processor time of this process, summed over all puts of a run, so that what SQLite's log of pages or our threads do at
some of them counts. A server of ours takes 0.3 to 1.7 ms a put beside it.
"""

import array
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Annotated, Any, Final, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages

import chatledger
from chatledger.langgraph import LedgerSaver

from ..measure import Row, bytes_on_disk, check_equal
from ..world import World

_SAMPLES: Final = 5
_TASKS: Final = (1, 4)
_SNAPSHOT_FREQUENCY: Final = 50

Values = Iterator[dict[str, Any]]


def _messages(chance: random.Random) -> Values:
    messages: list[AnyMessage] = []
    while True:
        text = f"{chance.random()} {'lorem ipsum ' * 50}"[:512]
        messages = [*messages, HumanMessage(text, id=f"m{len(messages)}")]
        yield {"messages": messages}


def _new_floats(chance: random.Random) -> Values:
    while True:
        yield {"floats": _floats(chance)}


def _floats(chance: random.Random) -> list[float]:
    return array.array("d", (chance.random() for _ in range(20_000))).tolist()


def _appended_floats(chance: random.Random) -> Values:
    floats = _floats(chance)
    while True:
        yield {"floats": list(floats)}
        floats.append(chance.random())


def _edited_floats(chance: random.Random) -> Values:
    floats = _floats(chance)
    while True:
        yield {"floats": list(floats)}
        floats[chance.randrange(len(floats))] = chance.random()


def _inserted_floats(chance: random.Random) -> Values:
    floats = _floats(chance)
    while True:
        yield {"floats": list(floats)}
        floats.insert(chance.randrange(len(floats)), chance.random())


def _keys(count: int) -> Callable[[random.Random], Values]:
    def change(chance: random.Random) -> Values:
        table: dict[str, Any] = {
            f"key {number}": {"count": number, "name": f"name {number}"} for number in range(count)
        }
        while True:
            yield {"table": dict(table)}
            table[f"key {chance.randrange(count)}"] = {"count": chance.random(), "name": "changed"}

    return change


def _rows(chance: random.Random) -> Values:
    rows = [{"id": number, "x": chance.random()} for number in range(53_000)]
    while True:
        yield {"rows": list(rows)}
        rows.append({"id": len(rows), "x": chance.random()})


def _edited_text(chance: random.Random) -> Values:
    text = _text(chance, 1_000_000)
    while True:
        yield {"text": text}
        at = chance.randrange(len(text) - 20)
        text = f"{text[:at]}{chance.random()}{text[at + chance.randrange(20) :]}"


def _new_text(chance: random.Random) -> Values:
    while True:
        yield {"text": _text(chance, 300_000)}


def _text(chance: random.Random, size: int) -> str:
    return chance.randbytes(size // 2).hex()


def _files(chance: random.Random) -> Values:
    """As deep agents keep them: a line is edited, and its file has a time; a message says so."""
    files = {
        f"/src/file{number}.py": {
            "content": [f"line {line} of file {number} {chance.random()}" for line in range(180)],
            "created_at": "2026-01-01T00:00:00+00:00",
            "modified_at": "2026-01-01T00:00:00+00:00",
        }
        for number in range(100)
    }
    messages: list[AnyMessage] = []
    while True:
        yield {"files": dict(files), "messages": list(messages)}
        name = chance.choice([*files])
        lines: Any = [*files[name]["content"]]
        lines[chance.randrange(len(lines))] = f"edited {chance.random()}"
        files[name] = {**files[name], "content": lines, "modified_at": f"2026-01-01T00:00:{len(messages):06}+00:00"}
        messages.append(AIMessage(f"edited {name} {chance.random()}", id=f"a{len(messages)}"))


def _tiny(_chance: random.Random) -> Values:
    number = 0
    while True:
        yield {"x": number}
        number += 1


_WORKLOADS: Final[dict[str, tuple[int, Callable[[random.Random], Values]]]] = {
    "a list of messages that grows": (1_000, _messages),
    "20,000 floats, all new": (40, _new_floats),
    "20,000 floats, one appended": (200, _appended_floats),
    "20,000 floats, one edited": (200, _edited_floats),
    "20,000 floats, one inserted": (100, _inserted_floats),
    "8,000 keys, one changed": (60, _keys(8_000)),
    "40,000 keys, one changed": (40, _keys(40_000)),
    "53,000 rows, one appended": (30, _rows),
    "a text of 1 MB, edited within": (60, _edited_text),
    "a text of 300 kB, all new": (40, _new_text),
    "100 files, a line edited, and a message": (100, _files),
    "a number": (200, _tiny),
}
"""How often each value is put, and what it is: each time the values of all channels, of which each has changed."""


def langgraph_values(world: World) -> Iterator[Row]:
    """Puts of values of each shape; then steps of one task and of several, and turns of graphs with and without a delta channel."""
    for name, (count, values) in _WORKLOADS.items():
        world.report(f"LangGraph, values: {name}")
        yield _puts(world, name, max(_SAMPLES, count * world.sizes.turns // 250), values)
    world.report("LangGraph, steps")
    yield from _steps(world)
    channels: dict[str, Any] = {"add_messages": add_messages, "a DeltaChannel": _DELTA}
    for name, channel in channels.items():
        world.report(f"LangGraph, turns with {name}")
        yield from _turns(world, name, channel)


def _puts(world: World, name: str, count: int, values: Callable[[random.Random], Values]) -> Row:
    with ExitStack() as stack:
        folders = {"ours": world.folder(), "theirs": world.folder()}
        savers: dict[str, Any] = {
            "ours": LedgerSaver(stack.enter_context(chatledger.open(folders["ours"]))),
            "theirs": stack.enter_context(SqliteSaver.from_conn_string(str(folders["theirs"] / "peer.db"))),
        }
        took: dict[str, list[float]] = {"ours": [], "theirs": []}
        config = {"ours": _at(None), "theirs": _at(None)}
        made = values(random.Random(name))
        per_sample = max(1, count // _SAMPLES)
        for sample in range(_SAMPLES):
            steps = [_checkpoint(next(made), sample * per_sample + number) for number in range(per_sample)]
            for who, saver in savers.items():
                began = time.process_time()
                for checkpoint in steps:
                    metadata: Any = {"source": "loop", "step": 0, "parents": {}}
                    config[who] = saver.put(config[who], checkpoint, metadata, checkpoint["channel_versions"])
                took[who].append((time.process_time() - began) / per_sample)
        check_equal(name, *(saver.get_tuple(_at(None)).checkpoint["channel_values"] for saver in savers.values()))
    log, index = (bytes_on_disk(folders["ours"] / part) / 1e6 for part in ("log", "index"))
    theirs = bytes_on_disk(folders["theirs"]) / 1e6
    return Row(
        subject="langgraph_values",
        name=f"put: {name}",
        peer="SqliteSaver",
        ours=took["ours"],
        theirs=took["theirs"],
        note=f"processor time; {_SAMPLES * per_sample} puts: log {log:.1f} MB and index {index:.1f} MB, there {theirs:.1f} MB",
    )


def _checkpoint(values: dict[str, Any], number: int) -> dict[str, Any]:
    return {
        "v": 4,
        "id": str(uuid6(clock_seq=number)),
        "ts": "2026-01-01T00:00:00+00:00",
        "channel_values": values,
        "channel_versions": dict.fromkeys(values, f"{number + 1:032}.1"),
        "versions_seen": {"a": dict.fromkeys(values, f"{number:032}.1")},
        "updated_channels": None,
    }


def _at(checkpoint_id: str | None) -> Any:
    named = {} if checkpoint_id is None else {"checkpoint_id": checkpoint_id}
    return {"configurable": {"thread_id": "t", "checkpoint_ns": "", **named}}


def _steps(world: World) -> Iterator[Row]:
    """Steps as LangGraph stores them: what each task wrote, and then the checkpoint."""
    per_sample = max(1, world.sizes.turns // _SAMPLES)
    with ExitStack() as stack:
        savers: dict[str, Any] = {
            "ours": LedgerSaver(stack.enter_context(chatledger.open(world.folder()))),
            "theirs": stack.enter_context(SqliteSaver.from_conn_string(str(world.folder() / "peer.db"))),
        }
        config = {who: _at(None) for who in savers}
        for tasks in _TASKS:
            clocks = {"processor time": time.process_time, "": time.perf_counter}
            took = {clock: {who: list[float]() for who in savers} for clock in clocks}
            for _ in range(_SAMPLES):
                for who, saver in savers.items():
                    began = {clock: read() for clock, read in clocks.items()}
                    for number in range(per_sample):
                        for task in range(tasks):
                            writes = [("messages", AIMessage(f"answer {number}", id=f"{task}"))]
                            if "checkpoint_id" in config[who]["configurable"]:
                                saver.put_writes(config[who], writes, f"task{task}")
                        checkpoint = _checkpoint({"x": number}, number)
                        config[who] = saver.put(
                            config[who], checkpoint, {"source": "loop"}, checkpoint["channel_versions"]
                        )
                    for clock, read in clocks.items():
                        took[clock][who].append((read() - began[clock]) / per_sample)
            for clock, of_both in took.items():
                yield Row(
                    subject="langgraph_values",
                    name=f"step of {tasks} task{'s' if tasks > 1 else ''}{', CPU' if clock else ''}",
                    peer="SqliteSaver",
                    ours=of_both["ours"],
                    theirs=of_both["theirs"],
                    note=clock or "put_writes of each, and put; durability of the run 'async'",
                )


def _extended(messages: list[Any] | None, writes: Any) -> list[Any]:
    return [*(messages or []), *(message for write in writes for message in write)]


_DELTA: Final = DeltaChannel[list[Any]](_extended, list[Any], snapshot_frequency=_SNAPSHOT_FREQUENCY)


def _turns(world: World, name: str, channel: Any) -> Iterator[Row]:
    turns, config = world.sizes.turns, _at(None)
    with ExitStack() as stack:
        folders = {"ours": world.folder(), "theirs": world.folder()}
        graphs: dict[str, Any] = {
            "ours": _graph(LedgerSaver(stack.enter_context(chatledger.open(folders["ours"]))), channel),
            "theirs": _graph(
                stack.enter_context(SqliteSaver.from_conn_string(str(folders["theirs"] / "peer.db"))), channel
            ),
        }
        took: dict[str, list[float]] = {"ours": [], "theirs": []}
        per_sample = max(1, turns // _SAMPLES)
        for sample in range(_SAMPLES):
            for who, graph in graphs.items():
                began = time.process_time()
                for turn in range(per_sample):
                    text = f"{sample} {turn} {'consectetur ' * 50}"[:512]
                    graph.invoke({"messages": [HumanMessage(text, id=f"h{sample}.{turn}")]}, config)
                took[who].append((time.process_time() - began) / per_sample)
        check_equal(name, *(graph.get_state(config).values for graph in graphs.values()))
        reading = world.compare(
            lambda: graphs["ours"].get_state(config),
            lambda: graphs["theirs"].get_state(config),
            subject="langgraph_values",
            name=f"get_state after {per_sample * _SAMPLES} turns with {name}",
            peer="SqliteSaver",
            note="",
        )
        # Its write-ahead log would be counted beside the pages that it holds.
        graphs["theirs"].checkpointer.conn.execute("pragma wal_checkpoint(truncate)")
    log, index = (float(bytes_on_disk(folders["ours"] / part)) for part in ("log", "index"))
    yield Row(
        subject="langgraph_values",
        name=f"turn of a graph with {name}",
        peer="SqliteSaver",
        ours=took["ours"],
        theirs=took["theirs"],
        note="processor time, LangGraph's own included",
    )
    yield reading
    yield Row(
        subject="langgraph_values",
        name=f"{per_sample * _SAMPLES} turns with {name}: bytes on disk",
        peer="SqliteSaver",
        show="bytes",
        ours=[log + index],
        theirs=[float(bytes_on_disk(folders["theirs"]))],
        note=f"log {log / 1e6:.1f} MB and index {index / 1e6:.1f} MB",
    )


def _graph(saver: Any, channel: Any) -> Any:
    chat: Any = TypedDict("chat", {"messages": Annotated[list[AnyMessage], channel]})

    def answer(state: Any) -> dict[str, Any]:
        number = len(state["messages"])
        return {"messages": [AIMessage(f"{number:06} {'dolor sit amet ' * 40}"[:512], id=f"a{number}")]}

    graph: Any = StateGraph(chat)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    return graph.compile(checkpointer=saver)
