"""Transcripts of the Claude Agent SDK on a ledger. Needs `pip install 'chatledger[claude]'`."""

from chatledger.domain.errors import ConfigurationError

try:
    from chatledger.infra.entrypoints.adapters.claude.store import LedgerSessionStore
except ImportError as error:
    if (error.name or "").startswith("chatledger"):
        raise
    msg = f"chatledger.adapters.claude needs {error.name}: pip install 'chatledger[claude]'"
    raise ConfigurationError(msg) from error

from chatledger.infra.entrypoints.adapters.claude.keys import chat_id

__all__ = ["LedgerSessionStore", "chat_id"]
