"""Comparing what the servers of a cluster have of a log: JetStream does not notice when one of them lost something."""

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from chatledger.domain.errors import ConfigurationError

from .jetstream.client import Deadline, JetStreamClient
from .jetstream.connection import Connection
from .jetstream.endpoint import Endpoint
from .jetstream.errors import StreamAbsentError
from .jetstream.reading import MESSAGE_ID, PAGE, LogMessage, Pages
from .jetstream.stream import stream_info
from .locations import STREAM
from .log.jetstream import BLOBS, FEEDS
from .log.port import translated
from .login import Login
from .servers import read_place

_BESIDE: Final = (FEEDS, BLOBS)
_SHOWN: Final = 5
_BEHIND_S: Final = 3.0
"""How long servers may differ because one is behind."""
_AGAIN_S: Final = 0.2


class ReplicaDamage(msgspec.Struct, frozen=True):
    """
    What one server has of a stream that most others have otherwise.

    Args:
        server: The name of the server.
        stream: The name of the stream.
        missing: Positions that it lacks, ascending.
        altered: Positions where it has something else, ascending.
    """

    server: str
    stream: str
    missing: tuple[int, ...]
    altered: tuple[int, ...]

    def __str__(self) -> str:
        parts = [_counted(self.missing, "lacks"), _counted(self.altered, "has something else at")]
        return f"server {self.server!r}, stream {self.stream!r}: {' and '.join(part for part in parts if part)}"


def _counted(positions: Sequence[int], verb: str) -> str:
    if not positions:
        return ""
    shown = ", ".join(map(str, positions[:_SHOWN])) + (", …" if len(positions) > _SHOWN else "")
    return f"{verb} {len(positions):,} position{'s' if len(positions) > 1 else ''} ({shown})"


class _Peer(msgspec.Struct):
    name: str


class _Group(msgspec.Struct):
    leader: str = ""
    replicas: list[_Peer] = []


class _Info(msgspec.Struct):
    cluster: _Group | None = None


def compare_replicas(
    location: str, *, login: Login | None = None, timeout_s: float = 15.0, page: int = PAGE
) -> list[ReplicaDamage]:
    """
    Read a log from each server that keeps a copy of it, and tell where they differ.

    Erasing and appending may go on meanwhile. Where no two servers agree, each of them is reported.

    Args:
        location: `nats://` with all servers of the cluster by name, as for `open`.
        login: How to log in, as for `open`.
        timeout_s: The budget of one page.
        page: How many positions to compare at once.

    Returns:
        What differs, by stream and server; nothing when all is well. The streams of named feeds and of large data are among them.

    Raises:
        ConfigurationError: The location names fewer than two servers that have a copy.
        LogUnavailableError: A server does not answer, or does not catch up.
    """
    place = read_place(location, stream=STREAM, login=login, replicas=None)
    clients = [_client(place.connect, number, timeout_s) for number in range(place.hosts)]
    try:
        with translated(f"stream {place.stream!r}"):
            servers = {client.call(_server_name, client): client for client in clients}
            found = _compare(servers, place.stream, page)
            for suffix in _BESIDE:
                try:
                    found += _compare(servers, place.stream + suffix, page)
                except StreamAbsentError:
                    continue
            return found
    finally:
        for client in clients:
            client.close()


def _client(connect: Callable[[], Endpoint], number: int, timeout_s: float) -> JetStreamClient:
    def connect_to_one() -> Endpoint:
        endpoint = connect()
        return endpoint.at(endpoint.urls[number])

    return JetStreamClient(connect_to_one, timeout_s=timeout_s)


async def _server_name(client: JetStreamClient) -> str:
    async def name(connection: Connection, deadline: Deadline) -> str:
        del deadline
        return connection.server_name

    return await client.retry(name, client.deadline(), doing="connecting")


def _compare(servers: Mapping[str, JetStreamClient], stream: str, page: int) -> list[ReplicaDamage]:
    anybody = next(iter(servers.values()))
    last = anybody.call(stream_info, anybody, stream).state.last
    info = anybody.call(lambda: anybody.api(f"STREAM.INFO.{stream}", None, _Info, anybody.deadline()))
    group = info.cluster or _Group()
    keepers = {group.leader, *(peer.name for peer in group.replicas)}
    chosen = {name: client for name, client in servers.items() if name in keepers}
    if len(chosen) < 2:
        msg = f"only {len(chosen)} of the servers named keep a copy of stream {stream!r}; name all servers of the cluster"
        raise ConfigurationError(msg)
    missing: dict[str, list[int]] = {name: [] for name in chosen}
    altered: dict[str, list[int]] = {name: [] for name in chosen}
    for first in range(1, last + 1, page):
        for position, held in _differences(chosen, stream, first, min(first + page - 1, last)).items():
            right = _right(list(held.values()))
            for name, digest in held.items():
                if digest != right:
                    (missing if digest is None else altered)[name].append(position)
    return [
        ReplicaDamage(name, stream, tuple(missing[name]), tuple(altered[name]))
        for name in sorted(chosen)
        if missing[name] or altered[name]
    ]


def _differences(
    servers: Mapping[str, JetStreamClient], stream: str, first: int, last: int
) -> dict[int, dict[str, bytes | None]]:
    """The positions from `first` to `last` where servers differ for longer than they may be behind, and what each has."""
    ends_at = time.monotonic() + _BEHIND_S
    while True:
        held = {name: _digests(client, stream, first, last) for name, client in servers.items()}
        positions: set[int] = set().union(*held.values())
        different = {
            position: {name: digests.get(position) for name, digests in held.items()} for position in sorted(positions)
        }
        different = {position: found for position, found in different.items() if len(set(found.values())) > 1}
        if not different or time.monotonic() > ends_at:
            return different
        time.sleep(_AGAIN_S)


def _digests(client: JetStreamClient, stream: str, first: int, last: int) -> dict[int, bytes]:
    # Answered by the server that is connected, as it keeps a copy itself.
    pages = Pages(client, stream, client.deadline(), after=first - 1)
    found: dict[int, bytes] = {}
    while not pages.is_complete:
        pages.renew(client.deadline())
        for message in client.call(pages.read, min(PAGE, last - first + 1)):
            if message.position > last:
                return found
            found[message.position] = _digest(message)
        if last in found:
            return found
    return found


def _digest(message: LogMessage) -> bytes:
    digest = hashlib.sha256(message.subject.encode() + b"\0" + message.headers.get(MESSAGE_ID, "").encode() + b"\0")
    digest.update(message.payload)
    return digest.digest()


def _right(held: Sequence[bytes | None]) -> bytes | None:
    """What a position should hold: what most servers have there, else anything rather than nothing."""
    best, count = Counter(held).most_common(1)[0]
    if 2 * count > len(held):
        return best
    return Counter(digest for digest in held if digest is not None).most_common(1)[0][0]
