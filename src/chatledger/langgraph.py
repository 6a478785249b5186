"""LangGraph's checkpoints on a ledger. Needs `pip install 'chatledger[langgraph]'`."""

from chatledger.infra.langgraph.saver import LedgerSaver

__all__ = ["LedgerSaver"]
