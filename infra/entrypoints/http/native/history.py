"""Chats drawn as a git graph, a window at a time; and the events of the log: page by page, as a stream, and as feeds of changes as they happen, also under a name that keeps how far its reader has come."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from functools import partial
from itertools import islice
from typing import Annotated, Any, Final, Literal

import msgspec
from starlette.responses import Response

from chatledger.domain.chat.recorded import Recorded
from chatledger.domain.draw.rows import BranchPointChild, BranchPointPage, RowLine, RowStrip, RowWindow
from chatledger.domain.errors import (
    AccessDeniedError,
    BranchNotFoundError,
    ChainIntegrityError,
    ChatNotFoundError,
    ConflictError,
    MessageNotFoundError,
    NotFoundError,
)
from chatledger.domain.wire import Value

from ....ledger.feed import AsyncFeed, FeedInfo
from ..routing import HttpCall, Limit, Route, moment_of
from ..server_sent_events import Events, EventStream, ServerSentEvent, event_of
from .chats import Deleted
from .search import Time

Row = Annotated[int, msgspec.Meta(ge=0, le=2**32, description="A row, counted from 0.")]
Above = Annotated[int, msgspec.Meta(ge=-1, le=2**32, description="A row; -1 is above the first.")]
Height = Annotated[int, msgspec.Meta(ge=1, le=10_000, description="The number of pixels.")]
Along = Annotated[
    str | None, msgspec.Meta(description="A branch, or a message: the path to it is read, and has lane 0.")
]
Wanted = Annotated[list[str], msgspec.Meta(min_length=1, max_length=200, description="Ids of messages.")]


class FoundRows(msgspec.Struct):
    """Rows by message id, without those of messages that the chat does not have."""

    rows: dict[str, int]


def get_rows(
    call: HttpCall,
    chat_id: str,
    *,
    first: Row = 0,
    rows: Limit = 200,
    around: str | None = None,
    along: Along = None,
    only: Literal["path"] | None = None,
) -> RowWindow:
    """
    Read a window of a chat drawn as a git graph: one message a row in log order, oldest first, each branch in a lane.

    It begins at row `first`, or has the message `around` in its middle. A message stays in its row; lanes are those of the
    `version` of the chat, and of what is read: `along`, else the active branch. With `only=path` the rows are that path alone.
    """
    return call.reader.get_rows(chat_id, first=first, limit=rows, around=around, along=along, only=only)


def list_bundled_lines(
    call: HttpCall, chat_id: str, row: Row, *, along: Along = None, limit: Limit = 100
) -> list[BranchPointChild]:
    """List the lines that are cut over a row, each by its first message and the branches that have it."""
    return call.reader.list_bundled_lines(chat_id, row, along=along, limit=limit)


def list_branch_points(
    call: HttpCall,
    chat_id: str,
    *,
    after: Above | None = None,
    above: Row | None = None,
    limit: Limit = 100,
    along: Along = None,
) -> BranchPointPage:
    """
    List the messages of a chat that have several answers, by row, each with its children and their branches.

    `after` and `above` are rows; with `above` they are the last ones above it.
    """
    return call.reader.list_branch_points(chat_id, after=after, above=above, limit=limit, along=along)


def get_row_numbers(call: HttpCall, chat_id: str, *, id: Wanted) -> FoundRows:  # noqa: A002 - the name in the query
    """Find the rows of messages, such as the hits of a search."""
    return FoundRows(call.reader.get_row_numbers(chat_id, id))


def get_row_strip(call: HttpCall, chat_id: str, *, height: Height = 800, along: Along = None) -> RowStrip:
    """Read a whole chat drawn in few pixels, for a map beside its rows."""
    return call.reader.get_row_strip(chat_id, height=height, along=along)


def get_row_line(call: HttpCall, chat_id: str, message_id: str) -> RowLine:
    """Read the rows of the line of a message and of all that forks off it: what is folded away together."""
    return call.reader.get_row_line(chat_id, message_id)


_NOT_FOUND: Final = (ChatNotFoundError, MessageNotFoundError)
_NO_PATH: Final = (ChatNotFoundError, BranchNotFoundError)


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
        return await call.stream(events)
    except BaseException:
        await stack.aclose()  # only an answer closes it by itself, with its events
        raise


def position_event(recorded: Recorded) -> ServerSentEvent:
    """Return an event of the log as one that is sent, with its position as its id."""
    return event_of(recorded, id=recorded.position)


def _moment(text: str | None, name: str) -> Any:
    return None if text is None else moment_of(text, name)


Share = Annotated[
    str,
    msgspec.Meta(
        pattern="^[0-9]{1,4}/[0-9]{1,4}$",
        description="A share of all chats, as `index/count`: `0/4` is the first of four.",
    ),
]


class Acknowledgement(msgspec.Struct, forbid_unknown_fields=True):
    """The position of the last event that was handled; `share` where the name is read in shares."""

    position: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    share: Share | None = None


async def stream_feed(
    call: HttpCall,
    *,
    after: After | None = None,
    name: str | None = None,
    share: Share | None = None,
    chat_id: str | None = None,
    user_id: str | None = None,
    topics: Topics | None = None,
    follow: bool = True,
    auto_ack: bool = True,
) -> EventStream:
    """
    Stream changes in order and without holes, as they happen.

    Each event has its position as `id:`; a client that comes back with it as `Last-Event-ID` goes on after it. Without `after`
    the feed begins now, with `after=0` with the first event there ever was. With `follow=false` it ends at the end of the log.

    With a `name`, which needs the scope `write`, the server keeps how far the reader has come, and `after` says only where a new
    name begins. An event counts as handled once it is sent; with `auto_ack=false` only `POST /feeds/{name}/ack` says so. What was
    not handled is given again to who reads under the name next, and what was sent but not seen to who says so by `Last-Event-ID`.
    One reader at a time has a name: an earlier one gets the event `error`.
    """
    if name is not None and not call.principal.may("write"):
        msg = "a feed with a name keeps how far its reader has come: this needs the scope 'write'"
        raise AccessDeniedError(msg)
    begin = partial(call.async_ledger.feed, share=_share(share), chat_id=chat_id, user_id=user_id, topics=topics)
    if name is None:
        feed = begin(after if call.last_id is None else call.last_id, follow=follow)
        await feed.__aenter__()  # now, so that what it refuses is a status, and not an event of a 200
        return await call.stream(Events(feed, position_event, close=feed.close))
    feed = begin(after, name=name, follow=follow, auto_ack=auto_ack)
    await feed.__aenter__()
    # What was sent counts as handled, but a connection that broke may have lost it: the client says by its last id what it saw.
    again = None if call.last_id is None else begin(call.last_id, follow=False)
    return await call.stream(Events(_with_unseen(again, feed), position_event, close=feed.close))


async def _with_unseen(again: AsyncFeed | None, feed: AsyncFeed) -> AsyncGenerator[Recorded]:
    """Yield what `again` has up to where the feed begins: it was sent, and never arrived. Then the feed."""
    start = feed.position or 0  # what comes after it, the feed gives by itself
    if again is not None:
        async with again:
            async for recorded in again:
                if recorded.position > start:
                    break
                yield recorded
    async for recorded in feed:
        yield recorded


def list_feeds(call: HttpCall) -> list[FeedInfo]:
    """List the named feeds, and how far their readers have come."""
    return call.ledger.feeds()


def acknowledge(call: HttpCall, name: str, body: Acknowledgement) -> FeedInfo:
    """Acknowledge everything up to a position as handled by the reader of a named feed; an earlier one changes nothing."""
    return call.ledger.ack_feed(name, body.position, share=_share(body.share))


def forget_feed(call: HttpCall, name: str) -> Deleted:
    """Forget a named feed with all its shares."""
    return Deleted(call.ledger.forget_feed(name))


def _share(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    index, _, count = text.partition("/")
    return int(index), int(count)


ROUTES: Final = {
    "rows": [
        Route("GET", "/chats/{chat_id}/rows", get_rows, raises=[*_NO_PATH, MessageNotFoundError]),
        Route("GET", "/chats/{chat_id}/rows/strip", get_row_strip, raises=_NO_PATH),
        Route("GET", "/chats/{chat_id}/rows/numbers", get_row_numbers, raises=[ChatNotFoundError]),
        Route("GET", "/chats/{chat_id}/rows/lines/{message_id}", get_row_line, raises=_NOT_FOUND),
        Route("GET", "/chats/{chat_id}/rows/bundles/{row}", list_bundled_lines, raises=_NO_PATH),
        Route("GET", "/chats/{chat_id}/branch-points", list_branch_points, raises=_NO_PATH),
    ],
    "history": [
        Route("GET", "/history", get_history, stream=stream_history),
    ],
    "feeds": [
        Route("GET", "/feed", stream_feed, raises=[ConflictError, ChainIntegrityError]),
        Route("GET", "/feeds", list_feeds, has_moment=False),
        Route("POST", "/feeds/{name}/ack", acknowledge, raises=[NotFoundError, ConflictError]),
        Route("DELETE", "/feeds/{name}", forget_feed),
    ],
}
