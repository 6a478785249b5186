"""A loop of nodes without a framework, which keeps the versions of its state."""

from collections.abc import Callable, Mapping
from typing import Any, assert_type

import chatledger
from chatledger.graph_state import AgentState, StateStore, initial_state, state_id, transition

Node = Callable[[Mapping[str, Any]], Mapping[str, Any]]


def search(state: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"docs": [{"id": "d1", "body": f"On the Daugava, {state['user_id']}."}]}


def answer(state: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"generated_text": state["docs"][0]["body"]}


nodes: list[Node] = [search, answer]
with chatledger.open("memory:") as ledger:
    states = StateStore(ledger)
    trip = state_id("ada", "trip")
    start = initial_state("ada", "Where is Riga?", trace_id="trace-1")
    assert_type(start, AgentState)
    version = states.put(trip, start)
    assert_type(version, int)
    for node in nodes:
        state = states.get(trip)
        assert state is not None
        change = transition(state, node(state), node.__name__, is_end=node is answer)
        version = states.put(trip, change.new, expected_version=version)
        print(version, change.diff)
