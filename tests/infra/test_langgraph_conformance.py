"""LangGraph's own suite for savers, as it is published."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate

import chatledger
from chatledger.langgraph import LedgerSaver

CHECKS = {
    "put": 17,
    "put_writes": 10,
    "get_tuple": 10,
    "list": 16,
    "delete_thread": 5,
    "delete_for_runs": 7,
    "copy_thread": 8,
    "prune": 8,
}


def unbound(ledger: chatledger.Ledger) -> LedgerSaver:
    """A saver of all assistants."""
    return LedgerSaver(ledger)


def bound(ledger: chatledger.Ledger) -> LedgerSaver:
    """A saver of one assistant, beside another one's checkpoints."""
    return LedgerSaver(ledger).for_assistant("team:a")


@pytest.mark.parametrize("make", [unbound, bound], ids=["unbound", "bound"])
def test_every_published_check_passes_and_none_is_skipped(make: Callable[[chatledger.Ledger], LedgerSaver]) -> None:
    @checkpointer_test(name="chatledger")
    async def saver() -> AsyncGenerator[Any]:
        with chatledger.open("memory:") as ledger:
            yield make(ledger)

    report = asyncio.run(validate(saver))

    seen = {name: (result.detected, result.tests_passed, result.failures) for name, result in report.results.items()}
    assert seen == {name: (True, count, []) for name, count in CHECKS.items()}
