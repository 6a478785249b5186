"""Comparing what the servers of a cluster have of a log: JetStream does not notice when one of them lost something."""

import time
from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from chatledger.domain.errors import ConfigurationError

from .jetstream.client import JetStreamClient
from .jetstream.errors import StreamAbsentError
from .jetstream.replicas import digests_on_each, servers_of
from .jetstream.stream import stream_info
from .locations import STREAM
from .log.jetstream import BLOBS, FEEDS
from .log.port import translated
from .login import Login
from .servers import read_place

BESIDE: Final = (FEEDS, BLOBS)
"""What the names of the streams end with that belong to a log."""
_SHOWN: Final = 5
_PAGE: Final = 5000
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


def compare_replicas(
    location: str, *, login: Login | None = None, timeout_s: float = 15.0, page: int = _PAGE
) -> list[ReplicaDamage]:
    """
    Read a log from each server that keeps a copy of it, and tell where they differ.

    Erasing and appending may go on meanwhile. Where no two servers agree, each of them is reported.

    Args:
        location: `nats://` with servers of the cluster, as for `open`.
        login: How to log in, as for `open`.
        timeout_s: The budget of one page.
        page: How many positions to compare at once.

    Returns:
        What differs, by stream and server; nothing when all is well. The streams of named feeds and of large data are among them.

    Raises:
        ConfigurationError: There are no replicas.
        LogUnavailableError: A server that keeps a copy does not answer.
    """
    place = read_place(location, stream=STREAM, login=login, replicas=None)
    client = JetStreamClient(place.connect, timeout_s=timeout_s)
    try:
        with translated(f"stream {place.stream!r}"):
            found = _compare(client, place.stream, page)
            for suffix in BESIDE:
                try:
                    found += _compare(client, place.stream + suffix, page)
                except StreamAbsentError:
                    continue
            return found
    finally:
        client.close()


def _compare(client: JetStreamClient, stream: str, page: int) -> list[ReplicaDamage]:
    servers = client.call(servers_of, client, stream)
    if len(servers) < 2:
        msg = f"no more than one server keeps a copy of stream {stream!r}, so there is nothing to compare; see replicas of open"
        raise ConfigurationError(msg)
    return differences_between(client, stream, servers, page=page)


def differences_between(
    client: JetStreamClient, stream: str, servers: set[str], *, page: int = _PAGE
) -> list[ReplicaDamage]:
    """What these servers have otherwise than most of them; they are to be reachable."""
    last = client.call(stream_info, client, stream).state.last
    missing: dict[str, list[int]] = {name: [] for name in servers}
    altered: dict[str, list[int]] = {name: [] for name in servers}
    for first in range(1, last + 1, page):
        for position, held in _differences(client, stream, servers, first, min(first + page - 1, last)).items():
            right = _right(list(held.values()))
            for name, digest in held.items():
                if digest != right:
                    (missing if digest is None else altered)[name].append(position)
    return [
        ReplicaDamage(name, stream, tuple(missing[name]), tuple(altered[name]))
        for name in sorted(servers)
        if missing[name] or altered[name]
    ]


def _differences(
    client: JetStreamClient, stream: str, servers: set[str], first: int, last: int
) -> dict[int, dict[str, bytes | None]]:
    """The positions from `first` to `last` where servers differ for longer than they may be behind, and what each has."""
    ends_at = time.monotonic() + _BEHIND_S
    while True:
        held = client.call(lambda: digests_on_each(client, stream, servers, first=first, last=last))
        positions = {position for digests in held.values() for position in digests}
        every = {position: {name: held[name].get(position) for name in servers} for position in sorted(positions)}
        different = {position: found for position, found in every.items() if len(set(found.values())) > 1}
        if not different or time.monotonic() > ends_at:
            return different
        time.sleep(_AGAIN_S)


def _right(held: Sequence[bytes | None]) -> bytes | None:
    """What a position should hold: what most servers have there, else anything rather than nothing."""
    best, count = Counter(held).most_common(1)[0]
    if 2 * count > len(held):
        return best
    return Counter(digest for digest in held if digest is not None).most_common(1)[0][0]
