"""Advice of errors over HTTP and MCP: nothing that only a program in Python has."""

import re
from collections.abc import Iterator, Mapping

import httpx
import pytest
from mcp_types import TextContent
from tests.infra.entrypoints.http.test_http_native import say
from tests.support.http_world import client_of, serving
from tests.support.mcp_world import over_http

import chatledger
from chatledger.infra.entrypoints.mcp.tools import WRITING
from chatledger.server import Principal, create_app

PYTHON = frozenset(name for name in dir(chatledger.Ledger) if "_" in name.strip("_") and not name.startswith("_"))
"""The methods of a ledger whose names are no word of English."""
CODE = re.compile(r"chatledger\.[A-Za-z]|\w\(")
"""A name of the library, or a call."""


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    def caller(headers: Mapping[str, str]) -> Principal:
        return Principal("ada" if headers.get("x-api-key") == "ada" else None)

    with client_of(create_app("memory:", authenticate=caller)) as client:
        client.post("/chats", json={"id": "trip"})
        say(client, "trip", "one", "two")
        client.get("/feed", params={"name": "indexer", "after": 0, "follow": "false"})
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
        ("GET", "/search?q=one&mode=meaning", None, 422),
        ("GET", "/feed?name=indexer&share=0/2&follow=false", None, 422),
        ("POST", "/v1/conversations", {"items": [{"text": "neither a type nor a role"}]}, 400),
    ],
)
def test_no_answer_advises_a_method_of_python(
    client: httpx.Client, method: str, path: str, body: object, status: int
) -> None:
    answered = client.request(method, client.base_url.join(path) if path.startswith("/v1") else path, json=body)
    assert status == answered.status_code, answered.text
    problem = answered.json()
    assert_no_python(problem["error"]["message"] if "error" in problem else problem["detail"])


def assert_no_python(advice: str) -> None:
    assert not PYTHON & set(re.findall(r"[a-z_]+", advice)), advice
    assert not CODE.search(advice), advice


def test_who_asks_for_all_users_is_not_sent_to_another_ledger(client: httpx.Client) -> None:
    answered = client.get("/verify", headers={"X-Api-Key": "ada"})

    assert 403 == answered.status_code
    assert_no_python(answered.json()["detail"])


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/chats/trip/branches", {"head_message_id": ""}),
        ("PATCH", "/chats/trip/branches/main", {"head_message_id": ""}),
    ],
)
def test_a_refused_head_is_named_as_its_field(client: httpx.Client, method: str, path: str, body: object) -> None:
    assert "head_message_id must not be empty" == client.request(method, path, json=body).json()["detail"]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.anyio
async def test_no_assistant_is_told_of_a_method_of_python() -> None:
    with serving(create_app("memory:", enable=["mcp"])) as url:
        async with over_http(url) as assistant:
            answer = await assistant.call_tool("read_conversation", {"conversation": "nope"})
    assert answer.is_error
    (words,) = answer.content
    assert isinstance(words, TextContent)
    assert "no chat" in words.text
    assert_no_python(words.text)


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("fork", {"conversation": "", "message": "m"}, "conversation must not be empty"),
        ("fork", {"conversation": "trip", "message": ""}, "message must not be empty"),
        (
            "append",
            {"conversation": "trip", "messages": [{"role": "", "text": "x", "id": "m"}]},
            "role of message 'm' must",
        ),
    ],
)
def test_an_assistant_reads_its_own_arguments(tool: str, arguments: dict[str, object], words: str) -> None:
    tools = {tool.name: tool for tool in WRITING}

    with chatledger.open("memory:") as ledger:
        ledger.create_chat("trip", "ada")
        with pytest.raises(chatledger.InvalidValueError, match=re.escape(words)):
            tools[tool].answer(ledger, arguments)


@pytest.mark.parametrize(
    ("method", "path", "body", "words"),
    [
        (
            "POST",
            "/chats/trip/messages",
            {"messages": [{"role": "user", "content": "x"}]},
            "`role` - at `$.messages[0]`; it takes name, data, id, parent_id, type, created_at, sender_id, agent_id, reply_to, merged_from, form, metadata",
        ),
        ("POST", "/chats/trip/messages", {"message": "x"}, "`message`; it takes messages, branch"),
        ("POST", "/chats", {"name": "x"}, "`name`; it takes id, "),
        ("GET", "/chats/trip/messages?lmit=5", None, "`lmit`; it takes "),
    ],
)
def test_fields_that_are_known_are_named(
    client: httpx.Client, method: str, path: str, body: object, words: str
) -> None:
    """Who sends a message as another API has it learns what is asked for."""
    refused = client.request(method, path, json=body)
    assert refused.status_code == 422
    assert words in refused.json()["detail"]
