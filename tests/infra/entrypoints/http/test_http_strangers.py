"""Strangers cannot hold up a server: connections without requests, requests without ends, answers that nobody reads."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response
from tests.support.feed_server import with_feed
from tests.support.http_world import API, serving

from chatledger.infra.entrypoints.http import serving as module
from chatledger.server import create_app

HALF = b"GET /livez HTTP/1.1\r\nHost: loc"
WHOLE = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"


def connect(url: str, sent: bytes = b"") -> socket.socket:
    address = urlsplit(url)
    connection = socket.create_connection((address.hostname, address.port or 0), timeout=30)
    connection.sendall(sent)
    return connection


def received(connection: socket.socket) -> bytes:
    """All that comes until the server closes the connection."""
    parts: list[bytes] = []
    try:
        while part := connection.recv(1 << 16):
            parts.append(part)
    except ConnectionError:
        pass
    return b"".join(parts)


def is_closed(connection: socket.socket) -> bool:
    connection.settimeout(0)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


@pytest.fixture
def errors(tmp_path: Path) -> Path:
    return tmp_path / "errors.txt"


@pytest.fixture
def few_descriptors(tmp_path: Path, errors: Path) -> Iterator[str]:
    """A server that may open 256 descriptors."""
    serve = [
        sys.executable,
        "-m",
        "chatledger",
        "-l",
        str(tmp_path / "ledger"),
        "serve",
        "--port",
        "0",
        "--no-access-log",
    ]
    command = ["bash", "-c", 'ulimit -n 256; exec "$@"', "bash", *serve]
    with (
        errors.open("w") as told,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=told, text=True) as process,
    ):
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1]
        process.terminate()
        assert process.wait(60) == 0


@pytest.mark.guard
def test_half_requests_keep_nobody_out_and_fill_no_log(few_descriptors: str, errors: Path) -> None:
    with ExitStack() as stack:
        half = [stack.enter_context(closing(connect(few_descriptors, HALF))) for _ in range(300)]
        for number in range(5):
            assert httpx.post(f"{few_descriptors}{API}/chats", json={"id": f"c{number}"}).status_code == 201
        assert sum(map(is_closed, half)) >= 200
        for _ in range(300):
            with closing(connect(few_descriptors, b"\0\r\n\r\n")) as invalid:
                assert b" 400 " in received(invalid)
        assert httpx.get(f"{few_descriptors}/livez").status_code == 200
    lines = [line for line in errors.read_text().splitlines() if not line.startswith("explore it at ")]
    assert [line for line in lines if "Invalid HTTP request" in line] == lines
    assert len(lines) == 1


@pytest.mark.guard
def test_headers_have_to_end_in_time_however_often_some_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_HEADERS_S", 0.3)
    with serving(create_app("memory:")) as url:
        for sent in (b"", HALF):
            with closing(connect(url, sent)) as stranger:
                assert received(stranger) == b""
        with closing(connect(url, b"GET /livez HTTP/1.1\r\nX: ")) as dripping:
            while not is_closed(dripping):
                with suppress(ConnectionError):
                    dripping.sendall(b"x")
                time.sleep(0.02)


@pytest.mark.guard
def test_what_comes_after_an_answer_does_not_keep_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_KEEP_ALIVE_S", 0.3)
    with serving(create_app("memory:")) as url:
        with closing(connect(url, WHOLE + HALF)) as stranger:
            assert received(stranger).count(b"HTTP/1.1 200") == 1
        early = b"POST /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n"
        for body in (b"12", b"12345"):
            with closing(connect(url, early)) as stranger:
                assert stranger.recv(100).startswith(b"HTTP/1.1 405")
                stranger.sendall(body)
                received(stranger)


def test_the_connection_that_waited_longest_makes_room_and_none_that_is_answered() -> None:
    with serving(with_feed(create_app("memory:")), connections=4) as url, ExitStack() as stack:
        feed = b"GET /feed HTTP/1.1\r\nHost: localhost\r\n\r\n"
        feeds = [stack.enter_context(closing(connect(url, feed))) for _ in range(2)]
        assert all(stream.recv(100).startswith(b"HTTP/1.1 200") for stream in feeds)
        idle = [stack.enter_context(closing(connect(url, HALF))) for _ in range(2)]
        feeds.extend(stack.enter_context(closing(connect(url, feed))) for _ in range(2))
        assert all(stream.recv(100).startswith(b"HTTP/1.1 200") for stream in feeds[2:])
        assert [received(connection) for connection in idle] == [b"", b""]
        with closing(connect(url, HALF)) as stranger, closing(connect(url, WHOLE)) as refused:
            assert received(refused).startswith(b"HTTP/1.1 503")
            assert received(stranger) == b""
        assert not any(is_closed(stream) for stream in feeds)
        feeds.pop().close()
        for _ in range(50):
            with closing(connect(url, WHOLE.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))) as admitted:
                if received(admitted).startswith(b"HTTP/1.1 200"):
                    return
        pytest.fail("nobody is let in, though one has left")


@pytest.mark.guard
def test_who_reads_nothing_is_dropped_and_who_reads_slowly_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_UNREAD_S", 0.5)
    app = create_app("memory:")
    size = 30 << 20

    async def large(_: Request) -> Response:
        return Response(b"x" * size)

    app.add_route("/large", large)
    with serving(app) as url:
        request = b"GET /large HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        with closing(connect(url, request)) as stranger:
            time.sleep(2)
            assert len(received(stranger)) < size
        with closing(connect(url, request)) as slow:
            count = 0
            while part := slow.recv(1 << 18):
                count += len(part)
                time.sleep(0.02)
            assert count > size


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_request_with_two_lengths_is_the_last_of_its_connection(method: str) -> None:
    both = (
        f"{method} {API}/chats HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    with (
        serving(create_app("memory:")) as url,
        closing(connect(url, both.encode() + b"2\r\n{}\r\n0\r\n\r\n" + WHOLE)) as sender,
    ):
        answer = received(sender)
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"connection: close" in answer.lower()
