"""LangGraph's API and requests that nobody should send: whatever they are, they are answered, and never by a fault."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.http_world import serving
from tests.support.langgraph_client import echo
from tests.support.soak import examples

import chatledger
from chatledger.infra.entrypoints.http.langgraph_api import ROUTES
from chatledger.infra.entrypoints.http.routing import Route
from chatledger.server import create_app

IDS = st.sampled_from(["t", "echo", "absent", "a|b", "assistant:echo", "x" * 3000, "\0", "..", "%", "ü/é", "1f1e6275"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8) | IDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = [
    "thread_id",
    "assistant_id",
    "graph_id",
    "metadata",
    "values",
    "checkpoint",
    "checkpoint_id",
    "checkpoint_ns",
    "checkpoint_map",
    "as_node",
    "before",
    "limit",
    "offset",
    "select",
    "extract",
    "config",
    "configurable",
    "context",
    "ttl",
    "supersteps",
    "updates",
    "command",
    "goto",
    "ids",
    "thread_ids",
    "strategy",
    "status",
    "sort_by",
    "sort_order",
    "version",
    "name",
    "if_exists",
    "subgraphs",
    "include",
    "xray",
    "recurse",
]
VALUES = st.sampled_from(["work", "__start__", "__end__", "values.messages[-1]", "idle", "do_nothing", "updated_at"])


def _values() -> st.SearchStrategy[Any]:
    return JSON | VALUES | NAMED


NAMED: st.SearchStrategy[Any] = st.dictionaries(st.sampled_from(FIELDS), st.deferred(_values), max_size=5)


@pytest.fixture(scope="module")
def http() -> Iterator[httpx.Client]:
    ledger = chatledger.open_async("memory:")
    app = create_app(ledger, enable=["langgraph"], graphs={"echo": echo()})
    with serving(app) as url, httpx.Client(base_url=url, timeout=30) as http:
        yield http
    ledger.blocking().close()


@pytest.mark.guard
def test_no_request_is_a_fault(http: httpx.Client) -> None:
    @settings(max_examples=examples(400))
    @given(
        st.sampled_from(ROUTES),
        st.tuples(IDS, IDS),
        NAMED | JSON,
        st.dictionaries(st.sampled_from(FIELDS), st.text(max_size=8) | IDS, max_size=3),
    )
    def ask(route: Route, ids: tuple[str, str], body: Any, query: dict[str, str]) -> None:
        http.post("/threads", json={"thread_id": "t", "metadata": {"graph_id": "echo"}, "if_exists": "do_nothing"})
        left = iter(ids)
        path = "".join(quote(next(left), safe="") if part[:1] == "{" else part for part in _parts(route.path))
        content = None if route.method == "GET" else json.dumps(body).encode()
        # Streams that follow a thread do not end: how they begin is the answer.
        with http.stream(route.method, path, content=content, params=query) as answer:
            if not answer.headers.get("content-type", "").startswith("text/event-stream"):
                answer.read()
                assert answer.status_code < 500 or answer.status_code == 501, answer.text
            if answer.status_code >= 400:
                assert list(answer.json()) == ["detail"] or answer.status_code in {404, 405}

    ask()


def _parts(path: str) -> list[str]:
    """The path in front of each name in braces, and the names, in turn."""
    parts: list[str] = []
    for piece in path.split("{"):
        name, brace, rest = piece.partition("}")
        parts += ["{" + name + "}", rest] if brace else [piece]
    return parts
