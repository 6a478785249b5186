"""A user's own conversations, measured next to SQLite."""

from pathlib import Path

import pytest
from benchmarks.own import compare_with_sqlite, generated_chats, main

from chatledger import InvalidValueError
from chatledger.domain.chat.interchange import ImportedBranch, ImportedChat
from chatledger.importers import write_chats


@pytest.mark.soak
def test_conversations_of_a_file_are_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each operation has times of both and their ratio, and nothing stays."""
    file = tmp_path / "chats.jsonl"
    with file.open("wb") as stream:
        write_chats(stream, generated_chats(3, 7))
    main([str(file), "--durability", "fast", "--folder", str(tmp_path)])
    _, *rows = capsys.readouterr().out.splitlines()

    assert [row.split()[0] for row in rows] == ["import", "chain", "last", "search", "rebuild", "append"]
    assert all(row.endswith("x") for row in rows)
    assert "chain of 7 messages" in rows[1]
    assert [file] == list(tmp_path.iterdir())


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    """In words, without a traceback."""
    with pytest.raises(SystemExit, match="no-such-file"):
        main([str(tmp_path / "no-such-file")])


def test_nothing_to_measure_is_refused(tmp_path: Path) -> None:
    """Without a message on an active branch there is nothing to compare."""
    empty = ImportedChat(
        id="c",
        user_id="u",
        title=None,
        metadata=None,
        messages=(),
        branches=(ImportedBranch(name="main", head_message_id=None, is_active=True),),
    )
    for chats in ([], [empty]):
        with pytest.raises(InvalidValueError, match="no chat with a message"):
            compare_with_sqlite(chats, tmp_path)

    assert not list(tmp_path.iterdir())
