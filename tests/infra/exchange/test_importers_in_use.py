"""A file of @deepagents/context that is in use, imported into a real ledger again and again."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.support.cli_world import run
from tests.support.deepagents_files import make_file
from tests.support.imported_files import read

import chatledger
from chatledger import Ledger
from chatledger.domain.errors import MessageConflictError
from chatledger.importers import ImportResult, OnChange


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    """An empty ledger."""
    with chatledger.open("memory:") as opened:
        yield opened


class Source:
    """The file, changed as the package changes it."""

    def __init__(self, path: Path) -> None:
        self.path = make_file(
            path,
            chats=[("c", "ada", "Bread", None, 1_000, 1_000)],
            messages=[],
            branches=[("b1", "c", "main", None, 1, 1_234)],
            checkpoints=[],
        )
        self.time = 2_000

    def turn(self, message_id: str, parent_id: str | None, text: str, *, name: str = "user") -> None:
        """A message, new or changed in place, which becomes the head."""
        data = json.dumps({"id": message_id, "role": name, "parts": [{"type": "text", "text": text}]})
        self.time += 1_000
        with closing(sqlite3.connect(self.path)) as database:
            database.execute(
                "INSERT INTO messages VALUES (?, 'c', ?, ?, 'message', ?, ?) ON CONFLICT (id) DO UPDATE SET data = excluded.data",
                (message_id, parent_id, name, data, self.time),
            )
            database.execute("UPDATE branches SET headMessageId = ? WHERE name = 'main'", (message_id,))
            database.execute("UPDATE chats SET updatedAt = ?", (self.time,))
            database.commit()

    def take_in(self, ledger: Ledger, on_change: OnChange = "version") -> ImportResult:
        """Import it."""
        (chat,), problems = read(self.path, strict=True)
        assert problems == []
        return ledger.import_chat(chat, on_change=on_change)


def texts(ledger: Ledger) -> list[str]:
    """The texts on the active branch."""
    return [message.text for message in ledger.get_messages("c")]


def test_a_turn_that_was_being_written(tmp_path: Path, ledger: Ledger) -> None:
    """The answer that was empty at the first import takes its place, and later turns come in."""
    source = Source(tmp_path / "live.db")
    source.turn("q", None, "What flour?")
    source.turn("a", "q", "", name="assistant")
    source.take_in(ledger)
    source.turn("a", "q", "Rye.", name="assistant")
    source.turn("q2", "a", "How much?")
    result = source.take_in(ledger)
    again = source.take_in(ledger)
    answers = ledger.children("q")

    assert ["What flour?", "Rye.", "How much?"] == texts(ledger)
    assert (2, 1, 1) == (result.messages_added, result.versions_added, result.heads_moved)
    assert again == ImportResult(chat_id="c")
    assert ["", "Rye."] == [answer.text for answer in answers]
    assert ["a", "a"] == [answer.data["id"] for answer in answers]  # as it came
    assert 4 == ledger.verify().message_count


@pytest.mark.parametrize(("on_change", "expected"), [("skip", ["q", "", "q2"]), ("refuse", ["q", ""])])
def test_what_is_here_stays_if_wanted(tmp_path: Path, ledger: Ledger, on_change: OnChange, expected: list[str]) -> None:
    source = Source(tmp_path / "live.db")
    source.turn("m1", None, "q")
    source.turn("m2", "m1", "", name="assistant")
    source.take_in(ledger)
    source.turn("m2", "m1", "a", name="assistant")
    source.turn("m3", "m2", "q2")
    try:
        source.take_in(ledger, on_change)
    except MessageConflictError:
        assert on_change == "refuse"

    assert expected == texts(ledger)


def test_times_are_those_of_the_source(tmp_path: Path, ledger: Ledger) -> None:
    """The last use of the chat, also after a later import, and since when `main` is there; here it goes on as ever."""
    source = Source(tmp_path / "live.db")
    for number in (1, 2):
        source.turn(f"m{number}", f"m{number - 1}" if number > 1 else None, "x")
        source.take_in(ledger)
        chat, main = ledger.get_chat("c"), ledger.get_active_branch("c")

        assert chat is not None
        assert main is not None
        assert (1_000, source.time, 1_234) == (chat.created_at, chat.updated_at, main.created_at)
    ledger.append("c", [chatledger.user("here")])
    chat = ledger.get_chat("c")
    assert chat is not None
    assert chat.updated_at > 1_700_000_000_000


@pytest.mark.guard
def test_chats_are_listed_as_at_the_source(tmp_path: Path, ledger: Ledger) -> None:
    """By their last use, whatever the order in which they were imported; that of a chat of many events too."""
    used = {"a": 30_000, "b": 50_000, "c": 40_000}
    text = json.dumps("x" * 1_000)
    path = make_file(
        tmp_path / "three.db",
        chats=[(key, "ada", None, None, at, time) for at, (key, time) in enumerate(used.items())],
        messages=[
            (f"{key}{n}", key, None, "user", None, text, n) for key in used for n in range(1_500 if key == "a" else 1)
        ],
        branches=[],
        checkpoints=[],
    )
    for chat in read(path)[0]:
        ledger.import_chat(chat)

    assert ["b", "c", "a"] == [chat.id for chat in ledger.list_chats()]
    assert used == {chat.id: chat.updated_at for chat in ledger.list_chats()}
    exported = ledger.export_chat("a")
    with chatledger.open("memory:") as copy:
        copy.import_chat(exported)
        assert exported == copy.export_chat("a")


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"data": "[" * 250 + "]" * 250}, "its data is nested more than 200 levels deep"),
    ({"data": "[" * 3000}, "nested too deeply"),
    ({"name": ""}, "its name must not be empty"),
    ({"name": "r" * 3000}, "its name takes 3,000 bytes"),
    ({"id": "i" * 2049}, "its id takes 2,049 bytes"),
]


@pytest.mark.parametrize(("refused", "reason"), REFUSED)
def test_a_refused_value_costs_one_message(
    tmp_path: Path, ledger: Ledger, refused: dict[str, Any], reason: str
) -> None:
    """What follows it goes to the message before it, and the warning names it."""
    row = {
        "id": "middle",
        "chatId": "c",
        "parentId": "before",
        "name": "user",
        "type": None,
        "data": "1",
        "createdAt": 2,
    }
    row |= refused
    path = make_file(
        tmp_path / "odd.db",
        chats=[("c", "ada", None, None, 1, 1)],
        messages=[
            ("before", "c", None, "user", None, '"a"', 1),
            tuple(row.values()),
            ("after", "c", row["id"], "user", None, '"b"', 3),
        ],
        branches=[("b", "c", "main", "after", 1, 1), ("b2", "c", "other", row["id"], 0, 1)],
        checkpoints=[],
    )
    (chat,), problems = read(path)
    ledger.import_chat(chat)

    assert ["a", "b"] == texts(ledger)
    assert {"main": "after", "other": "before"} == {one.name: one.head_message_id for one in ledger.list_branches("c")}
    assert reason in problems[0].message
    assert f"message {row['id']!r} of chat 'c'" in problems[0].message


def test_a_refused_attribute_or_chat_value_is_left_out(tmp_path: Path, ledger: Ledger) -> None:
    """Numbers of JavaScript beyond 64 bits become floats in metadata, which is exact; in messages they stay as they are."""
    keys = json.dumps({f"k{number}": 1 for number in range(1_500)})
    path = make_file(
        tmp_path / "odd.db",
        chats=[
            ("c", "u" * 3000, "t" * 20_000, keys, 1, 2**70 * 1.0),
            ("chatledger:v:t:x", "ada", None, None, 1, 1),
            ("d", "ada", None, '{"wei": 123456789012345680000}', 1, 1),
        ],
        messages=[
            (
                "m",
                "c",
                None,
                "user",
                "",
                '{"wei": 123456789012345680000, "n": 18446744073709552000, "odd": 99999999999999999999}',
                1,
            ),
            ("n", "d", None, "user", None, "1", 2**63 - 1),
        ],
        branches=[("b", "c", "x" * 3000, "m", 1, 1), ("b2", "c", "main", "m", 0, 1)],
        checkpoints=[("k", "c", "\0", "m", 1)],
    )
    chats, problems = read(path)
    for chat in chats:
        ledger.import_chat(chat)
    found, message = ledger.get_chat("c"), ledger.get_message("m")
    other = ledger.get_chat("d")

    assert found is not None
    assert message is not None
    assert other is not None
    assert ("", "t" * 16_384, None) == (found.user_id, found.title, found.metadata)
    assert {"wei": 123456789012345680000, "n": 18446744073709552000, "odd": 99999999999999999999} == message.data
    assert [int] * 3 == [type(one) for one in message.data.values()]
    assert {"wei": 123456789012345680000.0} == other.metadata
    assert ["main"] == [branch.name for branch in ledger.list_branches("c")]
    said = " | ".join(problem.message for problem in problems)
    for part in (
        "type must not be empty; imported without",
        "branch 'xxx",
        "checkpoint '\\x00' of chat 'c' has an empty, impossible",
        "user_id takes 3,000 bytes",
        "title takes 20,000 bytes; cut to 16,384",
        "metadata has 1,500 keys",
        "updated_at must be whole milliseconds",
        "chat_id must not begin with 'chatledger:v:'",
    ):
        assert part in said, (part, said)


def test_on_the_command_line(tmp_path: Path) -> None:
    """`--on-change` says what to do; what became of changed messages is told."""
    source, data = Source(tmp_path / "live.db"), tmp_path / "data"
    source.turn("m1", None, "q")
    run("import", source.path, at=data)
    source.turn("m1", None, "Q")
    refused = run("import", "--on-change", "refuse", source.path, at=data)
    skipped = run("import", "--on-change", "skip", source.path, at=data)
    taken = run("import", source.path, at=data)

    assert (1, 0, 0) == (refused.exit_code, skipped.exit_code, taken.exit_code)
    assert "Nothing changed: 1 chat read" in skipped.stdout
    assert (
        "1 message, 0 branches added, 1 new version of changed messages among them, 1 branch moved on." in taken.stdout
    )
