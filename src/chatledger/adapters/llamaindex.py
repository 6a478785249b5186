"""Chat stores of LlamaIndex on a ledger. Needs `pip install 'chatledger[llamaindex]'`."""

from chatledger.domain.errors import ConfigurationError

try:
    from chatledger.infra.entrypoints.adapters.llamaindex.stores import LedgerAsyncChatStore, LedgerChatStore
except ImportError as error:
    if (error.name or "").startswith("chatledger"):
        raise
    msg = f"chatledger.adapters.llamaindex needs {error.name}: pip install 'chatledger[llamaindex]'"
    raise ConfigurationError(msg) from error

__all__ = ["LedgerAsyncChatStore", "LedgerChatStore"]
