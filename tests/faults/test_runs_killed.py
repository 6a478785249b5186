"""Runs over HTTP under fire: the server that executes them is killed, and their readers go on at the next one."""

import json
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from tests.support.killed_server import WAIT_S, KilledServer
from tests.support.run_graphs import say
from tests.support.soak import IS_SOAK

AT_ONCE: Final = 4
DEATHS: Final = 50 if IS_SOAK else 1
TICKS: Final = 400


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
    with KilledServer(str(tmp_path), "agent=tests.support.run_graphs:agent") as servers:
        for number in range(DEATHS):
            _die_once(servers, draw, number)


def _die_once(servers: KilledServer, draw: random.Random, number: int) -> None:
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
