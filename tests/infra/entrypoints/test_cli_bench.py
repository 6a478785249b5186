"""`chatledger bench`: measured on a user's own machine, with what a user without development dependencies has."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from chatledger import InvalidValueError
from chatledger.domain.chat.interchange import ImportedBranch, ImportedChat
from chatledger.importers import write_chats
from chatledger.infra.admin.bench import compare_with_sqlite, generated_chats
from chatledger.infra.entrypoints.cli.bench import bench_command

_ROWS = 6


def _run(*arguments: str) -> str:
    result = CliRunner().invoke(bench_command, arguments)
    assert 0 == result.exit_code, result.output
    return result.stdout


@pytest.mark.soak
def test_bench_measures_chats_that_are_made_up(tmp_path: Path) -> None:
    """Each operation has times of both and their ratio, and nothing stays."""
    rows = json.loads(_run("--json", "--chats", "2", "--messages", "30", "--folder", str(tmp_path)))

    assert _ROWS == len(rows)
    assert {"import", "chain", "last", "search", "rebuild", "append"} == {row["name"].split()[0] for row in rows}
    assert all(sample > 0 for row in rows for sample in [*row["ours_s"], *row["sqlite_s"], row["ratio"]])
    assert not list(tmp_path.iterdir())


@pytest.mark.soak
def test_bench_measures_a_file_of_the_user(tmp_path: Path) -> None:
    """The conversations of a file are what is measured; people get a table."""
    file = tmp_path / "chats.jsonl"
    with file.open("wb") as stream:
        write_chats(stream, generated_chats(3, 7))
    text = _run(str(file), "--durability", "fast", "--folder", str(tmp_path))

    assert "chain of 7 messages" in text
    assert "import 21 messages in 3 chats" in " ".join(text.split())
    assert [file] == list(tmp_path.iterdir())


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
