"""An ephemeral pull consumer without acknowledgements: messages in order, from a position on, until it dies."""

import asyncio
import contextlib

import anyio
import msgspec
from nats.aio.msg import Msg

from .client import Deadline, ask_api
from .connection import STATUS, Connection, Inbox
from .errors import TRANSIENT, ConnectionLostError

EXPIRES_S = 60.0
HEARTBEAT_S = 2.0
# Silence for this long means that the consumer is gone, with its node or with an election.
SILENCE_S = 3 * HEARTBEAT_S
INACTIVE_S = 60
CLOSE_S = 1.0


class _Created(msgspec.Struct):
    name: str


class PullConsumer:
    """
    Delivers the messages above a position. It dies with its server or connection; then make another one.

    Made with `open`. Nothing arrives unless `want` asks for it.
    """

    def __init__(self, connection: Connection, stream: str) -> None:
        self._connection, self._stream = connection, stream
        self._name = ""
        self._inbox: Inbox | None = None
        self._messages: list[Msg] = []
        self._something = asyncio.Event()
        self._lost: str | None = None
        self.outstanding = 0

    @classmethod
    async def open(
        cls,
        connection: Connection,
        stream: str,
        deadline: Deadline,
        *,
        after: int,
        headers_only: bool = False,
    ) -> "PullConsumer":
        """A consumer of everything above `after`."""
        config = {
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": max(after + 1, 1),
            "ack_policy": "none",
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": INACTIVE_S * 10**9,
            "headers_only": headers_only,
        }
        consumer = cls(connection, stream)
        consumer._inbox = await connection.listen(consumer._deliver, lambda: consumer._die("the connection ended"))
        try:
            request = msgspec.json.encode({"stream_name": stream, "config": config})
            created = await ask_api(connection, f"CONSUMER.CREATE.{stream}", request, _Created, deadline)
        except BaseException:
            await consumer._inbox.end()
            raise
        consumer._name = created.name
        return consumer

    async def want(self, count: int) -> None:
        """Ask for that many more messages."""
        assert self._inbox is not None
        self.outstanding += count
        request = msgspec.json.encode(
            {"batch": count, "expires": int(EXPIRES_S * 10**9), "idle_heartbeat": int(HEARTBEAT_S * 10**9)}
        )
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._name}"
        await self._connection.publish(subject, request, reply=self._inbox.subject)

    async def receive(self) -> list[Msg]:
        """
        What has arrived, at least one message; or nothing, when the requests have expired and `want` is due again.

        Raises:
            ConnectionLostError: The consumer is gone.
        """
        while not self._messages and self.outstanding > 0:
            self._something.clear()
            if self._lost is not None:
                raise ConnectionLostError(self._lost)
            try:
                async with asyncio.timeout(SILENCE_S):
                    await self._something.wait()
            except TimeoutError:
                self._die("no heartbeat")
        messages, self._messages = self._messages, []
        return messages

    async def close(self) -> None:
        """Stop listening. The server forgets the consumer by itself, a request makes it do so now."""
        if self._inbox is None:
            return
        # Shielded, for this runs when the task that used the consumer was cancelled.
        with anyio.move_on_after(CLOSE_S, shield=True), contextlib.suppress(*TRANSIENT):
            await self._inbox.end()
            await self._connection.publish(f"$JS.API.CONSUMER.DELETE.{self._stream}.{self._name}", b"")

    def _deliver(self, message: Msg) -> None:
        headers = message.headers
        status = headers.get(STATUS) if headers is not None and not message.data else None
        if status is None:
            self.outstanding = max(0, self.outstanding - 1)
            self._messages.append(message)
        elif status == "408":
            assert headers is not None
            self.outstanding = max(0, self.outstanding - int(headers.get("Nats-Pending-Messages", self.outstanding)))
        elif status != "100":
            assert headers is not None
            self._die(f"{status} {headers.get('Description', '')}")
            return
        self._something.set()

    def _die(self, reason: str) -> None:
        self._lost = reason
        self._something.set()


def position_of(message: Msg) -> int:
    """The stream position of a consumer's message, from its acknowledgement subject (of both forms)."""
    parts = message.reply.split(".")
    return int(parts[5] if len(parts) == 9 else parts[7])
