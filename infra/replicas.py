"""Comparing what the servers of a cluster have of a log: JetStream does not notice when one of them lost something."""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec
from eventsourcing.persistence import OperationalError

from chatledger.domain.errors import ConfigurationError, LogUnavailableError

from .jetstream.client import JetStreamClient
from .jetstream.endpoint import Endpoint
from .jetstream.reading import PAGE, LogMessage, Pages
from .locations import STREAM
from .log.port import translated
from .login import Login
from .servers import read_place, without_secrets

SUFFIXES: Final = ("", "-feeds", "-blobs")
SHOWN: Final = 5
_AGAIN_S: Final = 0.5


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
    shown = ", ".join(map(str, positions[:SHOWN])) + (", …" if len(positions) > SHOWN else "")
    return f"{verb} {len(positions):,} position{'s' if len(positions) > 1 else ''} ({shown})"


class _Peer(msgspec.Struct):
    name: str


class _Group(msgspec.Struct):
    leader: str = ""
    replicas: list[_Peer] = []


class _State(msgspec.Struct):
    last_seq: int = 0


class _Info(msgspec.Struct):
    state: _State
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
    urls = place.connect().urls
    clients = [JetStreamClient(_only(place.connect, number), timeout_s=timeout_s) for number in range(len(urls))]
    try:
        with translated(f"stream {place.stream!r}"):
            found: list[ReplicaDamage] = []
            names = [client.call(_server_name, client) for client in clients]
            for suffix in SUFFIXES:
                found += _compare(dict(zip(names, clients, strict=True)), place.stream + suffix, page, bool(suffix))
            return found
    finally:
        for client in clients:
            client.close()


def _only(connect: "Callable[[], Endpoint]", number: int) -> "Callable[[], Endpoint]":
    def connect_to_one() -> Endpoint:
        endpoint = connect()
        return endpoint.at(endpoint.urls[number])

    return connect_to_one
