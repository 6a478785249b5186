"""
Reading each server's own copy of a stream.

Direct gets do not tell which server answered: one that has just come back lets others answer for it. A consumer with one
replica does. It lives on one of the servers that keep the stream, reads what that server has, and its description names it.
"""

import asyncio
import hashlib
from functools import partial
from typing import Final

import msgspec
from eventsourcing.persistence import OperationalError

from .client import Deadline, JetStreamClient
from .connection import Connection
from .reading import MESSAGE_ID
from .stream import stream_info
from .subscription import WANTED_BYTES, create_consumer, position_of
from .transport import Delivery, Transport, description_of, parse_headers, status_of

_INACTIVE_S: Final = 30
_BATCH: Final = 500
_AGAIN_S: Final = 0.05
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
    """
    Return a digest of each message between two positions, by server and position.

    Raises:
        OperationalError: A server does not answer within the client's budget.
    """
    deadline = client.deadline()
    digests: dict[str, dict[int, bytes]] = {}

    def read_one(transport: Transport, ends_at: float) -> None:
        del transport, ends_at  # consumers are of the event loop's connection
        client.call(read_from_one)

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
                    await asyncio.sleep(min(_AGAIN_S, deadline.left_s))
                elif status is not None and (number == 0 or status not in _BATCH_DONE):
                    msg = f"reading {stream} ended with status {status}, not at the end"
                    raise TimeoutError(msg)  # once more, with another consumer
                if status is not None:
                    break
                position = position_of(message)
                if position > last:
                    return digests
                digests[position] = _digest(message)
                if position == last:
                    return digests
                number += 1
    finally:
        await inbox.end()


def _digest(message: Delivery) -> bytes:
    # The id that we wrote, and no header that a server added.
    own_id = parse_headers(message.headers).get(MESSAGE_ID, "")
    digest = hashlib.sha256(b"%s\0%s\0" % (message.subject, own_id.encode()))
    digest.update(message.payload)
    return digest.digest()
