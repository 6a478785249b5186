"""The reducers and the schema in a real LangGraph graph."""

from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest

from chatledger.domain.graph.reducers import append_messages, reduce_state
from chatledger.domain.graph.schema import AgentState, initial_state

langgraph: Any = pytest.importorskip("langgraph.graph", reason="LangGraph is not installed")

DOCUMENTS: list[dict[str, Any]] = [
    {"id": "1", "title": "a", "body": "a", "metadata": {}},
    {"id": "2", "title": "b", "body": "b", "metadata": {}},
    {"id": "1", "title": "A", "body": "A", "metadata": {}},
]


def returning(update: dict[str, Any]) -> Callable[[Any], Any]:
    """A node that returns this update."""

    def node(_: Any) -> Any:
        return update

    return node


def run(schema: type, nodes: dict[str, Any], state: Any) -> Any:
    """The state after these nodes, one after the other."""
    graph = langgraph.StateGraph(schema)
    for name, node in nodes.items():
        graph.add_node(name, node if callable(node) else returning(node))
    for first, second in zip([langgraph.START, *nodes], [*nodes, langgraph.END], strict=True):
        graph.add_edge(first, second)
    return graph.compile().invoke(state)


def test_langgraph_reduces_as_we_do() -> None:
    """`AgentState` as the schema of a graph gives the state that `reduce_state` gives, the first batch of documents included."""
    nodes: dict[str, Any] = {
        "search": {"docs": DOCUMENTS, "metadata": {"node_timings": {"search": 1.0}, "errors": [{"node": "search"}]}},
        "tools": {"tasks": {"tool_to_run": "web"}, "metadata": {"node_timings": {"tools": 2.0}}},
        "answer": {"docs": DOCUMENTS[:1], "tasks": {"needs_widening": False}, "generated_text": "Because."},
    }
    state = initial_state("ada", "Why?", now=1)
    ours: Any = state
    for update in nodes.values():
        ours = reduce_state(ours, update)

    assert ours == run(AgentState, nodes, state)
    assert ["1", "2"] == [doc["id"] for doc in ours["docs"]]


def test_nodes_of_langgraph_may_return_the_whole_state() -> None:
    """Three nodes that return the state as they got it list an error once; LangGraph adds empty values (acceptance GS 2)."""
    state: Any = initial_state("ada", "Why?", now=1)
    state["metadata"]["errors"] = [{"node": "start", "message": "late", "timestamp": 1}]

    def node(state: Any) -> Any:
        return {**state, "metadata": {**state["metadata"], "errors": [*state["metadata"]["errors"]]}}

    assert {**state, "docs": [], "tasks": {}} == run(AgentState, dict.fromkeys("abc", node), state)


def test_messages_are_appended_in_langgraph() -> None:
    """`append_messages` is a reducer of LangGraph (NS-31)."""

    class Talk(TypedDict):
        messages: Annotated[list[Any], append_messages]

    nodes = {
        "ask": {"messages": [{"id": "1", "content": "Why?"}]},
        "answer": {"messages": [{"id": "2", "content": "So."}, {"id": "1", "content": "Why so?"}]},
    }
    assert {"messages": [{"id": "1", "content": "Why so?"}, {"id": "2", "content": "So."}]} == run(
        Talk, nodes, {"messages": []}
    )
