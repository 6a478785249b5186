"""
Removing the messages of deleted chats from the index.

The transaction of a deletion takes them out of what waits and of all counts, and searches find them no more. Segments that have
them are cleaned before the deletion is reported as erased, in steps: of each term of the chat the blocks are written anew.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from ..lmdb.environment import Transaction, drop_prefixed
from ..lmdb.keys import number
from ..lmdb.tables import Tables
from .manifest import (
    DELETED,
    LANDMARKS,
    PENDING,
    Merge,
    SearchManifest,
    SearchSegment,
    Totals,
    manifest_of,
    put_manifest,
    put_totals,
    totals_of,
)
from .waiting import add_rows, messages_in, packed, rows_of

if TYPE_CHECKING:
    from .documents import SegmentDocuments
    from .postings import Postings
    from .segments import Ranges

STEP_BLOCKS: Final = 64
STEP_ROWS: Final = 200


def forget_chat(txn: Transaction, tables: Tables, chat_no: int, terms: Iterable[bytes]) -> None:
    """
    Take a chat out of the index; `finish_step` removes what segments have of it.

    Args:
        txn: The transaction.
        tables: Of the index.
        chat_no: The chat.
        terms: All that its messages have, those of tools and reasoning with their signs, maybe more than once.
    """
    drop_prefixed(txn, tables.search, LANDMARKS + number(chat_no))
    totals = _without_waiting(txn, tables, totals_of(txn, tables), chat_no)
    manifest = manifest_of(txn, tables)
    if manifest.segments:
        totals, is_there = _without_stored(txn, tables, manifest, totals, chat_no)
        if is_there:
            manifest.deleted.append(chat_no)
            manifest.purged = (0, b"")
            put_manifest(txn, tables, manifest)
            txn.put(DELETED + number(chat_no), b"\0".join(sorted(set(terms))), db=tables.search)
    put_totals(txn, tables, totals)


def _without_waiting(txn: Transaction, tables: Tables, totals: Totals, chat_no: int) -> Totals:
    kept = list(messages_in(rows_of(txn, tables)))
    dropped = [one for one in kept if one.chat_no == chat_no]
    if not dropped:
        return totals
    kept = [one for one in kept if one.chat_no != chat_no]
    drop_prefixed(txn, tables.search, PENDING)
    rows = list(map(packed, kept))
    next_row = add_rows(txn, tables, rows, 0) if rows else 0
    text, tools, reasoning = (sum(one.lengths[field] for one in dropped) for field in range(3))
    return totals._replace(
        documents=totals.documents - len(dropped),
        text=totals.text - text,
        tools=totals.tools - tools,
        reasoning=totals.reasoning - reasoning,
        pending=len(kept),
        pending_bytes=sum(len(head) + len(body) for head, body in rows),
        next_row=next_row,
    )


def _without_stored(
    txn: Transaction, tables: Tables, manifest: SearchManifest, totals: Totals, chat_no: int
) -> tuple[Totals, bool]:
    """Return the counts without what segments have of a chat, and whether they have any of it."""
    # NumPy takes a tenth of a second to import: only where there are segments, which it has written.
    from .documents import LENGTHS, SegmentDocuments

    documents, lengths = 0, [0, 0, 0]
    for segment in manifest.segments:
        stored = SegmentDocuments(txn, tables, segment, may_remember=False)
        starts, ends = stored.directory.ranges([chat_no])
        if len(starts):
            documents += int((ends - starts).sum())
            for column in LENGTHS.values():
                lengths[column] += stored.range_sum(column, starts, ends)
    text, tools, reasoning = (
        before - less for before, less in zip((totals.text, totals.tools, totals.reasoning), lengths, strict=True)
    )
    after = totals._replace(documents=totals.documents - documents, text=text, tools=tools, reasoning=reasoning)
    return after, documents > 0


def finish_step(txn: Transaction, tables: Tables) -> bool:
    """Remove a part of what segments have of deleted chats; returns whether there was any left."""
    manifest = manifest_of(txn, tables)
    if not manifest.deleted:
        return False
    _Cleaning(txn, tables, manifest).step()
    put_manifest(txn, tables, manifest)
    return True


class _Cleaning:
    def __init__(self, txn: Transaction, tables: Tables, manifest: SearchManifest) -> None:
        self._txn, self._tables, self._manifest = txn, tables, manifest
        self._chats = sorted(manifest.deleted)

    def step(self) -> None:
        from .segments import drop_rows

        manifest = self._manifest
        for merge in [one for one in manifest.merges if self._may_have_them(one)]:
            self._cancel(merge)
        if manifest.trash:
            if drop_rows(self._txn, self._tables, manifest.trash[0], STEP_ROWS) < STEP_ROWS:
                del manifest.trash[0]
            return
        for segment in manifest.segments:
            stored = self._stored(segment)
            if len(stored.directory.ranges(self._chats)[0]):
                self._clean(segment, stored)
                return
        self._finish()

    def _may_have_them(self, merge: Merge) -> bool:
        """Whether the output of a merge may have something of the chats."""
        chats = [chat_no for chat_no in self._chats if chat_no not in merge.left_out]
        return bool(chats) and any(
            len(self._stored(segment).directory.ranges(chats)[0])
            for segment in self._manifest.segments
            if segment.id in merge.inputs
        )

    def _cancel(self, merge: Merge) -> None:
        self._manifest.merges.remove(merge)
        self._manifest.trash.append(merge.output)

    def _finish(self) -> None:
        """Forget that they were there."""
        manifest = self._manifest
        for merge in manifest.merges:  # the chats are not in the inputs any more
            merge.left_out = []
        for chat_no in self._chats:
            self._txn.delete(DELETED + number(chat_no), db=self._tables.search)
        manifest.deleted, manifest.purged = [], (0, b"")

    def _stored(self, segment: SearchSegment) -> "SegmentDocuments":
        from .documents import SegmentDocuments

        return SegmentDocuments(self._txn, self._tables, segment, may_remember=False)

    def _clean(self, segment: SearchSegment, stored: "SegmentDocuments") -> None:
        """Write some blocks of a segment anew, or when that is done, what is known of its documents."""
        start = self._manifest.purged[1] if self._manifest.purged[0] == segment.id else b""
        terms = self._terms(stored)
        rest = _clean_blocks(self._txn, self._tables, stored, self._chats, [term for term in terms if term >= start])
        if rest is None:
            self._clean_documents(segment, stored)
            self._manifest.purged = (0, b"")
        else:
            self._manifest.purged = (segment.id, rest)

    def _terms(self, stored: "SegmentDocuments") -> list[bytes]:
        """Return the terms of the chats that the segment has."""
        found: set[bytes] = set()
        for chat_no in self._chats:
            if len(stored.directory.ranges([chat_no])[0]):
                row = self._txn.get(DELETED + number(chat_no), b"", db=self._tables.search)
                found.update(row.split(b"\0") if row else ())
        return sorted(found)

    def _clean_documents(self, segment: SearchSegment, stored: "SegmentDocuments") -> None:
        import numpy as np

        from .documents import ROLE, clear_columns, put_directory
        from .postings import spread

        kept = stored.directory.without(self._chats)
        if not kept.size:
            for merge in [one for one in self._manifest.merges if segment.id in one.inputs]:
                self._cancel(merge)
            self._manifest.segments.remove(segment)
            self._manifest.trash.append(segment.id)
            return
        used = set(np.unique(stored.column(ROLE)[kept.documents]).tolist())
        names = [name if role in used else "" for role, name in enumerate(stored.names)]
        starts, ends = stored.directory.ranges(self._chats)
        clear_columns(self._txn, self._tables, stored, spread(starts, ends - starts))
        put_directory(self._txn, self._tables, segment.id, kept, names)
        segment.version += 1


def _clean_blocks(
    txn: Transaction, tables: Tables, stored: "SegmentDocuments", chat_nos: Sequence[int], terms: Sequence[bytes]
) -> bytes | None:
    """Remove the postings of chats from the blocks that have them of ascending terms; returns the term to go on with, if any."""
    from .segments import BlockCursor, document_of, term_of

    ranges = stored.directory.ranges(chat_nos)
    cursor, done = BlockCursor(txn.cursor(tables.search), stored.segment.id), 0
    behind = b""
    for term in terms:
        if term < behind:
            continue  # its only block is cleaned already
        document = _next_of(ranges, 0)
        while document is not None and (key := cursor.seek(term, document)) is not None:
            behind, last_document = term_of(key), document_of(key)
            removed = _clean_block(txn, tables, stored, key, cursor.block.postings(), chat_nos)
            stored.segment.postings -= removed
            done += bool(removed)
            document = _next_of(ranges, last_document + 1) if behind == term else None
        if done >= STEP_BLOCKS:
            return term
    return None


def _next_of(ranges: "Ranges", document: int) -> int | None:
    """Return the first document from one on that is in ranges."""
    place = int(ranges[1].searchsorted(document, "right"))
    return None if place == len(ranges[1]) else max(document, int(ranges[0][place]))


def _clean_block(
    txn: Transaction,
    tables: Tables,
    stored: "SegmentDocuments",
    key: bytes,
    postings: "Postings",
    chat_nos: Sequence[int],
) -> int:
    """Write a block anew without the postings of some chats; returns how many it had."""
    from .blocks import cut_again
    from .segments import put_blocks

    is_gone = stored.is_of_any(postings.documents, chat_nos)
    if not is_gone.any():
        return 0
    txn.delete(key, db=tables.search)
    if not is_gone.all():
        put_blocks(txn, tables, stored.segment.id, cut_again(postings.kept(~is_gone)))
    return int(is_gone.sum())
