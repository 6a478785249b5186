"""Servers that die, come back elsewhere, refuse, or are not there."""

# pyright: reportPrivateUsage=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false
# White-box checks, as for ruff; and raw replies of the server.

import contextlib
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from eventsourcing.persistence import (
    InfrastructureFactory,
    InfrastructureFactoryError,
    InterfaceError,
    OperationalError,
    ProgrammingError,
)
from eventsourcing.utils import Environment
from tests.support.jetstream_world import (
    TOKEN,
    Server,
    connected,
    event,
    eventually,
    hold_port,
    inserted,
    new_name,
    new_recorder,
    running,
)

import chatledger.jetstream
from chatledger.infra.log.nats.factory import endpoint_source
from chatledger.jetstream import (
    Endpoint,
    JetStreamApplicationRecorder,
    JetStreamClient,
    JetStreamFactory,
    StreamAbsentError,
)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with running(tmp_path / "nats") as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[JetStreamClient]:
    with connected(server.endpoint, timeout_s=30.0) as client:
        yield client


@pytest.mark.parametrize("is_port_kept", [False, True])
def test_operations_ride_through_a_restart(server: Server, client: JetStreamClient, *, is_port_kept: bool) -> None:
    """Kill -9 between two operations; the port stays or changes."""
    recorder = new_recorder(client)
    identity = recorder.identity
    assert recorder.insert_events([event("a", 1)]) == [1]
    server.kill()
    server.start(port=server.port if is_port_kept else -1)

    assert recorder.insert_events([event("a", 2)]) == [2]
    assert [n.id for n in recorder.select_notifications(None, 10)] == [1, 2]
    assert JetStreamApplicationRecorder(client, recorder.stream).identity == identity


def test_an_append_waits_for_the_server(server: Server, client: JetStreamClient) -> None:
    """The server is down when the operation begins, and comes back within its budget."""
    recorder = new_recorder(client)
    recorder.insert_events([event("a", 1)])
    server.kill()
    with ThreadPoolExecutor(3) as pool:
        append = pool.submit(recorder.insert_events, [event("a", 2)])
        read = pool.submit(recorder.select_events, "a")
        wait = pool.submit(recorder.wait, 1, 30.0)
        server.start()

        assert append.result(30) == [2]
        assert len(read.result(30)) in {1, 2}
        assert wait.result(30)


@pytest.mark.soak
def test_nothing_is_lost_or_doubled_by_kills(server: Server, client: JetStreamClient) -> None:
    """Eight writers, single events and batches, a subscriber and a waiter, five kill -9 with a new port each."""
    recorder = new_recorder(client)
    total_kills, writers = 5, 8
    acked: list[list[int]] = [[] for _ in range(writers)]
    done = threading.Event()

    def write(writer: int) -> None:
        version = 0
        while not done.is_set():
            count = 3 if version % 4 == 3 else 1
            events = [event(f"w{writer}", version + n) for n in range(count)]
            acked[writer] += inserted(recorder.insert_events(events))
            version += count

    received: list[int] = []
    subscription = recorder.subscribe()
    with ThreadPoolExecutor(writers + 1) as pool:
        reader = pool.submit(lambda: received.extend(n.id for n in subscription))
        tasks = [pool.submit(write, writer) for writer in range(writers)]
        for _ in range(total_kills):
            seen = len(received)
            eventually(lambda: len(received) > seen + 100)  # noqa: B023 (called within the iteration)
            assert recorder.wait(received[-1], 30.0)
            server.kill()
            server.start()
        done.set()
        for task in tasks:
            task.result(60)
        last = recorder.last_position()
        eventually(lambda: bool(received) and received[-1] == last)
        subscription.stop()
        reader.result(30)

    positions = sorted(position for one in acked for position in one)
    assert positions == list(range(1, last + 1))
    assert received == positions
    assert [n.id for n in recorder.select_notifications(None, last + 1)] == positions
    for writer in range(writers):
        versions = [e.originator_version for e in recorder.select_events(f"w{writer}")]
        assert versions == list(range(len(acked[writer])))


def test_a_wrong_token_is_refused_at_once(server: Server) -> None:
    wrong = Endpoint(urls=(server.url,), token="t-wrong")
    with connected(lambda: wrong, timeout_s=60.0) as client, pytest.raises(InterfaceError) as caught:
        new_recorder(client)
    assert TOKEN not in str(caught.value)
    assert "t-wrong" not in repr(caught.value)


def test_a_missing_credentials_file_is_refused_at_once(server: Server) -> None:
    missing = Endpoint(urls=(server.url,), credentials_path="/nonexistent/creds")
    with connected(lambda: missing, timeout_s=60.0) as client, pytest.raises(InterfaceError):
        new_recorder(client)


def test_a_changed_token_is_refused_in_the_next_operation(server: Server) -> None:
    """The server came back with another token, which `connect` does not know."""
    with connected(server.endpoint, timeout_s=60.0) as client:
        recorder = new_recorder(client)
        server.kill()
        client._connect = lambda: Endpoint(urls=(server.url,), token="t-old")
        server.start()
        with pytest.raises(InterfaceError):
            recorder.insert_events([event("a", 1)])


def test_nobody_listens(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        url = server.url
    with (
        hold_port(int(url.rsplit(":", 1)[1])),
        connected(lambda: Endpoint(urls=(url,)), timeout_s=0.5) as client,
        pytest.raises(OperationalError),
    ):
        new_recorder(client)


def test_a_connect_function_that_fails_is_tried_again(server: Server) -> None:
    """It may have to start a server, which may need several attempts; its own errors pass through."""
    answers = iter([OSError("not yet"), TimeoutError("not yet")])

    def connect() -> Endpoint:
        error = next(answers, None)
        if error is not None:
            raise error
        return server.endpoint()

    with connected(connect) as client:
        assert new_recorder(client).last_position() == 0

    def refuse() -> Endpoint:
        raise ZeroDivisionError

    with connected(refuse) as client, pytest.raises(ZeroDivisionError):
        new_recorder(client)


def test_another_server_on_the_port_is_not_taken_for_ours(server: Server) -> None:
    """Its name differs, so it is a lost connection and no refusal, whatever it thinks of our token."""
    for token in (TOKEN, "t-wrong"):
        foreign = Endpoint(urls=(server.url,), token=token, server_name="cl-other")
        with connected(lambda: foreign, timeout_s=0.3) as client, pytest.raises(OperationalError):  # noqa: B023 (used within)
            new_recorder(client)


def test_an_absent_stream_is_not_created(client: JetStreamClient) -> None:
    name = new_name()
    with pytest.raises(StreamAbsentError, match="CREATE_STREAM"):
        JetStreamApplicationRecorder(client, name)
    with pytest.raises(StreamAbsentError):
        JetStreamApplicationRecorder(client, name)


def test_creating_twice_opens(client: JetStreamClient) -> None:
    """Also when twenty do it at the same time: one stream, one identity."""
    name = new_name()
    with ThreadPoolExecutor(20) as pool:
        recorders = list(pool.map(lambda _: new_recorder(client, name), range(20)))

    assert len({recorder.identity for recorder in recorders}) == 1
    recorders[0].destroy()
    assert new_recorder(client, name).identity != recorders[0].identity


def test_two_urls_one_dead(server: Server, tmp_path: Path) -> None:
    with running(tmp_path / "other") as other:
        dead = other.url
    endpoint = Endpoint(urls=(dead, server.url), token=TOKEN)
    for _ in range(5):
        with connected(lambda: endpoint) as client:
            new_recorder(client)


def settings(server: Server, **more: str) -> dict[str, str]:
    return {
        "PERSISTENCE_MODULE": chatledger.jetstream.__name__,
        "JETSTREAM_URL": server.url,
        "JETSTREAM_TOKEN": TOKEN,
        "CREATE_STREAM": "yes",
        **more,
    }


def construct(env: dict[str, str], name: str = "") -> JetStreamFactory:
    factory = InfrastructureFactory.construct(Environment(name, env=env))
    assert isinstance(factory, JetStreamFactory)
    return factory


@pytest.mark.parametrize(
    ("name", "more", "stream"),
    [
        ("", {}, "chatledger"),
        ("Chats", {}, "Chats"),
        ("Chats", {"JETSTREAM_STREAM": "one"}, "one"),
        ("Chats", {"CHATS_JETSTREAM_STREAM": "two", "JETSTREAM_STREAM": "one"}, "two"),
    ],
)
def test_settings_name_the_stream(server: Server, name: str, more: dict[str, str], stream: str) -> None:
    """Snapshots have a stream of their own."""
    with contextlib.closing(construct(settings(server, **more), name)) as factory:
        recorders: list[Any] = [
            factory.application_recorder(),
            factory.aggregate_recorder(),
            factory.aggregate_recorder("snapshots"),
            factory.tracking_recorder(),
            factory.process_recorder(),
        ]
        assert [r.stream for r in recorders] == [stream, stream, f"{stream}_snapshots", stream, stream]


def test_without_create_stream_nothing_is_created(server: Server) -> None:
    env = settings(server, JETSTREAM_STREAM=new_name())
    del env["CREATE_STREAM"]
    with contextlib.closing(construct(env)) as factory, pytest.raises(StreamAbsentError):
        factory.application_recorder()


@pytest.mark.parametrize(
    "wrong",
    [
        {"JETSTREAM_URL": ""},
        {"JETSTREAM_URL": " , "},
        {"JETSTREAM_TIMEOUT": "soon"},
        {"JETSTREAM_TIMEOUT": "0"},
        {"JETSTREAM_TLS_CA": "/nonexistent/ca.pem"},
        {"ORIGINATOR_ID_TYPE": "integer"},
        {"JETSTREAM_REPLICAS": "many"},
    ],
)
def test_wrong_settings_are_named(server: Server, wrong: dict[str, str]) -> None:
    with pytest.raises(InfrastructureFactoryError, match=next(iter(wrong))):
        construct(settings(server, **wrong)).application_recorder()


def test_a_bad_stream_name_in_the_settings_is_refused(server: Server) -> None:
    with pytest.raises(ProgrammingError):
        construct(settings(server, JETSTREAM_STREAM="a.b")).application_recorder()


def test_settings_become_an_endpoint() -> None:
    env = {
        "JETSTREAM_URL": "nats://a:1, nats://b:2",
        "JETSTREAM_USER": "me",
        "JETSTREAM_PASSWORD": "secret",
        "JETSTREAM_CREDS": "/creds",
        "JETSTREAM_NKEYS_SEED": "/seed",
    }
    endpoint = endpoint_source(Environment("x", env=env))()

    assert endpoint == Endpoint(
        urls=("nats://a:1", "nats://b:2"),
        user="me",
        password="secret",
        credentials_path="/creds",
        nkeys_seed_path="/seed",
    )


def test_a_factory_closes_twice_and_quietly(server: Server) -> None:
    factory = construct(settings(server, JETSTREAM_STREAM=new_name()))
    factory.application_recorder()
    factory.close()
    factory.close()
    unused = construct(settings(server))
    unused.close()
    with pytest.raises(ProgrammingError):
        unused.application_recorder()


@pytest.mark.soak
def test_a_process_ends_although_nothing_was_closed(server: Server) -> None:
    """With a subscription, a waiter and a connection left open, the interpreter exits in silence."""
    program = """
        import sys, threading
        from chatledger.jetstream import Endpoint, JetStreamApplicationRecorder, JetStreamClient
        from eventsourcing.persistence import StoredEvent
        client = JetStreamClient(lambda: Endpoint(urls=(sys.argv[1],), token=sys.argv[2]))
        recorder = JetStreamApplicationRecorder(client, sys.argv[3], id_type="text", create=True)
        recorder.insert_events([StoredEvent("a", 1, "t", b"")])
        subscription = recorder.subscribe()
        next(subscription)
        threading.Thread(target=recorder.wait, args=(1, 600.0), daemon=True).start()
        print("done")
    """
    finished = subprocess.run(
        [sys.executable, "-W", "default", "-c", textwrap.dedent(program), server.url, TOKEN, new_name()],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert (finished.stdout, finished.stderr) == ("done\n", "")
