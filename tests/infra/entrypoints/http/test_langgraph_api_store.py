"""The store of items of LangGraph's API: the same in graphs that the server runs, over HTTP and in process."""

from collections.abc import Iterator, Mapping
from typing import Any, Required, TypedDict

import pytest
from langgraph.config import get_store
from langgraph.graph import START, StateGraph
from langgraph.store.memory import InMemoryStore
from langgraph_sdk import get_sync_client
from langgraph_sdk.errors import PermissionDeniedError, UnprocessableEntityError
from tests.support.http_world import serving

import chatledger
from chatledger import AsyncLedger
from chatledger.langgraph import LedgerBaseStore
from chatledger.server import Principal, create_app

PLACE = ("memories",)


class State(TypedDict, total=False):
    said: Required[str]
    known: list[str]


def remembering() -> Any:
    """A graph that stores what is said, and returns what it knew before; not compiled."""

    async def remember(state: State) -> State:
        store = get_store()
        known = [item.value["text"] for item in await store.asearch(PLACE)]
        await store.aput(PLACE, str(len(known)), {"text": state["said"]})
        return {"said": state["said"], "known": known}

    builder: Any = StateGraph(State)
    builder.add_node("remember", remember)
    builder.add_edge(START, "remember")
    return builder


OWN = InMemoryStore()


def who(headers: Mapping[str, str]) -> Principal | None:
    name = headers.get("x-api-key")
    return Principal(scopes=frozenset({"read"})) if name == "reader" else Principal(user_id=name)


def connected(url: str, user: str) -> Any:
    return get_sync_client(url=url, api_key=user)


@pytest.fixture(scope="module")
def ledger() -> AsyncLedger:
    return chatledger.open_async("memory:")


@pytest.fixture(scope="module")
def url(ledger: AsyncLedger) -> Iterator[str]:
    graphs = {"agent": remembering(), "own": remembering().compile(store=OWN)}
    with serving(create_app(ledger, authenticate=who, graphs=graphs)) as url:
        yield url
    ledger.blocking().close()


def test_a_graph_without_a_store_gets_that_of_who_asks(url: str, ledger: AsyncLedger) -> None:
    ann, bob = connected(url, "ann"), connected(url, "bob")
    with ann, bob:
        ann.store.put_item(list(PLACE), "begin", {"text": "likes tea"})
        assert ann.runs.wait(None, "agent", input={"said": "hates rain"})["known"] == ["likes tea"]
        assert bob.runs.wait(None, "agent", input={"said": "x"})["known"] == []
        texts = [one["value"]["text"] for one in ann.store.search_items(list(PLACE))["items"]]
        assert texts == ["hates rain", "likes tea"]
    in_process = LedgerBaseStore(ledger.blocking().for_user("ann"))
    assert len(in_process.search(PLACE)) == 2


def test_a_graph_keeps_the_store_that_it_was_compiled_with(url: str) -> None:
    with connected(url, "ann") as client:
        client.runs.wait(None, "own", input={"said": "mine"})
    assert [item.value for item in OWN.search(PLACE)] == [{"text": "mine"}]


def test_who_may_only_read_stores_nothing(url: str) -> None:
    with connected(url, "reader") as client:
        assert client.store.search_items([]) == {"items": []}
        with pytest.raises(PermissionDeniedError):
            client.store.put_item(["a"], "k", {})
        with pytest.raises(PermissionDeniedError):
            client.store.delete_item(["a"], "k")


def test_what_breaks_a_rule_is_refused(url: str) -> None:
    with connected(url, "ann") as client:
        for namespace in ([], ["a", ""], ["langgraph"]):
            with pytest.raises(UnprocessableEntityError):
                client.store.put_item(namespace, "k", {})
        with pytest.raises(UnprocessableEntityError):
            client.store.put_item(["a"], "k", {}, ttl=-1)
        with pytest.raises(UnprocessableEntityError):
            client.store.search_items(["a"], limit=0)
