"""LangGraph's checkpoints and its store of items on a ledger. Needs `pip install 'chatledger[langgraph]'`."""

from chatledger.domain import extras as _extras

with _extras.needing("langgraph", __name__):
    from chatledger.domain.versioned.pruning import Migration
    from chatledger.infra.entrypoints.langgraph.answers import config_of_answer, config_of_message, record_answer
    from chatledger.infra.entrypoints.langgraph.observing import observe
    from chatledger.infra.entrypoints.langgraph.saver import LedgerSaver
    from chatledger.infra.entrypoints.langgraph.store import EarlierBaseStore, LedgerBaseStore
    from chatledger.infra.entrypoints.langgraph.threads import ThreadState, ThreadTask

from chatledger.domain.versioned.standing import ThreadStatus
from chatledger.infra.ledger.thread_lists import ThreadInfo, ThreadPart

__all__ = [
    "EarlierBaseStore",
    "LedgerBaseStore",
    "LedgerSaver",
    "Migration",
    "ThreadInfo",
    "ThreadPart",
    "ThreadState",
    "ThreadStatus",
    "ThreadTask",
    "config_of_answer",
    "config_of_message",
    "observe",
    "record_answer",
]
