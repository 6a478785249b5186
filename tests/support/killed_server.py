"""A server of graphs in a process, at one address, which is killed and started again."""

import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Collection, Sequence
from multiprocessing.context import ForkServerProcess
from typing import Final, Self

import httpx
import pytest
import uvicorn
from tests.faults.test_live_killed import hurry
from tests.support.run_graphs import GATES

from chatledger.infra.entrypoints.http.access import Authenticate
from chatledger.infra.entrypoints.http.langgraph_api.graphs import load_graphs
from chatledger.infra.entrypoints.http.serving import Server
from chatledger.server import create_app

WAIT_S: Final = 60.0


def serve(
    location: str, port: int, graphs: Sequence[str], authenticate: Authenticate | None, gates: Collection[str]
) -> None:
    """Serve a ledger, until the process is killed."""
    hurry(pytest.MonkeyPatch())
    for gate in gates:
        GATES[gate].set()
    app = create_app(location, graphs=load_graphs(graphs), authenticate=authenticate)
    Server(uvicorn.Config(app, port=port, log_level="error"), app).run()


class KilledServer:
    """
    A server at a fixed port, one process after another; it is there within `with`.

    Args:
        location: Of the ledger.
        graphs: Each as `name=module:attribute`.
        authenticate: A function of a module, which tells who asks; nobody is asked when None.
    """

    def __init__(self, location: str, *graphs: str, authenticate: Authenticate | None = None) -> None:
        self._location, self._graphs, self._authenticate = location, graphs, authenticate
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([__name__, "chatledger.infra.entrypoints.http.langgraph_api"])
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._process = self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self, *gates: str) -> ForkServerProcess:
        """Start the next one, in which these gates of graphs are open."""
        given = (self._location, self.port, self._graphs, self._authenticate, gates)
        self._process = self._context.Process(target=serve, args=given, daemon=True)
        self._process.start()
        ends_at = time.monotonic() + WAIT_S
        while time.monotonic() < ends_at:
            try:
                httpx.get(f"{self.url}/ok")
            except httpx.TransportError:
                assert self._process.is_alive()
                time.sleep(0.05)
            else:
                return self._process
        msg = "the server does not answer"
        raise AssertionError(msg)

    def kill(self) -> None:
        """Kill it, without a word."""
        pid = self._process.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        self._process.join()
