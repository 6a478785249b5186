import gzip
import os
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from chatledger.domain.errors import InvalidValueError
from chatledger.importers import FORMATS, detect_format, read_chats

DATA = Path(__file__).resolve().parents[3] / "tests" / "data"


def refuse(problem: object) -> None:
    pytest.fail(str(problem))


CASES: Final[list[tuple[str, str | None]]] = [
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
    ('{"mapping": {"1": {"message": {"inserted_at": "x", "fragments": []}}}}', "deepseek"),
    ('[{"id": "a", "user_id": "u", "chat": {"id": "", "history": {}}}]', "openwebui"),
    ('{"title": "x", "history": {"messages": {}, "currentId": "a"}, "messages": []}', "openwebui"),
    ('{"conversationId": "a", "messages": [{"messageId": "b", "text": ""}]}', "librechat"),
    ('{"chunkedPrompt": {"chunks": []}}', "aistudio"),
    ('{"resourceSpans": []}\n', "otlp"),
    ('{"prompt": "a", "chosen": "b", "rejected": "c"}\n', "dpo"),
    ('{"conversations": [{"from": "human"}], "chosen": {}, "rejected": {}}\n', "dpo"),
    ('{"prompt": "a", "completion": "b"}\n', "messages"),
    ('{"model": "x", "conversation": [{"content": "", "role": "user"}]}\n', "messages"),
    ('[{"chatledger": 1}]', None),
    ("hello", None),
    ("a,b\n1,2\n", None),
    ("", None),
    (" \n\n", None),
    ("\ufeff", None),
]


@pytest.mark.parametrize(("content", "expected"), CASES)
def test_detection(tmp_path: Path, content: str, expected: str | None) -> None:
    """By content, packed or not; what is not known is refused with what is supported."""
    plain, packed = tmp_path / "some.txt", tmp_path / "some.bin"
    plain.write_text(content, encoding="utf-8")
    packed.write_bytes(gzip.compress(content.encode()))

    for path in (plain, packed):
        if expected is None:
            with pytest.raises(
                InvalidValueError,
                match=r"supported are: oasst .* chatgpt .* claude .* messages .* dpo .* sharegpt .* deepagents .* langgraph .* chatledger",
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


def test_every_format_is_detected_and_named_in_the_error(tmp_path: Path) -> None:
    """A format that is added has an example above, and a word in the error of those that are not."""
    path = tmp_path / "some.txt"
    path.write_text("hello", encoding="utf-8")
    with pytest.raises(InvalidValueError) as refused:
        detect_format(path)

    assert set(FORMATS) == {expected for _, expected in CASES if expected} | {"deepagents"}
    assert [] == [name for name in FORMATS if f"{name} (" not in str(refused.value)]


def test_errors_come_at_the_call(tmp_path: Path) -> None:
    """Nothing needs to be read to hear that a file cannot be."""
    empty, cut = tmp_path / "empty", tmp_path / "cut.gz"
    empty.touch()
    cut.write_bytes(gzip.compress(b"x" * 1000)[:12])
    blanks, pipe = tmp_path / "blanks", tmp_path / "pipe"
    blanks.write_bytes(gzip.compress(b" " * 10_000_000 + b"[]"))
    half = tmp_path / "half.json"
    half.write_text('{\n "things": [1, 2', encoding="utf-8")
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
        (half, None, "is not valid JSON: Input data was truncated; supported are"),
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
