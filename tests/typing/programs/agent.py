"""An agent of LangGraph whose checkpoints and memory are on a ledger."""

# LangGraph's own methods have parameters of unknown types.
# pyright: reportUnknownMemberType=false

import operator
from typing import Annotated, TypedDict, assert_type

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.graph import END, START, StateGraph
from langgraph.store.base import Item

import chatledger
from chatledger.langgraph import LedgerBaseStore, LedgerSaver


class State(TypedDict):
    log: Annotated[list[str], operator.add]


def ask(state: State) -> State:
    return {"log": [f"heard {state['log'][-1]}"]}


with chatledger.open("memory:") as ledger:
    saver = LedgerSaver(ledger)
    store = LedgerBaseStore(ledger)
    builder = StateGraph(State)
    builder.add_node("ask", ask)
    builder.add_edge(START, "ask")
    builder.add_edge("ask", END)
    graph = builder.compile(checkpointer=saver, store=store)
    config: RunnableConfig = {"configurable": {"thread_id": "trip"}}
    print(graph.invoke({"log": ["start"]}, config))
    assert_type(saver.get_tuple(config), CheckpointTuple | None)
    for checkpoint in saver.list(config, limit=3):
        assert_type(checkpoint, CheckpointTuple)
    store.put(("ada",), "city", {"name": "Riga"})
    assert_type(store.get(("ada",), "city"), Item | None)
