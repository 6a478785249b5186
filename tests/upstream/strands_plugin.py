# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownParameterType=false, reportUnknownArgumentType=false
"""
A plugin of pytest that puts ledgers in the place of Strands' own repositories of sessions, before their tests import them.

    FileSessionManager        `LedgerSessionManager` on a ledger for each folder
    MockedSessionRepository   `LedgerSessionRepository` on a ledger of its own

The ledgers are in memory. `known.toml` names the tests that cannot pass, and why.
"""

import importlib
from collections.abc import Generator
from typing import Any, Final

import pytest
from expecting import expect_known  # type: ignore[import-not-found]  # beside this file, where it runs
from strands.session import file_session_manager

import chatledger
from chatledger.adapters.strands import LedgerSessionManager, LedgerSessionRepository

_open: Final[dict[object, chatledger.Ledger]] = {}


def _ledger_of(place: object) -> chatledger.Ledger:
    """The ledger for a place, which is closed at the end of the test."""
    if place not in _open:
        _open[place] = chatledger.open("memory:")
    return _open[place]


class FileSessionManager(LedgerSessionManager):
    """In the place of the manager of files."""

    def __init__(self, session_id: str, storage_dir: str | None = None, **_options: Any) -> None:
        super().__init__(session_id, _ledger_of(storage_dir))


class MockedSessionRepository(LedgerSessionRepository):
    """In the place of the repository of the tests, which is in memory too."""

    def __init__(self) -> None:
        super().__init__(_ledger_of(object()))


file_session_manager.FileSessionManager = FileSessionManager


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of a run."""
    parser.addoption("--ledger", default="memory:", help="is not heeded")
    parser.addoption("--suite", required=True, help="the name of the suite in known.toml")


def pytest_sessionstart() -> None:
    """Put the repository in, when the folder of the tests can be imported from."""
    module: Any = importlib.import_module("tests.fixtures.mock_session_repository")
    module.MockedSessionRepository = MockedSessionRepository


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None]:
    """Close the ledgers that a test used."""
    try:
        return (yield)
    finally:
        while _open:
            _open.popitem()[1].close()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Expect of the tests that are known not to pass that they fail."""
    expect_known(config, items, ledger="memory:")
