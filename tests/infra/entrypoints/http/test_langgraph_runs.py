"""Runs over LangGraph's API: its own client against a real socket."""

from __future__ import annotations

import asyncio
import threading
from secrets import token_hex
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import httpx
import msgspec
import pytest
from langgraph_sdk import get_client, get_sync_client
from langgraph_sdk.errors import ConflictError, NotFoundError, RateLimitError, UnprocessableEntityError
from tests.support.http_world import serving
from tests.support.run_graphs import BEGUN, GATES, agent, build, said, say

import chatledger
from chatledger.domain.chat.runs import RunStreamRecord
from chatledger.infra.entrypoints.http.langgraph_api import jobs, run_streams
from chatledger.langgraph import LedgerSaver
from chatledger.server import Limits, Principal, create_app

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

pytestmark = pytest.mark.anyio
LEDGERS: dict[str, chatledger.AsyncLedger] = {}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    ledger = chatledger.open_async("memory:")
    graphs = {"agent": agent, "said": said}
    with serving(create_app(ledger, graphs=graphs, authenticate=who)) as url:
        LEDGERS[url] = ledger
        yield url
        for gate in list(GATES.values()):
            gate.set()
    ledger.blocking().close()


def who(headers: Any) -> Principal:
    return Principal(headers.get("x-user"))


@pytest.fixture(scope="module")
async def client(url: str) -> AsyncIterator[Any]:
    async with get_client(url=url) as client:
        yield client


async def read(events: AsyncIterator[Any]) -> list[tuple[str | None, str, Any]]:
    return [(one.id, one.event, one.data) async for one in events]


def gate() -> str:
    return str(uuid4())


async def begun(name: str) -> None:
    await asyncio.to_thread(BEGUN[name].wait, 10)


async def thread(client: Any) -> str:
    thread_id: str = (await client.threads.create())["thread_id"]
    return thread_id


async def test_a_stream_begins_with_metadata_and_ends_with_the_end(client: Any) -> None:
    """NS-48: what the run is, with the real namespace; its events in the modes asked for; how it ended."""
    thread_id, created = await thread(client), list[Any]()
    modes = ["values", "updates", "custom", "tasks", "checkpoints", "debug", "messages-tuple", "messages", "text"]
    found = await read(
        client.runs.stream(
            thread_id,
            "agent",
            input=say("tick 2"),
            stream_mode=modes,
            on_run_created=created.append,
        )
    )
    names = [name for _, name, _ in found]

    run_id = created[0]["run_id"]
    assert found[0][2] == {
        "run_id": run_id,
        "thread_id": thread_id,
        "assistant_id": "agent",
        "checkpoint_ns": "assistant:agent",
        "attempt": 1,
    }
    assert found[-1][2]["status"] == "completed"
    assert found[-1][2]["checkpoint_id"] == (await client.threads.get_state(thread_id))["checkpoint"]["checkpoint_id"]
    wanted = {"values", "updates", "custom", "tasks", "checkpoints", "debug", "messages", "messages/complete", "data"}
    assert wanted <= set(names)
    assert [data for _, name, data in found if name == "data"] == [{"content": "echo: tick 2", "type": "ai"}]
    numbers = [int(number) for number, _, _ in found if number is not None]
    assert numbers == sorted(set(numbers))
    for name, data in (("metadata", found[0][2]), ("end", found[-1][2])):
        assert msgspec.convert({"event": name, **data}, RunStreamRecord)


async def test_events_of_callbacks_are_streamed_beside_the_modes(client: Any) -> None:
    found = await read(client.runs.stream(None, "agent", input=say("hi"), stream_mode=["events", "values"]))
    events = [data for _, name, data in found if name == "events"]
    assert {event["event"] for event in events} >= {"on_chain_start", "on_chain_end"}
    assert events[0]["name"] == events[-1]["name"] == "agent"
    assert [data["n"] for _, name, data in found if name == "values" and "n" in data][-1:] == [1]


async def test_large_events_come_whole(client: Any) -> None:
    """Those that are larger than a chunk of a live stream, too."""
    found = await read(client.runs.stream(None, "agent", input=say("large 700000"), stream_mode="custom"))
    assert [data for _, name, data in found if name == "custom"] == ["x" * 700_000]


@pytest.mark.parametrize("text", [token_hex(250_000), "large 400000"], ids=["values", "custom"])
async def test_a_stream_that_is_full_has_whole_events_and_the_end(client: Any, monkeypatch: Any, text: str) -> None:
    """Also for who comes back. What was left out is told by the values at the end; the run itself lacks nothing."""
    monkeypatch.setattr(jobs, "MAX_LIVE_BYTES", jobs.END_BYTES + 300_000)
    thread_id = await thread(client)
    created: list[Any] = []
    events = client.runs.stream(
        thread_id, "agent", input=say(text), stream_mode=["values", "custom"], on_run_created=created.append
    )
    streamed = await read(events)
    assert [name for _, name, _ in streamed][-2:] == ["values", "end"]
    assert _texts({"values": streamed[-2][2]}) == [text, f"echo: {text}"]
    joined = await read(client.runs.join_stream(thread_id, created[0]["run_id"]))
    assert joined == streamed
    numbers = [number for number, _, _ in streamed if number is not None]
    later = client.runs.join_stream(thread_id, created[0]["run_id"], last_event_id=numbers[-2])
    assert [one[1:] for one in await read(later)] == [one[1:] for one in streamed[-2:]]


async def test_a_run_is_waited_for_and_joined(client: Any) -> None:
    thread_id, name = await thread(client), gate()
    assert (await client.runs.wait(thread_id, "agent", input=say("hello")))["n"] == 1
    run = await client.runs.create(thread_id, "agent", input=say(f"wait {name}"), metadata={"mine": 1})
    assert (run["status"], run["metadata"]["mine"], run["multitask_strategy"]) == ("pending", 1, "enqueue")
    await begun(name)
    assert (await client.runs.get(thread_id, run["run_id"]))["status"] == "running"
    assert (await client.threads.get(thread_id))["status"] == "busy"
    joined = [asyncio.create_task(client.runs.join(thread_id, run["run_id"])) for _ in range(2)]
    GATES[name].set()
    first, second = await asyncio.gather(*joined)
    assert first["n"] == 2
    assert first == second == (await client.threads.get_state(thread_id))["values"]
    assert (await client.runs.get(thread_id, run["run_id"]))["status"] == "success"


async def test_two_readers_and_a_late_one_read_the_same(client: Any) -> None:
    """While it runs, after it ended, and from an event on; whether or not it was asked to be resumable."""
    thread_id, name = await thread(client), gate()
    run = await client.runs.create(thread_id, "agent", input=say(f"wait {name}"), stream_mode=["values", "updates"])
    reading = [asyncio.create_task(read(client.runs.join_stream(thread_id, run["run_id"]))) for _ in range(2)]
    await begun(name)
    GATES[name].set()
    one, two = await asyncio.gather(*reading)
    assert one == two == await read(client.runs.join_stream(thread_id, run["run_id"], last_event_id="-"))
    for place in range(len(one)):
        late = await read(client.runs.join_stream(thread_id, run["run_id"], last_event_id=one[place][0]))
        assert [(number, event) for number, event, _ in late if event != "end"] == [
            (number, event) for number, event, _ in one[place + 1 :] if event != "end"
        ]
    only = await read(client.runs.join_stream(thread_id, run["run_id"], stream_mode="updates", last_event_id="-1"))
    assert {event for _, event, _ in only} == {"metadata", "updates", "end"}


async def test_a_run_goes_on_without_its_reader(client: Any) -> None:
    """A client that goes ends nothing, unless it said so."""
    for on_disconnect, status in (("continue", "success"), ("cancel", "interrupted")):
        thread_id, name, created = await thread(client), gate(), list[Any]()
        stream = client.runs.stream(
            thread_id,
            "agent",
            input=say(f"wait {name}"),
            stream_mode="messages-tuple",  # with it, LangGraph keeps the CancelledError of the node
            on_disconnect=on_disconnect,
            on_run_created=created.append,
        )
        await anext(stream)
        await begun(name)
        await stream.aclose()
        if on_disconnect == "continue":
            GATES[name].set()
        await client.runs.join(thread_id, created[0]["run_id"])
        assert (await client.runs.get(thread_id, created[0]["run_id"]))["status"] == status
        left = await client.threads.get(thread_id)
        assert (left["status"], left["error"]) == ("idle" if status == "success" else "interrupted", None)


async def test_an_error_is_the_end_of_its_run(client: Any) -> None:
    thread_id = await thread(client)
    with pytest.raises(Exception, match="ValueError: boom happened"):
        await client.runs.wait(thread_id, "agent", input=say("boom"))
    found = await read(client.runs.stream(thread_id, "agent", input=say("boom")))
    assert ("error", {"error": "ValueError", "message": "boom happened"}) in [one[1:] for one in found]
    assert [run["status"] for run in await client.runs.list(thread_id)] == ["error", "error"]
    assert (await client.threads.get(thread_id))["status"] == "error"


async def test_an_interrupt_is_answered(client: Any) -> None:
    """The run is a success, the thread is interrupted; `Command(resume=)` goes on."""
    thread_id = await thread(client)
    found = await read(client.runs.stream(thread_id, "agent", input=say("ask"), stream_mode=["values", "updates"]))
    assert [data["__interrupt__"][0]["value"] for _, _, data in found if "__interrupt__" in (data or {})] == [
        {"question": "go on?"},
        {"question": "go on?"},
    ]
    assert (await client.threads.get(thread_id))["status"] == "interrupted"
    assert (await client.runs.list(thread_id))[0]["status"] == "success"
    values: Any = await client.runs.wait(thread_id, "agent", command={"resume": "yes"})
    assert values["messages"][-1]["content"] == "echo: ask -> yes"
    assert (await client.threads.get(thread_id))["status"] == "idle"


@pytest.mark.parametrize("beside", [{}, [], say("ignored")])
async def test_a_command_counts_more_than_an_input(client: Any, beside: Any) -> None:
    """As on LangGraph's server: Approve and Reject of Agent Chat UI send an empty input with each command."""
    thread_id = await thread(client)
    await client.runs.wait(thread_id, "agent", input=say("ask"))
    values: Any = await client.runs.wait(thread_id, "agent", input=beside, command={"resume": "yes"})
    assert _texts({"values": values}) == ["ask", "echo: ask -> yes"]


async def test_a_run_stops_before_and_after_nodes(client: Any) -> None:
    thread_id = await thread(client)
    await client.runs.wait(thread_id, "agent", input=say("hi"), interrupt_before=["work"])
    assert (await client.threads.get_state(thread_id))["next"] == ["work"]
    await client.runs.wait(thread_id, "agent", input=None, interrupt_after="*")
    assert (await client.threads.get_state(thread_id))["next"] == ["check"]
    values: Any = await client.runs.wait(thread_id, "agent", input=None, durability="exit")
    assert (values["n"], (await client.threads.get_state(thread_id))["next"]) == (1, [])


async def test_a_run_forks_from_a_checkpoint(client: Any) -> None:
    """NS-26: the new checkpoints have it as their parent, and the former line stays."""
    thread_id = await thread(client)
    await client.runs.wait(thread_id, "agent", input=say("one"))
    first = await client.threads.get_state(thread_id)
    await client.runs.wait(thread_id, "agent", input=say("two"))
    second = await client.threads.get_state(thread_id)
    values: Any = await client.runs.wait(thread_id, "agent", input=say("other"), checkpoint=first["checkpoint"])
    assert [one["content"] for one in values["messages"]] == ["one", "echo: one", "other", "echo: other"]
    history = await client.threads.get_history(thread_id, limit=100)
    children = [one for one in history if one["parent_checkpoint"] == first["checkpoint"]]
    assert len(children) == 2
    assert second["checkpoint"] in [one["checkpoint"] for one in history]


async def test_a_run_is_placed_by_what_is_configured(client: Any) -> None:
    """NS-26: by the checkpoint and the namespace as it is stored; neither a context nor keys of the graph's own change it."""
    thread_id = await thread(client)
    await client.runs.wait(thread_id, "agent", input=say("one"))
    first = await client.threads.get_state(thread_id)
    await client.runs.wait(thread_id, "agent", input=say("two"))
    place = {"checkpoint_ns": first["checkpoint_ns"], "checkpoint_id": first["checkpoint"]["checkpoint_id"]}
    assert place["checkpoint_ns"] == "assistant:agent"
    values: Any = await client.runs.wait(thread_id, "agent", input=say("other"), config={"configurable": place})
    assert [one["content"] for one in values["messages"]] == ["one", "echo: one", "other", "echo: other"]
    newest = (await client.threads.get_state(thread_id))["parent_checkpoint"]
    assert newest is not None
    stolen = {"checkpoint_ns": "else", "checkpoint_id": "absent", "__pregel_checkpointer": 1, "thread_id": "x"}
    for given in ({"context": stolen}, {"config": {"configurable": {"__pregel_checkpointer": 1, "thread_id": "x"}}}):
        values = await client.runs.wait(thread_id, "agent", input=say("more"), **given)
    assert [one["content"] for one in values["messages"]][-3:] == ["echo: more", "more", "echo: more"]


@pytest.mark.parametrize("strategy", ["interrupt", "rollback"])
async def test_a_run_takes_the_place_of_another(client: Any, strategy: Any) -> None:
    thread_id, name = await thread(client), gate()
    old = await client.runs.create(thread_id, "agent", input=say(f"wait {name}"))
    await begun(name)
    values: Any = await client.runs.wait(thread_id, "agent", input=say("new"), multitask_strategy=strategy)
    texts = [one["content"] for one in values["messages"]]
    if strategy == "rollback":
        assert texts == ["new", "echo: new"]
        with pytest.raises(NotFoundError):
            await client.runs.get(thread_id, old["run_id"])
    else:
        assert texts == [f"wait {name}", "new", "echo: new"]
        assert (await client.runs.get(thread_id, old["run_id"]))["status"] == "interrupted"


async def test_runs_wait_for_one_another_or_are_refused(client: Any) -> None:
    thread_id, name = await thread(client), gate()
    first = await client.runs.create(thread_id, "agent", input=say(f"wait {name}"))
    others = [await client.runs.create(thread_id, "agent", input=say(f"number {number}")) for number in range(3)]
    await begun(name)
    with pytest.raises(ConflictError, match="already running"):
        await client.runs.create(thread_id, "agent", input=say("x"), multitask_strategy="reject")
    assert [run["status"] for run in await client.runs.list(thread_id)] == ["pending"] * 3 + ["running"]
    GATES[name].set()
    values: Any = await client.runs.join(thread_id, others[-1]["run_id"])
    echoes = [one["content"] for one in values["messages"] if one["type"] == "ai"]
    assert echoes == [f"echo: wait {name}", *(f"echo: number {number}" for number in range(3))]
    assert [run["run_id"] for run in await client.runs.list(thread_id, status="success")] == [
        run["run_id"] for run in (*reversed(others), first)
    ]


async def test_no_state_is_updated_while_a_run_is_at_work_on_it(client: Any, url: str) -> None:
    """The run could not write after it, and its answer would be lost. The same at another server; other namespaces are free."""
    thread_id, name = await thread(client), gate()
    await client.runs.wait(thread_id, "agent", input=say("hi"))
    before = (await client.threads.get_state(thread_id))["checkpoint"]
    run = await client.runs.create(thread_id, "agent", input=say(f"wait {name}"))
    waiting = await client.runs.create(thread_id, "agent", input=say("next"))
    late = await client.runs.create(thread_id, "agent", input=say("late"), after_seconds=3600)
    await begun(name)
    other = await client.assistants.create("agent")
    app = create_app(LEDGERS[url], graphs={"agent": agent}, authenticate=who)
    with serving(app) as other_url:
        async with get_client(url=other_url) as beside:
            for server in (client, beside):
                for checkpoint in (None, before):
                    with pytest.raises(ConflictError, match=run["run_id"]):
                        await server.threads.update_state(thread_id, say("no"), as_node="work", checkpoint=checkpoint)
            own: Any = {"checkpoint_ns": f"assistant:{other['assistant_id']}"}
            await beside.threads.update_state(thread_id, say("mine"), as_node="work", checkpoint=own)
    GATES[name].set()
    await client.runs.join(thread_id, waiting["run_id"])
    shared = {"checkpoint_ns": "assistant:agent"}
    await client.threads.update_state(thread_id, say("a note"), as_node="work", checkpoint=shared)
    await client.runs.cancel(thread_id, late["run_id"], wait=True)
    texts = _texts(await client.threads.get_state(thread_id, checkpoint=shared))
    assert texts == ["hi", "echo: hi", f"wait {name}", f"echo: wait {name}", "next", "echo: next", "a note"]
    assert (await client.runs.get(thread_id, run["run_id"]))["status"] == "success"


@pytest.mark.parametrize("is_new", [False, True], ids=["update", "first steps"])
async def test_a_run_begins_when_the_state_is_written(*, is_new: bool) -> None:
    """It waits for an update that came before, and for the steps that its thread begins with."""
    is_open, name = threading.Event(), gate()

    async def slow() -> Any:
        """Open the graph, for the update so slowly that a run which did not wait would be in its midst."""
        if not is_open.is_set():
            is_open.set()
            await asyncio.to_thread(BEGUN[name].wait, 0.3)
        return agent

    client: Any
    async with chatledger.open_async("memory:") as ledger:
        with serving(create_app(ledger, graphs={"agent": slow})) as url:
            async with get_client(url=url) as client:
                steps = [{"updates": [{"values": say("a note"), "as_node": "work"}]}]
                if is_new:
                    writing = client.threads.create(thread_id="t", graph_id="agent", supersteps=steps)
                else:
                    await client.threads.create(thread_id="t", graph_id="agent")
                    shared = {"checkpoint_ns": "assistant:agent"}
                    writing = client.threads.update_state("t", say("a note"), as_node="work", checkpoint=shared)
                written = asyncio.create_task(writing)
                await asyncio.to_thread(is_open.wait, 10)
                run = await client.runs.create("t", "agent", input=say(f"wait {name}"))
                await written
                GATES[name].set()
                await client.runs.join("t", run["run_id"])
                assert _texts(await client.threads.get_state("t")) == ["a note", f"wait {name}", f"echo: wait {name}"]


@pytest.mark.soak
async def test_a_run_begins_later(client: Any) -> None:
    """Others go first meanwhile."""
    thread_id = await thread(client)
    late = await client.runs.create(thread_id, "agent", input=say("late"), after_seconds=1)
    await client.runs.wait(thread_id, "agent", input=say("early"))
    assert (await client.runs.get(thread_id, late["run_id"]))["status"] == "pending"
    values: Any = await client.runs.join(thread_id, late["run_id"])
    assert [one["content"] for one in values["messages"]] == ["early", "echo: early", "late", "echo: late"]


async def test_runs_are_cancelled_and_deleted(client: Any) -> None:
    thread_id, name, other = await thread(client), gate(), gate()
    run = await client.runs.create(thread_id, "agent", input=say(f"wait {name}"))
    waiting = await client.runs.create(thread_id, "agent", input=say(f"wait {other}"))
    await begun(name)
    await client.runs.cancel(thread_id, waiting["run_id"], wait=True)
    await client.runs.cancel(thread_id, run["run_id"], wait=True)
    assert [one["status"] for one in await client.runs.list(thread_id)] == ["interrupted"] * 2
    assert not BEGUN[other].is_set()
    undone = await client.runs.create(thread_id, "agent", input=say(f"wait {other}"))
    await begun(other)
    await client.runs.cancel(thread_id, undone["run_id"], wait=True, action="rollback")
    await client.runs.delete(thread_id, run["run_id"])
    assert [one["run_id"] for one in await client.runs.list(thread_id)] == [waiting["run_id"]]
    with pytest.raises(NotFoundError):
        await client.runs.get(thread_id, run["run_id"])
    many = [await client.runs.create(thread_id, "agent", input=say(f"wait {gate()}")) for _ in range(3)]
    await client.runs.cancel_many(thread_id=thread_id, run_ids=[one["run_id"] for one in many])
    for one in many:
        await client.runs.join(thread_id, one["run_id"])
        assert (await client.runs.get(thread_id, one["run_id"]))["status"] == "interrupted"
    texts = [one["content"] for one in (await client.threads.get_state(thread_id))["values"]["messages"]]
    assert f"wait {other}" not in texts
    with pytest.raises(UnprocessableEntityError):
        await client.runs.cancel_many(thread_id=thread_id, status="all")


async def test_a_run_that_is_ended_twice_is_ended_once(client: Any) -> None:
    """As by a button that is pressed again: the first end is written whole."""
    for _ in range(5):
        thread_id, name = await thread(client), gate()
        run = await client.runs.create(thread_id, "agent", input=say(f"wait {name}"))
        await begun(name)
        await asyncio.gather(*(client.runs.cancel(thread_id, run["run_id"], wait=True) for _ in range(4)))
        assert (await client.runs.get(thread_id, run["run_id"]))["status"] == "interrupted"
        assert [one[1] for one in await read(client.runs.join_stream(thread_id, run["run_id"]))][-1] == "end"


async def test_who_waits_and_goes_may_end_the_run(url: str, client: Any) -> None:
    for on_disconnect, status in (("cancel", "interrupted"), ("continue", "running")):
        thread_id, name = await thread(client), gate()
        body = {"assistant_id": "agent", "input": say(f"wait {name}"), "on_disconnect": on_disconnect}
        async with httpx.AsyncClient(base_url=url) as raw:
            asking = asyncio.create_task(raw.post(f"/threads/{thread_id}/runs/wait", json=body))
            await begun(name)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        (run,) = await client.runs.list(thread_id)
        if status == "interrupted":
            await client.runs.join(thread_id, run["run_id"])
        assert (await client.runs.get(thread_id, run["run_id"]))["status"] == status
        GATES[name].set()


async def test_a_user_has_so_many_runs_at_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch is begun whole or not at all; others are not held up."""
    monkeypatch.setattr("chatledger.infra.entrypoints.http.langgraph_api.runs.MAX_USER_RUNS", 2)
    many: Any
    other: Any
    async with get_client(url=url, headers={"x-user": "many"}) as many, get_client(url=url) as other:
        thread_id = await thread(many)
        batch: Any = [{"assistant_id": "agent", "input": say("hi")}] * 3
        with pytest.raises(RateLimitError):
            await many.runs.create_batch(batch)
        later = [await many.runs.create(thread_id, "agent", input=say("hi"), after_seconds=60) for _ in range(2)]
        with pytest.raises(RateLimitError, match="have not ended"):
            await many.runs.create(thread_id, "agent", input=say("hi"))
        assert await other.runs.wait(None, "agent", input=say("hi"))
        await many.runs.cancel_many(thread_id=thread_id, run_ids=[run["run_id"] for run in later])


async def test_who_waits_holds_a_stream() -> None:
    """Joins count against the streams of a user, and give back what they held."""
    client: Any
    async with chatledger.open_async("memory:") as ledger:
        name = gate()
        with serving(create_app(ledger, graphs={"agent": agent}, limits=Limits(streams_per_user=1))) as url:
            async with get_client(url=url) as client, httpx.AsyncClient(base_url=url) as raw:
                thread_id = await thread(client)
                run = await client.runs.create(thread_id, "agent", input=say(f"wait {name}"))
                await begun(name)
                path = f"/threads/{thread_id}/runs/{run['run_id']}"
                async with raw.stream("GET", f"{path}/join") as waiting:
                    refused = [await raw.get(f"{path}/{way}") for way in ("join", "stream")]
                    assert (await raw.get(path)).status_code == 200
                    GATES[name].set()
                    assert (await waiting.aread()).endswith(b"}")
                assert [answer.status_code for answer in refused] == [429, 429]
                assert (await raw.get(f"{path}/join")).status_code == 200


async def test_runs_without_a_thread(client: Any) -> None:
    assert (await client.runs.wait(None, "agent", input=say("hi")))["n"] == 1
    batch = await client.runs.create_batch([{"assistant_id": "agent", "input": say("hi")} for _ in range(2)])
    assert len({run["thread_id"] for run in batch}) == 2
    found = await read(client.runs.stream(None, "said", input={"a": 1}, stream_mode="values"))
    assert [one[1] for one in found] == ["metadata", "data", "data", "values", "end"]
    assert await client.runs.wait(None, "said", input={"a": 1}) == {"given": {"a": 1}}


async def test_the_same_graph_in_process_gives_the_same(client: Any, url: str) -> None:
    """State and history, and each may go on where the other was."""
    saver = LedgerSaver(LEDGERS[url]).for_assistant("agent")
    graph = build().compile(checkpointer=saver)
    over_http, in_process = await thread(client), str(uuid4())
    for text in ("one", "two"):
        await client.runs.wait(over_http, "agent", input=say(text))
        await graph.ainvoke(say(text), {"configurable": {"thread_id": in_process}})
    histories = [await client.threads.get_history(one, limit=100) for one in (over_http, in_process)]
    shapes = [[(one["next"], one["metadata"]["source"], _texts(one)) for one in history] for history in histories]
    assert shapes[0] == shapes[1]
    await graph.ainvoke(say("three"), {"configurable": {"thread_id": over_http}})
    values: Any = await client.runs.wait(in_process, "agent", input=say("three"))
    assert values["n"] == 3 == (await client.threads.get_state(over_http))["values"]["n"]


def _texts(state: Any) -> list[str]:
    return [one["content"] for one in state["values"].get("messages", [])]


async def test_runs_are_recorded_on_the_chat_of_their_thread(client: Any, url: str) -> None:
    """NS-35 to NS-39: with the checkpoint to fork from."""
    thread_id = await thread(client)
    run = await client.runs.create(thread_id, "agent", input=say("hi"))
    await client.runs.join(thread_id, run["run_id"])
    (found,) = await LEDGERS[url].runs(thread_id)
    state = await client.threads.get_state(thread_id)
    assert (found.run_id, found.status, found.assistant_id) == (run["run_id"], "completed", "agent")
    assert found.checkpoint_id == state["checkpoint"]["checkpoint_id"]


async def test_what_cannot_be_done_is_refused(client: Any, url: str) -> None:
    thread_id = await thread(client)
    refusals: list[tuple[Any, dict[str, Any]]] = [
        (UnprocessableEntityError, {"webhook": "https://example.com"}),
        (UnprocessableEntityError, {"assistant_id": "nope"}),
        (NotFoundError, {"assistant_id": str(uuid4())}),
        (UnprocessableEntityError, {"stream_mode": "nope"}),
        (UnprocessableEntityError, {"after_seconds": -1}),
        (UnprocessableEntityError, {"config": {"configurable": 1}}),
        (UnprocessableEntityError, {"checkpoint": {"checkpoint_id": 1}}),
    ]
    for error, body in refusals:
        with pytest.raises(error):
            await client.http.post(f"/threads/{thread_id}/runs", json={"assistant_id": "agent", **body})
    with pytest.raises(NotFoundError, match="Thread or assistant not found"):
        await client.runs.create(str(uuid4()), "agent", input={})
    assert await client.runs.list(thread_id) == []
    assert await client.runs.wait(str(uuid4()), "agent", input=say("hi"), if_not_exists="create")
    run = await client.runs.create(thread_id, "agent", input=say("hi"))
    async with httpx.AsyncClient(base_url=url) as raw:
        path = f"/threads/{thread_id}/runs/{run['run_id']}/stream"
        assert (await raw.get(path, headers={"Last-Event-ID": "x"})).status_code == 422
        unknown = {"assistant_id": "agent", "input": say("hi"), "of_next_month": 1}
        assert (await raw.post(f"/threads/{thread_id}/runs/wait", json=unknown)).status_code == 200


async def test_runs_of_others_do_not_exist(url: str) -> None:
    """NS-40: neither to be read, nor followed, nor ended."""
    headers = {"x-user": "ada"}, {"x-user": "bob"}
    async with get_client(url=url, headers=headers[0]) as ada, get_client(url=url, headers=headers[1]) as bob:
        await refuse_bob(ada, bob)


async def follow_thread(client: Any, thread_id: str) -> list[Any]:
    return await read(await client.threads.join_stream(thread_id))


async def refuse_bob(ada: Any, bob: Any) -> None:
    thread_id = await thread(ada)
    run = await ada.runs.create(thread_id, "agent", input=say("hi"))
    await ada.runs.join(thread_id, run["run_id"])
    run_id = run["run_id"]
    asking: list[Callable[[], Awaitable[Any]]] = [
        lambda: bob.runs.get(thread_id, run_id),
        lambda: bob.runs.join(thread_id, run_id),
        lambda: bob.runs.cancel(thread_id, run_id),
        lambda: bob.runs.delete(thread_id, run_id),
        lambda: bob.runs.list(thread_id),
        lambda: bob.runs.create(thread_id, "agent", input=say("x")),
        lambda: read(bob.runs.join_stream(thread_id, run_id)),
        lambda: follow_thread(bob, thread_id),
    ]
    for ask in asking:
        with pytest.raises((NotFoundError, httpx.HTTPStatusError), match="not found"):
            await ask()
    assert len(await ada.runs.list(thread_id)) == 1


def test_the_blocking_client(url: str) -> None:
    client: Any
    with get_sync_client(url=url) as client:
        thread_id = client.threads.create()["thread_id"]
        assert client.runs.wait(thread_id, "agent", input=say("hi"))["n"] == 1
        assert [one.event for one in client.runs.stream(thread_id, "agent", input=say("hi"))][-1] == "end"


async def test_a_deleted_thread_ends_its_runs(client: Any) -> None:
    thread_id, name = await thread(client), gate()
    run = await client.runs.create(thread_id, "agent", input=say(f"wait {name}"))
    await begun(name)
    following = asyncio.create_task(read(client.runs.join_stream(thread_id, run["run_id"])))
    await client.threads.delete(thread_id)
    with pytest.raises(NotFoundError):
        await client.runs.get(thread_id, run["run_id"])
    await asyncio.wait_for(asyncio.gather(following, return_exceptions=True), 10)


async def test_a_server_that_stops_says_how_its_runs_ended() -> None:
    """They have failed, and their streams end; another server tells of it, and a new run goes on from the last checkpoint."""
    client: Any
    async with chatledger.open_async("memory:") as ledger:
        name = gate()
        app = create_app(ledger, graphs={"agent": agent})
        with serving(app) as url:
            async with get_client(url=url) as client:
                thread_id = await thread(client)
                run = await client.runs.create(thread_id, "agent", input=say(f"wait {name}"))
                await begun(name)
        app = create_app(ledger, graphs={"agent": agent})
        with serving(app) as url:
            async with get_client(url=url) as client:
                assert (await client.runs.get(thread_id, run["run_id"]))["status"] == "error"
                found = await read(client.runs.join_stream(thread_id, run["run_id"]))
                GATES[name].set()
                values: Any = await client.runs.wait(thread_id, "agent", input=None)
    assert [one["content"] for one in values["messages"]] == [f"wait {name}", f"echo: wait {name}"]
    assert [event for _, event, _ in found][-2:] == ["error", "end"]
    assert found[-2][2]["error"] == "RunStoppedError"


async def test_who_follows_a_run_of_a_server_that_stops_is_told_its_end() -> None:
    """A body that ends in order is taken for a whole answer, so `error` and `end` are in it."""
    async with chatledger.open_async("memory:") as ledger:
        name = gate()
        async with httpx.AsyncClient(timeout=10) as raw:
            with serving(create_app(ledger, graphs={"agent": agent})) as url:
                thread_id = (await raw.post(f"{url}/threads", json={})).json()["thread_id"]
                body = {"assistant_id": "agent", "input": say(f"wait {name}")}
                following = asyncio.create_task(raw.post(f"{url}/threads/{thread_id}/runs/stream", json=body))
                await begun(name)
            text = (await following).text
    GATES[name].set()
    assert [line for line in text.splitlines() if line.startswith("event: ")][-2:] == ["event: error", "event: end"]


@pytest.mark.guard
@pytest.mark.parametrize(("way", "end"), [("stream", "event: end"), ("join", '"n":1')])
async def test_who_waits_at_a_server_that_stops_asks_the_next_one(
    monkeypatch: pytest.MonkeyPatch, way: str, end: str
) -> None:
    """The run goes on at another server: the connection is broken off, as its body has no end; and the other is not held up."""
    monkeypatch.setattr(run_streams, "STOPPING_S", 0.3)
    async with chatledger.open_async("memory:") as ledger:
        name = gate()
        with serving(create_app(ledger, graphs={"agent": agent})) as url:
            async with get_client(url=url) as client, httpx.AsyncClient(timeout=10) as raw:
                thread_id = await thread(client)
                run = await client.runs.create(thread_id, "agent", input=say(f"wait {name}"))
                await begun(name)
                path = f"/threads/{thread_id}/runs/{run['run_id']}/{way}"
                with serving(create_app(ledger, graphs={"agent": agent})) as other_url:
                    waiting = asyncio.create_task(raw.get(other_url + path))
                    await asyncio.sleep(0.2)
                assert isinstance((await asyncio.gather(waiting, return_exceptions=True))[0], httpx.TransportError)
                GATES[name].set()
                assert end in (await raw.get(url + path)).text


@pytest.mark.guard
async def test_two_servers_share_the_runs_of_a_thread(client: Any, url: str) -> None:
    """Each reads, waits for, refuses beside, and ends those of the other."""
    app = create_app(LEDGERS[url], graphs={"agent": agent}, authenticate=who)
    with serving(app) as other_url:
        async with get_client(url=other_url) as other:
            thread_id, name = await thread(client), gate()
            run = await client.runs.create(thread_id, "agent", input=say(f"wait {name}"))
            await begun(name)
            assert (await other.runs.get(thread_id, run["run_id"]))["status"] == "running"
            with pytest.raises(ConflictError):
                await other.runs.create(thread_id, "agent", input=say("x"), multitask_strategy="reject")
            later = await other.runs.create(thread_id, "agent", input=say("later"))
            following = asyncio.create_task(read(other.runs.join_stream(thread_id, run["run_id"])))
            GATES[name].set()
            assert await read(client.runs.join_stream(thread_id, later["run_id"]))
            found = await following
            assert found == await read(client.runs.join_stream(thread_id, run["run_id"]))
            values: Any = await client.runs.join(thread_id, later["run_id"])
            texts = [one["content"] for one in values["messages"]]
            assert texts == [f"wait {name}", f"echo: wait {name}", "later", "echo: later"]
            name = gate()
            run = await client.runs.create(thread_id, "agent", input=say(f"wait {name}"))
            await begun(name)
            await other.runs.cancel(thread_id, run["run_id"], wait=True)
            assert (await client.runs.get(thread_id, run["run_id"]))["status"] == "interrupted"
