"""Applying the changes of events to the rows of one chat, and adding messages to its chains, in one write transaction."""

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import Final

import lmdb
import msgspec

from chatledger.domain.chat.events import ChatDeleted, Recorded
from chatledger.domain.chat.fork import bases_of
from chatledger.domain.chat.run_state import RunChanges
from chatledger.domain.chat.state import BranchRecord, ChatChanges, ChatProfile, ChatRecord, evolve
from chatledger.domain.context.messages import USER
from chatledger.domain.context.summary import is_real_user_message, once_ids_of
from chatledger.domain.errors import ChainIntegrityError
from chatledger.domain.log.large_data import LARGE_BYTES, take_out
from chatledger.domain.packing import pack_message
from chatledger.domain.values import Message

from ..lmdb.checksums import with_checksum, without_checksum
from ..lmdb.environment import Transaction, drop_prefixed
from ..lmdb.keys import (
    NO_SEGMENT,
    Tag,
    branch_number,
    creation_scopes,
    fork_key,
    id_key,
    number,
    once_prefix,
    order_suffix,
    page_key,
    scopes,
    segment_key,
    to_number,
    turn_key,
)
from ..lmdb.tables import Tables
from ..search.indexer import SearchWriter, delete_chat
from .chains import NO_TURNS, TURN_BLOCK, Chains, Place, Segment, TurnBlock
from .forked import SEGMENT
from .lists import forget_large, note_expiry, note_large
from .packed import compressed
from .pages import PAGE_BYTES, PAGE_MESSAGES, pack_page, split_page, unpack_page
from .reader import BranchRow, CheckpointRow, IndexedChat, MemberRow

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
        bare = [_replace(message, chat_id="", parent_id=None) for message in line]
        bodies = [pack_message(message) for message in bare]
        self._added.setdefault(number, []).extend(enumerate(map(compressed, bare, bodies), ordinal))
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
                if is_real_user_message(message):
                    written |= 1 << within
                for once_id in once_ids_of(message):
                    key = once_prefix(self._chat_no, once_id) + _PLACE.pack(number, start + within)
                    self._txn.put(key, with_checksum(once_id.encode()), db=self._table)
            within += 1
        self._turn_blocks[number, start] = TurnBlock(before, written)

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
        self._txn.put(fork_key(self._chat_no, at, number), b"", db=self._table)
        return number, segment

    def flush(self) -> None:
        """Write what was added since the last flush."""
        for segment_no, added in self._added.items():
            segment = self._write_tail(segment_no, self.segment(segment_no), added)
            self._segments[segment_no] = segment
            self._txn.put(segment_key(self._chat_no, segment_no), with_checksum(SEGMENT.pack(*segment)), db=self._table)
        self._added.clear()
        for first, block in self._turn_blocks.items():
            self._txn.put(turn_key(self._chat_no, first), with_checksum(block.packed()), db=self._table)
        self._turn_blocks.clear()

    def _write_tail(self, number: int, segment: Segment, added: list[NumberedBody]) -> Segment:
        """Write what was added to a segment as a row of its own, or merged with the rows at the end into pages."""
        size = segment.tail_bytes + sum(len(body) for _, body in added)
        if segment.length - segment.tail_start < PAGE_MESSAGES and size < PAGE_BYTES:
            self._put_page(number, segment.length - len(added), added)
            return segment._replace(tail_bytes=size)
        offset = segment.tail_start
        rest: list[NumberedBody] = []
        used = 0
        for numbered in [*self._take_tail(number, segment.tail_start), *added]:
            rest.append(numbered)
            used += len(numbered[1])
            if len(rest) == PAGE_MESSAGES or used >= PAGE_BYTES:
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
        prefix = page_key(self._chat_no, number, start)[:-4]
        is_row = cursor.set_range(page_key(self._chat_no, number, start))
        while is_row and (key := cursor.key()).startswith(prefix):
            page = without_checksum(cursor.value())
            taken.extend(zip(unpack_page(key, page).ordinals, split_page(page), strict=True))
            cursor.delete()  # moves to the next row
            is_row = bool(cursor.key())
        return taken

    def _put_page(self, number: int, offset: int, numbered: list[NumberedBody]) -> None:
        value = pack_page([ordinal for ordinal, _ in numbered], [body for _, body in numbered])
        self._txn.put(page_key(self._chat_no, number, offset), with_checksum(value), db=self._table)


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
        super().__init__(tables, txn, chat_id, tables.chat_no(txn, chat_id))
        self._listed: tuple[ChatRecord, ChatProfile, tuple[str, ...]] | None = None
        self._member_ids: tuple[str, ...] = ()
        self._branch_rows: dict[str, BranchRow] = {}
        self._new_places: dict[str, Place] = {}
        self._search: SearchWriter | None = None
        if self.chat_no is not None:
            self._begin(self.chat_no)
            record, profile = self.record, self.profile
            if record is not None and profile is not None:
                if record.member_count:
                    self._member_ids = tuple(member.user_id for member in self.members())
                self._listed = record, profile, self._member_ids

    def _begin(self, chat_no: int) -> None:
        raw = self._row(Tag.COUNTERS)
        count: int = 0 if raw is None else _COUNTERS.unpack(raw)[0]
        self._chains = self._writer = ChainWriter(
            self._txn, self._tables.rows, chat_no, self.chat_id, segment_count=count
        )
        self._search = None

    def branch_row(self, name: str) -> BranchRow | None:
        """The stored form of a branch, with what was changed since."""
        return self._branch_rows.get(name) or super().branch_row(name)

    def apply(self, recorded: Recorded) -> None:
        """Apply the next event of the chat. Raises `ChainIntegrityError` when it does not follow."""
        changes = evolve(self, recorded)
        if changes.record is None:
            self._delete(changes, recorded)
            return
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
        if changes.dropped_branch is not None:
            dropped = self.branch_row(changes.dropped_branch)
            assert dropped is not None, "the fold looked whether the chat has it"
            self._tables.drop_branch_key(self._txn, dropped.id, to_number(self._prefix), dropped.name)
            self._branch_rows.pop(changes.dropped_branch, None)
            self._txn.delete(self._prefix + Tag.BRANCH + id_key(changes.dropped_branch), db=self._tables.rows)
            self._txn.delete(self._prefix + Tag.BRANCH_NAME + branch_number(dropped.number), db=self._tables.rows)
        if changes.branch is not None:
            self._put_branch(changes.branch, recorded, is_new_name=changes.is_new_name)
        if changes.checkpoint is not None or changes.dropped_checkpoint is not None:
            self._put_checkpoints(changes, recorded)
        if changes.member is not None or changes.dropped_member is not None:
            self._put_members(changes)
        if changes.runs is not None:
            self._put_runs(changes.runs, changes.record.run_count)
        if recorded.event.command_id is not None:
            command_id, position = recorded.event.command_id, recorded.position
            span = self.command(command_id)
            self._put(Tag.COMMAND, number(span[0] if span else position) + number(position), id_key(command_id))
        self.record = changes.record
        if changes.profile is not None:
            self._profile = changes.profile
            self._put(Tag.PROFILE, with_checksum(_encode(changes.profile)))

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
        for row in self._branch_rows.values():
            put(self._prefix + Tag.BRANCH + id_key(row.name), with_checksum(_encode(row)), db=rows)
        self._branch_rows.clear()
        put(self._prefix + Tag.RECORD, with_checksum(_encode(record)), db=rows)
        put(self._prefix + Tag.COUNTERS, _COUNTERS.pack(chains.segment_count), db=rows)
        self._list(record, profile)

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
        if members != self._member_ids:
            place = order_suffix(record.created_at, self.chat_id, self.chat_no)
            self._drop(creation_scopes(profile.user_id, members or ()), place)
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
        for message, body in zip(line, bodies, strict=True):
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

    def _added_again(self, message_id: str, recorded: Recorded) -> ChainIntegrityError:
        msg = f"position {recorded.position} adds message {message_id!r} of chat {self.chat_id!r} a second time"
        return ChainIntegrityError(msg)

    def _target(self, message_id: str, recorded: Recorded) -> Place:
        place = self.place(message_id)
        if place is None:
            msg = (
                f"position {recorded.position} names message {message_id!r}, which chat {self.chat_id!r} does not have"
            )
            raise ChainIntegrityError(msg)
        return place

    def _put_branch(self, branch: BranchRecord, recorded: Recorded, *, is_new_name: bool) -> None:
        head = branch.head_message_id
        place = None if head is None else self._target(head, recorded)
        length = 0 if place is None else self.chains.depth(place) + 1
        self._branch_rows[branch.name] = BranchRow(
            branch.id, branch.name, head, branch.created_at, branch.seen, branch.number, place, length
        )
        if not is_new_name:
            return
        self._put(Tag.BRANCH_NAME, with_checksum(branch.name.encode()), branch_number(branch.number))
        self._tables.put_branch_key(self._txn, branch.id, to_number(self._prefix), branch.name)
        for base in bases_of(branch.name):
            raw = self._row(Tag.NAME_COUNT, id_key(base))
            self._put(Tag.NAME_COUNT, number(1 if raw is None else to_number(raw) + 1), id_key(base))

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
        if changes.regeneration is not None:
            rows.put_regeneration(changes.regeneration)

    def _delete(self, changes: ChatChanges, recorded: Recorded) -> None:
        tombstone, body = changes.tombstone, recorded.body
        assert tombstone is not None, "a deletion leaves a tombstone"
        assert isinstance(body, ChatDeleted), "only a deletion ends a chat"
        if self.chat_no is not None:
            self.flush()  # what this transaction added is deleted by way of its rows, like everything else
            assert self._listed is not None, "a living chat is listed"
            record, profile, members = self._listed
            updated = order_suffix(record.updated_at, self.chat_id, self.chat_no)
            self._drop(scopes(profile.user_id, profile.metadata, members), updated)
            created = order_suffix(record.created_at, self.chat_id, self.chat_no)
            self._drop(creation_scopes(profile.user_id, members), created)
            note_expiry(self._txn, self._tables, self.chat_no, profile, None)
            for place, message_id in self.chains.all_places():
                self._tables.drop_location(self._txn, message_id, self.chat_no, place)
            for branch in self._branch_list():
                self._tables.drop_branch_key(self._txn, branch.id, self.chat_no, branch.name)
            forget_large(self._txn, self._tables, self.chat_no)
            if self._tables.caches.sink is not None:
                self._tables.caches.sink.drop(self.chat_no)
            delete_chat(self._txn, self._tables, self)
            drop_prefixed(self._txn, self._tables.rows, number(self.chat_no))
        self._tables.put_tombstone(self._txn, self.chat_id, tombstone)
        self._places.clear()
        self._locations.clear()
        self.chat_no = self.record = self._profile = self._chains = self._listed = self._search = None
        self._has_stored_messages, self._member_ids = False, ()

    def _put(self, tag: bytes, value: bytes, rest: bytes = b"") -> None:
        assert self.chat_no is not None, "only a living chat has rows"
        self._txn.put(self._prefix + tag + rest, value, db=self._tables.rows)
