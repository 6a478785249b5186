import gzip
import os
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path

import pytest

from chatledger.domain.errors import InvalidValueError
from chatledger.importers import FORMATS, detect_format, read_chats

DATA = Path(__file__).resolve().parents[3] / "tests" / "data"


def refuse(problem: object) -> None:
    pytest.fail(str(problem))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('{"chatledger": 1}\n', "chatledger"),
        ('\ufeff\r\n {"chatledger": 1}\r\n', "chatledger"),
        ('{"message_id": "a", "message_tree_id": "a"}\n', "oasst"),
        ('{"message_tree_id": "a", "prompt": {}}', "oasst"),
        ('broken {\n{"message_tree_id": "a"}', None),
        ('{"broken\n{"message_tree_id": "a"}\n', "oasst"),
        ('{"message_tree_id": "a", "prompt": ' + '{"replies": [' * 50_000, "oasst"),
        ("[]", "chatgpt"),
        ('[\n {"title": "x",\n "mapping": {}}]', "chatgpt"),
        ('{"title": "x", "mapping": {}}', "chatgpt"),
        ('{\n "title": "x",\n "mapping": {}}', "chatgpt"),
        ("[1, 2]", None),
        ('{"role": "user"}\n', None),
        ('[{"role": "user", "content": "\\"mapping\\": {"}]', "messages"),
        ('[{"role": "user", "content": {"mapping": 1}}]', "messages"),
        ('[\n {"messages": [{"role": "user"}]}]', "messages"),
        ('{"tools": [], "messages": []}\n{"messages": []}\n', "messages"),
        ('{\n "messages": [{"role": "user", "content": ""}]}', "messages"),
        ('[{"conversations": [{"from": "human", "value": ""}]}]', "sharegpt"),
        ('{"id": 1, "conversations": [{"from": "human"}]}\n', "sharegpt"),
        ('[{"uuid": "a", "chat_messages": []}]', "claude"),
        ('{"uuid": "a", "name": "messages", "chat_messages": [{"text": "x"}]}', "claude"),
        ('{"conversations": [{"mapping": {}}]}', "chatgpt"),
        ('[{"chatledger": 1}]', None),
        ("hello", None),
        ("a,b\n1,2\n", None),
        ("", None),
        (" \n\n", None),
        ("\ufeff", None),
    ],
)
def test_detection(tmp_path: Path, content: str, expected: str | None) -> None:
    """By content, packed or not; what is not known is refused with what is supported."""
    plain, packed = tmp_path / "some.txt", tmp_path / "some.bin"
    plain.write_text(content, encoding="utf-8")
    packed.write_bytes(gzip.compress(content.encode()))

    for path in (plain, packed):
        if expected is None:
            with pytest.raises(
                InvalidValueError,
                match=r"supported are: oasst .* chatgpt .* claude .* messages .* sharegpt .* deepagents .* langgraph .* chatledger",
            ):
                detect_format(path)
        else:
            assert expected == detect_format(path)


def test_detection_of_containers(tmp_path: Path) -> None:
    database, archive = tmp_path / "some.x", tmp_path / "some.y"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE chats (id TEXT)")
    with zipfile.ZipFile(archive, "w") as out:
        out.writestr("conversations.json", "[]")

    assert (detect_format(database), detect_format(str(archive))) == ("deepagents", "chatgpt")


def test_errors_come_at_the_call(tmp_path: Path) -> None:
    """Nothing needs to be read to hear that a file cannot be."""
    empty, cut = tmp_path / "empty", tmp_path / "cut.gz"
    empty.touch()
    cut.write_bytes(gzip.compress(b"x" * 1000)[:12])
    blanks, pipe = tmp_path / "blanks", tmp_path / "pipe"
    blanks.write_bytes(gzip.compress(b" " * 10_000_000 + b"[]"))
    os.mkfifo(pipe)

    for path, name, reason in (
        (tmp_path / "gone", None, "gone cannot be read: No such file"),
        (tmp_path / "gone", "oasst", "gone cannot be read: No such file"),
        (tmp_path, None, "is a directory"),
        (tmp_path, "oasst", "cannot be read: Is a directory"),
        (empty, None, "is empty"),
        (empty, "oasst", "is empty"),
        (blanks, None, "begins with 262,144 blanks"),
        (pipe, None, "is a pipe"),
        (pipe, "oasst", "is a pipe"),
        (cut, None, "cannot be read"),
        (DATA / "oasst_trees.jsonl", "csv", "format 'csv' is unknown; supported are"),
    ):
        with pytest.raises(InvalidValueError, match=reason):
            read_chats(path, format=name, on_problem=refuse)


@pytest.mark.parametrize("name", FORMATS)
def test_a_wrong_format_does_no_harm(tmp_path: Path, name: str) -> None:
    """Text that is no format at all yields no chat, and an error or problems, never another exception."""
    path = tmp_path / "some.txt"
    path.write_text("hello\nworld\n", encoding="utf-8")
    problems: list[object] = []
    try:
        chats = list(read_chats(path, format=name, on_problem=problems.append))
    except InvalidValueError:
        assert name in {"chatgpt", "deepagents"}
    else:
        assert chats == []
        assert problems
