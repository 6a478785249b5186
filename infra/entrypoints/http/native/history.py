"""History: the events of the log, page by page or as a stream."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from itertools import islice
from typing import Annotated, Any, Final

import msgspec
from starlette.responses import Response

from chatledger.domain.chat.recorded import Recorded
from chatledger.domain.wire import Value

from ..routing import HttpCall, Limit, Route, moment_of
from ..server_sent_events import ServerSentEvent
from .search import Time
from .streams import Events, event_of, stream_of

After = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1, description="Only events at later positions.")]
Topics = Annotated[list[str], msgspec.Meta(description="Only events of these types, such as `message_appended`.")]


class LogEvent(Value, frozen=True, kw_only=True):
    """
    An event of the log. `type` says what happened and `payload` to what; `chat_id` and `version` where, `position` when.

    `hash` and `previous_hash` chain the events of a chat; `occurred_at` is in milliseconds since 1970.
    """

    position: int
    event_id: str
    type: str
    schema_version: int
    chat_id: str
    version: int
    occurred_at: int
    actor: str | None
    correlation_id: str | None
    causation_id: str | None
    command_id: str | None
    hash: str
    previous_hash: str
    payload: dict[str, Any]


class EventPage(Value, frozen=True):
    """Events, and the position to be sent as `after` for those that follow; None where there are no more."""

    events: list[LogEvent]
    next: int | None


def log_event(recorded: Recorded) -> LogEvent:
    """Return an event as it is answered."""
    return LogEvent(**recorded.to_dict())


def get_history(
    call: HttpCall,
    *,
    chat_id: str | None = None,
    after: After = 0,
    up_to: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] | None = None,
    since: Time | None = None,
    until: Time | None = None,
    user_id: str | None = None,
    topics: Topics | None = None,
    actor: str | None = None,
    limit: Limit = 100,
) -> EventPage:
    """
    Read the events of the log: the audit trail.

    With `Accept: text/event-stream` all of them are streamed, up to the present end of the log; `id:` is the position, and
    `Last-Event-ID` goes on after it. `limit` concerns pages only.
    """
    recorded_events = call.reader.history(
        chat_id,
        after=after,
        up_to=up_to,
        since=_moment(since, "since"),
        until=_moment(until, "until"),
        user_id=user_id,
        topics=topics,
        actor=actor,
    )
    events = list(islice(recorded_events, limit + 1))
    is_more = len(events) > limit
    events = events[:limit]
    return EventPage([log_event(recorded) for recorded in events], events[-1].position if is_more else None)


async def stream_history(
    call: HttpCall, *, after: int = 0, since: str | None = None, until: str | None = None, **filters: Any
) -> Response:
    """Stream the events of the log up to its present end."""
    filters.pop("limit")
    stack = AsyncExitStack()
    try:
        ledger = call.async_ledger
        reader = ledger if call.moment is None else await stack.enter_async_context(ledger.as_of(call.moment))
        recorded_events: AsyncGenerator[Recorded] = reader.history(
            filters.pop("chat_id"),
            after=after if call.last_id is None else call.last_id,
            since=_moment(since, "since"),
            until=_moment(until, "until"),
            **filters,
        )
        stack.push_async_callback(recorded_events.aclose)
        events = Events(recorded_events, position_event, close=stack.aclose, at_end=lambda: event_of({}, name="end"))
        return await stream_of(call, events)
    except BaseException:
        await stack.aclose()  # only an answer closes it by itself, with its events
        raise


def position_event(recorded: Recorded) -> ServerSentEvent:
    """Return an event of the log as one that is sent, with its position as its id."""
    return event_of(recorded, id=recorded.position)


def _moment(text: str | None, name: str) -> Any:
    return None if text is None else moment_of(text, name)


ROUTES: Final = [Route("GET", "/history", get_history, stream=stream_history)]
