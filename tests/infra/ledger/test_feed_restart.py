"""Feeds while the server dies, restarts or stays away; and what they leave on it."""

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.js.errors import NoKeysError
from tests.support.jetstream_world import TOKEN, Server, connected, eventually
from tests.support.ledger_world import internals, text

import chatledger
from chatledger import ConfigurationError, Ledger, LogUnavailableError
from chatledger.infra.log.nats import watching
from chatledger.jetstream import JetStreamClient


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path / "server").start()
    try:
        yield server
    finally:
        server.stop()


def open_on(server: Server, index: Path, *, timeout_s: float = 60, **options: Any) -> Ledger:
    return chatledger.open(f"nats://{TOKEN}@127.0.0.1:{server.port}", index=index, timeout_s=timeout_s, **options)


def ask(client: JetStreamClient, subject: str) -> dict[str, Any]:
    return client.api(subject, None, dict[str, Any], client.deadline())


class Handler(threading.Thread):
    """Handles what a feed gives, each event acknowledged or not, and begins again after what may happen to a log."""

    def __init__(self, ledger: Ledger, *, is_acked: bool) -> None:
        super().__init__(daemon=True)
        self.handled: list[int] = []
        self._is_acked = is_acked
        self.feed = ledger.feed(name="n")

    def run(self) -> None:
        while True:
            try:
                for recorded in self.feed:
                    self.handled.append(recorded.position)
                    if self._is_acked:
                        self.feed.ack()
            except LogUnavailableError:
                continue
            return


@pytest.mark.soak
@pytest.mark.parametrize("is_acked", [True, False], ids=["ack", "auto"])
def test_a_named_feed_rides_through_two_restarts(server: Server, tmp_path: Path, is_acked: bool) -> None:  # noqa: FBT001
    """At position p it receives p+1 onwards in order, each once, while 2,000 events are written and the server restarts twice (PS 10)."""
    with open_on(server, tmp_path / "a", create=True) as writer, open_on(server, tmp_path / "b") as reader:
        writer.create_chat("c", "u")
        handler = Handler(reader, is_acked=is_acked)
        handler.start()
        port = server.port
        for number in range(2000):
            if number in {600, 1300}:
                eventually(lambda: len(handler.handled) > 250)
                server.stop() if number == 600 else server.kill()
                server.start(port=port)
            writer.append("c", [text(str(number))])
        last = writer.last_position()
        eventually(lambda: handler.handled[-1:] == [last])
        handler.feed.close()
        handler.join(30)

        assert [recorded.position for recorded in writer.history()] == handler.handled
        assert last == writer.feeds()[0].position + (0 if is_acked else writer.feeds()[0].lag)


@pytest.mark.soak
def test_a_named_feed_rides_through_deaths_of_the_embedded_server(tmp_path: Path) -> None:
    """The same where the server is a child that is killed, and comes back on another port."""
    path = tmp_path / "data"
    with chatledger.open(path, durability="fast", timeout_s=60) as ledger:
        ledger.create_chat("c", "u")
        handler = Handler(ledger, is_acked=False)
        handler.start()
        for number in range(600):
            if number in {200, 400}:
                os.kill(json.loads((path / "endpoint.json").read_bytes())["server_pid"], signal.SIGKILL)
            ledger.append("c", [text(str(number))])
        eventually(lambda: len(handler.handled) >= 601)
        eventually(lambda: ledger.feeds()[0].lag == 0)

        assert [recorded.position for recorded in ledger.history()] == handler.handled
    handler.join(30)
    assert not handler.is_alive()


@pytest.mark.soak
def test_a_server_that_stays_away(server: Server, tmp_path: Path) -> None:
    """The feed says so, and the same feed or a new one goes on where it was when the server is back."""
    with open_on(server, tmp_path / "a", timeout_s=1, create=True) as ledger:
        ledger.create_chat("c", "u")
        for number in range(5):
            ledger.append("c", [text(str(number))])
        named, plain = ledger.feed(name="n"), ledger.feed(0)
        given = [next(named).position for _ in range(6)]
        assert given == [next(plain).position for _ in range(6)]
        port = server.port
        server.kill()
        with pytest.raises(LogUnavailableError):
            next(named)
        with pytest.raises(LogUnavailableError):
            named.ack()
        with pytest.raises(LogUnavailableError):
            next(plain)
        assert 6 == plain.position == named.position
        server.start(port=port)
        eventually(lambda: _is_back(ledger))
        ledger.append("c", [text("more")])

        assert 7 == next(named).position == next(plain).position
        named.close()
        assert 6 == ledger.feeds()[0].position


def _is_back(ledger: Ledger) -> bool:
    try:
        return ledger.last_position() > 0
    except LogUnavailableError:
        return False


@pytest.mark.soak
def test_feeds_leave_nothing_on_the_server(server: Server, tmp_path: Path) -> None:
    """However many feeds wait, the ledger has one consumer for them beside its own, and none when it is closed."""
    with connected(server.endpoint) as client:

        def consumers() -> int:
            return int(ask(client, "CONSUMER.LIST.chatledger")["total"])

        with open_on(server, tmp_path / "a", create=True) as ledger:
            ledger.create_chat("c", "u")
            feeds = [ledger.feed(0, name=f"n{number}") for number in range(20)]
            threads = [threading.Thread(target=list, args=(feed,)) for feed in feeds]
            for thread in threads:
                thread.start()
            for number in range(50):
                ledger.append("c", [text(str(number))])
                assert consumers() <= 2
            eventually(lambda: all(info.lag == 0 for info in ledger.feeds()))
            for feed in feeds:
                feed.close()
            for thread in threads:
                thread.join(30)
                assert not thread.is_alive()
            assert consumers() <= 2
        eventually(lambda: consumers() == 0)
        assert 0 == int(ask(client, "CONSUMER.LIST.KV_chatledger-feeds")["total"])


def test_a_feed_that_waits_has_its_events_sent(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What others write comes to it by itself, in order, commits of several events too, and nothing that was erased."""
    monkeypatch.setattr(watching, "KEPT_S", 60.0)
    with open_on(server, tmp_path / "a", create=True) as ledger, open_on(server, tmp_path / "b") as other:
        other.create_chat("c", "u")
        log, sent, given = internals(ledger).log, set[int](), list[int]()
        news = log.news

        def noted(after: int) -> Any:
            found = news(after)
            sent.update(recorded.position for recorded in found)
            return found

        monkeypatch.setattr(log, "news", noted)
        feed = ledger.feed(after=0)
        thread = threading.Thread(target=lambda: given.extend(recorded.position for recorded in feed))
        thread.start()
        for number in range(8):
            eventually(lambda: bool(log._stream_recorder._watcher._waiters))
            other.append("c", [text("x" * 600_000)] * (1 + number % 2 * 2) if number > 5 else [text("x")])
            eventually(lambda: feed.position >= other.last_position() - 1)
        last = other.last_position()
        eventually(lambda: log._stream_recorder._watcher._latest >= last and last in given)
        ledger.delete_chat("c")
        assert not any(news(after) for after in range(last))
        eventually(lambda: last + 1 in given)
        feed.close()
        thread.join(30)
        assert not thread.is_alive()
    assert given == list(range(1, last + 2))
    assert len(sent) >= 6


def test_positions_lie_in_a_stream_like_the_log(server: Server, tmp_path: Path) -> None:
    """It is made with the log, holds one message a name, on files, with as many replicas as the log."""
    with connected(server.endpoint) as client, open_on(server, tmp_path / "a", create=True) as ledger:
        ledger.create_chat("c", "u")
        assert [] == ledger.feeds()
        assert not ledger.forget_feed("n")
        names = {stream["config"]["name"] for stream in ask(client, "STREAM.LIST")["streams"]}
        assert names == {"chatledger", "chatledger-blobs", "chatledger-live", "KV_chatledger-feeds"}
        for name in ("n", "m"):
            with ledger.feed(name=name, follow=False) as feed:
                for _ in feed:
                    feed.ack()
        info = ask(client, "STREAM.INFO.KV_chatledger-feeds")

        assert 2 == info["state"]["messages"]
        assert ("file", 1, 1, 0) == tuple(
            info["config"][key] for key in ("storage", "num_replicas", "max_msgs_per_subject", "max_age")
        )
        assert ask(client, "STREAM.INFO.chatledger")["state"]["messages"] == 1


def handle(ledger: Ledger, name: str) -> list[int]:
    """The positions of what a named feed gives now, acknowledged."""
    with ledger.feed(name=name, follow=False) as feed:
        found: list[int] = []
        for recorded in feed:
            found.append(recorded.position)
            feed.ack()
        return found


def test_positions_are_a_key_value_bucket_of_nats(server: Server, tmp_path: Path) -> None:
    """nats-py's own KeyValue finds them by the name of the feed, and deletes them."""

    async def listed(bucket: Any) -> list[str]:
        for _ in range(20):  # on a busy machine nats-py gives up before the first key comes
            with suppress(NoKeysError):
                keys: list[str] = await bucket.keys()
                return keys
        return []

    async def read_and_delete() -> tuple[list[str], dict[str, Any]]:
        untyped: Any = nats
        connection = await untyped.connect(server.url, token=TOKEN)
        try:
            bucket = await connection.jetstream().key_value("chatledger-feeds")
            keys, entry = await listed(bucket), await bucket.get("0/1/mailer")
            await bucket.delete("0/1/mailer")
            return keys, {**json.loads(entry.value or b""), "revision": entry.revision}
        finally:
            await connection.close()

    with open_on(server, tmp_path / "a", create=True) as ledger:
        ledger.create_chat("c", "u")
        assert [1] == handle(ledger, "mailer")
        assert [1] == handle(ledger, "of\u00a0Zoë")
        keys, found = asyncio.run(read_and_delete())
        assert ["of\u00a0Zoë"] == [info.name for info in ledger.feeds()]
        assert [1] == handle(ledger, "mailer")
        assert {"mailer", "of\u00a0Zoë"} == {info.name for info in ledger.feeds()}

    assert "0/1/mailer" in keys
    assert (1, "mailer") == (found["position"], found["name"])
    assert found["revision"] > 0


def test_a_stream_that_is_something_else_is_refused(server: Server, tmp_path: Path) -> None:
    with connected(server.endpoint) as client, open_on(server, tmp_path / "a", create=True) as ledger:
        ask(client, "STREAM.DELETE.KV_chatledger-feeds")
        config = {"name": "KV_chatledger-feeds", "subjects": ["other"], "storage": "memory"}
        client.api("STREAM.CREATE.KV_chatledger-feeds", config, dict[str, Any], client.deadline())
        with pytest.raises(ConfigurationError, match="KV_chatledger-feeds"):
            ledger.feed(name="n")


@pytest.mark.soak
def test_a_slow_reader_holds_little(tmp_path: Path) -> None:
    """Whatever waits on the log, and however large: a feed holds a few megabytes of it, and the writer does not wait."""
    with chatledger.open(tmp_path / "data", durability="fast") as ledger:
        ledger.create_chat("c", "u")
        feed = ledger.feed(0)
        next(feed)
        big = "x" * 500_000
        for _ in range(120):
            ledger.append("c", [text(big)])
        held = [0]
        for _ in range(120):
            next(feed)
            held.append(len(internals_of(feed)))

        assert max(held) <= 16


def internals_of(feed: Any) -> Any:
    return feed.cursor._page


@pytest.mark.guard
def test_an_idle_feed_asks_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While nothing happens, the log is read once in several seconds, only to learn whether it still answers."""
    with chatledger.open(tmp_path / "data", durability="fast") as ledger:
        ledger.create_chat("c", "u")
        store = internals(ledger)
        reads: list[int] = []
        page = store.page

        def spy(*args: Any, **options: Any) -> Any:
            reads.append(1)
            return page(*args, **options)

        monkeypatch.setattr(store, "page", spy)
        feed = ledger.feed()
        reader = threading.Thread(target=lambda: list(feed))
        reader.start()
        time.sleep(1.2)
        feed.close()
        reader.join(20)

        assert len(reads) <= 2
