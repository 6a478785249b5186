"""Savers of LangGraph for tests: ours, and those that it is compared with, called in both ways."""

import asyncio
import contextlib
import sqlite3
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver

import chatledger
from chatledger.langgraph import LedgerSaver

OURS = ("unbound sync", "unbound async", "bound sync", "bound async")
PEERS = ("memory sync", "memory async", "sqlite sync")
NO_ASYNC = "sqlite sync"


@contextlib.contextmanager
def open_calls(kind: str) -> Generator["Calls"]:
    """A saver by its name, empty."""
    name, way = kind.split()
    is_async = way == "async"
    if name == "memory":
        yield Calls(InMemorySaver(), is_async=is_async)
    elif name == "sqlite":
        with contextlib.closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection:
            yield Calls(SqliteSaver(connection), is_async=is_async)
    else:
        with chatledger.open("memory:") as ledger:
            saver = LedgerSaver(ledger)
            yield Calls(saver.for_assistant("team:a") if name == "bound" else saver, is_async=is_async)


class Calls:
    """The methods of a saver, through the synchronous or the asynchronous ones; positions in place of configs."""

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
        assert answer["configurable"]["checkpoint_id"] == checkpoint_id
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
        """Put the writes of a task."""
        self("put_writes", config(thread_id, checkpoint_id, ns), writes, task, path)

    def get(self, thread_id: Any, checkpoint_id: str | None = None, ns: str = "") -> CheckpointTuple | None:
        """A checkpoint, or the newest."""
        found: CheckpointTuple | None = self("get_tuple", config(thread_id, checkpoint_id, ns))
        return found

    def at(self, thread_id: Any, checkpoint_id: str | None = None, ns: str = "") -> CheckpointTuple:
        """The same; it is there."""
        found = self.get(thread_id, checkpoint_id, ns)
        assert found is not None
        return found

    def ids(self, config: Mapping[str, Any] | None, **options: Any) -> list[str]:
        """The ids that are listed."""
        return [found.checkpoint["id"] for found in self.list(config, **options)]

    def list(self, config: Mapping[str, Any] | None, **options: Any) -> list[CheckpointTuple]:
        """What is listed."""
        if not self._is_async:
            return list(self.saver.list(config, **options))

        async def collect() -> list[CheckpointTuple]:
            return [found async for found in self.saver.alist(config, **options)]

        return asyncio.run(collect())

    def __call__(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Any other method."""
        if not self._is_async:
            return getattr(self.saver, method)(*arguments, **options)
        return asyncio.run(getattr(self.saver, f"a{method}")(*arguments, **options))


def config(thread_id: Any, checkpoint_id: str | None = None, ns: str | None = "") -> Any:
    """A config."""
    given = {"thread_id": thread_id, "checkpoint_ns": ns, "checkpoint_id": checkpoint_id}
    return {"configurable": {key: value for key, value in given.items() if value is not None}}


def thread(thread_id: str) -> Any:
    """A config of a thread, all of its namespaces."""
    return config(thread_id, ns=None)
