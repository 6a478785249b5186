"""
Answering a query that few documents have to do with, without NumPy, whose fixed cost is that of some hundred of them.

It answers what `evaluation` does, to the last bit of a rank.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import compress
from operator import itemgetter, neg
from typing import Final, NamedTuple, assert_never

from chatledger.domain.search.query import All, Either, Phrase, Query, Without, Word
from chatledger.domain.search.snippets import KnownWords, sought

from .postings import DOC_SHIFT, POSITION_MASK, unpack_few
from .ranking import K1, B, Filter, Hit, rarity
from .reader import SearchReader
from .rows import Record

MAX_FEW: Final = 64
_MAX_OCCURRENCES: Final = 2 * MAX_FEW
_MAX_BYTES: Final = 4 * MAX_FEW
_EVERYTHING: Final = Filter()


class Leaf(NamedTuple):
    """A word or phrase that counts for ranks: how many documents have it, and how often those that were found."""

    having: int
    counts: dict[int, int]


Starts = dict[int, list[tuple[int, Word | Phrase]]]
"""Of documents: where words and phrases begin, as indexes of terms, in ascending order."""


class TooManyError(Exception):
    """A term occurs too often."""


class FewDocuments:
    """One query on the chats of a reader. Documents are the keys of dicts."""

    def __init__(self, reader: SearchReader) -> None:
        self._reader = reader
        self.leaves: list[Leaf] = []
        self.occurrences: dict[Word | Phrase, Sequence[int]] = {}
        self._known: dict[Word | Phrase, dict[int, int]] = {}

    def matching(self, query: Query, *, is_scored: bool = True) -> dict[int, int]:
        """
        The documents that match.

        Raises:
            TooManyError: They are not few, or one of the terms is not rare.
        """
        if isinstance(query, Word | Phrase):
            counts = self._counts(query)
            if is_scored:
                self.leaves.append(Leaf(len(counts), counts))
            return counts
        if isinstance(query, All):
            found = self.matching(query.parts[0], is_scored=is_scored)
            for part in query.parts[1:]:
                others = self.matching(part, is_scored=is_scored)
                found = {document: count for document, count in found.items() if document in others}
            return found
        if isinstance(query, Either):
            either: dict[int, int] = {}
            for part in query.parts:
                either |= self.matching(part, is_scored=is_scored)
            return either
        if isinstance(query, Without):
            kept = self.matching(query.kept, is_scored=is_scored)
            dropped = self.matching(query.dropped, is_scored=False)
            return {document: count for document, count in kept.items() if document not in dropped}
        assert_never(query)

    def starts(self, query: Query, documents: Sequence[int]) -> Starts:
        """Where that begins in documents which they were found by."""
        found: Starts = {document: [] for document in documents}
        marked = sought(query)
        for leaf in marked:
            for occurrence in self.occurrences[leaf]:
                starts = found.get(occurrence >> DOC_SHIFT)
                if starts is not None:
                    starts.append((occurrence & POSITION_MASK, leaf))
        if len(marked) > 1:
            for starts in found.values():
                starts.sort(key=itemgetter(0))
        return found

    def _counts(self, leaf: Word | Phrase) -> dict[int, int]:
        """How often a word or phrase occurs in the documents that have it."""
        known = self._known.get(leaf)
        if known is None:
            found = self._phrase(leaf) if isinstance(leaf, Phrase) else self._word(leaf)
            self.occurrences[leaf] = found
            known = self._known[leaf] = dict(Counter([occurrence >> DOC_SHIFT for occurrence in found]))
        return known

    def _word(self, word: Word) -> Sequence[int]:
        found = self._occurrences(word.term, word.is_prefix)
        return sorted(found) if word.is_prefix else found

    def _phrase(self, phrase: Phrase) -> Sequence[int]:
        try:
            return self._phrase_of_rare_terms(phrase)
        except TooManyError:
            starts = self._reader.starts(phrase)
            if len(starts) > _MAX_OCCURRENCES:
                raise
            found: list[int] = starts.tolist()
            return found

    def _phrase_of_rare_terms(self, phrase: Phrase) -> Sequence[int]:
        last = len(phrase.terms) - 1
        starts: set[int] | None = None
        for at, term in enumerate(phrase.terms):
            occurrences = self._occurrences(term, phrase.is_prefix and at == last)
            begins = {one - at for one in occurrences if one & POSITION_MASK >= at}
            starts = begins if starts is None else starts & begins
            if not starts:
                return ()
        return sorted(starts or ())

    def _occurrences(self, term: str, is_prefix: bool) -> list[int]:  # noqa: FBT001  # as in a leaf
        parts = self._reader.source(term, is_prefix=is_prefix)
        if sum(len(row) for part in parts for row in part.rows) > _MAX_BYTES:
            raise TooManyError
        found = unpack_few(parts)
        if len(found) > _MAX_OCCURRENCES:
            raise TooManyError
        return found


def best_of_few(
    reader: SearchReader,
    documents: Sequence[int],
    leaves: Sequence[Leaf],
    starts: Callable[[Sequence[int]], Starts],
    *,
    only: Filter,
    limit: int | None,
    offset: int,
) -> list[Hit]:
    """The best of these documents, best first. `starts` is asked what those have of the query."""
    total, average = reader.size()
    owners, records = reader.few_records(documents)
    if only != _EVERYTHING:
        wanted = list(map(_Wanted(reader, only).passes, owners, records))
        documents, owners = list(compress(documents, wanted)), list(compress(owners, wanted))
        records = list(compress(records, wanted))
    penalties = [K1 * (1 - B + B * record[0] / average) for record in records]
    scores = [0.0] * len(records)
    for leaf in leaves:
        if leaf.having:
            weight, count_in = rarity(leaf.having, total), leaf.counts.get
            scores = [
                score + weight * ((count := count_in(document, 0)) * (K1 + 1) / (count + penalty))
                for document, score, penalty in zip(documents, scores, penalties, strict=True)
            ]
    times = [-record[2] for record in records]
    ranked = sorted(zip(map(neg, scores), times, map(neg, documents), owners, records, strict=True))
    best = ranked[offset : None if limit is None else offset + limit]
    begins = starts([-document for _, _, document, _, _ in best])
    return [
        Hit(
            reader.chat_no(at),
            rank,
            record[3],
            record[4],
            KnownWords(record[0], begins[-document], reader.landmarks(-document, record[0])),
        )
        for rank, _, document, at, record in best
    ]


class _Wanted:
    """A filter on the documents of the chats of a reader."""

    def __init__(self, reader: SearchReader, only: Filter) -> None:
        self._reader, self._only = reader, only
        self._roles: dict[int, set[int | None]] = {}

    def passes(self, at: int, record: Record) -> bool:
        """Whether a document of a chat is wanted."""
        only = self._only
        _, role, created_at, segment, offset = record
        return (
            (only.roles is None or role in self._numbers(at, only.roles))
            and (only.since is None or created_at >= only.since)
            and (only.until is None or created_at < only.until)
            and (only.runs is None or offset <= only.runs.get(segment, -1))
        )

    def _numbers(self, at: int, names: frozenset[str]) -> set[int | None]:
        if at not in self._roles:
            self._roles[at] = {self._reader.role(at, name) for name in names}
        return self._roles[at]
