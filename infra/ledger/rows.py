"""Rows: a chat as a git graph, one message a row, a window at a time."""

from bisect import bisect_left
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from operator import itemgetter
from typing import Final

from chatledger.domain.draw.rows import (
    BranchPoint,
    BranchPointChild,
    BranchPointPage,
    GraphRow,
    RowEdge,
    RowLine,
    RowPoint,
    RowStrip,
    RowWindow,
)
from chatledger.domain.errors import ChatNotFoundError, InvalidValueError, MessageNotFoundError
from chatledger.domain.limits import check_count, sought_id
from chatledger.domain.values import Message, preview
from chatledger.projections.chat.chains import Place
from chatledger.projections.chat.reader import IndexedChat
from chatledger.projections.chat.rows import ChatRows, edges_through, rows_of

from ..store.commands import ChatsToRead
from .port import LedgerPart

_MOST_PIXELS: Final = 10_000
_MOST_NAMES: Final = 20


class RowMethods(LedgerPart):
    """The part of a ledger that gives chats as rows of a drawing."""

    def get_rows(self, chat_id: str, *, first: int = 0, limit: int = 200, around: str | None = None) -> RowWindow:
        """
        A window of a chat drawn as a git graph: one message a row in log order, each branch in a lane.

        Args:
            chat_id: The chat.
            first: The first row. A window that begins after the end is empty.
            limit: At most this many rows.
            around: A message; the window has it in its middle, as far as there are rows, instead of beginning at `first`.

        Returns:
            The rows, oldest first: a message comes before those that answer it. A message stays in its row for ever; what is
            appended comes below. Lanes change with `RowWindow.version`, mostly where a branch is made, activated or goes on that
            had ended.

        Raises:
            ChatNotFoundError: There is no such chat.
            MessageNotFoundError: The chat has no message `around`.

        Source: the LMDB index at `position`. Costs O(limit + lines), and once in a while the pages of the chat, whose rows and
        lanes are kept in memory.
        """
        check_count(first, "first")
        check_count(limit, "limit")
        with self._rows(chat_id) as (chat, rows):
            if around is not None:
                place = chat.place(sought_id(around, "around"))
                if place is None:
                    raise MessageNotFoundError(around, chat_id=chat_id)
                first = max(min(rows.order.row(place) - limit // 2, rows.total - limit), 0)
            return _window(chat, rows, first, min(first + limit, rows.total))

    def list_branch_points(
        self, chat_id: str, *, after: int | None = None, above: int | None = None, limit: int = 100
    ) -> BranchPointPage:
        """
        The messages of a chat that have several answers, by row, each with its children and their branches.

        Args:
            chat_id: The chat.
            after: A row: only those below it, such as `BranchPointPage.next` of the page before. None for the first page.
            above: A row: only those above it, and of these the last ones.
            limit: At most this many.

        Raises:
            ChatNotFoundError: There is no such chat.

        Source: the LMDB index at `position`. Costs O(branches + forks) and, for each child, the lines and branches below it.
        """
        if not check_count(limit, "limit"):
            msg = "limit must be at least 1, for a page has a branch point"
            raise InvalidValueError(msg)
        with self._rows(chat_id) as (chat, rows):
            forks = sorted(((_row_of(rows, place), place) for place in _forks(rows)), key=_row_of_fork)
            start = 0 if after is None else bisect_left(forks, after + 1, key=_row_of_fork)
            end = len(forks) if above is None else bisect_left(forks, above, key=_row_of_fork)
            if above is not None:
                start = max(start, end - limit)
            shown = forks[start : min(start + limit, end)]
            heads = _Heads(rows)
            points = [_branch_point(chat, rows, place, heads) for _, place in shown]
            is_more = start + limit < end
            return BranchPointPage(points=points, total=len(forks), next=shown[-1][0] if is_more else None)

    def get_row_numbers(self, chat_id: str, message_ids: Iterable[str]) -> dict[str, int]:
        """
        The rows of messages of a chat, by message id; without those that the chat does not have.

        Raises:
            ChatNotFoundError: There is no such chat.

        Source: the LMDB index at `position`. Costs a look-up for each.
        """
        with self._rows(chat_id) as (chat, rows):
            wanted = [sought_id(message_id, "message_id") for message_id in message_ids]
            chat.look_up(wanted)
            places = ((message_id, chat.place(message_id)) for message_id in wanted)
            return {message_id: rows.order.row(place) for message_id, place in places if place is not None}

    def get_row_strip(self, chat_id: str, *, height: int = 800) -> RowStrip:
        """
        A whole chat in few pixels, for a map beside its rows.

        Args:
            chat_id: The chat.
            height: The number of pixels, 1 to 10,000.

        Raises:
            ChatNotFoundError: There is no such chat.

        Source: the LMDB index at `position`. Costs O(runs of messages that follow each other in one lane).
        """
        if not 0 < check_count(height, "height") <= _MOST_PIXELS:
            msg = f"height must be 1 to {_MOST_PIXELS:,} pixels, not {height}"
            raise InvalidValueError(msg)
        with self._rows(chat_id) as (chat, rows):
            return _strip(chat, rows, height)

    def get_row_line(self, chat_id: str, message_id: str) -> RowLine:
        """
        The line of a message, with all that forks off it: which rows are folded away together.

        Raises:
            ChatNotFoundError: There is no such chat.
            MessageNotFoundError: The chat has no such message.

        Source: the LMDB index at `position`. Costs O(runs of messages of these lines).
        """
        with self._rows(chat_id) as (chat, rows):
            place = chat.place(sought_id(message_id, "message_id"))
            if place is None:
                raise MessageNotFoundError(message_id, chat_id=chat_id)
            number = rows.layout.line(place)
            line = rows.layout.lines[number]
            parts = [part for below in rows.layout.lines[number : line.end] for part in below.parts]
            spans = _merged(span for part in parts for span in rows.order.spans(*part))
            count = sum(last - first + 1 for _, first, last in parts)
            return RowLine(line=line.first, lane=line.lane, count=count, spans=spans)

    @contextmanager
    def _rows(self, chat_id: str) -> Generator[tuple[IndexedChat, ChatRows]]:
        sought = sought_id(chat_id, "chat_id")
        with self._store.snapshot(ChatsToRead(sought)) as snapshot:
            chat = snapshot.chat(sought)
            if chat.record is None:
                raise ChatNotFoundError(chat_id)
            yield chat, rows_of(chat)


def _window(chat: IndexedChat, rows: ChatRows, first: int, end: int) -> RowWindow:
    record = chat.record
    assert record is not None, "only a living chat has rows"
    order, layout = rows.order, rows.layout
    places = [(segment, offset + at) for _, segment, offset, count in order.runs(first, end) for at in range(count)]
    shown = zip(range(first, end), places, chat.chains.bare_messages(places), strict=True)
    active = chat.branch_row(record.active_branch)
    head = None if active is None or active.place is None else _point(rows, active.place)
    return RowWindow(
        chat_id=chat.chat_id,
        version=chat.own_version,
        total=rows.total,
        lanes=layout.lanes,
        active=record.active_branch,
        head=head,
        first=first,
        rows=[_row(chat, rows, row, place, message) for row, place, message in shown],
        through=[_edge(rows, parent, child) for parent, child in edges_through(rows, end)] if end > first else [],
    )


def _row(chat: IndexedChat, rows: ChatRows, row: int, place: Place, message: Message) -> GraphRow:
    line = rows.layout.lines[rows.layout.line(place)]
    parent = chat.chains.parent(place)
    annotation = chat.chains.annotations.at(place)
    is_hidden = annotation is not None and annotation.hidden
    return GraphRow(
        row=row,
        id=message.id,
        lane=line.lane,
        line=line.first,
        parents=[] if parent is None else [_point(rows, parent)],
        role=message.name,
        preview="" if is_hidden else preview(message.data, message.form),
        created_at=message.created_at,
        branches=rows.heads.get(row, []),
        checkpoints=rows.checkpoints.get(row, []),
        stale=annotation is not None and annotation.stale,
        hidden=is_hidden,
        replaced_by=None if annotation is None else annotation.replaced_by,
        children=len(rows.children(place)),
    )


def _point(rows: ChatRows, place: Place) -> RowPoint:
    return RowPoint(rows.order.row(place), rows.layout.lane(place))


def _edge(rows: ChatRows, parent: Place, child: Place) -> RowEdge:
    above, below = _point(rows, parent), _point(rows, child)
    return RowEdge(above.row, above.lane, below.row, below.lane)


_row_of_fork: Final = itemgetter(0)


def _row_of(rows: ChatRows, place: Place | None) -> int:
    """The row of a branch point; -1 for the roots."""
    return -1 if place is None else rows.order.row(place)


def _forks(rows: ChatRows) -> Iterator[Place | None]:
    """Yield the places of the messages that have several children; None where there are several roots."""
    # A first child goes on in its parent's segment, so whatever hangs on a message is a second one; of roots the first hangs too.
    for place, below in rows.layout.hanging.items():
        if place is not None or len(below) > 1:
            yield place


class _Heads:
    """The heads of branches by the line that they are in, to find the branches that have a message in their chain."""

    def __init__(self, rows: ChatRows) -> None:
        self._rows = rows
        line_of, place = rows.layout.line, rows.order.place
        self._by_age = [(line_of(place(row)), row, name) for name, row in rows.branches]
        self._by_line = sorted((line, at) for at, (line, _, _) in enumerate(self._by_age))
        self._hanging: dict[int, tuple[list[int], list[int]]] = {}

    def below(self, place: Place) -> list[str]:
        """The names of the first branches, by `created_at`, whose chain has the message at a place."""
        row, number = self._rows.order.row(place), self._rows.layout.line(place)
        end = self._end_below(number, row)
        first, last = bisect_left(self._by_line, (number,)), bisect_left(self._by_line, (end,))
        # Where few branches are below, these are sorted by age. Where many are, all branches are looked through by age: so many have
        # the message that the first of them come soon.
        heads: Iterable[tuple[int, int, str]] = self._by_age
        if (last - first) ** 2 < _MOST_NAMES * len(self._by_age):
            heads = (self._by_age[at] for at in sorted(at for _, at in self._by_line[first:last]))
        named = (name for line, head, name in heads if number < line < end or (line == number and head >= row))
        return list(islice(named, _MOST_NAMES))

    def _end_below(self, number: int, row: int) -> int:
        """The number of the line after those that fork off a line below a row, which come before those that fork off above it."""
        lines = self._rows.layout.lines
        if number not in self._hanging:
            forked: list[int] = []
            at = number + 1
            while at < lines[number].end:
                forked.append(at)
                at = lines[at].end
            self._hanging[number] = forked, [-lines[line].start for line in forked]
        forked, starts = self._hanging[number]
        at = bisect_left(starts, -row)
        return forked[at] if at < len(forked) else lines[number].end


def _branch_point(chat: IndexedChat, rows: ChatRows, place: Place | None, heads: _Heads) -> BranchPoint:
    message = None if place is None else chat.chains.message(place)
    return BranchPoint(
        row=None if place is None else rows.order.row(place),
        id=None if message is None else message.id,
        role=None if message is None else message.name,
        preview="" if message is None else _preview(message),
        children=[_child(chat, rows, child, heads) for child in rows.children(place)],
    )


def _child(chat: IndexedChat, rows: ChatRows, place: Place, heads: _Heads) -> BranchPointChild:
    message = chat.chains.message(place)
    return BranchPointChild(
        row=rows.order.row(place),
        lane=rows.layout.lane(place),
        id=message.id,
        role=message.name,
        preview=_preview(message),
        branches=heads.below(place),
    )


def _preview(message: Message) -> str:
    return "" if message.is_hidden else preview(message.data, message.form)


def _strip(chat: IndexedChat, rows: ChatRows, height: int) -> RowStrip:
    record = chat.record
    assert record is not None, "only a living chat has rows"
    pixels: list[set[int]] = [set() for _ in range(height)]
    total = max(rows.total, 1)
    for line in rows.layout.lines:
        for part in line.parts:
            for first, last in rows.order.spans(*part):
                for pixel in {first * height // total, last * height // total}:
                    pixels[pixel].add(line.lane)
                _fill(pixels, first, last, line.lane, total)
    forks = {max(_row_of(rows, place), 0) * height // total for place in _forks(rows)}
    return RowStrip(
        version=chat.own_version,
        total=rows.total,
        lanes=rows.layout.lanes,
        height=height,
        pixels=[sorted(lanes) for lanes in pixels],
        forks=sorted(forks),
    )


def _fill(pixels: Sequence[set[int]], first: int, last: int, lane: int, total: int) -> None:
    """Put a lane into the pixels between those of two rows that have a row."""
    height = len(pixels)
    low, high = first * height // total + 1, last * height // total
    if high <= low:
        return
    if height <= total:
        for pixel in range(low, high):
            pixels[pixel].add(lane)
    else:
        for row in range(first + 1, last):
            pixels[row * height // total].add(lane)


def _merged(spans: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Join spans of rows that touch each other."""
    joined: list[list[int]] = []
    for first, last in sorted(spans):
        if joined and joined[-1][1] + 1 == first:
            joined[-1][1] = last
        else:
            joined.append([first, last])
    return joined
