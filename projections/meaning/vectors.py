"""
Scans over vectors: sign bits for a first look at all of them, numbers for an exact look at the best, on any set of vectors.

Of a vector two forms are kept: its signs, one bit a dimension, and its numbers in two bytes each. A query
keeps four bits a dimension, so that the scalar product of the query and the signs is a few counts of bits (the asymmetric
estimate of RaBitQ, Gao and Long 2024): much closer to the exact product than comparing signs with signs, for about the same
work. The best by that estimate are then ranked by their numbers.

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
FEW: Final = 2_000
"""So many vectors are ranked by their numbers without a look at signs: a small chat is searched exactly."""
_SHARE: Final = 50
_PER_HIT: Final = 20
_MOST: Final = 8_000


def embed_texts(embedding: Embedding, texts: "Sequence[str]", *, is_query: bool = False) -> "NDArray[np.float32]":
    """
    Call the function of an embedding; returns a vector of length 1 for each text, as rows.

    At most `embedding.batch` texts are given to one call.

    Raises:
        EmbeddingError: The function failed, or did not return as many vectors of that length.
    """
    function = embedding.query if is_query else embedding.function
    found = np.empty((len(texts), embedding.dimensions), np.float32)
    for start in range(0, len(texts), embedding.batch):
        part = list(texts[start : start + embedding.batch])
        try:
            vectors = np.asarray(function(part), np.float32)
        except Exception as error:
            # The message of the function's own error may have content; it is chained, and shown by who may see it.
            raise EmbeddingError(embedding.name, f"failed with {type(error).__name__}") from error
        if vectors.shape != (len(part), embedding.dimensions):
            wanted = (len(part), embedding.dimensions)
            raise EmbeddingError(embedding.name, f"returned vectors of shape {vectors.shape}, not {wanted}")
        if not np.isfinite(vectors).all():
            raise EmbeddingError(embedding.name, "returned vectors with numbers that are not finite")
        found[start : start + len(part)] = vectors
    return unit(found)


def unit(vectors: "NDArray[Any]") -> "NDArray[np.float32]":
    """Return vectors (rows) with length 1; those without a direction stay 0."""
    wide = np.asarray(vectors, np.float32)
    lengths = np.linalg.norm(wide, axis=-1, keepdims=True)
    return np.asarray(wide / np.where(lengths > 0, lengths, 1), np.float32)


def halves(vectors: "NDArray[Any]") -> "NDArray[np.float16]":
    """Return vectors as they are kept: two bytes a number. Cosines are kept to some hundred-thousandths, so near ones stay apart."""
    return np.asarray(vectors, np.float16)


def similarities(kept: "NDArray[np.float16]", query: "NDArray[np.float32]") -> "NDArray[np.float32]":
    """Return the cosine of each of some vectors with a query, all of length 1."""
    return np.asarray(kept.astype(np.float32) @ query, np.float32)


def words_for(dimensions: int) -> int:
    """Return how many words of 64 bits the signs of a vector take."""
    return -(-dimensions // _WORD_BITS)


def sign_words(vectors: "NDArray[Any]") -> "NDArray[np.uint64]":
    """Return the signs of vectors (rows), by word: shape (words, vectors), so that a word of all of them is contiguous."""
    return _packed(np.asarray(vectors) > 0)


def _packed(bits: "NDArray[np.bool_]") -> "NDArray[np.uint64]":
    count, dimensions = bits.shape
    raw = np.zeros((count, 8 * words_for(dimensions)), np.uint8)
    packed = np.packbits(bits, axis=1, bitorder="little")
    raw[:, : packed.shape[1]] = packed
    return np.ascontiguousarray(raw.view(np.dtype("<u8")).T)


class Probe:
    """
    A query, prepared for estimates.

    Args:
        query: A vector of length 1.
    """

    def __init__(self, query: "NDArray[np.float32]") -> None:
        self.query = np.ascontiguousarray(query, np.float32)
        low, high = float(query.min()), float(query.max())
        self._low, self._step = low, (high - low) / _LEVELS or 1.0
        levels = np.rint((self.query - low) / self._step).astype(np.uint8)
        planes = [_packed((levels[None, :] >> plane & 1).astype(np.bool_))[:, 0] for plane in range(_PLANES)]
        self._planes = np.stack(planes)

    def estimates(self, signs: "NDArray[np.uint64]") -> "NDArray[np.float32]":
        """
        Return numbers by which vectors can be ordered: the higher, the nearer, as far as signs tell.

        Args:
            signs: As of `sign_words`, with any axes before that of the words.
        """
        total = _counted(signs).astype(np.float32) * np.float32(self._low / self._step)
        for plane in range(_PLANES):
            total += _counted(signs & self._planes[plane][:, None]) * np.float32(1 << plane)
        return total


def _counted(words: "NDArray[np.uint64]") -> "NDArray[np.uint16]":
    """Return how many bits are set in the words of each vector."""
    return np.bitwise_count(words).sum(axis=-2, dtype=np.uint16)


def candidate_count(total: int, limit: int | None) -> int:
    """Return how many of so many vectors are looked at exactly after the estimate, to find the best `limit`; all when None."""
    if limit is None:
        return total
    return min(total, max(FEW, min(total // _SHARE, _MOST), _PER_HIT * limit))


def best(scores: "NDArray[Any]", count: int) -> "NDArray[np.int64]":
    """Return the places of the highest scores, the highest first; of equal ones the first."""
    if count < len(scores):
        kept = np.sort(np.argpartition(scores, len(scores) - count)[len(scores) - count :])
        order = np.argsort(-scores[kept], kind="stable")
        return np.asarray(kept[order], np.int64)
    return np.asarray(np.argsort(-scores, kind="stable"), np.int64)


class Nearest(NamedTuple):
    """
    The vectors nearest to a query, the nearest first.

    Args:
        places: Where they are in the set.
        similarities: The cosine of each with the query.
    """

    places: "NDArray[np.int64]"
    similarities: "NDArray[np.float32]"


def nearest(
    query: "NDArray[np.float32]",
    kept: "NDArray[np.float16]",
    *,
    limit: int | None,
    signs: "NDArray[np.uint64] | None" = None,
    among: "NDArray[Any] | None" = None,
) -> Nearest:
    """
    The nearest of any set of vectors in memory.

    Args:
        query: A vector of length 1.
        kept: The vectors (rows), see `halves`.
        limit: At most so many; all when None.
        signs: Their signs, see `sign_words`. Without them, all vectors are looked at exactly.
        among: The places of those to look at; all when None.
    """
    places = np.arange(len(kept)) if among is None else np.asarray(among, np.int64)
    wanted = candidate_count(len(places), limit)
    if signs is not None and wanted < len(places):
        held = signs if among is None else signs[:, places]
        places = places[best(Probe(query).estimates(held), wanted)]
        places.sort()
    found = similarities(kept[places], query)
    order = best(found, len(places) if limit is None else min(limit, len(places)))
    return Nearest(places[order], found[order])
