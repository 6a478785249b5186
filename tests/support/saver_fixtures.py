"""Fixtures of savers of LangGraph, for test modules that find them in their conftest."""

from collections.abc import Generator

import pytest
from tests.support.langgraph_world import OURS, PEERS, open_calls

from chatledger.infra.testing.savers import Calls


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
