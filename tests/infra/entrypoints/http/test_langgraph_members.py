"""Several users and agents on one thread of LangGraph's API, each with a token of their own: what each role may do there."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import httpx
import pytest
from langgraph_sdk.errors import NotFoundError, PermissionDeniedError
from tests.infra.entrypoints.http.test_langgraph_api_access import BODIES
from tests.support.cases import case
from tests.support.http_world import serving
from tests.support.langgraph_client import Client, echo, sdk

import chatledger
from chatledger import AsyncLedger
from chatledger.infra.entrypoints.http.langgraph_api import ROUTES
from chatledger.infra.entrypoints.http.routing import Route
from chatledger.server import Principal, create_app

API: Final = "/api/v1"
USERS: Final = frozenset({"ann", "bob", "agent-a", "agent-b", "rea", "gone", "eve", "mo"})


def slow() -> Any:
    """A graph that works for a long time, and says something every now and then."""

    async def run(given: Any, config: Any) -> Any:
        import asyncio

        del given, config
        for number in range(600):
            yield {"event": "values", "data": {"n": number}}
            await asyncio.sleep(0.05)

    return run


def who(headers: Mapping[str, str]) -> Principal | None:
    """The token is the name of the user or of the agent."""
    name = headers.get("x-api-key", "")
    return Principal(name, frozenset({"read", "write"}), name) if name in USERS else None


@pytest.fixture(scope="module")
def ledger() -> AsyncLedger:
    return chatledger.open_async("memory:")


@pytest.fixture(scope="module")
def url(ledger: AsyncLedger) -> Iterator[str]:
    with serving(create_app(ledger, authenticate=who, graphs={"a": echo(), "b": echo(), "slow": slow()})) as url:
        yield url
    ledger.blocking().close()


@pytest.fixture(scope="module")
def clients(url: str) -> Iterator[Callable[[str], httpx.Client]]:
    made: dict[str, httpx.Client] = {}

    def client(name: str) -> httpx.Client:
        if name not in made:
            made[name] = httpx.Client(base_url=url, headers={"x-api-key": name}, timeout=60)
        return made[name]

    yield client
    for one in made.values():
        one.close()


Clients = Callable[[str], httpx.Client]


def run(client: httpx.Client, thread_id: str, agent: str, text: str, **more: Any) -> list[str]:
    """Run an agent on a thread; returns the texts that it remembers."""
    body = {"assistant_id": agent, "input": {"messages": [{"role": "user", "content": text}]}, **more}
    answer = client.post(f"/threads/{thread_id}/runs/wait", json=body)
    assert answer.status_code == 200, answer.text
    return [message["content"] for message in answer.json()["messages"]]


def triggered(message_id: str) -> Any:
    return {"configurable": {"trigger_message_id": message_id}}


def memory(client: httpx.Client, thread_id: str, agent: str) -> list[str]:
    answer = client.get(f"/threads/{thread_id}/state", params={"assistant_id": agent})
    assert answer.status_code == 200, answer.text
    return [message["content"] for message in answer.json()["values"].get("messages", [])]


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_two_users_and_two_agents_in_one_thread(clients: Clients, ledger: AsyncLedger) -> None:
    """
    The multi-user, multi-agent thread: Ann asks A, Bob asks B, the agents go on by tokens of their own, and all see all of it.

    Each message, run and state is on one thread and in one chat, whose owner is Ann.
    """
    ann, bob, a, b, eve = map(clients, ("ann", "bob", "agent-a", "agent-b", "eve"))
    named = {"metadata": {"members": ["bob", "agent-a", "agent-b"], "topic": "trip"}}
    made = ann.post("/threads", json={"thread_id": "t", **named}).json()
    assert made["metadata"] == {"topic": "trip"}  # one truth: who belongs to it is among the events of the chat
    roles = {one["user_id"]: one["role"] for one in bob.get(f"{API}/chats/t/members").json()}
    assert roles == {"bob": "writer", "agent-a": "writer", "agent-b": "writer"}

    message = {"messages": [{"id": "m1", "name": "user", "data": "where to?", "sender_id": "ann"}]}
    ann.post(f"{API}/chats/t/messages", json=message).raise_for_status()
    assert run(ann, "t", "a", "where to?", config=triggered("m1")) == ["where to?", "echo: where to?"]
    message = {"messages": [{"id": "m2", "name": "user", "data": "how?", "sender_id": "bob"}]}
    bob.post(f"{API}/chats/t/messages", json=message).raise_for_status()
    assert run(bob, "t", "b", "how?", config=triggered("m2")) == ["how?", "echo: how?"]
    assert run(a, "t", "a", "by train?")[-1] == "echo: by train?"
    assert run(b, "t", "b", "at nine?")[-1] == "echo: at nine?"

    for client in (ann, bob, a, b):
        assert memory(client, "t", "a") == ["where to?", "echo: where to?", "by train?", "echo: by train?"]
        assert memory(client, "t", "b") == ["how?", "echo: how?", "at nine?", "echo: at nine?"]
        said = [one["message"]["name"] for one in client.get(f"{API}/chats/t/messages").json()["entries"]]
        assert said == ["user", "assistant", "user", "assistant"]
        assert len(client.get("/threads/t/runs").json()) == 4
        assert [one["thread_id"] for one in client.post("/threads/search", json={}).json()] == ["t"]
        assert client.post("/threads/count", json={}).json() == 1
        assert client.post("/threads/t/history", json={"limit": 20}).status_code == 200
        assert {hit["message"]["id"] for hit in client.get(f"{API}/search", params={"q": "how"}).json()["hits"]} >= {
            "m2"
        }
    actors = {one.actor for one in ledger.blocking().history("t")}
    assert actors == {"ann", "bob", "agent-a", "agent-b"}
    assert ledger.blocking().owner_of("t") == "ann"
    assert eve.post("/threads/search", json={}).json() == []
    assert eve.get("/threads/t").status_code == 404


def test_an_assistant_of_one_member_is_seen_by_the_others(clients: Clients) -> None:
    """What it remembers is read from the thread, whoever made the assistant; only its maker runs it."""
    ann, bob = clients("ann"), clients("bob")
    ann.post("/threads", json={"thread_id": "own agent", "metadata": {"members": {"bob": "writer"}}})
    for client, name in ((ann, "of-ann"), (bob, "of-bob")):
        client.post("/assistants", json={"graph_id": "a", "assistant_id": name}).raise_for_status()
        assert run(client, "own agent", name, f"I am {name}")
    states = [client.get("/threads/own agent/state").json() for client in (ann, bob)]
    assert [state["values"]["messages"][0]["content"] for state in states] == ["I am of-bob", "I am of-bob"]
    body = {"assistant_id": "of-ann", "input": {"messages": [{"role": "user", "content": "x"}]}}
    assert bob.post("/threads/own agent/runs/wait", json=body).status_code in {404, 422}


@pytest.fixture(scope="module")
def shared(clients: Clients) -> str:
    """A thread of Ann's that Rea reads, and Gone wrote to before she removed them; a run of Ann's is at work on it."""
    ann = clients("ann")
    ann.post("/threads", json={"thread_id": "hers", "metadata": {"members": {"rea": "reader", "gone": "writer"}}})
    run(ann, "hers", "a", "secret tea")
    run(clients("gone"), "hers", "a", "I was here")
    ann.delete(f"{API}/chats/hers/members/gone").raise_for_status()
    return "hers"


OF_THREADS: Final = [route for route in ROUTES if "{thread_id}" in route.path]


def ask(client: httpx.Client, route: Route, thread_id: str) -> tuple[int, str]:
    path = route.path.replace("{thread_id}", thread_id).replace("{", "").replace("}", "")
    bodies = {**BODIES, "/threads/{thread_id}/runs": {"assistant_id": "a", "input": {}}}
    body = bodies.get(route.path, {"version": 1, "metadata": {"x": 1}})
    body = {**body, "assistant_id": "a"} if "assistant_id" in body else body
    answer = client.request(route.method, path, json=None if route.method in {"GET", "DELETE"} else body)
    return answer.status_code, answer.text.replace(thread_id, "ID")


@pytest.mark.parametrize("route", OF_THREADS, ids=lambda route: f"{route.method} {route.path}")
def test_who_was_removed_is_a_stranger(shared: str, clients: Clients, route: Route, ledger: AsyncLedger) -> None:
    position = ledger.blocking().last_position()
    theirs = ask(clients("gone"), route, shared)

    assert "tea" not in theirs[1]
    assert theirs == ask(clients("gone"), route, "none")
    assert position == ledger.blocking().last_position()


READING: Final = {"POST /threads/{thread_id}/history", "POST /threads/{thread_id}/state/checkpoint"}
"""Routes that read, whatever their method is."""
COPYING: Final = {"POST /threads/{thread_id}/copy"}
LOOKING_FIRST: Final = {
    "PATCH /threads/{thread_id}/state",
    *("DELETE /threads/{thread_id}/runs/{run_id}", "POST /threads/{thread_id}/runs/{run_id}/cancel"),
    *("POST /threads/{thread_id}/commands", "POST /threads/{thread_id}/stream/events"),
    *("POST /threads/{thread_id}/runs/crons", "POST /threads/{thread_id}/regenerations/{regeneration_id}/runs"),
}
"""Routes that say first that there is no such run, or that it is nothing they do."""


@pytest.mark.parametrize("route", OF_THREADS, ids=lambda route: f"{route.method} {route.path}")
def test_a_reader_changes_nothing(shared: str, clients: Clients, route: Route, ledger: AsyncLedger) -> None:
    name, rea = f"{route.method} {route.path}", clients("rea")
    if route.path.endswith(("/stream", "/stream/events")) and "runs" not in route.path:
        pytest.skip("it goes on for ever; it is followed below")
    before = list(ledger.blocking().history(shared))
    status, text = ask(rea, route, shared)

    if route.method == "GET" or name in READING | COPYING:
        assert status in {200, 404, 422}, text
    elif name in LOOKING_FIRST:
        assert status in {200, 404, 422, 501}, text
    else:
        assert status == 403, text
        assert "othing was written" in text
    assert before == list(ledger.blocking().history(shared))


def test_a_copy_is_its_makers(shared: str, clients: Clients) -> None:
    """A reader takes what was said and remembered along, and nobody else is let in."""
    rea, ann = clients("rea"), clients("ann")
    copied = rea.post(f"/threads/{shared}/copy").json()["thread_id"]

    assert memory(rea, copied, "a") == memory(ann, shared, "a")
    assert rea.get(f"{API}/chats/{copied}/members").json() == []
    assert ann.get(f"/threads/{copied}").status_code == 404
    assert run(rea, copied, "a", "mine")[-1] == "echo: mine"


def begin(client: httpx.Client, thread_id: str) -> str:
    answer = client.post(f"/threads/{thread_id}/runs", json={"assistant_id": "slow", "input": {}})
    assert answer.status_code == 200, answer.text
    found: str = answer.json()["run_id"]
    return found


def test_a_reader_ends_no_run(clients: Clients) -> None:
    """Neither by a cancel, nor by one on disconnect, nor by a run of their own that would take its place."""
    ann, rea = clients("ann"), clients("rea")
    ann.post("/threads", json={"thread_id": "busy", "metadata": {"members": {"rea": "reader"}}})
    run_id = begin(ann, "busy")
    place = f"/threads/busy/runs/{run_id}"
    until(lambda: ann.get(place).json()["status"] == "running")
    attempts: list[tuple[str, str, Any]] = [
        ("POST", f"{place}/cancel", {}),
        ("POST", f"{place}/cancel?action=rollback", {}),
        ("DELETE", place, None),
        ("POST", "/runs/cancel", {"thread_id": "busy", "run_ids": [run_id]}),
        ("POST", "/runs/cancel", {"status": "all"}),
        ("GET", f"{place}/stream?cancel_on_disconnect=true", None),
        ("GET", f"{place}/join?cancel_on_disconnect=true", None),
        ("POST", "/threads/busy/runs", {"assistant_id": "a", "input": {}, "multitask_strategy": "interrupt"}),
        ("POST", "/threads/busy/runs", {"assistant_id": "slow", "input": {}, "multitask_strategy": "rollback"}),
    ]
    for method, path, body in attempts:
        with case(f"{method} {path}"):
            assert rea.request(method, path, json=body).status_code == 403
    assert ann.get(place).json()["status"] == "running"
    assert len(rea.get("/threads/busy/runs").json()) == 1
    ann.post(f"{place}/cancel").raise_for_status()
    until(lambda: rea.get(place).json()["status"] == "interrupted")


def test_who_is_removed_sees_no_more_of_a_run(clients: Clients) -> None:
    """The stream of a run, and that of a thread, which are open end or show nothing more; and what was joined ends."""
    ann, mo = clients("ann"), clients("mo")
    ann.post("/threads", json={"thread_id": "watched", "metadata": {"members": {"mo": "reader"}}})
    run_id = begin(ann, "watched")
    seen: dict[str, list[str]] = {"run": [], "thread": [], "protocol": []}

    def read(name: str, method: str, path: str, body: Any) -> None:
        with mo.stream(method, path, json=body) as opened:
            seen[name] += opened.iter_lines()

    readers = [
        threading.Thread(target=read, args=("run", "GET", f"/threads/watched/runs/{run_id}/stream", None)),
        threading.Thread(target=read, args=("thread", "GET", "/threads/watched/stream", None)),
        threading.Thread(
            target=read, args=("protocol", "POST", "/threads/watched/stream/events", {"channels": ["values"]})
        ),
    ]
    for reader in readers:
        reader.daemon = True
        reader.start()
    until(lambda: ann.get(f"/threads/watched/runs/{run_id}").json()["status"] == "running")
    time.sleep(0.3)
    ann.delete(f"{API}/chats/watched/members/mo").raise_for_status()
    for reader in readers:
        reader.join(30)
        assert not reader.is_alive()
    assert ann.get(f"/threads/watched/runs/{run_id}").json()["status"] == "running"
    assert mo.get(f"/threads/watched/runs/{run_id}").status_code == 404
    ann.post(f"/threads/watched/runs/{run_id}/cancel").raise_for_status()


@pytest.mark.parametrize("to", ["removed", "reader"])
def test_a_run_of_who_may_not_write_any_more_ends(clients: Clients, to: str) -> None:
    """Also one that is at work, whose stream takes nothing more; the thread goes on for the others."""
    ann, mo = clients("ann"), clients("mo")
    thread_id = f"left {to}"
    ann.post("/threads", json={"thread_id": thread_id, "metadata": {"members": ["mo"]}})
    run_id = begin(mo, thread_id)
    place = f"/threads/{thread_id}/runs/{run_id}"
    until(lambda: ann.get(place).json()["status"] == "running")
    if to == "removed":
        ann.delete(f"{API}/chats/{thread_id}/members/mo").raise_for_status()
    else:
        ann.put(f"{API}/chats/{thread_id}/members/mo", json={"role": "reader"}).raise_for_status()

    until(lambda: ann.get(place).json()["status"] == "interrupted")
    assert run(ann, thread_id, "a", "go on") == ["go on", "echo: go on"]


def test_members_in_the_metadata(clients: Clients) -> None:
    """On creation and by a change, of the owner alone; anything else of that name is metadata as any other."""
    ann, bob = clients("ann"), clients("bob")

    def roles(thread_id: str) -> dict[str, str]:
        return {one["user_id"]: one["role"] for one in ann.get(f"{API}/chats/{thread_id}/members").json()}

    ann.post("/threads", json={"thread_id": "meta", "metadata": {"members": ["ann", "bob"], "x": 1}})
    assert roles("meta") == {"bob": "writer"}
    changed = ann.patch("/threads/meta", json={"metadata": {"members": {"rea": "reader"}, "y": 2}}).json()
    assert changed["metadata"] == {"x": 1, "y": 2}
    assert roles("meta") == {"rea": "reader"}
    assert bob.get("/threads/meta").status_code == 404
    assert ann.patch("/threads/meta", json={"metadata": {"z": 3}}).status_code == 200
    assert roles("meta") == {"rea": "reader"}
    ann.patch("/threads/meta", json={"metadata": {"members": ["bob"]}})
    assert bob.patch("/threads/meta", json={"metadata": {"members": ["bob", "eve"]}}).status_code == 403
    assert bob.patch("/threads/meta", json={"metadata": {"w": 4}}).status_code == 200
    assert roles("meta") == {"bob": "writer"}
    for other in ([{"name": "Bob"}], {"bob": "boss"}, "bob", 3):
        made = ann.post("/threads", json={"metadata": {"members": other}}).json()
        assert made["metadata"] == {"members": other}
        assert roles(made["thread_id"]) == {}
    assert ann.post("/threads", json={"metadata": {"members": [""]}}).status_code == 422


def test_members_by_langgraphs_own_client(url: str) -> None:
    """What the SDK raises is what it raises for any thread that is not there, or that one may not change."""
    with sdk(url, key="ann") as ann, sdk(url, key="rea") as rea, sdk(url, key="eve") as eve:
        ann.threads.create(thread_id="by sdk", graph_id="a", metadata={"members": {"rea": "reader"}})
        assert rea.threads.get("by sdk")["thread_id"] == "by sdk"
        _refused(rea, PermissionDeniedError)
        _refused(eve, NotFoundError)


def _refused(client: Client, error: type[Exception]) -> None:
    with pytest.raises(error):
        client.threads.update("by sdk", metadata={"x": 1})
    with pytest.raises(error):
        client.threads.update_state("by sdk", {"messages": []}, as_node="__start__")
    with pytest.raises(error):
        client.threads.delete("by sdk")
