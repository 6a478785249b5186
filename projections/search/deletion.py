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
    SearchManifest,
    SegmentMerge,
    Totals,
    WaitingMessage,
    add_rows,
    manifest_of,
    messages_in,
    packed,
    put_manifest,
    put_totals,
    rows_of,
    totals_of,
)

if TYPE_CHECKING:
    from .documents import SegmentDocuments
    from .segments import Ranges

STEP_BLOCKS: Final = 64
STEP_ROWS: Final = 200


def forget_chat(txn: Transaction, tables: Tables, chat_no: int, terms: Iterable[bytes]) -> None:
    """
    Take a chat out of the index; `finish_step` removes what segments have of it.

    `terms`: all that its messages have, those of tools and reasoning with their signs, maybe more than once.
    """
    drop_prefixed(txn, tables.search, LANDMARKS + number(chat_no))
    totals = _without_waiting(txn, tables, totals_of(txn, tables), chat_no)
    manifest = manifest_of(txn, tables)
    if manifest.segments:
        # NumPy takes a tenth of a second to import: only where there are segments, which it has written.
        from .documents import LENGTHS, SegmentDocuments

        documents, lengths = 0, [0, 0, 0]
        for segment in manifest.segments:
            stored = SegmentDocuments(txn, tables, segment, may_remember=False)
            starts, ends = stored.directory.ranges([chat_no])
            if len(starts):
                documents += int((ends - starts).sum())
                for column in LENGTHS.values():
                    lengths[column] -= stored.range_sum(column, starts, ends)
        totals, is_there = totals.with_more(-documents, lengths), documents > 0
        if is_there:
            manifest.deleted.append(chat_no)
            manifest.purged = (0, b"")
            put_manifest(txn, tables, manifest)
            # Its messages cannot be read any more when the segments are cleaned, so its terms are noted.
            txn.put(DELETED + number(chat_no), b"\0".join(sorted(set(terms))), db=tables.search)
    put_totals(txn, tables, totals)


def _without_waiting(txn: Transaction, tables: Tables, totals: Totals, chat_no: int) -> Totals:
    waiting = list(messages_in(rows_of(txn, tables)))
    staying = [message for message in waiting if message.chat_no != chat_no]
    return totals if len(staying) == len(waiting) else _with_waiting(txn, tables, totals, waiting, staying)


def _with_waiting(
    txn: Transaction,
    tables: Tables,
    totals: Totals,
    before: Sequence[WaitingMessage],
    waiting: Sequence[WaitingMessage],
) -> Totals:
    """Let other messages wait than before; returns the counts with these."""
    drop_prefixed(txn, tables.search, PENDING)
    rows = list(map(packed, waiting))
    next_row = add_rows(txn, tables, rows, 0) if rows else 0
    lengths = [sum(m.lengths[field] for m in waiting) - sum(m.lengths[field] for m in before) for field in range(3)]
    return totals.with_more(len(waiting) - len(before), lengths)._replace(
        pending=len(rows),
        pending_bytes=sum(len(head) + len(body) for head, body in rows),
        next_row=next_row,
    )


def forget_terms(
    txn: Transaction, tables: Tables, chat_no: int, numbers: Sequence[int], terms: Sequence[bytes]
) -> None:
    """
    Take what messages of a chat say out of the index, which goes on to have them, as messages without a word.

    At once: a search does not look whether a document that has its words was redacted. Costs the blocks that have these terms of them.

    `numbers`: the messages, by their numbers in log order, ascending. `terms`: all that they have, ascending, those of
    tools and reasoning with their signs.
    """
    gone = set(numbers)
    waiting = list(messages_in(rows_of(txn, tables)))
    silenced = [
        message._replace(lengths=(0, 0, 0), terms=b"")
        if message.chat_no == chat_no and message.number in gone
        else message
        for message in waiting
    ]
    totals = totals_of(txn, tables)
    if silenced != waiting:
        totals = _with_waiting(txn, tables, totals, waiting, silenced)
    manifest = manifest_of(txn, tables)
    if manifest.segments:
        totals = _silence_stored(txn, tables, manifest, totals, (chat_no, numbers, terms))
        put_manifest(txn, tables, manifest)
    put_totals(txn, tables, totals)


def _silence_stored(
    txn: Transaction,
    tables: Tables,
    manifest: SearchManifest,
    totals: Totals,
    silenced: tuple[int, Sequence[int], Sequence[bytes]],
) -> Totals:
    """Take what messages say out of segments: a chat, its messages, and their terms. Returns the counts without that."""
    from .documents import LENGTHS, SegmentDocuments, clear_columns

    chat_no, numbers, terms = silenced
    for segment in manifest.segments:
        stored = SegmentDocuments(txn, tables, segment, may_remember=False)
        documents = stored.directory.documents_of(chat_no, numbers)
        if not len(documents):
            continue
        # A merge under way may have read the words already, and would write them again.
        for merge in [merge for merge in manifest.merges if segment.id in merge.inputs]:
            _cancel(manifest, merge)
        rest: bytes | None = b""
        while rest is not None:
            later = [term for term in terms if term >= rest]
            rest = _clean_blocks(txn, tables, stored, (documents, documents + 1), later)
        lengths = [-int(stored.column_of(column, documents).sum()) for column in LENGTHS.values()]
        totals = totals.with_more(0, lengths)
        clear_columns(txn, tables, stored, documents, LENGTHS.values())
        segment.version += 1
    return totals


def finish_step(txn: Transaction, tables: Tables) -> bool:
    """Remove a part of what segments have of deleted chats, or of what they had when they were merged; returns whether there was any left."""
    manifest = manifest_of(txn, tables)
    if not (manifest.deleted or manifest.trash):
        return False
    _clean_segments(txn, tables, manifest)
    put_manifest(txn, tables, manifest)
    return True


def _clean_segments(txn: Transaction, tables: Tables, manifest: SearchManifest) -> None:
    """Write some blocks of the first segment that has something of deleted chats anew, or when that is done, what is known of its documents."""
    from .documents import SegmentDocuments
    from .segments import drop_rows

    chat_nos = sorted(manifest.deleted)
    stored_segments = [SegmentDocuments(txn, tables, segment, may_remember=False) for segment in manifest.segments]
    for merge in list(manifest.merges):  # its output is no segment yet, in which they would be looked for
        inputs = [stored for stored in stored_segments if stored.segment.id in merge.inputs]
        unknown = [chat_no for chat_no in chat_nos if chat_no not in merge.left_out]
        if unknown and any(len(stored.directory.ranges(unknown)[0]) for stored in inputs):
            _cancel(manifest, merge)
    if manifest.trash:
        if drop_rows(txn, tables, manifest.trash[0], STEP_ROWS) < STEP_ROWS:
            del manifest.trash[0]
        return
    stored = next((stored for stored in stored_segments if len(stored.directory.ranges(chat_nos)[0])), None)
    if stored is None:
        for merge in manifest.merges:  # the chats are not in the inputs any more
            merge.left_out = []
        for chat_no in chat_nos:
            txn.delete(DELETED + number(chat_no), db=tables.search)
        manifest.deleted, manifest.purged = [], (0, b"")
        return
    terms: set[bytes] = set()
    for chat_no in chat_nos:
        if len(stored.directory.ranges([chat_no])[0]):
            row = txn.get(DELETED + number(chat_no), b"", db=tables.search)
            terms.update(row.split(b"\0") if row else ())
    segment_id, start = manifest.purged
    if segment_id != stored.segment.id:
        start = b""
    ranges = stored.directory.ranges(chat_nos)
    rest = _clean_blocks(txn, tables, stored, ranges, sorted(term for term in terms if term >= start))
    if rest is None:
        # Documents last: it is by their ranges that the blocks of a chat are found.
        _clean_documents(txn, tables, manifest, stored, chat_nos)
    manifest.purged = (0, b"") if rest is None else (stored.segment.id, rest)


def _cancel(manifest: SearchManifest, merge: SegmentMerge) -> None:
    manifest.merges.remove(merge)
    manifest.trash.append(merge.output)


def _clean_documents(
    txn: Transaction,
    tables: Tables,
    manifest: SearchManifest,
    stored: "SegmentDocuments",
    chat_nos: Sequence[int],
) -> None:
    import numpy as np

    from .documents import ROLE, clear_columns, put_directory
    from .postings import spread

    segment, living = stored.segment, stored.directory.without(chat_nos)
    if not living.size:
        for merge in [merge for merge in manifest.merges if segment.id in merge.inputs]:
            _cancel(manifest, merge)
        manifest.segments.remove(segment)
        manifest.trash.append(segment.id)
        return
    used = set(np.unique(stored.column(ROLE)[living.documents]).tolist())
    # A name that only they had is content too; the places of the others stay, as the columns name them by number.
    names = [name if role in used else "" for role, name in enumerate(stored.names)]
    starts, ends = stored.directory.ranges(chat_nos)
    clear_columns(txn, tables, stored, spread(starts, ends - starts))
    put_directory(txn, tables, segment.id, living, names)
    segment.version += 1  # readers remember directory and columns by it


def _clean_blocks(
    txn: Transaction, tables: Tables, stored: "SegmentDocuments", ranges: "Ranges", terms: Sequence[bytes]
) -> bytes | None:
    """Remove the postings of documents in ranges from the blocks that have them of ascending terms; returns the term to go on with, if any."""
    from .blocks import cut_again
    from .segments import BlockCursor, document_of, is_within, put_blocks, term_of

    cursor, done = BlockCursor(txn.cursor(tables.search), stored.segment.id), 0
    behind = b""
    for term in terms:
        if term < behind:
            continue  # its only block is cleaned already
        document = _next_of(ranges, 0)
        while document is not None and (key := cursor.seek(term, document)) is not None:
            behind, last_document = term_of(key), document_of(key)
            postings = cursor.block.postings()
            is_gone = is_within(postings.documents, ranges)
            if is_gone.any():
                txn.delete(key, db=tables.search)
                if not is_gone.all():
                    put_blocks(txn, tables, stored.segment.id, cut_again(postings.kept(~is_gone)))
                stored.segment.postings -= int(is_gone.sum())
                done += 1
            document = _next_of(ranges, last_document + 1) if behind == term else None
        if done >= STEP_BLOCKS:
            return term
    return None


def _next_of(ranges: "Ranges", document: int) -> int | None:
    """Return the first document from one on that is in ranges."""
    place = int(ranges[1].searchsorted(document, "right"))
    return None if place == len(ranges[1]) else max(document, int(ranges[0][place]))
