"""Applying the changes of events to the rows of one chat, inside one write transaction."""

from collections.abc import Iterable
from struct import Struct
from typing import Final

import msgspec

from chatledger.domain.chat.events import ChatDeleted, Recorded
from chatledger.domain.chat.fork import bases_of
from chatledger.domain.chat.run_state import RunChanges
from chatledger.domain.chat.state import BranchRecord, Changes, ChatProfile, ChatRecord, evolve
from chatledger.domain.errors import ChainIntegrityError
from chatledger.domain.log.large_data import LARGE_BYTES, data_digest, large_data
from chatledger.domain.values import Message

from ..lmdb.checksums import with_checksum
from ..lmdb.environment import Transaction, drop_prefixed
from ..lmdb.keys import Tag, id_key, number, order_suffix, scopes, to_number
from ..lmdb.tables import Tables
from ..search.indexer import SearchWriter
from .chain_writer import ChainWriter
from .chains import Place
from .lists import forget_large, note_expiry, note_large
from .reader import BranchRow, CheckpointRow, IndexedChat

_encode: Final = msgspec.msgpack.Encoder().encode
_COUNTERS: Final = Struct(">I")


class ChatWriter(IndexedChat):
    """A chat in a write transaction. Rows that each event changes are kept back and written once, by `flush`."""

    def __init__(self, tables: Tables, txn: Transaction, chat_id: str) -> None:
        super().__init__(tables, txn, chat_id, tables.chat_no(txn, chat_id))
        self._listed: tuple[ChatRecord, ChatProfile] | None = None
        self._branch_rows: dict[str, BranchRow] = {}
        self._new_places: dict[str, Place] = {}
        self._writer: ChainWriter | None = None
        self._search: SearchWriter | None = None
        if self.chat_no is not None:
            self._begin(self.chat_no)
            record, profile = self.record, self.profile
            if record is not None and profile is not None:
                self._listed = record, profile

    def _begin(self, chat_no: int) -> None:
        raw = self._row(Tag.COUNTERS)
        count: int = 0 if raw is None else _COUNTERS.unpack(raw)[0]
        self._writer = ChainWriter(self._txn, self._tables.rows, chat_no, self.chat_id, segment_count=count)
        self._search = None

    @property
    def chains(self) -> ChainWriter:
        """The chains of this chat, which exists."""
        assert self._writer is not None, "only a living chat has chains"
        return self._writer

    def branch_row(self, name: str) -> BranchRow | None:
        """The stored form of a branch, with what was changed since."""
        return self._branch_rows.get(name) or super().branch_row(name)

    def apply(self, recorded: Recorded) -> None:
        """Take the next event of the chat in. Raises `ChainIntegrityError` when it does not follow."""
        changes = evolve(self, recorded)
        if changes.record is None:
            self._delete(changes, recorded)
            return
        if self.chat_no is None:
            self.chat_no = changes.record.first_position
            self._prefix = number(self.chat_no)
            self._tables.put_chat_no(self._txn, self.chat_id, self.chat_no)
            self._places.clear()
            self._begin(self.chat_no)
        ordinal = changes.record.message_count - len(changes.messages)
        for message in changes.messages:
            self._add(message, ordinal, recorded)
            ordinal += 1
        if changes.branch is not None:
            self._put_branch(changes.branch, recorded, is_new=changes.is_new_branch)
        if changes.checkpoint is not None or changes.dropped_checkpoint is not None:
            self._put_checkpoints(changes, recorded)
        if changes.runs is not None:
            self._put_runs(changes.runs, changes.record.run_count)
        if recorded.event.command_id is not None:
            self._put_command(recorded.event.command_id, recorded.position)
        self._record = changes.record
        if changes.profile is not None:
            self._profile = changes.profile
            self._put(Tag.PROFILE, with_checksum(_encode(changes.profile)))

    def flush(self) -> None:
        """Write what was kept back."""
        if self.chat_no is None:
            return
        record, profile, chains = self.record, self.profile, self.chains
        assert record is not None, "a living chat has a record"
        assert profile is not None, "a living chat has a profile"
        chains.flush()
        if self._new_places:
            self._tables.put_locations(self._txn, self.chat_no, self._new_places)
            self._new_places.clear()
        if self._search is not None:
            self._search.flush()
        for row in self._branch_rows.values():
            self._put(Tag.BRANCH, with_checksum(_encode(row)), id_key(row.name))
        self._branch_rows.clear()
        self._put(Tag.RECORD, with_checksum(_encode(record)))
        self._put(Tag.COUNTERS, _COUNTERS.pack(chains.segment_count))
        self._list(record, profile)

    def _list(self, record: ChatRecord, profile: ChatProfile) -> None:
        """Move the chat to its place in the lists that are ordered by time."""
        assert self.chat_no is not None, "only a living chat is listed"
        before, listed = (None, None) if self._listed is None else self._listed
        is_described_alike = listed is profile
        if is_described_alike and before is not None and before.updated_at == record.updated_at:
            return
        listings = scopes(profile.user_id, profile.metadata)
        if before is not None and listed is not None:
            self._unlist(before, listings if is_described_alike else scopes(listed.user_id, listed.metadata))
        if not is_described_alike:
            note_expiry(self._txn, self._tables, self.chat_no, listed, profile)
        place = order_suffix(record.updated_at, self.chat_id, self.chat_no)
        for listing in listings:
            self._txn.put(listing + place, self._prefix, db=self._tables.order)
        self._listed = record, profile

    def _unlist(self, record: ChatRecord, listings: Iterable[bytes]) -> None:
        assert self.chat_no is not None, "only a living chat is listed"
        place = order_suffix(record.updated_at, self.chat_id, self.chat_no)
        for listing in listings:
            self._txn.delete(listing + place, db=self._tables.order)

    def _add(self, message: Message, ordinal: int, recorded: Recorded) -> None:
        assert self.chat_no is not None, "only a living chat has messages"
        if self.place(message.id) is not None:
            msg = f"position {recorded.position} adds message {message.id!r} of chat {self.chat_id!r} a second time"
            raise ChainIntegrityError(msg)
        parent = None if message.parent_id is None else self._target(message.parent_id, recorded)
        chains = self.chains
        place = chains.add(message, parent, ordinal)
        self._places[message.id] = self._new_places[message.id] = place
        for data in large_data(message) if chains.added_bytes > LARGE_BYTES else []:
            note_large(self._txn, self._tables, self.chat_no, data_digest(data))
        if self._search is None:
            self._search = SearchWriter(self._txn, self._tables, self.chat_no)
        self._search.add(message, ordinal, place)

    def _target(self, message_id: str, recorded: Recorded) -> Place:
        place = self.place(message_id)
        if place is None:
            msg = (
                f"position {recorded.position} names message {message_id!r}, which chat {self.chat_id!r} does not have"
            )
            raise ChainIntegrityError(msg)
        return place

    def _put_branch(self, branch: BranchRecord, recorded: Recorded, *, is_new: bool) -> None:
        head = branch.head_message_id
        place = None if head is None else self._target(head, recorded)
        length = 0 if place is None else self.chains.depth(place) + 1
        self._branch_rows[branch.name] = BranchRow(branch.id, branch.name, head, branch.created_at, place, length)
        if not is_new:
            return
        for base in bases_of(branch.name):
            raw = self._row(Tag.NAME_COUNT, id_key(base))
            self._put(Tag.NAME_COUNT, number(1 if raw is None else to_number(raw) + 1), id_key(base))

    def _put_checkpoints(self, changes: Changes, recorded: Recorded) -> None:
        checkpoint = changes.checkpoint
        if checkpoint is not None:
            self._target(checkpoint.message_id, recorded)
            row = CheckpointRow(checkpoint.id, checkpoint.name, checkpoint.message_id, checkpoint.created_at)
            self._put(Tag.CHECKPOINT, with_checksum(_encode(row)), id_key(checkpoint.name))
        if changes.dropped_checkpoint is not None:
            key = self._prefix + Tag.CHECKPOINT + id_key(changes.dropped_checkpoint)
            self._txn.delete(key, db=self._tables.rows)

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

    def _put_command(self, command_id: str, position: int) -> None:
        known = self.command(command_id)
        first = position if known is None else known[0]
        self._put(Tag.COMMAND, number(first) + number(position), id_key(command_id))

    def _delete(self, changes: Changes, recorded: Recorded) -> None:
        tombstone, body = changes.tombstone, recorded.body
        assert tombstone is not None, "a deletion leaves a tombstone"
        assert isinstance(body, ChatDeleted), "only a deletion ends a chat"
        if self.chat_no is not None:
            self.flush()
            assert self._listed is not None, "a living chat is listed"
            record, profile = self._listed
            self._unlist(record, scopes(profile.user_id, profile.metadata))
            note_expiry(self._txn, self._tables, self.chat_no, profile, None)
            for place, message_id in self.chains.all_places():
                self._tables.drop_location(self._txn, message_id, self.chat_no, place)
            forget_large(self._txn, self._tables, self.chat_no)
            drop_prefixed(self._txn, self._tables.rows, number(self.chat_no))
            drop_prefixed(self._txn, self._tables.search, number(self.chat_no))
        self._tables.put_tombstone(self._txn, self.chat_id, tombstone)
        self._places.clear()
        self.chat_no, self._record, self._profile, self._listed, self._writer = None, None, None, None, None
        self._search = None

    def _put(self, tag: bytes, value: bytes, rest: bytes = b"") -> None:
        assert self.chat_no is not None, "only a living chat has rows"
        self._txn.put(self._prefix + tag + rest, value, db=self._tables.rows)
