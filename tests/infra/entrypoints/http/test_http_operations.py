"""Running a server: health, metrics, the access log, spans, limits, and clients that are hostile or slow."""

import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import anyio
import httpx
import pytest
from starlette.requests import Request
from starlette.types import Message
from tests.support.feed_server import with_feed
from tests.support.http_world import API, serving

import chatledger
from chatledger.infra.entrypoints.http.app import describe
from chatledger.infra.entrypoints.http.guard import Allowances
from chatledger.infra.entrypoints.http.health import Metrics
from chatledger.infra.entrypoints.http.problems import RequestError
from chatledger.infra.entrypoints.http.routing import read_body
from chatledger.server import Limits, Principal, create_app

T = TypeVar("T")
OPERATIONS = [(method.upper(), path) for path, methods in describe()["paths"].items() for method in methods]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(create_app("memory:")) as url:
        yield url


@pytest.fixture
def client(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, timeout=30) as client:
        yield client


@pytest.mark.guard
def test_a_server_that_lost_its_log_lives_but_is_not_ready() -> None:
    ledger = chatledger.open_async("memory:")
    with serving(create_app(ledger)) as url, httpx.Client(base_url=url) as client:
        assert [client.get(path).status_code for path in ("/livez", "/readyz", "/healthz")] == [200] * 3
        ledger.blocking().close()
        eventually(lambda: client.get("/readyz").status_code, lambda status: status == 503)
        assert [client.get(path).status_code for path in ("/livez", "/readyz", "/healthz")] == [200, 503, 503]
        assert client.get("/readyz").json()["type"] == "urn:chatledger:error:NotReady"


def eventually(ask: Callable[[], T], is_so: Callable[[T], bool]) -> T:
    """Return the answer to a question once it is as expected; the last one when that takes too long."""
    until = time.monotonic() + 20
    while not is_so(found := ask()) and time.monotonic() < until:
        time.sleep(0.02)
    return found


def samples(client: httpx.Client) -> dict[str, float]:
    text = client.get("/metrics").text
    return {
        name: float(value)
        for name, _, value in (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    }


def test_requests_are_counted(client: httpx.Client) -> None:
    before = samples(client)
    client.post(f"{API}/chats", json={"id": "counted"})
    for _ in range(3):
        client.get(f"{API}/chats/counted")
    stale = {"If-Match": '"nothing"'}
    conflict = client.post(
        f"{API}/chats/counted/messages", json={"messages": [{"name": "user", "data": "x"}]}, headers=stale
    )
    after = samples(client)

    def grown(name: str) -> float:
        return after[name] - before.get(name, 0)

    labels = f'method="GET",route="{API}/chats/{{chat_id}}",status="200"'
    name = "chatledger_http_request_duration_seconds"
    assert grown(f"{name}_count{{{labels}}}") == 3
    assert grown(f'{name}_bucket{{{labels},le="+Inf"}}') == 3
    assert 0 < grown(f"{name}_sum{{{labels}}}") < 30
    bounds = [value for key, value in after.items() if key.startswith(f"{name}_bucket{{{labels}")]
    assert bounds == sorted(bounds)
    assert conflict.status_code == 409
    assert grown('chatledger_conflicts_total{error="HeadConflictError"}') == 1
    after = eventually(lambda: samples(client), lambda found: found["chatledger_log_position"] > 0)
    assert after["chatledger_log_position"] == after["chatledger_index_position"] > 0
    assert after["chatledger_index_lag_events"] == 0
    assert "counted" not in client.get("/metrics").text


def test_paths_and_methods_that_strangers_make_up_are_not_kept(client: httpx.Client) -> None:
    client.request("MADEUP", f"{API}/chats")
    client.get("/made/up")
    text = client.get("/metrics").text
    assert 'method="OTHER"' in text
    assert 'route="",status="404"' in text
    assert "made" not in text.lower()


def test_the_counts_of_all_processes_are_added_up(tmp_path: Path) -> None:
    ours = Metrics(tmp_path)
    ours.request("GET", "/x", 200, 0.5)
    ours.write()
    # What processes that ended left: what they counted stays, the streams that they held do not.
    (tmp_path / "99999999.json").write_text(
        json.dumps({"counted": {'chatledger_conflicts_total{error="E"}': 2}, "gauges": {"chatledger_sse_clients": 7}})
    )
    (tmp_path / "99999998.json").write_text("{")
    ours.conflict("E")
    text = ours.text(log_position=5, index_position=3)
    assert 'chatledger_conflicts_total{error="E"} 3\n' in text
    assert "chatledger_sse_clients 0\n" in text
    assert "chatledger_index_lag_events 2\n" in text
    assert 'chatledger_http_request_duration_seconds_count{method="GET",route="/x",status="200"} 1\n' in text


def test_a_request_is_a_line_of_the_access_log_without_what_it_is_about(
    client: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "chatledger.access"):
        answer = client.post(
            f"{API}/chats", json={"id": "secret-id", "title": "secret title", "user_id": "secret user"}
        )
        assert answer.status_code == 201
        client.get(f"{API}/chats/secret-id", headers={"X-Request-Id": "r-1"})
        refused = client.get(f"{API}/chats/secret-absent", headers={"X-Request-Id": "two words"})
        lines = eventually(
            lambda: [json.loads(record.message) for record in caplog.records if record.name == "chatledger.access"],
            lambda found: len(found) == 3,
        )
    assert [(line["method"], line["route"], line["status"]) for line in lines] == [
        ("POST", f"{API}/chats", 201),
        ("GET", f"{API}/chats/{{chat_id}}", 200),
        ("GET", f"{API}/chats/{{chat_id}}", 404),
    ]
    assert lines[1]["request_id"] == "r-1"
    assert refused.headers["X-Request-Id"] == lines[2]["request_id"] != "two words"
    assert all(line["principal"] == "anonymous" and line["duration_ms"] > 0 for line in lines)
    assert "secret" not in caplog.text


def test_a_fault_is_logged_once_without_ids_and_can_be_found(caplog: pytest.LogCaptureFixture) -> None:
    """A function of the user's that fails; the answer has the id that stands in the log."""

    def fail(headers: Mapping[str, str]) -> Principal:
        raise RuntimeError(headers["host"])

    with (
        serving(create_app(chatledger.open_async("memory:"), authenticate=fail)) as url,
        httpx.Client(base_url=url) as client,
    ):
        for path in (f"{API}/chats/secret-id", "/v1/conversations/secret-id", f"{API}/chats/secret-id"):
            answer = client.get(path, headers={"X-Request-Id": "r-7"})
            assert answer.status_code == 500
            assert answer.headers["X-Request-Id"] == "r-7"
            assert "Traceback" not in answer.text
    logged = eventually(  # the line of a request may be written after its answer
        lambda: [record for record in caplog.records if record.levelno >= logging.ERROR],
        lambda records: len(records) == 3,
    )
    assert len(logged) == 3
    assert all(record.name == "chatledger.server" and "r-7" in record.message for record in logged)
    assert "secret" not in caplog.text


def test_a_client_that_goes_in_the_middle_of_its_request_is_no_fault(
    client: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    address = urlsplit(str(client.base_url))
    head = f"POST {API}/chats HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Length: 100\r\n\r\n"
    with closing(socket.create_connection((address.hostname, address.port or 0))) as connection:
        connection.sendall(head.encode() + b"{")
    name = f'chatledger_http_request_duration_seconds_count{{method="POST",route="{API}/chats",status="499"}}'
    assert eventually(lambda: samples(client).get(name, 0), lambda count: count == 1) == 1
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.guard
def test_who_waits_for_a_position_keeps_nobody_else_waiting() -> None:
    """Not even more of them than there are threads; and the position is waited for."""
    app = create_app(chatledger.open_async("memory:"))
    with serving(app) as url, httpx.Client(base_url=url + API, timeout=30) as client, ExitStack() as stack:
        client.post("/chats", json={"id": "c"}).raise_for_status()
        address = urlsplit(url)
        for _ in range(100):
            waiting = stack.enter_context(socket.create_connection((address.hostname, address.port or 0)))
            waiting.sendall(f"GET {API}/chats/c HTTP/1.1\r\nHost: x\r\nChatledger-Wait-For: 999999\r\n\r\n".encode())
        begun = time.monotonic()
        for number in range(20):
            client.post("/chats", json={"id": f"other {number}"}).raise_for_status()
        assert time.monotonic() - begun < 9  # they wait for ten seconds
        found: list[httpx.Response] = []
        reading = threading.Thread(
            target=lambda: found.append(httpx.get(f"{url}{API}/chats/last", headers={"Chatledger-Wait-For": "22"}))
        )
        reading.start()
        client.post("/chats", json={"id": "last"}).raise_for_status()
        reading.join(20)
        assert [answer.status_code for answer in found] == [200]


def test_answers_are_kept_by_no_cache_of_many_users(client: httpx.Client) -> None:
    """Such a cache does not tell users apart by `X-Api-Key`."""
    client.post(f"{API}/chats", json={"id": "cached"})
    answer = client.get(f"{API}/chats/cached")
    again = client.get(f"{API}/chats/cached", headers={"If-None-Match": answer.headers["ETag"]})
    for one in answer, again, client.get("/v1/conversations/cached"), client.get("/api/chat/cached"):
        assert one.headers["Cache-Control"] == "private, no-cache"
    assert (again.status_code, again.content) == (304, b"")


def test_a_request_is_a_span(client: httpx.Client) -> None:
    """With OpenTelemetry's SDK; without it the API does nothing."""
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    export = pytest.importorskip("opentelemetry.sdk.trace.export")
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    from opentelemetry import trace

    exporter = memory.InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    client.post(f"{API}/chats", json={"id": "a/b"})
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    client.get(f"{API}/chats/a%2Fb", headers={"traceparent": parent})
    span = eventually(exporter.get_finished_spans, lambda spans: len(spans) == 2)[-1]
    assert span.name == f"GET {API}/chats/{{chat_id}}"
    assert dict(span.attributes) == {
        "http.request.method": "GET",
        "url.scheme": "http",
        "http.route": f"{API}/chats/{{chat_id}}",
        "http.response.status_code": 200,
        "gen_ai.conversation.id": "a/b",
    }
    assert f"{span.context.trace_id:032x}" == parent.split("-")[1]


def test_requests_of_a_user_are_limited() -> None:
    app = create_app("memory:", limits=Limits(requests_per_second=0.01))
    with serving(app) as url, httpx.Client(base_url=url) as client:
        statuses = [client.get(f"{API}/chats").status_code for _ in range(12)]
        assert statuses == [200] * 10 + [429] * 2
        assert int(client.get(f"{API}/chats").headers["Retry-After"]) > 1
        assert client.get("/livez").status_code == 200


def _take_many(allowances: Allowances) -> None:
    for _ in range(10_000):
        allowances.take_request("ada")


def test_a_bucket_fills_again_and_is_forgotten_when_it_is_full() -> None:
    allowances = Allowances(Limits(requests_per_second=1000))
    with pytest.raises(RequestError):
        _take_many(allowances)
    time.sleep(0.01)
    allowances.take_request("ada")
    for number in range(25_000):
        allowances.take_request(number)
    assert len(allowances) <= 10_001


def test_streams_of_a_user_are_limited() -> None:
    app = with_feed(create_app("memory:", limits=Limits(streams_per_user=2)))
    with serving(app) as url, httpx.Client(base_url=url) as client, ExitStack() as stack:
        for _ in range(2):
            assert stack.enter_context(client.stream("GET", "/feed")).status_code == 200
        refused = client.get("/feed")
        assert (refused.status_code, refused.json()["type"]) == (429, "urn:chatledger:error:TooManyStreams")
        assert samples(client)["chatledger_sse_clients"] == 2
        stack.close()
        eventually(lambda: samples(client)["chatledger_sse_clients"], lambda clients: clients == 0)
        with client.stream("GET", "/feed") as stream:
            assert stream.status_code == 200


@pytest.mark.guard
def test_a_client_that_does_not_read_is_dropped_and_goes_on_where_it_was() -> None:
    with serving(with_feed(create_app("memory:"), slow_s=0.3)) as url, httpx.Client(base_url=url, timeout=20) as client:
        for _ in range(40):
            client.post(f"{API}/chats", json={}).raise_for_status()
        address = urlsplit(url)
        with closing(socket.create_connection((address.hostname, address.port or 0))) as slow:
            slow.sendall(b"GET /feed?size=1000000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert eventually(lambda: samples(client)["chatledger_sse_clients"], lambda clients: clients == 1) == 1
            assert eventually(lambda: samples(client)["chatledger_sse_clients"], lambda clients: clients == 0) == 0
            slow.settimeout(10)
            received = b""
            try:
                while part := slow.recv(1 << 20):
                    received += part
            except ConnectionResetError:
                pass  # the server closed the connection, whatever was still to be sent
        seen = [
            int(line[4:])
            for line in received.split(b"\n")
            if line.startswith(b"id: ") and line.endswith(b"\r") is False
        ]
        assert len(seen) < 40
        rest: list[int] = []
        with client.stream("GET", "/feed", headers={"Last-Event-ID": str(seen[-1] if seen else 0)}) as stream:
            for line in stream.iter_lines():
                if line.startswith("id: "):
                    rest.append(int(line[4:]))
                    if rest[-1] == 40:
                        break
        assert seen + rest == list(range(1, 41))


IDS = [
    "%00",
    "%ff",
    "%ED%A0%80",
    "..",
    "%2e%2e%2f",
    "x" * 2000,
    "%F0%9F%98%80" * 300,
    "-1",
    "9" * 400,
    "%0d%0aX: y",
    "{}",
]
QUERIES = [
    "limit=-1",
    "limit=99999999999999999999999",
    "limit=1e9",
    "limit=NaN",
    "after=%00",
    "as_of=-1",
    "as_of=999999999999999999",
    "as_of=0001-01-01T00:00:00%2B23:59",
    "as_of=9999-12-31T23:59:59-23:59",
    "q=" + "(" * 5000,
    "q=%22%22%22&chat_id=%ff",
    "metadata[a=1",
    "metadata[" + "[" * 500 + "]=1",
    "user_id=%00",
    "&&==&%",
]
BODIES = [
    b"",
    b"null",
    b"[]",
    b"1e999",
    b"NaN",
    b'{"id": "\\ud800"}',
    b'{"id": "\xff"}',
    b'{"id": null, "id": 1}',
    b'{"metadata": ' + b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"}",
    b'{"metadata": ' + b"[" * 300 + b"]" * 300 + b"}",
    b'{"messages": [{"name": "user", "data": ' + b'{"a":' * 250 + b"1" + b"}" * 250 + b"}]}",
    b'{"messages": [{"name": "user", "data": "\\u0000"}]}',
    b'{"messages": [{"name": "user", "data": 123456789012345678901234567890}]}',
    b'{"messages": []}',
    b'{"head_message_id": ""}',
    b'{"ttl_seconds": 1e308, "expires_at": -9223372036854775808}',
    b'{"title": "' + b"x" * 500_000 + b'"}',
    b"x" * (1 << 20) + b"x",
]
HEADERS = [
    {"If-Match": '"'},
    {"If-Match": '"%ff"'},
    {"If-Match": "W/*"},
    {"If-None-Match": '"' * 100},
    {"Idempotency-Key": "\x7f"},
    {"Idempotency-Key": "x" * 5000},
    {"Chatledger-Wait-For": "-1"},
    {"Chatledger-Wait-For": "٣"},
    {"Content-Type": "text/html; charset=\x80"},
    {"Content-Encoding": "br, gzip, zstd"},
    {"Authorization": "Bearer " + "x" * 9000},
    {"X-Api-Key": "\xff"},
    {"Range": "bytes=0-1,5-9999999999999999999999"},
    {"Accept": "*/*;q=NaN"},
    {"Origin": "http://[::"},
    {"Host": "[::"},
    {"traceparent": "00-x"},
    {"X-Padding": "x" * 40_000},
]


def hostile(client: httpx.Client, method: str, template: str) -> Iterator[tuple[str, httpx.Response]]:
    named = template
    for name in template.split("{")[1:]:
        named = named.replace("{" + name.partition("}")[0] + "}", "some")
    if "{" in template:
        before = template.partition("{")[0]
        for given in IDS:
            path = before + given + named.removeprefix(before + "some")
            yield path, client.request(method, path, content=b"{}" if method != "GET" else None)
    ended = "follow=false" if named.endswith("/feed") else ""  # else it would be read for ever
    for query in QUERIES:
        yield query, client.request(method, f"{named}?{query}&{ended}")
    for header in HEADERS:
        sent = {name.encode(): value.encode() for name, value in header.items()}
        yield str(header)[:200], client.request(method, f"{named}?{ended}", headers=sent)
    if method != "GET":
        for body in BODIES:
            yield repr(body[:60]), client.request(method, named, content=body)


@pytest.mark.matrix
@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_no_request_makes_the_server_fail(
    client: httpx.Client, caplog: pytest.LogCaptureFixture, method: str, path: str
) -> None:
    client.post(f"{API}/chats", json={"id": "some"})
    count = 0
    for sent, answer in hostile(client, method, path):
        count += 1
        assert answer.status_code < 500, (sent, answer.text)
        assert "Traceback" not in answer.text
        assert ".py" not in answer.text
        if answer.status_code >= 400:
            assert answer.headers["content-type"] == "application/problem+json", (sent, answer.text)
            assert answer.json()["detail"], sent
    assert count >= len(QUERIES) + len(HEADERS)
    assert not [record.message for record in caplog.records if record.levelno >= logging.ERROR]
    assert client.get(f"{API}/chats").status_code == 200


def chunks(size: int) -> Iterator[bytes]:
    for _ in range(size >> 16):
        yield b" " * (1 << 16)


def test_bodies_are_limited_by_route(client: httpx.Client) -> None:
    client.post(f"{API}/chats", json={"id": "large"})
    large = "x" * (2 << 20)
    refused = client.post(f"{API}/chats", json={"title": large})
    assert (refused.status_code, refused.json()["type"]) == (413, "urn:chatledger:error:PayloadTooLargeError")
    assert client.post(f"{API}/chats", content=chunks(2 << 20)).status_code == 413  # its size is not known before
    appended = client.post(f"{API}/chats/large/messages", json={"messages": [{"name": "user", "data": large}]})
    assert appended.status_code == 201
    assert client.post(f"{API}/chats/large/messages", content=chunks(65 << 20)).status_code == 413


@pytest.mark.anyio
@pytest.mark.parametrize("pause_s", [float("inf"), 0.02])
async def test_a_body_that_does_not_come_or_drips_is_not_waited_for(pause_s: float) -> None:
    async def receive() -> Message:
        await anyio.sleep(pause_s)
        return {"type": "http.request", "body": b"x", "more_body": True}

    request = Request({"type": "http", "method": "POST", "headers": []}, receive)
    with anyio.fail_after(20), pytest.raises(RequestError) as refused:
        await read_body(request, timeout_s=0.1)
    assert refused.value.status == 408


@pytest.mark.anyio
async def test_a_large_body_may_take_its_time() -> None:
    parts = iter(range(8))

    async def receive() -> Message:
        await anyio.sleep(0.1)
        return {"type": "http.request", "body": b"x" * 100_000, "more_body": next(parts) < 7}

    request = Request({"type": "http", "method": "POST", "headers": []}, receive)
    assert len(await read_body(request, timeout_s=0.5)) == 800_000


def test_bytes_that_are_no_http_are_refused(url: str) -> None:
    address = urlsplit(url)
    for sent in [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET  HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /api/v1/chats HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /api/v1/chats HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        b"POST /api/v1/chats HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"POST /api/v1/chats HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 200_000,
        b"GET /" + b"x" * 200_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 20_000 + b"\r\n",
        b"\r\n" * 1000,
    ]:
        with closing(socket.create_connection((address.hostname, address.port or 0), timeout=10)) as connection:
            try:
                connection.sendall(sent)
                with suppress(OSError):  # the server may have hung up already
                    connection.shutdown(socket.SHUT_WR)
                answer = connection.recv(1 << 16)
            except ConnectionError:
                continue
            assert not answer.startswith(b"HTTP/1.1 5"), (sent[:60], answer)
            assert b"Traceback" not in answer
    assert httpx.get(f"{url}/livez").status_code == 200
