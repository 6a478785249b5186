"""Serving: the application in uvicorn, in one process or several."""

import asyncio
import logging
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import FrameType
from typing import Any, Final, cast

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.config import LOGGING_CONFIG
from uvicorn.protocols.http.flow_control import CLOSE_HEADER
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.supervisors import Multiprocess

from chatledger.domain.errors import ConfigurationError

from ...ledger.environment import open_given
from ...operating_system import allow_open_files, open_files_limit
from .server_sent_events import ABORT
from .service import Service
from .settings import CONNECTIONS, Serving

_GRACE_S: Final = 10
_KEEP_ALIVE_S: Final = 75
"""Longer than proxies keep idle connections, so that none sends a request on one that is being closed."""

_HEADERS_S: Final = 30
"""For the first request of a connection. A later one has until the connection would be closed if it were idle."""

_UNREAD_S: Final = 30
_UNREAD_BYTES: Final = 16 << 10
"""A client takes that much of what waits for it within that time, or is dropped: about the slowest of modems."""

_HEADERS_BYTES: Final = 64 << 10
_START_S: Final = 60
_BACKLOG: Final = 128
_OWN_DESCRIPTORS: Final = 64
"""For the ledger, and what the interpreter has open."""

_REPEATED_S: Final = 60
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Protocol(H11Protocol):
    """
    HTTP/1.1 on a connection that no client can hold without using it, and that the application can close at once.

    Where there are as many connections as may be, the one that has waited the longest for a request makes room for a new one. If
    none waits, uvicorn answers 503 (`limit_concurrency`).
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # writing is paused as long as anything is unread
        self.timeout_keep_alive_task = self.loop.call_later(_HEADERS_S, self.timeout_keep_alive_handler)
        app = self.app

        async def of_connection(scope: Scope, receive: Receive, send: Send) -> None:
            if {b"content-length", b"transfer-encoding"} <= {name for name, _ in scope["headers"]}:
                # A proxy may go by the other length, and take the rest for an answer to somebody else (RFC 9112, 6.3).
                scope["headers"].append(CLOSE_HEADER)
            scope["extensions"] = scope.get("extensions", {}) | {ABORT: transport.abort}
            await app(scope, receive, send)

        self.app: ASGIApp = of_connection
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        """Take data. Unlike in uvicorn, a request that only begins keeps its deadline: that ends with the last of its headers."""
        # uvicorn ends the deadline of idle connections with the first byte: half a request would hold one for ever.
        self.conn.receive_data(data)
        self.handle_events()

    def pause_writing(self) -> None:
        """Wait for a client to read, but not for ever."""
        super().pause_writing()
        self._unread = self.loop.call_later(_UNREAD_S, self._drop_if_unread, self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """Go on, as the client has read all."""
        super().resume_writing()
        self._unread.cancel()

    def _drop_if_unread(self, before: int) -> None:
        left = self.transport.get_write_buffer_size()
        if before - left < _UNREAD_BYTES:
            self.transport.abort()
        else:
            self._unread = self.loop.call_later(_UNREAD_S, self._drop_if_unread, left)

    def _make_room(self) -> None:
        waiting: list[tuple[bool, float, int, asyncio.Transport]] = []
        for connection in cast("set[H11Protocol]", self.connections - {self}):
            deadline, transport = connection.timeout_keep_alive_task, connection.transport
            # It answers nothing; of these, one that reads goes last.
            if deadline is not None and not transport.is_closing():
                waiting.append((connection.flow.write_paused, deadline.when(), id(connection), transport))
        if waiting:
            min(waiting)[-1].abort()


class Seldom(logging.Filter):
    """
    A filter of what is logged again within a minute: strangers cannot fill a disk with what they do wrong.

    Where no connection can be accepted, asyncio logs each of the backlog: it wrote 367 MB in two minutes.
    """

    def __init__(self) -> None:
        super().__init__()
        self._logged: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it was not logged within the last minute."""
        now = time.monotonic()
        self._logged = {what: at for what, at in self._logged.items() if now - at < _REPEATED_S}
        what = str(record.msg), repr(record.exc_info and record.exc_info[1])
        return self._logged.setdefault(what, now) == now


def configure(
    app: Starlette | Callable[[], Starlette], *, workers: int = 1, connections: int = CONNECTIONS
) -> uvicorn.Config:
    """Return how uvicorn serves an application, or what a function makes in each process."""
    most = open_files_limit()
    spare = sys.maxsize if most is None else max(most - _OWN_DESCRIPTORS, 12)
    # While asyncio closes a connection that makes room, it may accept three times as many as the backlog has.
    backlog = min(_BACKLOG, spare // 6)
    on_stderr = LOGGING_CONFIG["handlers"]["default"] | {"filters": ["seldom"]}
    return uvicorn.Config(
        app,
        factory=not isinstance(app, Starlette),
        http=Protocol,
        ws="none",
        h11_max_incomplete_event_size=_HEADERS_BYTES,
        limit_concurrency=min(connections, spare - 3 * backlog) + 1,  # uvicorn counts the new one too
        backlog=backlog,
        log_config=LOGGING_CONFIG
        | {
            "filters": {"seldom": {"()": Seldom}},
            "handlers": LOGGING_CONFIG["handlers"] | {"default": on_stderr},
            "loggers": LOGGING_CONFIG["loggers"] | {"asyncio": {"handlers": ["default"]}},
        },
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_GRACE_S,
        timeout_worker_healthcheck=_START_S,
        workers=workers,
    )


class Server(uvicorn.Server):
    """A uvicorn server whose streams end at a signal to stop, and that ends as a program does, not by the signal."""

    def __init__(self, config: uvicorn.Config, app: Starlette) -> None:
        super().__init__(config)
        self._app = app

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Take the signals to stop as long as it serves."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop: streams end, requests are answered, the ledger is closed."""
        self._app.state.service.stopping.set()
        super().handle_exit(sig, frame)


@contextmanager
def serving(app: Starlette, *, connections: int = CONNECTIONS) -> Generator[str]:
    """Serve an application in a thread, at a free port of this machine. Gives its address."""
    with listen("127.0.0.1", 0) as listening:
        server = Server(configure(app, connections=connections), app)
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            while not server.started and thread.is_alive():
                time.sleep(0.01)
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.handle_exit(signal.SIGINT, None)
            thread.join()


def serve(settings: Serving, *, tell: Callable[[str], None], show: Callable[[str], None]) -> None:
    """
    Serve a ledger until the process is told to stop. `tell` gets a line once it listens, `show` the address of the explorer.

    Raises:
        ConfigurationError: The address is taken, something that is named is not there, or others could reach the server
            although nobody is asked who they are.
        ChatledgerError: The ledger cannot be opened.
    """
    settings.check()
    allow_open_files(_OWN_DESCRIPTORS + settings.connections + 3 * _BACKLOG)
    # Opened here, its errors are said once, and the server of a directory outlives each of the workers.
    with (
        _exiting_by_signal(),
        open_given(settings.location, create=settings.create) as ledger,
        listen(settings.host, settings.port, may_choose=settings.is_port_free_to_choose) as listening,
        ExitStack() as stack,
    ):
        address, port = listening.getsockname()[:2]
        shown = f"[{address}]" if ":" in address else address
        if settings.workers > 1:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="chatledger-", ignore_cleanup_errors=True))
            settings = msgspec.structs.replace(settings, metrics_folder=folder)
        settings = settings.for_browsers(f"http://{shown}:{port}")
        app = settings.application()
        tell(f"serving {ledger.location} at http://{shown}:{port}")
        if settings.explorer is not None:
            links = settings.links()
            show(settings.explorer if links is None else links.current())
        if settings.workers == 1:
            Server(configure(app, connections=settings.connections), app).run([listening])
        else:
            worker = partial(application_of_worker, settings)
            config = configure(worker, workers=settings.workers, connections=settings.connections)
            Multiprocess(config, [listening]).run()


@contextmanager
def _exiting_by_signal() -> Generator[None]:
    """Close the ledger also at a signal while the process starts, before its server handles signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(0))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def application_of_worker(settings: Serving) -> Starlette:
    """Return the application of a process that uvicorn started, whose streams end at a signal to stop."""
    app = settings.application()
    service: Service = app.state.service
    for number in _SIGNALS:
        before: Any = signal.getsignal(number)

        # uvicorn set its handler before it asked for the application. It waits for requests to end, so streams have to end before.
        def stop(number: int, frame: FrameType | None, before: Any = before) -> None:
            service.stopping.set()
            if callable(before):
                before(number, frame)

        signal.signal(number, stop)
    return app


def listen(host: str, port: int, *, may_choose: bool = False) -> socket.socket:
    """Return a socket that listens at an address; port 0 is a free one, which is taken too where this one is in use and it may be."""
    # Named as one of TCP, asyncio sends what is written at once (TCP_NODELAY), not when its headers are acknowledged.
    listening = socket.socket(
        socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP
    )
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(_BACKLOG)  # the address is open before it is printed: connections wait until they are answered
    except OSError as error:
        listening.close()
        if may_choose:
            return listen(host, 0)
        msg = f"cannot listen at {host}, port {port}: {error.strerror or error}; choose another one with --port"
        raise ConfigurationError(msg) from error
    return listening
