"""Savers of LangGraph for tests: ours, and those that it is compared with, called in both ways."""

import contextlib
import sqlite3
from collections.abc import Generator

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver

import chatledger
from chatledger.infra.testing.savers import Calls
from chatledger.langgraph import LedgerSaver

OURS = ("unbound sync", "unbound async", "bound sync", "bound async")
PEERS = ("memory sync", "memory async", "sqlite sync")


@contextlib.contextmanager
def open_calls(kind: str) -> Generator[Calls]:
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
