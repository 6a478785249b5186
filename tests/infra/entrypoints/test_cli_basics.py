"""Rules of every verb: help, locations, errors, closed pipes, colours."""

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from docs.command_line import command_line_page
from tests.support.cli_world import fails, finish, run, start

import chatledger
from chatledger.infra.entrypoints.cli import cli
from chatledger.infra.entrypoints.cli.app import VERBS


def test_help_names_every_verb() -> None:
    for arguments in ((), ("--help",), ("-h",)):
        result = run(*arguments)
        assert result.exit_code == 0
        assert all(f"\n  {verb} " in result.stdout for verb in VERBS)
    version = run("--version")
    assert (version.exit_code, version.stdout[:13]) == (0, "chatledger 0.")


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_each_verb(verb: str) -> None:
    result = run(verb, "--help")

    assert result.exit_code == 0
    assert result.stdout.startswith(f"Usage: chatledger {verb} ")
    assert ("--location" in result.stdout) == (
        verb
        not in {
            "check-receipt",
            "completion",
            "keys",
            "links",
            "members",
            "new",
            "remote",
            "retention",
            "timestamp",
        }  # keys, links, members, remote, retention and timestamp have verbs that have it
    )


def test_the_reference_page_has_every_verb() -> None:
    page = command_line_page()

    assert all(f"\n## chatledger {verb}\n" in page for verb in VERBS)


def test_verbs_are_commands_of_their_names() -> None:
    context = click.Context(cli)

    for verb in VERBS:
        command = cli.get_command(context, verb)
        assert command is not None
        assert command.name == verb
    assert cli.get_command(context, "nothing") is None


def test_unknown_verb() -> None:
    assert fails(2, "shwo").startswith("there is no verb 'shwo'; did you mean 'show'?")
    assert "there are: demo, new, import" in fails(2, "xyzzy")


@pytest.mark.matrix
@pytest.mark.parametrize(
    "arguments",
    [
        ("--nonsense",),
        ("chats", "--nonsense"),
        ("chats", "--limit", "-1"),
        ("chats", "--limit", "many"),
        ("chats", "--meta", "lang"),
        ("chats", "--meta", "=de"),
        ("show",),
        ("show", "riga", "tortilla"),
        ("show", "riga", "--graph", "--branch", "main"),
        ("log", "--after", "-1"),
        ("log", "--after", "yesterday"),
        ("log", "--until", "someday"),
        ("log", "--until", "-5"),
        ("replay",),
        ("replay", "riga", "--until", "2026-13-01"),
        ("watch", "riga"),
        ("import",),
        ("--location",),
    ],
)
def test_wrong_usage(samples: Path, arguments: tuple[str, ...]) -> None:
    assert " --help'" in fails(2, *arguments, at=samples)


@pytest.mark.parametrize("verb", ["show", "log", "replay", "export"])
def test_unknown_chat(samples: Path, verb: str) -> None:
    assert fails(1, verb, "tortila", at=samples) == "no chat 'tortila'; did you mean 'tortilla'?"
    assert fails(1, verb, "sens", at=samples) == "no chat 'sens'; did you mean 'sensor'?"
    assert fails(1, verb, "0123456789", at=samples) == "no chat '0123456789'; 'chatledger chats' lists them"


@pytest.mark.matrix
@pytest.mark.parametrize("verb", ["show", "log", "replay", "export"])
@pytest.mark.parametrize("chat_id", ["", "x" * 3000, "\udcff"])
def test_impossible_chat_id(samples: Path, verb: str, chat_id: str) -> None:
    reason = fails(1, verb, chat_id, at=samples)
    assert "no chat" in reason or "chat_id" in reason


@pytest.mark.parametrize(
    "arguments",
    [
        ("chats",),
        ("show", "riga"),
        ("log",),
        ("replay", "riga"),
        ("rebuild",),
        ("export",),
        ("search", "fox"),
        ("watch",),
        ("feeds",),
        ("mcp",),
    ],
)
def test_reading_makes_no_ledger(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    place = tmp_path / "nothing"

    assert f"there is no ledger at {place}" in fails(1, *arguments, at=place)
    assert not place.exists()


@pytest.mark.matrix
def test_reading_makes_no_tables(new_postgres_database: Callable[[], str]) -> None:
    place = new_postgres_database().replace("postgres@", "postgres:s3cret@")
    psycopg = pytest.importorskip("psycopg")
    for arguments in ("chats", "watch", "verify", "export", "sweep", "mcp", "doctor", "doctor --repair"):
        said = fails(1, "-l", place, *arguments.split())
        assert said.startswith("there is no ledger at postgresql://…@/")
        assert "s3cret" not in said
    with psycopg.connect(place) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
    chatledger.open(place).close()

    assert not tables
    assert "No chats yet" in run("-l", place, "chats").output


@pytest.mark.guard
@pytest.mark.parametrize("arguments", [("chats",), ("doctor",), ("serve",), ("mcp",), ("import", "-")], ids=" ".join)
def test_a_postgres_server_that_does_not_answer(arguments: tuple[str, ...]) -> None:
    """Said in seconds, in words, without the password."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    place = f"postgresql://ada:s3cret@127.0.0.1:{port}/x"
    result = CliRunner().invoke(cli, ["-l", place, *arguments], input='[{"role": "user", "content": "hi"}]')
    said = result.stderr.removeprefix("error: ")

    assert result.exit_code == 1

    assert said.startswith("the database cannot be used: ")
    assert f"port {port}" in said
    assert "refused" in said
    assert "s3cret" not in said


@pytest.mark.parametrize("verb", ["chats", "rebuild", "log", "watch"])
def test_impossible_locations(tmp_path: Path, verb: str) -> None:
    (tmp_path / "file").write_text("no directory")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.txt").write_text("not ours")
    (tmp_path / "newer").mkdir()
    (tmp_path / "newer" / "format.json").write_text('{"format": 99}')

    assert "is a file" in fails(1, verb, at=tmp_path / "file")
    assert "not a chatledger directory" in fails(1, verb, at=tmp_path / "foreign")
    assert "upgrade chatledger" in fails(1, verb, at=tmp_path / "newer")
    assert "unknown location" in fails(1, "--location", "http://example.org", verb)
    for each in ([verb], ["doctor"], ["doctor", "--repair"]):
        assert "the location must be the path of a directory" in fails(1, "--location", "", *each)
    for place in ("~no-such-user/data", "sqlite:///~no-such-user/data.db"):
        assert fails(1, "-l", place, verb).startswith("the home directory in '~no-such-user/data")
    assert [path.name for path in (tmp_path / "foreign").iterdir()] == ["thesis.txt"]


def test_unwritable_location(tmp_path: Path) -> None:
    """Where nobody can make a directory, not even root."""
    (tmp_path / "file").write_text("no directory")
    export = tmp_path / "x.jsonl"
    export.write_text('{"chatledger":1}\n{"chats":0}\n')

    assert "cannot be used" in fails(1, "import", export, at=tmp_path / "file" / "data")
    assert "too long" in fails(1, "chats", at=tmp_path / ("x" * 300))


@pytest.mark.soak
def test_location_before_and_after_the_verb(samples: Path, tmp_path: Path) -> None:
    """The one after the verb counts; the environment is the last resort."""
    nowhere = str(tmp_path / "nowhere")

    for arguments in (
        ("-l", str(samples), "chats", "--json"),
        ("chats", "--json", "--location", str(samples)),
        ("-l", nowhere, "chats", "--json", "-l", str(samples)),
    ):
        result = run(*arguments)
        assert result.exit_code == 0, result.stderr
        assert len(json.loads(result.stdout)) == 5
    assert len(json.loads(finish(start("chats", "--json", CHATLEDGER_LOCATION=str(samples)))[1])) == 5
    code, out, err = finish(start("-l", nowhere, "chats", CHATLEDGER_LOCATION=str(samples)))
    assert (code, out) == (1, "")
    assert nowhere in err


def test_other_kinds_of_location(tmp_path: Path) -> None:
    export = tmp_path / "x.jsonl"
    export.write_text('{"chatledger":1}\n{"chats":0}\n')
    place = f"sqlite:///{tmp_path}/ledger.db"

    assert run("-l", place, "import", export).exit_code == 0
    assert run("-l", place, "chats", "--json").stdout == "[\n]\n"
    assert run("-l", "memory:", "chats").stdout.startswith("No chats yet")


@pytest.mark.soak
def test_module_and_script_are_the_same(samples: Path) -> None:
    script = Path(sys.executable).parent / "chatledger"
    with subprocess.Popen(
        [script, "-l", str(samples), "show", "tortilla"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        out, err = process.communicate(timeout=60)

    assert (process.returncode, err) == (0, "")
    assert (0, out, "") == finish(start("-l", str(samples), "show", "tortilla"))


@pytest.mark.soak
@pytest.mark.parametrize(
    "arguments",
    [("log",), ("log", "--json"), ("export",), ("show", "riga", "--messages"), ("chats",), ("demo",), ("--help",)],
)
def test_a_closed_pipe_is_silent(samples: Path, arguments: tuple[str, ...]) -> None:
    """The reader is gone before the first line."""
    process = start("-l", str(samples), *arguments)
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    code, _, err = finish(process)

    assert err == ""
    assert code in {0, 1}


@pytest.mark.soak
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [("log",), ("export",), ("show", "riga", "--json"), ("chats",)])
def test_a_full_disk(samples: Path, arguments: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        process = subprocess.run(
            [sys.executable, "-m", "chatledger", "-l", str(samples), *arguments],
            check=False,
            stdout=full,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            timeout=60,
        )

    assert process.returncode == 1
    assert process.stderr == "error: No space left on device\n"


@pytest.mark.soak
def test_closed_outputs(samples: Path) -> None:
    """As `chatledger chats >&-` has it."""
    command = f'"{sys.executable}" -m chatledger -l "{samples}" chats'

    assert subprocess.run(f"{command} >&-", shell=True, check=False, timeout=60).returncode == 0
    assert subprocess.run(f"{command} >&- 2>&-", shell=True, check=False, timeout=60).returncode == 0


@pytest.mark.soak
def test_no_colours_in_a_pipe_unless_asked_for(samples: Path) -> None:
    plain = finish(start("-l", str(samples), "show", "riga"))
    coloured = finish(start("-l", str(samples), "show", "riga", FORCE_COLOR="1", TERM="xterm-256color"))

    assert (plain[0], plain[2]) == (0, "")
    assert "\x1b" not in plain[1]
    assert "\x1b[" in coloured[1]
    assert "inland *" in coloured[1]


@pytest.mark.soak
def test_output_that_is_not_unicode(samples: Path) -> None:
    """The tree falls back to ASCII; JSON escapes what the output cannot show."""
    code, out, err = finish(start("-l", str(samples), "show", "furuike", PYTHONIOENCODING="ascii"))
    assert (code, err) == (0, "")
    assert "|-o haiku-2 (assistant)" in out

    code, out, err = finish(start("-l", str(samples), "chats", "--json", PYTHONIOENCODING="latin-1"))
    assert (code, err) == (0, "")
    assert "古池や — three translations" in {chat["title"] for chat in json.loads(out)}


@pytest.mark.soak
@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs pseudo-terminals")
def test_a_terminal_gets_lines_of_its_width(samples: Path) -> None:
    """Lines of the tree are cut to 60 columns, and a branch marker is not what goes."""
    ours, theirs = os.openpty()
    environment = os.environ | {"COLUMNS": "60", "TERM": "xterm", "PYTHONIOENCODING": "utf-8", "NO_COLOR": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "chatledger", "-l", str(samples), "show", "tortilla"], stdout=theirs, env=environment
    )
    os.close(theirs)
    out = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # how Linux says that the other end is closed
            break
        if not part:
            break
        out += part
    os.close(ours)

    assert process.wait(60) == 0
    plain = re.sub(r"\x1b\[[0-9;]*m", "", out.decode())
    lines = [line for line in plain.splitlines() if "tort-" in line]
    assert len(lines) == 4
    assert all(len(line) <= 60 for line in lines)
    assert any("<- [main *] {la-paz}" in line for line in lines)


def test_keys_without_a_verb_prints_their_help() -> None:
    result = run("keys")

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("Usage: chatledger keys [OPTIONS] add|list|remove")


def test_keys_that_are_not_there_yet(tmp_path: Path) -> None:
    result = run("keys", "list", at=tmp_path / "data")

    assert (result.exit_code, result.stdout) == (0, "")
    assert "'chatledger keys add NAME" in result.stderr
    assert run("keys", "list", "--json", at=tmp_path / "data").stdout == "[]\n"
    assert list(tmp_path.iterdir()) == []
