"""`log` with filters, and `--as-user`."""

from pathlib import Path

import pytest
from tests.support.cli_world import ask, ask_lines, fails, run

import chatledger
from chatledger import user


@pytest.fixture
def story(tmp_path: Path) -> Path:
    """Two owners, of whom one deleted a chat, and an agent who writes for both."""
    location = tmp_path / "story"
    with chatledger.open(location, durability="fast") as ledger:
        for owner in ("ada", "bob"):
            with ledger.context(actor=owner):
                ledger.create_chat(f"of {owner}", owner, title="Riga")
            with ledger.context(actor="agent", correlation_id=f"request of {owner}", causation_id="question 1"):
                ledger.append(f"of {owner}", [user("leeks")])
        with ledger.context(actor="bob"):
            ledger.create_chat("gone", "bob")
            ledger.delete_chat("gone")
    return location


def told(*args: str, at: Path) -> list[tuple[str, str]]:
    return [(line["chat_id"], line["type"]) for line in ask_lines("log", *args, at=at)]


def test_log_of_a_user(story: Path) -> None:
    """Of an owner's chats, with the tombstones."""
    assert [("of ada", "chat_created"), ("of ada", "message_appended")] == told("--user", "ada", at=story)
    assert [("of bob", "chat_created"), ("of bob", "message_appended"), ("gone", "chat_deleted")] == (
        told("--user", "bob", at=story)
    )


def test_log_of_topics_and_an_actor(story: Path) -> None:
    """Several topics widen, several filters narrow."""
    found = told("--topic", "chat_deleted", "--topic", "message_appended", at=story)

    assert ["message_appended", "message_appended", "chat_deleted"] == [kind for _, kind in found]
    assert [("of ada", "message_appended")] == told("--actor", "agent", "--user", "ada", at=story)
    assert [] == told("of ada", "--actor", "bob", at=story)
    assert "chat_invented" in fails(1, "log", "--topic", "chat_invented", at=story)


def test_log_since_a_time(story: Path) -> None:
    """ISO 8601, UTC unless it has an offset; a position is no time."""
    assert 5 == len(told("--since", "2001-01-01", at=story))
    assert [] == told("--since", "2999-01-01T00:00:00+02:00", at=story)
    assert "no time" in fails(2, "log", "--since", "12", at=story)


def test_log_says_on_whose_behalf(story: Path) -> None:
    """Correlation and causation stand on the line where they were said, and always in JSON."""
    created, appended = run("log", "of ada", at=story).stdout.splitlines()
    objects = ask_lines("log", "of ada", at=story)

    assert "correlation" not in created
    assert appended.endswith("  correlation request of ada  causation question 1")
    assert [(None, None), ("request of ada", "question 1")] == [
        (line["correlation_id"], line["causation_id"]) for line in objects
    ]


@pytest.mark.soak
def test_as_user_is_a_world_of_ones_own(story: Path) -> None:
    """Every verb sees what that user owns, and of the rest says what it says of nothing."""
    (chat,) = ask("--as-user", "ada", "chats", at=story)

    assert "of ada" == chat["id"]
    assert [("of ada", "chat_created"), ("of ada", "message_appended")] == [
        (line["chat_id"], line["type"]) for line in ask_lines("--as-user", "ada", "log", at=story)
    ]
    assert ["of ada"] == [hit["message"]["chat_id"] for hit in _hits(story, "ada")]
    for verb in ("show", "log"):
        of_bob = fails(1, "--as-user", "ada", verb, "of bob", at=story)
        of_nobody = fails(1, "--as-user", "ada", verb, "of eve", at=story)
        assert of_nobody.replace("eve", "bob") == of_bob
    assert "of all users" in fails(2, "--as-user", "ada", "rebuild", at=story)


def _hits(story: Path, user_id: str) -> list[dict[str, dict[str, str]]]:
    found: list[dict[str, dict[str, str]]] = ask("--as-user", user_id, "search", "leeks", at=story)
    return found
