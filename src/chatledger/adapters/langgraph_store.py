"""LangGraph's store of items, the long-term memory of agents, on a ledger. Needs `pip install 'chatledger[langgraph]'`."""

from chatledger.domain.errors import ConfigurationError

try:
    from chatledger.infra.entrypoints.langgraph.store import EarlierBaseStore, LedgerBaseStore
except ImportError as error:
    if (error.name or "").startswith("chatledger"):
        raise
    msg = f"chatledger.adapters.langgraph_store needs {error.name}: pip install 'chatledger[langgraph]'"
    raise ConfigurationError(msg) from error

from chatledger.infra.ledger.items.values import ItemVersion

__all__ = ["EarlierBaseStore", "ItemVersion", "LedgerBaseStore"]
