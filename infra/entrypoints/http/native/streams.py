"""Iterators of the ledger as server-sent events."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, Generic, Self, TypeVar

from chatledger.domain.errors import ChatledgerError
from chatledger.domain.wire import encode_json

from ..problems import problem_of
from ..routing import POSITION, HttpCall
from ..server_sent_events import EventStream, ServerSentEvent

T = TypeVar("T")


def event_of(value: Any, *, name: str | None = None, id: int | None = None) -> ServerSentEvent:  # noqa: A002 - the field
    """Return a value as an event: its JSON on one line."""
    return ServerSentEvent(encode_json(value), name, None if id is None else str(id))


class Events(Generic[T]):
    """
    The items of an asynchronous iterator as events. An error of the ledger becomes the last one, `error`, with the problem.

    Args:
        items: The iterator.
        encode: Makes an event of an item.
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
        """Return the next event."""
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
        """End the iterator."""
        self._is_over = True
        with suppress(ChatledgerError):  # nobody is there to be told: what was not kept is given again
            await self._close()


async def stream_of(call: HttpCall, events: AsyncIterator[ServerSentEvent]) -> EventStream:
    """Return the answer that sends events, with the position up to which it knows the log."""
    headers = {POSITION: str(await call.async_ledger.get_position())}
    return EventStream(events, stopping=call.service.stopping, headers=headers)
