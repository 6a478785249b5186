"""The native API: chats, messages, branches, checkpoints and search, over a real socket."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from tests.support.http_world import client_of

from chatledger.server import create_app

TYPE = "urn:chatledger:error:"


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with client_of(create_app("memory:")) as client:
        yield client


def say(client: httpx.Client, chat_id: str, *texts: str, **headers: str) -> httpx.Response:
    messages = [{"name": "user", "data": text} for text in texts]
    return client.post(f"/chats/{quote(chat_id, safe='')}/messages", json={"messages": messages}, headers=headers)


def test_a_chat_is_made_and_read(client: httpx.Client) -> None:
    made = client.post("/chats", json={"id": "trip", "title": "A weekend", "metadata": {"topic": "travel"}})
    assert made.status_code == 201
    assert client.get("/chats/trip").json() == made.json()
    assert made.json()["user_id"] == "local"
    assert [chat["id"] for chat in client.get("/chats", params={"metadata[topic]": "travel"}).json()["chats"]] == [
        "trip"
    ]
    assert client.get("/chats", params={"metadata[topic]": "food"}).json() == {"chats": [], "next": None}


@pytest.mark.parametrize("chat_id", ["a/b", "a b", "100%", "?x=1", "ü/..", "%2F", "#", "a\nb"])
def test_any_id_is_reached(client: httpx.Client, chat_id: str) -> None:
    assert client.post("/chats", json={"id": chat_id}).status_code == 201
    assert client.get(f"/chats/{quote(chat_id, safe='')}").json()["id"] == chat_id


def test_pages_of_chats_follow_one_another(client: httpx.Client) -> None:
    for number in range(7):
        client.post("/chats", json={"id": f"page-{number}", "user_id": "pia"})
    found: list[str] = []
    more: str | None = ""
    while more is not None:
        page = client.get(f"/chats?user_id=pia&limit=3{more}").json()
        found += [chat["id"] for chat in page["chats"]]
        more = None if page["next"] is None else f"&after={page['next']}"
    assert found == [f"page-{number}" for number in reversed(range(7))]
    assert client.get("/chats/count", params={"user_id": "pia"}).json() == {"count": 7}


def test_a_chat_is_read_in_the_form_of_an_api(client: httpx.Client) -> None:
    """From the beginning of a turn on, however few are asked for; with what it leaves out, and what was hidden not at all."""
    call = {"functionCall": {"name": "weather", "args": {"city": "Riga"}}}
    thought = {"text": "The coast decides.", "thought": True, "thoughtSignature": "AA=="}
    result = {"functionResponse": {"name": "weather", "response": {"output": "rain"}}}
    contents: list[dict[str, Any]] = [
        {"role": "user", "parts": [{"text": "Hello"}]},
        {"role": "model", "parts": [{"text": "Hi"}]},
        {"role": "user", "parts": [{"text": "Riga?"}]},
        {"role": "model", "parts": [thought, call]},
        {"role": "user", "parts": [result]},
    ]
    client.post("/chats", json={"id": "told"})
    bodies = [{"name": content["role"], "data": content, "id": f"told-{n}"} for n, content in enumerate(contents)]
    assert client.post("/chats/told/messages", json={"messages": bodies}).status_code == 201

    whole = client.get("/chats/told/translation", params={"form": "openai"}).json()
    last = client.get("/chats/told/translation", params={"form": "openai", "limit": 1}).json()

    assert ["user", "assistant", "user", "assistant", "tool"] == [message["role"] for message in whole["messages"]]
    assert whole["messages"][-3:] == last["messages"]
    assert [{"message_id": "told-3", "what": "reasoning", "why": "signed by google"}] == last["dropped"]
    assert contents == client.get("/chats/told/translation", params={"form": "google"}).json()["messages"]
    client.patch("/chats/told/messages/told-1/annotation", json={"hidden": True})
    assert 4 == len(client.get("/chats/told/translation", params={"form": "openai"}).json()["messages"])
    assert 404 == client.get("/chats/none/translation", params={"form": "openai"}).status_code
    assert 422 == client.get("/chats/told/translation", params={"form": "acme"}).status_code


def test_a_head_is_expected(client: httpx.Client) -> None:
    client.post("/chats", json={"id": "head"})
    assert say(client, "head", "one", **{"If-None-Match": "*"}).status_code == 201
    late = say(client, "head", "two", **{"If-None-Match": "*"})
    assert (late.status_code, late.json()["type"]) == (409, TYPE + "HeadConflictError")
    head = late.json()["actual"]
    assert say(client, "head", "two", **{"If-Match": f'"{head}"'}).status_code == 201
    assert say(client, "head", "three", **{"If-Match": f'"{head}"'}).status_code == 409
    assert say(client, "head", "three", **{"If-Match": head}).status_code == 422
    assert [entry["message"]["text"] for entry in client.get("/chats/head/messages").json()["entries"]] == [
        "one",
        "two",
    ]


def test_a_write_that_is_repeated_happens_once(client: httpx.Client) -> None:
    client.post("/chats", json={"id": "once"})
    first, again = (say(client, "once", "hello", **{"Idempotency-Key": "k1"}) for _ in range(2))
    assert first.json() == again.json()
    assert len(client.get("/chats/once/messages").json()["entries"]) == 1


def test_the_past_is_read(client: httpx.Client) -> None:
    client.post("/chats", json={"id": "past"})
    before = say(client, "past", "then").headers["Chatledger-Position"]
    say(client, "past", "now")

    def texts(**query: str) -> list[str]:
        entries = client.get("/chats/past/messages", params=query).json()["entries"]
        return [entry["message"]["text"] for entry in entries]

    assert texts() == ["then", "now"]
    assert texts(as_of=before) == ["then"]
    assert client.get("/chats/past", params={"as_of": "0"}).status_code == 404
    assert client.get("/chats/past", params={"as_of": "someday"}).status_code == 422


def test_an_unchanged_answer_is_not_sent_again(client: httpx.Client) -> None:
    client.post("/chats", json={"id": "tag"})
    tag = client.get("/chats/tag").headers["ETag"]
    again = client.get("/chats/tag", headers={"If-None-Match": tag})
    assert (again.status_code, again.content) == (304, b"")
    say(client, "tag", "hello")
    assert client.get("/chats/tag", headers={"If-None-Match": tag}).status_code == 200


def test_reads_wait_for_a_position(client: httpx.Client) -> None:
    position = client.get("/chats").headers["Chatledger-Position"]
    assert client.get("/chats", headers={"Chatledger-Wait-For": position}).status_code == 200
    assert client.get("/chats", headers={"Chatledger-Wait-For": "soon"}).status_code == 422


def test_branches_and_checkpoints(client: httpx.Client) -> None:
    client.post("/chats", json={"id": "tree"})
    first, second = (message["id"] for message in say(client, "tree", "a", "b").json())
    fork = client.post("/chats/tree/branches", json={"head_message_id": first, "activate": True}).json()
    say(client, "tree", "c")
    versions = client.get(f"/messages/{second}/versions").json()
    assert len(versions["ids"]) == 2
    assert versions["shown"] != second
    assert client.post(f"/messages/{second}/show").json()["name"] == "main"
    assert client.get("/chats/tree/active-branch").json()["name"] == "main"
    assert client.patch(f"/chats/tree/branches/{fork['name']}", json={"name": "other", "is_active": True}).json()[
        "is_active"
    ]
    assert client.put("/chats/tree/checkpoints/start", json={"message_id": first}).json()["message_id"] == first
    assert [each["name"] for each in client.get("/chats/tree/checkpoints").json()] == ["start"]
    assert client.delete("/chats/tree/checkpoints/start").json() == {"deleted": True}
    assert client.delete("/chats/tree/branches/main").json() == {"deleted": True}
    assert client.delete("/chats/tree/branches/other").json()["type"] == TYPE + "LastBranchError"
    assert len(client.get("/chats/tree/graph").json()["nodes"]) == 3


def test_branches_are_merged(client: httpx.Client) -> None:
    client.post("/chats", json={"id": "merge"})
    first = say(client, "merge", "a").json()[0]["id"]
    client.post("/chats/merge/branches", json={"head_message_id": first, "name": "idea"})
    idea = {"messages": [{"name": "user", "data": "b", "id": "b"}], "branch": "idea"}
    client.post("/chats/merge/messages", json=idea)
    say(client, "merge", "c")
    summary = {"name": "assistant", "data": "so it was", "id": "s"}
    merge = client.post("/chats/merge/merges", json={"source": "idea", "summary": summary}).json()
    assert (merge["outcome"], merge["base"], merge["source_head"]) == ("merged", first, "b")
    assert merge["messages"][0]["merged_from"] == ["b"]
    assert client.get("/messages/s").json()["merged_from"] == ["b"]
    assert [edge["is_merge"] for edge in client.get("/chats/merge/rows").json()["edges"]] == [False, False, False, True]
    assert client.post("/chats/merge/merges", json={"source": "idea", "summary": "x"}).json()["messages"] == []
    for body, status in [
        ({"source": "idea"}, 422),
        ({"source": "idea", "how": "squash"}, 422),
        ({"source": "nowhere", "summary": "x"}, 404),
        ({"source": "main", "into": "idea", "how": "pick", "pick": ["b"]}, 422),
    ]:
        assert client.post("/chats/merge/merges", json=body).status_code == status
    node = {"name": "user", "data": "d", "id": "d", "parent_id": "s", "merged_from": [first]}
    assert client.post("/chats/merge/nodes", json={"messages": [node]}).json()[0]["merged_from"] == [first]


def test_search(client: httpx.Client) -> None:
    client.post("/chats", json={"id": "find"})
    say(client, "find", "northern lights", "southern cross")
    found = client.get("/search", params={"q": "lights", "chat_id": "find", "role": ["user", "tool"]}).json()
    assert [(hit["snippet"], hit["matches"]) for hit in found["hits"]] == [("northern lights", [[9, 15]])]
    assert found["hits"][0]["message"]["text"] == "northern lights"


def test_requests_that_cannot_be_read(client: httpx.Client) -> None:
    client.post("/chats", json={"id": "bad"})
    for status, answer in [
        (422, client.get("/chats", params={"limt": 3})),
        (422, client.get("/chats", params={"limit": 0})),
        (422, client.get("/chats?limit=1&limit=2")),
        (422, client.get("/chats?metadata[a]=1&metadata[a]=2")),
        (422, client.get("/chats?metadata[a][b]=1")),
        (422, client.post("/chats", headers={"Idempotency-Key": "a b"})),
        (422, client.get("/history", headers={"Last-Event-ID": "soon"})),
        (422, client.post("/chats", json={"identity": "x"})),
        (400, client.post("/chats", content=b"{")),
        (400, client.post("/chats", content=b'{"metadata": {"a":' + b"[" * 100_000)),
        (400, client.post("/chats", content=b'{"id": "\xff"}')),
        (415, client.post("/chats", content=b"x", headers={"Content-Encoding": "gzip"})),
        (405, client.put("/chats")),
        (404, client.get("/nowhere")),
        (404, client.get("/chats/absent")),
    ]:
        problem = answer.json()
        assert (answer.status_code, problem["status"]) == (status, status), problem
        assert answer.headers["content-type"] == "application/problem+json"
        assert problem["type"]
        assert problem["title"]
        assert problem["detail"]
        assert "Traceback" not in answer.text
