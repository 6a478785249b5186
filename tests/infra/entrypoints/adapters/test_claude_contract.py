"""`LedgerSessionStore` keeps the contract of adapters, and the one of the Claude Agent SDK."""

import asyncio
import contextlib

import pytest

pytest.importorskip("claude_agent_sdk")

from claude_agent_sdk.testing import run_session_store_conformance
from tests.support.adapters.claude import ClaudeDriver
from tests.support.adapters.plain import PlainDriver

import chatledger
from chatledger.adapters.claude import LedgerSessionStore
from chatledger.testing import check_adapter, check_adapter_killed


def test_it_keeps_the_contract_of_the_sdk() -> None:
    """All of its contracts: none of the optional methods is skipped."""
    with contextlib.ExitStack() as ledgers:

        def make() -> LedgerSessionStore:
            return LedgerSessionStore(ledgers.enter_context(chatledger.open("memory:")))

        asyncio.run(run_session_store_conformance(make, skip_optional=frozenset()))


def test_it_keeps_the_contract() -> None:
    check_adapter(ClaudeDriver(), others=[PlainDriver()])


def test_it_outlives_a_kill() -> None:
    check_adapter_killed("tests.support.adapters.claude:ClaudeDriver", rounds=2)


def test_both_adapters_share_conversations() -> None:
    pytest.importorskip("agents")
    from tests.support.adapters.openai_agents import OpenAIAgentsDriver

    check_adapter(ClaudeDriver(), others=[OpenAIAgentsDriver()])
