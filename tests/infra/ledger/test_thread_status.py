"""How threads of agents stand: as LangGraph leaves them, by whatever order of events, and as lists and counts say."""

import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send, interrupt
from tests.support.agent_threads import put
from tests.support.trace_graphs import Report, config_of, report_graph

import chatledger
from chatledger import Ledger
from chatledger.domain.versioned.content import leaf_tree
from chatledger.domain.versioned.pruning import Removal
from chatledger.domain.versioned.standing import ThreadStatus
from chatledger.infra.ledger.threads import Threads
from chatledger.langgraph import LedgerSaver

NULL = "00000000-0000-0000-0000-000000000000"


@pytest.fixture
def ledger() -> Any:
    """A ledger in memory."""
    with chatledger.open("memory:") as ledger:
        yield ledger


PAUSES_S = {"papers": 0.03, "web": 0.02, "notes": 0.01}


def graph_of(ledger: Ledger, last: Any) -> Any:
    """Return a graph of three nodes side by side, and then the last one."""
    return report_graph(ledger, last, pauses_s=PAUSES_S)


def planned(removal: Removal, _thread: object) -> Removal:
    return removal


def status(ledger: Ledger, thread_id: str) -> ThreadStatus:
    """How a thread stands; what lists and counts say of all is checked too."""
    infos = {info.thread_id: info for info in ledger.list_threads(limit=100).threads}
    counts = Counter(info.status.status for info in infos.values())
    assert counts == {name: count for name, count in ledger.count_threads().items() if count}
    for name in counts:
        listed = [info.thread_id for info in ledger.list_threads(status=name, limit=100).threads]
        assert listed == [info.thread_id for info in infos.values() if info.status.status == name]
    return infos[thread_id].status


def test_a_question_waits_until_it_is_answered(ledger: Ledger) -> None:
    """It says what it asks and since when; answered, the thread is finished, and its last message is shown."""

    def review(_state: Report) -> dict[str, Any]:
        answer = interrupt({"title": "Heat pumps", "question": "Publish this report?"})
        return {"messages": [("ai", f"So I {answer} it.")]}

    graph = graph_of(ledger, review)
    began = time.time() * 1000
    graph.invoke({"messages": [("user", "Write a report.")]}, config_of("t"))

    asked = status(ledger, "t")
    assert (asked.status, asked.node, asked.words, asked.steps) == ("waits", "review", "Publish this report?", 5)
    assert began <= asked.since <= time.time() * 1000
    assert 60 <= asked.work_ms

    time.sleep(0.3)
    graph.invoke(Command(resume="publish"), config_of("t"))
    done = status(ledger, "t")
    assert (done.status, done.node, done.words, done.steps) == ("finished", "", "So I publish it.", 6)
    assert done.work_ms < asked.work_ms + 250, "waiting for an answer is no work"


def test_a_node_that_asks_twice_waits_twice(ledger: Ledger) -> None:
    """The answer to its first question does not answer the second, which stands in its place."""

    def review(_state: Report) -> dict[str, Any]:
        return {"sources": [interrupt("First?"), interrupt("Second?")]}

    graph = graph_of(ledger, review)
    for given_, expected in (({"messages": []}, "First?"), (Command(resume="a"), "Second?")):
        graph.invoke(given_, config_of("t"))
        assert (status(ledger, "t").status, status(ledger, "t").words) == ("waits", expected)
    graph.invoke(Command(resume="b"), config_of("t"))
    assert status(ledger, "t").status == "finished"


def test_a_failed_task_and_its_retry(ledger: Ledger) -> None:
    """The first line of its error is shown, by name; once it goes on, the thread has not failed."""
    fails = [True]

    def review(_state: Report) -> dict[str, Any]:
        if fails.pop():
            msg = "429, try again\nin 20 s"
            raise ValueError(msg)
        return {}

    graph = graph_of(ledger, review)
    with pytest.raises(ValueError, match="429"):
        graph.invoke({"messages": [("user", "hi")]}, config_of("t"))
    failed = status(ledger, "t")
    assert (failed.status, failed.node, failed.words) == ("failed", "review", "ValueError: 429, try again")
    fails.append(False)
    graph.invoke(None, config_of("t"))
    assert status(ledger, "t").status == "finished"


def test_what_is_left_to_run(ledger: Ledger) -> None:
    """A breakpoint, and a join that stays in the state after its use; the names of packets' nodes are those that they go to."""
    graph = graph_of(ledger, lambda _state: {"sources": ["end"]})
    graph.invoke({"messages": []}, config_of("t"), interrupt_before=["review"])
    assert (status(ledger, "t").status, status(ledger, "t").node) == ("stopped", "review")
    graph.invoke(None, config_of("t"))
    assert status(ledger, "t").status == "finished"

    builder = StateGraph(Report)
    builder.add_node("plan", lambda _state: {})
    builder.add_node("send", lambda state: {"sources": [interrupt(state["question"])]})
    builder.add_conditional_edges("plan", lambda _state: [Send("send", {"question": "Which?"})])
    builder.add_edge(START, "plan")
    builder.compile(checkpointer=LedgerSaver(ledger)).invoke({"messages": []}, config_of("s"))
    sent = status(ledger, "s")
    assert (sent.status, sent.node, sent.words) == ("waits", "send", "Which?")


def test_a_question_of_a_subgraph(ledger: Ledger) -> None:
    """It is the question of the node that runs the subgraph, whose tasks' work is not counted twice."""
    inner = StateGraph(Report)

    def ask(_state: Report) -> dict[str, Any]:
        time.sleep(1)
        return {"sources": [interrupt("Inner?")]}

    inner.add_node("ask", ask)  # type: ignore[arg-type]
    inner.add_edge(START, "ask")
    graph = graph_of(ledger, inner.compile())
    graph.invoke({"messages": []}, config_of("t"))
    asked = status(ledger, "t")
    assert (asked.status, asked.node, asked.words) == ("waits", "review", "Inner?")
    assert 1000 <= asked.work_ms < 2000  # twice would be more than that, however busy the machine is


def test_runs_of_chats_on_it(ledger: Ledger) -> None:
    """A thread runs while a run is open, be that recorded before it begins; a stranger's runs say nothing about it."""
    ada, eve = ledger.for_user("ada"), ledger.for_user("eve")
    ada.create_chat("chat", "ada")
    ada.record_run("chat", "early", thread_id="t", assistant_id="a")
    put(Threads(ada), "t", "1", {"messages": "x"})
    assert status(ledger, "t").status == "running"
    ada.complete_run("chat", "early")
    assert status(ledger, "t").status == "finished"

    eve.create_chat("hers", "eve")
    eve.record_run("hers", "r", thread_id="t", assistant_id="a")
    assert status(ledger, "t").status == "finished"

    ada.record_run("chat", "late", thread_id="t", assistant_id="a")
    assert status(ledger, "t").status == "running"
    ada.delete_chat("chat")
    assert status(ledger, "t").status == "finished"
    ledger.verify()


def test_counts_of_a_user(ledger: Ledger) -> None:
    """Each user's own, those of chats that they joined, those whose chat alone names the owner; and none that has expired."""
    ada, bob = ledger.for_user("ada"), ledger.for_user("bob")
    put(Threads(ada), "own", "1", {"a": "b"})
    put(Threads(ada), "gone", "1", {"a": "b"}, ttl_ms=1)
    put(Threads(ledger), "talk", "1", {"branch:to:x": "b"})
    put(Threads(ledger), "nobody", "1", {"a": "b"})
    ledger.create_chat("talk", "ada")
    ada.create_chat("own", "ada", members={"bob": "reader"})
    time.sleep(0.01)

    def count(some: Ledger, **query: Any) -> dict[str, int]:
        return {name: number for name, number in some.count_threads(**query).items() if number}

    assert count(ledger) == {"stopped": 1, "finished": 2}
    assert count(ada) == count(ledger, user_id="ada") == {"stopped": 1, "finished": 1}
    assert count(bob) == {"finished": 1}
    assert [info.thread_id for info in bob.list_threads(status="finished").threads] == ["own"]
    assert bob.list_threads(status="stopped").threads == []


WRITES = st.tuples(
    st.sampled_from(("__interrupt__", "__error__", "__resume__", "a")),
    st.sampled_from(("t1", "t2", NULL)),
    st.integers(0, 5),
)
INDEXES = {"__interrupt__": -3, "__error__": -1, "__resume__": -4, "a": 0}


@pytest.mark.guard
@given(st.data())
@settings(max_examples=60, deadline=None)
def test_the_same_from_the_log(data: st.DataObject) -> None:
    """Whatever comes in whatever order, and is removed, copied and deleted: an index made anew says the same, to the byte."""
    with chatledger.open("memory:") as ledger:
        threads = Threads(ledger)
        for _ in range(data.draw(st.integers(1, 25))):
            thread_id, line = data.draw(st.sampled_from("pq")), data.draw(st.sampled_from(("", "assistant:a", "sub:1")))
            version_id = str(data.draw(st.integers(1, 4)))
            match data.draw(st.sampled_from(("put", "write", "write", "write", "prune", "drop", "delete", "copy"))):
                case "put":
                    if threads.peek(thread_id, line, version_id) is None:
                        channel = data.draw(st.sampled_from(("a", "branch:to:n")))
                        put(threads, thread_id, version_id, {channel: version_id}, namespace=line)
                case "write":
                    channel, task, at = data.draw(WRITES)
                    write = (INDEXES[channel], channel, leaf_tree("text", b"x"))
                    path = "" if task == NULL else f"~__pregel_pull, {task}"
                    threads.put_writes(
                        thread_id, line, version_id, task_id=task, task_path=path, writes=[write], written_at=at
                    )
                case "prune":
                    removal = Removal([(line, version_id)], [])
                    threads.remove(thread_id, partial(planned, removal), reason="pruned")
                case "drop":
                    threads.delete(thread_id, within=line)
                case "delete":
                    threads.delete(thread_id)
                case _:
                    source, target = (thread_id, "pq".replace(thread_id, ""))
                    threads.delete(target)
                    if source in threads.thread_ids():
                        threads.copy(source, target)
        for thread_id in threads.thread_ids():
            status(ledger, thread_id)
        before = ledger.list_threads()
        ledger.verify()
        ledger.rebuild()
        assert ledger.list_threads() == before
        assert all(info.status.work_ms >= 0 for info in before.threads)


def test_an_error_that_comes_before_its_checkpoint(ledger: Ledger) -> None:
    """LangGraph stores checkpoints in the background."""
    threads = Threads(ledger)
    put(threads, "t", "1", {"branch:to:n": "x"})
    error = (-1, "__error__", leaf_tree("msgpack", b"\xa6Boom()"))
    threads.put_writes("t", "", "2", task_id="k", task_path="~__pregel_pull, n", writes=[error])
    assert status(ledger, "t").status == "stopped"
    put(threads, "t", "2", {"branch:to:n": "y"}, parent_id="1")
    assert (status(ledger, "t").status, status(ledger, "t").words) == ("failed", "Boom")


def test_no_word_is_left_of_an_erased_thread(tmp_path: Path) -> None:
    """Neither in its row nor in a count."""
    with chatledger.open(str(tmp_path / "ledger")) as ledger:
        graph = graph_of(ledger, lambda _state: {"sources": [interrupt("a secret question")]})
        graph.invoke({"messages": [("user", "hi")]}, config_of("t"))
        Threads(ledger).delete("t")
        assert ledger.list_threads().threads == []
        assert set(ledger.count_threads().values()) == {0}
        ledger.verify()
