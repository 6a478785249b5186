"""Agents for the pages of the explorer: a thread that waits, with a fork; runs to be repeated; a state of a graph."""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.support.run_graphs import build

import chatledger
from chatledger import assistant, user
from chatledger.graph_state import StateStore
from chatledger.langgraph import LedgerSaver

THREAD = "ada-agents"
STATE = "chat:ada:plan"
HIDDEN = "a secret of ada"


def fill_agents(ledger: chatledger.Ledger, text: str = "hello", *, owner: str = "ada") -> None:
    """Let an agent of a user work on a thread: two questions, the second of which waits; and a fork at the first answer."""
    if ledger.get_chat(THREAD) is not None:  # the server of browser tests is that of several modules
        return
    logging.getLogger("langgraph").setLevel(logging.ERROR)
    own = ledger.for_user(owner)
    own.create_chat(THREAD, owner, title=text)
    own.append(THREAD, [user(text, id="ag1"), assistant("Riga", id="ag2"), assistant(HIDDEN, id="ag3")])
    graph: Any = build().compile(checkpointer=LedgerSaver(own))
    config: dict[str, Any] = {"configurable": {"thread_id": THREAD}}
    _invoke(graph, {"messages": [("user", text)]}, config)
    first = graph.get_state(config).config
    _invoke(graph, {"messages": [("user", "other " + text)]}, first)
    _invoke(graph, {"messages": [("user", "ask " + text)]}, first)
    graph.get_state(config)  # writes of tasks that nobody waited for are stored before a thread is read
    own.record_run(THREAD, "run-1", thread_id=THREAD, assistant_id=text, trigger_message_id="ag1", message_id="ag2")
    own.record_run(THREAD, "run-2", thread_id=THREAD, assistant_id="critic", trigger_message_id="ag2", message_id="ag3")
    states = StateStore(own, ttl_seconds=3600)
    states.put(STATE, {"title": text, "docs": []}, node="plan")
    states.put(STATE, {"title": text, "docs": [{"id": 1}], "secret": HIDDEN}, node="search")


def begin_again(ledger: chatledger.Ledger) -> str:
    """Edit the first question, and begin to repeat the runs, of which none is approved yet; return the regeneration's id."""
    own = ledger.for_user("ada")
    made = own.add_messages(THREAD, [chatledger.NewMessage("user", "hello again", parent_id=None)])
    own.fork(THREAD, made[0].id)
    plan = own.plan_regeneration(THREAD, "ag1", 0)
    return own.begin_regeneration(plan, new_message_id=made[0].id, regeneration_id="again").id


def _invoke(graph: Any, given: Any, config: Any) -> None:
    # In a thread of its own: where a browser is driven, a loop runs in this one.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: asyncio.run(graph.ainvoke(given, config))).result()
