"""The ledger that most of these tests begin with."""

from collections.abc import Iterator

import pytest

import chatledger
from chatledger import Ledger


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    """An empty ledger in memory."""
    with chatledger.open("memory:") as ledger:
        yield ledger
