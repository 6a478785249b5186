"""The benchmarks run: every subject at its smallest size, with its check that both sides give the same answer."""

from pathlib import Path

import msgspec
import pytest
from benchmarks.measure import ResultsDifferError, Row, check_equal, take_turns
from benchmarks.prose import COMMON, MID, PHRASE, RARE, Prose
from benchmarks.report import BEGIN, END, cells, make_markdown, write_docs
from benchmarks.suite import SUBJECTS, Result, run
from benchmarks.world import SMOKE


@pytest.mark.parametrize("subject", SUBJECTS)
def test_subject_runs_and_answers_are_equal(subject: str, tmp_path: Path) -> None:
    """Each subject gives rows of its own name, with samples of both sides, and survives being kept."""
    result = run(tmp_path, SMOKE, only=[subject])

    assert {subject} == {row.subject for row in result.rows}
    assert all(sample > 0 for row in result.rows for sample in [*row.ours, *row.theirs])
    assert result == msgspec.json.decode(msgspec.json.encode(result), type=Result)
    assert all(cells(row)[0] in make_markdown(result) for row in result.rows)


def test_different_answers_are_not_compared() -> None:
    """A run ends when the two sides do not say the same."""
    check_equal("a chain", [1], [1])
    with pytest.raises(ResultsDifferError, match="a chain"):
        check_equal("a chain", [1], [2])


def test_prose_has_words_as_often_as_promised() -> None:
    """Equal seeds make equal texts, of about 200 characters, with the planted words in their share of the messages."""
    texts = [message.data["parts"][0]["text"] for message in Prose(1, length=2000).messages(2000)]

    def count(words: str) -> int:
        return sum(f" {words}" in f" {text}" for text in texts)

    assert texts == [message.data["parts"][0]["text"] for message in Prose(1, length=2000).messages(2000)]
    assert 180 < sum(map(len, texts)) / len(texts) < 250
    assert count(f"{COMMON} ") > len(texts) / 2
    assert [20, 10, 10] == [count(MID), count(RARE), count(PHRASE)]


def test_turns_change_who_goes_first() -> None:
    """Samples are taken in turns, and each side goes first as often as the other."""
    order: list[str] = []
    samples = take_turns({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, repeats=2, is_warm=False)

    assert ["a", "b", "b", "a"] == order
    assert [2, 2] == [len(values) for values in samples.values()]


def test_ratio_is_theirs_over_ours() -> None:
    """A ratio above one means that we need less."""
    row = Row(subject="s", name="n", peer="p", ours=[1.0, 2.0, 3.0], theirs=[4.0, 4.0, 6.0])

    assert 2.0 == row.ratio
    assert (2.0, 4.0) == row.ratio_range


def test_docs_keep_what_is_around_the_table(tmp_path: Path) -> None:
    """Only what is between the markers is replaced; a page without them is refused."""
    result = run(tmp_path, SMOKE, only=["branches"])
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_docs(page, result)
    write_docs(page, result)
    text = page.read_text()

    assert text.startswith(f"before\n{BEGIN}")
    assert text.endswith(f"{END}\nafter\n")
    assert "old" not in text
    assert 1 == text.count(make_markdown(result))

    page.write_text("nothing")
    with pytest.raises(ValueError, match="no markers"):
        write_docs(page, result)
