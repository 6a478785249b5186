"""Snippets of long messages: they cost what those of short ones do, and are the same as far as that can be."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pytest
from tests.support.ledger_world import store_behind
from tests.support.search_scan import snippet

import chatledger
from chatledger import Ledger, user
from chatledger.domain.search import snippets
from chatledger.domain.search.fields import TEXT
from chatledger.domain.search.query import parse
from chatledger.domain.search.tokens import LANDMARK_TERMS, places_of, terms_of
from chatledger.projections.search.evaluation import MAX_STARTS
from chatledger.projections.search.indexer import landmarks_key

WORDS: Sequence[str] = "the quick brown fox jumps over lazy dogs and reads a log with many warnings".split()  # noqa: SIM905 - it is prose
EXACT = [
    "needle",
    "needle fox",
    "late OR needle",
    '"needle in"',
    '"needle in" OR late',
    "nee*",
    "needle OR lat* OR 東",
    "東京",
]


def long_text(word_count: int, *, beyond_ascii: bool) -> str:
    rng = Random(word_count)
    words: list[str] = rng.choices(WORDS, k=word_count)
    words[word_count * 2 // 3] = "needle in"
    words[-500] = "late"
    if beyond_ascii:
        words[::977] = ["é—東京都の天気"] * len(words[::977])
    return " ".join(words)


@pytest.fixture(scope="module", params=[False, True], ids=["ascii", "beyond ascii"])
def text(request: pytest.FixtureRequest) -> str:
    return long_text(60_000, beyond_ascii=request.param)


@pytest.fixture(scope="module")
def ledger(text: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    path: Path = tmp_path_factory.mktemp("long") / "data"
    with chatledger.open(path) as ledger:
        ledger.create_chat("c", "ada")
        ledger.append("c", [user("a short one about a fox")])
        ledger.append("c", [user(text)])
        yield ledger


@pytest.mark.matrix
@pytest.mark.parametrize("query", EXACT)
def test_a_snippet_from_the_index_is_that_of_the_whole_text(ledger: Ledger, text: str, query: str) -> None:
    """Of words that do not occur very often."""
    parsed = parse(query)
    assert parsed is not None
    found = {hit.message.text: (hit.snippet, hit.matches) for hit in ledger.search(query)}
    if text not in found:
        assert "東" in query
        return

    assert found[text] == snippet(text, parsed)


@pytest.mark.matrix
@pytest.mark.parametrize("query", ["needle", "late", "fox", "f* OR t* OR w* OR needle", "the needle", '"quick brown"'])
@pytest.mark.parametrize("state", ["written", "rebuilt"])
def test_a_long_text_is_not_read_for_a_snippet(
    ledger: Ledger, text: str, query: str, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor are all occurrences looked at."""
    if state == "rebuilt":
        ledger.rebuild()
    read: list[int] = []

    def counted(part: str, indexes: Sequence[int], landmarks: Sequence[int] = ()) -> dict[int, tuple[int, int]]:
        base = indexes[0] // LANDMARK_TERMS
        if base:
            assert len(landmarks) == (len(terms_of(text)) - 1) // LANDMARK_TERMS
        read.append(indexes[-1] - base * LANDMARK_TERMS)
        return places_of(part, indexes, landmarks)

    monkeypatch.setattr(snippets, "places_of", counted)
    looked_at: list[int] = []
    of = snippets.snippet_of

    def noted(whole: str, known: snippets.KnownWords) -> snippets.Snippet:
        looked_at.append(len(known.starts))
        return of(whole, known)

    monkeypatch.setattr(snippets, "snippet_of", noted)
    hits = [hit for hit in ledger.search(query) if hit.message.text == text]

    assert [bool(hit.matches) for hit in hits] == [True]
    assert max(read) <= 3 * LANDMARK_TERMS
    assert max(looked_at) <= MAX_STARTS


@pytest.mark.soak
def test_an_index_with_wrong_landmarks_is_noticed(ledger: Ledger) -> None:
    """`verify` compares them with the texts."""
    ledger.verify()
    store = store_behind(ledger)
    key = landmarks_key(1, 1, TEXT)
    store.index.update(lambda generation, txn: txn.replace(key, b"\1\0\0\0", db=generation.tables.search))
    with pytest.raises(chatledger.CorruptStateError, match="search index"):
        ledger.verify()
    ledger.rebuild()
    ledger.verify()
