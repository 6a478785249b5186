"""Agents of one thread: each has a queue of its own, whatever becomes of the others, and of their server."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from langgraph_sdk import get_sync_client
from langgraph_sdk.errors import ConflictError
from tests.support.http_world import API, serving
from tests.support.killed_server import KilledServer
from tests.support.run_graphs import BEGUN, GATES, agent, say
from tests.support.soak import IS_SOAK

import chatledger
from chatledger.server import create_app

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROUNDS, EVERY = (200, 20) if IS_SOAK else (5, 6)
"""Messages to each of two agents, and after how many of both the server is killed."""
SAID = {"a": "hi", "b": "ask"}
"""The message to each agent; the second one asks something before it answers."""


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    client: Any
    app = create_app(chatledger.open_async("memory:"), graphs={"a": agent, "b": agent})
    with serving(app) as url, get_sync_client(url=url) as client:
        yield client


@pytest.mark.guard
@pytest.mark.parametrize("strategy", ["enqueue", "reject", "interrupt", "rollback"])
def test_what_becomes_of_runs_concerns_those_of_the_same_agent(client: Any, strategy: Any) -> None:
    """NS-51: the other agent's run neither waits for them, nor is it refused or ended; nor is its state closed to updates."""
    thread_id = client.threads.create()["thread_id"]
    name, late = f"a {strategy}", f"late {strategy}"
    slow = client.runs.create(thread_id, "a", input=say(f"wait {name}"))
    assert BEGUN[name].wait(10)
    values = client.runs.wait(thread_id, "b", input=say("hi"), multitask_strategy=strategy)
    assert [message["content"] for message in values["messages"]] == ["hi", "echo: hi"]
    own = {"checkpoint_ns": "assistant:b"}
    client.threads.update_state(thread_id, say("a note"), as_node="check", checkpoint=own)
    with pytest.raises(ConflictError, match=slow["run_id"]):
        client.threads.update_state(thread_id, say("no"), as_node="check", checkpoint={"checkpoint_ns": "assistant:a"})
    assert client.runs.get(thread_id, slow["run_id"])["status"] == "running"

    other = client.runs.create(thread_id, "b", input=say(f"wait {late}"))
    assert BEGUN[late].wait(10)
    if strategy == "reject":
        with pytest.raises(ConflictError):
            client.runs.create(thread_id, "a", input=say("more"), multitask_strategy=strategy)
    else:
        more = client.runs.create(thread_id, "a", input=say("more"), multitask_strategy=strategy)
        if strategy == "enqueue":
            GATES[name].set()
        assert client.runs.join(thread_id, more["run_id"])["messages"][-1]["content"] == "echo: more"
    assert client.runs.get(thread_id, other["run_id"])["status"] == "running"
    for gate in (name, late):
        GATES[gate].set()
    assert client.runs.join(thread_id, other["run_id"])["messages"][-1]["content"] == f"echo: wait {late}"
    ended = {"enqueue": "success", "reject": "success", "interrupt": "interrupted", "rollback": None}[strategy]
    client.runs.join(thread_id, other["run_id"])
    if strategy == "reject":
        client.runs.join(thread_id, slow["run_id"])
    statuses = {run["run_id"]: run["status"] for run in client.runs.list(thread_id)}
    assert statuses.get(slow["run_id"]) == ended


def test_an_agent_whose_run_was_ended_asks_nothing(client: Any) -> None:
    """Nodes of it are left to run, as at a breakpoint. That does not interrupt the thread once another agent ran."""
    thread_id, name = client.threads.create()["thread_id"], "to be ended"
    run = client.runs.create(thread_id, "a", input=say(f"wait {name}"))
    assert BEGUN[name].wait(10)
    client.runs.cancel(thread_id, run["run_id"], wait=True)
    GATES[name].set()
    assert client.threads.get(thread_id)["status"] == "interrupted"
    client.runs.wait(thread_id, "b", input=say("hi"))
    assert client.threads.get(thread_id)["status"] == "idle"
    client.runs.wait(thread_id, "a", input=say("hi"), interrupt_before=["check"])
    client.runs.wait(thread_id, "b", input=say("hi"))
    assert client.threads.get(thread_id)["status"] == "interrupted"
    client.runs.wait(thread_id, "a", input=None)
    assert client.threads.get(thread_id)["status"] == "idle"


def talk(url: str, name: str, done: dict[str, int], failures: list[BaseException]) -> None:
    """Say so many things to an agent, each as soon as the last one has its answer; again when the server was killed meanwhile."""
    try:
        with httpx.Client(base_url=url, timeout=120) as http:
            for number in range(ROUNDS):
                while not answered(http, name, f"{SAID[name]} {number}"):
                    time.sleep(0.02)
                done[name] = number + 1
    except BaseException as failure:  # noqa: BLE001 - told by the test, which runs in another thread
        failures.append(failure)


def answered(http: httpx.Client, name: str, text: str) -> bool:
    """Say something to an agent, or answer what it asks; whether it has been said and answered before."""
    try:
        messages = {"messages": [{"name": "user", "data": text, "id": text}]}
        said = http.post(f"{API}/chats/t/messages", json=messages)
        assert said.status_code in {201, 409}, said.text
        runs = http.get(f"{API}/chats/t/runs", params={"trigger_message_id": text}).json()
        if any(run["status"] == "completed" for run in runs):
            return True
        if any(run["status"] in {"waiting", "running"} for run in runs):
            how: dict[str, Any] = {"command": {"resume": "yes"}}
        else:
            how = {"config": {"configurable": {"trigger_message_id": text}}}
        begun = http.post("/threads/t/runs/wait", json={"assistant_id": name, **how})
        assert begun.status_code == 200, begun.text
    except httpx.TransportError:
        pass
    return False


@pytest.mark.guard
@pytest.mark.timeout(1800)
def test_two_agents_work_on_one_thread_while_their_server_is_killed(tmp_path: Path) -> None:
    """
    NS-3, NS-50, NS-51: each message has one answer of the agent that it was said to, and each agent remembers what it was told.

    One of them asks something before each answer, and is killed in between, too.
    """
    location = f"sqlite:///{tmp_path / 'ledger.db'}"
    server = KilledServer(location, *(f"{name}=tests.support.run_graphs:asking" for name in SAID))
    done = dict.fromkeys(SAID, 0)
    failures: list[BaseException] = []
    talking = [threading.Thread(target=talk, args=(server.url, name, done, failures)) for name in done]
    with server:
        httpx.post(f"{server.url}{API}/chats", json={"id": "t"}).raise_for_status()
        for thread in talking:
            thread.start()
        for kill_at in range(EVERY, 2 * ROUNDS, EVERY):
            while sum(done.values()) < kill_at and not failures:
                time.sleep(0.005)
            server.kill()
            server.start()
        for thread in talking:
            thread.join()
        assert failures == []
        with httpx.Client(base_url=server.url, timeout=120) as http:
            for name, said in SAID.items():
                texts = [f"{said} {number}" for number in range(ROUNDS)]
                runs = http.get(f"{API}/chats/t/runs", params={"assistant_id": name, "status": "completed"}).json()
                runs = [run for run in runs if run["trigger_message_id"] is not None]  # others bring answers
                assert [run["trigger_message_id"] for run in runs] == texts
                answers = [http.get(f"{API}/messages/{run['message_id']}").json() for run in runs]
                assert [answer["text"] for answer in answers] == [f"{text}{' / yes' * (name == 'b')}" for text in texts]
                assert [(answer["agent_id"], answer["reply_to"]) for answer in answers] == [
                    (name, one) for one in texts
                ]
                state = http.get("/threads/t/state", params={"assistant_id": name}).json()
                assert [one["content"] for one in state["values"]["messages"] if one["type"] == "human"] == texts
            ended = http.get(f"{API}/chats/t/runs").json()
            assert {run["status"] for run in ended} <= {"completed", "error"}
    with chatledger.open(location) as ledger:
        ledger.verify()
