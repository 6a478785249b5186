"""LangGraph's store of items, the long-term memory of agents, on a ledger. Needs `pip install 'chatledger[langgraph]'`."""

from chatledger.domain import extras as _extras

with _extras.needing("langgraph", __name__):
    from chatledger.infra.entrypoints.langgraph.store import EarlierBaseStore, LedgerBaseStore

from chatledger.infra.ledger.items.values import ItemVersion

__all__ = ["EarlierBaseStore", "ItemVersion", "LedgerBaseStore"]
