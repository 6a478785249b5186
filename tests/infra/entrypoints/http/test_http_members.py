"""Members of chats over HTTP, each with a token of their own: every operation as a reader, as a writer, and after a removal."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, Final

import httpx
import pytest
from tests.infra.entrypoints.http.test_http_access_everywhere import ABSENT, THEIRS, answer, ask, furnish, operations
from tests.support.http_world import API, client_of, serving

import chatledger
from chatledger.server import Principal, create_app

CHAT: Final = f"/chats/{THEIRS['chat_id']}"
OTHERWISE: Final = {
    "fork_chat": 201,
    "remove_member": 200,  # a copy of one's own; somebody who is no member
    "revoke_link": 200,
    "redact_words": 200,  # there are none
    "create_branch": 201,
    "update_branch": 200,
    "merge": 200,  # it is merged already
    "mark_stale": 200,
    "approve_regeneration": 200,
    "show_message": 200,
    "list_heads": 200,  # which write nothing
    "list_held": 200,
    "make_bundle": 200,
    "sum_heads": 200,
    "redact_copies": 200,  # of what is no copy
    "list_standings": 200,
    "export_tail": 200,
    "settle_chat": 200,  # whose answer says why not
    "add_messages": 422,
    "import_chats": 422,
    "set_member": 422,
    "append_messages": 409,
    "begin_regeneration": 409,
    "start_run": 409,
    "complete_run": 409,
    "fail_run": 409,
    "suspend_run": 409,
}
"""Operations that are not refused as a reader's here: there is nothing to be changed, or something else is wrong, which is said first."""


class World:
    """Clients of the native API: of Bob, who has one of everything, and of those whom he let in; by their names."""

    def __init__(self, url: str) -> None:
        self.url, self._clients = url, dict[str, httpx.Client]()

    def __getitem__(self, name: str) -> httpx.Client:
        if name not in self._clients:
            headers = {"X-Api-Key": name}
            self._clients[name] = httpx.Client(base_url=self.url, headers=headers, timeout=30)
        return self._clients[name]

    def close(self) -> None:
        """Close the clients."""
        for client in self._clients.values():
            client.close()


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """Carol reads Bob's chat, Dan writes to it, and Erin did before she was removed."""
    app = create_app(
        chatledger.open_async("memory:"), authenticate=lambda headers: Principal(user_id=headers["x-api-key"])
    )
    with client_of(app) as client, closing(World(str(client.base_url))) as world:
        furnish(world["bob"])
        for name, role in (("carol", "reader"), ("dan", "writer"), ("erin", "writer")):
            world["bob"].put(f"{CHAT}/members/{name}", json={"role": role}).raise_for_status()
        assert world["erin"].get(CHAT).status_code == 200
        assert world["erin"].delete(f"{CHAT}/members/erin").json() == {"deleted": True}
        yield world


def written(world: World) -> list[Any]:
    """Each event of Bob's chat, and how its live stream stands."""
    events = world["bob"].get("/history", params={"chat_id": THEIRS["chat_id"], "limit": 1000}).json()
    live = world["bob"].get(f"{CHAT}/live").json()
    return [events, [(one["id"], one["status"], one["chunk_count"], one["epoch"]) for one in live]]


@pytest.mark.parametrize("operation", operations(), ids=lambda one: one[2]["operationId"])
def test_who_was_removed_is_a_stranger(world: World, operation: tuple[str, str, dict[str, Any]]) -> None:
    """Every operation answers as if there were no such thing, and changes nothing."""
    asked, absent = ask(operation, THEIRS), ask(operation, ABSENT)
    if asked == absent:
        pytest.skip("it names nothing that could be another's")
    before = written(world)
    for accept in ["application/json", "text/event-stream"] if operation[0] == "GET" else ["application/json"]:
        theirs = answer(world["erin"], asked, THEIRS, accept)
        assert theirs == answer(world["erin"], absent, ABSENT, accept)
    assert before == written(world)


@pytest.mark.parametrize("operation", operations(), ids=lambda one: one[2]["operationId"])
def test_a_reader_changes_nothing(world: World, operation: tuple[str, str, dict[str, Any]]) -> None:
    """Every operation that writes is refused, and Bob's chat and its live stream are as they were."""
    method, path, told = operation
    asked = ask(operation, THEIRS)
    if method == "GET" or asked == ask(operation, ABSENT):
        pytest.skip("it writes to no chat that could be another's")
    before = written(world)
    status, _, text = answer(world["carol"], asked, THEIRS, "application/json")
    if "{state_id}" not in path and "{name}/ack" not in path and "/feeds/" not in path:
        assert status in {403, OTHERWISE.get(told["operationId"])}, text
    assert before == written(world)


def test_members_by_routes(world: World) -> None:
    """The owner lets in and throws out, members see who is there, and strangers are told that there is no chat."""
    bob, carol, dan, eve = (world[name] for name in ("bob", "carol", "dan", "eve"))
    members = [(one["user_id"], one["role"]) for one in carol.get(f"{CHAT}/members").json()]
    assert members == [("carol", "reader"), ("dan", "writer")]
    for stranger in (eve, world["erin"]):
        absent = stranger.get("/chats/none/members")
        theirs = stranger.get(f"{CHAT}/members")
        assert (404, absent.json()["title"]) == (theirs.status_code, theirs.json()["title"])
        assert stranger.put(f"{CHAT}/members/eve", json={"role": "reader"}).status_code == 404
        assert stranger.delete(f"{CHAT}/members/dan").json() == {"deleted": False}
    for member in (carol, dan):
        refused = member.put(f"{CHAT}/members/eve", json={"role": "reader"})
        assert (403, "urn:chatledger:error:AccessDeniedError") == (refused.status_code, refused.json()["type"])
        assert "nothing was written" in refused.json()["detail"]
        assert member.delete(f"{CHAT}/members/{'dan' if member is carol else 'carol'}").status_code == 403
    assert bob.put(f"{CHAT}/members/bob", json={"role": "reader"}).status_code == 422
    assert bob.put(f"{CHAT}/members/eve", json={"role": "owner"}).status_code == 422
    made = bob.put(f"{CHAT}/members/{'a%2Fb%20c'}", json={"role": "reader"}).json()
    assert ("a/b c", "reader", THEIRS["chat_id"]) == (made["user_id"], made["role"], made["chat_id"])
    assert world["a/b c"].get(CHAT).status_code == 200
    assert bob.delete(f"{CHAT}/members/a%2Fb%20c").json() == {"deleted": True}
    assert world["a/b c"].get(CHAT).status_code == 404


def test_a_writer_goes_on_with_the_chat(world: World) -> None:
    """Writes are in the writer's name, lists and searches have the chat, and a move is seen by all."""
    bob, carol, dan = world["bob"], world["carol"], world["dan"]
    bob.post("/chats", json={"id": "talk", "members": {"dan": "writer", "carol": "reader"}}).raise_for_status()
    for client, text in ((bob, "leeks from Riga"), (dan, "leeks from Tartu")):
        client.post("/chats/talk/messages", json={"messages": [{"name": "user", "data": text}]}).raise_for_status()

    assert ["leeks from Riga", "leeks from Tartu"] == [
        one["message"]["data"] for one in carol.get("/chats/talk/messages").json()["entries"]
    ]
    assert "talk" in {chat["id"] for chat in carol.get("/chats").json()["chats"]}
    assert 2 == len(_hits(carol))
    events = carol.get("/history", params={"chat_id": "talk"}).json()["events"]
    actors = [one["actor"] for one in events if one["type"] == "message_appended"]
    assert ["bob", "dan"] == actors
    assert [] == _hits(world["erin"])
    past = {"as_of": events[2]["position"]}  # the whole of the commit that made it
    assert dan.get("/chats/talk", params=past).json()["updated_at"] < events[-1]["occurred_at"]
    assert dan.get("/chats/talk/members", params={"as_of": events[-1]["position"]}).json()
    bob.delete("/chats/talk/members/dan").raise_for_status()
    # The view of that moment is kept, and who may look is asked anew.
    assert dan.get("/chats/talk", params=past).status_code == 404


def test_open_streams_of_who_is_removed(world: World) -> None:
    """A feed shows nothing more, and a live stream ends with an error."""
    bob, dan = world["bob"], world["dan"]
    bob.post("/chats", json={"id": "hall", "members": {"dan": "reader"}}).raise_for_status()
    bob.post("/chats/hall/live", json={"id": "speech"}).raise_for_status()
    seen: dict[str, list[str]] = {"feed": [], "live": []}

    def read(name: str, path: str) -> None:
        with dan.stream("GET", path, headers={"Accept": "text/event-stream"}) as opened:
            for line in opened.iter_lines():
                seen[name].append(line)
                if "the last" in line:
                    return

    readers = [
        threading.Thread(target=read, args=("feed", "/feed"), daemon=True),
        threading.Thread(target=read, args=("live", "/chats/hall/live/speech/chunks"), daemon=True),
    ]
    for reader in readers:
        reader.start()
    _until(lambda: bool(seen["feed"]))  # it has begun
    _say(bob, "hall", "public")
    bob.post("/chats/hall/live/speech/chunks", json={"epoch": 1, "chunks": ["public"]}).raise_for_status()
    _until(lambda: "public" in str(seen["feed"]) and "public" in str(seen["live"]))
    bob.delete("/chats/hall/members/dan").raise_for_status()
    _say(bob, "hall", "secret")
    bob.post("/chats/hall/live/speech/chunks", json={"epoch": 1, "chunks": ["secret"]}).raise_for_status()
    dan.post("/chats", json={"id": "own"}).raise_for_status()
    _say(dan, "own", "the last")
    for reader in readers:
        reader.join(30)
        assert not reader.is_alive()

    assert "secret" not in str(seen)
    assert "LiveStreamNotFoundError" in str(seen["live"])
    assert "the last" in str(seen["feed"])


def _hits(client: httpx.Client, **named: str) -> list[Any]:
    found: list[Any] = client.get("/search", params={"q": "leeks", **named}).json()["hits"]
    return found


def _say(client: httpx.Client, chat_id: str, text: str) -> None:
    client.post(f"/chats/{chat_id}/messages", json={"messages": [{"name": "user", "data": text}]}).raise_for_status()


def _until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_conversations_and_ui_messages_of_members(world: World) -> None:
    """The doors of other clients go by the same roles."""
    bob, carol, dan, eve = (world[name] for name in ("bob", "carol", "dan", "eve"))
    members = {"carol": "reader", "dan": "writer"}
    bob.post("/chats", json={"id": "conv_1", "members": members}).raise_for_status()
    whole = world.url.removesuffix("/").removesuffix(API)
    item = {"items": [{"type": "message", "role": "user", "content": "hello"}]}
    ui = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "hello"}]}
    for path, body in (("/v1/conversations/conv_1/items", item), ("/api/chat/conv_1/messages", {"messages": [ui]})):
        statuses = [client.post(whole + path, json=body).status_code for client in (carol, dan, eve)]
        assert [403, 200] == statuses[:2], path
        assert statuses[2] in {404, 409}, path
        shown = path.removesuffix("/messages")
        statuses = [client.get(whole + shown).status_code for client in (carol, dan, eve)]
        assert [200, 200] == statuses[:2], path
    assert [200, 404] == [client.get(f"{whole}/v1/conversations/conv_1").status_code for client in (carol, eve)]
    assert carol.delete(f"{whole}/v1/conversations/conv_1").status_code == 403
    assert dan.delete(f"{whole}/v1/conversations/conv_1").status_code == 403
    assert bob.get("/chats/conv_1").status_code == 200


def test_an_application_says_who_belongs_to_a_chat() -> None:
    """`authorize` is asked for the chat that a request names, in its path or query; what it says holds for that request."""
    roles: dict[tuple[str | None, str], Any] = {}
    asked: list[tuple[str | None, str]] = []

    async def authorize(principal: Principal, chat_id: str) -> Any:
        asked.append((principal.user_id, chat_id))
        return roles.get((principal.user_id, chat_id))

    app = create_app(
        chatledger.open_async("memory:"),
        authenticate=lambda headers: Principal(user_id=headers["x-api-key"]),
        authorize=authorize,
    )
    with serving(app) as url, closing(World(url + API)) as world:
        ann, ben = world["ann"], world["ben"]
        ann.post("/chats", json={"id": "a/b"}).raise_for_status()
        chat = "/chats/a%2Fb"
        ann.post(f"{chat}/messages", json={"messages": [{"name": "user", "data": "leeks"}]}).raise_for_status()
        assert ben.get(chat).status_code == 404

        roles["ben", "a/b"] = "reader"

        assert ("ben", "a/b") in asked
        assert ben.get(chat).json()["user_id"] == "ann"
        assert ben.get(chat, params={"as_of": 1}).status_code == 200
        assert 1 == len(_hits(ben, chat_id="a/b"))
        assert [] == _hits(ben)
        assert [] == ben.get("/chats").json()["chats"]
        message = {"messages": [{"name": "user", "data": "me too"}]}
        assert ben.post(f"{chat}/messages", json=message).status_code == 403

        roles["ben", "a/b"] = "writer"

        assert ben.post(f"{chat}/messages", json=message).status_code == 201
        assert ben.delete(chat).status_code == 403
        assert ben.put(f"{chat}/members/ben", json={"role": "writer"}).status_code == 403
        with httpx.stream("GET", f"{url}{API}{chat}/messages", headers={"X-Api-Key": "ben"}) as opened:
            assert 2 == len(json.loads(opened.read())["entries"])

        del roles["ben", "a/b"]

        assert ben.get(chat).status_code == 404
        assert ben.get(chat, params={"as_of": 1}).status_code == 404
        roles["ann", "a/b"] = None  # what a chat says is not taken away
        assert ann.get(chat).status_code == 200
        roles["ben", "a/b"] = "owner"
        assert ben.get(chat).status_code == 500
