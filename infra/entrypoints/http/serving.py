"""Serving: the application in uvicorn, in one process or several."""

import asyncio
import socket
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, Final

import uvicorn
from starlette.applications import Starlette

from chatledger.domain.errors import ConfigurationError

from ...ledger.open import open_async
from .app import create_app

HOST: Final = "127.0.0.1"
PORT: Final = 8230
_GRACE_S: Final = 10


class Server(uvicorn.Server):
    """A uvicorn server whose streams end when it is told to stop, so that it need not wait for them."""

    def __init__(self, config: uvicorn.Config, app: Starlette) -> None:
        super().__init__(config)
        self._app = app

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop: streams end, requests are answered, the ledger is closed."""
        self._app.state.service.stopping.set()
        super().handle_exit(sig, frame)


def serve(
    location: str,
    *,
    host: str = HOST,
    port: int = PORT,
    is_insecure: bool = False,
    graphs: Mapping[str, Any] | None = None,
    tell: Callable[[str], None],
) -> None:
    """
    Serve a ledger until the process is told to stop.

    Args:
        location: Of the ledger.
        host: The address to listen at.
        port: The port; 0 for a free one.
        is_insecure: Whether others may reach it although nobody is asked who they are.
        graphs: The graphs that LangGraph's clients find here, by name.
        tell: Called with a line once it listens.

    Raises:
        ConfigurationError: The address is taken, or others could reach the server although nobody is asked who they are.
    """
    check_address(host, has_access=False, is_insecure=is_insecure)
    asyncio.run(_serve(location, host, port, graphs, tell))


async def _serve(
    location: str, host: str, port: int, graphs: Mapping[str, Any] | None, tell: Callable[[str], None]
) -> None:
    async with open_async(location) as ledger:
        app = create_app(ledger, graphs=graphs)
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=_GRACE_S)
        with listen(host, port) as listening:
            address, found = listening.getsockname()[:2]
            shown = f"[{address}]" if ":" in address else address
            tell(f"serving {ledger.location} at http://{shown}:{found}")
            await Server(config, app).serve([listening])


def check_address(host: str, *, has_access: bool, is_insecure: bool) -> None:
    """
    Refuse to let others in where nobody is asked who they are.

    Raises:
        ConfigurationError: The host is not this machine, and there is neither authentication nor `--insecure`.
    """
    if has_access or is_insecure or host in {"localhost", "::1"} or host.startswith("127."):
        return
    msg = f"{host} lets others reach the ledger, and nobody is asked who they are: make keys (chatledger keys), or say --insecure"
    raise ConfigurationError(msg)


def listen(host: str, port: int) -> socket.socket:
    """
    Return a socket that is bound to an address; 0 is a free port.

    Raises:
        ConfigurationError: The address is taken, or not of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Only a socket that says so is one of TCP for asyncio, which then sends what is written at once (TCP_NODELAY): else every
    # answer waits 40 ms for the acknowledgement of its headers.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        msg = f"cannot listen at {host}, port {port}: {error.strerror or error}; choose another one with --port"
        raise ConfigurationError(msg) from error
    return listening
