"""The copies of a log that the servers of a cluster have: comparing them, and growing a damaged one again from the others."""

import asyncio
import contextlib
import hashlib
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from eventsourcing.persistence import OperationalError

from chatledger.domain.errors import ConfigurationError
from chatledger.domain.wire import Value
from chatledger.projections.lmdb.environment import make_folder

from ..log.envelope import clock_ms
from ..log.nats.client import Deadline, JetStreamClient
from ..log.nats.connection import Connection
from ..log.nats.consumer import WANTED_BYTES, position_of
from ..log.nats.endpoint import Login
from ..log.nats.errors import StreamAbsentError, translated
from ..log.nats.event_log import auxiliary_streams
from ..log.nats.reading import MESSAGE_ID
from ..log.nats.stream import ClusterInfo, PeerInfo, stream_info
from ..log.nats.subscription import create_consumer
from ..log.nats.transport import Delivery, Transport, description_of, parse_headers, status_of
from ..store.opening import STREAM
from ..store.opening.nats_locations import read_place
from ..store.quarantine import FOLDER, Note, Quarantine

T = TypeVar("T")
_GROWTH_PAUSE_S: Final = 0.5


class ReplicaSetAside(Value, frozen=True):
    """
    The folder that was moved out of the store of a server.

    Args:
        server: Its name.
        streams: Whose copies these are.
        kept_as: The folder that they are in now.
    """

    server: str
    streams: tuple[str, ...]
    kept_as: str


def set_replica_aside(
    location: str,
    server: str,
    store: str | os.PathLike[str],
    *,
    login: Login | None = None,
    timeout_s: float = 30.0,
) -> ReplicaSetAside:
    """
    Set a server's copy of a log aside, so that it copies everything from the others when it is started again.

    To be called on the machine of a server that `compare_replicas` names, while that server is stopped. Nothing is moved unless
    the others form a majority and agree on every position. Afterwards start the server, and compare again.

    Args:
        location: `nats://` with the other servers of the cluster, as for `open`.
        server: The name of the stopped server, its `server_name`.
        store: Its `store_dir`.
        login: How to log in, as for `open`.
        timeout_s: How long to wait until the others know that it is stopped, and the budget of one operation.

    Returns:
        Where the copies are now, inside the `store_dir`. Remove them when the comparison finds nothing.

    Raises:
        ConfigurationError: The server runs, keeps no copy, or is not that of the store; the others are too few, or differ.
        LogUnavailableError: The others do not answer.
    """
    groups = _on_each_stream(
        location, login, timeout_s, lambda client, stream: _checked(client, stream, server, timeout_s)
    )
    return _move(Path(store).expanduser().absolute(), server, groups)


def _on_each_stream(
    location: str, login: Login | None, timeout_s: float, call: Callable[[JetStreamClient, str], T]
) -> dict[str, T]:
    """Return the answers of a call by stream: that of the log, and its auxiliary streams if there are such."""
    place = read_place(location, stream=STREAM, login=login, replicas=None)
    client = JetStreamClient(place.connect, timeout_s=timeout_s)
    try:
        with translated(f"stream {place.stream!r}"):
            answers = {place.stream: call(client, place.stream)}
            for stream in auxiliary_streams(place.stream):
                with contextlib.suppress(StreamAbsentError):
                    answers[stream] = call(client, stream)
            return answers
    finally:
        client.close()


def _checked(client: JetStreamClient, stream: str, server: str, timeout_s: float) -> str:
    """The Raft group of a stream, whose other servers are whole."""
    members = _await_stopped(client, stream, server, time.monotonic() + timeout_s)
    whole = (peer for peer in members.replicas if peer.name != server and peer.is_current and not peer.is_offline)
    others = {members.leader, *(peer.name for peer in whole)}
    if 2 * len(others) <= len(members.replicas) + 1:
        msg = f"of the servers of stream {stream!r} only {', '.join(sorted(others))} are there and whole: start the others first"
        raise ConfigurationError(msg)
    differing = differences_between(client, stream, others)
    if differing:
        msg = f"the other servers differ too ({'; '.join(map(str, differing))}), so nobody knows which copy is right; restore a backup"
        raise ConfigurationError(msg)
    return members.raft_group


def _await_stopped(client: JetStreamClient, stream: str, server: str, ends_at: float) -> ClusterInfo:
    while True:
        members = stream_info(client, stream).cluster
        peer: PeerInfo | None = next((peer for peer in members.replicas if peer.name == server), None)
        if peer is None and server != members.leader:
            keepers = ", ".join(sorted([members.leader, *(peer.name for peer in members.replicas)]))
            msg = f"server {server!r} keeps no copy of stream {stream!r}; these do: {keepers}"
            raise ConfigurationError(msg)
        # Without a leader the others are electing one, and know nothing for certain.
        if peer is not None and peer.is_offline and members.leader:
            return members
        if time.monotonic() > ends_at:
            msg = f"server {server!r} is running; stop it before its files are moved, and start it afterwards"
            raise ConfigurationError(msg)
        # The others know only after a while that it is stopped.
        time.sleep(_GROWTH_PAUSE_S)


def _move(store: Path, server: str, groups: dict[str, str]) -> ReplicaSetAside:
    """Move the folders of streams and of their Raft groups: without both, the server would believe that nothing is missing."""
    folders: list[Path] = []
    for stream, group in groups.items():
        for pattern in (f"jetstream/*/streams/{stream}", f"jetstream/*/_js_/{group}"):
            matches = list(store.glob(pattern))
            if len(matches) != 1:
                msg = f"{store} is not the store_dir of a server with stream {stream!r}: there are {len(matches)} of {pattern} in it"
                raise ConfigurationError(msg)
            folders += matches
    now = datetime.fromtimestamp(clock_ms() // 1000, UTC)
    stamp = f"{now:%Y%m%dT%H%M%SZ}"
    target = store / FOLDER / stamp
    note = Note(made_at=clock_ms(), why=f"the copy of server {server!r} differed from the others", kept_as=str(target))
    Quarantine(store).add(stamp, note)  # before the folders are moved, so that they are explained whenever this ends
    for folder in folders:
        moved = target / folder.relative_to(store)
        make_folder(moved.parent)
        folder.rename(moved)
    return ReplicaSetAside(server, tuple(groups), str(target))


_SHOWN: Final = 5
_PAGE: Final = 5000
_BEHIND_S: Final = 3.0
"""The time that servers may differ because one is behind."""
_AGAIN_S: Final = 0.2


class ReplicaDamage(Value, frozen=True):
    """
    The messages of a stream in which one server differs from most others.

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
    damages = _on_each_stream(location, login, timeout_s, lambda client, stream: _compare(client, stream, page))
    return list(chain.from_iterable(damages.values()))


def _compare(client: JetStreamClient, stream: str, page: int) -> list[ReplicaDamage]:
    servers = servers_of(client, stream)
    if len(servers) < 2:
        msg = f"no more than one server keeps a copy of stream {stream!r}, so there is nothing to compare; see replicas of open"
        raise ConfigurationError(msg)
    return differences_between(client, stream, servers, page=page)


def differences_between(
    client: JetStreamClient, stream: str, servers: set[str], *, page: int = _PAGE
) -> list[ReplicaDamage]:
    """Return the messages in which these servers differ from most of them; all must be reachable."""
    last = stream_info(client, stream).state.last
    missing: dict[str, list[int]] = {name: [] for name in servers}
    altered: dict[str, list[int]] = {name: [] for name in servers}
    for first in range(1, last + 1, page):
        for position, held in _differences(client, stream, servers, first, min(first + page - 1, last)).items():
            right, count = Counter(held.values()).most_common(1)[0]
            if 2 * count <= len(held):  # without a majority, the commonest record rather than none
                right = Counter(digest for digest in held.values() if digest is not None).most_common(1)[0][0]
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
        held = digests_on_each(client, stream, servers, first=first, last=last)
        positions = {position for digests in held.values() for position in digests}
        every = {position: {name: held[name].get(position) for name in servers} for position in sorted(positions)}
        different = {position: digests for position, digests in every.items() if len(set(digests.values())) > 1}
        # Appends and erasures reach the servers one after another, so what differs at first may be equal in a moment.
        if not different or time.monotonic() > ends_at:
            return different
        time.sleep(_AGAIN_S)


_INACTIVE_S: Final = 30
_BATCH: Final = 500
_UNKNOWN_PAUSE_S: Final = 0.05
_NO_MORE: Final = "404"
_BATCH_DONE: Final = frozenset({_NO_MORE, "408", "409"})
_BATCH_FULL: Final = "Batch Completed"
"""Said *after* the last message of a batch with room left for more bytes. By then we may be waiting for the next batch."""
_UNKNOWN_YET: Final = "503"
"""Our server does not know yet that the consumer, which lives on another one, is there. It does not say that nothing is."""


def servers_of(client: JetStreamClient, stream: str) -> set[str]:
    """The names of the servers that keep a copy of a stream; none where there is no cluster."""
    members = stream_info(client, stream).cluster
    return {members.leader, *(replica.name for replica in members.replicas)} - {""}


def digests_on_each(
    client: JetStreamClient, stream: str, servers: set[str], *, first: int, last: int
) -> dict[str, dict[int, bytes]]:
    """Return a digest of each message between two positions, by server and position."""
    deadline = client.deadline()
    digests: dict[str, dict[int, bytes]] = {}

    def read_one(transport: Transport, ends_at: float) -> None:
        del transport, ends_at  # consumers are of the event loop's connection
        client.loop.call(read_from_one)

    async def read_from_one() -> None:
        # The server chooses where a consumer lives; the next one lives elsewhere.
        connection = await client.connected(deadline)
        consumer = await create_consumer(connection, stream, deadline, after=first - 1, inactive_s=_INACTIVE_S)
        server = "" if consumer.cluster is None else consumer.cluster.leader
        try:
            if server in servers and server not in digests:
                digests[server] = await _read(connection, stream, consumer.name, last, deadline)
        finally:
            # Also where its server was read already: else it stays there for `_INACTIVE_S`.
            await connection.publish(f"$JS.API.CONSUMER.DELETE.{stream}.{consumer.name}", b"")

    while servers - digests.keys():
        if deadline.left_s == 0:
            msg = f"reading {stream} from {', '.join(sorted(servers - digests.keys()))}: no answer within {client.timeout_s:g} s"
            raise OperationalError(msg)
        client.retry(read_one, deadline, doing=f"reading {stream} from each server")
    return digests


async def _read(connection: Connection, stream: str, consumer: str, last: int, deadline: Deadline) -> dict[int, bytes]:
    digests: dict[int, bytes] = {}
    arrived: asyncio.Queue[Delivery | None] = asyncio.Queue()
    inbox = await connection.listen(arrived.put_nowait, partial(arrived.put_nowait, None))
    request = msgspec.json.encode({"batch": _BATCH, "max_bytes": WANTED_BYTES, "no_wait": True})
    try:
        while True:
            await connection.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", request, reply=inbox.subject)
            number = 0
            while number < _BATCH:
                async with asyncio.timeout(deadline.attempt_s):
                    message = await arrived.get()
                if message is None:  # the connection was lost
                    raise TimeoutError
                status = status_of(message.headers)
                if status is not None and description_of(message.headers) == _BATCH_FULL:
                    continue
                # "Nothing more" behind messages ends a batch that was not full; as the first answer it is the end.
                if status == _NO_MORE and number == 0:
                    return digests
                if status == _UNKNOWN_YET and deadline.left_s:
                    await asyncio.sleep(min(_UNKNOWN_PAUSE_S, deadline.left_s))
                elif status is not None and (number == 0 or status not in _BATCH_DONE):
                    msg = f"reading {stream} ended with status {status}, not at the end"
                    raise TimeoutError(msg)  # once more, with another consumer
                if status is not None:
                    break
                position = position_of(message)
                if position > last:
                    return digests
                own_id = parse_headers(message.headers).get(MESSAGE_ID, "")
                digest = hashlib.sha256(b"%s\0%s\0" % (message.subject, own_id.encode()))
                digest.update(message.payload)
                digests[position] = digest.digest()
                if position == last:
                    return digests
                number += 1
    finally:
        await inbox.end()
