"""Growing one server's damaged copy of a log again from the others: what it has is set aside while it is stopped."""

import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from chatledger.domain.errors import ConfigurationError

from ..clock import clock_ms
from ..jetstream.client import JetStreamClient
from ..jetstream.errors import StreamAbsentError
from ..jetstream.replicas import Member, Members, members_of
from ..locations import STREAM
from ..log.port import translated
from ..login import Login
from ..quarantine import FOLDER, Note, Quarantine
from ..replicas import BESIDE, differences_between
from ..servers import read_place

_AGAIN_S: Final = 0.5


class ReplicaSetAside(msgspec.Struct, frozen=True):
    """
    What was moved out of the store of a server.

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
    place = read_place(location, stream=STREAM, login=login, replicas=None)
    client = JetStreamClient(place.connect, timeout_s=timeout_s)
    try:
        with translated(f"stream {place.stream!r}"):
            groups = {place.stream: _checked(client, place.stream, server, timeout_s)}
            for suffix in BESIDE:
                try:
                    groups[place.stream + suffix] = _checked(client, place.stream + suffix, server, timeout_s)
                except StreamAbsentError:
                    continue
    finally:
        client.close()
    return _move(Path(store).expanduser().absolute(), server, groups)


def _checked(client: JetStreamClient, stream: str, server: str, timeout_s: float) -> str:
    """The Raft group of a stream, whose other servers are whole."""
    members = _await_stopped(client, stream, server, time.monotonic() + timeout_s)
    others = {one.name for one in members.replicas if one.name != server and one.is_current and not one.is_offline}
    others.add(members.leader)
    if 2 * len(others) <= len(members.replicas) + 1:
        msg = f"of the servers of stream {stream!r} only {', '.join(sorted(others))} are there and whole: start the others first"
        raise ConfigurationError(msg)
    differing = differences_between(client, stream, others)
    if differing:
        msg = f"the other servers differ too ({'; '.join(map(str, differing))}), so nobody knows which copy is right; restore a backup"
        raise ConfigurationError(msg)
    return members.raft_group


def _await_stopped(client: JetStreamClient, stream: str, server: str, ends_at: float) -> Members:
    while True:
        members = client.call(members_of, client, stream)
        found: Member | None = next((one for one in members.replicas if one.name == server), None)
        if found is None and server != members.leader:
            known = ", ".join(sorted([members.leader, *(one.name for one in members.replicas)]))
            msg = f"server {server!r} keeps no copy of stream {stream!r}; these do: {known}"
            raise ConfigurationError(msg)
        if found is not None and found.is_offline and members.leader:
            return members
        if time.monotonic() > ends_at:
            msg = f"server {server!r} is running; stop it before its files are moved, and start it afterwards"
            raise ConfigurationError(msg)
        time.sleep(_AGAIN_S)


def _move(store: Path, server: str, groups: dict[str, str]) -> ReplicaSetAside:
    """Move the folders of streams and of their Raft groups: without both, the server would believe that nothing is missing."""
    folders: list[Path] = []
    for stream, group in groups.items():
        for pattern in (f"jetstream/*/streams/{stream}", f"jetstream/*/_js_/{group}"):
            found = list(store.glob(pattern))
            if len(found) != 1:
                msg = f"{store} is not the store_dir of a server with stream {stream!r}: there are {len(found)} of {pattern} in it"
                raise ConfigurationError(msg)
            folders += found
    now = datetime.fromtimestamp(clock_ms() // 1000, UTC)
    stamp = f"{now:%Y%m%dT%H%M%SZ}"
    target = store / FOLDER / stamp
    note = Note(made_at=clock_ms(), why=f"the copy of server {server!r} differed from the others", kept_as=str(target))
    Quarantine(store).add(stamp, note)
    for folder in folders:
        moved = target / folder.relative_to(store)
        moved.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.rename(moved)
    return ReplicaSetAside(server, tuple(groups), str(target))
