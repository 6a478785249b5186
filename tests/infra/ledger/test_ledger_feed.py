"""Following the log: live, from other processes, through restarts, until the end."""

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.jetstream_world import TOKEN, Server, eventually
from tests.support.ledger_world import Worker, text

import chatledger
from chatledger import Ledger, LedgerClosedError, Recorded

DEADLINE_S = 20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    with chatledger.open(path, durability="fast") as ledger:
        ledger.create_chat("c", "u")
        yield ledger


class Reader(threading.Thread):
    """Collects what a feed yields, until so many have come or the feed ends."""

    def __init__(self, feed: Iterator[Recorded], count: int | None = None) -> None:
        super().__init__(daemon=True)
        self.found: list[Recorded] = []
        self.error: BaseException | None = None
        self._feed, self._count = feed, count
        self.start()

    def run(self) -> None:
        try:
            for recorded in self._feed:
                self.found.append(recorded)
                if len(self.found) == self._count:
                    return
        except BaseException as error:  # noqa: BLE001 - raised in the thread of the test
            self.error = error

    def result(self) -> list[Recorded]:
        self.join(DEADLINE_S)
        assert not self.is_alive(), f"the feed yielded {len(self.found)} events and went on waiting"
        if self.error is not None:
            raise self.error
        return self.found


@pytest.mark.soak
def test_a_feed_of_another_process_is_live(ledger: Ledger, path: Path) -> None:
    """A feed in another process gets, in order, what this one writes."""
    start = ledger.position
    with Worker(path, durability="fast").ready() as worker:
        worker.send("positions", start, 20)
        for number in range(20):
            ledger.append("c", [text(str(number))])

        assert worker.receive() == ["ok", [event.position for event in ledger.history(after=start)]]


@pytest.mark.soak
def test_a_feed_gets_what_another_process_writes(ledger: Ledger, path: Path) -> None:
    """A feed here gets what another process writes, whole commits and in order."""
    reader = Reader(ledger.feed(None, chat_id="c"), 20)
    with Worker(path, durability="fast").ready() as worker:
        worker.answer("storm", "w", ["c"], 20)

    assert reader.result() == list(ledger.history("c"))[1:]


@pytest.mark.parametrize("attempt", range(5))
def test_closing_ends_a_feed(path: Path, attempt: int) -> None:
    """`close` ends a feed without an error, whether it waits or reads at that moment."""
    ledger = chatledger.open(path, durability="fast")
    ledger.create_chat("c", "u")
    feed = ledger.feed(0)
    first = next(feed)
    reader = Reader(feed)
    ledger.close()

    assert first.type == "chat_created"
    assert reader.result() == []


def test_closing_ends_reading_the_past(path: Path) -> None:
    """A feed that does not wait cannot be complete when the ledger is closed, and says so."""
    with chatledger.open(path, durability="fast") as ledger:
        ledger.create_chat("c", "u")
        feed = ledger.feed(0, follow=False)
        next(feed)
    with pytest.raises(LedgerClosedError):
        list(feed)


def test_closing_one_handle_ends_its_feeds(ledger: Ledger, path: Path) -> None:
    """A feed ends with the handle that it came from, although another one keeps the same place open."""
    second = chatledger.open(path, durability="fast")
    reader = Reader(second.feed(0))
    eventually(lambda: len(reader.found) == 1)
    second.close()
    ledger.append("c", [text("after")])

    assert [event.type for event in reader.result()] == ["chat_created"]


def test_abandoned_feeds_do_not_disturb(ledger: Ledger) -> None:
    """Feeds that were begun and never read to the end cost nothing and break nothing."""
    feeds = [ledger.feed(0) for _ in range(50)]
    for feed in feeds:
        next(feed)
    del feeds
    ledger.append("c", [text("x")])

    assert [event.type for event in ledger.feed(0, follow=False)] == ["chat_created", "message_appended"]


@pytest.mark.soak
def test_a_slow_feed_loses_nothing(ledger: Ledger) -> None:
    """A reader that lies far behind gets every event, and did not slow down the writer."""
    feed = ledger.feed(0)
    next(feed)
    for number in range(2500):
        ledger.append("c", [text(str(number))])

    assert [next(feed).version for _ in range(2500)] == list(range(2, 2502))


@pytest.mark.soak
def test_feeds_go_on_when_the_embedded_server_dies(ledger: Ledger, path: Path) -> None:
    """A feed that waits sees the events before and after two deaths of the server, in order (PS 10)."""
    start = ledger.position
    reader = Reader(ledger.feed(start), 2000)
    for number in range(2000):
        if number in {700, 1400}:
            os.kill(json.loads((path / "endpoint.json").read_bytes())["server_pid"], signal.SIGKILL)
        ledger.append("c", [text(str(number), id=f"m{number}")])
    found = reader.result()

    assert [event.version for event in found] == list(range(2, 2002))
    assert [event.position for event in found] == [event.position for event in ledger.history(after=start)]


@pytest.mark.soak
def test_a_subscriber_rides_through_two_restarts(tmp_path: Path) -> None:
    """A subscriber at position p receives p+1 onwards, in order and without holes, over two restarts (PS 10)."""
    server = Server(tmp_path / "server").start()
    port = server.port
    location = f"nats://{TOKEN}@127.0.0.1:{port}"
    try:
        with (
            chatledger.open(location, create=True, index=tmp_path / "writer", timeout_s=60) as writer,
            chatledger.open(location, index=tmp_path / "reader", timeout_s=60) as subscriber,
        ):
            writer.create_chat("c", "u")
            start = writer.position
            reader = Reader(subscriber.feed(start), 2000)
            for number in range(2000):
                if number in {600, 1300}:
                    eventually(lambda: len(reader.found) > 250)
                    if number == 600:
                        server.stop()
                    else:
                        server.kill()
                    server.start(port=port)
                writer.append("c", [text(str(number))])
            found = reader.result()

            assert [event.position for event in found] == [event.position for event in writer.history(after=start)]
            assert [event.version for event in found] == list(range(2, 2002))
            assert subscriber.sync() == writer.position
    finally:
        server.stop()
