"""Whole pages of a ledger in which everything is hostile."""

from urllib.parse import quote

import pytest
from tests.support.explorer_world import pages_of
from tests.support.hostile_markup import PAYLOADS, faults_in, hostile_messages

import chatledger
from chatledger import NewMessage


@pytest.fixture(scope="module")
def ledger() -> Generator[chatledger.AsyncLedger]:
    """A ledger with a chat for each payload."""
