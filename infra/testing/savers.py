"""The contract of a saver of LangGraph."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

from . import expect, require

if TYPE_CHECKING:
    from langgraph.checkpoint.base import CheckpointTuple


class Calls:
    """Calls a saver's synchronous or asynchronous methods, with ids in place of configs."""

    def __init__(self, saver: Any, *, is_async: bool) -> None:
        self.saver, self._is_async = saver, is_async
        self._count = 0

    def put(
        self,
        thread_id: Any,
        values: dict[str, Any],
        *,
        parent: str | None = None,
        ns: str = "",
        id: str | None = None,  # noqa: A002 - the id of a checkpoint
        versions: dict[str, Any] | None = None,
        changed: Sequence[str] | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> str:
        """Put a checkpoint; returns its id. Every channel has a new version, unless they are given."""
        from langgraph.checkpoint.base.id import uuid6

        self._count += 1
        checkpoint_id = id or str(uuid6(clock_seq=self._count))
        numbers = versions or dict.fromkeys(values, self._count)
        checkpoint = {
            "v": 4,
            "id": checkpoint_id,
            "ts": "2026-01-01T00:00:00+00:00",
            "channel_values": values,
            "channel_versions": numbers,
            "versions_seen": {},
            "updated_channels": None,
        }
        new = {name: numbers[name] for name in (numbers if changed is None else changed)}
        full: dict[str, Any] = {"source": "loop", "step": self._count, "parents": {}, **(metadata or {})}
        answer = self("put", config(thread_id, parent, ns), checkpoint, full, new)
        expect(checkpoint_id, answer["configurable"]["checkpoint_id"], "a put returns the config of its checkpoint")
        return checkpoint_id

    def writes(
        self,
        thread_id: Any,
        checkpoint_id: str,
        writes: Sequence[tuple[str, Any]],
        task: str = "task",
        *,
        path: str = "",
        ns: str = "",
    ) -> None:
        self("put_writes", config(thread_id, checkpoint_id, ns), writes, task, path)

    def get(self, thread_id: Any, checkpoint_id: str | None = None, ns: str = "") -> "CheckpointTuple | None":
        """Return a checkpoint, or the newest; None where there is none."""
        checkpoint: CheckpointTuple | None = self("get_tuple", config(thread_id, checkpoint_id, ns))
        return checkpoint

    def at(self, thread_id: Any, checkpoint_id: str | None = None, ns: str = "") -> "CheckpointTuple":
        """Return a checkpoint, or the newest, which must be there."""
        checkpoint = self.get(thread_id, checkpoint_id, ns)
        if checkpoint is None:
            msg = f"checkpoint {checkpoint_id or 'the latest'} of thread {thread_id!r} must be there"
            raise AssertionError(msg)
        return checkpoint

    def ids(self, config: Mapping[str, Any] | None, **options: Any) -> list[str]:
        return [listed.checkpoint["id"] for listed in self.list(config, **options)]

    def list(self, config: Mapping[str, Any] | None, **options: Any) -> "list[CheckpointTuple]":
        if not self._is_async:
            return list(self.saver.list(config, **options))

        async def collect() -> "list[CheckpointTuple]":
            return [listed async for listed in self.saver.alist(config, **options)]

        return asyncio.run(collect())

    def __call__(self, method: str, *arguments: Any, **options: Any) -> Any:
        if not self._is_async:
            return getattr(self.saver, method)(*arguments, **options)
        return asyncio.run(getattr(self.saver, f"a{method}")(*arguments, **options))


def config(thread_id: Any, checkpoint_id: str | None = None, ns: str | None = "") -> Any:
    """Return a config of a thread, a namespace and perhaps a checkpoint."""
    fields = {"thread_id": thread_id, "checkpoint_ns": ns, "checkpoint_id": checkpoint_id}
    return {"configurable": {key: value for key, value in fields.items() if value is not None}}


def thread(thread_id: str) -> Any:
    """Return a config of a thread with all of its namespaces."""
    return config(thread_id, ns=None)


def check_saver(make_saver: Callable[[], AbstractContextManager[Any]], *, is_async: bool | None = None) -> None:
    """
    Check what LangGraph relies on in a saver, beyond its published conformance suite.

    Needs `pip install 'chatledger[langgraph]'`.

    Args:
        make_saver: Opens a new, empty saver each time, and closes it.
        is_async: Whether only the asynchronous methods are called, or only the others; both, one after the other, when None.

    Raises:
        AssertionError: At the first rule that is broken.
    """
    for way in (False, True) if is_async is None else (is_async,):
        for check in CHECKS:
            with make_saver() as saver:
                check(Calls(saver, is_async=way))


def _check_parents(saver: Calls) -> None:
    first = saver.put("t", {"a": 1})
    second = saver.put("t", {"a": 2}, parent=first)
    expect(config("t", first), saver.at("t").parent_config, "a parent is what the config named")
    expect(None, saver.at("t", first).parent_config, "the first checkpoint has no parent")
    expect(config("t", second), saver.at("t").config, "a checkpoint comes with its own config")


def _check_the_latest(saver: Calls) -> None:
    saver.put("t", {"a": "late"}, id="2")
    saver.put("t", {"a": "early"}, id="1")
    values = saver.at("t").checkpoint["channel_values"]
    expect({"a": "late"}, values, "the latest checkpoint has the greatest id, and was not put last")


def _check_early_writes(saver: Calls) -> None:
    first = saver.put("t", {}, id="1")
    saver.writes("t", "2", [("a", "early")])
    expect(first, saver.at("t").checkpoint["id"], "writes without their checkpoint make no checkpoint")
    expect(None, saver.get("t", "2"), "writes without their checkpoint are not read")
    saver.put("t", {}, id="2", parent=first)
    expect([("task", "a", "early")], saver.at("t").pending_writes, "writes may come before their checkpoint")


def _check_packets(saver: Calls) -> None:
    from langgraph.types import Send

    state = {"prompt": "p" * 1000, "n": 1}
    checkpoint_id = saver.put("t", {"__pregel_tasks": [Send("work", state)]})
    saver.writes("t", checkpoint_id, [("__pregel_tasks", Send("work", {**state, "n": 2}))])
    latest = saver.at("t")
    values = latest.checkpoint["channel_values"]
    expect({"__pregel_tasks": [Send("work", state)]}, values, "a packet to a node comes back")
    written = [("task", "__pregel_tasks", Send("work", {**state, "n": 2}))]
    expect(written, latest.pending_writes, "a packet to a node comes back in a write")


def _check_listing(saver: Calls) -> None:
    first = saver.put("t", {})
    sub = saver.put("t", {}, ns="sub")
    second = saver.put("t", {})
    expect([second, first], saver.ids(config("t")), "checkpoints are listed newest first")
    expect([sub], saver.ids(config("t", ns="sub")), "a namespace is listed by itself")
    expect({first, sub, second}, set(saver.ids(thread("t"))), "a config without a namespace lists all of them")
    expect([], saver.ids(thread("unknown")), "an unknown thread has no checkpoints")
    expect([first], saver.ids(config("t", first)), "a config with an id lists that checkpoint only")


def _check_before(saver: Calls) -> None:
    for number in ("1", "3", "5"):
        saver.put("t", {}, id=number)
    # Replays of subgraphs ask with an id of the parent graph.
    earlier = saver.ids(config("t"), before=config("t", "4"), limit=1)
    expect(["3"], earlier, "`before` takes any id, whether or not it is there")
    expect(["3", "1"], saver.ids(config("t"), before=config("t", "5")), "`before` excludes its own checkpoint")


def _check_readers_change_nothing(saver: Calls) -> None:
    from langchain_core.messages import AIMessage, HumanMessage

    message = AIMessage("hi", id="m", tool_calls=[{"name": "f", "args": {"x": [1]}, "id": "c"}])
    state = {"messages": [message, HumanMessage("yo" * 400, id="n")], "files": {"a": ["b" * 600]}}
    checkpoint_id = saver.put("t", state, metadata={"nested": {"a": [1]}})
    saver.writes("t", checkpoint_id, [("messages", [AIMessage("w", id="w")])])
    before = str(saver.at("t"))
    for _ in range(2):
        for checkpoint in (saver.at("t"), *saver.list(config("t"))):
            _change(checkpoint)
    expect(before, str(saver.at("t")), "what a reader changes is not stored")


def _change(read: Any) -> None:
    """Change everything in a checkpoint that was read."""
    values = read.checkpoint["channel_values"]
    values["messages"][0].tool_calls[0]["args"]["x"].append(2)
    values["messages"][0].content = "changed"
    values["messages"][1].additional_kwargs["k"] = 1
    values["messages"][1].response_metadata["k"] = 1
    values["messages"].append("more")
    values["files"]["a"][0] = "gone"
    values["new"] = 1
    read.metadata["nested"]["a"].append(2)
    read.checkpoint["channel_versions"]["x"] = 9
    read.pending_writes[0][2][0].content = "changed"
    read.pending_writes.clear()


def _check_writers_change_nothing(saver: Calls) -> None:
    from langchain_core.messages import HumanMessage

    messages = [HumanMessage("one " * 200, id="1"), *(HumanMessage(f"{n}", id=f"x{n}") for n in range(70))]
    first = saver.put("t", {"messages": messages})
    messages[0].content = "two " * 200
    messages[40].additional_kwargs["late"] = True
    second = saver.put("t", {"messages": messages}, parent=first)
    stored = saver.at("t", first).checkpoint["channel_values"]["messages"]
    expect("one " * 200, stored[0].content, "what a writer changes afterwards is not stored")
    expect({}, stored[40].additional_kwargs, "what a writer changes deep inside afterwards is not stored")
    expect(messages, saver.at("t", second).checkpoint["channel_values"]["messages"], "changed values come back")


def _check_deleting(saver: Calls) -> None:
    first = saver.put("t", {"a": 1})
    saver.writes("t", "never came", [("a", 1)])
    saver("delete_thread", "t")
    saver("delete_thread", "unknown")
    expect(None, saver.get("t"), "a deleted thread is gone")
    late = saver.put("t", {"a": 2}, parent=first)
    expect([late], saver.ids(thread("t")), "a put after a deletion begins the thread anew")
    expect({"a": 2}, saver.at("t").checkpoint["channel_values"], "a thread that began anew has no old values")


def _check_delta_writes(saver: Calls) -> None:
    ids = grow(saver)
    expect(([["entry 0"], ["entry 1"], ["entry 2"]], None), log_of(saver), "ancestors' writes come oldest first")
    history = saver("get_delta_channel_history", config=config("t"), channels=["log"])
    require("seed" not in history["log"], "no seed is no key")
    expect(([["entry 0"]], None), log_of(saver, checkpoint_id=ids[1]), "a checkpoint has its own ancestors")
    expect({}, saver("get_delta_channel_history", config=config("t"), channels=[]), "no channels have no history")


def _check_delta_seed(saver: Calls) -> None:
    nothing = saver("get_delta_channel_history", config=config("t"), channels=["log"])
    expect({"log": {"writes": []}}, nothing, "an unknown thread has an empty history")
    grow(saver, seed=["plain"])
    expect(["plain"], log_of(saver)[1], "the nearest stored value is the seed")


def _check_delta_siblings(saver: Calls) -> None:
    ids = grow(saver)
    fork = saver.put("t", {}, parent=ids[1], versions={"log": 9})
    saver.writes("t", fork, [("log", ["of the fork"])])
    tip = saver.put("t", {}, parent=fork, versions={"log": 10})
    forked = ([["entry 0"], ["entry 1"], ["of the fork"]], None)
    expect(forked, log_of(saver, checkpoint_id=tip), "a fork has the writes of its own ancestors")
    main = ([["entry 0"], ["entry 1"], ["entry 2"]], None)
    expect(main, log_of(saver, checkpoint_id=ids[3]), "siblings do not contribute")


def grow(saver: Calls, thread_id: str = "t", count: int = 4, *, seed: Any = None) -> list[str]:
    """Put a line of checkpoints with one write of the delta channel `log` each; the first one may have a value."""
    ids: list[str] = []
    for number in range(count):
        values = {"log": seed} if number == 0 and seed is not None else {}
        ids.append(
            saver.put(
                thread_id,
                values,
                parent=ids[-1] if ids else None,
                versions={"log": number + 1},
                metadata={"counters_since_delta_snapshot": {"log": (number + 1, number + 1)}, "run_id": f"r{number}"},
            )
        )
        saver.writes(thread_id, ids[-1], [("log", [f"entry {number}"]), ("other", number)], f"task{number}")
    return ids


def log_of(saver: Calls, thread_id: str = "t", checkpoint_id: str | None = None) -> tuple[list[Any], Any]:
    """Return the writes of the delta channel `log` above a checkpoint, and its seed."""
    history = saver("get_delta_channel_history", config=config(thread_id, checkpoint_id), channels=["log"])["log"]
    return [value for _, _, value in history["writes"]], history.get("seed")


CHECKS: Final[tuple[Callable[[Calls], None], ...]] = (
    _check_parents,
    _check_the_latest,
    _check_early_writes,
    _check_packets,
    _check_listing,
    _check_before,
    _check_readers_change_nothing,
    _check_writers_change_nothing,
    _check_deleting,
    _check_delta_writes,
    _check_delta_seed,
    _check_delta_siblings,
)
"""Each is about one idea, on a saver of its own."""
