"""Sessions of Google's Agent Development Kit on a ledger. Needs `pip install 'chatledger[adk]'`."""

from chatledger.domain.errors import ConfigurationError

try:
    from chatledger.infra.entrypoints.adapters.adk.service import LedgerSessionService, chat_id
except ImportError as error:
    if (error.name or "").startswith("chatledger"):
        raise
    msg = f"chatledger.adapters.adk needs {error.name}: pip install 'chatledger[adk]'"
    raise ConfigurationError(msg) from error

__all__ = ["LedgerSessionService", "chat_id"]
