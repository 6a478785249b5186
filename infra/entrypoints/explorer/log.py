"""The page of the log: its events, the newest first, and those that come."""

from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Final, Literal

import msgspec

from chatledger.domain.chat.recorded import Recorded
from chatledger.domain.draw.event_words import describe_event
from chatledger.domain.versioned.keys import FAMILIES
from chatledger.domain.wire import Value

from ..http.native.history import LogEvent, log_event
from ..http.routing import HttpCall
from .page import ExplorerPage

_ROWS: Final = 100
_WINDOW: Final = 200
_WIDER: Final = 8
_SEARCHED: Final = 20_000

Position = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class LogRow(Value, frozen=True, kw_only=True):
    """
    An event of the log, and what it did in words.

    `kind` says what its stream is: a `chat`, or a versioned value. The stream of a thread names it; that of a state or an item
    tells nobody whose it is.
    """

    event: LogEvent
    words: str
    kind: Literal["chat", "thread", "state", "item"]
    thread_id: str | None


class LogPage(Value, frozen=True, kw_only=True):
    """
    Events, the newest first.

    `position` is the end of what was read, after which newer ones follow. `older` is to be sent as `before` for those before
    them, None at the beginning of the log.
    """

    rows: list[LogRow]
    position: int
    older: int | None


def log(
    call: HttpCall,
    *,
    chat: str | None = None,
    topic: str | None = None,
    actor: str | None = None,
    before: Position | None = None,
) -> LogPage:
    """Read the last events of the log, or those before a position."""
    end = call.reader.position if before is None else max(before - 1, 0)
    events, reached = _last_events(_Filter(call, chat, topic, actor), end, _ROWS)
    return LogPage(rows=list(map(_row, reversed(events))), position=end, older=reached + 1 if reached else None)


def log_rows(
    call: HttpCall, *, after: Position, chat: str | None = None, topic: str | None = None, actor: str | None = None
) -> LogPage:
    """Read the events after a position, as rows for a page that is shown."""
    events = list(islice(_Filter(call, chat, topic, actor).events(after, None), _WINDOW))
    end = events[-1].position if events else after
    return LogPage(rows=list(map(_row, reversed(events))), position=end, older=None)


class _Filter:
    """The events that the page shows."""

    def __init__(self, call: HttpCall, chat: str | None, topic: str | None, actor: str | None) -> None:
        self._call, self.chat = call, chat or None
        self._topics = {topic} if topic else None
        self._actor = actor or None

    @property
    def is_sparse(self) -> bool:
        """Whether events that are not shown may have to be read: those of other chats need not."""
        return self.chat is None or self._topics is not None or self._actor is not None

    def events(self, after: int, up_to: int | None) -> Iterator[Recorded]:
        return self._call.reader.history(self.chat, after=after, up_to=up_to, topics=self._topics, actor=self._actor)


def last_position(call: HttpCall, chat_id: str, end: int) -> int | None:
    """Return the position of the last event of a chat up to one; None where it has none."""
    events, _ = _last_events(_Filter(call, chat_id, None, None), end, 1)
    return events[-1].position if events else None


def _last_events(wanted: _Filter, end: int, count: int) -> tuple[list[Recorded], int]:
    """
    The last `count` events up to a position, and the position down to which there is none left that was not read.

    The log is read forwards only: in windows, each before the one that was read, and wider. What lies between the events of a
    chat costs nothing, so that its first event is always found; with other filters so much of the log is searched.
    """
    events: list[Recorded] = []
    low, size = end, _WINDOW
    while low > 0 and len(events) < count and (not wanted.is_sparse or end - low < _SEARCHED):
        start = max(low - size, 0)
        # One more than is looked at shows that the window was too wide.
        part = list(islice(wanted.events(start, low), _SEARCHED + 1))
        if len(part) > _SEARCHED and size > _WINDOW:
            size = max(size // _WIDER, _WINDOW)
            continue
        events, low, size = part + events, start, size * _WIDER
    if len(events) > count:
        events = events[-count:]
        low = events[0].position - 1
    return events, low


def _row(recorded: Recorded) -> LogRow:
    event = log_event(recorded)
    family = next((family for family in FAMILIES if event.chat_id.startswith(family.prefix)), None)
    return LogRow(
        event=event,
        words=describe_event(recorded),
        kind="chat" if family is None else family.name,
        thread_id=None if family is None else family.key_of(event.chat_id),
    )


PAGES: Final = (
    ExplorerPage("/log", log, "log.html", title="Log"),
    ExplorerPage("/log/rows", log_rows, "log_rows.html"),
)
