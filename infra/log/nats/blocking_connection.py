"""A transport for the calling thread, without the detour over the event loop's thread."""

import contextlib
import os
import secrets
import select
import socket
import time
from collections.abc import Callable, Sequence
from itertools import count
from threading import Lock
from typing import Final
from urllib.parse import urlsplit

import msgspec

from chatledger.domain.errors import DECODE_ERRORS

from .endpoint import Endpoint
from .errors import ConnectionLostError
from .transport import Answer, Delivery, Request, status_of

_END: Final = b"\r\n"
_NEWS: Final = b"2"
"""The number of the subscription of a listener; 1 is that of the answers."""
_CHUNK_BYTES: Final = 256 * 1024
_OPEN_S: Final = 1.0
_PAUSE_S: Final = 5.0
"""Pause after a connection could not be opened."""
_NO_BREAKS: Final = str.maketrans("\r\n", "  ")


class _ServerInfo(msgspec.Struct):
    """The fields we need of a server's INFO message."""

    max_payload: int
    server_name: str | None = None
    tls_required: bool = False


_decode_info: Final = msgspec.json.Decoder(_ServerInfo).decode


class ConnectionBrokenError(ConnectionLostError):
    """The connection failed or an answer is missing, so the outcome of the request is unknown. Close the connection."""


class BlockingConnection:
    """
    A blocking connection for requests, without TLS; a `Transport`. Not safe for threads.

    An append over the shared connection of nats-py wakes the thread of its loop, which wakes the caller again, and takes twice
    as long. Requests that fail here are repeated there.

    Args:
        endpoint: One server. It must name itself `server_name`; another one may have taken its port.
        lock: Held by the thread that uses the connection; released by `release`.

    Raises:
        ConnectionBrokenError: No connection, or a server that wants more of a login than a password or a token.
    """

    def __init__(self, endpoint: Endpoint, lock: Lock, *, timeout_s: float) -> None:
        self._lock = lock
        # Drawn here, not from a generator of the module: a forked process would draw the same, and get others' answers.
        self._inbox = f"{endpoint.inbox_prefix}.{secrets.token_hex(11)}."
        self._inbox_bytes = self._inbox.encode()
        self._tokens = count()
        self._rest = bytearray()
        self._wanted = 0
        self._arrived: dict[int, Answer] = {}
        self._owed = 0
        self._is_interrupted = False
        self._pages: dict[int, list[Answer]] = {}
        self._pongs = 0
        self._listener: Callable[[Delivery], None] | None = None
        self.max_payload = 0
        url = urlsplit(endpoint.urls[0])
        try:
            self._socket = socket.create_connection((url.hostname or "", url.port or 4222), timeout=timeout_s)
        except OSError as error:
            raise ConnectionBrokenError from error
        try:
            # Or the kernel may hold a small append back until the last one is acknowledged.
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._poll = select.poll()
            self._poll.register(self._socket, select.POLLIN)
            self._log_in(endpoint, timeout_s)
        except BaseException:
            self.close()
            raise

    @staticmethod
    def is_possible(endpoint: Endpoint) -> bool:
        """Whether a blocking connection to this endpoint is supported: only to embedded servers, which state their name."""
        login = (endpoint.credentials_path, endpoint.nkeys_seed_path)
        is_plain = endpoint.urls[0].startswith("nats://") and not endpoint.needs_tls
        return endpoint.server_name is not None and is_plain and login == (None, None)

    def _log_in(self, endpoint: Endpoint, timeout_s: float) -> None:
        ends_at = time.monotonic() + timeout_s
        while not self.max_payload:  # comes with what the server says of itself
            self._receive(ends_at)
        # Before the login is sent: a foreign server that took the port must not get the token.
        if self._info.server_name != endpoint.server_name or self._info.tls_required:
            raise ConnectionBrokenError
        login = {"auth_token": endpoint.token, "user": endpoint.user, "pass": endpoint.password}
        options = {
            "verbose": False,
            "pedantic": False,
            "lang": "python",
            "version": "1",
            "protocol": 1,
            "name": "chatledger",
            "headers": True,
            "no_responders": True,
            **{name: value for name, value in login.items() if value is not None},
        }
        self._write([b"CONNECT ", msgspec.json.encode(options), f"\r\nSUB {self._inbox}* 1\r\nPING\r\n".encode()])
        while not self._pongs:
            self._receive(ends_at)

    def is_usable(self) -> bool:
        """Whether the server has not hung up, as far as is known without a request."""
        try:
            while self._socket.fileno() >= 0 and self._poll.poll(0):
                self._receive(time.monotonic() + 1)
        except ConnectionBrokenError:
            return False
        return self._socket.fileno() >= 0

    def send(self, requests: Sequence[Request]) -> int:
        token = next(self._tokens)
        parts: list[bytes] = []
        for left, (subject, headers, payload) in enumerate(requests, 1 - len(requests)):
            # Only the last message of a batch asks for an answer, which is about all of them.
            reply = "" if left else f"{self._inbox}{token} "
            # As in nats-py, a value cannot bring headers of its own.
            lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
            text = "".join(lines)
            if text.count("\r") != len(lines) or text.count("\n") != len(lines):
                text = "".join(f"{name}: {value.strip().translate(_NO_BREAKS)}\r\n" for name, value in headers.items())
            head = f"NATS/1.0\r\n{text}\r\n".encode() if lines else b""
            kind, sizes = ("HPUB", f"{len(head)} {len(head) + len(payload)}") if head else ("PUB", str(len(payload)))
            parts += (f"{kind} {subject} {reply}{sizes}\r\n".encode(), head, payload, _END)
        self._owed += 1
        self._write(parts)
        return token

    def answer(self, token: int, ends_at: float) -> Answer:
        while (answer := self._arrived.pop(token, None)) is None:
            self._receive(ends_at)
        self._owed -= 1
        return answer

    def collect(self, subject: str, payload: bytes, ends_at: float) -> tuple[list[Answer], Answer]:
        token = self.send([(subject, {}, payload)])
        page = self._pages[token] = []
        return page, self.answer(token, ends_at)

    def listen(self, listener: Callable[[Delivery], None]) -> str:
        """Hand what is sent to the subject that is returned to `listener`, in `receive` and `answer`."""
        # Beside the subjects of answers, whose subscription would get it too.
        self._listener, subject = listener, f"{self._inbox.removesuffix('.')}n"
        self._write([f"SUB {subject} {_NEWS.decode()}\r\n".encode()])
        return subject

    def publish(self, subject: str, payload: bytes, *, reply: str = "") -> None:
        """Send a message; nothing is waited for."""
        self._write([f"PUB {subject} {reply} {len(payload)}\r\n".encode(), payload, _END])

    def receive(self, ends_at: float) -> None:
        """Wait for what comes next, of whatever kind. Raises `ConnectionBrokenError` when nothing came until `ends_at`."""
        self._receive(ends_at)

    def release(self) -> None:
        """Implement `Transport.release`. A connection that broke, or that owes an answer, is closed."""
        # A late answer would be taken for that of the next request.
        if self._owed or self._is_interrupted:
            self.close()
        self._lock.release()

    def interrupt(self) -> None:
        """Break the connection from another thread; the thread that uses it gets a `ConnectionBrokenError`."""
        self._is_interrupted = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()

    def _write(self, parts: Sequence[bytes]) -> None:
        try:
            self._socket.sendall(b"".join(parts))
        except OSError as error:
            raise ConnectionBrokenError from error

    def _receive(self, ends_at: float) -> None:
        """Wait for the next bytes, and sort them."""
        left_s = ends_at - time.monotonic()
        if left_s <= 0:
            raise ConnectionBrokenError
        try:
            self._socket.settimeout(left_s)
            data = self._socket.recv(_CHUNK_BYTES)
        except OSError as error:
            raise ConnectionBrokenError from error
        if not data:
            raise ConnectionBrokenError
        rest = self._rest
        rest += data
        if len(rest) >= self._wanted:
            try:
                self._sort(bytes(rest))
            except (ValueError, IndexError, *DECODE_ERRORS) as error:
                raise ConnectionBrokenError from error

    def _sort(self, whole: bytes) -> None:
        at, self._wanted = 0, 0
        inbox, skip = self._inbox_bytes, len(self._inbox_bytes)
        while (end := whole.find(_END, at)) >= 0:
            words = whole[at:end].split()
            start = end + 2
            kind = words[0]
            if kind in {b"HMSG", b"MSG"}:
                stop = start + int(words[-1])
                if stop + 2 > len(whole):
                    # Not looked at again before so much is there: parsing a large page at each of its pieces takes quadratic time.
                    self._wanted = stop + 2 - at
                    break
                body = start + int(words[-2]) if kind == b"HMSG" else start
                if not start <= body <= stop:  # or it would be read for ever
                    raise ConnectionBrokenError
                if words[2] == _NEWS and self._listener is not None:
                    reply = words[3] if len(words) > (4 if kind == b"MSG" else 5) else b""
                    self._listener(Delivery(words[1], reply, whole[start:body], whole[body:stop]))
                elif words[1].startswith(inbox):
                    token, headers = int(words[1][skip:]), whole[start:body]
                    if token in self._pages and status_of(headers) is None:  # others follow
                        self._pages[token].append((headers, whole[body:stop]))
                    else:
                        self._pages.pop(token, None)
                        self._arrived[token] = (headers, whole[body:stop])
                at = stop + 2
                continue
            line = whole[at:end]
            if kind == b"PING":
                self._write([b"PONG\r\n"])
            elif kind == b"PONG":
                self._pongs += 1
            elif kind == b"INFO":
                self._info = _decode_info(line[len(b"INFO ") :])
                self.max_payload = self._info.max_payload
            elif kind != b"+OK":  # `-ERR`: whatever it is about, the shared connection will be told so again
                raise ConnectionBrokenError
            at = start
        del self._rest[:at]


class ConnectionPool:
    """A pool of one blocking connection: opened on first use, acquired by one thread at a time."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._connection: BlockingConnection | None = None
        self._made_for: object = None
        self._not_before_s = 0.0
        self._is_closed = False
        self._pid: int | None = None
        """The process that opened the connection. A forked one must not use it, and opens none of its own."""

    def acquire(self, endpoint: Endpoint) -> BlockingConnection | None:
        """
        Return a connection to the server at an endpoint, or None if none is free at once; `release` it afterwards.

        Args:
            endpoint: The object itself counts: another one of the same content stands for another start of the server.
        """
        if endpoint.server_name is None or self._is_closed or not self._lock.acquire(blocking=False):
            return None
        connection = self._connection
        # Looked at before it is used: an append over a connection that the server has closed has an unknown outcome.
        if (
            self._pid != os.getpid()
            or self._made_for is not endpoint
            or connection is None
            or not connection.is_usable()
        ):
            connection = self._renewed(endpoint)
        if connection is None:
            self._lock.release()
        return connection

    def close(self) -> None:
        """Close the connection, also for the thread that holds it. Later calls of `acquire` return None."""
        self._is_closed = True
        if self._connection is not None:
            self._connection.interrupt()
        # Whoever holds it is woken by `interrupt`, and closes it by its own `release`.
        if self._lock.acquire(blocking=False):
            self._drop()
            self._lock.release()

    def _renewed(self, endpoint: Endpoint) -> BlockingConnection | None:
        if self._pid not in {None, os.getpid()} or not BlockingConnection.is_possible(endpoint):
            return None
        self._drop()
        if self._is_closed or time.monotonic() < self._not_before_s:
            return None
        self._pid, self._made_for = os.getpid(), endpoint
        try:
            self._connection = BlockingConnection(endpoint, self._lock, timeout_s=_OPEN_S)
        except ConnectionBrokenError:
            # Else each append would wait for a port that does not answer, before it goes the other way.
            self._not_before_s = time.monotonic() + _PAUSE_S
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
