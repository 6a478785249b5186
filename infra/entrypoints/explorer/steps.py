"""Steps of a chat: its own commits, which the time slider goes through; and those of the ledger, which are its positions."""

import sys
import threading
from array import array
from bisect import bisect_right
from collections import OrderedDict
from itertools import islice, pairwise
from statistics import median
from typing import Annotated, Final
from weakref import WeakKeyDictionary

import msgspec

from chatledger.domain.errors import ChatNotFoundError
from chatledger.domain.values import Chat
from chatledger.domain.wire import Value

from ...ledger.expiry import moment_ms
from ...ledger.ledger import Ledger
from ..http.routing import HttpCall, moment_of
from ..http.service import Service
from .page import ExplorerPage

_READ_AT_ONCE: Final = 20_000
_KEPT_CHATS: Final = 64
_LEAST_IDLE_MS: Final = 60_000
_IDLE_GAPS: Final = 20
"""A pause is idle from so many times the median of all pauses on, and never below a minute."""
_NEAR: Final = 20
"""The most events that are read to find the time of a position."""
_LEFT_OUT: Final = 200
"""The density is counted anew when the steps have grown by this part of them: less is not seen, and each count looks at all."""


class ChatStep(Value, frozen=True, kw_only=True):
    """
    A commit of the chat, one event or several that nobody ever saw apart.

    `number` counts from 0; `position` is that of its last event on the log, `at` its time in milliseconds, `type` that of its
    first event.
    """

    number: int
    position: int
    at: int
    type: str


class Density(Value, frozen=True, kw_only=True):
    """
    Some steps, one after another: how many, and how fast they came.

    `busy_ms` is the time that they took without what was squeezed, and `idle_ms` what was: pauses much longer than usual.
    """

    first: int
    count: int
    busy_ms: int
    idle_ms: int


class StepWindow(Value, frozen=True, kw_only=True):
    """
    A window of the steps of a chat.

    `total` counts all that were read; where `is_complete` is false, there are more, which the next request finds. `index` is
    the number of the last step up to the moment that was asked for, None without one.
    """

    total: int
    is_complete: bool
    index: int | None
    steps: list[ChatStep]
    density: list[Density]


def steps(
    call: HttpCall,
    chat_id: str,
    *,
    first: Annotated[int, msgspec.Meta(ge=0, le=2**40)] = 0,
    limit: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 200,
    around: str | None = None,
    buckets: Annotated[int, msgspec.Meta(ge=0, le=400)] = 0,
) -> StepWindow:
    """Read a window of the steps of a chat; with `around` in the middle of it the last one up to that position or time."""
    chat = call.ledger.get_chat(chat_id)
    if chat is None:
        raise ChatNotFoundError(chat_id)
    events = _CACHES.setdefault(call.service, _Cache()).events_of(call.principal.user_id, chat)
    with events.lock:
        is_complete = events.read(call.ledger, chat_id)
        index = None if around is None else events.number_at(around)
        if index is not None:
            first = max(index - limit // 2, 0)
        return StepWindow(
            total=len(events.positions),
            is_complete=is_complete,
            index=index,
            steps=[events.step(number) for number in range(first, min(first + limit, len(events.positions)))],
            density=events.density(buckets),
        )


def ledger_steps(
    call: HttpCall,
    *,
    first: Annotated[int, msgspec.Meta(ge=0, le=2**40)] = 0,
    limit: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 200,
    around: str | None = None,
    buckets: Annotated[int, msgspec.Meta(ge=0, le=400)] = 0,
) -> StepWindow:
    """
    Read a window of the steps of the whole ledger: its positions; with `around` in the middle of it the last one up to that moment.

    A user has none: how many events others have, and when, is theirs.
    """
    if call.principal.user_id is not None:
        return StepWindow(total=0, is_complete=True, index=None, steps=[], density=[])
    total = call.ledger.position
    index = None if around is None else max(min(_position_of(call, around), total) - 1, 0)
    if index is not None:
        first = max(index - limit // 2, 0)
    commits = call.ledger.history(after=first, up_to=min(first + limit, total)) if first < total else ()
    return StepWindow(
        total=total,
        is_complete=True,
        index=index,
        steps=[
            ChatStep(
                number=recorded.position - 1,
                position=recorded.position,
                at=recorded.occurred_at,
                type=recorded.type,
            )
            for recorded in commits
        ],
        density=_LEDGERS.setdefault(call.service, _LedgerPace()).density(call.ledger, total, buckets),
    )


def _position_of(call: HttpCall, moment: str) -> int:
    point = moment_of(moment, "around")
    if isinstance(point, int):
        return point
    with call.ledger.as_of(point) as view:
        return view.position


class _LedgerPace:
    """The density of all events of a ledger, from the times of some of them, which are read again when there are more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._drawn: tuple[int, int, list[Density]] = (0, 0, [])

    def density(self, ledger: Ledger, total: int, buckets: int) -> list[Density]:
        """So many parts of all positions, or fewer."""
        with self._lock:
            counted, drawn, parts = self._drawn
            if drawn != buckets or not total - total // _LEFT_OUT <= counted <= total:
                parts = self._counted(ledger, total, buckets)
                self._drawn = total, buckets, parts
            return parts

    @staticmethod
    def _counted(ledger: Ledger, total: int, buckets: int) -> list[Density]:
        bounds = sorted({total * number // buckets for number in range(buckets + 1)}) if buckets and total else []
        # Where the events of deleted chats were, nothing tells when they came: as late as those before them.
        near = (next(ledger.history(after=min(at, total - 1), up_to=min(at + _NEAR, total)), None) for at in bounds)
        known_times = [None if recorded is None else recorded.occurred_at for recorded in near]
        latest = next((time for time in known_times if time is not None), 0)
        times: list[int] = []
        for time in known_times:
            latest = latest if time is None else time
            times.append(latest)
        spans = [max(later - earlier, 0) for earlier, later in pairwise(times)]
        counts = [end - first for first, end in pairwise(bounds)]
        usual = median([span / count for span, count in zip(spans, counts, strict=True)]) if spans else 0
        parts: list[Density] = []
        for first, count, span in zip(bounds, counts, spans, strict=False):
            busy = min(span, max(_LEAST_IDLE_MS, round(count * usual * _IDLE_GAPS)))
            parts.append(Density(first=first, count=count, busy_ms=busy, idle_ms=span - busy))
        return parts


class _ChatEvents:
    """The events of one chat that were read; they grow at the end only."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._first_type: str | None = None
        self._read_to, self._last_id = 0, ""
        self.positions, self.times = array("Q"), array("Q")
        self.types: list[str] = []
        self._drawn: tuple[int, int, list[Density]] = (0, 0, [])

    def read(self, ledger: Ledger, chat_id: str) -> bool:
        """Read what was written since; return whether that was all."""
        if self._read_to:
            # The last one is read again: where it is gone, the chat was deleted, and another one has its id.
            last = next(ledger.history(chat_id, after=self._read_to - 1, up_to=self._read_to), None)
            if last is None or last.event_id != self._last_id:
                self._forget()
        # A part at a time, so that the first look at a long chat does not hold its lock for long; the next one reads on.
        count = 0
        for recorded in islice(ledger.history(chat_id, after=self._read_to), _READ_AT_ONCE):
            self._read_to, self._last_id, count = recorded.position, recorded.event_id, count + 1
            first_type = self._first_type or recorded.type
            if recorded.event.rest:  # more of the same commit follow
                self._first_type = first_type
                continue
            self._first_type = None
            self.positions.append(recorded.position)
            self.times.append(recorded.occurred_at)
            self.types.append(sys.intern(first_type))
        return count < _READ_AT_ONCE

    def number_at(self, moment: str) -> int:
        """The number of the last step up to a position or a time, or of the first one."""
        point = moment_of(moment, "around")
        if isinstance(point, int):
            return max(bisect_right(self.positions, point) - 1, 0)
        return max(bisect_right(self.times, moment_ms(point, "around")) - 1, 0)

    def step(self, number: int) -> ChatStep:
        return ChatStep(
            number=number,
            position=self.positions[number],
            at=self.times[number],
            type=self.types[number],
        )

    def density(self, buckets: int) -> list[Density]:
        """So many parts of all steps, or fewer; where few steps came since they were counted, those are left out."""
        total = len(self.positions)
        counted, drawn, parts = self._drawn
        if drawn != buckets or counted < total - total // _LEFT_OUT:
            parts = self._counted(total, buckets)
            self._drawn = total, buckets, parts
        return parts

    def _counted(self, total: int, buckets: int) -> list[Density]:
        if not buckets or not total:
            return []
        gaps = [max(later - earlier, 0) for earlier, later in pairwise(self.times)]
        gaps.insert(0, round(median(gaps)) if gaps else 0)  # before the first one there was nothing: as fast as others
        most = max(_LEAST_IDLE_MS, round(median(gaps) * _IDLE_GAPS))
        bounds = [total * number // buckets for number in range(buckets + 1)]
        return [
            Density(
                first=first,
                count=end - first,
                busy_ms=sum(min(gap, most) for gap in gaps[first:end]),
                idle_ms=sum(max(gap - most, 0) for gap in gaps[first:end]),
            )
            for first, end in pairwise(bounds)
            if end > first
        ]


class _Cache:
    """The chats that were looked at last, by user: what one of them may know of a chat, another may not."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._chats: OrderedDict[tuple[str | None, str, int], _ChatEvents] = OrderedDict()

    def events_of(self, user_id: str | None, chat: Chat) -> _ChatEvents:
        """Return what was read of a chat for a user; None for a caller that sees everybody's."""
        # With the time when it was made: a chat that was deleted and made anew under its id has other steps.
        key = (user_id, chat.id, chat.created_at)
        with self._lock:
            events = self._chats.pop(key, None) or _ChatEvents()
            self._chats[key] = events
            if len(self._chats) > _KEPT_CHATS:
                self._chats.popitem(last=False)
        return events


_CACHES: Final[WeakKeyDictionary[Service, _Cache]] = WeakKeyDictionary()
_LEDGERS: Final[WeakKeyDictionary[Service, _LedgerPace]] = WeakKeyDictionary()

PAGES: Final = (ExplorerPage("/c/{chat_id}/steps", steps), ExplorerPage("/steps", ledger_steps))
