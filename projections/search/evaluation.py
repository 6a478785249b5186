"""Answering a query: which documents match, and which of them are best, by BM25."""

import math
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, assert_never

import msgspec
import numpy as np

from chatledger.domain.search.bm25 import K1, B
from chatledger.domain.search.fields import SearchField
from chatledger.domain.search.query import All, Either, Phrase, Query, Without, Word
from chatledger.domain.search.snippets import MAX_SNIPPET_TOKENS, KnownWords, sought
from chatledger.domain.search.tokens import LANDMARK_TERMS

from .parts import DocumentFacts
from .postings import is_in, values_at
from .reader import Matches, SearchReader

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Documents = NDArray[np.uint32]
    Indexes = NDArray[np.int64]

MAX_STARTS: Final = 1024
"""Of so many occurrences of words in one document, at most, the best passage is chosen."""
_LEAST_IDF: Final = 1e-6
"""The inverse document frequency of a term that most documents have; as in FTS5."""
_ANCHORS: Final = 16
_GROUP: Final = 64


Starts = dict[int, list[tuple[int, Word | Phrase]]]
"""Of documents: where words and phrases begin, as indexes of terms, in ascending order."""


ChatOrder = Callable[[Sequence[int]], dict[int, int]]
"""Gives the places of some chats among them, as their messages follow each other where all else is equal. Asked only then."""


IsLeftOut = Callable[[int, int, int], bool]
"""Whether a search leaves out the document of a chat, by the number of that, at a segment and an offset."""


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """
    Conditions on the documents that match. None is no condition.

    Args:
        roles: Only messages of these names.
        since: Only those created at or after, in ms.
        until: Only those created before, in ms.
        runs: Of one chat: only those in these runs of its chains, as segment and last offset.
        segments: Only those in segments from the first to before the second: of chats, or of some of the others.
    """

    roles: frozenset[str] | None = None
    since: int | None = None
    until: int | None = None
    runs: dict[int, int] | None = None
    segments: tuple[int, int] | None = None


class DocumentHit(msgspec.Struct, frozen=True, gc=False):
    """
    A document: its chat, its rank (lower is better) and its place in the chains of the chat.

    And the field to show, with what it has of the query.
    """

    chat_no: int
    rank: float
    segment: int
    offset: int
    field: SearchField
    known: KnownWords


class BestDocuments(NamedTuple):
    """
    The best documents.

    Args:
        evaluation: Of the query.
        documents: In their order.
        scores: The score of each.
        lengths: Of each field, how many terms they have.
        places: Where each is.
    """

    evaluation: "_QueryEvaluation"
    documents: "Documents"
    scores: "NDArray[np.float64]"
    lengths: "Sequence[NDArray[Any]]"
    places: "Sequence[DocumentPlace]"


def ranked(
    reader: SearchReader,
    query: Query,
    *,
    only: Filter,
    limit: int | None,
    offset: int,
    order: ChatOrder,
    leaves_out: Callable[[], IsLeftOut | None] | None = None,
    time_order: int = 0,
) -> BestDocuments | None:
    """
    The best documents of the chats, by BM25 over all of these chats; ties by `created_at`, newest first, then by `order`. None where none match.

    With `time_order` the newest are the best, or with -1 the oldest. `leaves_out` gives what tells the documents to leave out; it is asked only where some match, and about the best ones only,
    until there are enough. None leaves none out.
    """
    if not _is_possible(reader, query):
        return None
    evaluation = _QueryEvaluation(reader)
    matched = evaluation.documents(query)
    if not len(matched):
        return None
    is_left_out = None if leaves_out is None else leaves_out()
    lengths = [reader.facts.column(column, matched) for column in reader.columns]
    # What a filter leaves out counts all the same: a rank says how rare a word is in the chats, whatever is asked of them.
    scores = evaluation.scores(matched, sum(lengths[1:], lengths[0]))
    is_wanted = evaluation.wanted(matched, only)
    if is_wanted is not None:
        matched, scores, lengths = matched[is_wanted], scores[is_wanted], [column[is_wanted] for column in lengths]
    worth = time_order * reader.facts.times(matched).astype(np.float64) if time_order else scores
    count = taken = None if limit is None else offset + limit
    while True:
        best = _best(worth, matched, reader.facts, order, taken)
        if is_left_out is None:
            best = best[offset:]
            places = _places_of(reader.facts, matched[best])
            break
        places = _places_of(reader.facts, matched[best])
        shown = [at for at, place in enumerate(places) if not is_left_out(place.chat_no, place.segment, place.offset)]
        if taken is None or count is None or len(shown) >= count or len(best) < taken:
            shown = shown[offset:count]
            best, places = best[shown], [places[at] for at in shown]
            break
        taken *= 2
    return BestDocuments(evaluation, matched[best], scores[best], [column[best] for column in lengths], places)


def hits_of(query: Query, best: BestDocuments) -> list[DocumentHit]:
    passages = best.evaluation.passages(query, best.documents, best.lengths, best.places)
    return [
        DocumentHit(place.chat_no, rank, place.segment, place.offset, *passage)
        for place, rank, passage in zip(best.places, (-best.scores).tolist(), passages, strict=True)
    ]


class DocumentPlace(NamedTuple):
    """A document: its chat, its number in the order of the log, and its place in the chains."""

    chat_no: int
    number: int
    segment: int
    offset: int


def _places_of(facts: DocumentFacts, documents: "Documents") -> list[DocumentPlace]:
    """Return what documents are, in whatever order."""
    order = documents.argsort()
    ascending = documents[order]
    columns = *facts.messages(ascending), *facts.places(ascending)
    rows = zip(order.tolist(), map(DocumentPlace, *(column.tolist() for column in columns)), strict=True)
    return [place for _, place in sorted(rows, key=itemgetter(0))]


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
        self._reader, self.facts = reader, reader.facts
        self._scored: list[Matches] = []
        self._matches: dict[Word | Phrase, Matches] = {}

    def documents(self, query: Query, *, is_scored: bool = True) -> "Documents":
        if isinstance(query, Word | Phrase):
            matches = self._matches.get(query)
            if matches is None:
                matches = self._matches[query] = self._reader.matches(query)
            if is_scored:
                self._scored.append(matches)
            return matches.documents
        if isinstance(query, All):
            rest, *others = sorted((self.documents(part, is_scored=is_scored) for part in query.parts), key=len)
            for other in others:
                rest = rest[is_in(rest, other)]
            return rest
        if isinstance(query, Either):
            return np.unique(np.concatenate([self.documents(part, is_scored=is_scored) for part in query.parts]))
        if isinstance(query, Without):
            wanted = self.documents(query.kept, is_scored=is_scored)
            # What stands behind NOT says nothing of how well a text matches, and would weigh in every score.
            return wanted[~is_in(wanted, self.documents(query.dropped, is_scored=False))]
        assert_never(query)

    def passages(
        self,
        query: Query,
        documents: "Documents",
        lengths: "Sequence[NDArray[Any]]",
        places: Sequence[DocumentPlace],
    ) -> list[tuple[SearchField, KnownWords]]:
        """
        Return the field to show of each document, and what it has of the query; the documents were found by it.

        It is the one with the most different words and phrases of the query, and of equally good ones the first.
        """
        fields = self._reader.fields
        ascending = np.sort(documents)
        begins = [self._starts(query, ascending, at) for at in range(len(fields))]
        counts = [column.tolist() for column in lengths]
        passages: list[tuple[SearchField, KnownWords]] = []
        for row, (document, place) in enumerate(zip(documents.tolist(), places, strict=True)):
            at = 0
            if len(fields) > 1:  # by identity: hashing leaves takes longer
                varieties = [len({id(leaf) for _, leaf in starts[document]}) for starts in begins]
                at = varieties.index(max(varieties))
            count = int(counts[at][row])
            landmarks: Sequence[int] = ()
            if count > LANDMARK_TERMS:  # nearly all texts are shorter, and have none
                landmarks = self._reader.landmarks(place.chat_no, place.number, fields[at])
            passages.append((fields[at], KnownWords(count, begins[at][document], landmarks)))
        return passages

    def _starts(self, query: Query, documents: "Documents", field: int) -> Starts:
        """Return where words and phrases of the query begin in a field of ascending documents that were found by it."""
        having: dict[int, list[tuple[NDArray[np.uint32], Word | Phrase]]]
        having = {document: [] for document in documents.tolist()}
        for leaf in sought(query):
            among, counts, positions = self._matches[leaf].of_fields[field].occurrences(documents)
            ends = np.cumsum(counts, dtype=np.int64).tolist()
            for document, count, end in zip(among.tolist(), counts.tolist(), ends, strict=True):
                having[document].append((positions[end - count : end], leaf))
        return {document: _merged(leaves) for document, leaves in having.items()}

    def scores(self, documents: "Documents", lengths: "NDArray[Any]") -> "NDArray[np.float64]":
        """Return the score of each document: higher is better."""
        total, average = self._reader.size()
        penalties = K1 * (1 - B + B * lengths / average)
        scores = np.zeros(len(documents))
        for leaf in self._scored:
            having = len(leaf.documents)
            if having:
                is_same = leaf.documents is documents
                frequencies = leaf.counts if is_same else values_at(documents, leaf.documents, leaf.counts)
                weight = max(math.log((total - having + 0.5) / (having + 0.5)), _LEAST_IDF)
                scores += weight * (frequencies * (K1 + 1) / (frequencies + penalties))
        return scores

    def wanted(self, documents: "Documents", only: Filter) -> "NDArray[np.bool_] | None":
        conditions: list[NDArray[np.bool_]] = []
        facts = self._reader.facts
        if only.roles is not None:
            conditions.append(facts.have_role(documents, only.roles))
        if only.since is not None or only.until is not None:
            times = facts.times(documents)
            if only.since is not None:
                conditions.append(times >= only.since)
            if only.until is not None:
                conditions.append(times < only.until)
        if only.segments is not None:
            within, _ = facts.places(documents)
            conditions.append((within >= only.segments[0]) & (within < only.segments[1]))
        if only.runs is not None:
            segments, offsets = facts.places(documents)
            ordered = np.array(sorted(only.runs) or [-1], dtype=np.int64)  # no segment has -1: an empty branch has none
            lasts = np.array([only.runs.get(segment, -1) for segment in ordered.tolist()], dtype=np.int64)
            places = np.searchsorted(ordered, segments)
            places[places == len(ordered)] = 0
            conditions.append((ordered[places] == segments) & (offsets <= lasts[places]))
        return np.logical_and.reduce(conditions) if conditions else None


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
    starts = [(position, leaf) for positions, leaf in having for position in positions.tolist()]
    if len(having) > 1:
        starts.sort(key=itemgetter(0))
    return starts[:MAX_STARTS] if is_cut else starts


def _near(anchors: "Indexes", positions: "NDArray[np.uint32]") -> "NDArray[np.uint32]":
    """Return the ascending positions that a snippet may show together with an anchor."""
    firsts = np.searchsorted(positions, anchors - MAX_SNIPPET_TOKENS)
    ends = np.searchsorted(positions, anchors + MAX_SNIPPET_TOKENS, side="right")
    is_near = np.zeros(len(positions), dtype=np.bool_)
    for first, end in zip(firsts.tolist(), ends.tolist(), strict=True):
        is_near[first:end] = True
    return positions[is_near]


def _best(
    scores: "NDArray[np.float64]", documents: "Documents", facts: DocumentFacts, order: ChatOrder, count: int | None
) -> "Indexes":
    """The places of the best `count`, best first."""
    among: Indexes = np.arange(len(scores))
    if count is not None and count < len(scores):
        if count == 0:
            return among[:0]
        reached = scores
        if len(scores) > count * _GROUP:
            # A score that enough documents reach, soon: the best of each group are as many documents as there are groups.
            reached = scores[: len(scores) // _GROUP * _GROUP].reshape(_GROUP, -1).max(axis=0)
        among = np.flatnonzero(scores >= np.partition(reached, len(reached) - count)[len(reached) - count])
        among = _newest(among, scores, documents, facts, count)
    times = facts.times(documents[among])
    # Unlike `-`, `~` turns round the order of all times.
    ranked = np.lexsort((~times, -scores[among]))
    among, times = among[ranked], times[ranked]
    return _untied(among, scores[among], times, documents, facts, order)[:count]


def _newest(
    among: "Indexes", scores: "NDArray[np.float64]", documents: "Documents", facts: DocumentFacts, count: int
) -> "Indexes":
    """Leave out what is older than the best `count`, of those with the least score that is reached: there may be very many."""
    if len(among) < _GROUP * count:
        return among
    reached = scores[among]
    least = np.partition(reached, len(reached) - count)[len(reached) - count]
    tied = among[reached == least]
    above = among[reached > least]
    times = facts.times(documents[tied])
    room = count - len(above)
    oldest = np.partition(times, len(times) - room)[len(times) - room]
    return np.sort(np.concatenate((above, tied[times >= oldest])))


def _untied(
    among: "Indexes",
    scores: "NDArray[np.float64]",
    times: "NDArray[np.int64]",
    documents: "Documents",
    facts: DocumentFacts,
    order: ChatOrder,
) -> "Indexes":
    """Put those in order that have the same score and time: by chat, and in a chat the later ones first."""
    is_same = np.zeros(len(among) + 1, np.bool_)
    is_same[1:-1] = (scores[1:] == scores[:-1]) & (times[1:] == times[:-1])
    tied = np.flatnonzero(is_same[1:] | is_same[:-1])
    if not len(tied):
        return among
    groups = np.cumsum(~is_same[:-1])[tied]
    ascending = np.argsort(documents[among[tied]])
    chats, numbers = facts.messages(documents[among[tied[ascending]]])
    back = np.argsort(ascending)
    chats, numbers = chats[back], numbers[back]
    ranks: Indexes = np.zeros(len(chats), np.int64)
    if (chats != chats[0]).any():
        different, ranks = np.unique(chats, return_inverse=True)
        places = order(different.tolist())
        ranks = np.array([places[chat_no] for chat_no in different.tolist()])[ranks]
    sorted_among = among.copy()
    sorted_among[tied] = among[tied[np.lexsort((-numbers, ranks, groups))]]
    return sorted_among
