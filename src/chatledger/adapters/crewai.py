"""Checkpoints and states of flows of CrewAI on a ledger. Needs `pip install 'chatledger[crewai]'`."""

from chatledger.domain import extras as _extras

with _extras.needing("crewai", __name__):
    from chatledger.infra.entrypoints.adapters.crewai import LedgerFlowPersistence, LedgerProvider

__all__ = ["LedgerFlowPersistence", "LedgerProvider"]
