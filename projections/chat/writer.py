"""Applying the changes of events to the rows of one chat, and adding messages to its chains, in one write transaction."""

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import Final

import lmdb
import msgspec
from msgspec import UNSET, UnsetType

from chatledger.domain.chat.events import ChatDeleted, ContentRedacted, Recorded
from chatledger.domain.chat.fork import bases_of
from chatledger.domain.chat.redaction import HEAD_CONTENT
from chatledger.domain.chat.run_state import RunChanges
from chatledger.domain.chat.runs import MessageRun
from chatledger.domain.chat.state import BranchRecord, ChatChanges, ChatProfile, ChatRecord, StreamHead, evolve
from chatledger.domain.context.messages import USER
from chatledger.domain.context.summary import is_real_user_message, once_ids_of
from chatledger.domain.errors import ChainIntegrityError
from chatledger.domain.log.large_data import LARGE_BYTES, take_out
from chatledger.domain.packing import pack_message
from chatledger.domain.values import UNEXPLAINED, Message, line_of

from ..lmdb.checksums import with_checksum, without_checksum
from ..lmdb.environment import Transaction, drop_prefixed
from ..lmdb.keys import (
    NO_SEGMENT,
    Tag,
    branch_number,
    chat_key,
    creation_scopes,
    fork_key,
    id_key,
    number,
    once_prefix,
    order_suffix,
    place_key,
    scopes,
    segment_key,
    slot_key,
    to_number,
)
from ..lmdb.tables import Tables
from ..search.indexer import SearchWriter, forget_messages, forget_texts
from ..versioned.lists import open_run
from .chains import NO_TURNS, TURN_BLOCK, TURNS, Chains, Place, Segment, TurnBlock
from .forked import SEGMENT
from .lists import forget_large, note_expiry, note_large, note_less_large
from .pages import is_full, ordinals_in, pack_page, split_page
from .reader import NO_VERSION, BranchRow, CheckpointRow, IndexedChat, MemberRow

_encode: Final = msgspec.msgpack.Encoder().encode
_replace: Final = msgspec.structs.replace
_COUNTERS: Final = Struct(">I")
_PLACE: Final = Struct(">II")


NumberedBody = tuple[int, bytes]
"""The number of a message in log order, and the packed message."""


class ChainWriter(Chains):
    """
    The chains of one chat in a write transaction. What was added is in the tables after `flush`.

    Rows at the end of a segment are merged into a page when there are enough, so that an append does not write a page anew.
    """

    def __init__(
        self, txn: Transaction, table: "lmdb._Database", chat_no: int, chat_id: str, *, segment_count: int
    ) -> None:
        super().__init__(txn, table, chat_no, chat_id)
        self.segment_count = segment_count
        self._added: dict[int, list[NumberedBody]] = {}
        self._turn_blocks: dict[Place, TurnBlock] = {}
        """The blocks that were changed since the last flush."""

    def add(self, line: Sequence[Message], parent: Place | None, ordinal: int) -> tuple[Place, list[bytes]]:
        """
        Put a line of messages below a parent, each below the one before it.

        Returns:
            The place of the first message, whose segment the others continue, and the messages as they are packed, with plain data.
        """
        if parent is not None and parent[1] + 1 == (segment := self.segment(parent[0])).length:
            number = parent[0]
        else:
            number, segment = self._new_segment(parent)
        first = segment.length
        self._note_turns(line, parent, (number, first))
        # `_replace` takes five times as long.
        hangs_segment, hangs_offset, depth, length, level, jump, tail_start, tail_bytes = segment
        self._segments[number] = Segment(
            hangs_segment, hangs_offset, depth, length + len(line), level, jump, tail_start, tail_bytes
        )
        # Chat and parent follow from the place.
        bodies = [pack_message(_replace(message, chat_id="", parent_id=None)) for message in line]
        self._added.setdefault(number, []).extend(enumerate(bodies, ordinal))
        return (number, first), bodies

    def turn_block(self, first: Place) -> TurnBlock:
        """The turns of a block, with what was added since the last flush."""
        return self._turn_blocks.get(first) or super().turn_block(first)

    def _note_turns(self, line: Sequence[Message], parent: Place | None, place: Place) -> None:
        """Keep count of the messages that users wrote, and note what `once` fired with them."""
        number, offset = place
        within = offset % TURN_BLOCK
        start = offset - within
        if within:
            before, written = self.turn_block((number, start))
        else:
            before, written = NO_TURNS if parent is None else self.turns(parent), 0
        for message in line:
            if within == TURN_BLOCK:
                block = self._turn_blocks[number, start] = TurnBlock(before, written)
                before, written = block.up_to((number, start + TURN_BLOCK - 1)), 0
                start, within = start + TURN_BLOCK, 0
            if message.name == USER:
                has_metadata = bool(
                    message.metadata
                )  # of which nearly all have none: nothing is to be asked of it then
                if not has_metadata or is_real_user_message(message):
                    written |= 1 << within
                for once_id in once_ids_of(message) if has_metadata else ():
                    key = once_prefix(self._chat_no, once_id) + _PLACE.pack(number, start + within)
                    self._txn.put(key, with_checksum(once_id.encode()), db=self._table)
            within += 1
        self._turn_blocks[number, start] = TurnBlock(before, written)

    def replace(self, place: Place, before: Message, message: Message) -> bytes:
        """
        Put a message without content in the place of what it was; what was added before is flushed. Returns it packed, with plain data.

        It counts as one of a user like any other, and no id of `once` has fired with it: when the log is read again it has no more to
        tell by.
        """
        body = self.put_again(place, message)
        for once_id in once_ids_of(before):
            self._txn.delete(once_prefix(self._chat_no, once_id) + _PLACE.pack(*place), db=self._table)
        if before.name == USER and not is_real_user_message(before):
            self._recount(place)
        return body

    def put_again(self, place: Place, message: Message) -> bytes:
        """Put a message in the place of what it was; what was added before is flushed. Returns it packed, with plain data."""
        number, offset = place
        first, page = self._page(place)
        ordinals, bodies = ordinals_in(page), split_page(page)
        body = bodies[offset - first] = pack_message(_replace(message, chat_id="", parent_id=None, annotation=None))
        self._put_page(number, first, list(zip(ordinals, bodies, strict=True)))
        return body

    def _recount(self, place: Place) -> None:
        """Count a message as one of a user, on all chains that have it."""
        below = [place]
        number, offset = place
        within = offset % TURN_BLOCK
        block = self.turn_block((number, offset - within))
        self._turn_blocks[number, offset - within] = block._replace(written=block.written | 1 << within)
        while below:
            number, offset = below.pop()
            for first in range(offset - offset % TURN_BLOCK + TURN_BLOCK, self.segment(number).length, TURN_BLOCK):
                before, block = self.turns((number, first - 1)), self.turn_block((number, first))
                self._turn_blocks[number, first] = block._replace(before=before)
            prefix = place_key(self._chat_no, Tag.FORK, number, 0)[:-4]
            cursor = self._txn.cursor(self._table)
            forks: list[tuple[int, int]] = []
            is_fork = cursor.set_range(place_key(self._chat_no, Tag.FORK, number, offset))
            while is_fork and (key := cursor.key()).startswith(prefix):
                forks.append(_PLACE.unpack_from(key, len(prefix)))
                is_fork = cursor.next()
            for parent, forked in forks:
                block = self.turn_block((forked, 0))
                self._turn_blocks[forked, 0] = block._replace(before=self.turns((number, parent)))
                below.append((forked, 0))

    def _new_segment(self, parent: Place | None) -> tuple[int, Segment]:
        """Begin a segment below a message that has a child already, or a root."""
        number = self.segment_count
        self.segment_count += 1
        at = (NO_SEGMENT, NO_SEGMENT) if parent is None else parent
        if parent is None:
            level, jump = 0, number
        else:
            # Myers' rule: jump as far again where the last two jumps above were equally long.
            above = self.segment(parent[0])
            jumped = self.segment(above.jump)
            is_same_length = above.level - jumped.level == jumped.level - self.segment(jumped.jump).level
            level, jump = above.level + 1, jumped.jump if is_same_length else parent[0]
        segment = Segment(
            *at,
            first_depth=0 if parent is None else self.depth(parent) + 1,
            length=0,
            level=level,
            jump=jump,
            tail_start=0,
            tail_bytes=0,
        )
        self._txn.put(fork_key(self._chat_no, Tag.FORK, *at, number), b"", db=self._table)
        return number, segment

    def flush(self) -> None:
        """Write what was added since the last flush."""
        for segment_no, added in self._added.items():
            segment = self._write_tail(segment_no, self._segments[segment_no], added)
            self._segments[segment_no] = segment
            self._txn.put(
                segment_key(self._chat_no, Tag.SEGMENT, segment_no),
                with_checksum(SEGMENT.pack(*segment)),
                db=self._table,
            )
        self._added.clear()
        for first, block in self._turn_blocks.items():
            row = TURNS.pack(*block.before, block.written)
            self._txn.put(place_key(self._chat_no, Tag.TURN, *first), with_checksum(row), db=self._table)
        self._turn_blocks.clear()

    def _write_tail(self, number: int, segment: Segment, added: list[NumberedBody]) -> Segment:
        """Write what was added to a segment as a row of its own, or merged with the rows at the end into pages."""
        size = segment.tail_bytes + sum(len(body) for _, body in added)
        if not is_full(segment.length - segment.tail_start, size):
            self._put_page(number, segment.length - len(added), added)
            return segment._replace(tail_bytes=size)
        offset = segment.tail_start
        rest: list[NumberedBody] = []
        used, left = 0, size
        for numbered in [*self._take_tail(number, segment.tail_start), *added]:
            rest.append(numbered)
            used += len(numbered[1])
            left -= len(numbered[1])
            # What would be a small page of its own at the end of what is there goes into this one.
            if is_full(len(rest), used, left):
                self._put_page(number, offset, rest)
                offset += len(rest)
                rest, used = [], 0
        if rest:
            self._put_page(number, offset, rest)
        return segment._replace(tail_start=offset, tail_bytes=used)

    def _take_tail(self, number: int, start: int) -> Iterable[NumberedBody]:
        """Remove the rows that are not yet merged, and return the messages in them."""
        taken: list[NumberedBody] = []
        cursor = self._txn.cursor(self._table)
        prefix = place_key(self._chat_no, Tag.PAGE, number, start)[:-4]
        is_row = cursor.set_range(place_key(self._chat_no, Tag.PAGE, number, start))
        while is_row and cursor.key().startswith(prefix):
            page = without_checksum(cursor.value())
            taken.extend(zip(ordinals_in(page), split_page(page), strict=True))
            cursor.delete()  # moves to the next row
            is_row = bool(cursor.key())
        return taken

    def _put_page(self, number: int, offset: int, numbered: list[NumberedBody]) -> None:
        value = pack_page([ordinal for ordinal, _ in numbered], [body for _, body in numbered])
        self._txn.put(place_key(self._chat_no, Tag.PAGE, number, offset), with_checksum(value), db=self._table)


def _lines(messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    """Cut messages into lines, in each of which every message is the parent of the next one."""
    start = 0
    for at in range(1, len(messages)):
        if messages[at].parent_id != messages[at - 1].id:
            yield messages[start:at]
            start = at
    if messages:
        yield messages[start:]


class ChatWriter(IndexedChat):
    """A chat in a write transaction. Rows that every event changes are kept back and written once, by `flush`."""

    _writer: ChainWriter
    """The chains, while the chat is alive."""

    def __init__(self, tables: Tables, txn: Transaction, chat_id: str) -> None:
        super().__init__(tables, txn, chat_id)
        self._listed: tuple[ChatRecord, ChatProfile, tuple[str, ...]] | None = None
        self._member_ids: tuple[str, ...] = ()
        self._changed_branches: dict[str, BranchRow] = {}
        self._new_places: dict[str, Place] = {}
        self._search: SearchWriter | None = None
        self._is_last_text_current = True
        self._last_added: tuple[Place, Message] | None = None
        """With its place; None where it may have been hidden since."""
        self.read_to: Place | UnsetType | None = UNSET
        """Where the active branch ends since the event that was applied last; UNSET where that did not change."""
        self.threads_with_runs: set[str] = set()
        """The threads on which runs of this chat began or ended: they stand otherwise then."""
        self._summed = None if self.record is None else self.record.head
        """The last event that the sums over the heads of chats have of it."""
        if self.chat_no is not None:
            self._begin(self.chat_no)
            record, profile = self.record, self.profile
            if record is not None and profile is not None:
                if record.member_count:
                    self._member_ids = tuple(member.user_id for member in self.members())
                self._listed = record, profile, self._member_ids

    def _begin(self, chat_no: int) -> None:
        raw = self._txn.get(self._prefix + Tag.COUNTERS, db=self._tables.rows)
        self._stored_segment_count: int | None = None if raw is None else _COUNTERS.unpack(raw)[0]
        self._chains = self._writer = ChainWriter(
            self._txn, self._tables.rows, chat_no, self.chat_id, segment_count=self._stored_segment_count or 0
        )
        self._search = None

    def apply(self, recorded: Recorded, last: StreamHead | None = None) -> StreamHead:
        """Apply the next event of the chat; see `StreamWriter.apply`."""
        changes, event, body = evolve(self, recorded, last), recorded.event, recorded.event.body
        if changes.record is None:
            return self._delete(changes, recorded)
        if self.chat_no is None:
            self.chat_no = changes.record.first_position
            self._prefix = number(self.chat_no)
            self._tables.put_chat_no(self._txn, self.chat_id, self.chat_no)
            # Of a chat that begins in this transaction `_places` has all messages: none is looked up.
            self._has_stored_messages = False
            self._begin(self.chat_no)
        if len(changes.messages) > 1 and self._has_stored_messages:
            self.look_up(message.id for message in changes.messages)
        ordinal = changes.record.message_count - len(changes.messages)
        for line in _lines(changes.messages):
            self._add(line, ordinal, recorded)
            ordinal += len(line)
        if isinstance(body, ContentRedacted) and body.takes_names:
            self._rename(changes.redacted, is_of_senders=body.takes_senders)
        elif changes.redacted:
            self._redact(changes.redacted)
        if changes.dropped_branch is not None:
            self._drop_branch(changes.dropped_branch)
        if changes.branch is not None:
            self._put_branch(changes.branch, recorded, is_new_name=changes.is_new_name)
        if changes.recounts_names:
            self._recount_names()
        if changes.checkpoint is not None or changes.dropped_checkpoint is not None:
            self._put_checkpoints(changes, recorded)
        if changes.member is not None or changes.dropped_member is not None:
            self._put_members(changes)
        if changes.runs is not None:
            self._put_runs(changes.runs, changes.record.run_count)
        for slot in event.redacted:
            if slot <= HEAD_CONTENT:  # of a log that is read again: the event that says what stands there comes later
                self._put_pseudonym(recorded.version, slot, "")
        if event.command_id is not None:
            span, position = self.command(event.command_id), recorded.position
            self._put(Tag.COMMAND, number(span[0] if span else position) + number(position), id_key(event.command_id))
        self.record, self.read_to = changes.record, UNSET
        if changes.branch is not None and changes.branch.name == changes.record.active_branch:
            self.read_to = self._branch_rows[changes.branch.name].place
        if changes.runs is not None and changes.runs.annotations:
            self._is_last_text_current, self._last_added = False, None
        elif self.read_to is not UNSET:
            self._is_last_text_current = False
        if changes.profile is not None:
            self._put_profile(changes.profile)
        return changes.record.head

    def _put_profile(self, profile: ChatProfile) -> None:
        owner, self._profile = self.owner, profile
        self._put(Tag.PROFILE, with_checksum(_encode(profile)))
        # Whose it is may be known late: the event with which it began loses the owner with the title.
        for run in self.run_rows.unended() if owner != profile.user_id and self.run_rows is not None else ():
            self._note_open(run, is_open=True)

    def flush(self) -> None:
        """Write what was kept back."""
        if self.chat_no is None:
            return
        record, profile, chains = self.record, self.profile, self._writer
        assert record is not None, "a living chat has a record"
        assert profile is not None, "a living chat has a profile"
        chains.flush()
        if self._new_places:
            self._tables.put_locations(self._txn, self.chat_no, self._new_places)
            self._new_places.clear()
        if self._search is not None:
            self._search.flush()
        put, rows = self._txn.put, self._tables.rows
        for row in self._changed_branches.values():
            put(self._prefix + Tag.BRANCH + id_key(row.name), with_checksum(_encode(row)), db=rows)
        if not self._is_last_text_current:
            self._put_last_text(record.active_branch)
        self._changed_branches.clear()
        put(self._prefix + Tag.RECORD, with_checksum(_encode(record)), db=rows)
        self._tables.move_head(self._txn, self.chat_id, self.chat_no, self._summed, record.head)
        self._summed = record.head
        if chains.segment_count != self._stored_segment_count:
            put(self._prefix + Tag.COUNTERS, _COUNTERS.pack(chains.segment_count), db=rows)
            self._stored_segment_count = chains.segment_count
        self._list(record, profile)

    def _put_last_text(self, branch: str) -> None:
        """Keep the line that a list shows of the last message of a branch, whose row is written."""
        row = self.branch_record(branch)
        assert row is not None, "a chat has its active branch"
        line = None
        if self._last_added is not None and self._last_added[0] == row.place:
            # What it says was read for the search index just now; where that lags behind, or nothing is said, the message is asked.
            line = line_of("" if self._search is None else self._search.last_text) or self._last_added[1].line
        elif row.place is not None:
            line = self.chains.message(row.place).line
        if line is None:
            self._txn.delete(self._prefix + Tag.LAST_TEXT, db=self._tables.rows)
        else:
            self._put(Tag.LAST_TEXT, with_checksum(line.encode()))
        self._is_last_text_current, self._last_added = True, None

    def _list(self, record: ChatRecord, profile: ChatProfile) -> None:
        """Move the chat to its place in the lists that are ordered by time."""
        assert self.chat_no is not None, "only a living chat is listed"
        before, listed, members = (None, None, None) if self._listed is None else self._listed
        # Most events change only the time: the lists are the same, and their keys are not computed twice.
        is_listed_alike = listed is profile and members == self._member_ids
        if is_listed_alike and before is not None and before.updated_at == record.updated_at:
            return
        listings = scopes(profile.user_id, profile.metadata, self._member_ids)
        if before is not None and listed is not None and members is not None:
            left = listings if is_listed_alike else scopes(listed.user_id, listed.metadata, members)
            self._drop(left, order_suffix(before.updated_at, self.chat_id, self.chat_no))
        owner = profile.user_id if listed is None else listed.user_id
        if members != self._member_ids or owner != profile.user_id:
            place = order_suffix(record.created_at, self.chat_id, self.chat_no)
            self._drop(creation_scopes(owner, members or ()), place)
            self._enter(creation_scopes(profile.user_id, self._member_ids), place)
        if listed is not profile:
            note_expiry(self._txn, self._tables, self.chat_no, listed, profile)
        self._enter(listings, order_suffix(record.updated_at, self.chat_id, self.chat_no))
        self._listed = record, profile, self._member_ids

    def _enter(self, listings: Iterable[bytes], place: bytes) -> None:
        for listing in listings:
            self._txn.put(listing + place, self._prefix, db=self._tables.order)

    def _drop(self, listings: Iterable[bytes], place: bytes) -> None:
        for listing in listings:
            self._txn.delete(listing + place, db=self._tables.order)

    def _add(self, line: Sequence[Message], ordinal: int, recorded: Recorded) -> None:
        """Add messages, each of which is the parent of the next one."""
        assert self.chat_no is not None, "only a living chat has messages"
        for message in line:
            if self.place(message.id) is not None:
                raise self._added_again(message.id, recorded)
        above = line[0].parent_id
        parent = None if above is None else self._target(above, recorded)
        (segment, first), bodies = self._writer.add(line, parent, ordinal)
        places = {message.id: (segment, offset) for offset, message in enumerate(line, first)}
        if len(places) < len(line):
            ids = [message.id for message in line]
            raise self._added_again(next(twice for twice in ids if ids.count(twice) > 1), recorded)
        self._places.update(places)
        self._new_places.update(places)
        self._last_added = (segment, first + len(line) - 1), line[-1]
        for message, body in zip(line, bodies, strict=True):
            if message.copied_from is not None:
                self._tables.put_copy(self._txn, message.copied_from, self.chat_no, places[message.id])
            if message.merged_from:
                parents = [self._target(parent, recorded) for parent in message.merged_from]
                merged_at = ordinal + places[message.id][1] - first
                row = b"".join(_PLACE.pack(*place) for place in (places[message.id], *parents))
                self._txn.put(
                    chat_key(self.chat_no, Tag.MERGE, merged_at.to_bytes(4)), with_checksum(row), db=self._tables.rows
                )
            # The data come from the log with what lay beside it put back in, so what was large is found out again.
            for large in take_out(message.data).large if len(body) > LARGE_BYTES else ():
                note_large(self._txn, self._tables, self.chat_no, large.digest)
        # While the whole index is built, messages are inverted for the search index by processes beside this one.
        sink = self._tables.caches.sink
        if sink is not None:
            sink.add(self.chat_no, ordinal, (segment, first), bodies)
            return
        if self._search is None:
            self._search = SearchWriter(self._txn, self._tables, self.chat_no)
        for at, message in enumerate(line):
            self._search.add(message, ordinal + at, (segment, first + at))

    def _redact(self, messages: Sequence[Message]) -> None:
        """Put messages without content in the places of what they were; nothing of that stays in what is derived from them."""
        assert self.chat_no is not None, "only a living chat has messages"
        chains, sink = self._writer, self._tables.caches.sink
        chains.flush()
        if self._search is not None:
            self._search.flush()
        indexed: list[tuple[int, Message]] = []
        for message in messages:
            place = self.place(message.id)
            assert place is not None, "the fold looked whether the chat has it"
            before, ordinal = chains.message(place), self.ordinal(place)
            body = chains.replace(place, before, message)
            if len(pack_message(before)) > LARGE_BYTES:
                for large in take_out(before.data).large:
                    note_less_large(self._txn, self._tables, self.chat_no, large.digest)
            # What stands in the place of content is not searched, so a message that was redacted before has no words there.
            if before.redacted is None:
                indexed.append((ordinal, before))
                if sink is not None:
                    sink.replace(self.chat_no, ordinal, body)
        chains.flush()
        forget_texts(self._txn, self._tables, self.chat_no, indexed)
        self._is_last_text_current, self._last_added = False, None

    def _rename(self, messages: Sequence[Message], *, is_of_senders: bool) -> None:
        """Put messages that name somebody otherwise in the places of what they were; their content is the same."""
        self._writer.flush()
        for message in messages:
            place = self.place(message.id)
            assert place is not None, "the fold looked whether the chat has it"
            self._writer.put_again(place, message)
            if is_of_senders:
                self._put_pseudonym(NO_VERSION, self.ordinal(place), "")
        self._writer.flush()

    def take_slots(self, body: ContentRedacted, positions: Iterable[int]) -> None:
        """Note what stands in the heads of events, at these positions, whose slots lose what they had."""
        for version, slots in body.targets:
            for slot in slots:
                if slot <= HEAD_CONTENT:
                    self._put_pseudonym(version, slot, str(body.text) if body.takes_names else "")
        if not body.takes_names:
            return
        # With the actor the id of the command goes, by which a repeat was recognised.
        renamed = {*positions}
        commands = [(key, to_number(raw[:8])) for key, raw in self._rows(Tag.COMMAND)]
        for key, first in commands:
            if first in renamed:
                self._txn.delete(key, db=self._tables.rows)

    def _put_pseudonym(self, version: int, slot: int, pseudonym: str) -> None:
        self._put(Tag.PSEUDONYM, with_checksum(pseudonym.encode()), slot_key(version, slot))

    def message(self, message_id: str) -> Message | None:
        self.put_messages()
        return super().message(message_id)

    def put_messages(self) -> None:
        """Write the messages that were kept back."""
        if self.chat_no is not None:
            self._writer.flush()

    def is_to_rewrite(self, body: ContentRedacted) -> bool:
        """Whether an event that is applied next takes content away that was still in the events that were applied."""
        # Where the log is read from the beginning, most events were rewritten long ago: those are no work for the eraser.
        if (body.takes_names or not body.message_ids) and any(
            slot <= HEAD_CONTENT and self._row(Tag.PSEUDONYM, slot_key(version, slot)) is None
            for version, slots in body.targets
            for slot in slots
        ):
            return True
        if body.takes_names:
            senders = {message.sender_id for message in map(self.message, body.message_ids) if message is not None}
            return not senders <= {None, body.text}
        for message_id in body.message_ids:
            message = self.message(message_id)
            if (
                message is not None
                and message.redacted != UNEXPLAINED
                # A copy was redacted before it was copied: its notes tell by whom.
                and (message.redacted is None or message.data is not None or not message.redacted.version)
            ):
                return True
        return False

    def _added_again(self, message_id: str, recorded: Recorded) -> ChainIntegrityError:
        msg = f"position {recorded.position} adds message {message_id!r} of chat {self.chat_id!r} a second time"
        return ChainIntegrityError(msg)

    def _target(self, message_id: str, recorded: Recorded) -> Place:
        place = self._places.get(message_id) or self.place(message_id)
        if place is None:
            msg = (
                f"position {recorded.position} names message {message_id!r}, which chat {self.chat_id!r} does not have"
            )
            raise ChainIntegrityError(msg)
        return place

    def _put_branch(self, branch: BranchRecord, recorded: Recorded, *, is_new_name: bool) -> None:
        head = branch.head_message_id
        place = None if head is None else self._target(head, recorded)
        length = 0 if place is None else self._writer.depth(place) + 1
        self._branch_rows[branch.name] = self._changed_branches[branch.name] = BranchRow(
            branch.id, branch.name, head, branch.created_at, branch.seen, branch.number, place, length
        )
        if not is_new_name:
            return
        self._put(Tag.BRANCH_NAME, with_checksum(branch.name.encode()), branch_number(branch.number))
        self._tables.put_branch_key(self._txn, branch.id, to_number(self._prefix), branch.name)
        self._count_name(branch.name)

    def _count_name(self, name: str) -> None:
        for base in bases_of(name):
            raw = self._plain_row(Tag.NAME_COUNT, id_key(base))
            self._put(Tag.NAME_COUNT, number(1 if raw is None else to_number(raw) + 1), id_key(base))

    def _recount_names(self) -> None:
        """Count the names that branches have: those that they had must not stand here when they are in no event any more."""
        drop_prefixed(self._txn, self._tables.rows, self._prefix + Tag.NAME_COUNT)
        for name in {row.name for row in (*self._branch_list(), *self._changed_branches.values())}:
            self._count_name(name)

    def _drop_branch(self, name: str) -> None:
        dropped = self.branch_record(name)
        assert dropped is not None, "the fold looked whether the chat has it"
        self._tables.drop_branch_key(self._txn, dropped.id, to_number(self._prefix), dropped.name)
        self._branch_rows.pop(name, None)
        self._changed_branches.pop(name, None)
        self._txn.delete(self._prefix + Tag.BRANCH + id_key(name), db=self._tables.rows)
        self._txn.delete(self._prefix + Tag.BRANCH_NAME + branch_number(dropped.number), db=self._tables.rows)

    def _put_checkpoints(self, changes: ChatChanges, recorded: Recorded) -> None:
        checkpoint = changes.checkpoint
        if checkpoint is not None:
            self._target(checkpoint.message_id, recorded)
            row = CheckpointRow(checkpoint.id, checkpoint.name, checkpoint.message_id, checkpoint.created_at)
            self._put(Tag.CHECKPOINT, with_checksum(_encode(row)), id_key(checkpoint.name))
        if changes.dropped_checkpoint is not None:
            key = self._prefix + Tag.CHECKPOINT + id_key(changes.dropped_checkpoint)
            self._txn.delete(key, db=self._tables.rows)

    def _put_members(self, changes: ChatChanges) -> None:
        member = changes.member
        changed = changes.dropped_member if member is None else member.user_id
        assert changed is not None, "a member is put or dropped"
        others = tuple(user_id for user_id in self._member_ids if user_id != changed)
        if member is None:
            self._txn.delete(self._prefix + Tag.MEMBER + id_key(changed), db=self._tables.rows)
        else:
            row = MemberRow(member.user_id, member.role, member.added_at)
            self._put(Tag.MEMBER, with_checksum(_encode(row)), id_key(changed))
        self._member_ids = others if member is None else (*others, changed)

    def _put_runs(self, changes: RunChanges, run_count: int) -> None:
        for message_id, annotation in changes.annotations:
            place = self.place(message_id)
            assert place is not None, "the fold looked whether the chat has it"
            self.chains.annotations.put(place, message_id, annotation)
        rows = self.run_rows
        assert rows is not None, "only a living chat has runs"
        if changes.run is not None:
            rows.put_run(changes.run, changes.before, run_count)
            self._note_open(changes.run, is_open=changes.run.status in {"pending", "running"})
        if changes.regeneration is not None:
            rows.put_regeneration(changes.regeneration)

    def _note_open(self, run: MessageRun, *, is_open: bool) -> None:
        """Tell the thread of a run whether that is open."""
        assert self.chat_no is not None, "only a living chat has runs"
        key = open_run(run.thread_id, self.chat_no, run.run_id)
        if is_open:
            self._txn.put(key, (self.owner or "").encode(), db=self._tables.version_lists)
        elif not self._txn.delete(key, db=self._tables.version_lists):
            return
        self.threads_with_runs.add(run.thread_id)

    def _delete(self, changes: ChatChanges, recorded: Recorded) -> StreamHead:
        tombstone, body = changes.tombstone, recorded.body
        assert tombstone is not None, "a deletion leaves a tombstone"
        assert isinstance(body, ChatDeleted), "only a deletion ends a chat"
        if self.chat_no is not None:
            self.flush()  # what this transaction added is deleted by way of its rows, like everything else
            for run in () if self.run_rows is None else self.run_rows.unended():
                self._note_open(run, is_open=False)
            self._tables.move_head(self._txn, self.chat_id, self.chat_no, self._summed, None)
            self._summed = None
            assert self._listed is not None, "a living chat is listed"
            record, profile, members = self._listed
            updated = order_suffix(record.updated_at, self.chat_id, self.chat_no)
            self._drop(scopes(profile.user_id, profile.metadata, members), updated)
            created = order_suffix(record.created_at, self.chat_id, self.chat_no)
            self._drop(creation_scopes(profile.user_id, members), created)
            note_expiry(self._txn, self._tables, self.chat_no, profile, None)
            for place, message in self.chains.all_places():
                self._tables.drop_location(self._txn, message.id, self.chat_no, place)
                if message.copied_from is not None:
                    self._tables.drop_copy(self._txn, message.copied_from, self.chat_no, place)
            for branch in self._branch_list():
                self._tables.drop_branch_key(self._txn, branch.id, self.chat_no, branch.name)
            forget_large(self._txn, self._tables, self.chat_no)
            if self._tables.caches.sink is not None:
                self._tables.caches.sink.drop(self.chat_no)
            messages = (message for _, message in self.chains.all_messages())
            forget_messages(self._txn, self._tables, self.chat_no, messages)
            drop_prefixed(self._txn, self._tables.rows, number(self.chat_no))
        self._tables.put_tombstone(self._txn, self.chat_id, tombstone)
        self._places.clear()
        self._locations.clear()
        self._branch_rows.clear()
        self.chat_no = self.record = self._profile = self._chains = self._listed = self._search = None
        self._has_stored_messages, self._member_ids = False, ()
        self._is_last_text_current, self._last_added, self.read_to = True, None, UNSET
        return tombstone.head

    def _put(self, tag: bytes, value: bytes, rest: bytes = b"") -> None:
        assert self.chat_no is not None, "only a living chat has rows"
        self._txn.put(self._prefix + tag + rest, value, db=self._tables.rows)
