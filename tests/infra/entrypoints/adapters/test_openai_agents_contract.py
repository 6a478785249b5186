"""`LedgerSession` keeps the contract of adapters."""

import pytest

pytest.importorskip("agents")

from tests.support.adapters.openai_agents import OpenAIAgentsDriver
from tests.support.adapters.plain import PlainDriver

from chatledger.testing import check_adapter, check_adapter_killed


def test_it_keeps_the_contract() -> None:
    check_adapter(OpenAIAgentsDriver(), others=[PlainDriver()])


def test_it_outlives_a_kill() -> None:
    check_adapter_killed("tests.support.adapters.openai_agents:OpenAIAgentsDriver", rounds=2)
