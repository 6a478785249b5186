"""Three real servers with the configuration of `docs/how-to/run-a-cluster.md`, and writers whose every answer is kept."""

import contextlib
import random
import re
import secrets
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, cast

from tests.support.jetstream_world import eventually, nats_server
from tests.support.ledger_world import text

import chatledger
from chatledger import Ledger, admin
from chatledger.jetstream import Endpoint, JetStreamClient

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "run-a-cluster.md"
NAMES: tuple[str, ...] = ("one", "two", "three")
USER = "chatledger"
READY_S = 60.0


def configuration() -> str:
    """The file that the page shows."""
    return PAGE.read_text(encoding="utf-8").split("```nginx\n")[1].split("```")[0]


class Node:
    """One server of the cluster, on a loopback address of its own."""

    def __init__(self, name: str, folder: Path, addresses: dict[str, str], route: str) -> None:
        self.name, self.folder, self.address = name, folder, addresses[name]
        self.store = folder / "store"
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True)
        shown = configuration().replace("ROUTE-PASSWORD", route).replace("/var/lib/nats", str(self.store))
        shown = shown.replace("server_name: one", f"server_name: {name}").replace("host: one", f"host: {self.address}")
        for other, address in addresses.items():
            shown = re.sub(rf"@{other}:", f"@{address}:", shown)
        (folder / "nats.conf").write_text(shown)
        (folder / "nats.conf").chmod(0o600)

    def start(self, environment: dict[str, str]) -> None:
        self.process = nats_server(self.folder / "nats.conf", **environment)

    def send(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        if number in {signal.SIGKILL, signal.SIGTERM}:
            self.process.wait(60)

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def blocks(self, stream: str) -> list[Path]:
        """The files of a stream's messages."""
        return sorted((self.store / "jetstream" / "APP" / "streams" / stream / "msgs").glob("*.blk"))


class Cluster:
    """The servers of the page, started and ended by the tests."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.password = "p" + secrets.token_hex(8)
        self._environment = {"APP_PASSWORD": self.password, "SYS_PASSWORD": "s" + secrets.token_hex(8)}
        addresses = dict(zip(NAMES, _free_addresses(), strict=True))
        route = "r" + secrets.token_hex(8)
        self.nodes = {name: Node(name, base / name, addresses, route) for name in NAMES}

    def start(self, name: str) -> None:
        node = self.nodes[name]
        node.start(self._environment)

        def listens() -> bool:
            assert node.is_running, (node.folder / "server.log").read_text()[-3000:]
            with contextlib.suppress(OSError), socket.create_connection((node.address, 4222), timeout=1):
                return True
            return False

        eventually(listens, within_s=READY_S)

    def place(self, stream: str, *, first: str | None = None) -> str:
        """The location of a stream: all servers, or one only."""
        hosts = [node.address for node in self.nodes.values() if first in {None, node.name}]
        return f"nats://{USER}:{self.password}@{','.join(hosts)}/{stream}"

    def endpoint(self, name: str | None = None) -> Endpoint:
        chosen = [node for node in self.nodes.values() if (name is None and node.is_running) or node.name == name]
        urls = tuple(f"nats://{node.address}:4222" for node in chosen)
        return Endpoint(urls=urls, user=USER, password=self.password)

    def info(self, stream: str) -> dict[str, Any]:
        """Information on a stream, from its leader."""
        client = JetStreamClient(self.endpoint, timeout_s=READY_S)
        try:
            return client.api(f"STREAM.INFO.{stream}", None, dict[str, Any], client.deadline())
        finally:
            client.close()

    def leader(self, stream: str) -> str:
        return cast("str", eventually(lambda: self.info(stream)["cluster"].get("leader"), within_s=READY_S))

    def follower(self, stream: str) -> str:
        leader = self.leader(stream)
        return random.choice([name for name in NAMES if name != leader])

    def wait_until_whole(self, stream: str) -> None:
        """Until all servers have all of a stream."""

        def is_whole() -> bool:
            group = self.info(stream)["cluster"]
            peers = group.get("replicas", [])
            return (
                bool(group.get("leader"))
                and len(peers) == 2
                and all(peer["current"] and not peer.get("offline") and not peer.get("lag") for peer in peers)
            )

        eventually(is_whole, within_s=READY_S)

    def wait_until_ready(self) -> None:
        """Until a stream with three copies can be made."""

        def is_ready() -> bool:
            with (
                contextlib.suppress(chatledger.ChatledgerError),
                chatledger.open(self.place("ready"), create=True, timeout_s=READY_S, index=self.base / "ready"),
            ):
                return True
            return False

        eventually(is_ready, within_s=READY_S)

    def close(self) -> None:
        for node in self.nodes.values():
            if node.is_running:
                node.send(signal.SIGCONT)
                node.send(signal.SIGTERM)


def _free_addresses() -> list[str]:
    """Three loopback addresses where nobody listens: the ports are those of the page."""
    while True:
        base = f"127.{random.randint(1, 250)}.{random.randint(1, 250)}"
        found = [f"{base}.{number}" for number in (11, 12, 13)]
        with contextlib.suppress(OSError):
            for address in found:
                for port in (4222, 6222):
                    socket.create_server((address, port)).close()
            return found


@contextlib.contextmanager
def clustered(base: Path) -> Generator[Cluster]:
    cluster = Cluster(base)
    try:
        for name in NAMES:
            cluster.start(name)
        cluster.wait_until_ready()
        yield cluster
    finally:
        cluster.close()


class Writers:
    """
    Threads that append to a chat each, one message after another, and keep what was acknowledged.

    A writer ends at the first error: with `timeout_s` there is to be none. The chats belong to these owners in turn.
    """

    def __init__(self, ledger: Ledger, count: int, *, name: str = "chat", owners: Sequence[str] = ("u",)) -> None:
        self._ledger = ledger
        self.acknowledged: dict[str, list[str]] = {f"{name}-{number}": [] for number in range(count)}
        self.errors: list[Exception] = []
        self.longest_s = 0.0
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(chat_id,)) for chat_id in self.acknowledged]
        for number, chat_id in enumerate(self.acknowledged):
            ledger.create_chat(chat_id, owners[number % len(owners)])

    def _write(self, chat_id: str) -> None:
        done = self.acknowledged[chat_id]
        while not self._stop.is_set():
            began = time.monotonic()
            message_id = f"{chat_id}-{len(done)}"
            try:
                self._ledger.append(chat_id, [text(message_id, id=message_id)])
            except Exception as error:  # noqa: BLE001 - whatever it is, the test raises it
                self.errors.append(error)
                return
            done.append(message_id)
            self.longest_s = max(self.longest_s, time.monotonic() - began)
            self._stop.wait(0.01)

    @property
    def count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(120)

    def wait_for_more(self, count: int = 5) -> None:
        """Until each has written so many more messages; at once after an error."""
        goal = {chat_id: len(done) + count for chat_id, done in self.acknowledged.items()}

        def is_reached() -> bool:
            return bool(self.errors) or all(len(self.acknowledged[chat]) >= least for chat, least in goal.items())

        eventually(is_reached, within_s=90.0)


class Reader:
    """A ledger of its own, as another process would have, that follows the log."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.positions: list[int] = []
        self.errors: list[Exception] = []
        self._feed = ledger.feed(after=0)
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        try:
            for recorded in self._feed:
                self.positions.append(recorded.position)
        except Exception as error:  # noqa: BLE001 - whatever it is, the test raises it
            self.errors.append(error)

    def stop(self, last: int) -> None:
        """End after that position was read."""
        eventually(lambda: self.errors or (self.positions and self.positions[-1] >= last), within_s=60.0)
        self._feed.close()
        self._thread.join(60)


@contextlib.contextmanager
def under_load(cluster: Cluster, stream: str, base: Path, *, writers: int = 4) -> Generator[Writers]:
    """Writers and a reader while the block runs; then everything is compared with what was acknowledged."""
    place = cluster.place(stream)
    with (
        chatledger.open(place, create=True, timeout_s=30, index=base / "writer") as ledger,
        chatledger.open(place, timeout_s=30, index=base / "reader") as other,
    ):
        load = Writers(ledger, writers)
        reader = Reader(other)
        load.start()
        try:
            load.wait_for_more()
            yield load
            load.wait_for_more()
        finally:
            load.stop()
        last = ledger.last_position()
        reader.stop(last)
        for error in [*load.errors, *reader.errors]:
            raise error
        assert reader.positions == list(range(1, last + 1)), "the reader saw a hole, or something twice"
        _compare(ledger, load)
        other.sync(last)
        _compare(other, load)
    cluster.wait_until_whole(stream)
    with chatledger.open(place, timeout_s=30, index=base / "fresh") as fresh:
        assert fresh.verify().position == last
        _compare(fresh, load)
    assert admin.compare_replicas(place) == []


def _compare(ledger: Ledger, load: Writers) -> None:
    """Everything that was acknowledged is there once, in its order, and nothing else."""
    for chat_id, done in load.acknowledged.items():
        found = [message.id for message in ledger.get_messages(chat_id, limit=None)]
        assert found == done, f"{chat_id}: {set(done) - set(found)} are missing, {set(found) - set(done)} too many"
