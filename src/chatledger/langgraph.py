"""LangGraph's checkpoints and its store of items on a ledger. Needs `pip install 'chatledger[langgraph]'`."""

from chatledger.domain import extras as _extras

with _extras.needing("langgraph", __name__):
    from chatledger.infra.entrypoints.langgraph.answers import config_of_answer, config_of_message, record_answer
    from chatledger.infra.entrypoints.langgraph.observing import observe
    from chatledger.infra.entrypoints.langgraph.pruning import Migration
    from chatledger.infra.entrypoints.langgraph.saver import LedgerSaver
    from chatledger.infra.entrypoints.langgraph.searching import ThreadHit
    from chatledger.infra.entrypoints.langgraph.store import EarlierBaseStore, LedgerBaseStore
    from chatledger.infra.entrypoints.langgraph.threads import ThreadState, ThreadTask

from chatledger.infra.ledger.threads import ThreadInfo

__all__ = [
    "EarlierBaseStore",
    "LedgerBaseStore",
    "LedgerSaver",
    "Migration",
    "ThreadHit",
    "ThreadInfo",
    "ThreadState",
    "ThreadTask",
    "config_of_answer",
    "config_of_message",
    "observe",
    "record_answer",
]
