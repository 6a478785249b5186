"""Histories of Microsoft's Agent Framework on a ledger. Needs `pip install 'chatledger[agent-framework]'`."""

from chatledger.domain.errors import ConfigurationError

try:
    from chatledger.infra.entrypoints.adapters.agent_framework.provider import LedgerHistoryProvider
except ImportError as error:
    if (error.name or "").startswith("chatledger"):
        raise
    msg = f"chatledger.adapters.agent_framework needs {error.name}: pip install 'chatledger[agent-framework]'"
    raise ConfigurationError(msg) from error

__all__ = ["LedgerHistoryProvider"]
