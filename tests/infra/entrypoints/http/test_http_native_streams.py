"""The native API: history, feeds, live streams and verification, as events over a real socket."""

import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from tests.support.events import Event, events_of
from tests.support.http_world import client_of

import chatledger
from chatledger.admin import check_excerpt
from chatledger.infra.entrypoints.http.server_sent_events import ServerSentEvent
from chatledger.server import Principal, create_app

TYPE = "urn:chatledger:error:"


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key that signs anchors."""
    path = tmp_path_factory.mktemp("keys") / "anchor.key"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", path], check=True, capture_output=True)
    return path


@pytest.fixture(scope="module")
def app(key: Path) -> Starlette:
    return create_app(chatledger.open_async("memory:"), anchor_key=key)


@pytest.fixture(scope="module")
def client(app: Starlette) -> Iterator[httpx.Client]:
    with client_of(app) as client:
        yield client


def say(client: httpx.Client, chat_id: str, *texts: str) -> list[str]:
    """The ids of messages that are appended."""
    client.post("/chats", json={"id": chat_id})
    messages = [{"name": "user", "data": text} for text in texts]
    return [one["id"] for one in client.post(f"/chats/{chat_id}/messages", json={"messages": messages}).json()]


def taken(events: Iterator[Event], count: int) -> list[Event]:
    """The next events."""
    return [next(events) for _ in range(count)]


# History


def test_history_by_page_and_as_a_stream(client: httpx.Client) -> None:
    for number in range(5):
        say(client, "told", str(number))
    pages: list[dict[str, Any]] = []
    after: int | None = 0
    while after is not None:
        page = client.get("/history", params={"chat_id": "told", "limit": 2, "after": after}).json()
        pages += page["events"]
        after = page["next"]

    with events_of(client, "/history", chat_id="told") as events:
        streamed = list(events)
    with events_of(client, "/history", chat_id="told", last_id=streamed[1].id) as events:
        rest = list(events)

    assert ["chat_created"] + 5 * ["message_appended"] == [one["type"] for one in pages]
    assert [Event("message", str(one["position"]), one) for one in pages] == streamed[:-1]
    assert streamed[2:] == rest
    assert Event("end", None, {}) == streamed[-1]
    then = pages[3]["position"]
    with events_of(client, "/history", chat_id="told", as_of=then, topics="message_appended") as events:
        assert streamed[1:4] == list(events)[:-1]
    earlier = client.get("/history", params={"chat_id": "told", "as_of": then}).json()
    assert (pages[:4], None) == (earlier["events"], earlier["next"])


# Feeds


def test_a_feed_goes_on_after_the_last_event_that_was_seen(client: httpx.Client) -> None:
    say(client, "fed", "before")
    with events_of(client, "/feed", after=0, chat_id="fed") as events:
        created, first = taken(events, 2)
        say(client, "fed", "while")
        second = next(events)
    say(client, "fed", "meanwhile")
    with events_of(client, "/feed", last_id=second.id, chat_id="fed") as events:
        third = next(events)

    assert ["chat_created", *3 * ["message_appended"]] == [one.data["type"] for one in (created, first, second, third)]
    assert ["before", "while", "meanwhile"] == [
        one.data["payload"]["messages"][0]["data"] for one in (first, second, third)
    ]
    with events_of(client, "/feed", after=0, chat_id="fed", topics="chat_created", follow="false") as events:
        assert [created] == list(events)


def test_a_named_feed_gives_again_what_was_not_acknowledged(client: httpx.Client) -> None:
    say(client, "named", "a")
    say(client, "named", "b")
    query = {"name": "mailer", "chat_id": "named", "auto_ack": "false"}
    with events_of(client, "/feed", **query) as events:
        seen = taken(events, 3)
    with events_of(client, "/feed", **query) as events:
        assert seen == taken(events, 3)
        acked = client.post("/feeds/mailer/ack", json={"position": int(seen[1].id or 0)}).json()

    with events_of(client, "/feed", **query) as events:
        assert seen[2:] == taken(events, 1)
    assert ("mailer", int(seen[1].id or 0)) == (acked["name"], acked["position"])
    assert ["mailer"] == [one["name"] for one in client.get("/feeds").json()]
    late = client.post("/feeds/mailer/ack", json={"position": 1})
    assert acked["position"] == late.json()["position"]
    assert client.post("/feeds/mailer/ack", json={"position": 10**9}).status_code == 422
    assert client.post("/feeds/printer/ack", json={"position": 1}).status_code == 404
    assert client.delete("/feeds/mailer").json() == {"deleted": True}
    assert client.delete("/feeds/mailer").json() == {"deleted": False}


def test_a_named_feed_keeps_what_was_sent(client: httpx.Client) -> None:
    say(client, "sent", "a")
    query = {"name": "printer", "chat_id": "sent", "follow": "false"}
    with events_of(client, "/feed", **query) as events:
        assert ["chat_created", "message_appended"] == [one.data["type"] for one in events]
    with events_of(client, "/feed", **query) as events:
        assert [] == list(events)


def test_what_was_sent_and_never_arrived_is_given_again(client: httpx.Client) -> None:
    """The server counts it as handled; the reader, who comes back with the last id that it saw, knows better."""
    (message,) = say(client, "wire", "a")
    say(client, "wire", "b")
    query = {"name": "wire", "chat_id": "wire"}
    with events_of(client, "/feed", **query, follow="false") as events:
        seen = list(events)
    with events_of(client, "/feed", **query, last_id=seen[0].id) as events:
        assert seen[1:] == taken(events, 2)
        client.put("/chats/wire/checkpoints/here", json={"message_id": message})
        assert "checkpoint_set" == next(events).data["type"]


def test_a_key_that_only_reads_takes_no_name() -> None:
    reader = Principal(user_id="ada", scopes=frozenset({"read"}))
    app = create_app(chatledger.open_async("memory:"), authenticate=lambda _: reader)
    with client_of(app) as client:
        assert client.get("/feed", params={"name": "n"}).status_code == 403
        assert client.get("/feed", params={"follow": "false"}).status_code == 200
        head = client.head("/feed")
        assert (head.status_code, head.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")


def test_who_takes_the_name_of_a_feed_ends_the_earlier_reader(client: httpx.Client) -> None:
    say(client, "lost", "a")
    query = {"name": "one", "chat_id": "lost"}
    with events_of(client, "/feed", **query) as earlier:
        taken(earlier, 1)
        with events_of(client, "/feed", **query) as later:
            taken(later, 2)
            say(client, "lost", "b")
            found = list(earlier)
    assert ("error", TYPE + "ConflictError", 409) == (found[-1].name, found[-1].data["type"], found[-1].data["status"])


def test_feeds_that_cannot_begin(client: httpx.Client) -> None:
    accept = {"Accept": "text/event-stream"}
    for query in ({"share": "4/4"}, {"share": "x"}, {"after": "-1"}, {"name": ""}, {"what": "1"}):
        refused = client.get("/feed", params=query, headers=accept)
        assert (refused.status_code, refused.json()["type"]) == (422, TYPE + "InvalidValueError"), refused.text
    assert client.get("/feed", headers={"Last-Event-ID": "soon"}).status_code == 422


# Live streams


def live(client: httpx.Client, chat_id: str, **values: Any) -> tuple[str, int]:
    """The path of a new live stream, and its epoch."""
    started = client.post(f"/chats/{chat_id}/live", json=values)
    assert started.status_code == 201, started.text
    return f"/chats/{chat_id}/live/{started.json()['id']}", started.json()["epoch"]


def test_a_live_stream_is_read_while_it_grows_and_becomes_a_message(client: httpx.Client) -> None:
    (question,) = say(client, "grow", "why?")
    path, epoch = live(client, "grow", id="answer")
    client.post(f"{path}/chunks", json={"epoch": epoch, "chunks": ["be", "cause "]})

    with events_of(client, f"{path}/chunks") as events:
        first = taken(events, 2)
        written = client.post(f"{path}/chunks", json={"epoch": epoch, "chunks": ["it is so"]}).json()
        message = client.post(f"{path}/commit", json={"epoch": epoch}, headers={"If-Match": f'"{question}"'})
        rest = list(events)

    assert ["be", "cause "] == [one.data["data"] for one in first]
    assert ["1", "2", "3"] == [one.id for one in [*first, rest[0]]]
    assert 3 == written["chunk_count"]
    assert ("end", "committed") == (rest[-1].name, rest[-1].data["status"])
    assert ("because it is so", question) == (message.json()["text"], message.json()["parent_id"])
    assert message.json() == client.post(f"{path}/commit", json={"epoch": epoch}).json()
    assert ("committed", message.json()["id"]) == (
        client.get(path).json()["status"],
        client.get(path).json()["message_id"],
    )
    with events_of(client, f"{path}/chunks", last_id="2") as events:
        assert rest == list(events)
    assert ["it is so"] == [one["data"] for one in client.get(f"{path}/chunks", params={"after": 2}).json()]
    assert ["answer"] == [one["id"] for one in client.get("/chats/grow/live").json()]


def test_a_commit_that_expects_another_head_leaves_the_stream_open(client: httpx.Client) -> None:
    say(client, "open", "why?")
    path, epoch = live(client, "open")
    client.post(f"{path}/chunks", json={"epoch": epoch, "chunks": ["a"]})

    refused = client.post(f"{path}/commit", json={"epoch": epoch}, headers={"If-None-Match": "*"})

    assert (refused.status_code, refused.json()["type"]) == (409, TYPE + "HeadConflictError")
    client.post(f"{path}/chunks", json={"epoch": epoch, "chunks": ["b"]})
    assert "ab" == client.post(f"{path}/commit", json={"epoch": epoch}).json()["text"]


def test_so_many_streams_are_written_at_once(app: Starlette, client: httpx.Client) -> None:
    """Those that have ended do not count."""
    writers = app.state.service.writers
    say(client, "many", "why?")
    paths = [live(client, "many") for _ in range(2)]
    writers._most = len(writers._held)
    for path, epoch in paths:
        client.post(f"{path}/discard", json={"epoch": epoch})
    kept = [live(client, "many") for _ in range(2)]
    writers._most = len(writers._held)

    refused = client.post("/chats/many/live")

    writers._most = 1000
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "1")
    for path, epoch in kept:
        client.post(f"{path}/discard", json={"epoch": epoch})


def test_a_name_of_an_event_is_on_one_line() -> None:
    """It may be an application's; another line would be a field or an event of its own."""
    event = ServerSentEvent(b"{}", "a\r\nid: 7\n\ndata: x", "1")

    assert event.encode() == b"event: a id: 7 data: x\ndata: {}\nid: 1\n\n"


def test_a_discarded_stream_is_dropped(client: httpx.Client) -> None:
    say(client, "drop", "why?")
    path, epoch = live(client, "drop")
    with events_of(client, f"{path}/chunks") as events:
        assert client.post(f"{path}/discard", json={"epoch": epoch}).json() == {"deleted": True}
        assert ["dropped"] == [one.data["status"] for one in events]
    assert client.post(f"{path}/chunks", json={"epoch": epoch, "chunks": ["a"]}).status_code in {404, 409}


def test_a_stream_is_fenced_by_its_epoch(client: httpx.Client) -> None:
    say(client, "fence", "why?")
    path, epoch = live(client, "fence")
    for wrong in (epoch - 1, epoch + 1):
        refused = client.post(f"{path}/chunks", json={"epoch": wrong, "chunks": ["a"]})
        assert (refused.status_code, refused.json()["status"]) == (409, 409), refused.text
    taking = client.post(f"{path}/take-over", json={"epoch": epoch})
    assert (taking.status_code, taking.json()["type"]) == (409, TYPE + "LiveConflictError")


def test_a_stream_that_nobody_writes_is_left_and_taken_over() -> None:
    """By the same API, through the same server: with the next epoch, and the first writer is refused from then on."""
    app = create_app(chatledger.open_async("memory:"))
    with client_of(app) as client:
        app.state.service.writers._idle_s = 0.2
        say(client, "idle", "why?")
        path, epoch = live(client, "idle")
        client.post(f"{path}/chunks", json={"epoch": epoch, "chunks": ["a"]})
        with events_of(client, f"{path}/chunks") as events:
            assert ["message", "end"] == [one.name for one in events]
        assert "interrupted" == client.get(path).json()["status"]
        app.state.service.writers._idle_s = 60

        taken_over = client.post(f"{path}/take-over", json={"epoch": epoch}).json()

        assert epoch + 1 == taken_over["epoch"]
        assert client.post(f"{path}/chunks", json={"epoch": epoch, "chunks": ["b"]}).status_code == 409
        client.post(f"{path}/chunks", json={"epoch": epoch + 1, "chunks": ["c"]})
        assert "ac" == client.post(f"{path}/commit", json={"epoch": epoch + 1}).json()["text"]


def test_a_stream_outlives_the_server_that_wrote_it(tmp_path: Path) -> None:
    """It is interrupted when the server stops, and written on through the next one."""
    with client_of(create_app(tmp_path / "data")) as client:
        say(client, "moved", "why?")
        path, epoch = live(client, "moved")
        client.post(f"{path}/chunks", json={"epoch": epoch, "chunks": ["a"]})
    with client_of(create_app(tmp_path / "data")) as client:
        assert "interrupted" == client.get(path).json()["status"]
        assert client.post(f"{path}/chunks", json={"epoch": epoch, "chunks": ["b"]}).status_code == 409
        later = client.post(f"{path}/take-over", json={"epoch": epoch}).json()["epoch"]
        client.post(f"{path}/chunks", json={"epoch": later, "chunks": ["b"]})
        assert "ab" == client.post(f"{path}/commit", json={"epoch": later}).json()["text"]


# Proof


def test_verification_with_progress(client: httpx.Client) -> None:
    say(client, "proven", "a")
    with events_of(client, "/verify") as events:
        *progress, last = events

    assert "result" == last.name
    assert all(one.name == "progress" and 0 <= one.data["done"] <= one.data["of"] for one in progress)
    assert last.data["event_count"] > 0
    assert last.data == client.get("/verify").json()


def test_an_anchor_proves_what_there_was(client: httpx.Client, key: Path) -> None:
    say(client, "signed", "a")
    anchor = client.post("/anchors")
    assert anchor.status_code == 201
    public = subprocess.run(
        ["openssl", "pkey", "-in", key, "-pubout"], check=True, capture_output=True, text=True
    ).stdout

    assert client.post("/verify", json={"anchor": anchor.json(), "public_key": public}).status_code == 200
    broken_ones: list[dict[str, Any]] = [
        {"anchor": anchor.json() | {"position": 1}, "public_key": public},
        {"anchor": anchor.json(), "public_key": str(key)},
        {"anchor": {}},
    ]
    for broken in broken_ones:
        refused = client.post("/verify", json=broken)
        assert (refused.status_code, refused.json()["type"]) == (422, TYPE + "InvalidValueError"), refused.text


def test_an_excerpt_shows_messages_to_others(client: httpx.Client, key: Path) -> None:
    """The server signs it, and says whether it is still so."""
    (message_id,) = say(client, "shown", "a")
    body = {"message_ids": [message_id], "audience": "bob", "expires_at": None}
    made = client.post("/excerpts", json=body)
    assert made.status_code == 201, made.text
    public = subprocess.run(["openssl", "pkey", "-in", key, "-pubout"], check=True, capture_output=True).stdout
    read = check_excerpt(made.json()["excerpt"], public, audience="bob")
    assert [shown.id for shown in read.messages] == [message_id]

    assert client.post("/excerpts/standing", json=made.json()).json()["is_valid"]
    client.patch(f"/chats/shown/messages/{message_id}/annotation", json={"hidden": True})
    assert client.post("/excerpts/standing", json=made.json()).json() == {
        "gone": [],
        "redacted": [],
        "revoked": [message_id],
        "superseded": [],
        "is_valid": False,
    }
    assert client.post("/excerpts/standing", json={"excerpt": "none"}).status_code == 422
    assert client.post("/excerpts", json=body | {"message_ids": ["none"]}).status_code == 404


def test_a_server_without_a_key_signs_nothing() -> None:
    with client_of(create_app(chatledger.open_async("memory:"))) as client:
        for refused in (client.post("/anchors"), client.post("/excerpts", json={"message_ids": ["m"]})):
            assert (refused.status_code, refused.json()["type"]) == (403, TYPE + "AccessDeniedError")


# All of them


def test_streams_end_when_the_server_stops(tmp_path: Path) -> None:
    ended: list[float] = []
    with client_of(create_app(tmp_path / "data")) as client:
        say(client, "stop", "a")
        reading = threading.Event()

        def read() -> None:
            with (
                httpx.Client(base_url=client.base_url, timeout=30) as own,
                events_of(own, "/feed", chat_id="stop", after=0) as events,
            ):
                taken(events, 2)
                reading.set()
                assert [] == list(events)
                ended.append(time.monotonic())

        reader = threading.Thread(target=read)
        reader.start()
        assert reading.wait(10)
        begun = time.monotonic()
    reader.join()
    assert ended[0] - begun < 5
