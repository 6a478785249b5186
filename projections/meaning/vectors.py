"""
Scans over vectors: bits for a first look at all of them, numbers for an exact look at the best, on any set of vectors.

Of a vector two forms are kept: two bits for each dimension, of which one is the sign, and its numbers in two bytes each. A query
keeps four bits for each dimension, so that the scalar product of the query and the bits is a few counts of bits (the asymmetric
estimate of RaBitQ, Gao and Long 2024): much closer to the exact product than comparing signs with signs, for about the same
work. All vectors are estimated by their signs; a part of them, the best, by the second bit too; and a few hundred of these are
ranked by their numbers.

Nothing here knows of messages: `VectorIndex` uses it on rows of LMDB, `nearest` on arrays in memory.
"""

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from chatledger.domain.errors import EmbeddingError
from chatledger.domain.search.embedding import Embedding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_WORD_BITS: Final = 64
_PLANES: Final = 4
_LEVELS: Final = (1 << _PLANES) - 1
_LARGEST: Final = 32_767
FEW: Final = 1_000
"""So many vectors are ranked by their numbers without a look at bits: a small chat is searched exactly."""
_COARSE_SHARE: Final = 20
_COARSE: Final = 4_000, 20_000
"""At least and at most so many are estimated by both bits."""
_FINE: Final = 400
_PER_HIT: Final = 10
_STEP: Final = 0.996
"""The width of the levels for which the two bits stand, in standard deviations: the best for a normal distribution (Max 1960)."""


def embed_texts(embedding: Embedding, texts: "Sequence[str]", *, is_query: bool = False) -> "NDArray[np.float32]":
    """
    Call the function of an embedding; returns a vector of length 1 for each text, as rows.

    At most `embedding.batch` texts are given to one call. To be called in a thread of its own: what the function raises to end its
    thread, as an asynchronous client does that was cancelled, is an error of the function.

    Raises:
        EmbeddingError: The function failed, or did not return as many vectors of that length.
    """
    function = embedding.query if is_query else embedding.function
    rows = np.empty((len(texts), embedding.dimensions), np.float32)
    for start in range(0, len(texts), embedding.batch):
        part = list(texts[start : start + embedding.batch])
        try:
            vectors = np.asarray(function(part), np.float32)
        except BaseException as error:
            # The message of the function's own error may have content; it is chained, and shown by who may see it.
            raise EmbeddingError(embedding.name, f"failed with {type(error).__name__}") from error
        if vectors.shape != (len(part), embedding.dimensions):
            wanted = (len(part), embedding.dimensions)
            raise EmbeddingError(embedding.name, f"returned vectors of shape {vectors.shape}, not {wanted}")
        if not np.isfinite(vectors).all():
            raise EmbeddingError(embedding.name, "returned vectors with numbers that are not finite")
        rows[start : start + len(part)] = vectors
    return unit(rows)


def unit(vectors: "NDArray[Any]") -> "NDArray[np.float32]":
    """Return vectors (rows) with length 1; those without a direction stay 0."""
    wide = np.asarray(vectors, np.float32)
    lengths = np.linalg.norm(wide, axis=-1, keepdims=True)
    return np.asarray(wide / np.where(lengths > 0, lengths, 1), np.float32)


class Codes(NamedTuple):
    """
    Vectors of length 1 as they are kept: `numbers * scales` are their numbers, with cosines right to some millionths.

    One byte a number would do for vectors that have little in common, but not to tell apart those that are nearly the same. Floats of
    two bytes are as good, but NumPy takes several times as long to read them.

    Args:
        numbers: A row for each (`int16`).
        scales: Of each (`float32`).
    """

    numbers: "NDArray[np.int16]"
    scales: "NDArray[np.float32]"

    @classmethod
    def of(cls, vectors: "NDArray[Any]") -> "Codes":
        """Return the codes of vectors of length 1 (rows)."""
        scales = np.abs(vectors).max(axis=1, initial=0) / np.float32(_LARGEST)
        numbers = np.rint(vectors / np.where(scales > 0, scales, 1)[:, None]).astype(np.int16)
        return cls(numbers, scales.astype(np.float32))

    def similarities(self, query: "NDArray[np.float32]") -> "NDArray[np.float32]":
        """Return the cosine of each with a query of length 1."""
        return np.asarray((self.numbers.astype(np.float32) @ query) * self.scales, np.float32)

    def taken(self, indices: "NDArray[Any]") -> "Codes":
        return Codes(self.numbers[indices], self.scales[indices])


def words_for(dimensions: int) -> int:
    """Return how many words of 64 bits the signs of a vector take."""
    return -(-dimensions // _WORD_BITS)


class Bits(NamedTuple):
    """
    Two bits for each dimension of vectors of length 1, by word: shape (words, vectors), so that a word of all of them is contiguous.

    Args:
        signs: Whether a number is positive (`uint64`).
        fine: Whether it is in the upper half of that (`uint64`).
    """

    signs: "NDArray[np.uint64]"
    fine: "NDArray[np.uint64]"

    @classmethod
    def of(cls, vectors: "NDArray[Any]") -> "Bits":
        """Return those of vectors (rows)."""
        wide = np.asarray(vectors, np.float32)
        border = np.float32(_STEP / max(wide.shape[1], 1) ** 0.5)
        return cls(_packed(wide > 0), _packed(np.where(wide > 0, wide > border, wide > -border)))

    def taken(self, indices: "NDArray[Any]") -> "Bits":
        return Bits(self.signs[:, indices], self.fine[:, indices])


def _packed(bits: "NDArray[np.bool_]") -> "NDArray[np.uint64]":
    count, dimensions = bits.shape
    raw = np.zeros((count, 8 * words_for(dimensions)), np.uint8)
    packed = np.packbits(bits, axis=1, bitorder="little")
    raw[:, : packed.shape[1]] = packed
    return np.ascontiguousarray(raw.view(np.dtype("<u8")).T)


class Probe:
    """A query, prepared for estimates. `query`: a vector of length 1."""

    def __init__(self, query: "NDArray[np.float32]") -> None:
        self.query = np.ascontiguousarray(query, np.float32)
        low, high = float(query.min()), float(query.max())
        self._low, self._step = low, (high - low) / _LEVELS or 1.0
        levels = np.rint((self.query - low) / self._step).astype(np.uint8)
        planes = [_packed((levels[None, :] >> plane & 1).astype(np.bool_))[:, 0] for plane in range(_PLANES)]
        self._planes = np.stack(planes)

    def estimates(self, signs: "NDArray[np.uint64]") -> "NDArray[np.float32]":
        """
        Return numbers by which vectors can be ordered: the higher, the nearer, as far as one bit for each dimension tells.

        Args:
            signs: As of `Bits`, with any axes before that of the words.
        """
        ones = _counted(signs)
        is_narrow = self.query.size * _LEVELS <= np.iinfo(np.uint16).max
        total: NDArray[Any] = np.zeros(ones.shape, np.uint16 if is_narrow else np.uint32)
        for plane in range(_PLANES):
            total += _counted(signs & self._planes[plane][:, None]) * total.dtype.type(1 << plane)
        return np.asarray(total + ones * np.float32(self._low / self._step), np.float32)

    def fine_estimates(self, bits: Bits) -> "NDArray[np.float32]":
        """Return them as far as both bits tell."""
        return 2 * self.estimates(bits.signs) + self.estimates(bits.fine)


def _counted(words: "NDArray[np.uint64]") -> "NDArray[np.uint16]":
    """Return how many bits are set in the words of each vector."""
    return np.asarray(np.bitwise_count(words).sum(axis=-2, dtype=np.uint16), np.uint16)


class Depths(NamedTuple):
    """Numbers of vectors that are estimated by both bits, and that are ranked by their numbers."""

    coarse: int
    fine: int

    @classmethod
    def of(cls, total: int, limit: int | None) -> "Depths":
        """Return those of a search for the best so many of so many vectors; all when None."""
        if limit is None or total <= FEW:
            return cls(total, total)
        least, most = _COARSE
        fine = min(max(_FINE, _PER_HIT * limit), total)
        return cls(min(max(min(total // _COARSE_SHARE, most), least, 5 * fine), total), fine)


def best(scores: "NDArray[Any]", count: int) -> "NDArray[np.int64]":
    """Return the places of the highest scores, the highest first; of equal ones the first."""
    if not count:
        return np.empty(0, np.int64)
    if count < len(scores):
        kept = np.sort(np.argpartition(scores, len(scores) - count)[len(scores) - count :])
        order = np.argsort(-scores[kept], kind="stable")
        return np.asarray(kept[order], np.int64)
    return np.asarray(np.argsort(-scores, kind="stable"), np.int64)


class Nearest(NamedTuple):
    """The vectors nearest to a query, the nearest first. `similarities`: the cosine of each with the query."""

    places: "NDArray[np.int64]"
    similarities: "NDArray[np.float32]"


def nearest(
    query: "NDArray[np.float32]",
    codes: Codes,
    *,
    limit: int | None,
    bits: Bits | None = None,
    among: "NDArray[Any] | None" = None,
) -> Nearest:
    """
    The nearest of any set of vectors in memory.

    Args:
        query: A vector of length 1.
        codes: The vectors.
        limit: At most so many; all when None.
        bits: Their bits. Without them, all vectors are looked at exactly.
        among: The places of those to look at; all when None.
    """
    places = np.arange(len(codes.scales)) if among is None else np.asarray(among, np.int64)
    depths = Depths.of(len(places), limit)
    if bits is not None and depths.fine < len(places):
        probe = Probe(query)
        if depths.coarse < len(places):
            held = bits.signs if among is None else bits.signs[:, places]
            places = np.sort(places[best(probe.estimates(held), depths.coarse)])
        places = np.sort(places[best(probe.fine_estimates(bits.taken(places)), depths.fine)])
    similarities = codes.taken(places).similarities(query)
    order = best(similarities, len(places) if limit is None else min(limit, len(places)))
    return Nearest(places[order], similarities[order])
