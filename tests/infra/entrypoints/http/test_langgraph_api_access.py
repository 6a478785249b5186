"""Users of LangGraph's API: what another one has is not there."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import httpx
import pytest
from langgraph_sdk.errors import ConflictError, NotFoundError, PermissionDeniedError
from tests.support.http_world import serving
from tests.support.langgraph_client import Client, echo, sdk

import chatledger
from chatledger import AsyncLedger
from chatledger.infra.entrypoints.http.langgraph_api import ROUTES
from chatledger.infra.entrypoints.http.routing import Route
from chatledger.langgraph import LedgerBaseStore, LedgerSaver
from chatledger.server import Principal, create_app

BODIES: Mapping[str, Any] = {
    "/threads/{thread_id}/state/checkpoint": {"checkpoint": {}},
    "/threads/{thread_id}/state": {"values": {"n": 1}},
    "/threads/{thread_id}/commands": {"id": 1, "method": "state.get"},
    "/threads/{thread_id}/runs": {"assistant_id": "echo", "input": {}},
    "/threads/{thread_id}/runs/wait": {"assistant_id": "echo", "input": {}},
    "/threads/{thread_id}/runs/stream": {"assistant_id": "echo", "input": {}},
}


def who(headers: Mapping[str, str]) -> Principal | None:
    """The key is the name of the user."""
    name = headers.get("x-api-key")
    if name in {"ann", "bob"}:
        return Principal(user_id=name)
    return {"reader": Principal(scopes=frozenset({"read"})), "operator": Principal()}.get(name or "")


@pytest.fixture(scope="module")
def ledger() -> AsyncLedger:
    return chatledger.open_async("memory:")


@pytest.fixture(scope="module")
def url(ledger: AsyncLedger) -> Iterator[str]:
    with serving(create_app(ledger, authenticate=who, graphs={"echo": echo()})) as url:
        yield url
    ledger.blocking().close()


@pytest.fixture(scope="module")
def ann(url: str) -> Iterator[Client]:
    with sdk(url, key="ann") as client:
        client.threads.create(thread_id="hers", graph_id="echo", metadata={"secret": "tea"})
        client.threads.update_state("hers", {"messages": [{"role": "user", "content": "hi"}]}, as_node="__start__")
        client.assistants.create("echo", assistant_id="her own", metadata={"secret": "tea"})
        yield client


@pytest.fixture(scope="module")
def bob(url: str) -> Iterator[Client]:
    with sdk(url, key="bob") as client:
        yield client


@pytest.fixture(scope="module")
def operator(url: str) -> Iterator[Client]:
    with sdk(url, key="operator") as client:
        yield client


@pytest.fixture(scope="module")
def http(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, headers={"x-api-key": "bob"}) as http:
        yield http


OF_THREADS = [route for route in ROUTES if "{thread_id}" in route.path]
OF_ASSISTANTS = [route for route in ROUTES if "{assistant_id}" in route.path]


@pytest.mark.parametrize("route", OF_THREADS + OF_ASSISTANTS, ids=lambda route: f"{route.method} {route.path}")
def test_what_another_user_has_is_as_absent(ann: Client, http: httpx.Client, route: Route) -> None:
    def ask(thread_id: str, assistant_id: str) -> tuple[int, str]:
        path = route.path.replace("{thread_id}", thread_id).replace("{assistant_id}", assistant_id)
        path = path.replace("{", "").replace("}", "")
        body = None if route.method in {"GET", "DELETE"} else BODIES.get(route.path, {"version": 1, "metadata": {}})
        answer = http.request(route.method, path, json=body)
        return answer.status_code, answer.text.replace(thread_id, "ID").replace(assistant_id, "ID")

    theirs = ask("hers", "her%20own")
    assert theirs[0] in {404, 422, 501} or '"type":"error"' in theirs[1]
    assert "tea" not in theirs[1]
    assert (theirs[0], theirs[1].replace("her own", "ID")) == ask("none", "none")
    assert ann.threads.get("hers")["metadata"]["secret"] == "tea"
    assert ann.assistants.get("her own")["version"] == 1


def test_nothing_of_another_user_is_found(ann: Client, bob: Client) -> None:
    assert [one["thread_id"] for one in ann.threads.search()] == ["hers"]
    assert bob.threads.search() == []
    assert bob.threads.count() == 0
    assert bob.threads.search(ids=["hers"]) == []
    assert bob.threads.prune(["hers"]) == {"pruned_count": 0}
    assert [one["assistant_id"] for one in bob.assistants.search()] == ["echo"]
    with pytest.raises(ConflictError):
        bob.threads.create(thread_id="hers", if_exists="do_nothing")
    assert len(ann.threads.get_history("hers")) == 1


def test_items_belong_to_who_stored_them(ann: Client, bob: Client, operator: Client, ledger: AsyncLedger) -> None:
    ann.store.put_item(["memories"], "food", {"text": "tea"})
    assert (bob.store.get_item(["memories"], "food"), operator.store.get_item(["memories"], "food")) == (None, None)
    assert bob.store.search_items([], query="tea") == {"items": []}
    assert bob.store.list_namespaces() == {"namespaces": []}
    bob.store.delete_item(["memories"], "food")
    found = LedgerBaseStore(ledger.blocking().for_user("ann")).get(("memories",), "food")
    assert found is not None
    assert ann.store.get_item(["memories"], "food")["value"] == found.value == {"text": "tea"}


def test_threads_of_processes_belong_to_the_user_of_the_ledger(ann: Client, bob: Client, ledger: AsyncLedger) -> None:
    saver = LedgerSaver(ledger.blocking().for_user("bob")).for_assistant("echo")
    graph = echo().compile(checkpointer=saver)
    graph.invoke({"messages": [{"role": "user", "content": "hello"}]}, {"configurable": {"thread_id": "his"}})
    assert bob.threads.get("his")["values"]["n"] == 1
    assert bob.threads.update("his", metadata={"k": 1})["metadata"]["k"] == 1
    calls: list[Callable[[], Any]] = [
        lambda: ann.threads.get("his"),
        lambda: ann.threads.delete("his"),
        lambda: ann.threads.copy("his"),
    ]
    for call in calls:
        with pytest.raises(NotFoundError):
            call()
    bob.threads.delete("his")
    assert bob.threads.count() == 0


def test_who_acts_for_everybody_sees_all_and_what_they_make_is_shared(
    ann: Client, bob: Client, operator: Client
) -> None:
    assert operator.threads.get_state("hers") == ann.threads.get_state("hers")
    operator.threads.update_state("hers", {"n": 2}, as_node="work")
    assert ann.threads.get("hers")["values"]["n"] == 2
    operator.assistants.create("echo", assistant_id="shared", config={"tags": ["x"]})
    assert bob.assistants.get("shared")["config"] == {"tags": ["x"]}
    calls: list[Callable[[], Any]] = [
        lambda: bob.assistants.update("shared", name="mine"),
        lambda: bob.assistants.update("echo", name="mine"),
        lambda: bob.assistants.delete("shared"),
        lambda: bob.assistants.set_latest("shared", 1),
    ]
    for call in calls:
        with pytest.raises(PermissionDeniedError):
            call()
    ann.threads.create(thread_id="of her own", metadata={"assistant_id": "her own"})
    operator.threads.update_state("of her own", {"n": 4}, as_node="work")
    found = ann.threads.get_state("of her own")
    assert (found["values"], found["checkpoint_ns"]) == ({"messages": [], "n": 4}, "assistant:her own")
    copied = operator.threads.copy("of her own")["thread_id"]
    assert ann.threads.get(copied)["values"] == found["values"]
    for thread_id in ("of her own", copied):
        operator.threads.delete(thread_id)
    operator.threads.update("hers", metadata={"seen": True})
    assert ann.threads.get("hers")["metadata"]["seen"] is True
    operator.assistants.delete("shared")


def test_whoever_may_only_read_changes_nothing(ann: Client, url: str) -> None:
    del ann
    with httpx.Client(base_url=url, headers={"x-api-key": "reader"}) as http:
        assert http.get("/threads/hers").status_code == 200
        assert http.post("/threads/search", json={}).status_code == 200
        assert http.post("/threads/hers/history", json={}).status_code == 200
        refused = http.post("/threads", json={})
        assert (refused.status_code, list(refused.json())) == (403, ["detail"])
        assert http.delete("/threads/hers").status_code == 403
    stranger = httpx.get(f"{url}/threads/hers")
    assert (stranger.status_code, list(stranger.json())) == (401, ["detail"])
