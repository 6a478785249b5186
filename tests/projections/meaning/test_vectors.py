"""Scans over vectors in memory: what a look at two bits loses, and what two bytes a number lose."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.support.soak import examples

from chatledger.domain.errors import EmbeddingError
from chatledger.domain.search.embedding import Embedding
from chatledger.projections.meaning.vectors import (
    FEW,
    Bits,
    Codes,
    Depths,
    Probe,
    best,
    embed_texts,
    nearest,
    unit,
)

COUNT = 20_000
SOAK = pytest.mark.soak


def random_vectors(seed: int, count: int, dimensions: int) -> NDArray[np.float32]:
    """Directions that have nothing in common: the hardest case for bits."""
    return unit(np.random.default_rng(seed).standard_normal((count, dimensions)))


def clustered_vectors(seed: int, count: int, dimensions: int, spread: float) -> NDArray[np.float32]:
    """A hundred clusters, as texts about a hundred matters have."""
    draw = np.random.default_rng(seed)
    centers = draw.standard_normal((100, dimensions))
    return unit(centers[draw.integers(0, 100, count)] + spread * draw.standard_normal((count, dimensions)))


def recall(vectors: NDArray[np.float32], queries: NDArray[np.float32], k: int = 10) -> float:
    """The part of the true best k that is found."""
    codes, bits = Codes.of(vectors), Bits.of(vectors)
    hits = 0
    for query in queries:
        true = set(np.argsort(-(vectors @ query))[:k].tolist())
        hits += len(true & set(nearest(query, codes, limit=k, bits=bits).places.tolist()))
    return hits / (k * len(queries))


@pytest.mark.guard
@pytest.mark.parametrize("dimensions", [pytest.param(64, marks=SOAK), 384, pytest.param(1000, marks=SOAK)])
def test_recall_of_random_vectors(dimensions: int) -> None:
    """Of the best ten of 20,000 at least 95 % are found, also where nothing is near to anything."""
    assert recall(random_vectors(1, COUNT, dimensions), random_vectors(2, 20, dimensions)) >= 0.95


@pytest.mark.parametrize("spread", [pytest.param(0.2, marks=SOAK), 0.5, pytest.param(1.0, marks=SOAK)])
def test_recall_of_clustered_vectors(spread: float) -> None:
    """And where many are nearly the same."""
    vectors = clustered_vectors(3, COUNT + 20, 384, spread)

    assert recall(vectors[:-20], vectors[-20:]) >= 0.95


@given(st.integers(0, 2**32), st.integers(1, 300), st.integers(1, 130), st.integers(1, 20))
@settings(max_examples=examples(200), deadline=None)
def test_few_vectors_are_ranked_exactly(seed: int, count: int, dimensions: int, limit: int) -> None:
    """Below 1,000 the order is that of the cosine, as two bytes a number have it; those are right to some thousandths."""
    vectors, query = random_vectors(seed, count, dimensions), random_vectors(seed + 1, 1, dimensions)[0]
    codes = Codes.of(vectors)
    found = nearest(query, codes, limit=limit, bits=Bits.of(vectors))

    assert found.similarities == pytest.approx((vectors @ query)[found.places], abs=1e-4)
    assert found.similarities.tolist() == sorted(found.similarities.tolist(), reverse=True)
    assert len(found.places) == min(count, limit)
    assert codes.similarities(query).max() == found.similarities[0]


def test_nearest_among_some() -> None:
    """Filters come first: the best of those that pass are found, however far they are."""
    vectors = random_vectors(5, 10_000, 64)
    among = np.arange(0, 10_000, 3)
    found = nearest(vectors[1], Codes.of(vectors), limit=5, bits=Bits.of(vectors), among=among)
    true = among[np.argsort(-(vectors[among] @ vectors[1]))[:5]]

    assert len(set(found.places.tolist()) & set(true.tolist())) >= 4
    assert not set(found.places.tolist()) - set(among.tolist())


@given(st.integers(0, 2**32), st.integers(1, 200))
@settings(max_examples=examples(100), deadline=None)
def test_estimates_are_products_with_signs(seed: int, dimensions: int) -> None:
    """The estimate is half the product of the query, in four bits a dimension, with the signs, but for a constant."""
    vectors, query = random_vectors(seed, 50, dimensions), random_vectors(seed + 1, 1, dimensions)[0]
    estimates = Probe(query).estimates(Bits.of(vectors).signs)
    step = (float(query.max()) - float(query.min())) / 15 or 1.0
    products = (vectors > 0).astype(np.float32) @ query / step

    assert np.abs(estimates - products).max() <= dimensions * 0.51


def test_vectors_without_a_direction() -> None:
    """A vector of zeros is near to nothing, and no error."""
    vectors = unit(np.zeros((3, 8), np.float32))

    assert Codes.of(vectors).similarities(vectors[0]).tolist() == [0, 0, 0]
    assert len(nearest(vectors[0], Codes.of(vectors), limit=2, bits=Bits.of(vectors)).places) == 2


@pytest.mark.parametrize(
    ("total", "limit", "coarse", "fine"),
    [
        (FEW, 10, FEW, FEW),
        (2_000, 10, 2_000, 400),
        (100_000, 10, 5_000, 400),
        (100_000, None, 100_000, 100_000),
        (10_000_000, 10, 20_000, 400),
        (100_000, 1_000, 50_000, 10_000),
        (9_000, 1_000, 9_000, 9_000),
    ],
)
def test_depths(total: int, limit: int | None, coarse: int, fine: int) -> None:
    """Few vectors, and all of them, are looked at exactly; more hits take more candidates."""
    assert Depths.of(total, limit) == (coarse, fine)


@given(st.lists(st.integers(0, 5), max_size=30), st.integers(0, 40))
def test_best_are_sorted_and_stable(scores: list[int], count: int) -> None:
    found = best(np.array(scores, np.float32), count)
    wanted = sorted(range(len(scores)), key=lambda at: -scores[at])

    assert [scores[at] for at in found] == [scores[at] for at in wanted[:count]]


class Answers:
    """A function that returns what it is told to."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def __call__(self, texts: Any) -> Any:
        return self.answer(texts) if callable(self.answer) else self.answer


def _fail(_texts: Any) -> Any:
    raise ZeroDivisionError


@pytest.mark.parametrize(
    "answer",
    [
        [[1.0, 2.0]],
        [[1.0, 2.0], [1.0]],
        [1.0, 2.0],
        None,
        [["a", "b"], ["c", "d"]],
        [[1.0, float("nan")], [1.0, 2.0]],
        _fail,
    ],
    ids=lambda answer: "it fails" if callable(answer) else str(answer),
)
def test_functions_that_return_something_else(answer: Any) -> None:
    """Whatever a function returns or raises is an `EmbeddingError` that names the embedding, and no text."""
    with pytest.raises(EmbeddingError, match="'broken'") as raised:
        embed_texts(Embedding(Answers(answer), "broken", 2), ["secret one", "secret two"])

    assert "secret" not in str(raised.value)


def test_batches() -> None:
    """No call has more texts than it may, and vectors come back in order, with length 1."""
    calls: list[int] = []

    def function(texts: Any) -> list[list[float]]:
        calls.append(len(texts))
        return [[3.0 * len(text), 4.0 * len(text)] for text in texts]

    found = embed_texts(Embedding(function, "m", 2, batch=3), ["a" * size for size in range(1, 9)])

    assert calls == [3, 3, 2]
    assert found == pytest.approx(np.array([[0.6, 0.8]] * 8))
