"""Advice of errors over HTTP and MCP: nothing that only a program in Python has."""

import re
from collections.abc import Iterator

import httpx
import pytest
from tests.infra.entrypoints.http.test_http_native import say
from tests.support.http_world import client_of, serving
from tests.support.mcp_world import over_http

import chatledger
from chatledger.server import create_app

PYTHON = frozenset(name for name in dir(chatledger.Ledger) if "_" in name.strip("_") and not name.startswith("_"))
"""The methods of a ledger whose names are no word of English."""


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with client_of(create_app("memory:")) as client:
        client.post("/chats", json={"id": "trip"})
        say(client, "trip", "one", "two")
        yield client


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/chats/nope", None, 404),
        ("GET", "/chats/nope/messages", None, 404),
        ("POST", "/chats/nope/messages", {"messages": [{"name": "user", "data": "x"}]}, 404),
        ("GET", "/chats/nope/branches", None, 404),
        ("GET", "/chats/trip/branches/nope", None, 404),
        ("GET", "/chats/trip/messages?branch=nope", None, 404),
        ("DELETE", "/chats/trip/branches/main", None, 409),
        ("GET", "/chats/trip/checkpoints/nope", None, 404),
        ("GET", "/chats/trip/runs/nope", None, 404),
        ("POST", "/chats/trip/runs/nope/start", {}, 404),
        ("GET", "/chats/trip/regenerations/nope", None, 404),
        ("GET", "/chats/trip/live/nope", None, 404),
        ("GET", "/messages/nope", None, 404),
        ("POST", "/chats", {"id": "trip"}, 409),
        ("GET", "/states/nope", None, 422),
        ("POST", "/chats/trip/messages", {"messages": [{"name": "user", "data": "x", "parent_id": "nope"}]}, 404),
        (
            "POST",
            "/chats/trip/messages",
            {"messages": [{"id": "a", "name": "user", "data": "x"}, {"name": "user", "data": "x", "parent_id": "b"}]},
            422,
        ),
    ],
)
def test_no_answer_advises_a_method_of_python(
    client: httpx.Client, method: str, path: str, body: object, status: int
) -> None:
    answered = client.request(method, path, json=body)
    assert status == answered.status_code, answered.text
    assert not PYTHON & set(re.findall(r"[a-z_]+", answered.json()["detail"])), answered.json()["detail"]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.anyio
async def test_no_assistant_is_told_of_a_method_of_python() -> None:
    with serving(create_app("memory:", enable=["mcp"])) as url:
        async with over_http(url) as assistant:
            found = await assistant.call_tool("read_conversation", {"conversation": "nope"})
    assert found.is_error
    said = str(found.content)
    assert "no chat" in said
    assert not PYTHON & set(re.findall(r"[a-z_]+", said)), said
