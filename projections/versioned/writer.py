"""Applying the events of a versioned value to its rows, inside one write transaction."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

import msgspec

from chatledger.domain.chat.events import ContentRedacted, Recorded
from chatledger.domain.chat.redaction import HEAD_CONTENT
from chatledger.domain.chat.state import StreamHead, Tombstone, check_follows, misplaced, next_head, read_holds
from chatledger.domain.errors import CorruptStateError
from chatledger.domain.versioned.content import Piece
from chatledger.domain.versioned.events import (
    SOURCE_DELETED,
    THINNED,
    Begins,
    Skeleton,
    TaskWrites,
    VersionContentPut,
    VersionPut,
    VersionsCopied,
    VersionsDeleted,
    VersionsExpirySet,
    VersionsKept,
    VersionsRemoved,
    VersionWritesPut,
)
from chatledger.domain.versioned.keys import ITEM, THREAD, is_within, parse_item_id
from chatledger.domain.versioned.record import AgentStanding, StoredWrite, VersionedRecord, VersionRecord
from chatledger.domain.versioned.standing import SPECIAL, is_agents, made_at, standing_of, work_ms

from ..lmdb.environment import Transaction, drop_prefixed, prefixed
from ..lmdb.keys import id_key, number, to_number
from ..lmdb.tables import Tables
from . import lists, rows
from .messages import MessageWriter
from .pieces import StoredPiece, base_of, piece_to_store, reached_pieces
from .reader import IndexedVersioned, PlainReader
from .rows import note_copy, read_writes, sealed, version_row, writes_row

_encode: Final = msgspec.msgpack.Encoder().encode
_standing_decoder: Final = msgspec.msgpack.Decoder(AgentStanding)


class VersionedWriter(IndexedVersioned):
    """A versioned value in a write transaction. The record is written by `flush`, and its places in lists; everything else at once."""

    def __init__(self, tables: Tables, txn: Transaction, stream_id: str) -> None:
        super().__init__(tables, txn, stream_id)
        record = self.record
        self._places: Mapping[bytes, bytes] = {}
        """The rows by which lists have the value that move with its changes."""
        if record is not None and self.stream_no is not None:
            self._places = lists.moving_places(self.family, self.stream_no, record)
        self._is_living_item = record is not None and lists.is_living_item(self.family, record)
        self._counts = lists.count_keys(self.family, record)
        self._unsettled: set[str] = set()
        """The lines of agents whose standing may have changed since the last flush."""
        self._messages = MessageWriter(txn, tables, self)
        self._newest_put: VersionRecord | None = None
        self._new_pieces: dict[bytes, StoredPiece] = {}
        """Those of the event that is applied, whose messages are looked for next: they are not read back."""

    def apply(self, recorded: Recorded, last: StreamHead | None = None) -> StreamHead:
        """Take the next event of the value in; see `StreamWriter.apply`."""
        head = next_head(check_follows(self, recorded) if last is None else last, recorded)
        event, body = recorded.event, recorded.body
        time = event.occurred_at
        self._new_pieces.clear()
        if isinstance(body, VersionsDeleted):
            self._delete(Tombstone(head, time, event.command_id))
            return head
        self._touch(head, recorded)
        for slot in event.redacted:
            if slot <= HEAD_CONTENT:  # of a log that is read again: the event that says what stands there comes later
                self._put_pseudonym(recorded.version, slot, "")
        if isinstance(body, ContentRedacted):
            self._take_away(recorded, body)
        elif isinstance(body, VersionContentPut):
            self._put_pieces(body.pieces)
        elif isinstance(body, VersionPut):
            self._put_pieces(body.pieces)
            if body.writes and body.parent is not None:
                self._put_writes(body.line, body.parent, body.writes, time)
            version = _record_of(body, time, recorded.position)
            # Without content it is pruned until the event comes that says what stays of it.
            is_bare = HEAD_CONTENT in event.redacted
            self._put_version(msgspec.structs.replace(version, skeleton=()) if is_bare else version)
            self._messages.take_version(version)
            self._change(time if body.stored_at is None else body.stored_at, expires_at=body.expires_at)
        elif isinstance(body, VersionWritesPut):
            self._need_line(body.line)
            self._put_pieces(body.pieces)
            self._put_writes(body.line, body.id, body.tasks, time)
            self._change(max((task.written_at for task in body.tasks), default=0) or time)
        elif isinstance(body, VersionsKept):
            self._keep(body, recorded.version)
        elif isinstance(body, VersionsRemoved):
            self._remove(body, recorded)
            self._change(time)
        elif isinstance(body, VersionsCopied):
            self._copy(body)
            self._messages.recount(recorded.position, [], is_forced=True)
            self._change(time)
        elif isinstance(body, VersionsExpirySet):
            record = self._need_record()
            holds = record.holds if body.holds is None else read_holds(recorded, body.holds, body.hold_notes)
            self.record = msgspec.structs.replace(record, expires_at=body.expires_at, holds=holds)
        else:
            raise misplaced(recorded, f"it is not of a {self.family.name}")
        return head

    def take_slots(self, body: ContentRedacted, _positions: Iterable[int]) -> None:
        """Note what stands in the heads of events whose slots lose a name."""
        for version, slots in body.targets:
            for slot in slots:
                self._put_pseudonym(version, slot, str(body.text))

    def is_to_rewrite(self, body: ContentRedacted) -> bool:
        """Whether an event that is applied next takes names away that were still in the events that were applied."""
        return any(self._pseudonym_row(version, slot) is None for version, slots in body.targets for slot in slots)

    def _put_pseudonym(self, version: int, slot: int, pseudonym: str) -> None:
        key = rows.pseudonym_key(self._need_no(), rows.PSEUDONYM, version, slot)
        self._put(key, sealed(key, pseudonym))
        unexplained = rows.pseudonym_key(self._need_no(), rows.UNEXPLAINED, version, slot)
        if pseudonym:
            self._txn.delete(unexplained, db=self._tables.versioned)
        elif slot == HEAD_CONTENT:
            self._put(unexplained, b"")
        if slot == HEAD_CONTENT:
            self._note_taken(version)

    def _note_taken(self, version: int) -> None:
        """Note that an event has nothing that a rule could take out."""
        start, end, stream_no = version, version, self._need_no()
        cursor = self._txn.cursor(self._tables.versioned)
        prefix = number(stream_no) + rows.TAKEN
        has_next = cursor.set_range(rows.taken_key(stream_no, rows.TAKEN, version + 1))
        if has_next and cursor.key() == rows.taken_key(stream_no, rows.TAKEN, version + 1):
            end = to_number(cursor.value())
        if (cursor.prev() if has_next else cursor.last()) and cursor.key().startswith(prefix):
            before = to_number(cursor.value())
            if before >= version:
                return
            if before == version - 1:
                start = to_number(cursor.key()[len(prefix) :])
        if end > version:
            self._txn.delete(rows.taken_key(stream_no, rows.TAKEN, version + 1), db=self._tables.versioned)
        self._put(rows.taken_key(stream_no, rows.TAKEN, start), number(end))

    def flush(self) -> None:
        """Write what was kept back."""
        if self.stream_no is None or self.record is None:
            return
        self._messages.flush()
        if self.family is THREAD:
            self._settle()
        record = self.record
        self._put_record(record)
        self._move(lists.moving_places(self.family, self.stream_no, record))
        if self.family is ITEM:
            self._count_in_namespace(record, is_living=lists.is_living_item(self.family, record))

    def _settle(self) -> None:
        """
        Note how the thread stands, which rows alone decide: it is the same in whatever parts the events come, and in any order, as
        that of an error before the checkpoint that it belongs to.
        """
        record, stream_no = self._need_record(), self._need_no()
        of_line: AgentStanding | None = None
        for line in sorted(self._unsettled):
            line_no = self.line_no(line)
            newest = self._newest_put
            if newest is None or line or newest.id != record.newest:  # of other lines the rows alone know it
                newest = None if line_no is None else self.newest(line)
            if line_no is not None:
                key = rows.numbered_key(stream_no, rows.STANDING, line_no)
                if newest is None:
                    self._txn.delete(key, db=self._tables.versioned)
                else:
                    of_line = standing_of(newest, self.writes(line, newest.id), PlainReader(self).value)
                    self._put(key, sealed(key, of_line))
        standing = record.standing
        if record.line_count == 1 and of_line is not None:
            standing = of_line
        elif self._unsettled:
            listed = prefixed(self._txn, self._tables.versioned, number(stream_no) + rows.STANDING)
            standing = max(
                (rows.unsealed(key, raw, _standing_decoder) for key, raw in listed),
                key=lambda stands: (stands.status == "waits", stands.stored_at, stands.version_id),
                default=None,
            )
        self._unsettled.clear()
        open_runs = prefixed(self._txn, self._tables.version_lists, lists.runs_of(record.key))
        # A run of somebody else's chat that names this thread says nothing about it.
        is_running = any(record.owner in {None, owner.decode()} for _, owner in open_runs)
        self.record = msgspec.structs.replace(record, standing=standing, is_running=is_running)
        self._count()

    def _count(self) -> None:
        """Note that there is a thread more that stands as this one does, and one fewer as it did."""
        before, self._counts = self._counts, lists.count_keys(self.family, self.record)
        if before == self._counts:
            return
        for keys, change in ((before, -1), (self._counts, 1)):
            for key in keys:
                raw = self._txn.get(key, db=self._tables.version_lists)
                count = change + (0 if raw is None else to_number(raw))
                if count > 0:
                    self._list(key, number(count))
                else:
                    self._txn.delete(key, db=self._tables.version_lists)

    def _work(self, change_ms: int) -> None:
        if change_ms:
            record = self._need_record()
            self.record = msgspec.structs.replace(record, work_ms=record.work_ms + change_ms)

    def _work_after(self, version: VersionRecord) -> int:
        """Return how long the tasks worked that wrote after a checkpoint, in ms. A subgraph's are part of the task that runs it."""
        prefix = self._prefix(version.line)
        if prefix is None or self.family is not THREAD or not is_agents(version.line):
            return 0
        listed = prefixed(self._txn, self._tables.version_writes, rows.writes_key(prefix, version.id))
        return sum(work_ms(made_at(version), read_writes(key, raw)) for key, raw in listed)

    def _put_record(self, record: VersionedRecord) -> None:
        key = number(self._need_no()) + rows.RECORD
        self._put(key, sealed(key, record))

    def _move(self, places: Mapping[bytes, bytes]) -> None:
        """Move the value to its places in the lists by time."""
        before, self._places, table = self._places, places, self._tables.version_lists
        for key in before:
            if key not in places:
                self._txn.delete(key, db=table)
        for key, row in places.items():
            if key not in before:
                self._txn.put(key, row, db=table)

    def _touch(self, head: StreamHead, recorded: Recorded) -> None:
        """Note the event as the last one; the first one makes the value."""
        record = self.record
        if record is not None:
            self.record = msgspec.structs.replace(record, head=head)
            return
        begins = getattr(recorded.body, "begins", None)
        if begins is not None and self.family.stream_of(begins.key) != self.stream_id:
            raise misplaced(recorded, f"it is of another {self.family.name}")
        time, position = recorded.event.occurred_at, recorded.position
        created_at = time if begins is None or begins.created_at is None else begins.created_at
        key = (self.family.key_of(self.stream_id) or "") if begins is None else begins.key
        owner = None if begins is None else begins.owner
        self.stream_no = position
        self._line_nos.clear()
        self._txn.put(rows.stream_key(self.stream_id), number(position), db=self._tables.chat_ids)
        self.record = VersionedRecord(
            key, position, head.version, head, created_at, created_at, owner, messages_no=position
        )
        if key:
            for place in lists.fixed_places(self.family, position, self.record):
                self._list(place, b"")

    def _change(self, time: int, *, expires_at: int | msgspec.UnsetType | None = msgspec.UNSET) -> None:
        """Note when the value was changed. Copies that are re-emitted have earlier times, which change nothing of it."""
        record = self._need_record()
        self.record = msgspec.structs.replace(
            record,
            updated_at=max(record.updated_at, time),
            expires_at=record.expires_at if expires_at is msgspec.UNSET else expires_at,
        )

    def _need_record(self) -> VersionedRecord:
        record = self.record
        assert record is not None, "events make a value"
        return record

    def _need_no(self) -> int:
        assert self.stream_no is not None, "events make a value"
        return self.stream_no

    def _put_pieces(self, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            stored = self._intact_content(piece.digest)
            is_whole = not base_of(piece.content)
            # A piece that comes whole where an edit stands is re-emitted: the base of the edit may be with a source that is erased.
            if stored is None or (is_whole and base_of(stored.content)):
                self._store_piece(piece.digest, piece_to_store(piece.content, self._intact_content, self.whole))

    def _intact_content(self, digest: bytes) -> StoredPiece | None:
        try:
            return self.stored_content(digest)
        except CorruptStateError:
            return None

    def _store_piece(self, digest: bytes, piece: StoredPiece) -> None:
        key = rows.piece_key(self._need_no(), rows.PIECE, digest)
        self._put(key, sealed(key, piece))
        self._new_pieces[digest] = piece

    def stored_content(self, digest: bytes) -> StoredPiece | None:
        """A piece as it is stored, without reading back what was just put. Raises `CorruptStateError` when it is damaged."""
        return self._new_pieces.get(digest) or super().stored_content(digest)

    def _put_version(self, version: VersionRecord) -> None:
        line_no, stream_no = self._need_line(version.line), self._need_no()
        key = rows.line_prefix(stream_no, line_no) + version.id.encode()
        raw = self._txn.get(key, db=self._tables.version_rows)
        self._txn.put(key, version_row(key, version), db=self._tables.version_rows)
        bare_until = self.bare_until(version.line)
        if bare_until is not None and version.id <= bare_until:  # an import, or a copy of one made anew
            self._txn.delete(rows.numbered_key(stream_no, rows.BARE, line_no), db=self._tables.versioned)
        self._note_standing(version, None if raw is None else rows.read_version(key, raw, version.line, version.id))
        self._note_awaited(version, line_no)
        if lists.LISTS[self.family.name].has_ids:
            self._list(lists.by_id(version.id, stream_no, line_no), b"")
            if version.run_id is not None:
                self._list(lists.by_run(version.run_id, stream_no, line_no, version.id), b"")
        record = self._need_record()
        if raw is None:
            record = msgspec.structs.replace(record, version_count=record.version_count + 1)
        if not version.line and (record.newest is None or version.id >= record.newest):
            record = _with_newest(record, version)
            self._newest_put = version if version.skeleton is None else None
        self.record = record

    def _note_standing(self, version: VersionRecord | None, before: VersionRecord | None) -> None:
        """Note that a checkpoint came, changed its form or went; its writes are as they were."""
        line = version.line if version is not None else "" if before is None else before.line
        if self.family is THREAD and is_agents(line):
            self._unsettled.add(line)
            self._work(
                (0 if version is None else self._work_after(version))
                - (0 if before is None else self._work_after(before))
            )

    def _note_awaited(self, version: VersionRecord, line_no: int) -> None:
        """Note that a version came, and that its parent is still to come where that is not there."""
        stream_no = self._need_no()
        awaited = rows.numbered_key(stream_no, rows.AWAITED, line_no)
        self._txn.delete(awaited + version.id.encode(), db=self._tables.versioned)
        if version.parent is None or version.is_orphan:
            return
        parent = version.parent.encode()
        if self._txn.get(rows.line_prefix(stream_no, line_no) + parent, db=self._tables.version_rows) is None:
            self._put(awaited + parent, b"")

    def _drop_version(self, line: str, version_id: str) -> None:
        """Forget a version, but not its writes."""
        line_no, stream_no = self.line_no(line), self._need_no()
        if line_no is None:
            return
        key = rows.line_prefix(stream_no, line_no) + version_id.encode()
        raw = self._txn.get(key, db=self._tables.version_rows)
        if raw is None:
            return
        self._note_standing(None, rows.read_version(key, raw, line, version_id))
        self._unlist_version(key, raw, line_no)
        self._txn.delete(key, db=self._tables.version_rows)
        self._newest_put = None
        record = self._need_record()
        self.record = msgspec.structs.replace(record, version_count=record.version_count - 1)

    def _unlist_version(self, key: bytes, raw: bytes, line_no: int) -> None:
        if not lists.LISTS[self.family.name].has_ids:
            return
        stream_no, version_id = self._need_no(), key[len(rows.line_prefix(0, 0)) :].decode()
        self._txn.delete(lists.by_id(version_id, stream_no, line_no), db=self._tables.version_lists)
        run_id = rows.read_version(key, raw, "", version_id).run_id
        if run_id is not None:
            self._txn.delete(lists.by_run(run_id, stream_no, line_no, version_id), db=self._tables.version_lists)

    def _put_writes(self, line: str, version_id: str, tasks: Iterable[TaskWrites], time: int) -> None:
        for task in tasks:
            writes = [
                StoredWrite(task.task_id, slot.index, task.task_path, slot.channel, slot.digest, task.written_at)
                for slot in task.slots
            ]
            new = self._merge_writes(line, version_id, task.task_id, writes)
            self._messages.take_writes(line, version_id, new, time)

    def _merge_writes(
        self, line: str, version_id: str, task_id: str, writes: Iterable[StoredWrite]
    ) -> list[StoredWrite]:
        """Put the writes of one task in, and return those that are new. Slots from 0 on that are taken stay, those below are replaced."""
        prefix = rows.line_prefix(self._need_no(), self._need_line(line))
        key = rows.writes_key(prefix, version_id, rows.task_key(task_id))
        raw = self._txn.get(key, db=self._tables.version_writes)
        slots = {} if raw is None else {write.index: write for write in read_writes(key, raw)}
        new: list[StoredWrite] = []
        for write in writes:
            if write.index < 0 or write.index not in slots:
                slots[write.index] = write
                new.append(write)
        merged = list(slots.values())
        self._txn.put(key, writes_row(key, merged), db=self._tables.version_writes)
        if self.family is THREAD and is_agents(line):
            if not SPECIAL.isdisjoint(write.channel for write in merged):
                self._unsettled.add(line)
            version = self.version(line, version_id)
            if version is not None:
                before = [] if raw is None else read_writes(key, raw)
                self._work(work_ms(made_at(version), merged) - work_ms(made_at(version), before))
        return new

    def _take_away(self, recorded: Recorded, body: ContentRedacted) -> None:
        if body.message_ids or any(max(slots) > HEAD_CONTENT for _, slots in body.targets):
            raise misplaced(recorded, "it takes more away than names and versions")
        if not body.takes_names:
            self._note_taken(recorded.version)
            if not recorded.event.rest:
                self._let_go(recorded.position)

    def _keep(self, body: VersionsKept, event_version: int) -> None:
        """Give versions what stays of them. Where it was never gone, nothing changes."""
        if all(rest.skeleton == () for rest in body.rests):
            self._note_taken(event_version)
        if body.begins is not None:
            self._begin_anew(body.begins)
        for rest in body.rests:
            version = self.version(rest.line, rest.id)
            if version is not None:
                bare_until = self.bare_until(rest.line)
                if rest.skeleton != () and bare_until is not None and rest.id <= bare_until:
                    self._txn.delete(self._bare_key(rest.line), db=self._tables.versioned)
                version = msgspec.structs.replace(
                    version, fields=rest.fields, frames=rest.frames, skeleton=rest.skeleton
                )
                self._store(version)
                if bare_until is not None:
                    self._note_bare(rest.line)
                record = self._need_record()
                if not rest.line and record.newest == rest.id:
                    self.record = _with_newest(record, version)

    def _begin_anew(self, begins: Begins) -> None:
        """Note with what the value began, where the event that said so has lost it."""
        record, stream_no = self._need_record(), self._need_no()
        begun = msgspec.structs.replace(
            record,
            key=begins.key,
            owner=begins.owner,
            created_at=record.created_at if begins.created_at is None else begins.created_at,
        )
        if begun == record:
            return
        self._messages.forget(self._messages.all_messages())  # the lists of those name the owner
        if record.key:
            for place in lists.fixed_places(self.family, stream_no, record):
                self._txn.delete(place, db=self._tables.version_lists)
        for place in lists.fixed_places(self.family, stream_no, begun):
            self._list(place, b"")
        self.record = msgspec.structs.replace(begun, message_count=0)

    def _let_go(self, position: int) -> None:
        """
        Forget what nothing reaches, once what stays is there.

        Of a log that is read again, versions may come to their content later than the log once had it: until then nothing goes.
        """
        messages = self._messages.all_messages()
        self._drop_unreached()
        for digest, piece in list(self.stored_pieces()):
            if base_of(piece.content) and piece.depth != (depth := self._depth(digest)):
                self._store_piece(digest, StoredPiece(piece.content, depth))
        self._new_pieces.clear()
        self._messages.recount(position, messages, is_forced=True)

    def _depth(self, digest: bytes) -> int:
        """Out of how many others a piece came one after the other, whenever these came."""
        depth, seen = 0, {digest}
        piece = self.stored_content(digest)
        while piece is not None and (base := base_of(piece.content)) and base not in seen:
            seen.add(base)
            depth, piece = depth + 1, self.stored_content(base)
        return depth

    def _remove(self, body: VersionsRemoved, recorded: Recorded) -> None:
        messages = self._messages.all_messages()
        for line in body.lines:
            self._drop_line(line)
        parents = dict[tuple[str, str], None]()
        for line, version_id in body.versions:
            version = self.version(line, version_id)
            if version is not None and version.parent is not None:
                parents[line, version.parent] = None
            self._drop_writes(line, version_id, kept=())
            self._drop_version(line, version_id)
            line_no = self.line_no(line)
            if line_no is not None:
                # Without the source of a copy, versions of it were awaited that were there: nobody awaits them any more.
                awaited = rows.numbered_key(self._need_no(), rows.AWAITED, line_no)
                self._txn.delete(awaited + version_id.encode(), db=self._tables.versioned)
        for line, parent in parents:
            # A log without the source of a copy never had those that awaited it.
            if self.is_awaited(line, parent) and all(each.parent != parent for each in self.versions(line)):
                awaited = rows.numbered_key(self._need_no(), rows.AWAITED, self._need_line(line))
                self._txn.delete(awaited + parent.encode(), db=self._tables.versioned)
        for skeleton in body.skeletons:
            self._strip(skeleton)
        for line in dict.fromkeys(skeleton.line for skeleton in body.skeletons if not skeleton.channels):
            self._note_bare(line)
        for line in dict.fromkeys(line for line, _ in body.versions):
            if self.bare_until(line) is not None:
                self._note_bare(line)
        for line, version_id in body.orphans:
            version = self.version(line, version_id)
            if version is not None:
                self._store(msgspec.structs.replace(version, is_orphan=True))
        record = self._need_record()
        if record.newest is not None and self.version("", record.newest) is None:
            newest = next(self.versions(""), None)
            self.record = _with_newest(record, newest)
        if body.reason == THINNED and recorded.event.rest:
            self._note_taken(recorded.version)
            return
        self._drop_unreached()
        # A copy that was made anew from its own events has its messages in another order than it had them from the source.
        self._messages.recount(recorded.position, messages, is_forced=body.reason == SOURCE_DELETED)

    def _strip(self, skeleton: Skeleton) -> None:
        version = self.version(skeleton.line, skeleton.id)
        if version is None:
            return
        self._drop_writes(version.line, version.id, kept=skeleton.channels)
        fields = {name: ref for name, ref in version.fields.items() if name in skeleton.channels}
        self._store(msgspec.structs.replace(version, fields=fields, skeleton=skeleton.channels))

    def _note_bare(self, line: str) -> None:
        """Note up to which version none of a line has any content. Goes on where the last look ended, so it costs what is new."""
        until = self.bare_until(line)
        if until is not None and self.version(line, until) is None:
            until = next(self.version_ids(line, before=until), None)
        for version in self.versions_after(line, until or ""):
            if version.skeleton != ():
                break
            until = version.id
        if until is not None:
            self._put(self._bare_key(line), until.encode())
        else:
            self._txn.delete(self._bare_key(line), db=self._tables.versioned)

    def _bare_key(self, line: str) -> bytes:
        return rows.numbered_key(self._need_no(), rows.BARE, self._need_line(line))

    def _store(self, version: VersionRecord) -> None:
        key = rows.line_prefix(self._need_no(), self._need_line(version.line)) + version.id.encode()
        self._txn.put(key, version_row(key, version), db=self._tables.version_rows)
        self._newest_put = None
        if is_agents(version.line):
            self._unsettled.add(version.line)

    def _drop_line(self, line: str) -> None:
        line_no, stream_no = self.line_no(line), self._need_no()
        if line_no is None:
            return
        for version_id in list(self.version_ids(line)):
            self._drop_version(line, version_id)
        drop_prefixed(self._txn, self._tables.version_writes, rows.line_prefix(stream_no, line_no))
        drop_prefixed(self._txn, self._tables.versioned, rows.numbered_key(stream_no, rows.AWAITED, line_no))
        for kind in (rows.STANDING, rows.BARE):
            self._txn.delete(rows.numbered_key(stream_no, kind, line_no), db=self._tables.versioned)
        record = self._need_record()
        if not line and record.has_plain_line:
            self.record = msgspec.structs.replace(record, has_plain_line=False)
            self._put_record(self.record)
        else:
            text_key = number(stream_no) + rows.LINE_TEXT + rows.line_number(line_no)
            self._txn.delete(text_key, db=self._tables.versioned)
            self._txn.delete(number(stream_no) + rows.LINE + id_key(line), db=self._tables.versioned)
        self._line_nos[line] = None

    def _drop_writes(self, line: str, version_id: str, *, kept: tuple[str, ...]) -> None:
        prefix = self._prefix(line)
        if prefix is None:
            return
        version = self.version(line, version_id)
        worked = 0 if version is None else self._work_after(version)
        if is_agents(line):
            self._unsettled.add(line)
        table = self._tables.version_writes
        for key, raw in list(prefixed(self._txn, table, rows.writes_key(prefix, version_id))):
            rest = [write for write in read_writes(key, raw) if write.channel in kept] if kept else []
            if rest:
                self._txn.put(key, writes_row(key, rest), db=table)
            else:
                self._txn.delete(key, db=table)
        self._work((0 if version is None else self._work_after(version)) - worked)

    def _drop_unreached(self) -> None:
        """
        Drop the pieces that no version and no write reaches any more. Costs a look at all of them.

        Those that stay are stored whole where they came out of one that goes: else that would keep what was removed. Nothing goes as long
        as versions are still to come to their content.
        """
        unexplained = number(self._need_no()) + rows.UNEXPLAINED
        if next(prefixed(self._txn, self._tables.versioned, unexplained), None) is not None:
            return
        try:
            # In one pass over the rows: looking each up took twice as long.
            pieces = dict(self.stored_pieces())
            reached = reached_pieces(self.roots(self.lines()), pieces.get)
        except CorruptStateError:
            return  # nobody knows what a damaged piece reaches; rebuilding the index drops what is gone
        for digest, piece in self._freed(reached).items():
            if piece is not reached[digest]:
                self._store_piece(digest, piece)
        self._new_pieces.clear()
        for digest in pieces.keys() - reached.keys():
            self._txn.delete(rows.piece_key(self._need_no(), rows.PIECE, digest), db=self._tables.versioned)

    def _freed(self, pieces: Mapping[bytes, StoredPiece]) -> dict[bytes, StoredPiece]:
        """Return pieces, whole where what they came out of is not among them."""
        freed = dict(pieces)
        for digest, piece in pieces.items():
            base = base_of(piece.content)
            if base and base not in pieces:
                # A base that is not there is still to come, to a copy whose source is erased: it brings this piece whole.
                with suppress(CorruptStateError):
                    freed[digest] = StoredPiece(self.whole(piece.content))
        return freed

    def _copy(self, body: VersionsCopied) -> None:
        """Take over what the source has; only the names of its lines when it is erased, and then events of its own follow."""
        for line in body.lines:
            self._need_line(line)
        source = VersionedWriter(self._tables, self._txn, self.family.stream_of(body.source_key))
        stream_no = self._need_no()
        if source.stream_no is None:
            return
        note_copy(self._txn, self._tables, source.stream_no, stream_no, self.key)
        lines = [line for line in source.lines() if body.within is None or is_within(line, body.within)]
        reached = reached_pieces(source.roots(lines), source.stored_content)
        for digest, piece in source._freed(reached).items():
            self._store_piece(digest, piece)
        for line in lines:
            for version in reversed(list(source.versions(line))):  # parents first
                self._put_version(version)
            for version_id, writes in source.all_writes(line):
                self._merge_writes(line, version_id, writes[0].task_id, writes)

    def _delete(self, tombstone: Tombstone) -> None:
        record, stream_no = self.record, self.stream_no
        if stream_no is not None and record is not None:
            prefix = number(stream_no)
            self._messages.forget(self._messages.all_messages())
            for key, raw in prefixed(self._txn, self._tables.version_rows, prefix):
                self._unlist_version(key, raw, int.from_bytes(key[len(prefix) : len(prefix) + rows.LINE_BYTES], "big"))
            drop_prefixed(self._txn, self._tables.version_rows, prefix)
            drop_prefixed(self._txn, self._tables.version_writes, prefix)
            for kind in rows.OF_A_LIVING_VALUE:
                drop_prefixed(self._txn, self._tables.versioned, prefix + kind)
            self._move({})
            self._count_in_namespace(record, is_living=False)
            if record.key:
                for place in lists.fixed_places(self.family, stream_no, record):
                    self._txn.delete(place, db=self._tables.version_lists)
            self._txn.delete(rows.stream_key(self.stream_id), db=self._tables.chat_ids)
        self._tables.put_tombstone(self._txn, self.stream_id, tombstone)
        self.stream_no, self.record = None, None
        self._line_nos.clear()
        self._unsettled.clear()
        self._count()

    def _count_in_namespace(self, record: VersionedRecord, *, is_living: bool) -> None:
        """Note that the namespace of an item has one with a value more or fewer."""
        change, self._is_living_item = is_living - self._is_living_item, is_living
        item = parse_item_id(record.key) if change else None
        if item is None:
            return
        key = lists.namespace_key(item.user_id, item.namespace)
        raw = self._txn.get(key, db=self._tables.version_lists)
        count = change + (0 if raw is None else lists.decode_namespace(raw).count)
        if count > 0:
            self._list(key, _encode(lists.ItemNamespace(item.namespace, count)))
        else:
            self._txn.delete(key, db=self._tables.version_lists)

    def _need_line(self, line: str) -> int:
        line_no = self.line_no(line)
        if line_no is not None:
            return line_no
        record, stream_no = self._need_record(), self._need_no()
        line_no = record.line_count
        # A value of one line, as states and items are, has no rows for it.
        is_plain = not line and line_no == rows.PLAIN_LINE
        if not is_plain:
            packed = rows.line_number(line_no)
            self._put(number(stream_no) + rows.LINE + id_key(line), packed)
            self._put(number(stream_no) + rows.LINE_TEXT + packed, line.encode())
        self._line_nos[line] = line_no
        self.record = msgspec.structs.replace(
            record, line_count=line_no + 1, has_plain_line=record.has_plain_line or is_plain
        )
        # A copy that is made in the same transaction looks here for the lines.
        self._put_record(self.record)
        return line_no

    def _put(self, key: bytes, value: bytes) -> None:
        self._txn.put(key, value, db=self._tables.versioned)

    def _list(self, key: bytes, value: bytes) -> None:
        self._txn.put(key, value, db=self._tables.version_lists)


def _with_newest(record: VersionedRecord, version: VersionRecord | None) -> VersionedRecord:
    """Return a record whose newest version of the line "" is another one."""
    if version is None:
        return msgspec.structs.replace(record, newest=None, node=None, size_bytes=0, is_ended=False)
    return msgspec.structs.replace(
        record,
        newest=version.id,
        node=version.node,
        size_bytes=version.size_bytes,
        is_ended=not version.fields,
    )


def _record_of(body: VersionPut, time: int, position: int) -> VersionRecord:
    return VersionRecord(
        body.line,
        body.id,
        body.parent,
        body.fields,
        body.frames,
        body.runtime,
        time if body.stored_at is None else body.stored_at,
        body.run_id,
        body.node,
        body.is_final,
        body.is_orphan,
        body.skeleton,
        position,
    )
