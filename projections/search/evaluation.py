"""Answering a query: which documents match, and which of them are best."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from operator import itemgetter
from typing import TYPE_CHECKING, Final, assert_never

import numpy as np

from chatledger.domain.search.fields import SearchField
from chatledger.domain.search.query import All, Either, Phrase, Query, Without, Word
from chatledger.domain.search.snippets import MAX_SNIPPET_TOKENS, KnownWords, sought

from .postings import is_in
from .ranking import K1, B, Filter, Hit, IsLeftOut, rarity
from .reader import Matches, SearchReader

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Documents = NDArray[np.uint64]

MAX_STARTS: Final = 1024
"""Of so many occurrences of words in one document, at most, the best passage is chosen."""
_ANCHORS: Final = 16
_GROUP: Final = 64
_FEW: Final = 64
"""Looking at so many documents one by one takes as long as picking some of them."""


Starts = dict[int, list[tuple[int, Word | Phrase]]]
"""Of documents: where words and phrases begin, as indexes of terms, in ascending order."""


def search(
    reader: SearchReader,
    query: Query,
    *,
    only: Filter,
    limit: int | None,
    offset: int,
    is_left_out: IsLeftOut | None = None,
) -> list[Hit]:
    """
    The best documents of the chats, by BM25 over all of these chats; ties by `created_at`, newest first.

    `is_left_out` is asked about the best ones only, until there are enough; None leaves none out.
    """
    if not _is_possible(reader, query):
        return []
    evaluation = _Evaluation(reader)
    matched = evaluation.documents(query)
    if not len(matched):
        return []
    records = reader.records(matched)
    lengths = reader.lengths(matched, records)
    scores = evaluation.scores(matched, sum(lengths[1:], lengths[0]))
    wanted = evaluation.wanted(matched, records, only)
    if wanted is not None:
        matched, records, scores = matched[wanted], records[wanted], scores[wanted]
        lengths = [of_field[wanted] for of_field in lengths]
    ranked = partial(_best, scores, records["created_at"], matched)

    def shown(best: "NDArray[np.int64]") -> "NDArray[np.int64]":
        if is_left_out is None:
            return best
        chats = map(reader.chat_no, reader.owners(matched[best]).tolist())
        segments, offsets = records[best]["segment"].tolist(), records[best]["offset"].tolist()
        return best[~np.fromiter(map(is_left_out, chats, segments, offsets), np.bool_, len(best))]

    best = _best_shown(ranked, shown, None if limit is None else offset + limit)[offset:]
    places, found = records[best], matched[best]
    passages = evaluation.passages(query, found.tolist(), [of_field[best].tolist() for of_field in lengths])
    return list(
        map(
            Hit,
            map(reader.chat_no, reader.owners(found).tolist()),
            (-scores[best]).tolist(),
            places["segment"].tolist(),
            places["offset"].tolist(),
            *zip(*passages, strict=True),
        )
    )


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


class _Evaluation:
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
            words = [
                part
                for part in query.parts
                if isinstance(part, Word) and not part.is_prefix and part not in self._known
            ]
            self._known.update(zip(words, self._reader.matches_of_words(words), strict=True))
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
        self, query: Query, documents: Sequence[int], lengths: Sequence[Sequence[int]]
    ) -> list[tuple[SearchField, KnownWords]]:
        """
        Return the field to show of each document, and what it has of the query; the documents were found by it.

        It is the one with the most different words and phrases of the query, and of equally good ones the first.
        """
        fields = self._reader.fields
        begins = [self._starts(query, documents, at) for at in range(len(fields))]
        found: list[tuple[SearchField, KnownWords]] = []
        for row, document in enumerate(documents):
            at = 0 if len(fields) == 1 else max(range(len(fields)), key=lambda at: _variety(begins[at][document]))
            count = lengths[at][row]
            known = KnownWords(count, begins[at][document], fields[at].landmarks(document, count))
            found.append((fields[at].field, known))
        return found

    def _starts(self, query: Query, documents: Sequence[int], field: int) -> Starts:
        """Return where words and phrases of the query begin in a field of documents that were found by it."""
        having: dict[int, list[tuple[NDArray[np.uint32], Word | Phrase]]] = {document: [] for document in documents}
        for leaf in sought(query):
            among, counts, positions = self._known[leaf].of_fields[field]
            if len(among) > _FEW:
                places = np.flatnonzero(np.isin(among, np.array(documents, dtype=np.uint64)))
                ends = np.cumsum(counts, dtype=np.int64)[places].tolist()
                among, counts = among[places], counts[places]
            else:
                ends = accumulate(counts.tolist())
            for document, count, end in zip(among.tolist(), counts.tolist(), ends, strict=True):
                if document in having:
                    having[document].append((positions[end - count : end], leaf))
        return {document: _merged(found) for document, found in having.items()}

    def scores(self, documents: "Documents", lengths: "NDArray[np.uint32]") -> "NDArray[np.float64]":
        """Return the score of each document: higher is better."""
        total, average = self._reader.size()
        penalties = K1 * (1 - B + B * lengths / average)
        scores = np.zeros(len(documents))
        for leaf in self._leaves:
            if len(leaf.documents):
                frequencies = _frequencies(leaf, documents)
                weight = rarity(len(leaf.documents), total)
                scores += weight * (frequencies * (K1 + 1) / (frequencies + penalties))
        return scores

    def wanted(self, documents: "Documents", records: "NDArray[np.void]", only: Filter) -> "NDArray[np.bool_] | None":
        """Return which of the documents pass the filter; None when all do."""
        conditions: list[NDArray[np.bool_]] = []
        if only.roles is not None:
            conditions.append(self._has_role(documents, records, only.roles))
        if only.since is not None:
            conditions.append(records["created_at"] >= only.since)
        if only.until is not None:
            conditions.append(records["created_at"] < only.until)
        if only.runs is not None:
            conditions.append(_is_on(records, only.runs))
        return np.logical_and.reduce(conditions) if conditions else None

    def _has_role(
        self, documents: "Documents", records: "NDArray[np.void]", roles: frozenset[str]
    ) -> "NDArray[np.bool_]":
        owners = self._reader.owners(documents)
        numbered = [
            at << 32 | role
            for at in np.unique(owners).tolist()
            for name in roles
            if (role := self._reader.role(at, name)) is not None
        ]
        return np.isin(owners << 32 | records["role"], np.array(numbered, dtype=np.int64))


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
    places = np.searchsorted(leaf.documents, documents)
    places[places == len(leaf.documents)] = 0
    return np.where(leaf.documents[places] == documents, leaf.counts[places], np.uint32(0))


def _is_on(records: "NDArray[np.void]", runs: dict[int, int]) -> "NDArray[np.bool_]":
    if not runs:  # an empty branch
        return np.zeros(len(records), dtype=np.bool_)
    segments = np.array(sorted(runs), dtype=np.int64)
    ends = np.array([runs[segment] for segment in segments.tolist()], dtype=np.int64)
    places = np.searchsorted(segments, records["segment"])
    places[places == len(segments)] = 0
    found: NDArray[np.bool_] = (segments[places] == records["segment"]) & (records["offset"] <= ends[places])
    return found


def _best(
    scores: "NDArray[np.float64]", times: "NDArray[np.int64]", documents: "Documents", count: int | None
) -> "NDArray[np.int64]":
    """The places of the best `count`, best first."""
    among = np.arange(len(scores))
    if count is not None and count < len(scores):
        if count == 0:
            return among[:0]
        among = np.flatnonzero(scores >= _reached_by(scores, count))
    # Unlike `-`, `~` turns round the order of all times.
    order = np.lexsort((~documents[among], ~times[among], -scores[among]))
    return among[order][:count]


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
