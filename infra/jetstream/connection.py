"""One connection to a server: requests, replies of several messages, and what happens when it ends."""

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from typing import Any, cast

import anyio
from eventsourcing.persistence import DataError, InterfaceError
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from nats.errors import MaxPayloadError

from .endpoint import Endpoint
from .errors import ConnectionLostError, LoginRefusedError, NoAnswerError

log = logging.getLogger("chatledger.jetstream")

MIN_SERVER = (2, 12)  # atomic batches
CLOSE_S = 2.0
NOTICE_S = 0.05
PENDING_BYTES = 64 * 1024 * 1024
# nats-py spells the status of a message as a header.
STATUS = "Status"


class _Reply:
    """What is awaited under one reply subject: one message, or all up to the first with a status."""

    __slots__ = ("future", "messages")

    def __init__(self, messages: list[Msg] | None) -> None:
        self.future: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
        self.messages = messages

    def deliver(self, message: Msg) -> None:
        if self.future.done():
            return
        if self.messages is None or (message.headers is not None and STATUS in message.headers):
            self.future.set_result(message)
        else:
            self.messages.append(message)


class Connection:
    """
    A connected nats-py client that does not reconnect by itself.

    nats-py would go on with the addresses it was given, which a restarted embedded server no longer has;
    and it leaves requests that were under way to their timeout, where this class ends them at once.
    """

    def __init__(self) -> None:
        self._nats = Client()
        self._inbox = ""
        self._tokens = count()
        self._replies: dict[str, _Reply] = {}
        self._on_lost: set[Callable[[], None]] = set()
        self._last_error: Exception | None = None
        self._is_open = self._is_lost = False

    @classmethod
    async def open(cls, endpoint: Endpoint, *, timeout_s: float) -> "Connection":
        """
        Connect and log in.

        Raises:
            InterfaceError: The login was refused, the server is too old, or TLS cannot be set up.
            ConnectionLostError: Nobody listens there, or another server than the expected one.
        """
        connection = cls()
        try:
            async with asyncio.timeout(timeout_s):
                await connection._connect(endpoint, timeout_s)
        except BaseException as error:
            # Shielded, for this also runs when the operation was cancelled.
            # nats-py cannot close what it has not begun to connect (AssertionError).
            with anyio.move_on_after(CLOSE_S, shield=True), contextlib.suppress(Exception):
                await connection.close()
            # A foreign server that took the port also refuses our login: that is no reason to give up.
            if isinstance(error, Exception) and not connection._is_foreign(endpoint):
                connection._raise_if_permanent(error, endpoint)
            if isinstance(error, (OSError, NatsError, TimeoutError)):
                msg = f"no connection to {endpoint}: {connection._last_error or error!r}"
                raise ConnectionLostError(msg) from error
            raise
        return connection

    async def _connect(self, endpoint: Endpoint, timeout_s: float) -> None:
        await self._nats.connect(
            **endpoint.connect_options(),
            name="chatledger",
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=max(1, int(timeout_s)),
            ping_interval=3,
            max_outstanding_pings=2,
            pending_size=PENDING_BYTES,
            error_cb=self._note_error,
            closed_cb=self._note_closed,
        )
        self._is_open = True
        if self._is_foreign(endpoint):
            msg = f"{endpoint} is not the server {endpoint.server_name!r}: another one took its port"
            raise ConnectionLostError(msg)
        version = self._nats.connected_server_version
        if (version.major, version.minor) < MIN_SERVER:
            msg = f"nats-server {version} is too old: atomic batches need {'.'.join(map(str, MIN_SERVER))} or newer"
            raise InterfaceError(msg)
        self._inbox = self._nats.new_inbox() + "."
        await self._subscribe(self._inbox + "*", self._dispatch)

    async def _subscribe(self, subject: str, callback: Callable[[Msg], Awaitable[None]]) -> Subscription:
        # No limit in nats-py: it would drop messages silently. What can arrive is what was asked for.
        untyped = cast("Any", self._nats)
        subscription = await untyped.subscribe(subject, cb=callback, pending_msgs_limit=0, pending_bytes_limit=0)
        return cast("Subscription", subscription)

    def _is_foreign(self, endpoint: Endpoint) -> bool:
        info = self._nats._server_info  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] (nats-py has no public way to the server's name)
        return bool(endpoint.server_name and info and info.get("server_name") != endpoint.server_name)

    def _raise_if_permanent(self, error: Exception, endpoint: Endpoint) -> None:
        text = f"{error} {self._last_error or ''}".lower()
        refused = "authorization" in text or ("authentication" in text and "timeout" not in text)
        certificate = any(isinstance(e, ssl.SSLCertVerificationError) for e in (error, self._last_error))
        unreadable = isinstance(error, (FileNotFoundError, PermissionError, ModuleNotFoundError, ValueError))
        if refused or certificate or unreadable:
            msg = f"{endpoint} refused the login, or it cannot be attempted: {error!r}"
            raise LoginRefusedError(msg) from error

    @property
    def is_lost(self) -> bool:
        """Whether it ended. It does not come back."""
        self._notice()
        return self._is_lost

    @property
    def max_payload(self) -> int:
        """The largest message in bytes, headers included."""
        return self._nats.max_payload

    async def request(
        self, subject: str, payload: bytes, headers: dict[str, str] | None = None, *, timeout_s: float
    ) -> Msg:
        """
        The single reply to a message.

        Raises:
            NoAnswerError: Nobody listens on that subject.
            ConnectionLostError, TimeoutError: Whether the message arrived is unknown.
        """
        message = await self._exchange(subject, payload, headers, None, timeout_s)
        if not message.data and message.headers is not None and message.headers.get(STATUS) == "503":
            raise NoAnswerError(subject)
        return message

    async def collect(self, subject: str, payload: bytes, *, timeout_s: float) -> tuple[list[Msg], Mapping[str, str]]:
        """
        The messages of a reply up to the one with a status, and that one's headers.

        Raises:
            NoAnswerError, ConnectionLostError, TimeoutError: There is no complete reply.
        """
        messages: list[Msg] = []
        last = await self._exchange(subject, payload, None, messages, timeout_s)
        assert last.headers is not None
        if last.headers.get(STATUS) == "503":
            raise NoAnswerError(subject)
        return messages, last.headers

    async def _exchange(
        self, subject: str, payload: bytes, headers: dict[str, str] | None, messages: list[Msg] | None, timeout_s: float
    ) -> Msg:
        if self.is_lost:
            raise ConnectionLostError(subject)
        token = str(next(self._tokens))
        reply = self._replies[token] = _Reply(messages)
        try:
            async with asyncio.timeout(timeout_s):
                await self._nats.publish(subject, payload, reply=self._inbox + token, headers=headers)
                return await reply.future
        except MaxPayloadError as error:
            msg = f"a message of {len(payload):,} bytes exceeds the server's limit of {self.max_payload:,}"
            raise DataError(msg) from error
        finally:
            del self._replies[token]

    async def publish(
        self, subject: str, payload: bytes, *, reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        """Send a message without waiting for anything."""
        if self.is_lost:
            raise ConnectionLostError(subject)
        await self._nats.publish(subject, payload, reply=reply, headers=headers)

    async def listen(self, deliver: Callable[[Msg], None], on_lost: Callable[[], None]) -> "Inbox":
        """Everything that is sent to a new inbox goes to `deliver`; `on_lost` is called once, if the connection ends."""

        async def callback(message: Msg) -> None:
            deliver(message)

        if self.is_lost:
            raise ConnectionLostError
        subject = self._nats.new_inbox()
        subscription = await self._subscribe(subject, callback)
        self._on_lost.add(on_lost)

        async def end() -> None:
            self._on_lost.discard(on_lost)
            if not self.is_lost:
                await subscription.unsubscribe()

        return Inbox(subject, end)

    async def close(self) -> None:
        """Close the socket; whoever waits for a reply gets a ConnectionLostError."""
        try:
            await self._nats.close()
        finally:
            self._lose()

    async def _dispatch(self, message: Msg) -> None:
        reply = self._replies.get(message.subject[len(self._inbox) :])
        if reply is not None:
            reply.deliver(message)

    async def _note_error(self, error: Exception) -> None:
        self._last_error = error
        log.info("nats: %r", error)
        asyncio.get_running_loop().call_later(NOTICE_S, self._notice)

    async def _note_closed(self) -> None:
        self._lose()

    def _notice(self) -> None:
        # When reader and writer of nats-py fail together, one cancels the other while that is closing the connection,
        # and nobody calls `closed_cb` (seen after kill -9 under load). Their errors are reported before.
        if self._is_open and not self._nats.is_connected:
            self._lose()

    def _lose(self) -> None:
        if self._is_lost:
            return
        self._is_lost = True
        for reply in list(self._replies.values()):
            if not reply.future.done():
                reply.future.set_exception(ConnectionLostError(repr(self._last_error)))
        for notify in list(self._on_lost):
            notify()
        self._on_lost.clear()
        transport: Any = self._nats._transport  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] (see `_notice`: it may be left open)
        if transport is not None:
            transport.close()


class Inbox:
    """A subject of our own, subscribed until `end`."""

    def __init__(self, subject: str, end: Callable[[], Awaitable[None]]) -> None:
        self.subject = subject
        self._end = end

    async def end(self) -> None:
        """Stop listening."""
        await self._end()
