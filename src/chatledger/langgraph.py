"""LangGraph's checkpoints on a ledger. Needs `pip install 'chatledger[langgraph]'`."""

from chatledger.domain.errors import ConfigurationError

try:
    from chatledger.infra.langgraph.answers import config_of_answer, record_answer
    from chatledger.infra.langgraph.migration import Migration
    from chatledger.infra.langgraph.saver import LedgerSaver
    from chatledger.infra.langgraph.thread_state import ThreadState, ThreadTask
except ImportError as error:
    if (error.name or "").startswith("chatledger"):
        raise
    msg = f"chatledger.langgraph needs {error.name}: pip install 'chatledger[langgraph]'"
    raise ConfigurationError(msg) from error

from chatledger.infra.agents.thread_info import ThreadInfo

__all__ = [
    "LedgerSaver",
    "Migration",
    "ThreadInfo",
    "ThreadState",
    "ThreadTask",
    "config_of_answer",
    "record_answer",
]
