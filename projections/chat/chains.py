"""
Chains of messages.

A segment is a maximal run of first children: message after message until one has no child. Its messages lie in pages, so
reading a chain is a few sequential scans and one decode per page. A second child begins a segment of its own, which names
the place it hangs on. A place is (segment, offset). Segments form a tree with skip pointers (Myers 1983, "An applicative
random-access stack"), so ancestors are found in O(log forks), and depth is the segment's first depth plus the offset.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

import lmdb
import msgspec

from chatledger.domain.errors import ChainIntegrityError
from chatledger.domain.log.parts import list_header
from chatledger.domain.packing import from_extension
from chatledger.domain.values import Annotation, Message, PageEntry, Versions

from ..lmdb.cache import RecentMessages
from ..lmdb.checksums import check_sums, view_without_checksum, without_checksum
from ..lmdb.environment import Transaction, prefixed
from ..lmdb.keys import NO_SEGMENT, Tag, chat_key, once_prefix, place_key, segment_key
from .forked import SEGMENT, count_short, join_runs, runs_above
from .pages import (
    MessagePage,
    Page,
    Run,
    bodies_in,
    count_in,
    first_bodies,
    only_new_collected,
    ordinals_in,
    part_of_page,
    plain_page,
    read_runs,
    unpack_page,
)

Place = tuple[int, int]


class _OnlyId(msgspec.Struct):
    """The id of a message, of which nothing else is decoded."""

    id: str


_u32: Final = Struct(">I")
_decode_page = msgspec.msgpack.Decoder(list[Message], ext_hook=from_extension).decode
_decode_id = msgspec.msgpack.Decoder(_OnlyId).decode
_decode_message = msgspec.msgpack.Decoder(Message, ext_hook=from_extension).decode
_decode_annotation = msgspec.msgpack.Decoder(tuple[str, Annotation]).decode
_encode = msgspec.msgpack.Encoder().encode
_set = msgspec.structs.force_setattr
_place: Final = Struct(">II")
_LAST_NUMBER: Final = b"\xff\xff\xff\xff"
TURNS: Final = Struct(">IIIQ")


class Segment(NamedTuple):
    """A run of first children. `tail_*` describe the rows at its end that are not yet merged into a page."""

    parent_segment: int
    parent_offset: int
    first_depth: int
    length: int
    level: int
    jump: int
    tail_start: int
    tail_bytes: int

    @property
    def parent(self) -> Place | None:
        """The place of the message below which it begins; None for a root."""
        return None if self.parent_segment == NO_SEGMENT else (self.parent_segment, self.parent_offset)


class Turns(NamedTuple):
    """The turns of a chain: how many messages of it a user wrote, and the place of the last of them."""

    number: int
    segment: int
    offset: int

    @property
    def last(self) -> Place | None:
        """The last message that a user wrote; None when there is none."""
        return (self.segment, self.offset) if self.number else None


NO_TURNS: Final = Turns(0, NO_SEGMENT, NO_SEGMENT)
TURN_BLOCK: Final = 64
"""So many messages of a segment share one row of turns, in which each has a bit of one 64-bit number."""


class TurnBlock(NamedTuple):
    """
    The turns of some messages of a segment that follow each other.

    Args:
        before: The turns of the chain up to the message before the first of these.
        written: Which of these a user wrote: a bit for each message, the least bit for the first.
    """

    before: Turns
    written: int

    def up_to(self, place: Place) -> Turns:
        within = place[1] % TURN_BLOCK
        written = self.written & ((2 << within) - 1)
        if not written:
            return self.before
        last = place[1] - within + written.bit_length() - 1
        return Turns(self.before.number + written.bit_count(), place[0], last)


class Annotations:
    """The annotations of one chat in one transaction. A chat that has none, as nearly all, costs one look-up."""

    def __init__(self, txn: Transaction, table: "lmdb._Database", chat_no: int) -> None:
        self._txn, self._table = txn, table
        self._prefix = chat_key(chat_no, Tag.ANNOTATION)
        cursor = txn.cursor(table)
        self.is_empty = not (cursor.set_range(self._prefix) and cursor.key().startswith(self._prefix))

    def at(self, place: Place) -> Annotation | None:
        if self.is_empty:
            return None
        raw = self._txn.get(self._prefix + _place.pack(*place), db=self._table)
        return None if raw is None else _decode_annotation(raw)[1]

    def between(self, segment: int, first: int, last: int) -> Iterator[tuple[int, Annotation]]:
        """Yield the annotations of messages of a segment between two offsets, with the offsets."""
        if self.is_empty:
            return
        cursor = self._txn.cursor(self._table)
        end = self._prefix + _place.pack(segment, last)
        is_row = cursor.set_range(self._prefix + _place.pack(segment, first))
        while is_row and (key := cursor.key()) <= end:
            yield _place.unpack_from(key, len(self._prefix))[1], _decode_annotation(cursor.value())[1]
            is_row = cursor.next()

    def all(self) -> dict[str, Annotation]:
        """All of them by message id, in the order of segments."""
        return dict(_decode_annotation(value) for _, value in prefixed(self._txn, self._table, self._prefix))

    def put(self, place: Place, message_id: str, annotation: Annotation | None) -> None:
        """Set that of a message, or remove it; in a write transaction."""
        key = self._prefix + _place.pack(*place)
        if annotation is None:
            self._txn.delete(key, db=self._table)
        else:
            self._txn.put(key, _encode((message_id, annotation)), db=self._table)
            self.is_empty = False


class Chains:
    """The chains of one chat, read in one transaction."""

    def __init__(self, txn: Transaction, table: "lmdb._Database", chat_no: int, chat_id: str) -> None:
        self._txn, self._table, self._chat_no, self._chat_id = txn, table, chat_no, chat_id
        self._segments: dict[int, Segment] = {}
        self._cursor: lmdb.Cursor[bytes] | None = None
        self._last_page: tuple[bytes, Page] | None = None
        """The last page that a message was looked for in: as it is stored, and plain."""
        self._annotations: Annotations | None = None
        self.recent: RecentMessages | None = None

    @property
    def annotations(self) -> Annotations:
        if self._annotations is None:
            self._annotations = Annotations(self._txn, self._table, self._chat_no)
        return self._annotations

    def segment(self, number: int) -> Segment:
        segment = self._segments.get(number)
        if segment is None:
            raw = self._txn.get(segment_key(self._chat_no, Tag.SEGMENT, number), db=self._table)
            if raw is None:
                raise self._missing_segment(number)
            segment = self._segments[number] = Segment._make(SEGMENT.unpack(without_checksum(raw)))
        return segment

    def depth(self, place: Place) -> int:
        """The number of ancestors of the message at a place."""
        return self.segment(place[0]).first_depth + place[1]

    def parent(self, place: Place) -> Place | None:
        segment, offset = place
        return (segment, offset - 1) if offset else self.segment(segment).parent

    def ancestor(self, place: Place, depth: int) -> Place:
        """The ancestor (or the message itself) at a depth that its chain has."""
        number = place[0]
        segment = self.segment(number)
        if segment.first_depth <= depth:
            return number, depth - segment.first_depth
        while segment.first_depth > depth:
            jump = self.segment(segment.jump)
            number = segment.jump if jump.first_depth > depth else segment.parent_segment
            segment = self.segment(number)
        return number, depth - segment.first_depth

    def is_ancestor(self, place: Place, descendant: Place) -> bool:
        """Whether the chain of `descendant` contains `place`."""
        depth = self.depth(place)
        return depth <= self.depth(descendant) and self.ancestor(descendant, depth) == place

    def common_ancestor(self, a: Place, b: Place) -> Place | None:
        """The deepest message that both chains contain; None when they have different roots."""
        left, right = a[0], b[0]
        level = min(self.segment(left).level, self.segment(right).level)
        left, right = self._at_level(left, level), self._at_level(right, level)
        while left != right:
            above_left, above_right = self.segment(left), self.segment(right)
            if not above_left.level:
                return None
            # Segments of one level jump equally far, so jumps that land apart have not passed the common segment yet.
            if above_left.jump != above_right.jump:
                left, right = above_left.jump, above_right.jump
            else:
                left, right = above_left.parent_segment, above_right.parent_segment
        return left, min(self._exit(a, left), self._exit(b, left))

    def merge_base(self, a: Place, b: Place, *, is_on_chain: bool = False) -> Place | None:
        """
        The newest message that both are or come after, with what they merged; None where they share nothing.

        With `is_on_chain` only messages of the chain of `a` count. Costs O(log forks) for each merge that is newer than it,
        whatever else the chat has.
        """
        ours, theirs = [a], [b]
        newest = self.common_ancestor(a, b)
        number = -1 if newest is None else self.ordinal(newest)
        for merged_at, place, parents in self.merges():
            # Parents have lower numbers: merges before what both share lead to what is older than it.
            if merged_at <= number:
                break
            for heads, others in ((theirs, ours),) if is_on_chain else ((theirs, ours), (ours, theirs)):
                if any(self.is_ancestor(place, head) for head in heads):
                    heads.extend(parents)
                    for meeting in (self.common_ancestor(parent, other) for parent in parents for other in others):
                        if meeting is not None and (at := self.ordinal(meeting)) > number:
                            newest, number = meeting, at
        return newest

    def merged_heads(self, heads: Iterable[Place]) -> list[Place]:
        """Return heads, and those of all that was merged into their chains: what comes before a head is on the chain of one of them."""
        reached = list(heads)
        for _, place, parents in self.merges():
            if any(self.is_ancestor(place, head) for head in reached):
                reached.extend(parents)
        return reached

    def merges(self) -> Iterator[tuple[int, Place, list[Place]]]:
        """Yield the messages that merge others, newest first: the number in log order, the place, and those of the further parents."""
        prefix = chat_key(self._chat_no, Tag.MERGE)
        cursor = self._txn.cursor(self._table)
        is_there = cursor.prev() if cursor.set_range(prefix + _LAST_NUMBER) else cursor.last()
        while is_there and (key := cursor.key()).startswith(prefix):
            places = list(_place.iter_unpack(without_checksum(cursor.value())))
            yield _u32.unpack_from(key, len(prefix))[0], places[0], places[1:]
            is_there = cursor.prev()

    def ordinal(self, place: Place) -> int:
        """Return the number of the message at a place in log order."""
        first, page = self._page(place)
        return ordinals_in(page)[place[1] - first]

    def _at_level(self, number: int, level: int) -> int:
        while (segment := self.segment(number)).level > level:
            number = segment.jump if self.segment(segment.jump).level >= level else segment.parent_segment
        return number

    def _exit(self, place: Place, top: int) -> int:
        """The last offset of segment `top` that the chain of `place` contains."""
        number, offset = place
        if number == top:
            return offset
        segment = self.segment(number)
        if segment.parent_segment != top:
            segment = self.segment(self._at_level(number, self.segment(top).level + 1))
        return segment.parent_offset

    def turns(self, place: Place) -> Turns:
        segment, offset = place
        return self.turn_block((segment, offset - offset % TURN_BLOCK)).up_to(place)

    def turn_block(self, first: Place) -> TurnBlock:
        """The turns of the block of messages that begins at a place."""
        stored = self._txn.get(place_key(self._chat_no, Tag.TURN, *first), db=self._table)
        if stored is None:
            raise self._missing(first[0])
        *before, written = TURNS.unpack(without_checksum(stored))
        return TurnBlock(Turns(*before), written)

    def first_turn(self, head: Place) -> Place | None:
        """
        The place of the first message of a chain that a user wrote; None when there is none.

        Costs O(log depth of that message), mostly two look-ups, whatever the length of the chain.
        """

        def count(depth: int) -> int:
            return self.turns(self.ancestor(head, depth)).number

        last = self.depth(head)
        beyond = 0
        # From the root in steps that double: users mostly write the first or the second message.
        while not count(beyond):
            if beyond == last:
                return None
            beyond = min(2 * beyond + 1, last)
        return self.turns(self.ancestor(head, bisect_left(range(beyond), 1, lo=beyond // 2, key=count))).last

    def has_fired(self, head: Place, once_id: str) -> bool:
        """Whether an id of `once` has fired on the chain of a message."""
        return any(self._fired(head, once_prefix(self._chat_no, once_id)))

    def fired(self, head: Place) -> frozenset[str]:
        """The ids of `once` that have fired on the chain of a message."""
        return frozenset(self._fired(head, chat_key(self._chat_no, Tag.ONCE)))

    def _fired(self, head: Place, prefix: bytes) -> Iterator[str]:
        for key, stored in prefixed(self._txn, self._table, prefix):
            if self.is_ancestor(_place.unpack_from(key, len(key) - _place.size), head):
                yield without_checksum(stored).decode()

    def chain(self, head: Place, limit: int | None = None, *, lazy_data: bool = False) -> list[Message]:
        """The messages from the root to `head`, oldest first; the last `limit` of them, with data that wait to be decoded."""
        length = self.depth(head) + 1
        count = length if limit is None else min(limit, length)
        # The rows of many short runs are new containers too, so the collector waits before the first of them is fetched.
        with only_new_collected(count):
            runs = self._runs_to(head, count)
            messages = read_runs(runs, self, chat_id=self._chat_id, lazy_data=lazy_data)
        if not self.annotations.is_empty:
            start = 0
            for number, first, last in runs:
                for offset, annotation in self.annotations.between(number, first, last):
                    _set(messages[start + offset - first], "annotation", annotation)
                start += last - first + 1
        return messages

    def _runs_to(self, head: Place, count: int) -> list[Run]:
        """The runs of the last `count` messages of the chain of `head`, root first."""
        runs = runs_above(self._txn, self._table, self._chat_no, head, count, self._missing_segment)
        runs.reverse()
        return runs

    def parent_id(self, place: Place) -> str | None:
        parent = self.parent(place)
        return None if parent is None else self.id_at(parent)

    def id_at(self, place: Place) -> str:
        first, page = self._page(place)
        return _decode_id(bodies_in(page, place[1] - first)[1]).id

    def message(self, place: Place) -> Message:
        """The message at a place; not looked up again where it is one of the `recent` ones."""
        stored = None if self.recent is None else self.recent.get((self._chat_no, place))
        if stored is None:
            first, page = self._page(place)
            before, body = bodies_in(page, place[1] - first)
            # Its parent is mostly in the same page, so no second page is looked up for the id.
            stored = bytes(body), _decode_id(before).id if before else self.parent_id(place)
            if self.recent is not None:
                self.recent.keep((self._chat_no, place), stored)
        body, parent_id = stored
        # Decoded anew for each reader: callers may change the data of the message they got.
        message = _decode_message(body)
        _set(message, "chat_id", self._chat_id)
        _set(message, "parent_id", parent_id)
        annotations = self.annotations
        if not annotations.is_empty:
            _set(message, "annotation", annotations.at(place))
        return message

    def _page(self, place: Place) -> tuple[int, Page]:
        """The page that holds the message at a place: its first offset, and its stored form, plain."""
        number, offset = place
        cursor = self._cursor
        if cursor is None:
            cursor = self._cursor = self._txn.cursor(self._table)
        wanted = place_key(self._chat_no, Tag.PAGE, number, offset)
        # A page is keyed by its first offset: unless this message is the first of one, it is in the page before the next key.
        if not cursor.set_range(wanted) or cursor.key() != wanted:
            cursor.prev()
        key, stored = cursor.item()
        if key[:-4] == wanted[:-4]:
            page = view_without_checksum(stored)
            first: int = _u32.unpack_from(key, len(key) - 4)[0]
            if offset < first + count_in(page):
                # Whoever climbs a chain asks for the messages of a page one by one.
                if self._last_page is None or self._last_page[0] != stored:
                    self._last_page = stored, plain_page(page)
                return first, self._last_page[1]
        raise self._missing(number)

    def runs(self, head: Place) -> dict[int, int]:
        """The chain of a message, as its segments with the last offset in each."""
        runs: dict[int, int] = {}
        at: Place | None = head
        while at is not None:
            runs[at[0]] = at[1]
            at = self.segment(at[0]).parent
        return runs

    def numbered(self, first: int) -> list[tuple[int, Place]]:
        """The messages from a number in log order on, as their numbers and places."""
        numbered: list[tuple[int, Place]] = []
        for number, page in self._all_pages():
            if page.ordinals[-1] >= first:
                places = zip(
                    page.ordinals, range(page.first_offset, page.first_offset + len(page.ordinals)), strict=True
                )
                numbered.extend((ordinal, (number, offset)) for ordinal, offset in places if ordinal >= first)
        return sorted(numbered)

    def has_segment(self, number: int) -> bool:
        return (
            number in self._segments
            or self._txn.get(segment_key(self._chat_no, Tag.SEGMENT, number), db=self._table) is not None
        )

    def numbered_runs(self, number: int, first: int, last: int) -> Iterator[tuple[int, int, int, int]]:
        """
        Yield the messages of a segment between two offsets by their numbers in log order.

        As runs of messages that follow each other there too: (number of the first, segment, offset of the first, length).
        """
        for key, stored in self._rows(number, first, last):
            page_first: int = _u32.unpack_from(key, len(key) - 4)[0]
            ordinals = ordinals_in(view_without_checksum(stored))
            start, end = max(first - page_first, 0), min(last + 1 - page_first, len(ordinals))
            while start < end:
                stop = end
                if ordinals[end - 1] - ordinals[start] != end - 1 - start:
                    stop = next(
                        at for at in range(start + 1, end + 1) if at == end or ordinals[at] != ordinals[at - 1] + 1
                    )
                yield ordinals[start], number, page_first + start, stop - start
                start = stop

    def bare_messages(self, places: Sequence[Place]) -> Iterator[Message]:
        """The messages at places, without chat and parent; quick where places follow each other."""
        start = 0
        while start < len(places):
            number, first = places[start]
            end = start + 1
            while end < len(places) and places[end] == (number, first + end - start):
                end += 1
            last = first + end - start - 1
            for page in self._pages(number, first, last):
                decoded = _decode_page(page.array)
                yield from decoded[max(first - page.first_offset, 0) : last + 1 - page.first_offset]
            start = end

    def children(self, place: Place) -> list[Place]:
        """Return the places of a message's children, in the order of their creation."""
        number, offset = place
        first = [(number, offset + 1)] if offset + 1 < self.segment(number).length else []
        return [*first, *((segment, 0) for segment in self._forks(place))]

    def has_children(self, place: Place) -> bool:
        # The first child goes on in the segment of its parent, and only later ones fork: where none follows, there are no forks.
        return place[1] + 1 < self.segment(place[0]).length

    def roots(self) -> list[Place]:
        """Return the places of the chat's roots, in the order of their creation."""
        return [(segment, 0) for segment in self._forks((NO_SEGMENT, NO_SEGMENT))]

    def family(self, place: Place) -> list[Place]:
        """The places of all messages with the parent of this one, which is among them, in the order of their creation."""
        parent = self.parent(place)
        return self.roots() if parent is None else self.children(parent)

    def page(self, head: Place, limit: int) -> list[PageEntry]:
        """The last `limit` messages of the chain of `head`, each with its versions, among which it is the shown message."""
        messages = self.chain(head, limit)
        families = (family for run in self._runs_to(head, len(messages)) for family in self._families(*run))
        entries: list[PageEntry] = []
        for message, (family, index) in zip(messages, families, strict=True):
            ids = [message.id if at == index else self.id_at(place) for at, place in enumerate(family)]
            entries.append(PageEntry(message=message, versions=Versions(ids=ids, index=index)))
        return entries

    def _families(self, number: int, first: int, last: int) -> Iterator[tuple[list[Place], int]]:
        """Yield the family of each message of a run, and the index of the message in it."""
        if first == 0:
            family = self.family((number, 0))
            yield family, family.index((number, 0))
        below: dict[int, list[Place]] = {}
        start = max(first, 1)
        prefix = place_key(self._chat_no, Tag.FORK, number, 0)[: -_u32.size]
        cursor = self._txn.cursor(self._table)
        is_fork = cursor.set_range(place_key(self._chat_no, Tag.FORK, number, start - 1))
        while is_fork and (key := cursor.key()).startswith(prefix):
            offset, segment = _place.unpack_from(key, len(prefix))
            if offset >= last:
                break
            below.setdefault(offset + 1, []).append((segment, 0))
            is_fork = cursor.next()
        for offset in range(start, last + 1):
            yield [(number, offset), *below.get(offset, ())], 0

    def newest_leaf(self, place: Place) -> Place:
        """The leaf below a message that following the newest child each time leads to."""
        number, offset = place
        cursor = self._txn.cursor(self._table)
        # Segments are numbered as they begin, so the last fork below a message is its newest child, and a fork is newer than
        # the next message of the segment, which made it a fork.
        while True:
            prefix = place_key(self._chat_no, Tag.FORK, number, 0)[: -_u32.size]
            has_forks = cursor.set_range(place_key(self._chat_no, Tag.FORK, number, offset))
            if not has_forks or not (key := cursor.key()).startswith(prefix):
                return number, self.segment(number).length - 1
            forked: int = _u32.unpack_from(key, len(prefix))[0]
            is_followed = cursor.set_range(place_key(self._chat_no, Tag.FORK, number, forked + 1))
            _ = cursor.prev() if is_followed else cursor.last()
            number, offset = _u32.unpack_from(cursor.key(), len(prefix) + _u32.size)[0], 0

    def _forks(self, place: Place) -> Iterator[int]:
        prefix = place_key(self._chat_no, Tag.FORK, *place)
        for key, _ in prefixed(self._txn, self._table, prefix):
            yield _u32.unpack_from(key, len(prefix))[0]

    def _pages(self, number: int, first: int, last: int) -> Iterator[MessagePage]:
        """The pages of a segment that hold the offsets from `first` to `last`."""
        return (unpack_page(key, without_checksum(stored)) for key, stored in self._rows(number, first, last))

    def arrays(self, number: int, first: int, last: int) -> Iterator[tuple[int, bytes | memoryview]]:
        """
        Yield pages as the offset of their first message and the msgpack array of their messages.

        A page that is needed in part is cut to that part and the message before it, whose id is the first one's parent.
        """
        tail = self.segment(number).tail_start
        if first < tail:
            for key, stored in self._rows(number, first, min(last, tail - 1)):
                page_first: int = _u32.unpack_from(key, len(key) - 4)[0]
                yield part_of_page(view_without_checksum(stored), page_first, max(first - 1, 0), last)
        if last >= tail:
            # Each append leaves a row of its own until there are enough for a page: they are checked and decoded together.
            rows = list(self._rows(number, max(first - 1, tail), last))
            check_sums([stored for _, stored in rows])
            offsets: list[int] = [_u32.unpack_from(key, len(key) - 4)[0] for key, _ in rows]
            bodies = [first_bodies(row[1], last + 1 - offset) for row, offset in zip(rows, offsets, strict=True)]
            yield offsets[0], list_header(last + 1 - offsets[0]) + b"".join(bodies)

    def join_runs(self, runs: Sequence[Run], at: int) -> tuple[int, bytes]:
        """Return how many short runs, from number `at` on, are read together, and the msgpack array of their messages."""
        count = count_short(runs, at)
        if not count:
            return 0, b""
        short = runs[at : at + count]
        return count, join_runs(self._txn, self._table, self._chat_no, short, rows=self._rows, missing=self._missing)

    def _rows(self, number: int, first: int, last: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield pages as they are stored, with their keys."""
        cursor = self._txn.cursor(self._table)
        wanted = place_key(self._chat_no, Tag.PAGE, number, first)
        prefix = wanted[:-4]
        if not cursor.set_range(wanted) or cursor.key() != wanted:
            cursor.prev()
        expected = None
        while (key := cursor.key()).startswith(prefix):
            stored = cursor.value()
            page_first: int = _u32.unpack_from(key, len(prefix))[0]
            # A page is lost. Its messages must not go missing from a chain unnoticed: what is raised below says so.
            if expected is not None and page_first != expected:
                break
            yield key, stored  # callers compare the checksums, some of them those of many rows together
            expected = page_first + _u32.unpack_from(stored)[0]
            if expected > last or not cursor.next():
                break
        if expected is None or expected <= last:
            raise self._missing(number)

    def _missing_segment(self, number: int) -> ChainIntegrityError:
        return ChainIntegrityError(f"segment {number} of chat {self._chat_id!r} is missing in the index; rebuild it")

    def _missing(self, segment: int) -> ChainIntegrityError:
        msg = f"messages of segment {segment} of chat {self._chat_id!r} are missing in the index; rebuild it"
        return ChainIntegrityError(msg)

    def _all_pages(self) -> Iterator[tuple[int, MessagePage]]:
        """Yield all pages, each with the number of its segment."""
        prefix = chat_key(self._chat_no, Tag.PAGE)
        for key, value in prefixed(self._txn, self._table, prefix):
            yield _u32.unpack_from(key, len(prefix))[0], unpack_page(key, without_checksum(value))

    def all_places(self) -> Iterator[tuple[Place, Message]]:
        """Every message of the chat with its place, without its chat and its parent."""
        for number, page in self._all_pages():
            for offset, message in enumerate(_decode_page(page.array), page.first_offset):
                yield (number, offset), message

    def all_messages(self) -> list[tuple[int, Message]]:
        """Every message of the chat with its number in log order; in the order of segments."""
        messages: list[tuple[int, Message]] = []
        current, parent_id = -1, None
        for number, page in self._all_pages():
            if number != current:
                parent = self.segment(number).parent
                current, parent_id = number, None if parent is None else self.id_at(parent)
            for ordinal, message in zip(page.ordinals, _decode_page(page.array), strict=True):
                _set(message, "chat_id", self._chat_id)
                _set(message, "parent_id", parent_id)
                parent_id = message.id
                messages.append((ordinal, message))
        return messages
