"""Events of agents' threads in words, of what LangGraph's own library writes."""

from typing import Any

import pytest
from langgraph.types import Command
from tests.support.agent_threads import put
from tests.support.trace_graphs import begin, config_of, fails, report_graph

import chatledger
from chatledger import Ledger
from chatledger.domain.draw.event_words import describe_event
from chatledger.domain.versioned.content import leaf_tree
from chatledger.infra.ledger.threads import Threads

PAUSES_S = {"papers": 0.06, "web": 0.04, "notes": 0.02}


@pytest.fixture
def ledger() -> Any:
    """A ledger in memory."""
    with chatledger.open("memory:") as ledger:
        yield ledger


def words(ledger: Ledger, **options: Any) -> list[str]:
    """Return what happened, event by event."""
    return [describe_event(recorded, **options) for recorded in ledger.history()]


def test_steps_of_a_run(ledger: Ledger) -> None:
    """Each step has its nodes, what is next and what changed; what waits and fails is quoted, unless nothing may be."""
    graph = report_graph(ledger, pauses_s=PAUSES_S)
    begin(graph, "t")
    told = words(ledger)

    assert told[0] == "input: Write about heat pumps."
    assert {
        "step 0 start, next plan: messages changed",
        "step 2 notes, papers, web, next write: sources changed",
        "step 3 write, next review: draft, messages, options changed",
        "review waits: Publish this report?",
    } <= set(told)
    graph.invoke(Command(resume="publish"), config_of("t"))
    assert {"answered", "step 4 review, finished: messages changed"} <= set(words(ledger))
    begin(graph, "t", "Again")
    assert words(ledger).count("review waits: Publish this report?") == 2
    assert "step 8 notes, papers, web, next write: sources changed" in words(ledger), (
        "its join is as it was once before"
    )

    begin(report_graph(ledger, fails, pauses_s=PAUSES_S), "f")
    assert "review failed: ValueError: 429, try again" in words(ledger)
    hidden = " ".join(words(ledger, quotes_messages=False))
    assert "review waits;" not in hidden
    assert not [text for text in ("Publish", "heat pumps", "429") if text in hidden]


def test_an_update(ledger: Ledger) -> None:
    """It says that nobody's node made the step."""
    graph = report_graph(ledger, pauses_s=PAUSES_S)
    begin(graph, "t")
    graph.update_state(config_of("t"), {"draft": "by hand"})
    assert words(ledger)[-1].startswith("step 4 by an update")


def test_checkpoints_of_no_framework(ledger: Ledger) -> None:
    """What cannot be read is told by the names of its values, and writes by nodes; ids of tasks are cut, and those of subgraphs left out."""
    threads = Threads(ledger)
    put(threads, "t", "1", {"a": "b"})
    write = (0, "a", leaf_tree("text", b"x"))
    threads.put_writes("t", "sub:1f-2", "1", task_id="8c1f2d3a", task_path="~__pregel_pull, look", writes=[write])
    threads.put_writes("t", "", "1", task_id="8c1f2d3a", task_path="", writes=[write])
    assert words(ledger) == ["checkpoint: a changed", "look done: a in sub", "8c1f2d done: a"]
