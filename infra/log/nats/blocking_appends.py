"""Appends of single messages over a line: sent at once, each acknowledged by itself."""

import time
from typing import Final, NamedTuple

from .append import EXPECTED, HEADER_OVERHEAD_BYTES, MAX_HEADER_BYTES, Message, decode_ack
from .blocking_connection import Line, LineBrokenError
from .client import ATTEMPT_S, JetStreamClient

_FIRST: Final = "NATS/1.0\r\n"
_LOST: Final = -1


class Outcome(NamedTuple):
    """The position of a message; None when it is not known to be stored, and `is_uncertain` that it may be."""

    position: int | None
    is_uncertain: bool = False


NOT_SENT: Final = Outcome(None)


class LineAppends:
    """
    Appends over the line of a client, which is borrowed from `begin` to `finish`.

    Whatever is not plainly acknowledged is left to `append`, which knows what to do about it.
    """

    def __init__(self, client: JetStreamClient, line: Line) -> None:
        self._client, self._line = client, line
        self._tokens: list[int | None] = []
        self._is_broken = False

    @classmethod
    def begin(cls, client: JetStreamClient) -> "LineAppends | None":
        """Borrow the line; None when there is none to be had, or nothing can be stored. `finish` must follow."""
        line = client.borrow_line() if client.why_full() is None else None
        return None if line is None else cls(client, line)

    def send(self, message: Message) -> None:
        """Send a message. What happened to it, `finish` tells."""
        request = _request(message, self._line.max_payload)
        if request is None or self._is_broken:
            self._tokens.append(None)
            return
        try:
            self._tokens += self._line.publish([request])
        except LineBrokenError:
            self._is_broken = True  # all of it may have been sent
            self._tokens.append(_LOST)

    def finish(self) -> list[Outcome]:
        """Wait for the acknowledgements, and give the line back: what became of each message."""
        patience_s = min(ATTEMPT_S, self._client.timeout_s)  # for each, as a slow disk takes its time for each
        is_sound = False
        try:
            outcomes = [self._outcome(token, time.monotonic() + patience_s) for token in self._tokens]
            is_sound = not self._is_broken
        finally:
            self._client.give_back_line(is_sound=is_sound)
        return outcomes

    def _outcome(self, token: int | None, ends_at: float) -> Outcome:
        if token is None:
            return NOT_SENT
        if self._is_broken:
            return Outcome(None, is_uncertain=True)
        try:
            _, payload = self._line.answer(token, ends_at)
        except LineBrokenError:
            self._is_broken = True
            return Outcome(None, is_uncertain=True)
        if not payload:  # nobody was there to store it
            return NOT_SENT
        ack = decode_ack(payload)
        return Outcome(ack.last) if ack.error is None and not ack.is_duplicate else NOT_SENT


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
