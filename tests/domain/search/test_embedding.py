"""Embeddings as values: their arguments, pieces of long texts, and the fusion of rankings."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import chatledger
from chatledger import ConfigurationError, Embedding
from chatledger.domain.search.embedding import MAX_PIECES, fused, piece_digest, pieces_of, role_key


def nothing(texts: Any) -> list[list[float]]:
    return [[0.0] for _ in texts]


@pytest.mark.parametrize(
    "arguments",
    [
        ("no function", "m", 3),
        (nothing, "", 3),
        (nothing, 7, 3),
        (nothing, "m" * 257, 3),
        (nothing, "m", 0),
        (nothing, "m", True),
        (nothing, "m", 16_385),
        (nothing, "m", 3.0),
    ],
    ids=lambda arguments: str(arguments[1:])[:40],
)
def test_wrong_arguments(arguments: Any) -> None:
    """They are refused where the embedding is made."""
    with pytest.raises(ConfigurationError):
        Embedding(*arguments)


@pytest.mark.parametrize("options", [{"batch": 0}, {"batch": 4097}, {"piece_chars": 63}, {"query": 3}], ids=str)
def test_wrong_options(options: Any) -> None:
    with pytest.raises(ConfigurationError):
        Embedding(nothing, "m", 3, **options)


def test_open_takes_an_embedding_only() -> None:
    with pytest.raises(ConfigurationError, match="Embedding"):
        chatledger.open("memory:", embed=nothing)  # type: ignore[arg-type]  # that is the point


def test_keys_tell_vectors_apart() -> None:
    """Another name, length or size of pieces means other vectors; another function does not."""
    keys = {
        Embedding(nothing, "m", 3).key,
        Embedding(nothing, "n", 3).key,
        Embedding(nothing, "m", 4).key,
        Embedding(nothing, "m", 3, piece_chars=100).key,
    }

    assert len(keys) == 4
    assert Embedding(nothing, "m", 3).key == Embedding(lambda texts: [], "m", 3, batch=2).key


@given(st.text(alphabet="ab \n", max_size=2_000), st.integers(64, 200))
def test_pieces_have_all_words(text: str, chars: int) -> None:
    """Pieces are short enough, in order, and lack nothing but blanks up to the last one."""
    pieces = pieces_of(text, chars)

    assert all(0 < len(piece) <= chars and piece == piece.strip() for piece in pieces)
    assert len(pieces) <= MAX_PIECES
    joined, whole = "".join("".join(pieces).split()), "".join(text.split())
    assert whole.startswith(joined)
    assert len(pieces) == MAX_PIECES or joined == whole


def test_pieces_end_at_blanks() -> None:
    pieces = pieces_of("word " * 30, 64)

    assert [13, 13, 4] == [len(piece.split()) for piece in pieces]
    assert [64, 36] == [len(piece) for piece in pieces_of("x" * 100, 64)]


@given(st.dictionaries(st.sampled_from(["words", "meaning"]), st.lists(st.integers(0, 9), unique=True)))
def test_fusion_is_the_sum_of_inverse_places(rankings: Any) -> None:
    """Each key once, the best score first."""
    found = fused(rankings)

    assert {key for ranking in rankings.values() for key in ranking} == {key for key, _ in found}
    assert len(found) == len({key for key, _ in found})
    assert [one.score for _, one in found] == sorted((one.score for _, one in found), reverse=True)
    for key, one in found:
        assert one.places == {name: ranking.index(key) + 1 for name, ranking in rankings.items() if key in ranking}
        assert one.score == pytest.approx(sum(1 / (60 + place) for place in one.places.values()))


@given(st.text())
def test_digests_and_keys_of_any_text(text: str) -> None:
    assert len(piece_digest(text)) == 16
    assert 0 <= role_key(text) < 2**63
