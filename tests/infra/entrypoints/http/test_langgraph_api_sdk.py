"""LangGraph's API by LangGraph's own client, over a real socket: every method, and the forms of the answers."""

import inspect
from collections.abc import Callable, Iterator
from types import NoneType
from typing import Any
from uuid import uuid4

import httpx
import pytest
from langgraph_sdk._async.assistants import AssistantsClient
from langgraph_sdk._async.cron import CronClient
from langgraph_sdk._async.store import StoreClient
from langgraph_sdk._async.threads import ThreadsClient
from langgraph_sdk.errors import ConflictError, InternalServerError, NotFoundError, UnprocessableEntityError
from tests.support.http_world import serving
from tests.support.langgraph_client import KINDS, Client, Kind, echo, sdk
from tests.support.langgraph_shapes import (
    AI,
    ASSISTANT,
    ASSISTANT_VERSION,
    EMPTY_STATE,
    GRAPH,
    HUMAN,
    INFO,
    ITEM,
    SCHEMAS,
    STATE,
    THREAD,
    THREAD_THAT_RAN,
    UPDATED,
    check_shape,
)

import chatledger
from chatledger import AsyncLedger
from chatledger.langgraph import LedgerSaver
from chatledger.server import create_app

STREAMS = {"threads.stream", "threads.join_stream"}


@pytest.fixture(scope="module")
def ledger() -> AsyncLedger:
    return chatledger.open_async("memory:")


@pytest.fixture(scope="module")
def url(ledger: AsyncLedger) -> Iterator[str]:
    with serving(create_app(ledger, graphs={"agent": echo()})) as url:
        yield url
    ledger.blocking().close()


@pytest.fixture(scope="module", params=KINDS)
def client(url: str, request: pytest.FixtureRequest) -> Iterator[Client]:
    kind: Kind = request.param
    with sdk(url, kind) as client:
        yield client


@pytest.fixture(scope="module")
def http(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url) as http:
        yield http


@pytest.fixture
def threads(client: Client) -> Any:
    return client.threads


def run(ledger: AsyncLedger, thread_id: str, said: str) -> None:
    """A run of an application in process, with the saver of the assistant."""
    saver = LedgerSaver(ledger.blocking()).for_assistant("agent")
    graph = echo().compile(checkpointer=saver)
    graph.invoke({"messages": [{"role": "user", "content": said}]}, {"configurable": {"thread_id": thread_id}})


def test_every_method_answers_as_the_original(client: Client, ledger: AsyncLedger) -> None:
    client.called.clear()
    use_assistants(client)
    use_threads(client, ledger)
    use_store(client)
    use_crons(client)
    parts = {
        "assistants": AssistantsClient,
        "threads": ThreadsClient,
        "store": StoreClient,
        "crons": CronClient,
    }
    methods = {
        f"{name}.{method}"
        for name, part in parts.items()
        for method, _ in inspect.getmembers(part, inspect.isfunction)
        if not method.startswith("_")
    }
    assert methods - client.called == STREAMS


def use_assistants(client: Client) -> None:
    assistants = client.assistants
    check_shape(assistants.get("agent"), ASSISTANT)
    made = assistants.create("agent", config={"configurable": {"x": 1}}, metadata={"m": 1}, name="mine")
    check_shape(made, ASSISTANT)
    assert (made["context"], made["version"], made["description"]) == ({"x": 1}, 1, None)
    changed = assistants.update(made["assistant_id"], name="mine2", metadata={"k": 2})
    check_shape(changed, ASSISTANT)
    assert (changed["name"], changed["version"], changed["metadata"]) == ("mine2", 2, {"m": 1, "k": 2})
    assert changed["created_at"] == made["created_at"] < changed["updated_at"]
    versions = assistants.get_versions(made["assistant_id"])
    check_shape(versions, [ASSISTANT_VERSION])
    assert [(one["version"], one["name"]) for one in versions] == [(2, "mine2"), (1, "mine")]
    back = assistants.set_latest(made["assistant_id"], 1)
    assert (back["version"], back["name"]) == (1, "mine")
    assert assistants.update(made["assistant_id"], description="third")["version"] == 3
    check_shape(assistants.get_graph("agent"), GRAPH)
    check_shape(assistants.get_schemas(made["assistant_id"]), SCHEMAS)
    assert assistants.get_subgraphs("agent") == {}
    found = assistants.search(metadata={"m": 1}, response_format="object")
    check_shape(found["assistants"], [ASSISTANT])
    assert [one["assistant_id"] for one in found["assistants"]] == [made["assistant_id"]]
    assert assistants.count(graph_id="agent") == 2
    assistants.delete(made["assistant_id"], delete_threads=True)
    assert assistants.count() == 1


def use_threads(client: Client, ledger: AsyncLedger) -> None:
    threads = client.threads
    made = threads.create(metadata={"owner": "ann"}, graph_id="agent", ttl=60)
    check_shape(made, THREAD)
    thread_id = made["thread_id"]
    assert (made["metadata"], made["status"], made["values"]) == ({"owner": "ann", "graph_id": "agent"}, "idle", None)
    assert threads.get(thread_id) == made
    assert threads.get(thread_id, include=["ttl"])["ttl"]["strategy"] == "delete"
    assert EMPTY_STATE.items() <= threads.get_state(thread_id).items()
    assert threads.get_history(thread_id) == []
    assert threads.update(thread_id, metadata={"k": "v"})["metadata"]["k"] == "v"
    assert threads.update(thread_id, metadata={"k": "v2"}, return_minimal=True) is None
    run(ledger, thread_id, "hello")
    read = threads.get(thread_id)
    check_shape(read, THREAD_THAT_RAN)
    assert read["metadata"] == {"owner": "ann", "graph_id": "agent", "k": "v2", "assistant_id": "agent"}
    state = threads.get_state(thread_id)
    check_shape(state, STATE)
    assert state["values"] == read["values"]
    check_shape(state["values"]["messages"][0], HUMAN)
    check_shape(state["values"]["messages"][1], AI)
    history = threads.get_history(thread_id)
    check_shape(history, [STATE])
    assert history[0] == state
    assert [one["next"] for one in history] == [[], ["work"], ["__start__"]]
    assert threads.get_state(thread_id, checkpoint=history[1]["checkpoint"]) == history[1]
    assert threads.get_state(thread_id, checkpoint_id=history[1]["checkpoint_id"]) == history[1]
    assert threads.get_history(thread_id, before=history[0]["checkpoint"], limit=1) == history[1:2]
    updated = threads.update_state(thread_id, {"n": 7}, checkpoint=history[1]["checkpoint"])
    check_shape(updated, UPDATED)
    assert threads.get_state(thread_id)["parent_checkpoint"] == history[1]["checkpoint"]
    copied = threads.copy(thread_id)
    check_shape(copied, THREAD)
    assert copied["thread_id"] != thread_id
    assert threads.get_state(copied["thread_id"])["values"] == threads.get_state(thread_id)["values"]
    [found] = threads.search(
        ids=[thread_id], select=["thread_id", "status"], extract={"last": "values.messages[-1].content"}
    )
    assert found == {"thread_id": thread_id, "status": "interrupted", "extracted": {"last": "hello"}}
    assert threads.count(metadata={"owner": "ann"}) == 2
    assert threads.prune([thread_id], strategy="keep_latest") == {"pruned_count": 1}
    assert len(threads.get_history(thread_id)) == 1
    assert threads.prune([copied["thread_id"], "absent"]) == {"pruned_count": 1}
    threads.delete(thread_id)
    with pytest.raises(NotFoundError, match=f"Thread with ID {thread_id} not found"):
        threads.delete(thread_id)


def use_store(client: Client) -> None:
    store = client.store
    root = uuid4().hex
    place = [root, "ann"]
    assert store.put_item(place, "k1", {"a": 1, "text": "likes tea"}) is None
    store.put_item(place, "k2", {"a": 2, "text": "hates rain"}, index=False, ttl=5)
    item = store.get_item(place, "k1")
    check_shape(item, ITEM)
    assert (item["namespace"], item["key"], item["value"]) == (place, "k1", {"a": 1, "text": "likes tea"})
    assert store.get_item(place, "none") is None
    found = store.search_items([root], filter={"a": {"$lte": 1}})
    check_shape(found, {"items": [{**ITEM, "score": NoneType}]})
    assert [one["key"] for one in found["items"]] == ["k1"]
    assert [one["key"] for one in store.search_items([root], limit=1, offset=1)["items"]] == ["k1"]
    best = store.search_items([root], query="somebody who liked tea")["items"]
    assert [one["key"] for one in best] == ["k1"]
    assert best[0]["score"] > 0
    assert store.list_namespaces(prefix=[root]) == {"namespaces": [place]}
    assert store.list_namespaces(suffix=[root, "*"], max_depth=1) == {"namespaces": [[root]]}
    assert store.delete_item(place, "k1") is None
    assert store.get_item(place, "k1") is None
    with pytest.raises(UnprocessableEntityError, match=r"\$or"):
        store.search_items([root], filter={"$or": []})
    with pytest.raises(UnprocessableEntityError, match="langgraph"):
        store.put_item(["langgraph"], "k", {})


def use_crons(client: Client) -> None:
    crons = client.crons
    calls: list[Callable[[], Any]] = [
        lambda: crons.create("agent", schedule="0 0 * * *"),
        lambda: crons.create_for_thread("t", "agent", schedule="0 0 * * *"),
        lambda: crons.delete("c"),
        lambda: crons.update("c", enabled=False),
        crons.search,
        crons.count,
    ]
    for call in calls:
        with pytest.raises(InternalServerError, match="by the clock") as refused:
            call()
        assert refused.value.status_code == 501


def test_the_server_says_what_it_is(http: httpx.Client) -> None:
    assert http.get("/ok").json() == {"ok": True, "services": {}}
    info = http.get("/info").json()
    check_shape(info, INFO)
    assert info["graphs"] == ["agent"]


def test_a_thread_that_is_there_is_not_made_again(threads: Any) -> None:
    made = threads.create()
    with pytest.raises(ConflictError, match=f"Thread with ID {made['thread_id']} already exists"):
        threads.create(thread_id=made["thread_id"])
    assert threads.create(thread_id=made["thread_id"], if_exists="do_nothing", metadata={"a": 1}) == made


@pytest.mark.parametrize("thread_id", ["my-thread", "a/b", "ü %2F?", "x" * 300])
def test_any_id_is_one_of_a_thread(threads: Any, thread_id: str) -> None:
    assert threads.create(thread_id=thread_id, if_exists="do_nothing")["thread_id"] == thread_id
    assert threads.get(thread_id)["thread_id"] == thread_id
    assert threads.get_state(thread_id)["values"] == {}


def test_an_assistant_is_found_by_the_uuid_that_others_make_of_its_graphs_name(client: Client) -> None:
    assert client.assistants.get("fe096781-5601-53d2-b2f6-0d3403f7e9ca")["assistant_id"] == "agent"


def test_what_is_not_there_is_refused(client: Client) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: client.assistants.get("absent"),
        lambda: client.assistants.update("absent", name="x"),
        lambda: client.assistants.delete("absent"),
        lambda: client.assistants.get_versions("absent"),
        lambda: client.assistants.get_graph("absent"),
        lambda: client.assistants.create("absent graph"),
        lambda: client.assistants.set_latest("agent", 99),
        lambda: client.threads.get("absent"),
        lambda: client.threads.update("absent", metadata={}),
        lambda: client.threads.copy("absent"),
        lambda: client.threads.get_state("absent"),
        lambda: client.threads.get_history("absent"),
        lambda: client.threads.update_state("absent", {}),
    ]
    for call in calls:
        with pytest.raises(NotFoundError):
            call()


def test_what_cannot_be_read_is_refused(http: httpx.Client) -> None:
    def post(path: str, content: str) -> tuple[int, Any]:
        answer = http.post(path, content=content, headers={"content-type": "text/plain"})
        return answer.status_code, answer.json()

    assert post("/threads/search", '{"limit": 1') == (422, {"detail": "Invalid JSON in request body"})
    for body in ('{"limit": "x"}', '{"limit": 100000}', '{"limit": 0}', '{"select": ["nothing"]}', '{"status": "odd"}'):
        status, answer = post("/threads/search", body)
        assert status == 422
        assert list(answer) == ["detail"]
    assert post("/threads/search", '{"extract": {"a": "[0]x"}, "unknown": 1}')[0] == 422
    assert post("/threads/search", '{"limit": 1, "unknown": 1}')[0] == 200
    assert post("/threads", '{"ttl": {"ttl": 5, "strategy": "keep_latest"}}')[0] == 422
    assert http.put("/threads/search").status_code == 405
    assert http.get("/nope").json()["detail"] == "Not Found"


def test_pages_of_threads_tell_of_the_next(http: httpx.Client) -> None:
    made = [http.post("/threads", json={"metadata": {"page": 1}}).json()["thread_id"] for _ in range(5)]
    found: list[str] = []
    answer, offset = None, "0"
    while answer is None or "X-Pagination-Next" in answer.headers:
        offset = "0" if answer is None else answer.headers["X-Pagination-Next"]
        body = {"metadata": {"page": 1}, "limit": 2, "offset": int(offset), "sort_by": "created_at"}
        answer = http.post("/threads/search", json={**body, "sort_order": "asc"})
        found += [one["thread_id"] for one in answer.json()]
    assert found == made
    assert answer.headers["X-Pagination-Total"] == "5"


def test_threads_of_processes_are_found_by_what_they_are(threads: Any, ledger: AsyncLedger) -> None:
    plain, asking, failing = ids = [f"{number} {uuid4()}" for number in range(3)]
    run(ledger, plain, "hello")
    run(ledger, asking, "ask")
    with pytest.raises(ValueError, match="boom"):
        run(ledger, failing, "boom")

    def found(**wanted: Any) -> list[str]:
        return [one["thread_id"] for one in threads.search(ids=ids, sort_by="thread_id", sort_order="asc", **wanted)]

    assert found(status="idle") == [plain]
    assert found(status="interrupted") == [asking]
    assert found(status="error") == [failing]
    assert found(metadata={"graph_id": "agent"}) == ids
    assert found(values={"n": 1}) == [plain]
    assert found(values={"messages": [{"content": "ask"}]}) == [asking]
    assert threads.count(status="error", metadata={"graph_id": "agent"}) >= 1
    [found_asking] = threads.search(ids=[asking])
    [[pending]] = found_asking["interrupts"].values()
    assert pending["value"] == {"question": "go on?"}
    [found_failing] = threads.search(ids=[failing])
    assert found_failing["error"] == {"error": "ValueError", "message": "boom happened"}
    assert [one["status"] for one in threads.search(ids=ids, sort_by="status")] == ["interrupted", "idle", "error"]
    changed = threads.update(plain, metadata={"topic": "travel"})
    assert changed["metadata"] == {"assistant_id": "agent", "graph_id": "agent", "topic": "travel"}


def test_a_thread_may_begin_with_steps(threads: Any) -> None:
    steps = [
        {"updates": [{"values": {"messages": [{"role": "user", "content": "hi"}]}, "as_node": "__input__"}]},
        {"updates": [{"values": {"n": 5}, "as_node": "work"}]},
    ]
    made = threads.create(graph_id="agent", supersteps=steps)
    assert (made["values"]["n"], made["status"]) == (5, "idle")
    assert len(threads.get_history(made["thread_id"])) == 2
    before = threads.count()
    with pytest.raises(UnprocessableEntityError):
        threads.create(graph_id="agent", supersteps=[{"updates": [{"values": {"n": 5}, "as_node": "absent"}]}])
    with pytest.raises(UnprocessableEntityError, match="graph"):
        threads.create(supersteps=steps)
    assert threads.count() == before


def test_an_update_that_the_graph_refuses_changes_nothing(threads: Any) -> None:
    made = threads.create(graph_id="agent")
    for values, node in (({"n": 1}, "absent"), ("no state", "work")):
        with pytest.raises(UnprocessableEntityError):
            threads.update_state(made["thread_id"], values, as_node=node)
    with pytest.raises(UnprocessableEntityError, match="no graph"):
        threads.update_state(threads.create()["thread_id"], {"n": 1})
    assert threads.get_history(made["thread_id"]) == []


def test_the_assistant_that_a_graph_has_can_be_changed_and_stays(client: Client) -> None:
    changed = client.assistants.update("agent", config={"recursion_limit": 7})
    versions = client.assistants.get_versions("agent")
    assert changed["version"] == versions[0]["version"]
    assert versions[-1]["version"] == 1
    assert versions[-1]["config"] == {}
    assert client.assistants.set_latest("agent", 1)["config"] == {}
    with pytest.raises(Exception, match="cannot be deleted"):
        client.assistants.delete("agent")


def test_an_assistants_threads_go_with_it(client: Client, ledger: AsyncLedger) -> None:
    made = client.assistants.create("agent", assistant_id="gone")
    client.threads.create(thread_id="of gone", metadata={"assistant_id": "gone"})
    client.threads.create(thread_id="of agent", metadata={"assistant_id": "agent"})
    client.assistants.delete(made["assistant_id"], delete_threads=True)
    assert ledger.blocking().get_chat("of gone") is None
    client.threads.delete("of agent")
