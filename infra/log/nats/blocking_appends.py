"""Appends of single messages over a blocking connection: sent at once, each acknowledged by itself."""

import time
from typing import Final, NamedTuple

from .append import EXPECTED, HEADER_OVERHEAD_BYTES, MAX_HEADER_BYTES, Message, decode_ack
from .blocking_connection import BlockingConnection, ConnectionBrokenError
from .client import ATTEMPT_S, JetStreamClient

_FIRST: Final = "NATS/1.0\r\n"
_LOST: Final = -1


class SendOutcome(NamedTuple):
    """The position of a message; None when it is not known to be stored, and `is_uncertain` that it may be."""

    position: int | None
    is_uncertain: bool = False


NOT_SENT: Final = SendOutcome(None)


class BlockingAppends:
    """
    Appends over the blocking connection of a client, which is held from `begin` to `finish`.

    Messages that are not plainly acknowledged are left to `append`, which finds out whether they are stored.
    """

    def __init__(self, client: JetStreamClient, connection: BlockingConnection) -> None:
        self._client, self._connection = client, connection
        self._tokens: list[int | None] = []
        self._is_broken = False

    @classmethod
    def begin(cls, client: JetStreamClient) -> "BlockingAppends | None":
        """Acquire the connection; None when it is in use, cannot be opened, or nothing can be stored. `finish` must follow."""
        connection = client.acquire_blocking_connection() if client.why_full() is None else None
        return None if connection is None else cls(client, connection)

    def send(self, message: Message) -> None:
        """Send a message. `finish` returns its outcome."""
        request = _request(message, self._connection.max_payload)
        if request is None or self._is_broken:
            self._tokens.append(None)
            return
        try:
            self._tokens += self._connection.publish([request])
        except ConnectionBrokenError:
            self._is_broken = True  # all of it may have been sent
            self._tokens.append(_LOST)

    def finish(self) -> list[SendOutcome]:
        """Wait for the acknowledgements and release the connection. Return the outcome of each message, in order."""
        patience_s = min(ATTEMPT_S, self._client.timeout_s)  # for each, as a slow disk takes its time for each
        is_sound = False
        try:
            outcomes = [self._outcome(token, time.monotonic() + patience_s) for token in self._tokens]
            is_sound = not self._is_broken
        finally:
            self._client.release_blocking_connection(is_sound=is_sound)
        return outcomes

    def _outcome(self, token: int | None, ends_at: float) -> SendOutcome:
        if token is None:
            return NOT_SENT
        if self._is_broken:
            return SendOutcome(None, is_uncertain=True)
        try:
            _, payload = self._connection.answer(token, ends_at)
        except ConnectionBrokenError:
            self._is_broken = True
            return SendOutcome(None, is_uncertain=True)
        if not payload:  # nobody was there to store it
            return NOT_SENT
        ack = decode_ack(payload)
        return SendOutcome(ack.last) if ack.error is None and not ack.is_duplicate else NOT_SENT


def _request(message: Message, max_payload: int) -> tuple[str, bytes, bytes] | None:
    """A message as it is sent; None when it is one for `append`, which says what is wrong with it."""
    if len(message.payload) + HEADER_OVERHEAD_BYTES > max_payload - MAX_HEADER_BYTES:
        return None
    lines = [f"{name}: {value}\r\n" for name, value in message.headers.items()]
    if message.expected is not None:
        lines.append(f"{EXPECTED}: {message.expected}\r\n")
    text = "".join(lines)
    if text.count("\r") != len(lines) or text.count("\n") != len(lines) or not text.isascii():
        return None
    headers = f"{_FIRST}{text}\r\n".encode()
    return (message.subject, headers, message.payload) if len(headers) <= MAX_HEADER_BYTES else None
