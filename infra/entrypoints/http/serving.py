"""Serving: the application in uvicorn, in one process or several."""

import asyncio
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import FrameType
from typing import Any, Final

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.supervisors import Multiprocess

from chatledger.domain.errors import ConfigurationError

from ..environment import open_given
from .server_sent_events import ABORT
from .service import Service
from .settings import Serving

_GRACE_S: Final = 10
_KEEP_ALIVE_S: Final = 75
"""Longer than proxies keep idle connections, so that none sends a request on one that is being closed."""

_HEADERS_BYTES: Final = 64 << 10
_START_S: Final = 60
_BACKLOG: Final = 2048
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Protocol(H11Protocol):
    """HTTP/1.1 on a connection that the application can close at once, whether or not all was sent."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Begin a connection."""
        super().connection_made(transport)
        app = self.app

        async def with_abort(scope: Scope, receive: Receive, send: Send) -> None:
            scope["extensions"] = scope.get("extensions", {}) | {ABORT: transport.abort}
            await app(scope, receive, send)

        self.app: ASGIApp = with_abort


def configure(app: Starlette | Callable[[], Starlette], *, workers: int = 1) -> uvicorn.Config:
    """Return how uvicorn serves an application, or what a function makes in each process."""
    return uvicorn.Config(
        app,
        factory=not isinstance(app, Starlette),
        http=Protocol,
        h11_max_incomplete_event_size=_HEADERS_BYTES,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_GRACE_S,
        timeout_worker_healthcheck=_START_S,
        workers=workers,
    )


class Server(uvicorn.Server):
    """A uvicorn server whose streams end when it is told to stop, and that ends as a program does, not by the signal."""

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


def serve(settings: Serving, *, tell: Callable[[str], None], show: Callable[[str], None] | None = None) -> None:
    """
    Serve a ledger until the process is told to stop.

    Args:
        settings: How.
        tell: Called with lines once it listens.
        show: Called with the address of the explorer; `tell` is when None.

    Raises:
        ConfigurationError: The address is taken, something that is named is not there, or others could reach the server
            although nobody is asked who they are.
        ChatledgerError: The ledger cannot be opened.
    """
    settings.check()
    # Opened here, its errors are said once, and the server of a directory outlives each of the workers.
    with (
        _exiting_by_signal(),
        open_given(settings.location, create=settings.create) as ledger,
        _listen(settings) as listening,
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
            entrance = settings.explorer if links is None else links.current()
            (show or (lambda link: tell(f"explore it at {link}")))(entrance)
        if settings.workers == 1:
            Server(configure(app), app).run([listening])
        else:
            config = configure(partial(application_of_worker, settings), workers=settings.workers)
            Multiprocess(config, [listening]).run()


@contextmanager
def _exiting_by_signal() -> Generator[None]:
    """Close the ledger also when the process is told to stop while it starts, before its server handles signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _exit)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _exit(number: int, frame: FrameType | None) -> None:
    del number, frame
    sys.exit(0)


def _listen(settings: Serving) -> socket.socket:
    try:
        return listen(settings.host, settings.port)
    except ConfigurationError:
        if not settings.is_port_free_to_choose:
            raise
        return listen(settings.host, 0)


def application_of_worker(settings: Serving) -> Starlette:
    """Return the application of a process that uvicorn started, whose streams end when it is told to stop."""
    app = settings.application()
    _end_streams_by_signal(app.state.service)
    return app


def _end_streams_by_signal(service: Service) -> None:
    """End streams at a signal before uvicorn handles it, as uvicorn waits for them."""
    for number in _SIGNALS:
        before: Any = signal.getsignal(number)

        def stop(number: int, frame: FrameType | None, before: Any = before) -> None:
            service.stopping.set()
            if callable(before):
                before(number, frame)

        signal.signal(number, stop)


def listen(host: str, port: int) -> socket.socket:
    """
    Return a socket that listens at an address; port 0 is a free one.

    Raises:
        ConfigurationError: The address is taken, or not of this machine.
    """
    # Named as one of TCP, asyncio sends what is written at once (TCP_NODELAY), not when its headers are acknowledged.
    listening = socket.socket(
        socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP
    )
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(_BACKLOG)  # who is told the address finds it open: connections wait until they are answered
    except OSError as error:
        listening.close()
        msg = f"cannot listen at {host}, port {port}: {error.strerror or error}; choose another one with --port"
        raise ConfigurationError(msg) from error
    return listening
