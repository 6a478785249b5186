"""States over LangGraph's API: what a graph gives in process, its clients get from the server."""

import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from langgraph.types import StateSnapshot
from langgraph_sdk.errors import UnprocessableEntityError
from tests.support.http_world import serving
from tests.support.langgraph_client import Client, echo, sdk
from tests.support.langgraph_programs import (
    asking,
    fan_out,
    nested,
    react,
    run_fan_out,
    run_interrupts,
    run_loop,
    run_nested,
    run_stateful,
    run_time_travel,
    run_update,
)

import chatledger
from chatledger import AsyncLedger
from chatledger.langgraph import LedgerSaver
from chatledger.server import create_app

GRAPHS: dict[str, Callable[..., Any]] = {
    "react": react,
    "asking": asking,
    "nested": nested,
    "stateful": partial(nested, is_stateful=True),
    "fan_out": fan_out,
}
PROGRAMS: list[tuple[str, Callable[[Any, Any], Any]]] = [
    ("react", run_loop),
    ("react", run_time_travel),
    ("asking", run_interrupts),
    ("nested", run_nested),
    ("stateful", run_stateful),
    ("fan_out", run_fan_out),
    ("fan_out", run_update),
]


@pytest.fixture(scope="module")
def ledger() -> AsyncLedger:
    return chatledger.open_async("memory:")


@pytest.fixture(scope="module")
def client(ledger: AsyncLedger) -> Iterator[Client]:
    graphs = {name: make(None) for name, make in GRAPHS.items() if name != "react"}

    def make_react(config: Any) -> Any:
        assert config["configurable"]["graph_id"] == "react"
        return react(None)

    graphs |= {"react": make_react, "echo": echo()}
    with serving(create_app(ledger, graphs=graphs)) as url, sdk(url) as client:
        yield client
    ledger.blocking().close()


def saver_of(ledger: AsyncLedger, assistant_id: str) -> LedgerSaver:
    return LedgerSaver(ledger.blocking()).for_assistant(assistant_id)


def plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=lambda one: one.model_dump()))


def seen(snapshot: StateSnapshot) -> dict[str, Any]:
    """A snapshot in process, in the words of the API."""
    checkpoint = {"checkpoint_ns": "", **snapshot.config.get("configurable", {})}
    parent = None if snapshot.parent_config is None else snapshot.parent_config.get("configurable")
    tasks: Any = snapshot.tasks
    return {
        "values": plain(snapshot.values),
        "next": list(snapshot.next),
        "metadata": plain(snapshot.metadata),
        "created_at": snapshot.created_at,
        "checkpoint": checkpoint,
        "parent_checkpoint": parent,
        "interrupts": [{"id": one.id, "value": one.value} for one in snapshot.interrupts],
        "tasks": [
            (one.id, one.name, plain(one.path), one.error, [each.value for each in one.interrupts], plain(one.result))
            for one in tasks
        ],
    }


def sent(state: dict[str, Any]) -> dict[str, Any]:
    """The same of an answer."""
    names = ("values", "next", "metadata", "created_at", "checkpoint", "parent_checkpoint", "interrupts")
    tasks = [
        (
            one["id"],
            one["name"],
            one["path"],
            one["error"],
            [each["value"] for each in one["interrupts"]],
            one["result"],
        )
        for one in state["tasks"]
    ]
    return {name: state[name] for name in names} | {"tasks": tasks}


@pytest.mark.guard
@pytest.mark.parametrize(("name", "program"), PROGRAMS)
def test_states_and_histories_are_those_in_process(
    client: Client, ledger: AsyncLedger, name: str, program: Callable[[Any, Any], Any]
) -> None:
    thread_id, saver = program.__name__, saver_of(ledger, name)
    config: Any = {"configurable": {"thread_id": thread_id}}
    program(saver, config)
    graph = GRAPHS[name](saver)
    assert sent(client.threads.get_state(thread_id)) == seen(graph.get_state(config))
    history = client.threads.get_history(thread_id, limit=1000)
    assert len(history) > 3
    assert [sent(one) for one in history] == [seen(one) for one in graph.get_state_history(config)]
    assert {one["checkpoint_ns"] for one in history} == {f"assistant:{name}"}
    for state in history[::3]:
        past: Any = {"configurable": {"thread_id": thread_id, "checkpoint_id": state["checkpoint_id"]}}
        found = client.threads.get_state(thread_id, checkpoint=state["checkpoint"])
        assert sent(found) == seen(graph.get_state(past))


def test_updates_do_what_they_do_in_process(client: Client, ledger: AsyncLedger) -> None:
    graph = echo().compile(checkpointer=saver_of(ledger, "echo"))
    config: Any = {"configurable": {"thread_id": "updated in process"}}
    client.threads.create(thread_id="updated by a client", graph_id="echo")

    def update(values: Any, node: str | None = None, after: int | None = None) -> None:
        """Update both; after that state of the history if given, which begins a branch."""
        past = None if after is None else client.threads.get_history("updated by a client")[after]["checkpoint"]
        client.threads.update_state("updated by a client", values, as_node=node, checkpoint=past)
        at = config if after is None else list(graph.get_state_history(config))[after].config
        graph.update_state(at, values, as_node=node)

    update({"messages": [{"role": "user", "content": "hi", "id": "h1"}]}, "__start__")
    update({"n": 1}, "work")
    update({"messages": [{"role": "assistant", "content": "ho", "id": "a1"}]}, "work", after=1)
    update(None, "__end__")

    def comparable(state: dict[str, Any], ids: list[str]) -> Any:
        parent = state["parent_checkpoint"]
        metadata = {key: state["metadata"][key] for key in ("source", "step", "parents")}
        names = [task[1] for task in state["tasks"]]
        place = None if parent is None else ids.index(parent["checkpoint_id"])
        return state["values"], state["next"], metadata, names, place

    ours = [sent(one) for one in client.threads.get_history("updated by a client")]
    theirs = [seen(one) for one in graph.get_state_history(config)]
    assert [comparable(one, [each["checkpoint"]["checkpoint_id"] for each in ours]) for one in ours] == [
        comparable(one, [each["checkpoint"]["checkpoint_id"] for each in theirs]) for one in theirs
    ]
    assert [one["parent_checkpoint"] and one["parent_checkpoint"]["checkpoint_id"] for one in ours].count(
        ours[-1]["checkpoint"]["checkpoint_id"]
    ) == 2, "two branches begin at the first state"


def test_a_subgraph_has_states_of_its_own(client: Client, ledger: AsyncLedger) -> None:
    saver = saver_of(ledger, "nested")
    graph = nested(saver)
    config: Any = {"configurable": {"thread_id": "with a subgraph"}}
    graph.invoke({"log": ["start"]}, config)
    [deep] = client.threads.get_state("with a subgraph", subgraphs=True)["tasks"]
    inner = graph.get_state(config, subgraphs=True).tasks[0].state
    assert deep["state"]["values"] == inner.values
    assert deep["state"]["next"] == ["ask"]
    assert deep["state"]["checkpoint_ns"] == f"assistant:nested|{deep['state']['checkpoint']['checkpoint_ns']}"
    [task] = client.threads.get_state("with a subgraph")["tasks"]
    assert task["state"] is None
    place = task["checkpoint"]
    assert place["checkpoint_ns"].startswith("inner:")
    for namespace in (place["checkpoint_ns"], f"assistant:nested|{place['checkpoint_ns']}"):
        found = client.threads.get_state("with a subgraph", checkpoint={**place, "checkpoint_ns": namespace})
        assert found["values"] == inner.values
        listed = client.threads.get_history("with a subgraph", checkpoint={**place, "checkpoint_ns": namespace})
        assert [one["next"] for one in listed] == [["ask"], ["prepare"], ["__start__"]]
    written = client.threads.update_state("with a subgraph", {"log": ["by hand"]}, checkpoint=place, as_node="prepare")
    assert written["checkpoint"]["checkpoint_ns"] == place["checkpoint_ns"]
    assert "by hand" in graph.get_state(config, subgraphs=True).tasks[0].state.values["log"]


def test_a_history_is_filtered(client: Client, ledger: AsyncLedger) -> None:
    run_update(saver_of(ledger, "fan_out"), {"configurable": {"thread_id": "filtered"}})
    everything = client.threads.get_history("filtered", limit=100)
    updates = client.threads.get_history("filtered", limit=100, metadata={"source": "update"})
    assert updates == [one for one in everything if one["metadata"]["source"] == "update"]
    assert len(updates) > 1
    before = client.threads.get_history("filtered", before=everything[3]["checkpoint_id"], limit=2)
    assert before == everything[4:6]
    config = {"configurable": everything[3]["checkpoint"]}
    assert client.threads.get_history("filtered", before=config, limit=2) == everything[4:6]
    assert client.threads.get_history("filtered", select=["next", "checkpoint"], limit=1) == [
        {"next": everything[0]["next"], "checkpoint": everything[0]["checkpoint"]}
    ]
    assert list(client.threads.get_state("filtered", select=["values", "next"])) == ["values", "next"]


@pytest.mark.parametrize("name", ["asking", "react"])
def test_without_its_graph_a_state_is_read_from_the_checkpoint(name: str) -> None:
    ledger = chatledger.open_async("memory:")
    with serving(create_app(ledger)) as url, sdk(url) as client:
        program = {"asking": run_interrupts, "react": run_loop}[name]
        saver = saver_of(ledger, name)
        config: Any = {"configurable": {"thread_id": "t"}}
        program(saver, config)
        history = client.threads.get_history("t", limit=100)
        expected = [seen(one) for one in GRAPHS[name](saver).get_state_history(config)]
        alike = ("next", "metadata", "checkpoint", "parent_checkpoint")
        for ours, theirs in zip(history, expected, strict=True):
            assert {key: ours[key] for key in alike} == {key: theirs[key] for key in alike}
            # What a channel begins with, an empty list, the graph knows.
            assert ours["values"] == {key: value for key, value in theirs["values"].items() if value}
            since = datetime.fromisoformat(ours["created_at"]) - datetime.fromisoformat(theirs["created_at"])
            assert abs(since) < timedelta(milliseconds=1)
        assert client.threads.get_history("t", metadata={"step": 1}) == history[-3:-2]
        [thread] = client.threads.search(metadata={"assistant_id": name})
        assert thread["values"] == history[0]["values"]
        with pytest.raises(UnprocessableEntityError, match="no graph"):
            client.threads.update_state("t", {"log": []})
        ledger.blocking().close()


def test_assistants_on_one_thread_have_states_of_their_own(client: Client, ledger: AsyncLedger) -> None:
    config: Any = {"configurable": {"thread_id": "shared"}}
    client.assistants.create("echo", assistant_id="second", if_exists="do_nothing")
    for name, said in (("echo", "one"), ("second", "two")):
        graph = echo().compile(checkpointer=saver_of(ledger, name))
        graph.invoke({"messages": [{"role": "user", "content": said}]}, config)
    with pytest.raises(UnprocessableEntityError, match="'assistant:echo', 'assistant:second'"):
        client.threads.get_state("shared")
    assert client.threads.get("shared")["values"] is None

    def said_in(state: dict[str, Any]) -> str:
        text: str = state["values"]["messages"][0]["content"]
        return text

    for name, said in (("echo", "one"), ("second", "two")):
        by_namespace = client.threads.get_state("shared", checkpoint={"checkpoint_ns": f"assistant:{name}"})
        assert (said_in(by_namespace), by_namespace["checkpoint_ns"]) == (said, f"assistant:{name}")
        assert client.threads.get_state("shared", params={"assistant_id": name}) == by_namespace
        assert client.threads.get_state("shared", params={"checkpoint_ns": f"assistant:{name}"}) == by_namespace
        history = client.threads.get_history("shared", checkpoint={"checkpoint_ns": f"assistant:{name}"})
        assert {one["checkpoint_ns"] for one in history} == {f"assistant:{name}"}
        assert history[0] == by_namespace
        client.threads.update("shared", metadata={"assistant_id": name})
        assert client.threads.get_state("shared") == by_namespace
        assert said_in(client.threads.get("shared")) == said


def test_a_thread_without_an_assistant_is_of_the_graph_that_its_metadata_name(
    client: Client, ledger: AsyncLedger
) -> None:
    saver = LedgerSaver(ledger.blocking())
    graph = echo().compile(checkpointer=saver)
    config: Any = {"configurable": {"thread_id": "of nobody"}}
    graph.invoke({"messages": [{"role": "user", "content": "ask"}]}, config)
    unknown = client.threads.get_state("of nobody")
    assert (unknown["next"], unknown["tasks"][0]["path"]) == (["work"], [])
    client.threads.update("of nobody", metadata={"graph_id": "echo"})
    assert sent(client.threads.get_state("of nobody")) == seen(graph.get_state(config))
    client.threads.update_state("of nobody", {"n": 3}, as_node="work")
    assert graph.get_state(config).values["n"] == 3
    assert client.threads.get_state("of nobody")["checkpoint_ns"] == ""


def test_a_chat_is_a_thread_and_a_copy_has_its_messages(client: Client, ledger: AsyncLedger) -> None:
    blocking = ledger.blocking()
    blocking.create_chat("talk", "ann", metadata={"topic": "travel"})
    blocking.append("talk", [chatledger.user("hello")])
    [found] = client.threads.search(metadata={"topic": "travel"})
    assert (found["thread_id"], found["values"]) == ("talk", None)
    copied = client.threads.copy("talk")["thread_id"]
    assert [message.text for message in blocking.get_messages(copied)] == ["hello"]
    assert client.threads.get(copied)["metadata"]["topic"] == "travel"
    client.threads.delete("talk")
    assert blocking.get_chat("talk") is None
    assert blocking.get_chat(copied) is not None


def test_what_was_deleted_leaves_no_state(client: Client, ledger: AsyncLedger) -> None:
    graph = echo().compile(checkpointer=saver_of(ledger, "echo"))
    config: Any = {"configurable": {"thread_id": "deleted"}}
    for is_chat in (False, True):
        graph.invoke({"messages": [{"role": "user", "content": "secret"}]}, config)
        if is_chat:
            client.threads.update("deleted", metadata={"k": 1})
        client.threads.delete("deleted")
        assert graph.get_state(config).values == {}
        client.threads.create(thread_id="deleted", graph_id="echo")
        assert client.threads.get_history("deleted") == []
        client.threads.delete("deleted")
