"""Requests that are repeated with their `Idempotency-Key`, as clients do when an answer was lost: done once, answered alike."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.support.http_world import API, client_of, serving

import chatledger
from chatledger.server import Limits, Principal, create_app

KEY = {"Idempotency-Key": "k1"}


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    app = create_app("memory:", authenticate=lambda headers: Principal(headers.get("x-api-key", "ada")))
    with client_of(app) as client:
        yield client


def begin(client: httpx.Client, chat_id: str) -> list[str]:
    """A chat with three messages; their ids."""
    client.post("/chats", json={"id": chat_id}).raise_for_status()
    messages = [{"name": "user", "data": str(number)} for number in range(3)]
    made = client.post(f"/chats/{chat_id}/messages", json={"messages": messages})
    return [message["id"] for message in made.json()]


def twice(client: httpx.Client, method: str, path: str, body: Any) -> httpx.Response:
    """The answer to a request, which is the same when it comes again, and changes nothing then."""
    first = client.request(method, path, json=body, headers=KEY)
    position = client.get("/position").json()["last_position"]
    again = client.request(method, path, json=body, headers=KEY)

    assert first.is_success, first.text
    assert (again.status_code, again.text) == (first.status_code, first.text)
    assert client.get("/position").json()["last_position"] == position
    return first


def test_a_chat_without_an_id_is_made_once_for_each_user(client: httpx.Client) -> None:
    mine = twice(client, "POST", "/chats", {"title": "A weekend"}).json()
    theirs = client.post("/chats", json={}, headers={**KEY, "X-Api-Key": "bob"}).json()

    assert (mine["user_id"], theirs["user_id"]) == ("ada", "bob")
    assert mine["id"] != theirs["id"]
    assert client.get(f"/chats/{theirs['id']}").status_code == 404


def test_a_chat_is_forked_once(client: httpx.Client) -> None:
    ids = begin(client, "forked")
    made = [twice(client, "POST", "/chats/forked/fork", {"message_id": ids[1]}).json()["id"]]
    made.append(client.post("/chats/forked/fork", json={"message_id": ids[1]}).json()["id"])

    assert sorted(chat["id"] for chat in client.get("/chats/forked/forks").json()) == sorted(made)


def test_a_branch_is_made_once(client: httpx.Client) -> None:
    ids = begin(client, "branched")
    twice(client, "POST", "/chats/branched/branches", {"head_message_id": ids[0]})

    assert len(client.get("/chats/branched/branches").json()) == 2


def test_all_changes_of_a_branch_are_made_once(client: httpx.Client) -> None:
    """They are several writes, each with a command id of its own."""
    ids = begin(client, "changed")
    change = {"head_message_id": ids[0], "name": "short", "is_active": True}
    changed = twice(client, "PATCH", "/chats/changed/branches/main", change).json()

    assert (changed["name"], changed["head_message_id"], changed["is_active"]) == ("short", ids[0], True)


def test_a_live_stream_is_begun_and_written_once(client: httpx.Client) -> None:
    for chat_id, body in ("live", {}), ("other", {"id": "named"}):
        begin(client, chat_id)
        begun = twice(client, "POST", f"/chats/{chat_id}/live", body).json()
        path = f"/chats/{chat_id}/live/{begun['id']}"
        chunks = {"epoch": begun["epoch"], "chunks": ["a", "b"]}
        written = twice(client, "POST", f"{path}/chunks", chunks).json()
        assert written["chunk_count"] == 2
        client.post(f"{path}/chunks", json=chunks, headers={"Idempotency-Key": "k2"}).raise_for_status()
        twice(client, "POST", f"{path}/commit", {"epoch": begun["epoch"]})
        again = client.post(f"/chats/{chat_id}/live", json={"id": begun["id"]}, headers={"Idempotency-Key": "k3"})
        assert again.status_code == 409
        texts = [entry["message"]["text"] for entry in client.get(f"/chats/{chat_id}/messages").json()["entries"]]
        assert texts[3:] == ["abab"]


def test_a_user_writes_so_many_live_streams_and_leaves_room_for_others() -> None:
    users = {"ada": Principal("ada"), "bob": Principal("bob"), "backend": Principal(None)}
    app = create_app(
        chatledger.open_async("memory:"),
        authenticate=lambda headers: users.get(headers["x-api-key"]),
        limits=Limits(streams_per_user=2),
    )
    with serving(app) as url, httpx.Client(base_url=url + API) as client:

        def start(user: str) -> httpx.Response:
            return client.post(f"/chats/{user}/live", headers={"X-Api-Key": user})

        for user in users:
            client.post("/chats", json={"id": user}, headers={"X-Api-Key": user}).raise_for_status()
        begun = [start("ada") for _ in range(3)]
        assert [one.status_code for one in begun] == [201, 201, 429]
        assert start("bob").status_code == 201
        assert [start("backend").status_code for _ in range(4)] == [201] * 4  # it acts for many
        done = client.post(
            f"/chats/ada/live/{begun[0].json()['id']}/discard", json={"epoch": 1}, headers={"X-Api-Key": "ada"}
        )
        assert done.status_code == 200
        assert start("ada").status_code == 201


def test_a_copy_is_taken_in_once(client: httpx.Client) -> None:
    begin(client, "original")
    lines = client.get("/chats/original/export").content
    for key, count in ("k1", 3), ("k1", 3), ("k2", 6):
        done = client.post("/import?chat_id=copy", content=lines, headers={"Idempotency-Key": key})
        assert done.status_code == 200
        assert client.get("/chats/copy").json()["message_count"] == count


def test_a_state_is_stored_once(client: httpx.Client) -> None:
    """By its version, as states know no keys."""
    path, body = "/states/chat:ada:once", {"values": {"a": 1}}
    assert client.put(path, json=body, headers=KEY).status_code == 422
    answers = [client.put(path, json=body | {"expected_version": 0}, headers=KEY).status_code for _ in range(2)]

    assert answers == [200, 409]
    assert client.get(path).json()["version"] == 1


@pytest.mark.parametrize("header", ["If-Match", "If-None-Match"])
def test_a_write_that_compares_no_head_refuses_to_be_asked(client: httpx.Client, header: str) -> None:
    """Else it would be carried out although the client said under which condition."""
    client.post("/chats", json={"id": f"plain {header}", "title": "before"})
    refused = client.patch(f"/chats/plain {header}", json={"title": "after"}, headers={header: '"x"'})

    assert refused.status_code == 422
    assert header in refused.json()["detail"]
    assert client.get(f"/chats/plain {header}", headers={header: '"x"'}).json()["title"] == "before"


def test_a_head_is_compared_or_the_branch_is_empty(client: httpx.Client) -> None:
    begin(client, "head")
    body = {"messages": [{"name": "user", "data": "x"}]}
    answers = [client.post("/chats/head/messages", json=body, headers={"If-None-Match": tag}) for tag in ("*", '"x"')]

    assert [answer.status_code for answer in answers] == [409, 422]


@pytest.mark.parametrize(
    ("headers", "change"),
    [
        pytest.param({"If-Match": ""}, {"head_message_id": None}, id="empty"),
        pytest.param({"If-Match": '""'}, {"head_message_id": None}, id="no id"),
        pytest.param({"If-Match": '"a"b"'}, {"head_message_id": None}, id="two quotes"),
        pytest.param({"If-Match": "", "If-None-Match": "*"}, {"head_message_id": None, "name": None}, id="both"),
        pytest.param({"If-Match": '"x"'}, {"name": "other"}, id="no head is moved"),
        pytest.param({"If-Match": ""}, {"name": None}, id="nothing is changed"),
    ],
)
def test_a_condition_that_is_none_is_refused(
    client: httpx.Client, headers: dict[str, str], change: dict[str, str | None]
) -> None:
    """Else the change would be made under a condition that nobody looked at."""
    chat = f"/chats/{client.post('/chats', json={}).json()['id']}"
    client.post(f"{chat}/messages", json={"messages": [{"name": "user", "data": "x"}]})
    before = client.get(f"{chat}/branches").json()
    refused = client.patch(f"{chat}/branches/main", json=change, headers=headers)

    assert refused.status_code == 422
    assert "If-Match" in refused.json()["detail"]
    assert client.get(f"{chat}/branches").json() == before
