"""The sample conversations and the walk through them."""

import re
from pathlib import Path

import pytest
from tests.support.cli_world import ask, finish, run, start

import chatledger
from chatledger.importers import read_chats, validate_chat
from chatledger.infra.entrypoints.cli.demo import answers
from chatledger.infra.entrypoints.demo import sample_chats, sample_file


def test_samples_are_sound() -> None:
    """They pass every check without a warning, and show forks, edits and checkpoints in several languages."""
    chats = sample_chats()
    with sample_file() as path:
        read = list(read_chats(path, strict=True, on_problem=print))
    ids = [message.id for chat in chats for message in chat.messages]

    for chat in chats:
        validate_chat(chat)
    assert read == chats
    assert 3 <= len(chats) <= 5
    assert len({(chat.metadata or {}).get("lang") for chat in chats}) >= 3
    assert sum(len(chat.branches) > 1 for chat in chats) >= 3
    assert all(chat.checkpoints for chat in chats)
    assert len({id_[:8] for id_ in ids}) == len(ids), "a drawing tells them apart"


def test_demo_shows_every_step() -> None:
    result = run("demo")

    assert result.exit_code == 0
    assert not result.stderr
    assert re.findall(r"^([0-9])\. [A-Z]", result.stdout, re.MULTILINE) == list("12345678")
    assert "45 new messages" in result.stdout
    assert "branch inland-v2 began at riga-6" in result.stdout
    assert "branch main-v3 * is at the checkpoint" in result.stdout
    assert "answers are the same: nothing changed." in result.stdout
    assert "chatledger import FILE" in result.stdout


@pytest.mark.guard
def test_demo_of_three_ledgers_ends_with_one_conversation() -> None:
    result = run("demo", "--sync")

    assert (result.exit_code, result.stderr) == (0, "")
    assert re.findall(r"^([0-9])\. [A-Z]", result.stdout, re.MULTILINE) == list("123456")
    assert "riga: merged, 1 message, in laptop/main" in result.stdout
    assert "riga: merged, 2 messages, in main\n" in result.stdout, "for the laptop, main only moves forward"
    assert "ben-1" not in result.stdout
    before, after = result.stdout.split("5. What is redacted", 1)
    assert "C01X00T47" in before
    assert "[redacted]" in after
    assert "C01X00T47" not in after
    assert "7 messages on the laptop, in the office and on the phone: all three tell the same." in after


def test_the_three_ledgers_of_the_demo_have_no_place(tmp_path: Path) -> None:
    result = run("demo", "--sync", "--location", tmp_path / "data")

    assert result.exit_code == 2
    assert "leave --location out" in result.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.soak
def test_demo_leaves_nothing_behind(tmp_path: Path) -> None:
    """Neither in the temporary folder, nor in the ledger that the environment names."""
    (tmp_path / "tmp").mkdir()
    code, _, err = finish(start("demo", TMPDIR=str(tmp_path / "tmp"), CHATLEDGER_LOCATION=str(tmp_path / "mine")))

    assert (code, err) == (0, "")
    assert list((tmp_path / "tmp").iterdir()) == []
    assert not (tmp_path / "mine").exists()


def test_demo_in_a_named_place_can_be_repeated(tmp_path: Path) -> None:
    location = tmp_path / "data"
    first = run("demo", at=location)
    second = run("demo", "--location", location)

    assert (first.exit_code, second.exit_code) == (0, 0)
    assert "\n0 new messages" in second.stdout
    assert "nothing changed" in second.stdout
    branches = {branch["name"] for branch in ask("show", "riga", at=location)["branches"]}
    assert {"main", "main-v2", "inland", "inland-v2", "main-v3"} < branches


def test_answers_notice_a_difference(tmp_path: Path) -> None:
    """What the demo compares before and after the rebuild is not blind."""
    with chatledger.open(tmp_path / "data") as ledger:
        for chat in sample_chats():
            ledger.import_chat(chat)
        before = answers(ledger)
        ledger.set_active_branch("riga", "main")

        assert before != answers(ledger)
        ledger.rebuild()
        ledger.set_active_branch("riga", "inland")
        assert before == answers(ledger)
