"""Conversations of Pydantic AI on a ledger. Needs `pip install 'chatledger[pydantic-ai]'`."""

from chatledger.domain import extras as _extras

with _extras.needing("pydantic-ai", __name__):
    from chatledger.infra.entrypoints.adapters.pydantic_ai.store import LedgerConversationStore

__all__ = ["LedgerConversationStore"]
