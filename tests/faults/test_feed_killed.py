"""The feed over HTTP under fire: the server is killed again and again, its reader and its writer go on at the next one."""

import contextlib
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import httpx
import pytest
from tests.support.events import events_of
from tests.support.http_world import API
from tests.support.killed_server import WAIT_S, KilledServer
from tests.support.soak import IS_SOAK

DEATHS: Final = 200 if IS_SOAK else 3


class Reader:
    """A client of the feed that comes back with the last id that it saw."""

    def __init__(self, url: str) -> None:
        self.events: list[tuple[int, str]] = []
        self.connections = 0
        self._url = url

    def run(self, is_over: Callable[[], bool]) -> None:
        """Read until it is over."""
        while not is_over():
            last_id = str(self.events[-1][0]) if self.events else "0"
            try:
                with (
                    httpx.Client(base_url=self._url + API, timeout=1) as client,
                    events_of(client, "/feed", last_id=last_id) as events,
                ):
                    self.connections += 1
                    for event in events:
                        assert event.id is not None, event
                        self.events.append((int(event.id), event.data["event_id"]))
                        if is_over():
                            return
            except httpx.TransportError:
                time.sleep(0.02)


class Writer:
    """A client that appends messages, and repeats a request that was not answered under its key."""

    def __init__(self, url: str) -> None:
        self.acknowledged: list[str] = []
        self._url = url

    def run(self, is_over: Callable[[], bool]) -> None:
        """Write until it is over."""
        with httpx.Client(base_url=self._url + API, timeout=10) as client:
            while not is_over():
                text = str(len(self.acknowledged))
                body = {"messages": [{"name": "user", "data": text}]}
                try:
                    answer = client.post("/chats/c/messages", json=body, headers={"Idempotency-Key": text})
                except httpx.TransportError:
                    time.sleep(0.02)
                    continue
                if answer.status_code == 503:
                    continue
                assert answer.status_code == 201, answer.text
                self.acknowledged.append(answer.json()[0]["id"])


@pytest.mark.timeout(1800)
@pytest.mark.soak
def test_no_event_is_lost_or_doubled(tmp_path: Path) -> None:
    """Whenever the server dies: each event comes once and in order, and each message was written once."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    over = threading.Event()
    with KilledServer(str(tmp_path)) as servers, contextlib.ExitStack() as ending:
        ending.callback(over.set)
        httpx.post(f"{servers.url}{API}/chats", json={"id": "c"}).raise_for_status()
        reader, writer = Reader(servers.url), Writer(servers.url)
        last: list[int] = []

        def has_all() -> bool:
            return bool(last) and reader.events[-1][0] >= last[0]

        writing = threading.Thread(target=writer.run, args=(over.is_set,))
        reading = threading.Thread(target=reader.run, args=(has_all,))
        writing.start()
        reading.start()
        for _ in range(DEATHS):
            count = len(reader.events)
            ends_at = time.monotonic() + WAIT_S
            while len(reader.events) < count + 3 and time.monotonic() < ends_at:
                time.sleep(0.01)
            assert len(reader.events) >= count + 3
            time.sleep(draw.uniform(0, 0.1))
            servers.kill()
            servers.start()
        over.set()
        writing.join(WAIT_S)
        last.append(httpx.get(f"{servers.url}{API}/position").json()["last_position"])
        reading.join(WAIT_S)
        assert not writing.is_alive()
        assert not reading.is_alive()
        assert reader.connections > DEATHS
        assert [position for position, _ in reader.events] == list(range(1, last[0] + 1))
        assert len({event_id for _, event_id in reader.events}) == last[0]
        chain = httpx.get(f"{servers.url}{API}/messages/{writer.acknowledged[-1]}/chain?limit=1000", timeout=60).json()
        assert [message["id"] for message in chain] == writer.acknowledged[-1000:]
