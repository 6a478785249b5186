"""Answering a query: which documents match, and which of them are best."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, assert_never

import msgspec
import numpy as np

from chatledger.domain.search.query import All, Either, Phrase, Query, Without, Word

from .reader import Matches, SearchReader, is_in

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Documents = NDArray[np.uint64]

K1: Final = 1.2
B: Final = 0.75
LEAST_IDF: Final = 1e-6
"""What a term counts that most documents have; as in FTS5."""
_GROUP: Final = 64
_SHIFT: Final = np.uint64(32)
_MASK: Final = np.uint64(0xFFFFFFFF)


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """
    Which of the documents that match are wanted. None is no condition.

    Args:
        roles: Only messages of these names.
        since: Only those created at or after, in ms.
        until: Only those created before, in ms.
        runs: Of one chat: only those in these runs of its chains, as segment and last offset.
    """

    roles: frozenset[str] | None = None
    since: int | None = None
    until: int | None = None
    runs: dict[int, int] | None = None


class Hit(NamedTuple):
    """A document: the number of its reader, its rank (lower is better), and its place in the chains of the chat."""

    reader: int
    rank: float
    segment: int
    offset: int


def search(readers: Sequence[SearchReader], query: Query, *, only: Filter, limit: int | None, offset: int) -> list[Hit]:
    """The best documents of the chats, by BM25 over all of these chats; ties by `created_at`, newest first."""
    evaluation = _Evaluation(readers)
    matched = evaluation.documents(query)
    if not len(matched):
        return []
    records = evaluation.records(matched)
    scores = evaluation.scores(matched, records["length"])
    wanted = evaluation.wanted(matched, records, only)
    if wanted is not None:
        matched, records, scores = matched[wanted], records[wanted], scores[wanted]
    best = _best(scores, records["created_at"], matched, None if limit is None else offset + limit)[offset:]
    places = records[best]
    hits = zip(
        (matched[best] >> _SHIFT).tolist(),
        (-scores[best]).tolist(),
        places["segment"].tolist(),
        places["offset"].tolist(),
        strict=True,
    )
    return list(map(Hit._make, hits))


class _Evaluation:
    """One query on several chats. A document is its number, with that of its reader in the upper 32 bits."""

    def __init__(self, readers: Sequence[SearchReader]) -> None:
        self._readers = readers
        self._leaves: list[Matches] = []
        self._known: dict[Word | Phrase, Matches] = {}

    def documents(self, query: Query, *, is_scored: bool = True) -> "Documents":
        """The documents that match."""
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
            found = [reader.matches(leaf) for reader in self._readers]
            # Most chats do not have the term.
            having = [at for at, one in enumerate(found) if len(one.documents)] or [0]
            if having != [0]:
                documents = [found[at].documents | np.uint64(at << 32) for at in having]
                found = [Matches(np.concatenate(documents), np.concatenate([found[at].counts for at in having]))]
            self._known[leaf] = found[0]
        return self._known[leaf]

    def records(self, documents: "Documents") -> "NDArray[np.void]":
        """The records of ascending documents."""
        if len(self._readers) == 1:
            return self._readers[0].records(documents)
        owners = (documents >> _SHIFT).astype(np.int64)
        ends = np.searchsorted(owners, np.arange(len(self._readers)), side="right")
        starts = np.concatenate(([0], ends[:-1]))
        return np.concatenate(
            [
                self._readers[at].records(documents[start:end] & _MASK)
                for at, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True))
                if end > start
            ]
        )

    def scores(self, documents: "Documents", lengths: "NDArray[np.uint32]") -> "NDArray[np.float64]":
        """How well each document matches: higher is better."""
        total = sum(reader.state.indexed for reader in self._readers)
        average = sum(reader.state.terms for reader in self._readers) / total
        penalties = K1 * (1 - B + B * lengths / average)
        scores = np.zeros(len(documents))
        for documents_with, counts in self._leaves:
            having = len(documents_with)
            if not having:
                continue
            idf = max(float(np.log((total - having + 0.5) / (having + 0.5))), LEAST_IDF)
            if documents_with is documents:
                scores += idf * (counts * (K1 + 1) / (counts + penalties))
                continue
            places = np.searchsorted(documents_with, documents)
            places[places == having] = 0
            frequencies = np.where(documents_with[places] == documents, counts[places], 0)
            scores += idf * (frequencies * (K1 + 1) / (frequencies + penalties))
        return scores

    def wanted(self, documents: "Documents", records: "NDArray[np.void]", only: Filter) -> "NDArray[np.bool_] | None":
        """Which of the documents pass; None when all do."""
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
        numbered = [
            at << 32 | role
            for at, reader in enumerate(self._readers)
            for name in roles
            if (role := reader.role(name)) is not None
        ]
        return np.isin((documents & ~_MASK) | records["role"], np.array(numbered, dtype=np.uint64))


def _is_on(records: "NDArray[np.void]", runs: dict[int, int]) -> "NDArray[np.bool_]":
    """Which of the documents are in these runs."""
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
    # Within a chat the last document first, and of chats the first. Unlike `-`, `~` turns round the order of all times.
    order = np.lexsort((documents[among] ^ _MASK, ~times[among], -scores[among]))
    return among[order][:count]


def _reached_by(scores: "NDArray[np.float64]", count: int) -> float:
    """A score, as high as is quickly found, that `count` documents or more have at least."""
    if len(scores) > count * _GROUP:
        # The best of each group are as many different documents as there are groups.
        scores = scores[: len(scores) // _GROUP * _GROUP].reshape(_GROUP, -1).max(axis=0)
    least: float = np.partition(scores, len(scores) - count)[len(scores) - count]
    return least
