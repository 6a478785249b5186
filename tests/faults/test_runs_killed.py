"""Runs over HTTP under fire: the server that executes them is killed, and their readers go on at the next one."""

import json
import multiprocessing
import os
import random
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import uvicorn
from tests.faults.test_live_killed import hurry
from tests.support.run_graphs import agent, say
from tests.support.soak import IS_SOAK

from chatledger.infra.entrypoints.http.serving import Server
from chatledger.server import create_app

AT_ONCE: Final = 4
DEATHS: Final = 50 if IS_SOAK else 1
TICKS: Final = 400
WAIT_S: Final = 60.0


def serve(folder: str, port: int) -> None:
    """Serve a ledger, until the process is killed."""
    hurry(pytest.MonkeyPatch())
    app = create_app(folder, graphs={"agent": agent})
    Server(uvicorn.Config(app, port=port, log_level="error"), app).run()


class Servers:
    """A server at a fixed port, one process after another."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([__name__, "chatledger.infra.entrypoints.http.langgraph_api"])
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._process = self.start()

    def start(self) -> ForkServerProcess:
        """Start the next one."""
        self._process = self._context.Process(target=serve, args=(self._folder, self.port), daemon=True)
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


class Reader:
    """A client that begins a run, and reads it to its end through whatever happens."""

    def __init__(self, url: str, thread_id: str) -> None:
        self.path = f"/threads/{thread_id}/runs"
        self.events: list[tuple[str, str, Any]] = []
        self.connections = 0
        self.ticked = threading.Event()
        self._http = httpx.Client(base_url=url, timeout=10)
        self._event: dict[str, str] = {}

    def run(self) -> list[tuple[str, str, Any]]:
        """Return all events as id, name and data."""
        body = {
            "assistant_id": "agent",
            "input": say(f"tick {TICKS}"),
            "stream_mode": "custom",
            "if_not_exists": "create",
        }
        with self._http:
            location = self._read("POST", f"{self.path}/stream", json=body)
            ends_at = time.monotonic() + WAIT_S
            while location is not None and self.events[-1][1] != "end" and time.monotonic() < ends_at:
                self._read("GET", location, headers={"Last-Event-ID": self.events[-1][0]})
            assert location is not None
            self.path = location
        return self.events

    def _read(self, method: str, path: str, **options: Any) -> str | None:
        location: str | None = None
        try:
            with self._http.stream(method, path, **options) as answer:
                assert answer.status_code == 200
                self.connections += 1
                location = answer.headers["location"]
                for line in answer.iter_lines():
                    self._take(line)
        except httpx.TransportError:
            time.sleep(0.05)
        self._event = {}
        return location

    def _take(self, line: str) -> None:
        if line:
            name, _, value = line.partition(": ")
            self._event[name] = value
            return
        if "data" in self._event:
            event = (self._event.get("id", ""), self._event["event"], json.loads(self._event["data"]))
            if event[0] or event[1] == "end":
                self.events.append(event)
            if event[1] == "custom" and event[2]["tick"] > 3:
                self.ticked.set()
        self._event = {}


@pytest.mark.timeout(1800)
@pytest.mark.soak
def test_no_event_is_lost_or_doubled(tmp_path: Path) -> None:
    """Whenever the server dies: a client that comes back with its last id has each event once, and the end."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    servers = Servers(str(tmp_path))
    try:
        for number in range(DEATHS):
            _die_once(servers, draw, number)
    finally:
        servers.kill()


def _die_once(servers: Servers, draw: random.Random, number: int) -> None:
    readers = [Reader(servers.url, f"{number}-{place}") for place in range(AT_ONCE)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        reading = [pool.submit(reader.run) for reader in readers]
        assert all(reader.ticked.wait(WAIT_S) for reader in readers)
        time.sleep(draw.uniform(0, 0.3))
        servers.kill()
        servers.start()
        found = [one.result() for one in reading]
    for reader, events in zip(readers, found, strict=True):
        assert reader.connections > 1
        ticks = [data["tick"] for _, name, data in events if name == "custom"]
        assert ticks == list(range(len(ticks)))
        assert [name for _, name, _ in events if name != "custom"] == ["metadata", "error", "end"]
        again = httpx.get(servers.url + reader.path, headers={"Last-Event-ID": "-"}).text
        assert [one[0] for one in events] == [
            line.removeprefix("id: ") for line in again.splitlines() if line.startswith("id: ")
        ]
        run = httpx.get(servers.url + reader.path.removesuffix("/stream")).json()
        assert run["status"] == "error"
