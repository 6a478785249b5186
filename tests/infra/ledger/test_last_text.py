"""`Chat.last_text`: the line of the last message of the active branch, now and as it was."""

from collections.abc import Generator

import pytest

import chatledger
from chatledger import ANY, Ledger, NewMessage, assistant, user


@pytest.fixture
def ledger() -> Generator[Ledger]:
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("trip", "ada")
        yield ledger


def test_it_follows_the_active_branch(ledger: Ledger) -> None:
    """What is appended to it, which one it is, where its head is; not what other branches get. As of each step it is what it was."""
    steps = [
        lambda: ledger.append("trip", [user("Where to?", id="a"), assistant("Riga", id="b")]),
        lambda: ledger.create_branch("trip", "other", "a"),
        lambda: ledger.append("trip", [assistant("Tallinn", id="c")], branch="other"),
        lambda: ledger.set_active_branch("trip", "other"),
        lambda: ledger.update_chat("trip", title="A trip"),
        lambda: ledger.append("trip", [assistant("Vilnius", id="d")], branch="main"),
        lambda: ledger.rename_branch("trip", "other", "another"),
        lambda: ledger.move_head("trip", "another", "a", expected=ANY),
        lambda: ledger.annotate("trip", "a", hidden=True),
        lambda: ledger.annotate("trip", "a", hidden=False),
        lambda: ledger.set_active_branch("trip", "main"),
        lambda: ledger.move_head("trip", "main", None, expected=ANY),
    ]
    lines: list[str | None] = []
    positions: list[int] = []
    for step in steps:
        step()  # type: ignore[no-untyped-call]
        chat = ledger.get_chat("trip")
        assert chat is not None
        lines.append(chat.last_text)
        positions.append(ledger.last_position())

    assert lines == [
        *("Riga", "Riga", "Riga", "Tallinn", "Tallinn", "Tallinn", "Tallinn", "Where to?", None, "Where to?"),
        *("Vilnius", None),
    ]
    for line, position in zip(lines, positions, strict=True):
        with ledger.as_of(position) as then:
            assert [line] == [chat.last_text for chat in then.list_chats()]
    ledger.delete_chat("trip")
    ledger.create_chat("trip", "ada")
    assert [None] == [chat.last_text for chat in ledger.list_chats()]


def test_it_is_one_line(ledger: Ledger) -> None:
    """Line breaks and many blanks are one blank; it is cut at 120 characters, and parts without words are named."""
    ledger.append("trip", [user("one\n  two\tthree")])
    assert ["one two three"] == [chat.last_text for chat in ledger.list_chats()]
    ledger.append("trip", [user("word " * 100)])
    (chat,) = ledger.list_chats()
    assert chat.last_text is not None
    assert (len(chat.last_text), chat.last_text[-6:]) == (120, " word…")
    ledger.append("trip", [user("half of \ud83d a pair")])
    assert ["half of ? a pair"] == [chat.last_text for chat in ledger.list_chats()]
    call = {"type": "tool-weather", "toolCallId": "1", "state": "input-available", "input": {"city": "Riga"}}
    ledger.append("trip", [NewMessage("assistant", {"id": "x", "role": "assistant", "parts": [call]})])

    assert ["[tool-weather]"] == [chat.last_text for chat in ledger.list_chats()]


def test_a_user_has_the_lines_of_own_chats(ledger: Ledger) -> None:
    """A ledger of one user tells those of that user, and what others write nobody else."""
    ledger.append("trip", [user("Where to?")])
    ledger.create_chat("secret", "bob")
    ledger.append("secret", [user("The password")])

    assert ["Where to?"] == [chat.last_text for chat in ledger.for_user("ada").list_chats()]
