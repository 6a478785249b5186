"""
Transports: ways to send messages to a server and to take its answers.

There are two. `Connection` is nats-py on the event loop's thread, for any server. `BlockingConnection` is a socket of the
calling thread, for embedded servers: it spares an append the way over the other thread, which takes as long as the append.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

import msgspec
from eventsourcing.persistence import PersistenceError

from .errors import ApiError, ApiFault, ConnectionLostError, NoAnswerError

T = TypeVar("T")
Request = tuple[str, Mapping[str, str], bytes]
"""A message to send: its subject, headers and payload."""
Answer = tuple[bytes, bytes]
"""The headers of a reply as they came, and its payload."""
_STATUS_LINE: Final = b"NATS/1.0 "
TRANSIENT: Final = (ConnectionLostError, NoAnswerError, TimeoutError, OSError)
"""Errors of a connection after which the next one may do."""


class Delivery(NamedTuple):
    """A message that came on a subscription, as it stood on the wire; `reply` is where it is to be acknowledged."""

    subject: bytes
    reply: bytes
    headers: bytes
    payload: bytes


class Transport(Protocol):
    """
    A connection to a server. Times are those of the monotonic clock, in seconds.

    All methods raise `ConnectionLostError` when it ends; whether what was sent has arrived is unknown then.
    """

    @property
    def max_payload(self) -> int:
        """The largest message in bytes, headers included."""
        ...

    def send(self, requests: Sequence[Request]) -> int:
        """Send messages in order, and return a token for `answer`: the last message asks for one."""
        ...

    def answer(self, token: int, ends_at: float) -> Answer:
        """
        Return the reply to the last message of a `send`. It is to be called once for each.

        Raises:
            NotPermittedError: The login may not publish there; nothing was written.
            TimeoutError: None came until `ends_at`.
        """
        ...

    def collect(self, subject: str, payload: bytes, ends_at: float) -> tuple[list[Answer], Answer]:
        """Send a request with several replies, and return those before the one with a status, and that one."""
        ...

    def release(self) -> None: ...


def status_of(headers: bytes) -> str | None:
    """Return the status code that a server gives in the headers of a reply, such as `503`; None where there is none."""
    return headers[len(_STATUS_LINE) :][:3].decode(errors="replace") if headers.startswith(_STATUS_LINE) else None


def description_of(headers: bytes) -> str:
    """Return the words behind the status code in the headers of a reply."""
    return headers[len(_STATUS_LINE) + 4 :].partition(b"\r\n")[0].decode(errors="replace")


def parse_headers(raw: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in raw.decode(errors="replace").split("\r\n")[1:])
    return {name: value.strip() for name, colon, value in lines if colon}


def payload_of(answer: Answer, subject: str) -> bytes:
    """Return the payload of a reply. Raises `NoAnswerError` when nobody listens on the subject."""
    headers, payload = answer
    # "No responders": the server knows that nobody listens, and did not store anything.
    if not payload and status_of(headers) == "503":
        raise NoAnswerError(subject)
    return payload


class Pipeline:
    """
    First attempts of single requests, under way at the same time over one transport, which is held until `finish`.

    Args:
        transport: Where they are sent; none of them is when it is None.
        patience_s: How long to wait for each answer: a slow disk takes its time for each.
    """

    def __init__(self, transport: Transport | None, patience_s: float) -> None:
        self._transport, self._patience_s = transport, patience_s
        self._sent: list[int | Exception | None] = []
        self._lost: Exception | None = None

    @property
    def max_payload(self) -> int:
        """The largest message in bytes, headers included; 0 when nothing can be sent."""
        return 0 if self._transport is None else self._transport.max_payload

    def send(self, request: Request | None) -> None:
        """Send a request, if there is one. `finish` returns its outcome."""
        if self._transport is None or self._lost is not None or request is None:
            self._sent.append(None)
            return
        try:
            self._sent.append(self._transport.send([request]))
        except ConnectionLostError as error:
            self._lost = error
            self._sent.append(error)  # all of it may have been sent

    def finish(self) -> list[Answer | Exception | None]:
        """Return what became of each request: its answer; an error, after which it may have arrived; None if it was not sent."""
        if self._transport is None:
            return [None for _ in self._sent]
        try:
            return [self._answer(self._transport, sent) if isinstance(sent, int) else sent for sent in self._sent]
        finally:
            self._transport.release()

    def _answer(self, transport: Transport, token: int) -> Answer | Exception | None:
        # After one without an answer, the others are only looked at: all of them together may not take much longer.
        patience_s = self._patience_s if self._lost is None else 0
        try:
            return transport.answer(token, time.monotonic() + patience_s)
        except PersistenceError:  # the login may not do that, or the message is too large
            return None
        except TRANSIENT as error:
            self._lost = error
            return error


class _ApiReply(msgspec.Struct):
    error: ApiFault | None = None


_decode_reply: Final = msgspec.json.Decoder(_ApiReply).decode


def ask_api(transport: Transport, subject: str, payload: bytes, reply: type[T], ends_at: float) -> T:
    """
    Return the decoded reply of `$JS.API.<subject>`; one attempt.

    Raises:
        ApiError: The server refused.
        NoAnswerError, ConnectionLostError, TimeoutError: There is no reply.
    """
    subject = f"$JS.API.{subject}"
    token = transport.send([(subject, {}, payload)])
    return decode_api(payload_of(transport.answer(token, ends_at), subject), reply)


def decode_api(payload: bytes, reply: type[T]) -> T:
    """Return the decoded reply of JetStream's API. Raises `ApiError` for a refusal."""
    # `error` comes first: the other fields of a refusal are zeros.
    fault = _decode_reply(payload).error
    if fault is not None:
        raise ApiError(fault)
    return msgspec.json.decode(payload, type=reply)
