"""Answering a query: which documents match, and which of them are best."""

from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, assert_never

import numpy as np

from chatledger.domain.search.bm25 import K1, B
from chatledger.domain.search.fields import SearchField
from chatledger.domain.search.query import All, Either, Phrase, Query, Without, Word
from chatledger.domain.search.snippets import MAX_SNIPPET_TOKENS, KnownWords, sought

from .parts import Parts
from .postings import is_in, values_at
from .ranking import DocumentHit, Filter, IsLeftOut, rarity
from .reader import Matches, SearchReader

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Documents = NDArray[np.uint32]

MAX_STARTS: Final = 1024
"""Of so many occurrences of words in one document, at most, the best passage is chosen."""
_ANCHORS: Final = 16
_GROUP: Final = 64


Starts = dict[int, list[tuple[int, Word | Phrase]]]
"""Of documents: where words and phrases begin, as indexes of terms, in ascending order."""


ChatOrder = Callable[[Sequence[int]], dict[int, int]]
"""Gives the places of some chats among them, as their messages follow each other where all else is equal. Asked only then."""


def search(
    reader: SearchReader,
    query: Query,
    *,
    only: Filter,
    limit: int | None,
    offset: int,
    order: ChatOrder,
    leaves_out: Callable[[], IsLeftOut | None] | None = None,
) -> list[DocumentHit]:
    """
    The best documents of the chats, by BM25 over all of these chats; ties by `created_at`, newest first, then by `order`.

    `leaves_out` gives what tells the documents to leave out; it is asked only where some match, and about the best ones only,
    until there are enough. None leaves none out.
    """
    if not _is_possible(reader, query):
        return []
    evaluation = _QueryEvaluation(reader)
    matched = evaluation.documents(query)
    if not len(matched):
        return []
    is_left_out = None if leaves_out is None else leaves_out()
    lengths = [reader.parts.lengths(matched, field) for field in reader.fields]
    scores = evaluation.scores(matched, sum(lengths[1:], lengths[0]))
    wanted = evaluation.wanted(matched, only)
    if wanted is not None:
        matched, scores, lengths = matched[wanted], scores[wanted], [of_field[wanted] for of_field in lengths]
    ranked = partial(_best, scores, matched, reader.parts, order)

    known: dict[int, _DocumentPlace] = {}

    def shown(best: "NDArray[np.int64]") -> "NDArray[np.int64]":
        if is_left_out is None or not len(best):
            return best
        documents = matched[best]
        found = _found(reader.parts, documents)
        known.update(zip(documents.tolist(), found, strict=True))
        left_out = [is_left_out(one.chat_no, one.segment, one.offset) for one in found]
        return best[~np.array(left_out, dtype=np.bool_)] if any(left_out) else best

    best = _best_shown(ranked, shown, None if limit is None else offset + limit)[offset:]
    found = [known[document] for document in matched[best].tolist()] if known else _found(reader.parts, matched[best])
    passages = evaluation.passages(query, matched[best], [of_field[best] for of_field in lengths], found)
    return [
        DocumentHit(one.chat_no, rank, one.segment, one.offset, *passage)
        for one, rank, passage in zip(found, (-scores[best]).tolist(), passages, strict=True)
    ]


class _DocumentPlace(NamedTuple):
    """A document: its chat, its number in the order of the log, and its place in the chains."""

    chat_no: int
    number: int
    segment: int
    offset: int


def _found(parts: Parts, documents: "Documents") -> list[_DocumentPlace]:
    """Return what documents are, in whatever order."""
    order = documents.argsort()
    ascending = documents[order]
    columns = *parts.messages(ascending), *parts.places(ascending)
    rows = zip(order.tolist(), map(_DocumentPlace, *(column.tolist() for column in columns)), strict=True)
    return [found for _, found in sorted(rows, key=itemgetter(0))]


def _is_possible(reader: SearchReader, query: Query) -> bool:
    """Whether every required term occurs anywhere, which is known at once."""
    if isinstance(query, Word):
        return reader.has(query.term, is_prefix=query.is_prefix)
    if isinstance(query, Phrase):
        *before, last = query.terms
        return all(reader.has(term, is_prefix=False) for term in before) and reader.has(last, is_prefix=query.is_prefix)
    if isinstance(query, Without):
        return _is_possible(reader, query.kept)
    parts = (_is_possible(reader, part) for part in query.parts)
    return all(parts) if isinstance(query, All) else any(parts)


class _QueryEvaluation:
    def __init__(self, reader: SearchReader) -> None:
        self._reader = reader
        self._leaves: list[Matches] = []
        self._known: dict[Word | Phrase, Matches] = {}

    def documents(self, query: Query, *, is_scored: bool = True) -> "Documents":
        if isinstance(query, Word | Phrase):
            matches = self._matches(query)
            if is_scored:
                self._leaves.append(matches)
            return matches.documents
        if isinstance(query, All):
            found = sorted((self.documents(part, is_scored=is_scored) for part in query.parts), key=len)
            rest = found[0]
            for other in found[1:]:
                rest = rest[is_in(rest, other)]
            return rest
        if isinstance(query, Either):
            return np.unique(np.concatenate([self.documents(part, is_scored=is_scored) for part in query.parts]))
        if isinstance(query, Without):
            kept = self.documents(query.kept, is_scored=is_scored)
            return kept[~is_in(kept, self.documents(query.dropped, is_scored=False))]
        assert_never(query)

    def _matches(self, leaf: Word | Phrase) -> Matches:
        if leaf not in self._known:
            self._known[leaf] = self._reader.matches(leaf)
        return self._known[leaf]

    def passages(
        self, query: Query, documents: "Documents", lengths: "Sequence[NDArray[Any]]", found: Sequence[_DocumentPlace]
    ) -> list[tuple[SearchField, KnownWords]]:
        """
        Return the field to show of each document, and what it has of the query; the documents were found by it.

        It is the one with the most different words and phrases of the query, and of equally good ones the first.
        """
        fields = self._reader.fields
        ascending = np.sort(documents)
        begins = [self._starts(query, ascending, at) for at in range(len(fields))]
        counts = [of_field.tolist() for of_field in lengths]
        passages: list[tuple[SearchField, KnownWords]] = []
        for row, (document, one) in enumerate(zip(documents.tolist(), found, strict=True)):
            at = 0 if len(fields) == 1 else max(range(len(fields)), key=lambda at: _variety(begins[at][document]))
            count = int(counts[at][row])
            landmarks = self._reader.landmarks(one.chat_no, one.number, fields[at], count)
            passages.append((fields[at], KnownWords(count, begins[at][document], landmarks)))
        return passages

    def _starts(self, query: Query, documents: "Documents", field: int) -> Starts:
        """Return where words and phrases of the query begin in a field of ascending documents that were found by it."""
        having: dict[int, list[tuple[NDArray[np.uint32], Word | Phrase]]]
        having = {document: [] for document in documents.tolist()}
        for leaf in sought(query):
            among, counts, positions = self._known[leaf].of_fields[field].occurrences(documents)
            ends = np.cumsum(counts, dtype=np.int64).tolist()
            for document, count, end in zip(among.tolist(), counts.tolist(), ends, strict=True):
                having[document].append((positions[end - count : end], leaf))
        return {document: _merged(found) for document, found in having.items()}

    def scores(self, documents: "Documents", lengths: "NDArray[Any]") -> "NDArray[np.float64]":
        """Return the score of each document: higher is better."""
        total, average = self._reader.parts.size(self._reader.fields)
        penalties = K1 * (1 - B + B * lengths / average)
        scores = np.zeros(len(documents))
        for leaf in self._leaves:
            if len(leaf.documents):
                frequencies = _frequencies(leaf, documents)
                weight = rarity(len(leaf.documents), total)
                scores += weight * (frequencies * (K1 + 1) / (frequencies + penalties))
        return scores

    def wanted(self, documents: "Documents", only: Filter) -> "NDArray[np.bool_] | None":
        """Return which of the documents pass the filter; None when all do."""
        conditions: list[NDArray[np.bool_]] = []
        parts = self._reader.parts
        if only.roles is not None:
            conditions.append(parts.have_role(documents, only.roles))
        if only.since is not None or only.until is not None:
            times = parts.times(documents)
            if only.since is not None:
                conditions.append(times >= only.since)
            if only.until is not None:
                conditions.append(times < only.until)
        if only.runs is not None:
            conditions.append(_is_on(*parts.places(documents), only.runs))
        return np.logical_and.reduce(conditions) if conditions else None


def _variety(starts: list[tuple[int, Word | Phrase]]) -> int:
    return len({id(leaf) for _, leaf in starts})  # hashing leaves takes longer


def _merged(having: "list[tuple[NDArray[np.uint32], Word | Phrase]]") -> list[tuple[int, Word | Phrase]]:
    """
    Return the positions in a document at which words and phrases begin, in ascending order.

    Where these are very many, only those that a snippet around the first occurrences of the rarest may show: a snippet of a long
    text is to cost no more than another one.
    """
    if len(having) == 1 and len(having[0][0]) <= MAX_STARTS:
        positions, leaf = having[0]
        return [(position, leaf) for position in positions.tolist()]
    is_cut = sum(len(positions) for positions, _ in having) > MAX_STARTS
    if is_cut:
        anchors = min((positions for positions, _ in having), key=len)[:_ANCHORS].astype(np.int64)
        having = [(_near(anchors, positions), leaf) for positions, leaf in having]
    found = [(position, leaf) for positions, leaf in having for position in positions.tolist()]
    if len(having) > 1:
        found.sort(key=itemgetter(0))
    return found[:MAX_STARTS] if is_cut else found


def _near(anchors: "NDArray[np.int64]", positions: "NDArray[np.uint32]") -> "NDArray[np.uint32]":
    """Return the ascending positions that a snippet may show together with an anchor."""
    firsts = np.searchsorted(positions, anchors - MAX_SNIPPET_TOKENS)
    ends = np.searchsorted(positions, anchors + MAX_SNIPPET_TOKENS, side="right")
    is_near = np.zeros(len(positions), dtype=np.bool_)
    for first, end in zip(firsts.tolist(), ends.tolist(), strict=True):
        is_near[first:end] = True
    return positions[is_near]


def _frequencies(leaf: Matches, documents: "Documents") -> "NDArray[np.uint32]":
    """Return the frequency of a word or phrase in each of these documents."""
    if leaf.documents is documents or not len(leaf.documents):
        return leaf.counts if len(leaf.documents) else np.zeros(len(documents), np.uint32)
    return values_at(documents, leaf.documents, leaf.counts)


def _is_on(segments: "NDArray[np.int64]", offsets: "NDArray[np.int64]", runs: dict[int, int]) -> "NDArray[np.bool_]":
    if not runs:  # an empty branch
        return np.zeros(len(segments), dtype=np.bool_)
    known = np.array(sorted(runs), dtype=np.int64)
    ends = np.array([runs[segment] for segment in known.tolist()], dtype=np.int64)
    places = np.searchsorted(known, segments)
    places[places == len(known)] = 0
    found: NDArray[np.bool_] = (known[places] == segments) & (offsets <= ends[places])
    return found


def _best(
    scores: "NDArray[np.float64]", documents: "Documents", parts: Parts, order: ChatOrder, count: int | None
) -> "NDArray[np.int64]":
    """The places of the best `count`, best first."""
    among: NDArray[np.int64] = np.arange(len(scores))
    if count is not None and count < len(scores):
        if count == 0:
            return among[:0]
        among = np.flatnonzero(scores >= _reached_by(scores, count))
        among = _newest(among, scores, documents, parts, count)
    times = parts.times(documents[among])
    # Unlike `-`, `~` turns round the order of all times.
    found = np.lexsort((~times, -scores[among]))
    among, times = among[found], times[found]
    return _untied(among, scores[among], times, documents, parts, order)[:count]


def _newest(
    among: "NDArray[np.int64]", scores: "NDArray[np.float64]", documents: "Documents", parts: Parts, count: int
) -> "NDArray[np.int64]":
    """Leave out what is older than the best `count`, of those with the least score that is reached: there may be very many."""
    if len(among) < _GROUP * count:
        return among
    reached = scores[among]
    least = np.partition(reached, len(reached) - count)[len(reached) - count]
    tied = among[reached == least]
    above = among[reached > least]
    times = parts.times(documents[tied])
    room = count - len(above)
    oldest = np.partition(times, len(times) - room)[len(times) - room]
    return np.sort(np.concatenate((above, tied[times >= oldest])))


def _untied(
    among: "NDArray[np.int64]",
    scores: "NDArray[np.float64]",
    times: "NDArray[np.int64]",
    documents: "Documents",
    parts: Parts,
    order: ChatOrder,
) -> "NDArray[np.int64]":
    """Put those in order that have the same score and time: by chat, and in a chat the later ones first."""
    is_same = np.zeros(len(among) + 1, np.bool_)
    is_same[1:-1] = (scores[1:] == scores[:-1]) & (times[1:] == times[:-1])
    tied = np.flatnonzero(is_same[1:] | is_same[:-1])
    if not len(tied):
        return among
    groups = np.cumsum(~is_same[:-1])[tied]
    ascending = np.argsort(documents[among[tied]])
    chats, numbers = parts.messages(documents[among[tied[ascending]]])
    back = np.argsort(ascending)
    chats, numbers = chats[back], numbers[back]
    ranks: NDArray[np.int64] = np.zeros(len(chats), np.int64)
    if (chats != chats[0]).any():
        different, ranks = np.unique(chats, return_inverse=True)
        places = order(different.tolist())
        ranks = np.array([places[chat_no] for chat_no in different.tolist()])[ranks]
    sorted_among = among.copy()
    sorted_among[tied] = among[tied[np.lexsort((-numbers, ranks, groups))]]
    return sorted_among


def _best_shown(
    ranked: "Callable[[int | None], NDArray[np.int64]]",
    shown: "Callable[[NDArray[np.int64]], NDArray[np.int64]]",
    count: int | None,
) -> "NDArray[np.int64]":
    """The places of the best `count` that are not left out, best first."""
    taken = count
    while True:
        best = ranked(taken)
        found = shown(best)
        if taken is None or count is None or len(found) >= count or len(best) < taken:
            return found[:count]
        taken *= 2


def _reached_by(scores: "NDArray[np.float64]", count: int) -> float:
    """A score, as high as is quickly found, that `count` documents or more have at least."""
    if len(scores) > count * _GROUP:
        # The best of each group are as many different documents as there are groups.
        scores = scores[: len(scores) // _GROUP * _GROUP].reshape(_GROUP, -1).max(axis=0)
    least: float = np.partition(scores, len(scores) - count)[len(scores) - count]
    return least
