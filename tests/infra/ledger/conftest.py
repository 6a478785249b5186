"""Ledgers that most of these tests begin with."""

from collections.abc import AsyncIterator, Iterator

import pytest
from tests.support.engine_world import KINDS, EngineWorld

import chatledger
from chatledger import AsyncLedger, Ledger


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    """An empty ledger in memory."""
    with chatledger.open("memory:") as ledger:
        yield ledger


@pytest.fixture
async def async_ledger() -> AsyncIterator[AsyncLedger]:
    """An empty ledger in memory for tests with `pytest.mark.anyio`, which run on asyncio and on trio."""
    async with chatledger.open_async("memory:") as ledger:
        yield ledger


@pytest.fixture(params=KINDS)
def world(request: pytest.FixtureRequest) -> Iterator[EngineWorld]:
    """A ledger for engines of each kind."""
    with EngineWorld(request.param) as world:
        yield world
