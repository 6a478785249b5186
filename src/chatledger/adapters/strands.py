"""Sessions of Strands Agents on a ledger. Needs `pip install 'chatledger[strands]'`."""

from chatledger.domain.errors import ConfigurationError

try:
    from chatledger.infra.entrypoints.adapters.strands.sessions import (
        LedgerSessionManager,
        LedgerSessionRepository,
        chat_id,
    )
except ImportError as error:
    if (error.name or "").startswith("chatledger"):
        raise
    msg = f"chatledger.adapters.strands needs {error.name}: pip install 'chatledger[strands]'"
    raise ConfigurationError(msg) from error

__all__ = ["LedgerSessionManager", "LedgerSessionRepository", "chat_id"]
