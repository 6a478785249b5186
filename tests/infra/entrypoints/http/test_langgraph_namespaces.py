"""Namespaces as they are asked for, checkpoints that are none, and what all agents of a thread did, over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest
from langgraph_sdk import get_sync_client
from tests.support.http_world import API, serving
from tests.support.run_graphs import agent

import chatledger
from chatledger.domain.versioned.record import BEGINNING
from chatledger.server import Principal, create_app

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    ledger = chatledger.open_async("memory:")
    app = create_app(ledger, graphs={"agent": agent}, authenticate=lambda headers: Principal(headers.get("x-user")))
    with serving(app) as url:
        yield url


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[Any]:
    client: Any
    with get_sync_client(url=url, headers={"x-user": "ada"}) as client:
        for assistant_id in ("A", "B"):
            client.assistants.create("agent", assistant_id=assistant_id)
        yield client


@pytest.fixture(scope="module")
def http(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, headers={"x-user": "ada"}, timeout=30) as http:
        yield http


def ask(http: httpx.Client, thread_id: str, assistant_id: str, text: str, **more: Any) -> httpx.Response:
    given = {"input": {"messages": [{"role": "user", "content": text}]}, "if_not_exists": "create", **more}
    return http.post(f"/threads/{thread_id}/runs/wait", json={"assistant_id": assistant_id, **given})


def say(http: httpx.Client, thread_id: str, assistant_id: str, text: str, **more: Any) -> None:
    answer = ask(http, thread_id, assistant_id, text, **more)
    assert answer.status_code == 200, answer.text


def heard(state: Any) -> list[str]:
    return [message["content"] for message in state["values"].get("messages", []) if message["type"] == "human"]


def newest(http: httpx.Client, thread_id: str, namespace: str) -> list[str]:
    return heard(http.get(f"/threads/{thread_id}/state", params={"checkpoint_ns": namespace}).json())


def test_a_run_is_in_the_namespace_that_it_asks_for(client: Any, http: httpx.Client) -> None:
    """NS-7: so are its state, its history and what is written to it; it begins at a checkpoint of that namespace."""
    say(http, "asked", "A", "one")
    say(http, "asked", "A", "two", config={"configurable": {"checkpoint_ns": "run:1"}})
    first = http.get("/threads/asked/state", params={"checkpoint_ns": "run:1"}).json()
    say(http, "asked", "A", "three", checkpoint={"checkpoint_ns": "run:1"})
    say(http, "asked", "A", "four", checkpoint={"checkpoint_ns": "run:1", "checkpoint_id": first["checkpoint_id"]})

    assert (["one"], ["two", "four"]) == (newest(http, "asked", "assistant:A"), newest(http, "asked", "run:1"))
    history = http.get("/threads/asked/history", params={"checkpoint_ns": "run:1", "limit": 100}).json()
    assert {"run:1"} == {state["checkpoint_ns"] for state in history}
    assert ["two", "three"] in [heard(state) for state in history]
    note = {"values": {"messages": [{"role": "user", "content": "a note"}]}, "as_node": "check"}
    written = http.post("/threads/asked/state", json={**note, "checkpoint": {"checkpoint_ns": "run:1"}})
    assert 200 == written.status_code, written.text
    assert ["two", "four", "a note"] == newest(http, "asked", "run:1")
    assert ["one"] == heard(client.threads.get_state("asked"))


@pytest.mark.parametrize("namespace", ["assistant:B", "assistant:A|part", "assistant:", 5, "x" * 3_000])
def test_a_namespace_that_a_run_cannot_be_in_is_refused(client: Any, http: httpx.Client, namespace: Any) -> None:
    say(http, "refused", "A", "one")
    before = http.get(API + "/position").json()
    refused = ask(http, "refused", "A", "two", config={"configurable": {"checkpoint_ns": namespace}})
    assert (422, True) == (refused.status_code, "namespace" in refused.text or "checkpoint_ns" in refused.text)
    assert before == http.get(API + "/position").json()


def test_a_message_sets_a_run_off_in_the_namespace_that_it_asks_for(client: Any, http: httpx.Client) -> None:
    """NS-46: its repetition is in the same one."""
    http.post(API + "/chats", json={"id": "chat"})
    http.post(API + "/chats/chat/messages", json={"messages": [{"id": "chat.q", "name": "user", "data": "one"}]})
    configurable = {"trigger_message_id": "chat.q", "checkpoint_ns": "shared"}
    run = client.runs.create("chat", "A", config={"configurable": configurable})
    client.runs.join("chat", run["run_id"])
    new = {"id": "chat.new", "name": "user", "data": "one, edited", "parent_id": None}
    http.post(API + "/chats/chat/nodes", json={"messages": [new]})
    plan = http.get(API + "/chats/chat/regeneration-plan", params={"message_id": "chat.q"}).json()
    body = {"plan": plan, "new_message_id": "chat.new"}
    edit = http.post(API + "/chats/chat/regenerations", json=body).json()
    [again] = client.http.post(f"/threads/chat/regenerations/{edit['id']}/runs", json=None)
    client.runs.join("chat", again["run_id"])

    assert ["one, edited"] == newest(http, "chat", "shared")
    versions = http.get(API + "/threads/chat/versions").json()["versions"]
    assert {("shared", None)} == {(one["namespace"], one["assistant_id"]) for one in versions}


def test_a_checkpoint_that_is_none_is_refused(client: Any, http: httpx.Client) -> None:
    """NS-26: an unknown one, another agent's, a pruned one; for runs and for updates. Nothing is written, no thread is made."""
    say(http, "none", "A", "one")
    pruned = client.threads.get_history("none", limit=100)[-1]["checkpoint_id"]
    client.threads.prune(["none"], strategy="keep_latest")
    say(http, "none", "B", "I am B")
    foreign = http.get("/threads/none/state", params={"assistant_id": "B"}).json()["checkpoint_id"]
    before, answers = http.get(API + "/position").json(), list[httpx.Response]()
    for checkpoint_id in ("nope", foreign, pruned):
        places: list[dict[str, Any]] = [
            {"checkpoint_id": checkpoint_id},
            {"checkpoint": {"checkpoint_id": checkpoint_id, "checkpoint_ns": ""}},
            {"config": {"configurable": {"checkpoint_id": checkpoint_id}}},
        ]
        answers += [ask(http, "none", "A", "two", **more) for more in places]
        resume = {"input": None, "command": {"resume": "yes"}, "checkpoint_id": checkpoint_id}
        answers.append(ask(http, "none", "A", "", **resume))
        body: dict[str, Any] = {"values": None, "checkpoint_id": checkpoint_id, "as_node": "__copy__"}
        for more in (body, {**body, "values": {"messages": []}, "as_node": "check"}):
            answers.append(http.post("/threads/none/state", params={"assistant_id": "A"}, json=more))
    answers.append(ask(http, "never made", "A", "two", checkpoint_id="nope"))
    for answer in answers:
        assert (404, True) == (answer.status_code, "in the namespace 'assistant:A'" in answer.text), answer.text
    assert before == http.get(API + "/position").json()
    assert 404 == http.get("/threads/never made").status_code
    assert ["one"] == newest(http, "none", "assistant:A")


def test_whoever_names_the_beginning_begins_with_nothing(client: Any, http: httpx.Client) -> None:
    say(http, "anew", "A", "one")
    say(http, "anew", "A", "two", checkpoint_id=BEGINNING)
    assert ["two"] == newest(http, "anew", "assistant:A")
    assert ["one"] in [heard(state) for state in client.threads.get_history("anew", limit=100)]


def test_an_unknown_cursor_is_an_error(client: Any, http: httpx.Client) -> None:
    say(http, "paged", "A", "one")
    for path, cursor, status in (
        ("/threads/paged/history", "nope", 404),
        ("/threads/paged/history?all_namespaces=true", "nope", 404),
        (f"{API}/threads/paged/versions", "nope", 422),
        (f"{API}/threads/paged/versions", '["nope","assistant:A"]', 404),
        (f"{API}/threads/paged/versions", "[]", 422),
    ):
        answer = http.get(path, params={"before": cursor} | ({"all_namespaces": True} if "?" in path else {}))
        assert (status, True) == (answer.status_code, "nope" in answer.text or cursor == "[]"), path


def test_what_all_agents_of_a_thread_did(client: Any, http: httpx.Client, url: str) -> None:
    """NS-52: each with its namespace and assistant, the newest first, page by page; another user's is as absent."""
    say(http, "all", "A", "to A")
    say(http, "all", "B", "to B")
    say(http, "all", "A", "apart", config={"configurable": {"checkpoint_ns": "run:1"}})
    states = http.get("/threads/all/history", params={"all_namespaces": True, "limit": 100}).json()
    whole = http.get(API + "/threads/all/versions").json()
    pages: list[Any] = []
    cursor: dict[str, str] = {}
    while not pages or cursor["before"] is not None:
        page = http.get(API + "/threads/all/versions", params={"limit": 2, **cursor}).json()
        pages.append(page["versions"])
        cursor = {"before": page["next"]}

    assert [2, 2, 2, 2, 2, 2] == list(map(len, pages))
    versions = [one for page in pages for one in page]
    assert whole == {"versions": versions, "next": None}
    assert [state["checkpoint_id"] for state in states] == [one["id"] for one in versions]
    assert [state["checkpoint_ns"] for state in states] == [one["namespace"] for one in versions]
    assert [("run:1", None)] * 4 + [("assistant:B", "B")] * 4 + [("assistant:A", "A")] * 4 == [
        (one["namespace"], one["assistant_id"]) for one in versions
    ]
    assert (["apart"], ["to A"]) == (heard(states[0]), heard(states[8]))
    assert versions[1]["id"] == versions[0]["parent_id"]
    only = http.get(API + "/threads/all/versions", params={"namespace": "assistant:B"}).json()["versions"]
    assert versions[4:8] == only
    assert 422 == http.get("/threads/all/history", params={"all_namespaces": True, "assistant_id": "A"}).status_code
    for path in (API + "/threads/all/versions", "/threads/all/history?all_namespaces=true"):
        assert 404 == httpx.get(url + path, headers={"x-user": "bob"}).status_code
    assert 404 == http.get(API + "/threads/absent/versions").status_code
    http.post(API + "/chats", json={"id": "empty"})
    assert {"versions": [], "next": None} == http.get(API + "/threads/empty/versions").json()
