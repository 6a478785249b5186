"""The fixtures of `chatledger.testing`. pytest finds this module by itself, so it imports nothing until a test asks."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from chatledger import Ledger


@pytest.fixture
def memory_ledger() -> "Iterator[Ledger]":
    """An empty ledger in memory, which is closed after the test."""
    import chatledger

    with chatledger.open("memory:") as ledger:
        yield ledger
