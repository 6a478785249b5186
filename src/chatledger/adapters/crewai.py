"""Checkpoints and states of flows of CrewAI on a ledger. Needs `pip install 'chatledger[crewai]'`."""

from chatledger.domain.errors import ConfigurationError

try:
    from chatledger.infra.entrypoints.adapters.crewai.checkpoints import LedgerProvider
    from chatledger.infra.entrypoints.adapters.crewai.flows import LedgerFlowPersistence
except ImportError as error:
    if (error.name or "").startswith("chatledger"):
        raise
    msg = f"chatledger.adapters.crewai needs {error.name}: pip install 'chatledger[crewai]'"
    raise ConfigurationError(msg) from error

__all__ = ["LedgerFlowPersistence", "LedgerProvider"]
