"""LangGraph's thread protocol, and the events of threads: langgraph-sdk and bare requests against a real socket."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, StateGraph
from langgraph_sdk import get_client
from tests.support.http_world import serving
from tests.support.run_graphs import BEGUN, GATES, State, agent, say

import chatledger
from chatledger.server import create_app

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

pytestmark = pytest.mark.anyio
CHANNELS = ["values", "updates", "messages", "lifecycle", "input", "checkpoints", "tasks", "custom"]


async def talk(state: State, config: RunnableConfig) -> State:
    model = GenericFakeChatModel(messages=iter([AIMessage("one two three")]))
    return {"messages": [await model.ainvoke(state.get("messages", []), config)]}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    talking: Any = StateGraph(State)
    talking.add_node("talk", talk)
    talking.add_edge(START, "talk")
    with serving(create_app(chatledger.open_async("memory:"), graphs={"agent": agent, "talk": talking})) as url:
        yield url


@pytest.fixture(scope="module")
async def client(url: str) -> AsyncIterator[Any]:
    async with get_client(url=url) as client:
        yield client


@pytest.fixture
async def raw(url: str) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=url, timeout=10) as raw:
        yield raw


async def do(raw: httpx.AsyncClient, thread_id: str, method: str, **params: Any) -> Any:
    """The answer to a command."""
    answer = (
        await raw.post(f"/threads/{thread_id}/commands", json={"id": 7, "method": method, "params": params})
    ).json()
    assert answer["id"] == 7
    return answer


async def follow(raw: httpx.AsyncClient, thread_id: str, until: int, **body: Any) -> list[Any]:
    """The events of a thread up to the end of so many runs."""
    found: list[Any] = []
    wanted = {"channels": CHANNELS, **body}
    async with raw.stream("POST", f"/threads/{thread_id}/stream/events", json=wanted) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("data: "):
                found.append(json.loads(line[6:]))
                data = found[-1]["params"]["data"]
                ends = found[-1]["method"] == "lifecycle" and data["event"] in {"completed", "failed", "interrupted"}
                until -= ends
                if until == 0:
                    break
    return found


async def test_the_client_follows_messages_and_answers(client: Any) -> None:
    thread_id = (await client.threads.create())["thread_id"]
    async with client.threads.stream(thread_id, assistant_id="talk") as following:
        await following.run.start(input=say("hi"))
        messages = [message async for message in following.messages]
        assert [await message.text for message in messages] == ["one two three"]
        assert (await following.output)["messages"][-1]["content"] == "one two three"
    thread_id = (await client.threads.create())["thread_id"]
    async with client.threads.stream(thread_id, assistant_id="agent") as following:
        await following.run.start(input=say("ask"))
        async for event in following.events:
            if event["method"] == "lifecycle" and event["params"]["data"]["event"] == "interrupted":
                break
        while not following.interrupts:  # noqa: ASYNC110 - which another connection of the client tells
            await asyncio.sleep(0.01)
        assert [one["value"] for one in following.interrupts] == [{"question": "go on?"}]
        await following.run.respond("yes")
        assert (await following.output)["messages"][-1]["content"] == "echo: ask -> yes"


async def test_events_are_numbered_before_they_are_filtered(raw: httpx.AsyncClient) -> None:
    """A client that goes on with other channels, or at another event, misses nothing; a run that fails is told as such."""
    thread_id = "numbered"
    for text in ("hi", "boom", "tick 2"):
        assert (await do(raw, thread_id, "run.start", assistant_id="agent", input=say(text)))["type"] == "success"
    whole = await follow(raw, thread_id, 3, since=0)
    numbers = [one["seq"] for one in whole]
    assert numbers == sorted(set(numbers))
    assert len({one["event_id"] for one in whole}) == len(whole)
    ends = [one["params"]["data"] for one in whole if one["method"] == "lifecycle"]
    assert [one["event"] for one in ends] == ["running", "completed", "running", "failed", "running", "completed"]
    assert ends[3]["error"] == "boom happened"
    some = await follow(raw, thread_id, 3, since=0, channels=["lifecycle", "values"])
    assert some == [one for one in whole if one["method"] in {"lifecycle", "values"}]
    for place in (0, len(whole) // 3, len(whole) // 2, len(whole) - 2):
        left = sum(
            one["method"] == "lifecycle" and one["params"]["data"]["event"] != "running" for one in whole[place + 1 :]
        )
        assert await follow(raw, thread_id, left, since=numbers[place]) == whole[place + 1 :]
    assert {one["method"] for one in whole} == {
        "lifecycle",
        "values",
        "updates",
        "messages",
        "tasks",
        "checkpoints",
        "custom",
    }


@pytest.mark.guard
async def test_a_client_that_comes_back_finds_the_end_of_the_run_that_it_lost(raw: httpx.AsyncClient) -> None:
    """Without a number, as the client for JavaScript does; that for Python is told of its own runs alone."""
    for text in ("first", "second"):
        run = await do(raw, "lost", "run.start", assistant_id="agent", input=say(text))
        await raw.get(f"/threads/lost/runs/{run['result']['run_id']}/join")
    await asyncio.sleep(1.1)
    found = await follow(raw, "lost", 1)
    assert found[-1]["params"]["data"]["event"] == "completed"
    raw.headers["user-agent"] = "langgraph-sdk-py/0.4.14"
    third = await do(raw, "lost", "run.start", assistant_id="agent", input=say("third"))
    assert (await follow(raw, "lost", 1))[0]["event_id"].startswith(third["result"]["run_id"])


async def test_values_come_after_their_checkpoint(raw: httpx.AsyncClient, client: Any) -> None:
    """So a client knows where a message is edited: at the parent of the checkpoint that comes with it for the first time."""
    thread_id = (await client.threads.create())["thread_id"]
    for text in ("one", "two"):
        await do(raw, thread_id, "run.start", assistant_id="agent", input=say(text))
    found = await follow(raw, thread_id, 2, since=0, channels=["values", "checkpoints", "lifecycle"])
    places: dict[str, Any] = {}
    checkpoint: Any = None
    for event in found:
        data = event["params"]["data"]
        if event["method"] == "checkpoints":
            checkpoint = data
        elif event["method"] == "values":
            for message in data["messages"]:
                places.setdefault(message["content"], checkpoint)
    states = {one["checkpoint_id"]: one for one in await client.threads.get_history(thread_id, limit=100)}
    for text, place in places.items():
        assert text in _texts(states[place["id"]]["values"])
        assert text not in _texts(states[place["parent_id"]]["values"])
    edited = {"configurable": {"checkpoint_id": places["two"]["parent_id"]}}
    values: Any = await client.runs.wait(thread_id, "agent", input=say("other"), config=edited)
    assert _texts(values) == ["one", "echo: one", "other", "echo: other"]


def _texts(values: Any) -> list[str]:
    return [one["content"] for one in values.get("messages", [])]


async def test_commands_of_the_state(raw: httpx.AsyncClient, client: Any) -> None:
    """They read it, list its checkpoints, and begin a branch at one."""
    thread_id = (await client.threads.create())["thread_id"]
    await client.runs.wait(thread_id, "agent", input=say("one"))
    state = (await do(raw, thread_id, "state.get", namespace=[], keys=["n"]))["result"]
    listed = (await do(raw, thread_id, "state.listCheckpoints", limit=2))["result"]["checkpoints"]
    assert state == {"values": {"n": 1}, "checkpoint": {"id": listed[0]["id"], "ns": ""}}
    assert [one["step"] for one in listed] == [2, 1]
    more = (await do(raw, thread_id, "state.listCheckpoints", before=listed[-1]["id"]))["result"]["checkpoints"]
    assert [one["step"] for one in more] == [0, -1]
    forked = await do(raw, thread_id, "state.fork", checkpoint_id=more[-1]["id"], input=say("other"))
    values: Any = await client.runs.join(thread_id, forked["result"]["run_id"])
    assert [one["content"] for one in values["messages"]] == ["other", "echo: other"]


async def test_a_message_is_injected(raw: httpx.AsyncClient, client: Any) -> None:
    """It waits for the run that is at work, and is answered."""
    thread_id, name = (await client.threads.create())["thread_id"], "injected"
    await do(raw, thread_id, "run.start", assistant_id="agent", input=say(f"wait {name}"))
    await asyncio.to_thread(BEGUN[name].wait, 10)
    message = {"role": "user", "content": "and this"}
    injected = await do(raw, thread_id, "input.inject", namespace=[], message=message)
    GATES[name].set()
    values: Any = await client.runs.join(thread_id, injected["result"]["run_id"])
    assert [one["content"] for one in values["messages"]] == [
        f"wait {name}",
        f"echo: wait {name}",
        "and this",
        "echo: and this",
    ]


async def test_commands_that_are_refused(raw: httpx.AsyncClient, client: Any) -> None:
    thread_id = (await client.threads.create())["thread_id"]
    await client.runs.wait(thread_id, "agent", input=say("one"))
    refusals: list[tuple[str, dict[str, Any], str]] = [
        ("zzz", {}, "unknown_command"),
        ("subscription.subscribe", {"channels": ["values"]}, "not_supported"),
        ("input.inject", {}, "invalid_argument"),
        ("input.inject", {"namespace": ["x"], "message": {"role": "user", "content": "x"}}, "not_supported"),
        ("state.get", {"namespace": 1}, "invalid_argument"),
        ("state.get", {"namespace": [1]}, "invalid_argument"),
        ("state.get", {"keys": 1}, "invalid_argument"),
        ("state.listCheckpoints", {"limit": 10**9}, "invalid_argument"),
        ("state.listCheckpoints", {"limit": -1}, "invalid_argument"),
        ("state.listCheckpoints", {"before": {}}, "invalid_argument"),
        ("state.fork", {"checkpoint_id": 1}, "invalid_argument"),
        ("input.respond", {"responses": [1]}, "invalid_argument"),
        ("input.respond", {"responses": 1}, "invalid_argument"),
        ("agent.getTree", {}, "no_such_run"),
        ("input.respond", {"namespace": [], "interrupt_id": "x", "response": 1}, "no_such_interrupt"),
        ("state.fork", {"checkpoint_id": "x"}, "no_such_checkpoint"),
        ("run.start", {"assistant_id": 1}, "invalid_argument"),
        ("run.start", {"assistant_id": "nope"}, "invalid_argument"),
    ]
    for method, params, code in refusals:
        answer = await do(raw, thread_id, method, **params)
        assert (answer["type"], answer["error"]) == ("error", code), answer


async def test_all_runs_of_a_thread_are_followed(client: Any) -> None:
    """Those to come; and from an event on, all since."""
    thread_id = (await client.threads.create())["thread_id"]
    await client.runs.wait(thread_id, "agent", input=say("before"))

    async def read(**options: Any) -> list[Any]:
        found: list[Any] = []
        async for one in await client.threads.join_stream(thread_id, **options):
            found.append(one)
            if one.event == "metadata" and one.data.get("status") == "run_done" and len(found) > 5:
                break
        return found

    following = asyncio.create_task(read(stream_mode="run_modes"))
    await asyncio.sleep(0.3)
    for text in ("one", "two"):
        await client.runs.wait(thread_id, "agent", input=say(text))
    found = await asyncio.wait_for(following, 10)
    done = [one.data["run_id"] for one in found if one.data.get("status") == "run_done"]
    runs = [run["run_id"] for run in await client.runs.list(thread_id)]
    assert done == [runs[1], runs[0]]
    assert await read(last_event_id="0-*") == found
    whole = await read(last_event_id="-")
    assert whole[-len(done) :][0].data != found[0].data
    assert [one.event for one in whole[:2]] == ["metadata", "values"]
