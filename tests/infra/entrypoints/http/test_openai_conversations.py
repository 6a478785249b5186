"""OpenAI's Conversations: its own clients, the Agents SDK, and items that come back as they were given."""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.http_world import API, serving
from tests.support.json_values import json_values
from tests.support.node_world import installed, needs_node, run_node
from tests.support.soak import examples

import chatledger
from chatledger.server import Principal, create_app

if TYPE_CHECKING:
    import openai  # takes a second, in each worker that collects this

Item = dict[str, Any]

names = st.sampled_from(
    ["message", "function_call", "function_call_output", "reasoning", "compaction", "mcp_call", "odd"]
)
roles = st.sampled_from(["user", "assistant", "system", "developer", "tool", "critic"])
parts = st.fixed_dictionaries(
    {"type": st.sampled_from(["input_text", "output_text", "odd"]), "text": st.text(max_size=5)}
)
contents = st.text(max_size=8) | st.lists(parts, max_size=2)
fields = st.dictionaries(
    st.sampled_from(["call_id", "name", "arguments", "output", "summary", "x"]), json_values, max_size=3
)


def with_content(role: str, content: Any, more: Item) -> Item:
    return more | {"role": role, "content": content}


def of_type(kind: str, more: Item) -> Item:
    return more | {"type": kind}


said = st.builds(with_content, roles, contents, fields)
typed = st.builds(of_type, names, fields)
statuses: st.SearchStrategy[Item] = st.sampled_from([{}, {"status": "incomplete"}])


def merged(one: Item, more: Item) -> Item:
    return one | more


items = st.builds(merged, said | typed, statuses)


def with_ids(listed: list[Item]) -> list[Item]:
    """Every second item with an id of its own."""
    return [item | ({"id": f"own-{number}"} if number % 2 else {}) for number, item in enumerate(listed)]


given_items = st.lists(items, max_size=6).map(with_ids)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(create_app(chatledger.open_async("memory:"))) as url:
        yield url


@pytest.fixture(scope="module")
def http(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, timeout=30) as client:
        yield client


@pytest.fixture(scope="module")
def client(url: str) -> Iterator["openai.OpenAI"]:
    import openai

    with openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0) as client:
        yield client


def make(http: httpx.Client, *given: Item) -> str:
    answer = http.post("/v1/conversations", json={"items": list(given)})
    assert answer.status_code == 200, answer.text
    conversation: str = answer.json()["id"]
    return conversation


def texts(http: httpx.Client, conversation: str, **query: str) -> list[str]:
    asked = {"order": "asc", "limit": "100"} | query
    listed = http.get(f"/v1/conversations/{conversation}/items", params=asked).json()
    return [item["content"][0]["text"] for item in listed["data"]]


def as_given(item: Item, shown: Item) -> Item:
    """The item that is shown without what the server filled in."""
    plain = {key: value for key, value in shown.items() if key in item}
    if isinstance(item.get("content"), str) and shown["type"] == "message":
        (part,) = plain["content"]
        plain["content"] = part["text"]
    return plain


@settings(max_examples=examples(60), deadline=None)
@given(given_items, st.integers(2, 7))
def test_any_items_come_back_as_given(http: httpx.Client, listed: list[Item], limit: int) -> None:
    conversation = make(http)
    path = f"/v1/conversations/{conversation}/items"
    added = http.post(path, json={"items": listed}).json()["data"]

    assert listed == [as_given(item, shown) for item, shown in zip(listed, added, strict=True)]
    for item, shown in zip(listed, added, strict=True):
        assert set(shown) - set(item) <= {"id", "type", "status"}
        assert shown["type"] == item.get("type", "message")
        assert http.get(f"{path}/{shown['id']}").json() == shown
    for order in ("asc", "desc"):
        found: list[Item] = []
        query: dict[str, str | int] = {"order": order, "limit": limit}
        while (page := http.get(path, params=query).json())["has_more"]:
            found += page["data"]
            query["after"] = page["last_id"]
        assert [*found, *page["data"]] == (added if order == "asc" else added[::-1])


@settings(max_examples=examples(40), deadline=None)
@given(st.data())
def test_deletions_take_out_one_item_and_lose_nothing(http: httpx.Client, data: st.DataObject) -> None:
    conversation = make(http)
    path = f"/v1/conversations/{conversation}/items"
    shown: list[Item] = []
    moments: list[tuple[str, list[Item]]] = []
    for step in range(data.draw(st.integers(1, 8))):
        chosen = data.draw(st.integers(-len(shown), len(shown) - 1)) if shown else -1
        if chosen >= 0:
            item = shown.pop(chosen)
            answer = http.delete(f"{path}/{item['id']}")
            assert answer.json()["object"] == "conversation", answer.text
            assert http.get(f"{path}/{item['id']}").status_code == 404
        else:
            more = [{"role": "user", "content": f"{step}.{each}"} for each in range(3)]
            answer = http.post(path, json={"items": [*more[:2], more[2] | {"id": f"own-{step}"}]})
            shown += answer.json()["data"]
        assert http.get(path, params={"order": "asc", "limit": 100}).json()["data"] == shown
        moments.append((answer.headers["Chatledger-Position"], list(shown)))

    for position, then in moments:
        then_query: dict[str, str | int] = {"order": "asc", "limit": 100, "as_of": position}
        assert http.get(path, params=then_query).json()["data"] == then


def test_the_client_of_openai(client: "openai.OpenAI") -> None:
    import openai

    made = client.conversations.create(metadata={"topic": "travel"}, items=[{"role": "user", "content": "Riga?"}])
    assert client.conversations.retrieve(made.id) == made
    assert client.conversations.update(made.id, metadata={"topic": "food"}).metadata == {"topic": "food"}
    added = client.conversations.items.create(
        made.id,
        items=[
            {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city": "Riga"}'},
            {"type": "function_call_output", "call_id": "c1", "output": "rain"},
            {"type": "message", "role": "assistant", "content": "Rain."},
        ],
        include=["reasoning.encrypted_content"],
    )
    assert [item.type for item in added.data] == ["function_call", "function_call_output", "message"]
    listed = list(client.conversations.items.list(made.id, limit=2))
    assert [item.type for item in listed] == ["message", "function_call_output", "function_call", "message"]
    assert added.last_id is not None
    assert client.conversations.items.retrieve(added.last_id, conversation_id=made.id) == added.data[-1]
    assert client.conversations.items.delete(added.last_id, conversation_id=made.id).id == made.id
    with pytest.raises(openai.NotFoundError):
        client.conversations.items.retrieve(added.last_id, conversation_id=made.id)
    assert client.conversations.delete(made.id).deleted
    with pytest.raises(openai.NotFoundError) as caught:
        client.conversations.retrieve(made.id)
    assert caught.value.code == "ChatNotFoundError"


def test_the_session_of_the_agents_sdk(url: str) -> None:
    import openai
    from agents import OpenAIConversationsSession  # takes seconds

    async def run() -> None:
        async with openai.AsyncOpenAI(base_url=url + "/v1", api_key="none", max_retries=0) as client:
            session = OpenAIConversationsSession(openai_client=client)
            await session.add_items([{"role": "user", "content": f"message {number}"} for number in range(45)])
            found: list[Any] = await session.get_items()
            assert [item["content"][0]["text"] for item in found] == [f"message {number}" for number in range(45)]
            assert await session.get_items(limit=30) == found[15:]
            for _ in range(3):
                popped = await session.pop_item()
                assert popped is not None
                assert popped == found[44]
                assert len(await session.get_items()) == 44
                await session.add_items([popped])
                assert await session.get_items() == found
            await session.clear_session()
            assert await session.get_items() == []

    asyncio.run(run())


def test_a_deletion_in_the_middle_makes_a_branch(http: httpx.Client) -> None:
    conversation = make(http, *({"role": "user", "content": text} for text in "abc"))
    path = f"/v1/conversations/{conversation}/items"
    first, second, third = (item["id"] for item in http.get(path, params={"order": "asc"}).json()["data"])
    deleted = http.delete(f"{path}/{second}")
    assert deleted.headers["Chatledger-Branch"] == "main-v2"
    assert texts(http, conversation) == ["a", "c"]
    assert texts(http, conversation, branch="main") == ["a", "b", "c"]
    assert http.get(f"{path}/{third}").json()["id"] == third
    assert [item["id"] for item in http.get(path, params={"after": third}).json()["data"]] == [first]
    assert http.get(f"{path}/{second}", params={"branch": "main"}).json()["id"] == second
    assert http.get(path, params={"branch": "none"}).status_code == 404


def test_messages_that_others_stored_are_items(http: httpx.Client) -> None:
    http.post(f"{API}/chats", json={"id": "a/b", "title": "native"})
    call: Item = {
        "type": "dynamic-tool",
        "toolName": "f",
        "toolCallId": "c1",
        "state": "output-available",
        "input": {},
        "output": "x",
    }
    turn: Item = {"id": "m2", "role": "assistant", "parts": [{"type": "text", "text": "wait"}, call]}
    messages: list[Item] = [
        {"name": "user", "data": "hello", "id": "m1"},
        {"name": "assistant", "data": turn, "id": "m2"},
    ]
    assert http.post(f"{API}/chats/a%2Fb/messages", json={"messages": messages}).status_code == 201
    path = "/v1/conversations/a%2Fb/items"

    def listed() -> list[tuple[str, str]]:
        return [(item["id"], item["type"]) for item in http.get(path, params={"order": "asc"}).json()["data"]]

    everything = [("m1", "message"), ("m2", "message"), ("m2.1", "function_call"), ("m2.2", "function_call_output")]
    assert listed() == everything
    for item_id, kind in everything:
        assert http.get(f"{path}/{item_id}").json()["type"] == kind
    http.delete(f"{path}/m2.1")
    assert listed() == [each for each in everything if each[0] != "m2.1"]
    http.delete(f"{path}/m1")
    assert listed() == [("m2", "message"), ("m2.2", "function_call_output")]


def test_messages_of_another_api_are_items_each_by_itself(http: httpx.Client) -> None:
    """The result of a call that another message has is one too, whatever was said before it."""
    http.post(f"{API}/chats", json={"id": "completions"})
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    said: list[Item] = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "user", "content": "Well?"},
        {"role": "tool", "tool_call_id": "c1", "content": "rain"},
    ]
    messages: list[Item] = [
        {"name": data["role"], "data": data, "form": "openai", "id": f"c{place}"} for place, data in enumerate(said)
    ]
    messages.append({"name": "note", "data": {"a": 1}, "form": "acme", "id": "c3"})
    http.post(f"{API}/chats/completions/messages", json={"messages": messages}).raise_for_status()
    listed = http.get("/v1/conversations/completions/items", params={"order": "asc"}).json()["data"]

    assert [(item["id"], item["type"]) for item in listed] == [
        ("c0", "function_call"),
        ("c1", "message"),
        ("c2", "function_call_output"),
        ("c3", "message"),
    ]
    assert (listed[2]["call_id"], listed[2]["output"]) == ("c1", "rain")


def test_a_request_that_is_repeated_under_its_key(http: httpx.Client) -> None:
    body = {"items": [{"role": "user", "content": "a"}, {"role": "user", "content": "b", "id": "own"}]}
    first, again = (
        http.post("/v1/conversations", json=body, headers={"Idempotency-Key": "k"}).json() for _ in range(2)
    )
    assert first == again
    assert texts(http, first["id"]) == ["a", "b"]
    path = f"/v1/conversations/{first['id']}/items"
    more = {"items": [{"role": "user", "content": "c"}, body["items"][1]]}
    added, repeated = (http.post(path, json=more, headers={"Idempotency-Key": "l"}).json() for _ in range(2))
    assert added == repeated
    assert texts(http, first["id"]) == ["a", "b", "c"]


def test_requests_that_are_refused(http: httpx.Client) -> None:
    conversation = make(http, {"role": "user", "content": "a", "id": "own"})
    path = f"/v1/conversations/{conversation}"
    message: Item = {"role": "user", "content": "b"}
    nothing: Item = {}
    for status, answer in [
        (404, http.get("/v1/conversations/absent")),
        (404, http.delete("/v1/conversations/absent")),
        (404, http.post("/v1/conversations/absent/items", json={"items": [message]})),
        (404, http.get(f"{path}/items/absent")),
        (404, http.delete(f"{path}/items/{'x' * 3000}")),
        (404, http.get(f"{path}/items", params={"after": "absent"})),
        (404, http.get("/v1/models")),
        (405, http.put(path)),
        (400, http.get(f"{path}/items", params={"limit": 0})),
        (400, http.get(f"{path}/items", params={"limit": 101})),
        (400, http.get(f"{path}/items", params={"order": "up"})),
        (400, http.post(f"{path}/items", json={"items": [message] * 21})),
        (400, http.post(f"{path}/items", json={"items": [message, {"neither": "type nor role"}]})),
        (400, http.post(f"{path}/items", json={"items": [message, message | {"id": "own"}]})),
        (400, http.post(f"{path}/items", json={"items": [message, {"type": "item_reference", "id": "own"}]})),
        (400, http.post(f"{path}/items", json={"items": [message | {"id": 1}]})),
        (400, http.post(f"{path}/items", json={"items": [message | {"id": "x" * 3000}]})),
        (400, http.post(f"{path}/items", content=b"{")),
        (400, http.post(path, json={"metadata": {str(number): "" for number in range(17)}})),
        (400, http.post(path, json={"metadata": {"a": "x" * 513}})),
        (400, http.post("/v1/conversations", json={"items": [nothing]})),
    ]:
        error = answer.json()["error"]
        assert answer.status_code == status, answer.text
        assert set(error) == {"message", "type", "param", "code"}
        assert error["message"]
    assert texts(http, conversation) == ["a"]


def test_what_others_have_is_not_there() -> None:
    import openai

    def authenticate(headers: Any) -> Principal:
        return Principal(user_id=headers["authorization"].removeprefix("Bearer "))

    with serving(create_app(chatledger.open_async("memory:"), authenticate=authenticate)) as url:
        ada, bob = (openai.OpenAI(base_url=url + "/v1", api_key=name, max_retries=0) for name in ("ada", "bob"))
        with ada, bob:
            theirs = ada.conversations.create(items=[{"role": "user", "content": "secret"}])
            (item,) = ada.conversations.items.list(theirs.id)
            assert item.id is not None
            for refused in (
                lambda: bob.conversations.retrieve(theirs.id),
                lambda: bob.conversations.update(theirs.id, metadata={}),
                lambda: bob.conversations.delete(theirs.id),
                lambda: bob.conversations.items.list(theirs.id),
                lambda: bob.conversations.items.create(theirs.id, items=[{"role": "user", "content": "x"}]),
                lambda: bob.conversations.items.retrieve(item.id or "", conversation_id=theirs.id),
                lambda: bob.conversations.items.delete(item.id or "", conversation_id=theirs.id),
            ):
                with pytest.raises(openai.NotFoundError):
                    refused()
            assert len(list(ada.conversations.items.list(theirs.id))) == 1


SCRIPT = """
import OpenAI from "openai";
const client = new OpenAI({ baseURL: process.argv[1] + "/v1", apiKey: "none", maxRetries: 0 });
const made = await client.conversations.create({ metadata: { topic: "travel" } });
for (let start = 0; start < 45; start += 15)
  await client.conversations.items.create(made.id, {
    items: Array.from({ length: 15 }, (_, n) => ({ type: "message", role: "user", content: `message ${start + n}` })),
  });
const texts = [];
for await (const item of client.conversations.items.list(made.id, { order: "asc", limit: 10 })) texts.push(item.content[0].text);
const newest = await client.conversations.items.list(made.id, { limit: 1 });
const last = newest.data[0];
const same = await client.conversations.items.retrieve(last.id, { conversation_id: made.id });
await client.conversations.items.delete(last.id, { conversation_id: made.id });
const updated = await client.conversations.update(made.id, { metadata: { topic: "food" } });
const deleted = await client.conversations.delete(made.id);
let status = null;
try { await client.conversations.retrieve(made.id); } catch (error) { status = [error.constructor.name, error.status, error.code]; }
console.log(JSON.stringify({ texts, same: same.id === last.id, updated: updated.metadata, deleted: deleted.deleted, status }));
"""


@needs_node
@pytest.mark.soak
def test_the_client_of_openai_in_node(url: str) -> None:
    said = run_node(installed("openai@6"), SCRIPT, url)
    assert said == {
        "texts": [f"message {number}" for number in range(45)],
        "same": True,
        "updated": {"topic": "food"},
        "deleted": True,
        "status": ["NotFoundError", 404, "ChatNotFoundError"],
    }


def test_a_branch_whose_name_is_no_latin_is_named_in_a_header(http: httpx.Client) -> None:
    http.post(f"{API}/chats", json={"id": "words"})
    ids = [
        message["id"]
        for message in http.post(
            f"{API}/chats/words/messages", json={"messages": [{"name": "user", "data": text} for text in "ab"]}
        ).json()
    ]
    http.post(f"{API}/chats/words/branches", json={"name": "→ ß", "head_message_id": ids[1]}).raise_for_status()

    deleted = http.delete(f"/v1/conversations/words/items/{ids[1]}", params={"branch": "→ ß"})

    assert (deleted.status_code, unquote(deleted.headers["Chatledger-Branch"])) == (200, "→ ß")
    assert http.get(f"{API}/chats/words/branches/%E2%86%92%20%C3%9F").json()["head_message_id"] == ids[0]
