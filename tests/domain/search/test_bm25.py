"""Ranking of texts without an index: which texts a query finds, and in which order."""

from chatledger.domain.search.bm25 import rank_texts

TEXTS = {
    0: "Ada is eating vegetables",
    1: "Ada leads the ledger team, and the team leads",
    2: "the old town of Riga",
    3: "",
}


def best(query: str) -> list[int]:
    scores = rank_texts(query, TEXTS)
    assert all(score > 0 for score in scores.values())
    return sorted(scores, key=lambda number: -scores[number])


def test_one_of_several_words_is_enough_and_rare_ones_count_more() -> None:
    assert best("what does ada eat") == [0, 1]
    assert best("TEAMS") == [1]
    assert best("nowhere") == best("") == best("?!") == []


def test_operators_and_quotes_hold_as_a_whole() -> None:
    assert best("ada AND team") == [1]
    assert best("ada NOT team") == [0]
    assert best('"old town"') == [2]
    assert best('"town old"') == []
    assert best("(riga OR vegetable)") == [0, 2]
    assert best("veg*") == [0]


def test_of_equal_texts_the_shorter_one_is_better() -> None:
    scores = rank_texts("tea", {0: "tea with milk and sugar", 1: "tea", 2: "milk"})
    assert scores[1] > scores[0]
    assert set(scores) == {0, 1}


def test_no_texts_give_no_answer() -> None:
    assert rank_texts("tea", {}) == {}
