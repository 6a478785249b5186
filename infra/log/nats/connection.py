"""The connection of the event loop's thread: a transport for others, and consumers of its own."""

import asyncio
import contextlib
import logging
import random
import re
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from itertools import count
from typing import Any, Final, cast

import anyio
import msgspec
from eventsourcing.persistence import DataError, InterfaceError
from nats.aio.client import Client
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from nats.errors import MaxPayloadError

from .endpoint import Endpoint, UserKey
from .errors import ConnectionLostError, LoginRefusedError, NotPermittedError
from .transport import Answer, Delivery, Request, payload_of, status_of

_CONNECT: Final = b"CONNECT "


class DirectClient(Client):
    """
    A client that tells nobody who it is before the connection is as safe as it was asked to be.

    Messages go to the socket at once, and from there to whoever listens, where nats-py has a queue and a task for each of both,
    and parses headers as those of a mail: of an append of 700 us that took 50.
    """

    needs_tls = False
    user_key: UserKey | None = None

    def __init__(self) -> None:
        super().__init__()
        self.listeners: dict[int, Callable[[Delivery], None]] = {}
        """By the number of a subscription."""

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        listener = self.listeners.get(sid)
        if listener is not None:
            listener(Delivery(subject, reply, headers or b"", data))

    async def _flush_pending(self, force_flush: bool = False) -> Any:  # noqa: FBT001, FBT002 - as it is called there
        writer: Any = getattr(self._transport, "_io_writer", None)
        if force_flush or writer is None or not self.is_connected or writer.transport.get_write_buffer_size():
            return await super()._flush_pending(force_flush)
        pending, self._pending, self._pending_data_size = self._pending, [], 0
        writer.write(b"".join(pending))
        return None

    def _connect_command(self) -> bytes:
        # Asked when the login is about to be sent. nats-py encrypts only when the server demands it, and whoever stands
        # between could remove that demand.
        transport: Any = self._transport
        writer = transport._io_writer  # noqa: SLF001 (nats-py has no public way to it)
        if self.needs_tls and writer.get_extra_info("ssl_object") is None:
            msg = "the server does not demand TLS, and nothing is sent without; give it a `tls` block without allow_non_tls"
            raise LoginRefusedError(msg)
        command: bytes = super()._connect_command()
        nonce = self._server_info.get("nonce")
        if self.user_key is None or nonce is None:
            return command
        options = msgspec.json.decode(command.removeprefix(_CONNECT), type=dict[str, Any])
        return _CONNECT + msgspec.json.encode(options | self.user_key.answer(nonce)) + b"\r\n"


log = logging.getLogger("chatledger.jetstream")

MIN_SERVER = (2, 12)  # atomic batches
CLOSE_S = 2.0
NOTICE_S = 0.05
PENDING_BYTES = 64 * 1024 * 1024
# A server that is paused or cut off accepts connections and says nothing; others may be there.
LEAST_SERVER_S: Final = 1.0
# A server that answers no ping for so long, when it owes another answer already, is given up for another one.
PROBE_S: Final = 1.0
_DENIED: Final = re.compile(r"permissions violation for (publish|subscription) to \"([^\"]*)\"")


class _AwaitedReply:
    """The reply awaited under one subject: one message, or all up to the first with a status."""

    __slots__ = ("future", "page", "subject")

    def __init__(self, subject: str, page: list[Answer] | None) -> None:
        self.future: Future[Answer] = Future()
        self.subject, self.page = subject, page

    def deliver(self, answer: Answer) -> None:
        if self.page is not None and status_of(answer[0]) is None:
            self.page.append(answer)
        elif not self.future.done():
            self.future.set_result(answer)

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class Connection:
    """
    A connected nats-py client that does not reconnect by itself; a `Transport` for all threads but that of its loop.

    nats-py would go on with the addresses it was given, which a restarted embedded server no longer has;
    and it leaves requests that were under way to their timeout, where this class ends them at once.
    """

    def __init__(self) -> None:
        self._nats = DirectClient()
        self._inbox = ""
        self._loop = asyncio.get_running_loop()
        self._tokens = count()
        self._replies: dict[int, _AwaitedReply] = {}
        self._sending: set[asyncio.Task[None]] = set()
        self._on_lost: set[Callable[[], None]] = set()
        self._last_error: Exception | None = None
        self._probing: asyncio.Task[None] | None = None
        self._is_open = self._is_lost = False
        self.endpoint: Endpoint | None = None
        """The endpoint of the connection, until it is lost."""

    @classmethod
    async def open(cls, endpoint: Endpoint, *, timeout_s: float) -> "Connection":
        """
        Connect to one of the servers, each in its turn and in no order, and log in.

        Raises:
            InterfaceError: The login was refused, the server is too old, or TLS cannot be set up.
            ConnectionLostError: Nobody listens there, or another server than the expected one.
        """
        # In no order, so that the clients of a cluster do not all sit on its first server.
        urls = random.sample(endpoint.urls, len(endpoint.urls))
        share_s = min(timeout_s, max(LEAST_SERVER_S, timeout_s / len(urls)))
        refusal: InterfaceError | None = None
        lost: ConnectionLostError | None = None
        for url in urls:
            try:
                return await cls._open(endpoint.at(url), timeout_s=share_s)
            except InterfaceError as error:
                refusal = error
            except ConnectionLostError as error:
                lost = error
        # One that is down does not make a wrong password right, and waiting for it would hide what is wrong.
        reason = refusal or lost
        assert reason is not None, "there is a server at least"
        raise reason

    @classmethod
    async def _open(cls, endpoint: Endpoint, *, timeout_s: float) -> "Connection":
        connection = cls()
        try:
            async with asyncio.timeout(timeout_s):
                await connection._connect(endpoint, timeout_s)
        except BaseException as error:
            # Shielded, for this also runs when the operation was cancelled.
            # nats-py cannot close what it has not begun to connect (AssertionError).
            with anyio.move_on_after(CLOSE_S, shield=True):
                with contextlib.suppress(Exception):
                    await connection.close()
                await asyncio.sleep(0)  # a socket is closed by the next round of the loop, which may be about to end
            # The login of a server that we started is right. What refuses it is a foreign server that took its port, or it
            # itself while it reads its configuration again, as a SIGHUP makes it do: the kernel sends one to a server that
            # is stopped when its parent dies.
            if isinstance(error, Exception) and endpoint.server_name is None and not isinstance(error, InterfaceError):
                last_error = connection._last_error
                reason = _permanent(error) or (last_error and _permanent(last_error))
                if reason:
                    msg = f"{endpoint} refused the login, or it cannot be attempted: {reason}"
                    raise LoginRefusedError(msg) from error
            if isinstance(error, (OSError, NatsError, TimeoutError)):
                msg = f"no connection to {', '.join(endpoint.urls)}: {connection._last_error or error}"
                raise ConnectionLostError(msg) from error
            raise
        return connection

    async def _connect(self, endpoint: Endpoint, timeout_s: float) -> None:
        self._nats.needs_tls, self._nats.user_key = endpoint.needs_tls, endpoint.user_key()
        await self._nats.connect(
            **endpoint.connect_options(),
            name="chatledger",
            # nats-py would try the old port 60 times, 2 s apart; a restarted embedded server has another one.
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=max(1, int(timeout_s)),
            # A peer that vanished without a word, as in a cut network, is noticed after two pings.
            ping_interval=3,
            max_outstanding_pings=2,
            # Its default, 2 MiB, is less than one message may have.
            pending_size=PENDING_BYTES,
            error_cb=self._note_error,
            closed_cb=self._note_closed,
        )
        self._is_open = True
        if endpoint.server_name and self._info and self.server_name != endpoint.server_name:
            msg = f"{endpoint} is not the server {endpoint.server_name!r}: another one took its port"
            raise ConnectionLostError(msg)
        version = self._nats.connected_server_version
        if (version.major, version.minor) < MIN_SERVER:
            msg = f"nats-server {version} is too old: atomic batches need {'.'.join(map(str, MIN_SERVER))} or newer"
            raise InterfaceError(msg)
        self._inbox = self._nats.new_inbox() + "."
        await self._subscribe(self._inbox + "*", self._deliver)
        # A login that may not listen to its replies is told so now. Twice, as nats-py lets a ping overtake what it has to send.
        await self._nats.flush()
        await self._nats.flush()
        denied = _DENIED.search(str(self._last_error or ""))
        if denied is not None:
            msg = f"{endpoint}: the login may not subscribe to {denied[2]}, where its replies would come; give it inbox_prefix"
            raise LoginRefusedError(msg)
        self.endpoint = endpoint

    async def _subscribe(self, subject: str, listener: Callable[[Delivery], None]) -> Subscription:
        subscription: Subscription = await cast("Any", self._nats).subscribe(subject)
        self._nats.listeners[subscription._id] = listener  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - nats-py has no public way to it
        return subscription

    @property
    def server_name(self) -> str:
        return str(self._info.get("server_name", ""))

    @property
    def _info(self) -> dict[str, Any]:
        info = self._nats._server_info  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] (nats-py has no public way to the server's name)
        return info or {}

    @property
    def is_lost(self) -> bool:
        """Whether it ended. It does not come back."""
        return self._is_lost or (self._is_open and not self._nats.is_connected)

    @property
    def max_payload(self) -> int:
        return self._nats.max_payload

    def send(self, requests: Sequence[Request]) -> int:
        """Implement `Transport.send`; errors are raised by `answer`."""
        return self._start(requests, None)

    def answer(self, token: int, ends_at: float) -> Answer:
        try:
            return self._replies[token].future.result(max(0.0, ends_at - time.monotonic()))
        except TimeoutError:
            with contextlib.suppress(RuntimeError):  # the loop was closed
                # Silence may mean that the server hangs, or that one answer takes long. A ping tells the two apart, beside other work.
                self._loop.call_soon_threadsafe(self._probe)
            raise
        finally:
            del self._replies[token]

    def collect(self, subject: str, payload: bytes, ends_at: float) -> tuple[list[Answer], Answer]:
        page: list[Answer] = []
        token = self._start([(subject, {}, payload)], page)
        return page, self.answer(token, ends_at)

    def release(self) -> None:
        """Implement `Transport.release`: others may use it all the time."""

    def _start(self, requests: Sequence[Request], page: list[Answer] | None) -> int:
        token = next(self._tokens)
        reply = self._replies[token] = _AwaitedReply(requests[-1][0], page)
        try:
            self._loop.call_soon_threadsafe(self._begin, requests, f"{self._inbox}{token}", reply)
        except RuntimeError:  # the loop was closed
            reply.fail(ConnectionLostError(reply.subject))
        return token

    def _begin(self, requests: Sequence[Request], inbox: str, reply: _AwaitedReply) -> None:
        task = self._loop.create_task(self._send(requests, inbox, reply))
        # A reference, or the task may be collected before it has sent.
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send(self, requests: Sequence[Request], inbox: str, reply: _AwaitedReply) -> None:
        try:
            for left, (subject, headers, payload) in enumerate(requests, 1 - len(requests)):
                # A copy: nats-py writes into the headers it is given in places.
                await self.publish(subject, payload, reply="" if left else inbox, headers=dict(headers) or None)
        except MaxPayloadError:
            size = max(len(payload) for _, _, payload in requests)
            reply.fail(DataError(f"a message of {size:,} bytes exceeds the server's limit of {self.max_payload:,}"))
        except NatsError as error:
            reply.fail(_lost(error))
        except Exception as error:  # noqa: BLE001 - it is raised where the answer is awaited
            reply.fail(error)

    async def request(self, subject: str, payload: bytes, *, timeout_s: float) -> bytes:
        """
        Return the payload of the reply to a message; on the loop's thread.

        Raises:
            NoAnswerError: Nobody listens on that subject.
            NotPermittedError, ConnectionLostError, TimeoutError: As `answer` does.
        """
        token = self.send([(subject, {}, payload)])
        try:
            async with asyncio.timeout(timeout_s):
                return payload_of(await asyncio.wrap_future(self._replies[token].future), subject)
        except TimeoutError:
            self._probe()
            raise
        finally:
            del self._replies[token]

    async def publish(
        self, subject: str, payload: bytes, *, reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        """Send a message without waiting for anything."""
        if self.is_lost:
            raise ConnectionLostError(subject)
        try:
            await self._nats.publish(subject, payload, reply=reply, headers=headers)
        except MaxPayloadError:
            raise
        except NatsError as error:
            raise _lost(error) from error

    async def listen(self, listener: Callable[[Delivery], None], on_lost: Callable[[], None]) -> "Inbox":
        """
        Hand everything that is sent to a new inbox to `listener`, on the loop's thread, as soon as it has arrived.

        `on_lost` is called once, if the connection ends.
        """
        if self.is_lost:
            raise ConnectionLostError
        subject = self._nats.new_inbox()
        try:
            subscription = await self._subscribe(subject, listener)
        except NatsError as error:
            raise _lost(error) from error
        self._on_lost.add(on_lost)

        async def end() -> None:
            self._on_lost.discard(on_lost)
            del self._nats.listeners[subscription._id]  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - see `_subscribe`
            if not self.is_lost:
                with contextlib.suppress(NatsError):  # it ends just now
                    await subscription.unsubscribe()

        return Inbox(subject, end)

    async def close(self) -> None:
        """Close the socket; whoever waits for a reply gets a ConnectionLostError."""
        try:
            await self._nats.close()
        finally:
            self._lose()

    def _deliver(self, delivery: Delivery) -> None:
        token = delivery.subject[len(self._inbox) :]
        reply = self._replies.get(int(token)) if token.isdigit() else None
        if reply is not None:
            reply.deliver((delivery.headers, delivery.payload))

    def _probe(self) -> None:
        """Find out, beside other work, whether the server is still there: it owed an answer."""
        if not self.is_lost and (self._probing is None or self._probing.done()):
            self._probing = asyncio.get_running_loop().create_task(self._ping())

    async def _ping(self) -> None:
        try:
            async with asyncio.timeout(PROBE_S):
                await self._nats.flush()
        except (NatsError, OSError, TimeoutError) as error:
            self._last_error = self._last_error or error
            self._lose()
            with contextlib.suppress(Exception):
                await self._nats.close()

    async def _note_error(self, error: Exception) -> None:
        self._last_error = error
        log.info("nats: %r", error)
        denied = _DENIED.search(str(error))
        if denied is not None:
            # The server says which subject, in lower case, and answers in the order in which it was asked.
            for reply in list(self._replies.values()):
                if reply.subject.lower() == denied[2] and not reply.future.done():
                    reply.fail(NotPermittedError(f"the login may not publish to {reply.subject}"))
                    break
        # Later, as nats-py reports an error before it closes.
        self._loop.call_later(NOTICE_S, self.notice)

    async def _note_closed(self) -> None:
        self._lose()

    def notice(self) -> None:
        """End what is awaited, if the connection was lost; on the loop's thread."""
        # When reader and writer of nats-py fail together, one cancels the other while that is closing the connection,
        # and nobody calls `closed_cb` (seen after kill -9 under load). Their errors are reported before.
        if self._is_open and not self._nats.is_connected:
            self._lose()

    def _lose(self) -> None:
        if self._is_lost:
            return
        self._is_lost = True
        self.endpoint = None
        for reply in list(self._replies.values()):
            reply.fail(ConnectionLostError(repr(self._last_error)))
        for notify in list(self._on_lost):
            notify()
        self._on_lost.clear()
        transport: Any = self._nats._transport  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] (see `notice`: it may be left open)
        if transport is not None:
            transport.close()


def _lost(error: NatsError) -> ConnectionLostError:
    """The error for one of nats-py, which nobody else knows: it takes long to import."""
    return ConnectionLostError(repr(error))


def _permanent(error: BaseException) -> str | None:
    """Why a server does not let us in, where trying again would not change it, and what to do."""
    text = str(error).lower()
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not trusted: {error.verify_message}. Give the authority's certificate as tls_ca, name the "
            "server as its certificate does, or renew that"
        )
    if isinstance(error, ssl.SSLError):
        return (
            f"TLS failed: {error.reason}. Where the server verifies clients, give tls_cert and tls_key that it trusts"
        )
    if "tls required" in text:
        return "it takes connections with TLS only; give tls://, and tls_ca if the system does not know its authority"
    if "authorization" in text or ("authentication" in text and "timeout" not in text):
        return f"{error}. Check the token, password, nkey or credentials, and that they are not expired or revoked"
    unreadable = isinstance(error, (FileNotFoundError, PermissionError, ModuleNotFoundError, ValueError))
    return repr(error) if unreadable else None


class Inbox:
    """A subject of our own, subscribed until `end`."""

    def __init__(self, subject: str, end: Callable[[], Awaitable[None]]) -> None:
        self.subject = subject
        self._end = end

    async def end(self) -> None:
        await self._end()
