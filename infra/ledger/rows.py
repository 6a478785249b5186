"""Rows: a chat as a git graph, one message a row, a window at a time."""

from bisect import bisect_left
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import chain, islice, takewhile
from operator import itemgetter
from typing import TYPE_CHECKING, Final, Literal

from chatledger.domain.draw.rows import (
    BranchPoint,
    BranchPointChild,
    BranchPointPage,
    GraphRow,
    RowBundle,
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

from .messages import path_end
from .port import LedgerPart

if TYPE_CHECKING:
    from chatledger.projections.chat.rows import ChatRows

_MOST_PIXELS: Final = 10_000
_MOST_NAMES: Final = 20
_LONGEST_MERGE: Final = 40
"""The rows over which the edge of a merge is drawn whole."""


class RowMethods(LedgerPart):
    """The part of a ledger that gives chats as rows of a drawing."""

    def get_rows(
        self,
        chat_id: str,
        *,
        first: int = 0,
        limit: int = 200,
        around: str | None = None,
        along: str | None = None,
        only: Literal["path"] | None = None,
    ) -> RowWindow:
        """
        A window of a chat drawn as a git graph: one message a row in log order, each branch in a lane.

        Args:
            chat_id: The chat.
            first: The first row. A window that begins after the end is empty.
            limit: At most this many rows.
            around: A message; the window has it in its middle, as far as there are rows, instead of beginning at `first`.
            along: What is read, and has lane 0: the path to the head of a branch, or to a message. The active branch when None.
            only: With `path` the rows are the messages of that path alone, and their numbers are depths, counted from 0.

        Returns:
            The rows, oldest first: a message comes before those that answer it. A message stays in its row for ever; what is
            appended comes below. Lanes change with `RowWindow.version`, mostly where a branch is made, activated or goes on that
            had ended, and with `along`. A line without a message in more than 18 rows is cut there.

        Raises:
            ChatNotFoundError: There is no such chat.
            BranchNotFoundError: It has neither a branch nor a message `along`.
            MessageNotFoundError: The chat, or the path where only that is read, has no message `around`.

        Source: the LMDB index at `position`. Costs O(limit + lines), and once in a while the pages of the chat, whose rows and
        lanes are kept in memory: those of the last four paths that were read. Of a path alone no lanes are laid out.
        """
        check_count(first, "first")
        check_count(limit, "limit")
        if only not in {None, "path"}:
            msg = f"only must be 'path' or None, not {only!r}"
            raise InvalidValueError(msg)
        with self._rows(chat_id) as (chat, rows):
            _, head = path_end(chat, along, chat_id=chat_id)
            place = None
            if around is not None:
                place = chat.place(sought_id(around, "around"))
                if place is None or (only and (head is None or not chat.chains.is_ancestor(place, head))):
                    raise MessageNotFoundError(around, chat_id=chat_id)
            if only:
                length = 0 if head is None else chat.chains.depth(head) + 1
                if place is not None:
                    first = max(min(chat.chains.depth(place) - limit // 2, length - limit), 0)
                return _path_window(chat, rows, head, first, min(first + limit, length))
            if place is not None:
                first = max(min(rows.order.row(place) - limit // 2, rows.total - limit), 0)
            return _window(chat, _Drawing(chat, rows, head), first, min(first + limit, rows.total))

    def list_bundled_lines(
        self, chat_id: str, row: int, *, along: str | None = None, limit: int = 100
    ) -> list[BranchPointChild]:
        """
        The lines of a chat that are cut over a row of the drawing, as `RowWindow.bundle` counts them: the first message of each.

        Args:
            chat_id: The chat.
            row: The row.
            along: What is read, as for `get_rows`.
            limit: At most this many.

        Raises:
            ChatNotFoundError: There is no such chat.
            BranchNotFoundError: It has neither a branch nor a message `along`.

        Source: the LMDB index at `position`. Costs O(lines), and for each shown one the branches below it.
        """
        check_count(row, "row")
        limit = check_count(limit, "limit")
        with self._rows(chat_id) as (chat, rows):
            drawing = _Drawing(chat, rows, path_end(chat, along, chat_id=chat_id)[1])
            cut = (
                line
                for line in drawing.layout.lines
                if line.start <= row <= line.last and not line.span(row).first <= row <= line.span(row).last
            )
            return [_child(drawing, line.parts[0][:2]) for line in islice(cut, limit)]

    def list_branch_points(
        self,
        chat_id: str,
        *,
        after: int | None = None,
        above: int | None = None,
        limit: int = 100,
        along: str | None = None,
    ) -> BranchPointPage:
        """
        The messages of a chat that have several answers, by row, each with its children and their branches.

        Args:
            chat_id: The chat.
            after: A row: only those below it, such as `BranchPointPage.next` of the page before. None for the first page.
            above: A row: only those above it, and of these the last ones.
            limit: At most this many.
            along: What is read, as for `get_rows`: it decides about lanes.

        Raises:
            ChatNotFoundError: There is no such chat.
            BranchNotFoundError: It has neither a branch nor a message `along`.

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
            drawing = _Drawing(chat, rows, path_end(chat, along, chat_id=chat_id)[1])
            points = [_branch_point(drawing, place) for _, place in shown]
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

    def get_row_strip(self, chat_id: str, *, height: int = 800, along: str | None = None) -> RowStrip:
        """
        A whole chat in few pixels, for a map beside its rows.

        Args:
            chat_id: The chat.
            height: The number of pixels, 1 to 10,000.
            along: What is read, as for `get_rows`.

        Raises:
            ChatNotFoundError: There is no such chat.
            BranchNotFoundError: It has neither a branch nor a message `along`.

        Source: the LMDB index at `position`. Costs O(runs of messages that follow each other in one lane).
        """
        if not 0 < check_count(height, "height") <= _MOST_PIXELS:
            msg = f"height must be 1 to {_MOST_PIXELS:,} pixels, not {height}"
            raise InvalidValueError(msg)
        with self._rows(chat_id) as (chat, rows):
            return _strip(_Drawing(chat, rows, path_end(chat, along, chat_id=chat_id)[1]), height)

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
            return RowLine(line=line.first, lane=line.spans[0].lane, count=count, spans=spans)

    @contextmanager
    def _rows(self, chat_id: str) -> Generator[tuple[IndexedChat, "ChatRows"]]:
        with self._chat(chat_id) as chat:
            if chat.record is None:
                raise ChatNotFoundError(chat_id)
            from chatledger.projections.chat.rows import rows_of

            yield chat, rows_of(chat)


class _Drawing:
    """A chat laid out along a path that is read."""

    def __init__(self, chat: IndexedChat, rows: "ChatRows", head: Place | None) -> None:
        from chatledger.projections.chat.rows import layout_along

        self.chat, self.rows, self.order = chat, rows, rows.order
        self.layout = layout_along(chat, rows, head)
        self.head = None if head is None else self.point(head)

    @cached_property
    def heads(self) -> "_Heads":
        """The heads of branches by line. Costs O(branches), so they are sorted only where one asks for them."""
        return _Heads(self)

    def point(self, place: Place) -> RowPoint:
        row = self.order.row(place)
        return RowPoint(row, self.layout.lane(place, row))

    def row(self, row: int, place: Place, message: Message) -> GraphRow:
        number = self.layout.line(place)
        line = self.layout.lines[number]
        parent = self.chat.chains.parent(place)
        # The path that is read is line 0 down to its end. What follows there is on other branches.
        is_on_path = self.head is not None and number == 0 and row <= self.head.row
        return _row(
            self.chat,
            self.rows,
            place,
            message,
            row=row,
            lane=line.span(row).lane,
            on_path=is_on_path,
            line=line.first,
            # Nearly every line ends in the head of its branch.
            branch=next(iter(self.rows.heads.get(line.last) or self.heads.below(place)), None),
            parents=[
                self.point(above)
                for above in (parent, *map(self.chat.place_of, message.merged_from))
                if above is not None
            ],
        )

    def edges(self, first: int, end: int, shown: Sequence[tuple[int, Place]]) -> list[RowEdge]:
        """Return what is drawn of all edges in the rows from the first one to the end, and into the one after them."""
        from chatledger.domain.draw.lanes import pieces_of
        from chatledger.projections.chat.rows import edges_through

        lines = self.layout.lines
        into = ((lines[self.layout.line(place)], self.chat.chains.parent(place), row) for row, place in shown)
        passing = (
            (line, parent, self.order.row(child)) for line, parent, child in edges_through(self.layout, self.order, end)
        )
        edges: list[RowEdge] = []
        for line, parent, row in chain(into, passing):
            if parent is not None:
                above = self.point(parent)
                pieces = pieces_of(line, (above.row, above.lane), row)
                edges += [RowEdge(*piece, line.first) for piece in pieces if piece.row < end and piece.to_row >= first]
        return edges + [edge for edge in self._merges(first) if edge.row < end and edge.to_row >= first]

    def _merges(self, first: int) -> Iterator[RowEdge]:
        """Yield what is drawn of the edges from merged messages to merges from a row on: long ones without their middle."""
        for number, place, parents in self.chat.chains.merges():
            if number < first:
                break
            to, line = self.point(place), self.layout.lines[self.layout.line(place)].first
            for merged in map(self.point, parents):
                if to.row - merged.row <= _LONGEST_MERGE:
                    yield RowEdge(merged.row, merged.lane, to.row, to.lane, None, line, is_merge=True)
                else:
                    yield RowEdge(merged.row, merged.lane, merged.row + 1, merged.lane, "down", line, is_merge=True)
                    yield RowEdge(to.row - 1, to.lane + 1, to.row, to.lane, "up", line, is_merge=True)

    def bundle(self, first: int, end: int) -> list[RowBundle]:
        bundle = self.layout.bundle
        low = bisect_left(bundle, first, key=itemgetter(1))
        return [RowBundle(*cut) for cut in takewhile(lambda cut: cut[0] < end, islice(bundle, low, None))]


def _window(chat: IndexedChat, drawing: _Drawing, first: int, end: int) -> RowWindow:
    record, rows = chat.record, drawing.rows
    assert record is not None, "only a living chat has rows"
    places = [
        (segment, offset + at) for _, segment, offset, count in rows.order.runs(first, end) for at in range(count)
    ]
    numbered = list(zip(range(first, end), places, strict=True))
    messages = chat.chains.bare_messages(places)
    return RowWindow(
        chat_id=chat.chat_id,
        version=chat.own_version,
        total=rows.total,
        lanes=drawing.layout.lanes,
        active=record.active_branch,
        head=drawing.head,
        first=first,
        rows=[drawing.row(row, place, message) for (row, place), message in zip(numbered, messages, strict=True)],
        edges=drawing.edges(first, end, numbered) if end > first else [],
        bundle=drawing.bundle(first, end),
        is_cut=bool(drawing.layout.bundle),
    )


def _path_window(chat: IndexedChat, rows: "ChatRows", head: Place | None, first: int, end: int) -> RowWindow:
    record, chains = chat.record, chat.chains
    assert record is not None, "only a living chat has rows"
    length = 0 if head is None else chains.depth(head) + 1
    messages = chains.chain(chains.ancestor(head, end - 1), end - first) if head is not None and end > first else []
    branch = None if head is None else next(iter(rows.heads.get(rows.order.row(head), [])), None)
    return RowWindow(
        chat_id=chat.chat_id,
        version=chat.own_version,
        total=length,
        lanes=min(length, 1),
        active=record.active_branch,
        head=RowPoint(length - 1, 0) if length else None,
        first=first,
        rows=[
            _row(
                chat,
                rows,
                chains.ancestor(head, depth),
                message,
                row=depth,
                lane=0,
                on_path=True,
                line=0,
                branch=branch,
                parents=[RowPoint(depth - 1, 0)] if depth else [],
            )
            for depth, message in enumerate(messages, first)
            if head is not None
        ],
        edges=[RowEdge(depth - 1, 0, depth, 0, None, 0) for depth in range(max(first, 1), min(end + 1, length))],
        bundle=[],
        is_cut=False,
    )


def _row(
    chat: IndexedChat,
    rows: "ChatRows",
    place: Place,
    message: Message,
    *,
    row: int,
    lane: int,
    on_path: bool,
    line: int,
    branch: str | None,
    parents: list[RowPoint],
) -> GraphRow:
    annotation = chat.chains.annotations.at(place)
    is_hidden = annotation is not None and annotation.hidden
    logged_row = rows.order.row(place)
    return GraphRow(
        row=row,
        id=message.id,
        lane=lane,
        on_path=on_path,
        line=line,
        branch=branch,
        parents=parents,
        role=message.name,
        preview="" if is_hidden else preview(message.shown, message.form),
        created_at=message.created_at,
        branches=rows.heads.get(logged_row, []),
        checkpoints=rows.checkpoints.get(logged_row, []),
        stale=annotation is not None and annotation.stale,
        hidden=is_hidden,
        replaced_by=None if annotation is None else annotation.replaced_by,
        children=len(rows.children(place)),
    )


_row_of_fork: Final = itemgetter(0)


def _row_of(rows: "ChatRows", place: Place | None) -> int:
    """The row of a branch point; -1 for the roots."""
    return -1 if place is None else rows.order.row(place)


def _forks(rows: "ChatRows") -> Iterator[Place | None]:
    """Yield the places of the messages that have several children; None where there are several roots."""
    # A first child goes on in its parent's segment, so whatever hangs on a message is a second one; of roots the first hangs too.
    for place, below in rows.layout.hanging.items():
        if place is not None or len(below) > 1:
            yield place


class _Heads:
    """The heads of branches by the line that they are in, to find the branches that have a message in their chain."""

    def __init__(self, drawing: _Drawing) -> None:
        self._layout, self._order = drawing.layout, drawing.order
        rows, line_of, place = drawing.rows, drawing.layout.line, drawing.order.place
        self._by_age = [(line_of(place(row)), row, name) for name, row in rows.branches]
        self._by_line = sorted((line, at) for at, (line, _, _) in enumerate(self._by_age))
        self._hanging: dict[int, tuple[list[int], list[int]]] = {}

    def below(self, place: Place) -> list[str]:
        """The names of the first branches, by `created_at`, whose chain has the message at a place."""
        row, number = self._order.row(place), self._layout.line(place)
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
        lines = self._layout.lines
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


def _branch_point(drawing: _Drawing, place: Place | None) -> BranchPoint:
    message = None if place is None else drawing.chat.chains.message(place)
    return BranchPoint(
        row=None if place is None else drawing.order.row(place),
        id=None if message is None else message.id,
        role=None if message is None else message.name,
        preview="" if message is None else _preview(message),
        children=[_child(drawing, child) for child in drawing.rows.children(place)],
    )


def _child(drawing: _Drawing, place: Place) -> BranchPointChild:
    message, point = drawing.chat.chains.message(place), drawing.point(place)
    return BranchPointChild(
        row=point.row,
        lane=point.lane,
        id=message.id,
        role=message.name,
        preview=_preview(message),
        branches=drawing.heads.below(place),
    )


def _preview(message: Message) -> str:
    return "" if message.is_hidden else preview(message.shown, message.form)


def _strip(drawing: _Drawing, height: int) -> RowStrip:
    rows = drawing.rows
    pixels: list[set[int]] = [set() for _ in range(height)]
    total = max(rows.total, 1)
    for line in drawing.layout.lines:
        for part in line.parts:
            for first, last in rows.order.spans(*part):
                lane = line.span(first).lane  # messages that follow each other are never cut apart
                for pixel in {first * height // total, last * height // total}:
                    pixels[pixel].add(lane)
                _fill(pixels, first, last, lane, total)
    forks = {max(_row_of(rows, place), 0) * height // total for place in _forks(rows)}
    return RowStrip(
        version=drawing.chat.own_version,
        total=rows.total,
        lanes=drawing.layout.lanes,
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
    joined: list[list[int]] = []
    for first, last in sorted(spans):
        if joined and joined[-1][1] + 1 == first:
            joined[-1][1] = last
        else:
            joined.append([first, last])
    return joined
