"""Fixtures of most of these tests: a ledger, sample conversations, savers of LangGraph."""

import contextlib
from collections.abc import Iterator

import pytest
from tests.support.cli_world import imported_samples, samples

import chatledger
from chatledger import Ledger

with contextlib.suppress(ModuleNotFoundError):  # LangGraph is not where only the adapters are tested
    from tests.support.saver_fixtures import anyones, saver

__all__ = ["anyones", "imported_samples", "samples", "saver"]


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    """An empty ledger in memory."""
    with chatledger.open("memory:") as ledger:
        yield ledger
