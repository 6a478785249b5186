"""Graphs of LangGraph whose threads the explorer shows as traces: nodes side by side, a question, a failure, forks."""

import operator
import time
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import interrupt

from chatledger import Ledger
from chatledger.langgraph import LedgerSaver

QUESTION = {"question": "Publish this report?", "title": "Heat pumps, plainly", "options": ["publish", "revise"]}
PAUSES_S = {"papers": 0.3, "web": 0.2, "notes": 0.1}
"""The nodes that run side by side, and how long each sleeps."""

SLEPT_MS: dict[str, float] = {}
"""How long each slept last: on a machine that is busy longer than it was told."""


class Report(TypedDict, total=False):
    """State that the nodes share."""

    messages: Annotated[list[Any], add_messages]
    sources: Annotated[list[str], operator.add]
    draft: str | None
    options: dict[str, Any]


def config_of(thread_id: str) -> Any:
    """Return the config of a thread."""
    return {"configurable": {"thread_id": thread_id}}


def review(_state: Report) -> dict[str, Any]:
    """Ask whether the report is published."""
    answer = interrupt(QUESTION)
    return {"messages": [("ai", f"The report: {answer}.")]}


def fails(_state: Report) -> dict[str, Any]:
    """Fail as a model does that is asked too often."""
    msg = "429, try again\nin 20 s"
    raise ValueError(msg)


def report_graph(
    ledger: Ledger, last: Callable[[Report], dict[str, Any]] = review, *, pauses_s: dict[str, float] | None = None
) -> Any:
    """Return a graph that plans, looks in three places at once, writes, and ends with `last`, which is called `review`."""
    builder = StateGraph(Report)
    builder.add_node("plan", lambda _state: {"draft": None, "options": {"depth": 1, "tone": "plain"}})
    for name, pause_s in (pauses_s or PAUSES_S).items():

        def look(_state: Report, name: str = name, pause_s: float = pause_s) -> dict[str, Any]:
            began = time.monotonic()
            time.sleep(pause_s)
            SLEPT_MS[name] = (time.monotonic() - began) * 1000
            return {"sources": [name]}

        builder.add_node(name, look)  # type: ignore[arg-type]
        builder.add_edge("plan", name)
    builder.add_node(
        "write",
        lambda _state: {
            "draft": "Heat pumps move heat.",
            "options": {"depth": 2, "tone": "plain"},
            "messages": [("ai", "The draft is ready.")],
        },
    )
    builder.add_node("review", last)  # type: ignore[arg-type]
    builder.add_edge(list(pauses_s or PAUSES_S), "write")
    builder.add_edge("write", "review")
    builder.add_edge(START, "plan")
    builder.add_edge("review", END)
    return builder.compile(checkpointer=LedgerSaver(ledger))


def begin(graph: Any, thread_id: str, text: str = "Write about heat pumps.") -> None:
    """Run a graph on a thread, as far as it comes."""
    try:
        graph.invoke({"messages": [("user", text)]}, config_of(thread_id))
    except ValueError:
        return
