import gzip
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.support.agent_threads import put
from tests.support.cli_world import ask, ask_lines, fails, oasst_row, run, write_lines

import chatledger
from chatledger.graph_state import StateStore, state_id
from chatledger.importers import Problem, read_all
from chatledger.infra.entrypoints.cli import cli
from chatledger.infra.entrypoints.demo import sample_file
from chatledger.infra.ledger.threads import Threads


def test_import_says_what_it_did(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "x.jsonl", oasst_row("a"), oasst_row("b", "a"), oasst_row("c", "a"))
    result = run("import", file, at=tmp_path / "data")

    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "Imported 1 chat: 1 new, 0 changed, 0 unchanged.",
        "3 messages, 2 branches added.",
    ]
    assert not result.stderr


def test_importing_again_changes_nothing(samples: Path) -> None:
    before = ask_lines("log", at=samples)
    with sample_file() as path:
        result = run("import", path, at=samples)

    assert result.exit_code == 0
    assert result.stdout == "Nothing changed: 5 chats read, all here already.\n"
    assert before == ask_lines("log", at=samples)


def test_import_adds_what_is_new(tmp_path: Path) -> None:
    rows = [oasst_row("a"), oasst_row("b", "a")]
    run("import", write_lines(tmp_path / "x.jsonl", *rows), at=tmp_path / "data")
    result = run(
        "import", write_lines(tmp_path / "y.jsonl", *rows, oasst_row("c", "b", role="prompter")), at=tmp_path / "data"
    )

    assert result.stdout.splitlines() == [
        "Imported 1 chat: 0 new, 1 changed, 0 unchanged.",
        "1 message, 0 branches added, 1 branch moved on.",
    ]


def test_broken_records_are_reported_and_left_out(tmp_path: Path) -> None:
    file = write_lines(
        tmp_path / "x.jsonl", oasst_row("a"), '{"message_id": ', oasst_row("b", "a"), oasst_row("c", "gone")
    )
    result = run("import", file, at=tmp_path / "data")

    assert result.exit_code == 0
    problems = result.stderr.splitlines()
    assert len(problems) == 2
    assert problems[0].startswith(f"warning: {file}, line 2: ")
    assert "line 4" in problems[1]
    assert "becomes a root" in problems[1]
    assert result.stdout.splitlines()[-1] == "2 problems in the files, worked around; see the warnings."
    assert [m["id"] for m in ask("show", "tree", at=tmp_path / "data")["messages"]] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("second", "reason"), [("{", "line 2"), (oasst_row("b", "gone"), "gone")], ids=["broken", "missing parent"]
)
def test_strict_stops(tmp_path: Path, second: Any, reason: str) -> None:
    file = write_lines(tmp_path / "x.jsonl", oasst_row("a"), second, oasst_row("c", "a"))

    assert reason in fails(1, "import", "--strict", file, at=tmp_path / "data")
    assert ask("chats", at=tmp_path / "data") == []


def test_a_chat_that_does_not_fit_is_left_out(tmp_path: Path) -> None:
    """A message id that means something else here: the others come in, and the exit code tells."""
    first = write_lines(tmp_path / "x.jsonl", oasst_row("a"), oasst_row("other:a"))
    second = write_lines(tmp_path / "y.jsonl", oasst_row("a", tree="other"), oasst_row("z", tree="fine"))
    run("import", first, at=tmp_path / "data")
    result = run("import", second, at=tmp_path / "data")

    assert result.exit_code == 1
    assert result.stderr.startswith("error: chat 'other' is left out: ")
    assert "1 file or chat left out; see the errors." in result.stdout.splitlines()
    assert {chat["id"] for chat in ask("chats", at=tmp_path / "data")} == {"tree", "fine"}
    assert "left out" not in fails(1, "import", "--strict", second, at=tmp_path / "data")


def test_missing_and_foreign_files(tmp_path: Path) -> None:
    """They are told before a ledger is made for nothing; the readable ones come in."""
    foreign = write_lines(tmp_path / "x.txt", "hello")
    fine = write_lines(tmp_path / "y.jsonl", oasst_row("a"))

    assert "gone.jsonl cannot be read" in fails(1, "import", tmp_path / "gone.jsonl", at=tmp_path / "data")
    assert "unknown format" in fails(1, "import", foreign, at=tmp_path / "data")
    assert "is a directory" in fails(1, "import", tmp_path, at=tmp_path / "data")
    assert not (tmp_path / "data").exists()

    result = run("import", tmp_path / "gone.jsonl", fine, at=tmp_path / "data")
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
    assert [chat["id"] for chat in ask("chats", at=tmp_path / "data")] == ["tree"]


def test_formats(tmp_path: Path) -> None:
    packed = tmp_path / "x.jsonl.gz"
    packed.write_bytes(gzip.compress(json.dumps(oasst_row("a")).encode() + b"\n"))

    assert run("import", "--format", "oasst", packed, at=tmp_path / "data").exit_code == 0
    assert "'telegram' is not one of" in fails(2, "import", "--format", "telegram", packed, at=tmp_path / "data")
    wrong = run("import", "--format", "chatgpt", packed, at=tmp_path / "data")
    assert "Traceback" not in wrong.output
    assert wrong.stderr


def test_an_export_of_a_newer_version(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "x.jsonl", {"chatledger": 99})
    result = run("import", file, at=tmp_path / "data")

    assert result.exit_code == 1
    assert "upgrade" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_user_for_files_that_name_none(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "x.jsonl", oasst_row("a"), oasst_row("b", tree="other", user_id="bob"))
    run("import", "--user", "ada", file, at=tmp_path / "data")

    assert {chat["id"]: chat["user_id"] for chat in ask("chats", at=tmp_path / "data")} == {
        "tree": "ada",
        "other": "bob",
    }


def test_import_needs_a_file() -> None:
    assert "Missing argument 'FILE...'" in fails(2, "import")


@pytest.mark.soak
def test_round_trip(samples: Path, tmp_path: Path) -> None:
    """Everything but the time of the last change comes back as it was, and the second export says the same."""
    file = tmp_path / "export.jsonl"
    assert run("export", "--output", file, at=samples).stdout == f"Wrote 5 chats to {file}.\n"
    assert run("import", "--strict", file, at=tmp_path / "copy").exit_code == 0

    with chatledger.open(samples) as one, chatledger.open(tmp_path / "copy") as other:
        for chat in one.list_chats():
            copy = other.get_chat(chat.id)
            assert copy is not None
            assert (chat.user_id, chat.title, chat.metadata) == (copy.user_id, copy.title, copy.metadata)
            assert one.graph(chat.id) == other.graph(chat.id)
            for branch in one.list_branches(chat.id):
                assert branch == other.get_branch(chat.id, branch.name)
                assert one.get_messages(chat.id, branch=branch.name) == other.get_messages(chat.id, branch=branch.name)
            assert one.list_checkpoints(chat.id) == other.list_checkpoints(chat.id)
    again = run("import", file, at=tmp_path / "copy")
    assert again.stdout == "Nothing changed: 5 chats read, all here already.\n"


def test_export_of_named_chats(samples: Path) -> None:
    lines = [json.loads(line) for line in run("export", "riga", "tortilla", "riga", at=samples).stdout.splitlines()]

    assert [line["chat"]["id"] for line in lines if "chat" in line] == ["riga", "tortilla"]
    assert lines[0] == {"chatledger": 6}
    assert lines[-1] == {"totals": {"chats": 2, "threads": 0, "states": 0}}


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A ledger with a chat, a thread of agents, and a state of a graph."""
    with chatledger.open(tmp_path / "mixed") as ledger:
        ledger.create_chat("c", "ada")
        ledger.append("c", [chatledger.user("hi")])
        put(Threads(ledger), "t", "1", {"c": "one"})
        put(Threads(ledger), "u", "1", {"c": "one"})
        StateStore(ledger).put(state_id("ada", "trip"), {"n": 1})
    return tmp_path / "mixed"


@pytest.mark.soak
def test_a_whole_ledger_moves_through_a_pipe(mixed: Path, tmp_path: Path) -> None:
    """`chatledger export | chatledger -l copy import -`, each in a process of its own."""
    command = f"{sys.executable} -m chatledger"
    piped = f"{command} -l {mixed} export | {command} -l {tmp_path / 'copy'} import -"
    done = subprocess.run(piped, shell=True, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "Wrote 1 chat, 2 threads, 1 state.\n")
    assert done.stdout.splitlines()[:3] == [
        "Read 2 threads of agents: 2 checkpoints added, 0 here already.",
        "Read 1 state of graphs: 1 version added, 0 here already.",
        "Imported 1 chat: 1 new, 0 changed, 0 unchanged.",
    ]
    file = tmp_path / "all.jsonl"
    assert run("export", "-o", file, at=tmp_path / "copy").stdout == f"Wrote 1 chat, 2 threads, 1 state to {file}.\n"
    again = run("import", "--strict", file, at=mixed)
    assert again.stdout.splitlines()[0] == "Read 2 threads of agents: 0 checkpoints added, 2 here already."
    assert again.exit_code == 0


def test_export_of_named_threads_and_states(mixed: Path) -> None:
    result = run("export", "--thread", "t", "--state", state_id("ada", "trip"), at=mixed)
    lines = [json.loads(line) for line in result.stdout.splitlines()]

    assert lines[-1] == {"totals": {"chats": 0, "threads": 1, "states": 1}}
    assert "no thread of agents 'x'" in fails(1, "export", "--thread", "t", "--thread", "x", at=mixed)
    assert "[REDACTED]" in fails(1, "export", "--state", state_id("bob", "trip"), at=mixed)


def test_a_thread_with_other_content_is_left_out(mixed: Path, tmp_path: Path) -> None:
    """For that thread only: the rest comes in, and the exit code tells."""
    file = tmp_path / "all.jsonl"
    run("export", "-o", file, at=mixed)
    with chatledger.open(tmp_path / "copy") as ledger:
        put(Threads(ledger), "t", "1", {"c": "other"})
    result = run("import", file, at=tmp_path / "copy")

    assert result.exit_code == 1
    assert result.stderr.startswith("error: thread 't' is left out: thread 't' is here with other content")
    assert result.stdout.splitlines()[0] == "Read 1 thread of agents: 1 checkpoint added, 0 here already."


@pytest.mark.matrix
@pytest.mark.parametrize("kept", [1, 2, 3, 4, 5, 6, 7, 8])
def test_an_export_that_was_cut_off_is_told_and_leaves_no_empty_chat(mixed: Path, tmp_path: Path, kept: int) -> None:
    lines = run("export", at=mixed).stdout.splitlines(keepends=True)
    file = tmp_path / "cut.jsonl"
    file.write_text("".join(lines[:kept]) + lines[kept][:9])
    result = run("import", file, at=tmp_path / "copy")

    assert result.exit_code == 1
    assert "cut off" in result.stderr
    assert "The export is not complete" in result.stdout
    with chatledger.open(tmp_path / "copy") as ledger:
        assert [chat.message_count for chat in ledger.list_chats()] == ([1] if kept > 2 else [])
        assert Threads(ledger).infos() == []


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "standard input is empty"),
        (b"hello", "standard input has an unknown format"),
        (
            gzip.compress(b'{"chatledger": 3}\n' + b" " * 2_000_000),
            "standard input is more than 1,048,576 bytes when it is unpacked",
        ),
        (b'{"chatledger": 99}\n', "standard input has format version 99"),
    ],
    ids=["empty", "unknown", "bomb", "newer"],
)
def test_what_comes_through_a_pipe_is_checked_as_files_are(tmp_path: Path, data: bytes, reason: str) -> None:
    command = ["import", "--max-unpacked", "1", "-"]
    result = CliRunner().invoke(cli, ["-l", str(tmp_path / "data"), *command], input=data)

    assert result.exit_code == 1
    assert reason in result.stderr


@pytest.mark.guard
@pytest.mark.parametrize(
    ("shell", "reason"),
    [
        ('exec "$@" <&-', "standard input is empty"),
        ('ulimit -f 1; exec "$@"', "standard input cannot be copied to"),
    ],
)
def test_standard_input_that_is_closed_or_finds_no_room(tmp_path: Path, shell: str, reason: str) -> None:
    command = [sys.executable, "-m", "chatledger", "-l", str(tmp_path / "data"), "import", "-"]
    done = subprocess.run(
        ["bash", "-c", shell, "bash", *command], input=" " * 5_000, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
    assert reason in done.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.guard
def test_pipes_by_their_names(tmp_path: Path) -> None:
    """As a shell names them for `<(...)`, and standard input as /dev/stdin."""
    command = (
        f'{sys.executable} -m chatledger -l {tmp_path / "data"} import <(echo \'[{{"role": "user", "content": "hi"}}]\') '
        "/dev/stdin <(echo nothing)"
    )
    done = subprocess.run(
        ["bash", "-c", command],
        input='[{"role": "user", "content": "hello"}]',
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert done.stdout.startswith("Imported 2 chats: 2 new")
    assert re.fullmatch(r"error: /dev/fd/\d+ has an unknown format; .*\n", done.stderr)


def test_a_file_of_which_nothing_can_be_used_is_a_failure(tmp_path: Path) -> None:
    file = tmp_path / "messages.json"
    file.write_text('[{"role": "user", "content": "hi"}]')
    result = run("import", "--format", "chatgpt", file, at=tmp_path / "data")

    assert result.exit_code == 1
    assert "has no mapping of messages" in result.stderr


def test_an_export_of_an_earlier_moment(mixed: Path, tmp_path: Path) -> None:
    """Its chats as they were; the threads and states have their earlier versions in them, so they are left out, and named."""
    with chatledger.open(mixed) as ledger:
        then, chats = ledger.position, [ledger.export_chat(chat.id) for chat in ledger.list_chats()]
        ledger.append(chats[0].id, [chatledger.user("later")])
        ledger.create_chat("later", "ada")
    file = tmp_path / "then.jsonl"
    result = run("export", "--at", str(then), "-o", file, at=mixed)

    assert result.exit_code == 0
    assert re.fullmatch(r"Left out, as --at writes chats only: \d+ threads? of agents .* and .*\n", result.stderr)
    problems: list[Problem] = []
    assert list(read_all(file, on_problem=problems.append)) == chats
    assert not problems
    assert f"it is since position {then + 2}" in fails(1, "export", "later", "--at", str(then), at=mixed)
    assert "--at goes back to earlier chats only" in fails(2, "export", "--at", "1", "--thread", "t", at=mixed)


@pytest.mark.guard
def test_export_to_a_closed_pipe_ends_quietly(tmp_path: Path) -> None:
    with chatledger.open(tmp_path / "data") as ledger:
        for number in range(40):
            put(Threads(ledger), "t", f"{number:03}", {"c": str(number) * 20_000})
    command = f"{sys.executable} -m chatledger -l {tmp_path / 'data'} export | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, '{"chatledger":6}\n', "")


def test_export_of_tables_and_for_training(mixed: Path, tmp_path: Path) -> None:
    """As CSV and Parquet, of all or of what is named; conversations are read again."""
    total = len(ask_lines("log", at=mixed))
    events = run("export", "--format", "csv", "--table", "events", at=mixed)
    first = run("export", "--format", "csv", "--table", "events", "--at", "1", at=mixed)
    threads = run("export", "--format", "csv", "--table", "threads", "--thread", "t", at=mixed)

    assert (f"Wrote {total} rows.\n", total + 1) == (events.stderr, len(events.stdout.splitlines()))
    assert "Wrote 1 row.\n" == first.stderr
    assert ["thread_id", "t"] == [line.partition(",")[0] for line in threads.stdout.splitlines()[:2]]
    for form in ("openai", "anthropic", "sharegpt"):
        file = tmp_path / f"{form}.jsonl"
        written = run("export", "--format", form, "--all-branches", "-o", str(file), at=mixed)
        read = run("import", str(file), at=tmp_path / form)
        conversations = len(file.read_bytes().splitlines())
        assert f"Wrote {conversations} conversation" in written.stdout
        assert (0, f"Imported {conversations} chat") == (
            read.exit_code,
            read.stdout.partition(":")[0].removesuffix("s"),
        )
    assert run("export", "--format", "markdown", at=mixed).stdout.startswith("# ")


@pytest.mark.guard
def test_parquet_goes_to_a_file(mixed: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "messages.parquet"
    wrote = run("export", "--format", "parquet", "-o", str(file), at=mixed)
    rows = run("export", "--format", "csv", at=mixed)

    assert wrote.stdout == rows.stderr.replace("rows.", f"rows to {file}.").replace("row.", f"row to {file}.")
    assert parquet.read_table(file).num_rows == int(rows.stderr.split()[1])


@pytest.mark.parametrize(
    "options",
    [
        ("--table", "chats"),
        ("--all-branches",),
        ("--format", "csv", "--all-branches"),
        ("--format", "openai", "--table", "runs"),
    ],
)
def test_options_of_other_formats_are_refused(mixed: Path, options: tuple[str, ...]) -> None:
    result = run("export", *options, at=mixed)

    assert (2, "") == (result.exit_code, result.stdout)
    assert "--table goes with --format csv or parquet" in result.stderr


def test_export_of_an_unknown_chat_writes_nothing(samples: Path, tmp_path: Path) -> None:
    file = tmp_path / "export.jsonl"
    file.write_text("as it was")

    assert fails(1, "export", "riga", "rigga", "-o", file, at=samples) == "no chat 'rigga'; did you mean 'riga'?"
    assert file.read_text() == "as it was"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("export")] == ["export.jsonl"]


@pytest.mark.parametrize("name", [".", "gone/export.jsonl"])
def test_export_to_where_no_file_can_be(samples: Path, tmp_path: Path, name: str) -> None:
    assert "cannot be written" in fails(1, "export", "-o", tmp_path / name, at=samples)
