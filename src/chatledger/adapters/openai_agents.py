"""Sessions of OpenAI's Agents SDK on a ledger. Needs `pip install 'chatledger[openai-agents]'`."""

from chatledger.domain.errors import ConfigurationError

try:
    from chatledger.infra.entrypoints.adapters.openai_agents.session import LedgerSession
except ImportError as error:
    if (error.name or "").startswith("chatledger"):
        raise
    msg = f"chatledger.adapters.openai_agents needs {error.name}: pip install 'chatledger[openai-agents]'"
    raise ConfigurationError(msg) from error

__all__ = ["LedgerSession"]
