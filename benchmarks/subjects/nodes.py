"""A cluster: a write on one node that is read on another one, next to a bare message that takes the same way; and sync."""

import asyncio
import statistics
import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, cast

import nats
from nats.js.api import ConsumerConfig, DeliverPolicy

import chatledger
from chatledger import Ledger, user
from chatledger.jetstream import JetStreamClient

from ..measure import Row, check_equal
from ..world import World

if TYPE_CHECKING:
    from tests.support.cluster_world import Cluster

_NAME: Final = "chatledger"
_STREAM: Final = "bench"
_SUBJECT: Final = "bench.publish"
_PAYLOAD: Final = bytes(500)
"""About what an event with a short message takes with its headers."""
_TIMEOUT_S: Final = 60.0
_PAUSE_S: Final = 0.005
"""Between two writes, so that one does not wait for the other."""


def nodes(world: World) -> Iterator[Row]:
    """Three servers, each with a copy; a ledger writes on the first, and another one, with its own index, reads on the second."""
    from tests.support.cluster_world import clustered

    world.report("starting three servers")
    with (
        clustered(world.folder()) as cluster,
        chatledger.open(cluster.place(_NAME, first="one"), create=True, replicas=3, index=world.folder()) as writer,
        chatledger.open(cluster.place(_NAME, first="two"), index=world.folder()) as reader,
        _Bare(cluster) as bare,
    ):
        writer.create_chat("chat", "ada")
        for stream in (_NAME, _STREAM):
            _lead(cluster, stream, "one")
        ours: list[float] = []
        theirs: list[float] = []
        syncs: list[float] = []
        appends: list[float] = []
        for turn in range(world.sizes.repeats):
            world.report(f"written on one node, read on another, turn {turn + 1}")
            ours.append(_median(partial(_write_and_read, writer, reader), world.sizes.appends_per_sample))
            theirs.append(_median(bare.publish_and_receive, world.sizes.appends_per_sample))
            appends.append(_median(partial(_write, writer), world.sizes.appends_per_sample))
            syncs.append(_median(partial(_sync, writer), world.sizes.appends_per_sample))
    yield Row(
        subject="nodes",
        name="a write on one node of a cluster, read on another, median",
        peer="nats-py, push",
        ours=ours,
        theirs=theirs,
        note=(
            "three servers on this machine, three copies, durability='always', both streams led by the first; ours is append on "
            "the first node, then sync to its position and the newest message on the second, which has an index of its own; "
            "theirs is 500 bytes published on the first until they are acknowledged, and have come to a push subscription on the "
            "second. A sample is the median of one series"
        ),
    )
    yield Row(
        subject="nodes",
        name="sync on a cluster, median",
        peer="append on it",
        ours=syncs,
        theirs=appends,
        note=(
            "the same servers, through the first, which leads; both are ours: sync() without a position, which passes a barrier that "
            "a majority commits, and a message of a few bytes. At most 1.5 times an append is the goal"
        ),
    )


def _write_and_read(writer: Ledger, reader: Ledger, number: int) -> None:
    writer.append("chat", [user(str(number))])
    reader.sync(writer.position, timeout_s=_TIMEOUT_S)
    (found,) = reader.get_messages("chat", limit=1)
    check_equal("what was read on another node", found.text, str(number))


def _write(writer: Ledger, number: int) -> None:
    writer.append("chat", [user(str(number))])


def _sync(ledger: Ledger, number: int) -> None:
    del number
    check_equal("the position of sync", ledger.sync(), ledger.position)


def _median(call: Any, count: int) -> float:
    took: list[float] = []
    for number in range(count + 1):
        time.sleep(_PAUSE_S)
        begun = time.perf_counter()
        call(number)
        took.append(time.perf_counter() - begun)
    return statistics.median(took[1:])  # the first one warms up


def _lead(cluster: "Cluster", stream: str, name: str) -> None:
    """Let a server lead a stream."""
    client = JetStreamClient(cluster.endpoint, timeout_s=_TIMEOUT_S)
    try:
        while cluster.leader(stream) != name:
            request = {"placement": {"preferred": name}}
            client.api(f"STREAM.LEADER.STEPDOWN.{stream}", request, dict[str, Any], client.deadline())
            time.sleep(0.5)
    finally:
        client.close()
    cluster.wait_until_whole(stream)


class _Bare:
    """nats-py, connected to two servers, with a stream that has the settings of a ledger's."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._runner = asyncio.Runner()
        self._connections: list[Any] = []

    def __enter__(self) -> Self:
        self._runner.run(self._begin())
        return self

    async def _begin(self) -> None:
        for name in ("one", "two"):
            endpoint = self._cluster.endpoint(name)
            connect = cast("Any", nats).connect
            self._connections.append(await connect(endpoint.urls[0], user=endpoint.user, password=endpoint.password))
        self._stream, other = (connection.jetstream() for connection in self._connections)
        info = await self._stream.stream_info(_NAME)
        await self._stream.add_stream(info.config.evolve(name=_STREAM, subjects=[_SUBJECT], sources=None, mirror=None))
        self._arrived: asyncio.Queue[int] = asyncio.Queue()

        async def arrived(message: Any) -> None:
            self._arrived.put_nowait(message.metadata.sequence.stream)

        config = ConsumerConfig(deliver_policy=DeliverPolicy.NEW)
        await other.subscribe(_SUBJECT, cb=arrived, ordered_consumer=True, config=config)

    def publish_and_receive(self, number: int) -> None:
        """Publish a message on the first server, and wait until it is acknowledged, and has come from the second."""
        del number
        self._runner.run(self._publish_and_receive())

    async def _publish_and_receive(self) -> None:
        acknowledged = await self._stream.publish(_SUBJECT, _PAYLOAD)
        check_equal("the bare message", await asyncio.wait_for(self._arrived.get(), _TIMEOUT_S), acknowledged.seq)

    def __exit__(self, *_: object) -> None:
        for connection in self._connections:
            self._runner.run(connection.close())
        self._runner.close()
