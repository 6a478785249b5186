"""
A plugin of pytest that puts `LedgerSaver` in the place of LangGraph's savers, before their tests import them, and in the suites
of stores `LedgerBaseStore` in the place of its stores.

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
from expecting import expect_known  # type: ignore[import-not-found]  # beside it, and pytest puts its folder on the path
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

import chatledger
from chatledger.langgraph import LedgerBaseStore, LedgerSaver

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


class _StoreStandIn(LedgerBaseStore):
    """A store on a ledger of its own, made and entered as those of LangGraph are."""

    def __init__(self, *_connections: Any, index: Any = None, ttl: Any = None, **_options: Any) -> None:
        config = {**index, "fields": index.get("text_fields") or index.get("fields")} if index else None
        super().__init__(_new_ledger(), index=config, ttl=ttl)  # type: ignore[arg-type]
        self.index_config = index
        self.stack = contextlib.ExitStack()
        self.stack.callback(self.stop_ttl_sweeper)

    @classmethod
    def from_conn_string(cls, location: Any, **options: Any) -> Any:
        """As the stores of databases are made; it is entered by its user."""
        del location
        return cls(**options)

    def __exit__(self, *_error: object) -> None:
        self.stack.close()

    async def __aexit__(self, *_error: object) -> None:
        self.stack.close()


class InMemoryStore(_StoreStandIn):
    """In the place of `InMemoryStore`."""


class SqliteStore(_StoreStandIn):
    """In the place of `SqliteStore`."""

    MIGRATIONS = ("nothing",)

    def setup(self) -> None:
        """There is nothing to set up."""


class AsyncSqliteStore(_StoreStandIn):
    """In the place of its asynchronous twin, whose methods for sweeps are awaited."""

    async def setup(self) -> None:
        """There is nothing to set up."""

    async def sweep_ttl(self) -> int:  # type: ignore[override]
        """As the twin has it."""
        return await self.asweep_ttl()

    async def start_ttl_sweeper(self, sweep_interval_minutes: float | None = None) -> None:  # type: ignore[override]
        """As the twin has it."""
        swept = self.ttl_config.get("sweep_interval_minutes") if self.ttl_config else None
        store = LedgerBaseStore(self._source)
        self.stack.callback(store.stop_ttl_sweeper)
        store.start_ttl_sweeper(sweep_interval_minutes or swept)

    async def stop_ttl_sweeper(self) -> None:  # type: ignore[override]
        """As the twin has it."""
        self.stack.close()


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
_STORES: Final[dict[str, dict[str, Any]]] = {
    "langgraph.store.memory": {"InMemoryStore": InMemoryStore},
    "langgraph.store.sqlite": {"SqliteStore": SqliteStore, "AsyncSqliteStore": AsyncSqliteStore},
    "langgraph.store.sqlite.aio": {"AsyncSqliteStore": AsyncSqliteStore},
}
_OF_STORES: Final = frozenset({"store", "sqlite-store"})


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options: the place of the ledger, and the suite."""
    parser.addoption("--ledger", choices=["memory:", "directory", "defaults"], default="memory:")
    parser.addoption("--suite", required=True, help="the name of the suite in known.toml")


def _replace(replaced: dict[str, dict[str, Any]]) -> None:
    for module, names in replaced.items():
        found = importlib.import_module(module)
        for name, stand_in in names.items():
            setattr(found, name, stand_in)


_replace(
    _IN_PLACE_OF
)  # now: the conftest of the tests, which imports savers, is read before any hook of this plugin is called


def pytest_configure(config: pytest.Config) -> None:
    """Take note of where the ledgers are, and put the stores in."""
    global _ledger  # noqa: PLW0603 - a run has one kind of ledger
    _ledger = config.getoption("--ledger")
    if config.getoption("--suite") in _OF_STORES:
        _replace(_STORES)


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
