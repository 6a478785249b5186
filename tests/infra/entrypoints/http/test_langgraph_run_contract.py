"""The records of a run that are chatledger's own: metadata, data of whoever speaks, end; and events of callbacks."""

import operator
from collections.abc import Iterator
from typing import Annotated, Any, TypedDict, cast

import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, Overwrite, Send
from langgraph_sdk import get_sync_client
from langgraph_sdk.errors import BadRequestError, NotFoundError
from tests.support.http_world import serving
from tests.support.run_graphs import said

import chatledger
from chatledger.server import create_app


class State(TypedDict, total=False):
    """Messages that are added, and such as a node replaces."""

    messages: Annotated[list[Any], add_messages]
    log: list[Any]
    plain: Annotated[list[Any], operator.add]


def model(text: str = "one two") -> Any:
    return GenericFakeChatModel(messages=iter([AIMessage(text)]))


async def plain(state: State) -> Any:
    del state
    return {"messages": [{"role": "assistant", "content": "plain"}]}


async def pair(state: State) -> Any:
    del state
    return {"messages": ("ai", "pair")}


async def objects(state: State) -> Any:
    del state
    return {"messages": [AIMessage("object"), AIMessage("object"), HumanMessage("not said by an assistant")]}


async def streaming(state: State) -> Any:
    return {"messages": [await model().ainvoke(state["messages"])]}


async def streaming_and_plain(state: State) -> Any:
    """The text was streamed already, and is returned without its id."""
    answer = await model().ainvoke(state["messages"])
    return {"messages": [{"role": "assistant", "content": answer.content}]}


async def streaming_and_new(state: State) -> Any:
    answer = await model().ainvoke(state["messages"])
    return {"messages": [AIMessage(answer.content, id="its own")]}


async def tool(state: State) -> Any:
    del state
    call = {"name": "look", "args": {}, "id": "c1"}
    answer = ToolMessage("rain", tool_call_id="c1")
    return {"messages": [AIMessage("", tool_calls=[call]), answer, {"role": "assistant", "content": "It rains."}]}


async def commands(state: State) -> Any:
    del state
    return [Command(update={"messages": [{"role": "assistant", "content": text}]}) for text in ("a", "b")]


async def replacing(state: State) -> Any:
    """Return the whole state: what it had is said no more, though it has no ids."""
    before = state.get("log", [])
    return {
        "log": [*before, {"role": "assistant", "content": f"answer {len(before)}"}],
        "plain": [{"type": "no message"}],
    }


async def overwriting(state: State) -> Any:
    return {"messages": Overwrite([*state["messages"], AIMessage("the rest")])}


async def blocks(state: State) -> Any:
    del state
    return {
        "messages": [
            {"role": "assistant", "content": [{"type": "text", "text": "in "}, {"type": "text", "text": "blocks"}]}
        ]
    }


def graph_of(*nodes: Any) -> Any:
    """Return a graph of nodes that follow one another."""
    builder: Any = StateGraph(State)
    before = START
    for number, node in enumerate(nodes):
        name = f"{number} {getattr(node, '__name__', 'graph')}"
        builder.add_node(name, node)
        builder.add_edge(before, name)
        before = name
    return builder


def spread() -> Any:
    """Two tasks of one node at once, which say the same."""
    builder: Any = StateGraph(State)
    builder.add_node("plain", plain)
    builder.add_conditional_edges(START, lambda state: [Send("plain", state), Send("plain", state)], ["plain"])
    return builder


def hidden() -> Any:
    async def inner(state: State) -> Any:
        hide: Any = RunnableLambda(lambda given: given, name="a secret").with_config(tags=["langsmith:hidden"])
        await hide.ainvoke("x")
        return await plain(state)

    return graph_of(inner)


NODES = (
    plain,
    pair,
    objects,
    streaming,
    streaming_and_plain,
    streaming_and_new,
    tool,
    commands,
    replacing,
    overwriting,
    blocks,
)
GRAPHS = {
    **{node.__name__: graph_of(node) for node in NODES},
    "again": graph_of(plain, objects, plain),
    "subgraph": graph_of(graph_of(plain, streaming).compile()),
    "spread": spread(),
    "hidden": hidden(),
    "said": said,
}  # fmt: skip


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    ledger = chatledger.open_async("memory:")
    with serving(create_app(ledger, graphs=cast("Any", GRAPHS))) as url, get_sync_client(url=url) as client:
        yield client
    ledger.blocking().close()


def run(
    client: Any, graph: str, mode: Any = "text", thread_id: str | None = None, **more: Any
) -> list[tuple[str, Any]]:
    given = {"messages": [{"role": "user", "content": "hello"}]}
    return [
        (one.event, one.data) for one in client.runs.stream(thread_id, graph, input=given, stream_mode=mode, **more)
    ]


def data(found: list[tuple[str, Any]]) -> list[Any]:
    return [value["content"] for name, value in found if name.partition("|")[0] == "data"]


@pytest.mark.parametrize(
    ("graph", "texts"),
    [
        ("plain", ["plain"]),
        ("pair", ["pair"]),
        ("objects", ["object", "object"]),
        ("streaming", ["one", " ", "two"]),
        ("streaming_and_plain", ["one", " ", "two"]),
        ("streaming_and_new", ["one", " ", "two"]),
        ("tool", ["It rains."]),
        ("commands", ["a", "b"]),
        ("replacing", ["answer 0"]),
        ("overwriting", ["the rest"]),
        ("blocks", ["in blocks"]),
        ("again", ["plain", "object", "object", "plain"]),
        ("spread", ["plain", "plain"]),
        ("said", ["Hel", "lo"]),
    ],
)
def test_each_text_of_an_assistant_is_data_once(client: Any, graph: str, texts: list[str]) -> None:
    """NS-48: whether the node streams, returns messages of LangChain, or plain ones."""
    found = run(client, graph)
    assert texts == data(found)
    assert {"ai"} == {value["type"] for name, value in found if name == "data"}
    assert ("metadata", "end") == (found[0][0], found[-1][0])
    assert "completed" == found[-1][1]["status"]


@pytest.mark.parametrize("graph", ["plain", "objects", "replacing", "overwriting", "subgraph"])
def test_earlier_turns_are_not_said_again(client: Any, graph: str) -> None:
    thread_id = client.threads.create()["thread_id"]
    first, second = (data(run(client, graph, thread_id=thread_id)) for _ in range(2))
    assert len(first) == len(second) > 0


@pytest.mark.parametrize("has_subgraphs", [False, True])
def test_what_a_subgraph_says_is_said_once(client: Any, *, has_subgraphs: bool) -> None:
    found = run(client, "subgraph", stream_subgraphs=has_subgraphs)
    assert "plain" == data(found)[0]
    assert "one two" == "".join(data(found)[1:])
    assert has_subgraphs == any(name.startswith("data|") for name, _ in found)


def test_events_of_callbacks_come_with_the_records_of_the_run(client: Any) -> None:
    """NS-48: what tools say has their type; what the graph streams, and what is hidden, is no event."""
    found = run(client, "tool", "events")
    speakers = [(value["type"], value["content"]) for name, value in found if name == "data"]
    assert [("tool", "rain"), ("ai", "It rains.")] == speakers
    assert ("metadata", "end") == (found[0][0], found[-1][0])
    assert {"metadata", "events", "data", "end"} == {name for name, _ in found}

    run_id = found[0][1]["run_id"]
    events = [value for name, value in run(client, "hidden", ["events", "values"]) if name == "events"]
    assert {"on_chain_start", "on_chain_end"} <= {event["event"] for event in events}
    assert not [event for event in events if "langsmith:hidden" in event["tags"] or "a secret" == event["name"]]
    root = next(event["run_id"] for event in events if not event["parent_ids"])
    assert "on_chain_stream" not in {event["event"] for event in events if event["run_id"] == root}
    assert root != run_id


def test_a_reader_that_joins_for_events_gets_data_too(client: Any) -> None:
    thread_id = client.threads.create()["thread_id"]
    run(client, "tool", ["events", "values"], thread_id=thread_id)
    run_id = client.runs.list(thread_id)[0]["run_id"]
    joined = [(one.event, one.data) for one in client.runs.join_stream(thread_id, run_id, stream_mode="events")]
    assert ["rain", "It rains."] == data(joined)
    assert "values" not in {name for name, _ in joined}


def test_checkpoints_in_debug_are_named_as_langgraphs_server_names_them(client: Any) -> None:
    thread_id = client.threads.create()["thread_id"]
    found = [value["payload"] for name, value in run(client, "plain", "debug", thread_id) if name == "debug"]
    checkpoints = [payload for payload in found if "config" in payload]
    history = [state["checkpoint"]["checkpoint_id"] for state in client.threads.get_history(thread_id)]
    assert history == [payload["checkpoint"]["checkpoint_id"] for payload in reversed(checkpoints)]
    assert checkpoints[0]["parent_checkpoint"] is None
    assert [payload["checkpoint"] for payload in checkpoints[:-1]] == [
        one["parent_checkpoint"] for one in checkpoints[1:]
    ]


def test_a_run_has_one_context(client: Any) -> None:
    """As on LangGraph's server. What only says where it begins, or what sets it off, stands beside a context."""
    given: Any = {"configurable": {"tone": "harsh"}}
    with pytest.raises(BadRequestError, match="either context or config"):
        run(client, "plain", config=given, context={"tone": "kind"})
    with pytest.raises(BadRequestError, match="either context or config"):
        client.assistants.create("plain", config=given, context={"tone": "kind"})
    both = client.assistants.create("plain", config=given, context={"tone": "harsh"})
    assert both["context"] == given["configurable"]
    beside: Any = {"configurable": {"thread_id": "t", "reference_message_ids": []}}
    assert ["plain"] == data(run(client, "plain", config=beside, context={"tone": "kind"}))


def test_a_run_that_ended_by_itself_is_not_cancelled(client: Any) -> None:
    thread_id = client.threads.create()["thread_id"]
    run(client, "plain", thread_id=thread_id)
    with pytest.raises(NotFoundError, match="has ended by itself"):
        client.runs.cancel(thread_id, client.runs.list(thread_id)[0]["run_id"])
