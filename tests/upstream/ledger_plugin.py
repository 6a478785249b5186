"""
A plugin of pytest that puts `LedgerSaver` in the place of LangGraph's savers, before their tests import them.

It is loaded by `python -m tests.upstream` into runs of LangGraph's own tests, whose files stay as they are. The names of their
parameters stay too (snapshots are found by them), and say what is tried:

    memory              `LedgerSaver(ledger, serde=JsonPlusSerializer())`: LangGraph's serializer; it is checked that no stored
                        checkpoint changes
    sqlite, sqlite_aio  `LedgerSaver(ledger)`: all defaults
    sqlite_aes          the same with an `EncryptedSerializer`

The ledgers are in memory or, with `--ledger directory`, each in a directory of its own. With `--ledger defaults` they are in
memory, and what stands in for `InMemorySaver` has all defaults too.

`known.toml` names the tests that cannot pass, and why. They are expected to fail: one that passes is a failure of the run, unless
it is only said that it may fail.
"""

import contextlib
import importlib
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final, Self

import pytest
from expecting import expect_known
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

import chatledger
from chatledger.langgraph import LedgerSaver

_ledger = "memory:"
_open: list[contextlib.ExitStack] = []


def _new_ledger() -> chatledger.Ledger:
    """An empty ledger, which is closed at the end of the test."""
    resources = contextlib.ExitStack()
    _open.append(resources)
    if _ledger != "directory":
        return resources.enter_context(chatledger.open("memory:"))
    folder = Path(tempfile.mkdtemp(prefix="chatledger-upstream-"))
    resources.callback(shutil.rmtree, folder, ignore_errors=True)
    return resources.enter_context(chatledger.open(folder))


class _StandIn(LedgerSaver):
    """A saver on a ledger of its own, made and entered as those of LangGraph are."""

    def __init__(self, *_connections: Any, serde: Any = None, **_options: Any) -> None:
        super().__init__(_new_ledger(), serde=serde)
        self.stack = contextlib.ExitStack()

    @classmethod
    def from_conn_string(cls, location: Any, **options: Any) -> Any:
        """As the savers of databases are made; it is entered by its user."""
        del location
        return cls(**options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.stack.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        self.stack.close()


class InMemorySaver(_StandIn):
    """In the place of `InMemorySaver`, with its serializer."""

    def __init__(self, *, serde: Any = None, factory: Any = None) -> None:
        del factory
        super().__init__(serde=serde or (None if _ledger == "defaults" else JsonPlusSerializer()))


class DatabaseSaver(_StandIn):
    """In the place of `SqliteSaver` and `PostgresSaver`."""

    def setup(self) -> None:
        """There is nothing to set up."""


class AsyncDatabaseSaver(_StandIn):
    """In the place of their asynchronous twins."""

    async def setup(self) -> None:
        """There is nothing to set up."""


class _NoDatabase:
    """In the place of a connection to PostgreSQL, or of a pool of them."""

    def __init__(self, *_arguments: Any, **_options: Any) -> None:
        pass

    def __class_getitem__(cls, _row: Any) -> Any:
        return cls

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        pass

    @classmethod
    def connect(cls, *_arguments: Any, **_options: Any) -> Any:
        """A connection."""
        return cls()

    def execute(self, *_arguments: Any, **_options: Any) -> Any:
        """Do nothing."""

    def pipeline(self) -> Self:
        """A pipeline, which does nothing either."""
        return self


class _NoAsyncDatabase(_NoDatabase):
    @classmethod
    async def connect(cls, *_arguments: Any, **_options: Any) -> Any:
        return cls()

    async def execute(self, *_arguments: Any, **_options: Any) -> None:
        pass


_IN_PLACE_OF: Final[dict[str, dict[str, Any]]] = {
    "langgraph.checkpoint.memory": {"InMemorySaver": InMemorySaver, "MemorySaver": InMemorySaver},
    "langgraph.checkpoint.sqlite": {"SqliteSaver": DatabaseSaver},
    "langgraph.checkpoint.sqlite.aio": {"AsyncSqliteSaver": AsyncDatabaseSaver},
    "langgraph.checkpoint.postgres": {"PostgresSaver": DatabaseSaver},
    "langgraph.checkpoint.postgres.aio": {"AsyncPostgresSaver": AsyncDatabaseSaver},
    "psycopg": {"Connection": _NoDatabase, "AsyncConnection": _NoAsyncDatabase},
    "psycopg_pool": {"ConnectionPool": _NoDatabase, "AsyncConnectionPool": _NoAsyncDatabase},
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options: the place of the ledger, and the suite."""
    parser.addoption("--ledger", choices=["memory:", "directory", "defaults"], default="memory:")
    parser.addoption("--suite", required=True, help="the name of the suite in known.toml")


def _replace() -> None:
    for module, names in _IN_PLACE_OF.items():
        found = importlib.import_module(module)
        for name, stand_in in names.items():
            setattr(found, name, stand_in)


_replace()  # now: the conftest of the tests, which imports savers, is read before any hook of this plugin is called


def pytest_configure(config: pytest.Config) -> None:
    """Take note of where the ledgers are."""
    global _ledger  # noqa: PLW0603 - a run has one kind of ledger
    _ledger = config.getoption("--ledger")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None]:
    """Close the ledgers that a test used."""
    try:
        return (yield)
    finally:
        while _open:
            _open.pop().close()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Expect of the tests that are known not to pass that they fail, and of each of them that it is there."""
    expect_known(config, items, ledger=_ledger)
