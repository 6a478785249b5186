"""
A network of our own between three servers and their clients, without privileges: each pair is joined by a relay.

Every relay passes bytes on as long as the network lets them through. What is cut off waits, as with TCP, also the end of a connection:
who is on the other side of a cut learns nothing of it. A direction can be cut alone.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Final

from tests.support.cluster_world import NAMES, USER, Cluster

CLIENTS: Final = ("ann", "ben", "cid")
_CHUNK: Final = 65536
_NOWHERE: Final = "127.0.0.1:1"


class Network:
    """Cuts and delays between servers and clients."""

    def __init__(self, seed: str) -> None:
        self._changed = threading.Condition()
        self._cuts: set[tuple[str, str]] = set()
        self._dice = Random(seed)
        self._delay_s = 0.0
        self._is_closed = False

    def cut(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Let nothing through from the first to the second of each pair."""
        with self._changed:
            self._cuts |= set(pairs)

    def isolate(self, group: Iterable[str], direction: str = "both") -> None:
        """Cut off a group from all servers and clients outside of it: both ways, or only what goes `out` or `in`."""
        inside = set(group)
        outside = {*NAMES, *CLIENTS} - inside
        out = {(one, other) for one in inside for other in outside}
        back = {(other, one) for one, other in out}
        self.cut({"both": out | back, "out": out, "in": back}[direction])

    def slow_down(self, delay_s: float) -> None:
        """Let all bytes come late, some very late, as where packets are lost."""
        self._delay_s = delay_s

    def heal(self) -> None:
        """Let everything through at once."""
        with self._changed:
            self._cuts.clear()
            self._delay_s = 0.0
            self._changed.notify_all()

    def close(self) -> None:
        """Let nobody wait any more."""
        self._is_closed = True
        self.heal()

    def wait(self, source: str, target: str) -> None:
        """Return when something from the one may reach the other."""
        if self._delay_s:
            time.sleep(self._delay_s * (10 if self._dice.random() < 0.02 else 1))
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or (source, target) not in self._cuts)


class Link:
    """A relay on a port of its own, from `source` to the address of `target`, and back."""

    def __init__(self, network: Network, source: str, target: str, address: tuple[str, int]) -> None:
        self._network, self._source, self._target, self._address = network, source, target, address
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._join, args=(near,), daemon=True).start()

    def _join(self, near: socket.socket) -> None:
        self._network.wait(self._source, self._target)
        try:
            far = socket.create_connection(self._address, timeout=5)
            far.settimeout(None)
        except OSError:
            near.close()
            return
        for one, other, way in ((near, far, (self._source, self._target)), (far, near, (self._target, self._source))):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._pass_on, args=(one, other, way), daemon=True).start()

    def _pass_on(self, one: socket.socket, other: socket.socket, way: tuple[str, str]) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(_CHUNK):
                self._network.wait(*way)
                other.sendall(data)
        self._network.wait(*way)
        with contextlib.suppress(OSError):
            other.shutdown(socket.SHUT_RDWR)


class NetworkedCluster(Cluster):
    """The servers of the page with this network between them: their routes and clients take the relays."""

    def __init__(self, base: Path, network: Network) -> None:
        super().__init__(base)
        self.network = network
        self._links: dict[tuple[str, str], Link] = {}
        for name, node in self.nodes.items():
            # What servers tell each other and their clients about addresses would lead past the relays.
            shown = (node.folder / "nats.conf").read_text()
            shown = shown.replace("cluster {\n", f'cluster {{\n  no_advertise: true\n  advertise: "{_NOWHERE}"\n')
            for other, peer in self.nodes.items():
                if other != name:
                    link = self._link(name, other, (peer.address, 6222))
                    shown = shown.replace(f"@{peer.address}:6222", f"@127.0.0.1:{link.port}")
            (node.folder / "nats.conf").write_text(shown)
            for client in CLIENTS:
                self._link(client, name, (node.address, 4222))

    def _link(self, source: str, target: str, address: tuple[str, int]) -> Link:
        link = self._links[source, target] = Link(self.network, source, target, address)
        return link

    def place_for(self, client: str, stream: str) -> str:
        """The location of a stream as a client reaches it."""
        hosts = ",".join(f"127.0.0.1:{self._links[client, name].port}" for name in NAMES)
        return f"nats://{USER}:{self.password}@{hosts}/{stream}"

    def close(self) -> None:
        """End the network and the servers."""
        self.network.close()
        super().close()
        for link in self._links.values():
            link.close()
