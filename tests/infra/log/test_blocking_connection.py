"""The second connection to an embedded server: what is said over it, and what happens when it ends."""

# pyright: reportPrivateUsage=false
# White-box checks, as for ruff.

import contextlib
import re
import socket
import threading
import time
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from eventsourcing.persistence import DataError, IntegrityError
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.jetstream_world import (
    Server,
    connected,
    event,
    eventually,
    inserted,
    new_name,
    new_recorder,
    running,
)
from tests.support.soak import examples

from chatledger.infra.log.nats import watching
from chatledger.infra.log.nats.blocking_connection import BlockingConnection, ConnectionBrokenError, ConnectionPool
from chatledger.infra.log.nats.client import JetStreamClient
from chatledger.infra.log.nats.connection import Connection
from chatledger.infra.log.nats.reading import at
from chatledger.infra.log.nats_server.launcher import get_server_info
from chatledger.jetstream import Endpoint, JetStreamApplicationRecorder

FAR = time.monotonic() + 3600


def named(server: Server) -> Endpoint:
    """Where a server is, with its name, as that of an embedded one. Raises `OSError` while it is away."""
    info = get_server_info(server.url)
    if info is None:
        raise ConnectionRefusedError
    return msgspec.structs.replace(server.endpoint(), server_name=info.server_name)


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[JetStreamClient]:
    with connected(lambda: named(server)) as client:
        yield client


@pytest.fixture
def recorder(client: JetStreamClient) -> JetStreamApplicationRecorder:
    return new_recorder(client)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The subjects of events that were sent over blocking connections."""
    found: list[str] = []
    send = BlockingConnection.send

    def noted(self: BlockingConnection, requests: Any) -> int:
        found.extend(subject for subject, _, _ in requests if not subject.startswith("$JS"))
        return send(self, requests)

    monkeypatch.setattr(BlockingConnection, "send", noted)
    return found


def test_an_append_goes_over_the_blocking_connection(recorder: JetStreamApplicationRecorder, said: list[str]) -> None:
    """Of one event, and of several, which are a batch."""
    assert inserted(recorder.insert_events([event("a", 1)], expected_position=0)) == [1]
    assert inserted(recorder.insert_events([event("a", 2), event("a", 3)], expected_position=1)) == [2, 3]
    assert inserted(recorder.insert_events([event("a", 4)], expected_position=3)) == [4]
    assert len(said) == 4
    assert [1, 2, 3, 4] == [one.originator_version for one in recorder.select_events("a")]


def test_a_conflict_is_one_as_ever(recorder: JetStreamApplicationRecorder, said: list[str]) -> None:
    """What the server refuses is looked into; an own attempt that was stored before is found by its id."""
    inserted(recorder.insert_events([event("a", 1)], expected_position=0, message_ids=["one"]))
    with pytest.raises(IntegrityError):
        recorder.insert_events([event("a", 1)], expected_position=0, message_ids=["two"])

    assert inserted(recorder.insert_events([event("a", 1)], expected_position=0, message_ids=["one"])) == [1]
    assert len(said) == 3


def test_too_large_an_event_is_refused(recorder: JetStreamApplicationRecorder, said: list[str]) -> None:
    """The server would hang up; so it is not told."""
    with pytest.raises(DataError):
        recorder.insert_events([event("a", 1, bytes(1 << 20))], expected_position=0)

    assert said == []
    assert inserted(recorder.insert_events([event("a", 1, bytes(1 << 19))], expected_position=0)) == [1]


@pytest.mark.parametrize("message_id", ["one\r\nTwo: 2", "ünï"])
def test_unusual_ids_bring_no_headers(
    recorder: JetStreamApplicationRecorder, client: JetStreamClient, said: list[str], message_id: str
) -> None:
    """Nobody writes headers of his own by an id, over either connection."""
    inserted(recorder.insert_events([event("a", 1)], expected_position=0, message_ids=[message_id]))
    connection = acquired(client)
    inserted(recorder.insert_events([event("b", 1)], expected_position=0, message_ids=[f"{message_id}."]))
    connection.release()

    assert said == [recorder.records.subject("a")]
    over_each = [at(client, recorder.stream, position, client.deadline()) for position in (1, 2)]
    ids = [one.headers["Nats-Msg-Id"] for one in over_each if one is not None and "Two" not in one.headers]
    clean = re.sub(r"[\r\n]", " ", message_id)
    assert ids == [clean, f"{clean}."]


def test_a_lost_answer_is_found_out_about(
    recorder: JetStreamApplicationRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message is stored, the connection ends before the answer: its position is told, and it is there once."""

    def lose(self: BlockingConnection, token: int, ends_at: float) -> Any:
        answer(self, token, ends_at)
        raise ConnectionBrokenError

    answer = BlockingConnection.answer
    with monkeypatch.context() as patch:
        patch.setattr(BlockingConnection, "answer", lose)
        assert inserted(recorder.insert_events([event("a", 1)], expected_position=0)) == [1]
    assert inserted(recorder.insert_events([event("a", 2)], expected_position=1)) == [2]
    assert recorder.state().messages == 2


def test_the_server_dies_and_comes_back(tmp_path: Path) -> None:
    """Elsewhere, and with another name: the connection follows, and what was acknowledged is there."""
    with running(tmp_path) as server, connected(lambda: named(server)) as client:
        recorder = new_recorder(client)
        for round_number in range(3):
            for turn in range(5):
                version = round_number * 5 + turn + 1
                assert inserted(recorder.insert_events([event("a", version)], expected_position=version - 1)) == [
                    version
                ]
            server.kill()
            server.start()

        assert list(range(1, 16)) == [one.originator_version for one in recorder.select_events("a")]


def acquired(client: JetStreamClient) -> BlockingConnection:
    """The connection, waited for: on a busy machine it may not be had in the second that is given to it."""
    ends_at = time.monotonic() + 60
    while not isinstance(connection := client.acquire(), BlockingConnection):
        assert time.monotonic() < ends_at, "there is no connection"
        time.sleep(0.05)
    return connection


def test_it_is_acquired_by_one_thread(client: JetStreamClient, recorder: JetStreamApplicationRecorder) -> None:
    """Who comes meanwhile takes the other way."""
    connection = acquired(client)

    assert isinstance(client.acquire(), Connection)
    assert inserted(recorder.insert_events([event("a", 1)], expected_position=0)) == [1]
    connection.release()
    assert client.acquire() is connection
    connection.release()


def test_one_that_is_not_sound_is_replaced(client: JetStreamClient, recorder: JetStreamApplicationRecorder) -> None:
    """An answer that was not waited for must not be taken for that of another question."""
    assert recorder.max_notification_id() is None  # there is a connection now
    connection = acquired(client)
    connection.send([("$JS.API.INFO", {}, b"")])
    connection.release()

    other = acquired(client)
    assert other is not connection
    other.release()


def test_closing_ends_it_for_who_waits(server: Server) -> None:
    """A thread that waits for an answer is told at once."""
    pool, raised = ConnectionPool(), threading.Event()
    connection = pool.acquire(named(server))
    assert connection is not None
    token = connection.send([(f"nobody.{new_name()}", {"A": "b"}, b"")])
    connection.answer(token, FAR)  # that nobody listens

    def wait() -> None:
        try:
            connection.answer(10**9, FAR)
        except ConnectionBrokenError:
            raised.set()
        connection.release()

    thread = threading.Thread(target=wait)
    thread.start()
    pool.close()
    thread.join(10)

    assert raised.is_set()
    assert pool.acquire(named(server)) is None


@pytest.mark.parametrize(
    "changed",
    [{"server_name": None}, {"urls": ("tls://127.0.0.1:4222",)}, {"credentials_path": "x"}, {"nkeys_seed_path": "x"}],
    ids=["no name", "TLS", "credentials", "nkey"],
)
def test_only_embedded_servers_have_one(server: Server, changed: dict[str, Any]) -> None:
    """TLS, and logins that need more than a token, are nats-py's business."""
    assert BlockingConnection.is_possible(named(server))
    assert not BlockingConnection.is_possible(msgspec.structs.replace(named(server), **changed))


def test_another_server_is_no_server(server: Server) -> None:
    """One that took the port, or wants another token, gets no event."""
    for changed in ({"server_name": "other"}, {"token": "t-wrong"}):
        with pytest.raises(ConnectionBrokenError):
            BlockingConnection(msgspec.structs.replace(named(server), **changed), threading.Lock(), timeout_s=5)


def waiting(recorder: JetStreamApplicationRecorder, *positions: int) -> None:
    """Wait until threads wait for just these positions."""
    eventually(lambda: sorted(one.after for one in recorder._watcher._waiters) == sorted(positions))


def test_waits_need_no_event_loop(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several waiters at several positions, far above and far below the consumer's place, and what comes is at hand."""
    monkeypatch.setattr(watching, "KEPT_S", 60.0)
    with connected(lambda: named(server)) as writer, connected(lambda: named(server)) as reader:
        other = new_recorder(writer)
        recorder = JetStreamApplicationRecorder(reader, other.stream, id_type="text")
        with ThreadPoolExecutor(4) as pool:
            waits = [pool.submit(recorder.wait, after, 60.0) for after in (2, 0, 1)]
            waiting(recorder, 0, 1, 2)
            for n in range(3):
                inserted(other.insert_events([event("a", n)]))
            assert all(wait.result(60) for wait in waits)
            assert recorder.select_notifications(3, 1) == recorder.news(2)
            assert not recorder.wait(3, 0.05)

            inserted(other.insert_events([event("a", n) for n in range(3, 1000)]))
            assert recorder.wait(999, 60.0)
            high = pool.submit(recorder.wait, 1000, 60.0)
            waiting(recorder, 1000)
            recorder._watcher.forget()
            assert recorder.wait(3, 60.0)
            inserted(other.insert_events([event("b", 1)]))
            assert high.result(60)

            last = pool.submit(recorder.wait, 1001, 60.0)
            waiting(recorder, 1001)
            recorder.close()
            assert last.result(60) is False
        assert reader._loop is None
        assert writer._loop is None


def test_a_wait_outlives_the_server(tmp_path: Path) -> None:
    """Where it is lost the event loop's connection goes on, with whoever waits."""
    with running(tmp_path) as server, connected(lambda: named(server)) as client:
        recorder = new_recorder(client)
        with ThreadPoolExecutor(1) as pool:
            last = pool.submit(recorder.wait, 0, 60.0)
            waiting(recorder, 0)
            eventually(lambda: recorder._watcher._is_asking)
            server.kill()
            server.start()
            with connected(server.endpoint) as writer:
                other = JetStreamApplicationRecorder(writer, recorder.stream, id_type="text")
                inserted(other.insert_events([event("a", 1)]))
            assert last.result(60)
        assert client._loop is not None


RECORDS = st.lists(
    st.tuples(
        st.sampled_from(["a", "7d444840-9dc0-11d1-b245-5ffdce74fad2", "x" * 200, "ü ñ\r\n%"]),
        st.sampled_from(["topic", "to pic", "t%c", "tö"]),
        st.binary(max_size=50),
    ),
    min_size=1,
    max_size=20,
)


@settings(max_examples=examples(30), deadline=None)
@given(RECORDS, st.integers(0, 20), st.integers(1, 25))
def test_pages_are_those_of_the_other_way(
    client: JetStreamClient, records: list[tuple[str, str, bytes]], after: int, limit: int
) -> None:
    """Whatever ids, topics and contents there are, and wherever a page begins and ends."""
    recorder = new_recorder(client)
    recorder.insert_events([event(one, n, state, topic) for n, (one, topic, state) in enumerate(records)])
    read_blocking = recorder.select_notifications(after, limit, inclusive_of_start=False)
    connection = acquired(client)
    try:
        other = recorder.select_notifications(after, limit, inclusive_of_start=False)
    finally:
        connection.release()
    recorder.destroy()

    assert read_blocking == other
    assert len(other) == min(limit, max(0, len(records) - after))


SCRIPT = (
    b"PING\r\n"
    b"MSG {0}0 1 5\r\nab\r\nc\r\n"
    b"HMSG {0}1 1 12 12\r\nNATS/1.0\r\n\r\n\r\n"
    b"MSG other 1 3\r\nxyz\r\n"
    b"+OK\r\n"
    b"HMSG {0}2 1 other.reply 18 21\r\nNATS/1.0\r\nA: b\r\n\r\n\r\n\r\n\r\n"
    b'INFO {"max_payload": 5, "server_name": "s"}\r\n'
)


@contextlib.contextmanager
def scripted(pieces: list[int]) -> Generator[BlockingConnection]:
    """A connection to a server that lets one in, and says the script in pieces of these sizes."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        accepted, _ = listener.accept()
        with accepted, contextlib.suppress(OSError):
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            accepted.sendall(b'INFO {"max_payload": 100, "server_name": "s"}\r\n')
            heard = b""
            while not heard.endswith(b"PING\r\n"):
                heard += accepted.recv(4096)
            inbox = heard.partition(b"SUB ")[2].partition(b"* 1")[0]
            accepted.sendall(b"PONG\r\n")
            script, at = SCRIPT.replace(b"{0}", inbox), 0
            for size in [*pieces, len(script)]:
                accepted.sendall(script[at : at + size])
                at += size
            while accepted.recv(4096):
                pass

    thread = threading.Thread(target=serve)
    thread.start()
    connection = BlockingConnection(
        Endpoint(urls=(f"nats://127.0.0.1:{listener.getsockname()[1]}",), server_name="s"),
        threading.Lock(),
        timeout_s=10,
    )
    try:
        yield connection
    finally:
        connection.close()
        thread.join(10)
        listener.close()


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.integers(1, 60), max_size=12))
def test_however_the_bytes_arrive(pieces: list[int]) -> None:
    """Answers are the same wherever the network cuts them, and what else a server says does not disturb them."""
    with scripted(pieces) as connection:
        assert connection.answer(2, FAR) == (b"NATS/1.0\r\nA: b\r\n\r\n", b"\r\n\r")
        assert connection.answer(0, FAR) == (b"", b"ab\r\nc")
        assert connection.answer(1, FAR) == (b"NATS/1.0\r\n\r\n", b"")
        with pytest.raises(ConnectionBrokenError):
            connection.answer(3, 0)
