"""Steps of a chat: its own commits, which the time slider goes through; and those of the ledger, which are its positions."""

import sys
import threading
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from itertools import accumulate, groupby, islice, pairwise
from statistics import median
from typing import Annotated, Final, NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from chatledger.domain.draw.event_words import messages_of
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
_MOST_PAUSES: Final = 8
"""More breaks than that would leave too little of the axis."""
_NEAR: Final = 20
"""The most events that are read to find the time of a position."""
_LEFT_OUT: Final = 200
"""The axis is made anew when the steps have grown by this part of them: less is not seen, and each count looks at all."""


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
    Some steps, one after another: a bar of the axis.

    `first` is the number of the first one, `at` its time, `count` how many they are, and `size` what they brought: messages, and
    pointers that were moved. `x` and `to_x` say where on the axis the first and the last one are, from 0 to 1.
    """

    first: int
    count: int
    size: int
    at: int
    x: float
    to_x: float


class Pause(Value, frozen=True, kw_only=True):
    """A pause that is cut out of the axis: where, before the step of which number, and how many milliseconds it lasted."""

    x: float
    before: int
    ms: int


class StepWindow(Value, frozen=True, kw_only=True):
    """
    A window of the steps of a chat.

    `total` counts all that were read; where `is_complete` is false, there are more, which the next request finds. `index` is
    the number of the last step up to the moment that was asked for, None without one. The axis goes by time without its pauses;
    by the numbers of the steps where `is_by_number`, as where all came within a minute: every import is such.
    """

    total: int
    is_complete: bool
    index: int | None
    steps: list[ChatStep]
    density: list[Density]
    pauses: list[Pause]
    is_by_number: bool


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
            **events.axis(buckets)._asdict(),
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
        return StepWindow(total=0, is_complete=True, index=None, steps=[], **_NO_AXIS._asdict())
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
        **_LEDGERS.setdefault(call.service, _LedgerPace()).axis(call.ledger, total, buckets)._asdict(),
    )


def _position_of(call: HttpCall, moment: str) -> int:
    point = moment_of(moment, "around")
    if isinstance(point, int):
        return point
    with call.ledger.as_of(point) as view:
        return view.position


class _Axis(NamedTuple):
    density: list[Density]
    pauses: list[Pause]
    is_by_number: bool


_NO_AXIS: Final = _Axis([], [], is_by_number=True)


def _axis_of(firsts: Sequence[int], times: Sequence[int], sizes: Sequence[int], total: int, buckets: int) -> _Axis:
    """Put steps, or groups of them, on an axis, in so many bars of equal width, and one more for each pause."""
    if not buckets or not firsts:
        return _NO_AXIS
    is_by_number = times[-1] - times[0] < _LEAST_IDLE_MS
    gaps = [max(later - earlier, 0) for earlier, later in pairwise(times)]
    most = max(_LEAST_IDLE_MS, round(median(gaps) * _IDLE_GAPS)) if gaps else 0
    # A break takes width of its own: of many pauses only the longest are drawn as such, the others are shortened.
    long = [] if is_by_number else [at for at, gap in enumerate(gaps) if gap > most]
    broken = set(sorted(long, key=gaps.__getitem__)[-_MOST_PAUSES:])
    lengths = [1 if is_by_number else 0 if at in broken else min(gap, most) for at, gap in enumerate(gaps)]
    if not any(lengths):  # bursts of a moment each: they stand equally far apart
        lengths = [int(at in broken) for at in range(len(gaps))]
    at_x = list(accumulate(lengths, initial=0))
    whole = at_x[-1] or 1
    density: list[Density] = []
    # What came before a pause and after it is not one bar, though both may stand at one place.
    pauses_to = list(accumulate((at in broken for at in range(len(gaps))), initial=0))
    places = zip(pauses_to, (min(x * buckets // whole, buckets - 1) for x in at_x), strict=True)
    for _, group in groupby(enumerate(places), key=lambda numbered: numbered[1]):
        members = [number for number, _ in group]
        end = firsts[members[-1] + 1] if members[-1] + 1 < len(firsts) else total
        density.append(
            Density(
                first=firsts[members[0]],
                count=end - firsts[members[0]],
                size=sum(sizes[at] for at in members),
                at=times[members[0]],
                x=at_x[members[0]] / whole,
                to_x=at_x[members[-1]] / whole,
            )
        )
    pauses = [Pause(x=at_x[at] / whole, before=firsts[at + 1], ms=gaps[at]) for at in sorted(broken)]
    return _Axis(density, pauses, is_by_number)


class _LedgerPace:
    """The axis of all events of a ledger, from the times of some of them, which are read again when there are more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._drawn: tuple[int, int, _Axis] = (0, 0, _NO_AXIS)

    def axis(self, ledger: Ledger, total: int, buckets: int) -> _Axis:
        """Return the axis of all positions, in so many bars or fewer."""
        with self._lock:
            counted, drawn, axis = self._drawn
            if drawn != buckets or not total - total // _LEFT_OUT <= counted <= total:
                axis = self._counted(ledger, total, buckets)
                self._drawn = total, buckets, axis
            return axis

    @staticmethod
    def _counted(ledger: Ledger, total: int, buckets: int) -> _Axis:
        bounds = sorted({total * number // buckets for number in range(buckets + 1)}) if buckets and total else []
        # Where the events of deleted chats were, nothing tells when they came: as late as those before them.
        near = (next(ledger.history(after=min(at, total - 1), up_to=min(at + _NEAR, total)), None) for at in bounds)
        read_times = [None if recorded is None else recorded.occurred_at for recorded in near]
        latest = next((time for time in read_times if time is not None), 0)
        times: list[int] = []
        for time in read_times:
            latest = latest if time is None else max(time, latest)
            times.append(latest)
        counts = [end - first for first, end in pairwise(bounds)]
        return _axis_of(bounds[:-1], times[:-1], counts, total, buckets)


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
        self.sizes = array("I")
        self._size = 0
        self._drawn: tuple[int, int, _Axis] = (0, 0, _NO_AXIS)

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
            self._size += max(len(messages_of(recorded)), 1)
            if recorded.event.rest:  # more of the same commit follow
                self._first_type = first_type
                continue
            self._first_type = None
            self.positions.append(recorded.position)
            self.times.append(recorded.occurred_at)
            self.types.append(sys.intern(first_type))
            self.sizes.append(self._size)
            self._size = 0
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

    def axis(self, buckets: int) -> _Axis:
        """Return the axis of all steps, in so many bars or fewer; what few steps came since it was made is left out."""
        total = len(self.positions)
        counted, drawn, axis = self._drawn
        if drawn != buckets or counted < total - total // _LEFT_OUT:
            axis = _axis_of(range(total), self.times, self.sizes, total, buckets)
            self._drawn = total, buckets, axis
        return axis


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
