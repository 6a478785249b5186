"""The page of the log: its events, the newest first, and those that come."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Annotated, Final, Literal

import msgspec

from chatledger.domain.chat.recorded import Recorded
from chatledger.domain.draw.event_words import describe_event
from chatledger.domain.errors import ChatledgerError
from chatledger.domain.versioned.keys import FAMILIES
from chatledger.domain.wire import Value

from ..http.native.history import LogEvent, log_event
from ..http.problems import RequestError
from ..http.routing import HttpCall, moment_of
from .chats import LATELY, Lately
from .page import ExplorerPage, moment_ms

_ROWS: Final = 100
_WINDOW: Final = 200
_FEW: Final = 4
_WIDER: Final = 8
_SEARCHED: Final = 5000
"""Events that are looked through at once: reading one takes 0.1 ms."""

_DAY_LETTERS: Final = 10

Position = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Words = Annotated[str, msgspec.Meta(max_length=1000)]
Kind = Literal["chat", "thread", "state", "item"]


class LogRow(Value, frozen=True, kw_only=True):
    """
    An event of the log, and what it did in words.

    `kind` says what its stream is: a `chat`, with the title that it has now, or a versioned value; `is_gone`, that the chat is not
    there any more. The stream of a thread names it; that of a state or an item tells nobody whose it is.
    """

    event: LogEvent
    words: str
    kind: Kind
    is_gone: bool
    title: str | None
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
    q: Words = "",
    chat: str | None = None,
    topic: str | None = None,
    actor: str | None = None,
    lately: Lately = "",
    since: str | None = None,
    until: str | None = None,
    before: Position | None = None,
) -> LogPage:
    """Read the last events of the log, or those before a position. All filters combine; days are those of UTC."""
    wanted = _Filter(call, q, chat, topic, actor, lately, since, until)
    end = call.reader.position if before is None else max(before - 1, 0)
    events, reached = _last_events(wanted, min(end, wanted.last), _ROWS)
    rows = [wanted.row(recorded) for recorded in reversed(events)]
    return LogPage(rows=rows, position=end, older=reached + 1 if reached > wanted.first else None)


def log_rows(
    call: HttpCall,
    *,
    after: Position,
    q: Words = "",
    chat: str | None = None,
    topic: str | None = None,
    actor: str | None = None,
    lately: Lately = "",
    since: str | None = None,
    until: str | None = None,
) -> LogPage:
    """Read the events after a position that `log` would show, as rows for a page that is shown."""
    wanted = _Filter(call, q, chat, topic, actor, lately, since, until)
    events = list(islice(wanted.events(after, None), _WINDOW))
    end = events[-1].position if events else after
    return LogPage(rows=[wanted.row(recorded) for recorded in reversed(events)], position=end, older=None)


class _Filter:
    """
    The events that the page shows.

    Attributes:
        first: The position after which the first of them may be: the time of a filter is looked for in the log once.
    """

    def __init__(
        self,
        call: HttpCall,
        q: str,
        chat: str | None,
        topic: str | None,
        actor: str | None,
        lately: Lately,
        since: str | None,
        until: str | None,
    ) -> None:
        self._call, self.chat = call, chat or None
        self._topics = {topic} if topic else None
        self._actor = actor or None
        self._words = q.casefold().split()
        self._titles: dict[str, str | None] = {}
        self._gone: set[str] = set()
        begin = None
        if lately:
            now = datetime.fromtimestamp((moment_ms(call) or time.time() * 1000) / 1000, UTC)
            begin = now - timedelta(milliseconds=LATELY[lately][1])
        self._since = begin if not since else max(filter(None, (begin, _time_of(since, "since"))))
        self._until = None if not until else _time_of(until, "until")
        if self._until is not None and until is not None and len(until) == _DAY_LETTERS:
            self._until += timedelta(days=1, milliseconds=-1)
        self.first = 0 if self._since is None else self._position_at(self._since - timedelta(milliseconds=1))
        self.last = 2**63 - 1 if self._until is None else self._position_at(self._until)

    def _position_at(self, moment: datetime) -> int:
        with self._call.ledger.as_of(moment) as then:
            return then.position

    @property
    def is_sparse(self) -> bool:
        """Whether events that are not shown may have to be read: those of other chats need not."""
        return self.chat is None or bool(self._topics or self._actor or self._words)

    def events(self, after: int, up_to: int | None) -> Iterator[Recorded]:
        wanted = self._call.reader.history(
            self.chat,
            after=after,
            up_to=up_to,
            topics=self._topics,
            actor=self._actor,
            since=self._since,
            until=self._until,
        )
        return filter(self._has_words, wanted) if self._words else wanted

    def _has_words(self, recorded: Recorded) -> bool:
        kind, title, thread_id = self._where(recorded.chat_id)
        where = recorded.chat_id if kind == "chat" else thread_id
        names = (describe_event(recorded), title, where, recorded.type, recorded.event.actor)
        text = " ".join(filter(None, names)).casefold()
        return all(word in text for word in self._words)

    def _where(self, stream_id: str) -> tuple[Kind, str | None, str | None]:
        """Return the kind of a stream, the title of its chat, and the id of its thread."""
        family = next((family for family in FAMILIES if stream_id.startswith(family.prefix)), None)
        if family is not None:
            return family.name, None, family.key_of(stream_id)
        if stream_id not in self._titles:
            # As of now also where the past is shown: what is called so is what a reader looks for.
            try:
                there = self._call.ledger.get_chat(stream_id)
            except ChatledgerError:  # it is in quarantine, say
                there = None
            self._titles[stream_id] = None if there is None else there.title
            if there is None:
                self._gone.add(stream_id)
        return "chat", self._titles[stream_id], None

    def row(self, recorded: Recorded) -> LogRow:
        kind, title, thread_id = self._where(recorded.chat_id)
        return LogRow(
            event=log_event(recorded),
            words=describe_event(recorded),
            kind=kind,
            is_gone=recorded.chat_id in self._gone,
            title=title,
            thread_id=thread_id,
        )


def _time_of(text: str, name: str) -> datetime:
    """Return a time, or the beginning of a day in UTC."""
    moment = moment_of(f"{text}T00:00Z" if len(text) == _DAY_LETTERS else text, name)
    if not isinstance(moment, datetime):
        raise RequestError(422, f"{name} is a day or a time with an offset, not a position", name="InvalidValueError")
    return moment


def last_commit(call: HttpCall, chat_id: str, end: int) -> list[Recorded]:
    """Return the events of a chat that were committed together last, up to a position; none where it has none."""
    wanted, count = _Filter(call, "", chat_id, None, None, "", None, None), _FEW
    while True:
        events, _ = _last_events(wanted, end, count)
        before = next((at for at in range(len(events) - 2, -1, -1) if not events[at].event.rest), None)
        if before is not None or len(events) < count:
            return events[0 if before is None else before + 1 :]
        # An import is one commit of up to thousands of events.
        count *= _WIDER


def _last_events(wanted: _Filter, end: int, count: int) -> tuple[list[Recorded], int]:
    """
    The last `count` events up to a position, and the position down to which there is none left that was not read.

    The log is read forwards only: in windows, each before the one that was read, and wider. What lies between the events of a
    chat costs nothing, so that its first event is always found; with other filters so much of the log is searched.
    """
    events: list[Recorded] = []
    low, size = end, min(_WINDOW, 2 * count)
    lowest = max(wanted.first, end - _SEARCHED) if wanted.is_sparse else wanted.first
    while low > lowest and len(events) < count:
        start = max(low - size, lowest)
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


PAGES: Final = (
    ExplorerPage("/log", log, "log.html", title="Log"),
    ExplorerPage("/log/rows", log_rows, "log_rows.html"),
)
