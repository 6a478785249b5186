"""Observing requests: metrics, a line of JSON in the log for each, and spans of OpenTelemetry where its API is installed."""

import logging
import re
import time
import uuid
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Final
from urllib.parse import unquote

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.routing import Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...clock import clock_ms
from .access import PRINCIPAL
from .health import Metrics
from .service import CHAT_NAMES, Service

REQUEST_ID: Final = b"x-request-id"
_GIVEN_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,128}")
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

CLIENT_GONE: Final = 499
"""The status that metrics and logs have of a request whose client went before it was complete."""

access_log: Final = logging.getLogger("chatledger.access")
_log: Final = logging.getLogger("chatledger.server")


def is_event_stream(message: Message) -> bool:
    """Whether a message begins an answer of server-sent events."""
    if message["type"] != "http.response.start":
        return False
    return any(
        name.lower() == b"content-type" and value.startswith(b"text/event-stream")
        for name, value in message.get("headers", ())
    )


class _SentAnswer:
    """Status and size of an answer, noted while it is sent."""

    def __init__(self) -> None:
        self.status = 500
        self.sent_bytes = 0
        self.is_stream = False
        self.began_at: float | None = None


class Observed:
    """
    Counts and logs requests, and answers those that fail by a fault of the server.

    The log has no content, no ids but that of the request, and no name but that of the principal.
    """

    def __init__(self, app: ASGIApp, *, service: Service, metrics: Metrics) -> None:
        self._app, self._service, self._metrics = app, service, metrics
        self._spans = _Spans()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # The id of the client is kept: it finds the request in its own log by it, and a proxy's log has it too.
        answer, request_id, start = _SentAnswer(), _request_id(scope), time.perf_counter()

        async def seen(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = dict(message, headers=[*message.get("headers", ()), (REQUEST_ID, request_id)])
                answer.status, answer.began_at = message["status"], time.perf_counter()
                if is_event_stream(message):
                    answer.is_stream = True
                    self._metrics.sse_clients += 1
            else:
                answer.sent_bytes += len(message.get("body", b""))
            await send(message)

        with self._spans.span(scope) as end:
            try:
                await self._app(scope, receive, seen)
            except ClientDisconnect:  # in the middle of its request: nobody is there to be answered
                answer.status = CLIENT_GONE
            except Exception as error:
                _log.exception("%s %s failed, request %s", _method(scope), route_of(scope), request_id.decode())
                if answer.began_at is not None:
                    raise  # part of an answer was sent: nothing but the broken connection can tell the client
                await self._service.answer_error(Request(scope), error)(scope, receive, seen)
            finally:
                if answer.is_stream:
                    self._metrics.sse_clients -= 1
                end(route_of(scope), answer.status)
                self._record(scope, answer, request_id, start)

    def _record(self, scope: Scope, answer: _SentAnswer, request_id: bytes, start: float) -> None:
        now = time.perf_counter()
        method, route = _method(scope), route_of(scope)
        # A stream lasts as long as somebody reads it, which says nothing about the server.
        until = answer.began_at if answer.is_stream and answer.began_at is not None else now
        self._metrics.request(method, route, answer.status, until - start)
        if access_log.isEnabledFor(logging.INFO):
            principal = scope.get(PRINCIPAL)
            line = {
                "at_ms": clock_ms(),
                "method": method,
                "route": route,
                "status": answer.status,
                "duration_ms": round((now - start) * 1000, 3),
                "sent_bytes": answer.sent_bytes,
                "principal": None if principal is None else principal.name,
                "request_id": request_id.decode(),
            }
            access_log.info("%s", msgspec.json.encode(line).decode())


def _method(scope: Scope) -> str:
    """The method of a request, or `OTHER`."""
    # A stranger could make up any number of methods, and each were a row of metrics for ever.
    method: str = scope["method"]
    return method if method in _METHODS else "OTHER"


def route_of(scope: Mapping[str, Any]) -> str:
    """Return the path of the route that a request took, with the names of its parts in braces; empty for none."""
    route = scope.get("route")
    path: str = getattr(route, "path", "")
    if isinstance(route, Mount):
        return path
    # Starlette adds the paths of mounts to `root_path`; `app_root_path` has what came before them.
    mounted: str = scope.get("root_path", "").removeprefix(scope.get("app_root_path", ""))
    return mounted + path


def _request_id(scope: Scope) -> bytes:
    for name, value in scope["headers"]:
        if name == REQUEST_ID and _GIVEN_ID.fullmatch(value):
            request_id: bytes = value
            return request_id
    return uuid.uuid4().hex.encode()


class _Spans:
    """
    A span of OpenTelemetry for each request, below the one that the client sends.

    None where its API is not installed, and until the application sets a provider of spans.
    """

    def __init__(self) -> None:
        self._trace: Any = None
        if find_spec("opentelemetry") is not None:
            from opentelemetry import propagate, trace

            self._trace, self._extract, self._tracer = trace, propagate.extract, trace.get_tracer("chatledger")

    @contextmanager
    def span(self, scope: Scope) -> Generator[Callable[[str, int], None]]:
        """Give what ends the span, with the route and the status."""
        trace = self._trace
        # Looked up each time: applications set their provider after they made this one.
        if trace is None or isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            yield lambda _route, _status: None
            return
        carrier = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        method = scope["method"] if scope["method"] in _METHODS else "_OTHER"
        with self._tracer.start_as_current_span(
            method,
            context=self._extract(carrier),
            kind=trace.SpanKind.SERVER,
            attributes={"http.request.method": method, "url.scheme": scope.get("scheme", "http")},
        ) as span:

            def end(route: str, status: int) -> None:
                span.set_attribute("http.response.status_code", status)
                if route:
                    span.update_name(f"{method} {route}")
                    span.set_attribute("http.route", route)
                for name in CHAT_NAMES:
                    if name in scope.get("path_params", {}):
                        span.set_attribute("gen_ai.conversation.id", unquote(str(scope["path_params"][name])))
                if status >= 500:
                    span.set_status(trace.Status(trace.StatusCode.ERROR))

            yield end
