"""`merge`: a branch brought back, in words and as JSON."""

from pathlib import Path

import pytest
from tests.support.cli_world import ask, fails, run

import chatledger
from chatledger import user


@pytest.fixture
def place(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    with chatledger.open(path, durability="fast") as ledger:
        ledger.create_chat("c", "ada")
        ledger.append("c", user("where to?", id="q"))
        ledger.create_branch("c", "idea", "q")
        ledger.append("c", [user("the coast", id="i"), user("or not", id="j")], branch="idea")
        ledger.create_branch("c", "later", "q")
        ledger.append("c", user("hello?", id="m"))
    return path


def test_a_merge_is_told_and_drawn(place: Path) -> None:
    moved = run("merge", "c", "idea", "--into", "later", "--rebase", at=place).stdout
    picked = run("merge", "c", "idea", "--pick", "i", at=place).stdout
    again = ask("merge", "c", "idea", "--summary", "x", at=place)
    drawn = run("show", "c", at=place).stdout

    assert moved == "Moved later to j, the head of idea.\n"
    assert picked == "Merged idea into main: 1 message appended.\n"
    assert (again["outcome"], again["base"], again["messages"]) == ("already_merged", "j", [])
    assert "(merges j)" in drawn
    assert "Nothing changed: main has all of idea already." in run("merge", "c", "idea", "--rebase", at=place).stdout


def test_what_is_wrong_is_said(place: Path) -> None:
    assert "say how: --summary TEXT, --pick ID or --rebase" in fails(2, "merge", "c", "idea", at=place)
    assert "say how" in fails(2, "merge", "c", "idea", "--rebase", "--summary", "x", at=place)
    assert "no branch 'idee'; it has 'idea'" in fails(1, "merge", "c", "idee", "--rebase", at=place)
    assert "into itself" in fails(1, "merge", "c", "main", "--rebase", at=place)
    assert "not among the 2" in fails(1, "merge", "c", "idea", "--pick", "m", at=place)
