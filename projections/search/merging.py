"""
Merging segments: eight of one level become one of the next, in small steps.

Each step is a transaction of its own. Inputs stay as they are, and are read, until the output is complete; how far it is stands in
the manifest, so any process can go on with it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from chatledger.domain.errors import CorruptStateError

from ..lmdb.environment import Environment, Transaction
from ..lmdb.tables import Tables
from .blocks import cut
from .documents import (
    CHUNK,
    COLUMN_COUNT,
    ROLE,
    DocumentDirectory,
    SegmentDocuments,
    put_columns,
    put_directory,
)
from .manifest import FANOUT, SearchManifest, SearchSegment, SegmentMerge, manifest_of, put_manifest
from .postings import Postings, merged, spread
from .segments import BlockCursor, document_of, drop_rows, level_of, put_blocks, term_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

STEP_POSTINGS: Final = 1_500
"""A step takes about a millisecond or two."""
STEP_DOCUMENTS: Final = 2 * CHUNK
STEP_ROWS: Final = 100


def plan(manifest: SearchManifest) -> bool:
    """Begin the merges that are due; returns whether there is anything to do."""
    busy = {segment_id for merge in manifest.merges for segment_id in merge.inputs}
    by_level: dict[int, list[SearchSegment]] = {}
    for segment in manifest.segments:
        if segment.id not in busy:
            by_level.setdefault(segment.level, []).append(segment)
    for segments in by_level.values():
        while len(segments) >= FANOUT:
            begin(manifest, segments[:FANOUT])
            del segments[:FANOUT]
    return bool(manifest.merges or manifest.trash)


def begin(manifest: SearchManifest, segments: Sequence[SearchSegment]) -> None:
    # These are left out from the start; a chat that is deleted later cancels the merge, see `deletion`.
    manifest.merges.append(SegmentMerge([segment.id for segment in segments], manifest.next_id, list(manifest.deleted)))
    manifest.next_id += 1


def step(txn: Transaction, tables: Tables, *, postings: int | None = None, is_idle: bool = False) -> bool:
    """
    Do one step of the merges that are due, in a transaction that has not written to the index before.

    `postings`: about how many are merged; `STEP_POSTINGS` when None. `is_idle`: whether to merge also what writers would
    leave as it is.

    Returns:
        Whether there is more to do.
    """
    manifest = manifest_of(txn, tables)
    if manifest.trash:
        if drop_rows(txn, tables, manifest.trash[0], STEP_ROWS) < STEP_ROWS:
            del manifest.trash[0]
    elif manifest.merges or (is_idle and manifest.small_segments):
        if not manifest.merges:
            begin(manifest, manifest.small_segments)
        # The smallest first, which is done soonest.
        merge = min(manifest.merges, key=lambda merge: sum(_segment(manifest, at).documents for at in merge.inputs))
        _Merging(txn, tables, manifest, merge).step(postings or STEP_POSTINGS)
    else:
        return False
    is_due = plan(manifest)
    put_manifest(txn, tables, manifest)
    return is_due or (is_idle and bool(manifest.small_segments))


def _segment(manifest: SearchManifest, segment_id: int) -> SearchSegment:
    return next(segment for segment in manifest.segments if segment.id == segment_id)


class Mapping(NamedTuple):
    """
    The documents of an input in the output.

    Args:
        numbers: Of each: its number there; of one that is left out that of the next (`int64`).
        is_kept: Which are not left out; None: all.
    """

    numbers: "NDArray[np.int64]"
    is_kept: "NDArray[np.bool_] | None"

    def limit(self, document: int) -> int:
        """The last document of the output up to which the input is known, when it is known up to one of its own."""
        is_kept = self.is_kept is None or bool(self.is_kept[document])
        return int(self.numbers[document]) - (not is_kept)

    def mapped(self, postings: Postings) -> Postings | None:
        """Return postings with the documents of the output; None when none is left."""
        if self.is_kept is not None:
            is_kept = self.is_kept[postings.documents]
            if not is_kept.any():
                return None
            postings = postings.kept(is_kept)
        return postings._replace(documents=self.numbers[postings.documents].astype(np.uint32))


class MergedLayout(NamedTuple):
    """The documents of an output: which messages they are, and those of the inputs in it."""

    directory: DocumentDirectory
    mappings: list[Mapping]


def layout(directories: Sequence[DocumentDirectory], sizes: Sequence[int], left_out: Sequence[int]) -> MergedLayout:
    """Return the documents of segments in the order of chats and messages, without those of some chats."""
    inputs = [directory.without(left_out) for directory in directories]
    chats = np.concatenate([directory.chats for directory in inputs])
    firsts = np.concatenate([directory.firsts for directory in inputs])
    counts = np.concatenate([directory.counts for directory in inputs])
    order = np.lexsort((firsts, chats))
    starts = np.empty(len(order), np.int64)
    ends = np.cumsum(counts[order], dtype=np.int64)
    starts[order] = ends - counts[order]
    total = int(ends[-1]) if len(ends) else 0
    mappings: list[Mapping] = []
    at = 0
    for directory, size in zip(inputs, sizes, strict=True):
        numbers = np.full(size, -1, np.int64)
        numbers[directory.documents] = spread(starts[at : at + len(directory.chats)], directory.counts)
        at += len(directory.chats)
        if len(directory.chats) and directory.size == size:
            mappings.append(Mapping(numbers, None))
            continue
        is_kept = numbers >= 0
        # The number of the next living one, so that numbers ascend, and up to where postings are known can be looked for.
        numbers[~is_kept] = total
        mappings.append(Mapping(np.minimum.accumulate(numbers[::-1])[::-1], is_kept))
    chats, firsts, counts, starts = chats[order], firsts[order], counts[order], starts[order]
    is_start = np.ones(len(chats), np.bool_)
    np.logical_or(chats[1:] != chats[:-1], firsts[1:] != firsts[:-1] + counts[:-1], out=is_start[1:])
    begins = np.flatnonzero(is_start)
    joined = np.add.reduceat(counts, begins) if len(begins) else counts
    columns = firsts[begins], starts[begins].astype(np.uint32), joined.astype(np.uint32)
    return MergedLayout(DocumentDirectory(chats[begins], *columns), mappings)


class _Loaded(NamedTuple):
    """Postings of an input that come after those that were merged, and whether and up to where there are more of it."""

    parts: list[Postings]
    limit: tuple[bytes, int] | None


class _Decoded(NamedTuple):
    """Blocks of the inputs of a merge, by their keys, that its last step has decoded: most are needed again."""

    blocks: list[dict[bytes, Postings]]


_LAYOUTS, _DECODED_BLOCKS = -2, -3
"""Begin the keys of what is remembered of merges; other keys begin with the id of a segment, or -1."""
_DECODED: Final = 2
_DECODED_BYTES: Final = 100_000
"""So many blocks of each input are remembered decoded, and take about as much."""


class _Merging:
    def __init__(self, txn: Transaction, tables: Tables, manifest: SearchManifest, merge: SegmentMerge) -> None:
        self._txn, self._tables, self._manifest, self._merge = txn, tables, manifest, merge
        self._inputs = [
            SegmentDocuments(txn, tables, _segment(manifest, segment_id), may_remember=True)
            for segment_id in merge.inputs
        ]
        remembered = tables.caches.searched
        # The versions too: a segment that is cleaned of a deleted chat keeps its id, and changes what it has.
        versions = hash(tuple((stored.segment.id, stored.segment.version) for stored in self._inputs))
        key = (_LAYOUTS, merge.output, versions)
        laid_out = remembered.get(key)
        if not isinstance(laid_out, MergedLayout):
            directories = [stored.directory for stored in self._inputs]
            laid_out = layout(directories, [stored.segment.documents for stored in self._inputs], merge.left_out)
            remembered.put(key, laid_out, 9 * laid_out.directory.size + 1)
        self._layout = laid_out
        key = (_DECODED_BLOCKS, merge.output, versions)
        decoded = remembered.get(key)
        if not isinstance(decoded, _Decoded):
            decoded = _Decoded([{} for _ in self._inputs])
            remembered.put(key, decoded, _DECODED_BYTES * len(self._inputs))
        self._decoded = decoded.blocks

    def step(self, budget: int) -> None:
        merge, size = self._merge, self._layout.directory.size
        if merge.columns < size:
            self._put_columns(size)
        elif self._put_postings(budget):
            self._finish(size)

    def _put_columns(self, size: int) -> None:
        """Write the directory, and the columns of some documents."""
        merge = self._merge
        first, end = merge.columns, min(merge.columns + STEP_DOCUMENTS, size)
        names: dict[str, int] = {}
        roles = [self._roles(at, names) for at in range(len(self._inputs))]
        if not first:  # a step that goes on finds the same names, as inputs do not change
            put_directory(self._txn, self._tables, merge.output, self._layout.directory, list(names))
        columns: dict[int, NDArray[np.uint64]] = {
            column: np.zeros(end - first, np.uint64) for column in range(COLUMN_COUNT)
        }
        for at, (stored, mapping) in enumerate(zip(self._inputs, self._layout.mappings, strict=True)):
            begin, stop = np.searchsorted(mapping.numbers, [first, end]).tolist()
            if begin == stop:
                continue
            living = slice(None) if mapping.is_kept is None else mapping.is_kept[begin:stop]
            places = (mapping.numbers[begin:stop] - first)[living]
            for column, values in columns.items():
                numbers = stored.between(column, begin, stop)
                if numbers is None and column != ROLE:
                    continue
                numbers = np.zeros(stop - begin, np.uint64) if numbers is None else numbers
                values[places] = roles[at][numbers[living]] if column == ROLE else numbers[living]
        put_columns(self._txn, self._tables, merge.output, columns, first)
        merge.columns = end

    def _roles(self, at: int, names: dict[str, int]) -> "NDArray[np.uint64]":
        """Return the numbers of the roles of an input in the output, whose names are added to: no others than its messages have."""
        stored, mapping = self._inputs[at], self._layout.mappings[at]
        stored_names = stored.names
        numbers = np.zeros(max(len(stored_names), 1), np.uint64)
        used: Sequence[int] = range(len(stored_names))
        if mapping.is_kept is not None:
            used = np.unique(stored.column(ROLE)[mapping.is_kept]).tolist()
        for role in used:
            numbers[role] = names.setdefault(stored_names[role], len(names))
        return numbers

    def _put_postings(self, budget: int) -> bool:
        """Write full blocks of the next postings; returns whether all are written."""
        merge = self._merge
        count = max(budget // len(self._inputs), 1)  # one of each at least, or a merge of very many would lose some
        loaded = [self._load(at, count) for at in range(len(self._inputs))]
        # Up to where all inputs are known: what follows in one of them may come behind postings of another.
        limit = min((of_input.limit for of_input in loaded if of_input.limit is not None), default=None)
        parts = [
            mapped
            for of_input, mapping in zip(loaded, self._layout.mappings, strict=True)
            for part in of_input.parts
            if (cut_off := _up_to(part, limit, mapping)) is not None and (mapped := mapping.mapped(cut_off)) is not None
        ]
        if not parts:
            if limit is not None:
                merge.term, merge.document = limit
            return limit is None
        postings = merged(parts)
        blocks = list(cut(postings, are_full=limit is not None))
        put_blocks(self._txn, self._tables, merge.output, blocks)
        merge.term, merge.document = blocks[-1].term, blocks[-1].document
        merge.postings += blocks[-1].end
        return limit is None

    def _load(self, at: int, count: int) -> _Loaded:
        """Read the next postings of an input, about so many at least."""
        merge, mapping = self._merge, self._layout.mappings[at]
        cursor = BlockCursor(self._txn.cursor(self._tables.search), self._inputs[at].segment.id)
        first = int(np.searchsorted(mapping.numbers, merge.document + 1)) if merge.term else 0
        key = cursor.seek(merge.term, first) if merge.term else cursor.first()
        parts: list[Postings] = []
        last, loaded = None, 0
        remembered, decoded = self._decoded[at], dict[bytes, Postings]()
        while key is not None and loaded < count:
            postings = remembered.get(key) or cursor.block.postings()
            decoded[key] = postings
            begin = postings.before(merge.term, first) if merge.term and postings.terms[0] <= merge.term else 0
            if begin < postings.length:
                parts.append(postings.sliced(begin, postings.length))
                loaded += postings.length - begin
            last, key = key, cursor.next()
        self._decoded[at] = dict(list(decoded.items())[-_DECODED:])
        if key is None or last is None:  # the end of the input
            return _Loaded(parts, None)
        return _Loaded(parts, (term_of(last), mapping.limit(document_of(last))))

    def _finish(self, size: int) -> None:
        """Replace the inputs by the output."""
        manifest, merge = self._manifest, self._merge
        expected = sum(stored.segment.postings for stored in self._inputs)
        # A merge of very many segments once took none of some inputs in a step, and lost them: it is refused since.
        if not merge.left_out and merge.postings != expected:
            msg = f"a merge of the search index has {merge.postings:,} of {expected:,} postings"
            raise CorruptStateError(msg)
        manifest.segments = [segment for segment in manifest.segments if segment.id not in merge.inputs]
        manifest.trash += merge.inputs
        if size:
            manifest.segments.append(SearchSegment(merge.output, 0, level_of(size), size, merge.postings))
        manifest.merges.remove(merge)
        self._decoded[:] = [{} for _ in self._inputs]  # they are remembered, and nobody needs them any more


def _up_to(postings: Postings, limit: tuple[bytes, int] | None, mapping: Mapping) -> Postings | None:
    """Return the postings up to a term and document of the output; None when there are none."""
    if limit is None or postings.terms[-1] < limit[0]:
        return postings
    end = postings.before(limit[0], int(np.searchsorted(mapping.numbers, limit[1], "right")))
    return postings.sliced(0, end) if end else None


_ALL_POSTINGS: Final = 400_000


def merge_all(env: Environment, tables: Tables) -> None:
    """Make one segment of all that there are, after many messages were taken in; other writers wait for a step of it."""

    def begin_all(txn: Transaction) -> None:
        manifest = manifest_of(txn, tables)
        # Merges that go on have some of the segments as inputs; all are to be inputs of one.
        manifest.trash += [merge.output for merge in manifest.merges]
        manifest.merges.clear()
        if len(manifest.segments) > 1:
            begin(manifest, manifest.segments)
        put_manifest(txn, tables, manifest)

    env.update(begin_all)
    while env.update(lambda txn: step(txn, tables, postings=_ALL_POSTINGS)):
        pass
