"""
A plugin of pytest that puts `LedgerSession` in the place of the sessions of OpenAI's Agents SDK, before their tests import them.

It is loaded by `python -m tests.upstream` into runs of the SDK's own tests, whose files stay as they are. Sessions on the same
file or the same database engine share a ledger, as they would share the database; those in memory have one each.

Tests that look into connections, locks and tables are left out, as some of them would wait for ever: `_INSIDE` finds them by
their source. `known.toml` names the others that cannot pass, and why.
"""

import contextlib
import inspect
import re
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final, Self

import agents
import agents.extensions.memory as extensions
import agents.extensions.memory.advanced_sqlite_session as advanced
import agents.extensions.memory.sqlalchemy_session as sqlalchemy
import pytest
from agents import memory
from expecting import expect_known  # type: ignore[import-not-found]  # beside it, and pytest puts its folder on the path

import chatledger
from chatledger.adapters.openai_agents import LedgerSession

_ledger = "memory:"
_open: Final[list[contextlib.ExitStack]] = []
_shared: Final[dict[str, chatledger.Ledger]] = {}
_IN_MEMORY: Final = ":memory:"
_INSIDE: Final = re.compile(
    r"session\w*\._\w|_connection|_in_process|\.engine|_factory|(?<!create)_tables?\b|_count_rows|_current_branch_id|create_tables=False|to_thread|\.wait\(|monkeypatch|threading|multiprocessing|\bpatch|sqlite3|select\("
)


def _ledger_of(database: str) -> chatledger.Ledger:
    """The ledger in the place of a database, which is closed at the end of the test."""
    if database in _shared:
        return _shared[database]
    resources = contextlib.ExitStack()
    _open.append(resources)
    if _ledger == "directory":
        folder = Path(tempfile.mkdtemp(prefix="chatledger-upstream-"))
        resources.callback(shutil.rmtree, folder, ignore_errors=True)
        opened = resources.enter_context(chatledger.open(folder))
    else:
        opened = resources.enter_context(chatledger.open("memory:"))
    if database != _IN_MEMORY:
        _shared[database] = opened
    return opened


class SQLiteSession(LedgerSession):
    """In the place of `SQLiteSession`."""

    def __init__(
        self, session_id: str, db_path: Any = _IN_MEMORY, *_tables: str, session_settings: Any = None, **_options: Any
    ) -> None:
        place = str(db_path)
        database = place if place == _IN_MEMORY else str(Path(place).resolve())
        super().__init__(session_id, _ledger_of(database), session_settings=session_settings)


class AdvancedSQLiteSession(SQLiteSession):
    """In the place of `AdvancedSQLiteSession`."""


class SQLAlchemySession(LedgerSession):
    """In the place of `SQLAlchemySession`."""

    def __init__(self, session_id: str, *, engine: Any, session_settings: Any = None, **_options: Any) -> None:
        super().__init__(session_id, _ledger_of(str(id(engine))), session_settings=session_settings)

    @classmethod
    def from_url(cls, session_id: str, *, url: str, session_settings: Any = None, **_options: Any) -> Self:
        """As sessions of a database are made."""
        made = cls.__new__(cls)
        database = _IN_MEMORY if _IN_MEMORY in url else url
        LedgerSession.__init__(made, session_id, _ledger_of(database), session_settings=session_settings)
        return made


_replaced: Final[list[tuple[Any, type]]] = [
    (agents, SQLiteSession),
    (memory, SQLiteSession),
    (extensions, AdvancedSQLiteSession),
    (advanced, AdvancedSQLiteSession),
    (extensions, SQLAlchemySession),
    (sqlalchemy, SQLAlchemySession),
]
for _module, _stand_in in _replaced:
    setattr(_module, _stand_in.__name__, _stand_in)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options: the place of the ledger, and the suite."""
    parser.addoption("--ledger", choices=["memory:", "directory", "defaults"], default="memory:")
    parser.addoption("--suite", required=True, help="the name of the suite in known.toml")


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
        _shared.clear()
        while _open:
            _open.pop().close()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Expect of the tests that are known not to pass that they fail, and of each of them that it is there."""
    for item in items:
        if isinstance(item, pytest.Function) and _INSIDE.search(inspect.getsource(item.function)):
            item.add_marker(pytest.mark.skip(reason="looks into the connections, locks or tables of a session in SQL"))
    expect_known(config, items, ledger=_ledger)
