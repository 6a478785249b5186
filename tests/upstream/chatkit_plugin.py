"""
A plugin of pytest that gives ChatKit's own tests `LedgerStore`. They come without the store that they are for.

Their files import a store and a kind of context from modules that are not in the source distribution: those are here. Stores
of the same file share a ledger in memory, and the context names the user. `known.toml` names the tests that cannot pass, and why.
"""

import sys
from collections.abc import Generator
from types import ModuleType
from typing import Any, Final, NamedTuple

import pytest
from expecting import expect_known  # type: ignore[import-not-found]  # beside it, and pytest puts its folder on the path

import chatledger
from chatledger.adapters.chatkit import LedgerStore

_open: Final[dict[str, chatledger.Ledger]] = {}


class RequestContext(NamedTuple):
    """In the place of the context of the tests."""

    user_id: str


class SQLiteStore(LedgerStore[RequestContext]):
    """In the place of the store of the tests."""

    def __init__(self, db_path: str) -> None:
        if db_path not in _open:
            _open[db_path] = chatledger.open("memory:")
        super().__init__(_open[db_path], user_of=lambda context: context.user_id)
        self.db_path = db_path


def _module(name: str, **names: Any) -> None:
    module = ModuleType(name)
    module.__dict__.update(names)
    sys.modules[name] = module


_module("helpers")
_module("helpers.mock_store", SQLiteStore=SQLiteStore)
_module("tests._types", RequestContext=RequestContext)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of a run."""
    parser.addoption("--ledger", default="memory:", help="is not heeded")
    parser.addoption("--suite", required=True, help="the name of the suite in known.toml")


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
