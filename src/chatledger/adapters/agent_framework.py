"""Histories of Microsoft's Agent Framework on a ledger. Needs `pip install 'chatledger[agent-framework]'`."""

from chatledger.domain import extras as _extras

with _extras.needing("agent-framework", __name__):
    from chatledger.infra.entrypoints.adapters.agent_framework import LedgerHistoryProvider

__all__ = ["LedgerHistoryProvider"]
