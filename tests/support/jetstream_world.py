"""Real servers for tests of the JetStream module: started, cut off, and connected to."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from eventsourcing.persistence import StoredEvent

from chatledger.infra.log.nats_server.launcher import find_nats_server
from chatledger.jetstream import Endpoint, JetStreamApplicationRecorder, JetStreamClient

TOKEN = "t-secret"
T = TypeVar("T")


class Server:
    """
    A nats-server on its own store directory. A restart gets a new port, unless one is given.

    While it is dead nobody else gets its port.
    """

    def __init__(self, base: Path, *, jetstream: str = "") -> None:
        self.base, self.jetstream = base, jetstream
        self.url = ""
        self.process: subprocess.Popen[bytes] | None = None
        self._placeholder: socket.socket | None = None
        base.mkdir(parents=True, exist_ok=True)

    def start(self, *, port: int = -1) -> "Server":
        config = self.base / "nats.conf"
        config.write_text(
            f"host: 127.0.0.1\nport: {port}\nauthorization {{ token: {TOKEN} }}\nmax_payload: 1MB\n"
            f'jetstream {{\nstore_dir: "{self.base / "js"}"\n{self.jetstream}\n}}\n'
        )
        process = self.process = nats_server(config)
        self.url = eventually(lambda: url_of(process, self.base))
        self._free_port()
        return self

    def endpoint(self) -> Endpoint:
        return Endpoint(urls=(self.url,), token=TOKEN)

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self._free_port()
        self._placeholder = hold_port(self.port)

    def stop(self) -> None:
        self._free_port()
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(30)

    def _free_port(self) -> None:
        if self._placeholder is not None:
            self._placeholder.close()
            self._placeholder = None


def nats_server(config: Path, **environment: str) -> subprocess.Popen[bytes]:
    """A server with this configuration; beside it lie its log, and a file that says where it listens."""
    command = [find_nats_server(), "-c", str(config), "--ports_file_dir", str(config.parent)]
    with config.with_name("server.log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **environment})


def url_of(process: subprocess.Popen[bytes], folder: Path) -> str | None:
    """Where a server listens; None until it says so."""
    try:
        return str(json.loads((folder / f"nats-server_{process.pid}.ports").read_text())["nats"][0])
    except (FileNotFoundError, ValueError):
        return None


def hold_port(port: int) -> socket.socket:
    """Keep others from a port where nobody listens, until it is closed; who names the port can listen there."""
    placeholder = socket.socket()
    placeholder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    placeholder.bind(("127.0.0.1", port))
    return placeholder


class Relay:
    """Passes bytes between clients and a server, whose port is asked for at each connection."""

    def __init__(self, target: Callable[[], int]) -> None:
        self._target = target
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._spawn(self._accept)

    def transfer(self, data: bytes, to: socket.socket, *, is_reply: bool) -> bool:
        """Pass on what one side sent; False ends the connection."""
        del is_reply
        to.sendall(data)
        return True

    def close(self) -> None:
        """End all connections."""
        for one in [self._listener, *self._sockets]:
            _end(one)
        for thread in list(self._threads):
            thread.join(10)

    def _spawn(self, function: Callable[..., None], *args: object) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        thread = threading.Thread(target=function, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._target()))
            except OSError:
                client.close()
                continue
            self._sockets |= {client, server}
            self._spawn(self._pass_on, client, server, client)
            self._spawn(self._pass_on, server, client, client)

    def _pass_on(self, one: socket.socket, other: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                if not self.transfer(data, other, is_reply=other is client):
                    break
        for end in (one, other):
            self._sockets.discard(end)
            _end(end)


class Proxy(Relay):
    """When told to, it swallows a reply and ends that connection."""

    def __init__(self, target: Callable[[], int]) -> None:
        self._pattern: bytes | None = None
        self.swallowed = threading.Event()
        super().__init__(target)

    def endpoint(self) -> Endpoint:
        return Endpoint(urls=(f"nats://127.0.0.1:{self.port}",), token=TOKEN)

    def swallow(self, pattern: bytes) -> None:
        """End the connection instead of passing on the next bytes from the server that contain `pattern`."""
        self.swallowed.clear()
        self._pattern = pattern

    def transfer(self, data: bytes, to: socket.socket, *, is_reply: bool) -> bool:
        if is_reply and self._pattern is not None and self._pattern in data:
            self._pattern = None
            self.swallowed.set()
            return False
        return super().transfer(data, to, is_reply=is_reply)


def _end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()


def eventually(condition: Callable[[], T | None], *, within_s: float = 30.0) -> T:
    """Return the value of `condition` as soon as it is true."""
    end = time.monotonic() + within_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, "the condition did not come true"
        time.sleep(0.005)


@contextlib.contextmanager
def running(base: Path) -> Generator[Server]:
    server = Server(base).start()
    try:
        yield server
    finally:
        server.stop()


@contextlib.contextmanager
def connected(connect: Callable[[], Endpoint], *, timeout_s: float = 15.0) -> Generator[JetStreamClient]:
    client = JetStreamClient(connect, timeout_s=timeout_s)
    try:
        yield client
    finally:
        client.close()


def new_name() -> str:
    return "T" + uuid4().hex


def new_recorder(client: JetStreamClient, stream: str | None = None) -> JetStreamApplicationRecorder:
    return JetStreamApplicationRecorder(client, stream or new_name(), id_type="text", create=True)


def event(originator_id: str, version: int, state: bytes = b"state", topic: str = "topic") -> StoredEvent:
    return StoredEvent(originator_id, version, topic, state)


def inserted(ids: Sequence[int] | None) -> list[int]:
    assert ids is not None
    return list(ids)
