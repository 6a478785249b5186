"""Postings: in which documents terms occur, how often and where; as arrays, ordered by term and document."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import numpy as np

from chatledger.domain.search.tokens import PART

if TYPE_CHECKING:
    from numpy.typing import NDArray

DOCUMENT_SHIFT = np.uint64(32)
_Value = TypeVar("_Value", bound=np.generic)
_PART: Final = PART.encode()
_MANY: Final = 256
_SPARSE: Final = 64
"""A table may have so many slots for each value that is looked up in it."""


def is_first(values: "NDArray[Any]") -> "NDArray[np.bool_]":
    """Return which of the values do not repeat the one before."""
    is_new = np.empty(len(values), dtype=np.bool_)
    is_new[:1] = True
    np.not_equal(values[1:], values[:-1], out=is_new[1:])
    return is_new


def is_in(values: "NDArray[Any]", among: "NDArray[Any]") -> "NDArray[np.bool_]":
    end = _table_size(values, among)
    if end:
        is_among = np.zeros(end, np.bool_)
        is_among[among] = True
        return np.asarray(is_among[values])
    if not len(among):
        return np.zeros(len(values), dtype=np.bool_)
    places = among.searchsorted(values)
    places[places == len(among)] = 0  # any place that there is: the comparison tells
    return np.asarray(among[places] == values)


def values_at(keys: "NDArray[Any]", among: "NDArray[Any]", values: "NDArray[np.uint32]") -> "NDArray[np.uint32]":
    """Return the value of each key; 0 for a key that is not `among` those with values, which ascend, and are at least one."""
    end = _table_size(keys, among)
    if end:
        table = np.zeros(end, np.uint32)
        table[among] = values
        return np.asarray(table[keys])
    places = among.searchsorted(keys)
    places[places == len(among)] = 0
    return np.where(among[places] == keys, values[places], np.uint32(0))


def _table_size(values: "NDArray[Any]", among: "NDArray[Any]") -> int:
    """
    How large a table has to be that tells what some values are; 0: it is better to look for each.

    Of many documents it tells it in a third of the time, or less.
    """
    if len(values) < _MANY or len(among) < _MANY or among.dtype != np.uint32:
        return 0
    size = max(int(among[-1]), int(values.max())) + 1
    return size if size < _SPARSE * (len(values) + len(among)) else 0


def places_in(among: "NDArray[Any]", values: "NDArray[Any]") -> "NDArray[np.int64]":
    """Return where those of these values are that are among those. Both ascend, and none is there twice."""
    places: NDArray[np.int64] = among.searchsorted(values)
    if not len(among):
        return places[:0]
    places[places == len(among)] = 0
    return np.asarray(places[among[places] == values])


def spread(starts: "NDArray[np.int64]", counts: "NDArray[Any]") -> "NDArray[np.int64]":
    """Return the indexes of runs, given by where each starts and how long it is, one run after the other."""
    ends: NDArray[np.int64] = counts.cumsum(dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    if total == len(counts) and (not total or counts.min() == 1):
        return starts
    return np.asarray(np.arange(total, dtype=np.int64) + (starts - (ends - counts)).repeat(counts))


class Postings(NamedTuple):
    """
    The postings of some terms.

    Args:
        terms: In the order of their bytes, each once.
        sizes: In how many documents each occurs, at least one (`int64`).
        documents: One term's after the other, ascending in each (`uint32`).
        frequencies: How often the term occurs in the document, at least once (`uint32`).
        positions: Of each occurrence, one document's after the other, ascending in each (`uint32`).
    """

    terms: list[bytes]
    sizes: "NDArray[np.int64]"
    documents: "NDArray[np.uint32]"
    frequencies: "NDArray[np.uint32]"
    positions: "NDArray[np.uint32]"

    @property
    def length(self) -> int:
        """The number of pairs of a term and a document."""
        return len(self.documents)

    def sliced(self, start: int, end: int) -> "Postings":
        """Return the postings from one to before another; there is one at least."""
        return self if start == 0 and end == self.length else Slices(self).of(start, end)

    def before(self, term: bytes, document: int) -> int:
        """Number of postings before a term and document."""
        at = bisect_left(self.terms, term)
        count = int(self.sizes[:at].sum())
        if at == len(self.terms) or self.terms[at] != term:
            return count
        of_term = self.documents[count : count + int(self.sizes[at])]
        return count + int(np.searchsorted(of_term, np.array([max(document, 0)]))[0])

    def kept(self, is_wanted: "NDArray[np.bool_]") -> "Postings":
        """Return only some of the postings; terms of which none is left are left out."""
        if is_wanted.all():
            return self
        places = np.flatnonzero(is_wanted)
        of_terms = np.repeat(np.arange(len(self.terms)), self.sizes)[places]
        sizes = np.bincount(of_terms, minlength=len(self.terms))
        frequencies = self.frequencies[places]
        positions = self.positions[np.repeat(is_wanted, self.frequencies)]
        terms = [self.terms[at] for at in np.flatnonzero(sizes).tolist()]
        return Postings(terms, sizes[sizes > 0], self.documents[places], frequencies, positions)


class Slices:
    """Parts of postings; it is worked out once where terms and occurrences begin."""

    def __init__(self, postings: Postings) -> None:
        self._postings = postings
        self._ends = np.cumsum(postings.sizes)
        self._occurrences = np.concatenate(([0], np.cumsum(postings.frequencies, dtype=np.int64)))

    def of(self, start: int, end: int) -> Postings:
        """Return the postings from one to before another; there is one at least."""
        every = self._postings
        if start == 0 and end == every.length:
            return every
        ends = self._ends
        first, last = ends.searchsorted(start, "right"), ends.searchsorted(end - 1, "right") + 1
        sizes = every.sizes[first:last].copy()
        sizes[-1] -= ends[last - 1] - end
        sizes[0] -= start - (ends[first] - every.sizes[first])
        begin, stop = self._occurrences[start], self._occurrences[end]
        return Postings(
            every.terms[first:last],
            sizes,
            every.documents[start:end],
            every.frequencies[start:end],
            every.positions[begin:stop],
        )


def merged(parts: Sequence[Postings]) -> Postings:
    """Return the postings of all parts, which have no pair of a term and a document in common."""
    if len(parts) == 1:
        (part,) = parts
        is_start = np.zeros(part.length, np.bool_)
        is_start[np.cumsum(part.sizes) - part.sizes] = True
        if part.length < 2 or bool(np.all((part.documents[1:] > part.documents[:-1])[~is_start[1:]])):
            return part
        keys_of_part = np.repeat(np.arange(len(part.terms), dtype=np.uint64) << DOCUMENT_SHIFT, part.sizes)
        return _ordered(part.terms, keys_of_part | part.documents, part.frequencies, part.positions)
    # Those of each part are in order: that makes it less to compare than what is left without repetitions.
    terms = list(dict.fromkeys(sorted(chain.from_iterable([part.terms for part in parts]))))
    numbers = dict(zip(terms, range(len(terms)), strict=True))
    keys: list[NDArray[np.uint64]] = []
    for part in parts:
        ranks = np.fromiter(map(numbers.__getitem__, part.terms), np.uint64, len(part.terms))
        keys.append(np.repeat(ranks << DOCUMENT_SHIFT, part.sizes) | part.documents)
    return _ordered(
        terms,
        np.concatenate(keys),
        np.concatenate([part.frequencies for part in parts]),
        np.concatenate([part.positions for part in parts]),
    )


def _ordered(
    terms: list[bytes],
    keys: "NDArray[np.uint64]",
    frequencies: "NDArray[np.uint32]",
    positions: "NDArray[np.uint32]",
) -> Postings:
    """Put postings in order, whose keys are the number of the term and the document."""
    order = np.argsort(keys, kind="stable")
    starts = (np.cumsum(frequencies, dtype=np.int64) - frequencies)[order]
    keys, frequencies = keys[order], frequencies[order]
    sizes = np.bincount((keys >> DOCUMENT_SHIFT).astype(np.int64), minlength=len(terms))
    return Postings(terms, sizes, keys.astype(np.uint32), frequencies, positions[spread(starts, frequencies)])


def spelled_out(
    codes: "NDArray[np.int32]", sizes: "NDArray[np.int64]", values: "NDArray[_Value]"
) -> "tuple[NDArray[_Value], NDArray[np.int64]]":
    """
    Return the values of terms, of which each has one or, where it is an identifier, several; and how many each has.

    Args:
        codes: Numbers of terms, one after the other.
        sizes: How many values the terms have, by their numbers.
        values: All values, in the order of these numbers.
    """
    counts, begins = sizes[codes], np.cumsum(sizes) - sizes
    # Most terms have one value: the others' are put in between, as to spread all takes several times as long.
    several = np.flatnonzero(counts > 1)
    further = counts[several] - 1
    more = values[spread(begins[codes[several]] + 1, further)]
    return np.insert(values[begins[codes]], np.repeat(several + 1, further), more), counts


def invert(
    codes: "NDArray[np.int32]",
    lengths: "NDArray[np.int64]",
    documents: "NDArray[np.uint32]",
    terms: Sequence[bytes],
) -> Postings:
    """
    Put the terms of texts in the order of terms, identifiers and their parts each at the same position.

    Args:
        codes: The places in `terms` of the terms of each text, one text's after the other.
        lengths: How many terms each text has.
        documents: The document that each text belongs to, ascending; two texts of one document have no term in common.
        terms: Each once, maybe some that no text has.
    """
    starts_of = np.cumsum(lengths) - lengths
    in_text = (np.arange(len(codes), dtype=np.int64) - np.repeat(starts_of, lengths)).astype(np.uint32)
    spelled = [term.split(_PART) for term in terms]
    names = sorted(set(chain.from_iterable(spelled)))
    ranks = dict(zip(names, range(len(names)), strict=True))
    every = np.fromiter(map(ranks.__getitem__, chain.from_iterable(spelled)), np.int32)
    codes, repeats = spelled_out(codes, np.fromiter(map(len, spelled), np.int64, len(spelled)), every)
    in_text, of_texts = in_text.repeat(repeats), np.repeat(documents, lengths).repeat(repeats)
    # NumPy sorts numbers of 16 bits in linear time, and stably: the lower bits first, then by the upper ones.
    order = codes.astype(np.uint16).argsort(kind="stable")
    if len(codes) and codes.max() >> 16:
        order = order[(codes[order] >> 16).astype(np.uint16).argsort(kind="stable")]
    ordered, of_documents, positions = codes[order], of_texts[order], in_text[order]
    is_new_term = is_first(ordered)
    firsts = np.flatnonzero(is_new_term | is_first(of_documents))
    frequencies = np.diff(firsts, append=len(ordered)).astype(np.uint32)
    begins = np.flatnonzero(is_new_term[firsts])
    sizes = np.diff(begins, append=len(firsts))
    present: list[int] = ordered[firsts[begins]].tolist()
    return Postings([names[code] for code in present], sizes, of_documents[firsts], frequencies, positions)
