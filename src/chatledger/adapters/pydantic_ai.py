"""Conversations of Pydantic AI on a ledger. Needs `pip install 'chatledger[pydantic-ai]'`."""

from chatledger.domain.errors import ConfigurationError

try:
    from chatledger.infra.entrypoints.adapters.pydantic_ai.store import LedgerConversationStore
except ImportError as error:
    if (error.name or "").startswith("chatledger"):
        raise
    msg = f"chatledger.adapters.pydantic_ai needs {error.name}: pip install 'chatledger[pydantic-ai]'"
    raise ConfigurationError(msg) from error

__all__ = ["LedgerConversationStore"]
