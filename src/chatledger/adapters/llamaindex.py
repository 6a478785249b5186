"""Chat stores of LlamaIndex on a ledger. Needs `pip install 'chatledger[llamaindex]'`."""

from chatledger.domain import extras as _extras

with _extras.needing("llamaindex", __name__):
    from chatledger.infra.entrypoints.adapters.llamaindex.stores import LedgerAsyncChatStore, LedgerChatStore

__all__ = ["LedgerAsyncChatStore", "LedgerChatStore"]
