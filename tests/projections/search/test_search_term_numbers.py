"""The terms of many texts at once are those of each text alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatledger.domain.search.tokens import terms_of
from chatledger.projections.search import building
from chatledger.projections.search.building import Coded, Vocabulary

STEMS = ("a", "ab", "running", "runnings", "abcdefgh", "abcdefghi", "abcdefghijklmnop", "abcdefghijklmnopq", "x" * 40)
WORDS = (
    *STEMS,
    "Running",
    "ABCDEFGH",
    "abRunning",
    "HTTPSRunning",
    "7Ab",
    "URLs",
    "ab" * 20 + "Cd",
    "état",
    "中文字",
    "don\u2019t",
    "a\ufe0f",
    "",
    "\0",
    "\xff",
    "7",
)

words = st.sampled_from(WORDS) | st.text(st.sampled_from("abAB"), min_size=7, max_size=18) | st.text(max_size=5)
texts = st.lists(words, max_size=12).map(" ".join)


def spelled(known: Vocabulary, coded: Coded) -> list[list[str]]:
    """The terms of each text."""
    assert [np.int32, np.int64] == [coded.codes.dtype, coded.lengths.dtype]
    assert int(coded.lengths.sum()) == len(coded.codes)
    ends = np.cumsum(coded.lengths).tolist()
    codes: list[int] = coded.codes.tolist()
    every = known.terms
    terms = [every[code] for code in codes]
    return [terms[end - length : end] for end, length in zip(ends, coded.lengths.tolist(), strict=True)]


@given(st.lists(st.lists(texts, min_size=1, max_size=6), min_size=1, max_size=4), st.integers(1, 60), st.integers(1, 5))
def test_many_texts_have_the_terms_of_each(batches: list[list[str]], window: int, slot_bits: int) -> None:
    """Wherever windows end, and however many words want the same slot."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(building, "_WINDOW_BYTES", window)
        patch.setattr(building, "_SLOT_BITS", slot_bits)
        patch.setattr(building, "_SHIFT", np.uint64(64 - slot_bits))
        known = Vocabulary()
        for batch in batches:
            assert [terms_of(text) for text in batch] == spelled(known, known.code(batch))
    assert len(known.terms) == len(set(known.terms))


def test_words_that_share_their_first_bytes_are_told_apart() -> None:
    """Eight and sixteen bytes are looked at together; what follows is looked at too."""
    lines = [" ".join("k" * size for size in range(1, 40)), " ".join("k" * size + "7" for size in range(40))]
    known = Vocabulary()
    for _ in range(2):
        assert [terms_of(line) for line in lines] == spelled(known, known.code(lines))
    assert 79 == len(known.terms)


def test_it_is_full_some_time() -> None:
    """Words come from users, who may make up as many as they like."""
    known = Vocabulary()
    assert not known.is_full
    known.code([" ".join(f"w{number}" for number in range(70_000))])
    assert known.is_full
