"""Server-sent events: an answer that goes on, which a client takes up again after the last id it saw; also iterators of the ledger."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Generic, Self, TypeVar

import anyio
import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from chatledger.domain.errors import ChatledgerError
from chatledger.domain.wire import encode_json

from .problems import problem_of

T = TypeVar("T")

HEARTBEAT_S: Final = 15.0
RETRY_MS: Final = 2000
SLOW_S: Final = 30.0  # a client that reads nothing holds what is sent to it in memory
STOPPING_S: Final = 3.0
"""Seconds in which events that have an end may come to it when the server stops."""
ABORT: Final = "chatledger.abort"
"""The extension of a server that closes a connection at once, without sending what the client does not read."""

_LINE_ENDS: Final = re.compile(r"[\r\n]+")

HEADERS: Final[Mapping[str, str]] = {
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # nginx would collect events until its buffer is full
    "Content-Type": "text/event-stream; charset=utf-8",
}


class ServerSentEvent(msgspec.Struct, frozen=True):
    """An event: `data` on as many lines as it has, `event` its name, `id` what a client sends to go on after it."""

    data: bytes
    event: str | None = None
    id: str | None = None

    def encode(self) -> bytes:
        """Return the event as it is sent; of a name, which may be an application's, on one line."""
        lines: list[bytes] = []
        if self.event is not None:
            lines.append(b"event: " + _LINE_ENDS.sub(" ", self.event).encode(errors="replace"))
        lines.extend(b"data: " + line for line in self.data.split(b"\n"))
        if self.id is not None:
            lines.append(b"id: " + self.id.encode())
        return b"\n".join(lines) + b"\n\n"


def event_of(value: Any, *, name: str | None = None, id: int | None = None) -> ServerSentEvent:  # noqa: A002 - the field
    """Return a value as an event: its JSON on one line."""
    return ServerSentEvent(encode_json(value), name, None if id is None else str(id))


class Events(Generic[T]):
    """
    The items of an asynchronous iterator as events. An error of the ledger becomes the last one, `error`, with the problem.

    Args:
        close: Ends the iterator, also where it was never asked.
        at_end: Makes the event that follows the last item, if one does.
    """

    def __init__(
        self,
        items: AsyncIterator[T],
        encode: Callable[[T], ServerSentEvent],
        *,
        close: Callable[[], Awaitable[object]],
        at_end: Callable[[], ServerSentEvent] | None = None,
    ) -> None:
        self._items, self._encode, self._close, self._at_end = items, encode, close, at_end
        self._is_over = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ServerSentEvent:
        if self._is_over:
            raise StopAsyncIteration
        try:
            return self._encode(await anext(self._items))
        except StopAsyncIteration:
            self._is_over = True
            if self._at_end is None:
                raise
            return self._at_end()
        except ChatledgerError as error:  # the status is sent, so the client reads of it in the stream
            self._is_over = True
            return event_of(problem_of(error), name="error")

    async def aclose(self) -> None:
        self._is_over = True
        with suppress(ChatledgerError):  # nobody is there to be told: what was not kept is given again
            await self._close()


class EventStream(Response):
    """
    An answer that goes on: events as they come, and in silence now and then a heartbeat, that keeps connections open.

    It ends when the events end, the client goes, the server stops (`stopping` is set) or the client reads too slowly: whoever
    comes back with the last id misses nothing.

    Events that have an end of their own may come to it first when the server stops. Where they do not, the connection is
    broken off: clients would take a body that ends in order for all there was.

    Args:
        events: The events, or chunks of another body than one of events. The iterator is closed at the end.
        heartbeat_s: Seconds of silence until it is sent.
        retry_ms: The time that clients are to wait before they come back; None sends nothing, as some clients take it for an
            event.
        slow_s: Seconds that a client may take to accept what was sent.
        end_s: Seconds in which the events may come to their end when the server stops; None where they go on for as long as
            somebody reads.
    """

    def __init__(
        self,
        events: AsyncIterator[bytes | ServerSentEvent],
        *,
        stopping: anyio.Event,
        headers: Mapping[str, str] | None = None,
        heartbeat: bytes = b": heartbeat\n\n",
        heartbeat_s: float = HEARTBEAT_S,
        retry_ms: int | None = RETRY_MS,
        slow_s: float = SLOW_S,
        end_s: float | None = None,
    ) -> None:
        super().__init__(None, 200, {**HEADERS, **(headers or {})})
        del self.headers["content-length"]  # Starlette sets that of a body, which is 0 here
        self._events, self._stopping, self._end_s = events, stopping, end_s
        self._heartbeat, self._heartbeat_s, self._slow_s, self._retry_ms = heartbeat, heartbeat_s, slow_s, retry_ms

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            if not await self._send_all(receive, send):
                abort = scope.get("extensions", {}).get(ABORT)
                if abort is not None:
                    abort()
        finally:
            # Shielded: the request may have been cancelled, and a named feed or a run's reader still has to be let go.
            with anyio.CancelScope(shield=True), anyio.move_on_after(1):
                closing = getattr(self._events, "aclose", None)
                if closing is not None:
                    await closing()
        with anyio.move_on_after(1), suppress(Exception):
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_all(self, receive: Receive, send: Send) -> bool:
        """Send events until one of the ends; False where the connection is to be broken off."""
        sending = anyio.Lock()  # a heartbeat must not come within an event

        async def write(chunk: bytes) -> None:
            async with sending:
                with anyio.fail_after(self._slow_s):
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})

        is_whole = True
        async with anyio.create_task_group() as group:

            async def end_when_gone() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                group.cancel_scope.cancel()

            async def end_when_stopping() -> None:
                nonlocal is_whole
                await self._stopping.wait()
                if self._end_s is not None:  # a run ends as its server stops, and its stream has time to say so
                    await anyio.sleep(self._end_s)
                    is_whole = False
                group.cancel_scope.cancel()

            async def beat() -> None:
                nonlocal is_whole
                while True:
                    await anyio.sleep(self._heartbeat_s)
                    try:
                        await write(self._heartbeat)
                    except TimeoutError:
                        is_whole = False
                        group.cancel_scope.cancel()

            group.start_soon(end_when_gone)
            group.start_soon(end_when_stopping)
            group.start_soon(beat)
            try:
                if self._retry_ms is not None:
                    await write(b"retry: %d\n\n" % self._retry_ms)
                async for event in self._events:
                    await write(event if isinstance(event, bytes) else event.encode())
            except TimeoutError:
                is_whole = False
            group.cancel_scope.cancel()
        return is_whole
