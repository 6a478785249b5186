"""Fixtures of most of these tests: a ledger, sample conversations, savers of LangGraph."""

from collections.abc import Generator, Iterator

import pytest
from tests.support.cli_world import imported_samples, samples
from tests.support.langgraph_world import OURS, PEERS, open_calls

import chatledger
from chatledger import Ledger
from chatledger.infra.testing.savers import Calls

__all__ = ["imported_samples", "samples"]


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    """An empty ledger in memory."""
    with chatledger.open("memory:") as ledger:
        yield ledger


@pytest.fixture(params=OURS)
def saver(request: pytest.FixtureRequest) -> Generator[Calls]:
    """A saver of ours."""
    with open_calls(request.param) as calls:
        yield calls


@pytest.fixture(params=[*OURS, *PEERS])
def anyones(request: pytest.FixtureRequest) -> Generator[Calls]:
    """A saver of ours, or a peer."""
    with open_calls(request.param) as calls:
        yield calls
