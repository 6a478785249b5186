"""
Reads after `sync()` miss nothing that was acknowledged before, on whichever server, also while one believes to lead that does not;
and what a server does not have yet is not taken for lost.

The servers reach each other through relays that the tests cut, one for each direction; clients reach all of them all the time.
"""

import contextlib
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from tests.support.cluster_world import NAMES, READY_S, USER, Cluster
from tests.support.jetstream_world import eventually, new_name
from tests.support.ledger_world import internals, text

import chatledger
from chatledger import ChainIntegrityError, ChatledgerError, Ledger, LogUnavailableError, Recorded
from chatledger.jetstream import JetStreamClient

pytestmark = [pytest.mark.cluster, pytest.mark.soak, pytest.mark.timeout(300), pytest.mark.xdist_group("cluster")]
READER = "reader"
"""A user that may not delete anything."""


class Relay:
    """Passes on what comes to an address. While it is cut, connections stay open and nothing arrives, as in a network that fails."""

    def __init__(self, address: str, port: int, target: int) -> None:
        self._target = (address, target)
        self._listener = socket.create_server((address, port))
        self._open: set[socket.socket] = set()
        self._passes = threading.Event()
        self._passes.set()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                source, _ = self._listener.accept()
                self._passes.wait()
                try:
                    sink = socket.create_connection(self._target, timeout=5)
                except OSError:
                    source.close()
                    continue
                sink.settimeout(None)
                self._open |= {source, sink}
                for pair in ((source, sink), (sink, source)):
                    threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self._passes.wait()
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)  # so that the other one ends, too
        self._open.discard(source)
        source.close()

    def cut(self) -> None:
        self._passes.clear()

    def heal(self) -> None:
        """Let bytes pass again, on new connections: what was on its way is lost."""
        for one in list(self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._passes.set()

    def close(self) -> None:
        self._listener.close()
        self.heal()


class RelayedCluster(Cluster):
    """The cluster of the page, whose servers can be cut off from each other."""

    def __init__(self, base: Path) -> None:
        super().__init__(base)
        self._relays: dict[tuple[str, str], Relay] = {}
        for number, (name, node) in enumerate(self.nodes.items()):
            file = node.folder / "nats.conf"
            shown = file.read_text().replace("  port: 6222\n", f'  port: 6222\n  advertise: "{node.address}:6999"\n')
            denied = f'{{ user: {READER}, password: $APP_PASSWORD, permissions: {{ publish: {{ deny: "$JS.API.STREAM.MSG.DELETE.>" }} }} }}'
            shown = shown.replace("password: $APP_PASSWORD }", "password: $APP_PASSWORD }, " + denied)
            for other, target in self.nodes.items():
                if other != name:
                    shown = shown.replace(f"@{target.address}:6222", f"@{target.address}:{6300 + number}")
                    self._relays[name, other] = Relay(target.address, 6300 + number, 6222)
            file.write_text(shown)

    @contextlib.contextmanager
    def cut_off(self, name: str) -> Iterator[None]:
        """A server that its peers do not reach, and that does not reach them."""
        relays = [relay for pair, relay in self._relays.items() if name in pair]
        for relay in relays:
            relay.cut()
        try:
            yield
        finally:
            for relay in relays:
                relay.heal()

    def close(self) -> None:
        super().close()
        for relay in self._relays.values():
            relay.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayedCluster]:
    running = RelayedCluster(tmp_path_factory.mktemp("relayed"))
    try:
        for name in NAMES:
            running.start(name)
        running.wait_until_ready()
        yield running
    finally:
        running.close()


class Watch:
    """A writer, and readers that compare what each `sync()` reached with what was acknowledged before it began."""

    def __init__(self, writer: Ledger, readers: list[Ledger]) -> None:
        self._writer, self._stop = writer, threading.Event()
        self.acknowledged = 0
        self.stale: list[tuple[int, int, int]] = []
        self.counts = [0] * len(readers)
        self._threads = [threading.Thread(target=self._write)]
        self._threads += [threading.Thread(target=self._read, args=pair) for pair in enumerate(readers)]

    def _write(self) -> None:
        number = 0
        while not self._stop.wait(0.02):
            with contextlib.suppress(ChatledgerError):
                self._writer.append("c", [text(f"{number}")])
                self.acknowledged = max(self.acknowledged, self._writer.position)
            number += 1

    def _read(self, number: int, reader: Ledger) -> None:
        while not self._stop.wait(0.02):
            least = self.acknowledged
            with contextlib.suppress(ChatledgerError):
                reached = reader.sync()
                self.counts[number] += 1
                if reached < least:
                    self.stale.append((number, least, reached))

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)


def test_sync_knows_what_was_acknowledged(cluster: RelayedCluster, tmp_path: Path) -> None:
    """The leader is cut off from its peers while clients reach it, and hangs and wakes: no `sync()` believes it."""
    stream = new_name()
    with contextlib.ExitStack() as opened:

        def open_at(place: str, name: str, *, create: bool = False) -> Ledger:
            return opened.enter_context(chatledger.open(place, create=create, timeout_s=20, index=tmp_path / name))

        writer = open_at(cluster.place(stream), "writer", create=True)
        writer.create_chat("c", "u")
        readers = [open_at(cluster.place(stream, first=name), name) for name in NAMES]
        readers += [open_at(cluster.place(stream, first=n).replace(USER, READER, 1), f"r-{n}") for n in NAMES]
        watch = opened.enter_context(Watch(writer, readers))
        eventually(lambda: min(watch.counts) > 5, within_s=30.0)
        with cluster.cut_off(cluster.leader(stream)):
            time.sleep(12)
        cluster.wait_until_whole(stream)
        node = cluster.nodes[cluster.leader(stream)]
        node.send(signal.SIGSTOP)
        time.sleep(8)
        node.send(signal.SIGCONT)
        cluster.wait_until_whole(stream)
        before = list(watch.counts)
        eventually(lambda: all(now > then + 5 for now, then in zip(watch.counts, before, strict=True)), within_s=60.0)
    print(f"{watch.acknowledged} events, {watch.counts} syncs")
    assert watch.stale == []


def test_syncs_at_the_same_time_share_a_barrier(cluster: RelayedCluster, tmp_path: Path) -> None:
    """Sixteen threads that sync at once need a few barriers, and each knows what was acknowledged before it asked."""
    stream = new_name()
    with (
        chatledger.open(cluster.place(stream), create=True, index=tmp_path / "writer") as writer,
        chatledger.open(cluster.place(stream), index=tmp_path / "reader") as reader,
    ):
        writer.create_chat("c", "u")
        barrier = internals(reader).log._barrier
        begun, start, reached = barrier._begun, threading.Barrier(17), []

        def sync() -> None:
            start.wait()
            reached.append(reader.sync())

        threads = [threading.Thread(target=sync) for _ in range(16)]
        for thread in threads:
            thread.start()
        writer.append("c", [text("last")])
        start.wait()
        for thread in threads:
            thread.join()
        assert reached == [writer.position] * 16
        assert barrier._begun - begun < 16
        assert writer.position == writer.last_position(), "a barrier takes no position"


def test_what_a_server_lacks_is_not_lost(cluster: RelayedCluster, tmp_path: Path) -> None:
    """The only server left was cut off while the others wrote, and knows of no leader: it answers with less than the index has seen."""
    stream = new_name()
    with chatledger.open(cluster.place(stream), create=True, timeout_s=8, index=tmp_path / "index") as ledger:
        ledger.create_chat("c", "u")
        reads: list[Callable[[], Iterable[Recorded]]] = [
            ledger.history,
            lambda: ledger.history("c"),
            lambda: ledger.feed(0, follow=False),
        ]
        cluster.wait_until_whole(stream)
        behind = cluster.follower(stream)
        others = [name for name in NAMES if name != behind]
        with cluster.cut_off(behind):  # so that what the others write does not wait for it in its sockets
            cluster.nodes[behind].send(signal.SIGSTOP)
            for number in range(5):
                ledger.append("c", [text(f"{number}")])
            for name in others:
                cluster.nodes[name].send(signal.SIGKILL)
        cluster.nodes[behind].send(signal.SIGCONT)
        try:
            eventually(lambda: 0 < cluster.info(stream)["state"]["last_seq"] < ledger.position, within_s=READY_S)
            for read in reads:
                with pytest.raises(LogUnavailableError):
                    list(read())
        finally:
            for name in others:
                cluster.start(name)
        cluster.wait_until_whole(stream)
        assert [1, 2, 3, 4, 5, 6] == [recorded.position for recorded in ledger.feed(0, follow=False)]

        # What all of them lost is told.
        client = JetStreamClient(cluster.endpoint, timeout_s=READY_S)
        lost = {"seq": 4, "no_erase": True}
        client.api(f"STREAM.MSG.DELETE.{stream}", lost, dict[str, Any], client.deadline())
        client.close()
        for read in reads:
            with pytest.raises(ChainIntegrityError, match=r"position 4 .* is lost"):
                list(read())
