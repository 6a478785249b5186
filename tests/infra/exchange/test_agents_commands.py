"""`keep`, `sessions` and `resume` as commands: watched, killed, redacted, and handed to another agent."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.support.coding_agents import (
    CLAUDE,
    CODEX,
    GEMINI,
    GEMINI_SESSION,
    OPENCODE,
    OPENCODE_SESSION,
    PI,
    SESSION,
    THREAD,
    as_bytes,
    claude_entry,
    claude_file,
    codex_file,
    codex_line,
    gemini_file,
    opencode_file,
    opencode_message,
    opencode_text,
    pi_file,
)

import chatledger
from chatledger.infra.entrypoints.cli.app import cli
from chatledger.infra.exchange.agents.redaction import without_keys


def environment(folder: Path) -> dict[str, str]:
    own = {
        "HOME": str(folder / "home"),
        "CHATLEDGER_KEEP": str(folder / "ledger"),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    return own | {"CODEX_HOME": "", "CLAUDE_CONFIG_DIR": ""}


def run(folder: Path, *arguments: str, code: int = 0) -> str:
    outcome = CliRunner(env=environment(folder)).invoke(cli, [*arguments], standalone_mode=False)
    assert (outcome.return_value or 0) == code, (outcome.output, outcome.exception)
    return outcome.stdout


def refusal(folder: Path, *arguments: str) -> str:
    outcome = CliRunner(env=environment(folder)).invoke(cli, [*arguments], standalone_mode=False)
    assert outcome.return_value == 1, outcome.output
    return outcome.stderr


def value(folder: Path, *arguments: str) -> Any:
    return json.loads(run(folder, *arguments, "--json"))


def process(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "chatledger", *arguments]
    return subprocess.Popen(
        command, env=os.environ | environment(folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def state_of(home: Path) -> Mapping[str, tuple[bytes, int]]:
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in home.rglob("*") if path.is_file()}


def test_a_search_of_this_folder_and_those_below_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other sessions stand in between, also on the page that is asked for; a folder whose name begins alike is another one."""
    folders = {"a": tmp_path, "b": tmp_path / "sub", "c": Path("/elsewhere"), "d": Path(f"{tmp_path}-2")}
    for name, folder in folders.items():
        entries = [
            {**claude_entry(f"u{at}", None, "user", f"fado {at}"), "cwd": str(folder), "sessionId": name}
            for at in range(3)
        ]
        claude_file(tmp_path / "home", as_bytes(entries), name)
    run(tmp_path, "keep")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("chatledger.infra.entrypoints.cli.search._TAKEN", 2)
    found = [hit["message"]["id"] for hit in value(tmp_path, "search", "fado", "--here")]
    pages = [value(tmp_path, "search", "fado", "--here", "--limit", "4", "--offset", offset) for offset in ("0", "4")]

    assert {f"{name}:u{at}" for name in "ab" for at in range(3)} == {one.rpartition("/")[2] for one in found}
    assert found == [hit["message"]["id"] for page in pages for hit in page]
    assert len(value(tmp_path, "search", "fado", "--kept")) == 12
    assert "More with --offset 4" in run(tmp_path, "search", "fado", "--here", "--limit", "4")


def test_what_is_kept_is_encrypted_where_there_is_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It lay on the disk in clear."""
    claude_file(tmp_path / "home", as_bytes([claude_entry("u1", None, "user", "fado in the Alfama")]), "a")
    monkeypatch.setenv("CHATLEDGER_ENCRYPTION_KEY", chatledger.Encryption.new_key())
    assert "1 session, 1 new" in run(tmp_path, "keep")
    assert [session["title"] for session in value(tmp_path, "sessions")] == ["fado in the Alfama"]
    assert len(value(tmp_path, "search", "fado", "--kept")) == 1
    files = [path.read_bytes() for path in (tmp_path / "ledger").rglob("*") if path.is_file()]
    assert not [1 for content in files if b"Alfama" in content]

    monkeypatch.delenv("CHATLEDGER_ENCRYPTION_KEY")
    assert "encrypt" in refusal(tmp_path, "sessions")


def test_a_server_that_does_not_answer_is_named_soon(tmp_path: Path) -> None:
    """It took 15 seconds, and spoke of a stream."""
    for verb in (["keep"], ["sessions"], ["resume", "a"]):
        told = refusal(tmp_path, *verb, "--location", "nats://127.0.0.1:9/kept")
        assert "no NATS server answers at 127.0.0.1:9: nobody listens there" in told


@pytest.mark.parametrize("damage", [b"no frame", b"\x28\xb5\x2f\xfd\x04\x58\xff\xff\xff"])
def test_a_packed_file_that_is_damaged_is_named_and_the_others_are_in(tmp_path: Path, damage: bytes) -> None:
    damaged = codex_file(tmp_path / "home", as_bytes(CODEX)).with_name("rollout-2026-11-20T10-00-00-damaged.jsonl.zst")
    damaged.write_bytes(damage)
    outcome = json.loads(run(tmp_path, "keep", "--json", code=1))

    assert [str(damaged) in failure for failure in outcome["failures"]] == [True]
    assert [session["agent"] for session in value(tmp_path, "sessions")] == ["codex"]
    assert "unknown format" in CliRunner(env=environment(tmp_path)).invoke(cli, ["import", str(damaged)]).output


def test_a_transcript_is_imported_from_anywhere(tmp_path: Path) -> None:
    """Under the id that 'keep' gives it, where its agent has it, and byte for byte; a second time changes nothing."""
    home, copies = tmp_path / "home", tmp_path / "copies"
    copies.mkdir()
    files = {
        "claude-code": claude_file(home, as_bytes(CLAUDE)),
        "codex": codex_file(home, as_bytes(CODEX)),
        "gemini-cli": gemini_file(home, as_bytes(GEMINI)),
        "pi": pi_file(home, as_bytes(PI)),
    }
    lone = [copies / path.name for path in files.values()]
    for path, copy in zip(files.values(), lone, strict=True):
        copy.write_bytes(path.read_bytes() + b"torn")
        path.write_bytes(path.read_bytes())
    where = ("--location", str(tmp_path / "ledger"))
    said = [run(tmp_path, "import", *where, *map(str, lone)) for _ in range(2)]

    assert "Imported 4 chats: 4 new" in said[0]
    assert "Nothing changed: 4 chats read" in said[1]
    sessions = value(tmp_path, "sessions")
    assert {*files} == {session["agent"] for session in sessions}
    for session in sessions:
        own = files[session["agent"]].read_bytes()
        assert own == run(tmp_path, "export", session["session"], "--format", session["agent"]).encode()
    assert {"new": 0, "grown": 0} == {
        name: sum(counts[name] for counts in value(tmp_path, "keep")["agents"].values()) for name in ("new", "grown")
    }


def test_sessions_are_kept_listed_and_written_again(tmp_path: Path) -> None:
    home = tmp_path / "home"
    claude_file(home, as_bytes(CLAUDE))
    codex_file(home, as_bytes(CODEX))
    before = state_of(home)
    outcome = value(tmp_path, "keep")
    assert {name: counts["new"] for name, counts in outcome["agents"].items() if counts["sessions"]} == {
        "claude-code": 1,
        "codex": 1,
    }
    assert "nothing new" in run(tmp_path, "keep")
    assert {row["agent"] for row in value(tmp_path, "sessions")} == {"claude-code", "codex"}
    assert [row["title"] for row in value(tmp_path, "sessions", "lisbon")] == ["Music in Lisbon"]
    assert value(tmp_path, "sessions", "--here") == []
    assert run(tmp_path, "export", SESSION[:8], "--format", "claude-code").encode() == as_bytes(CLAUDE)
    assert run(tmp_path, "export", THREAD, "--format", "codex").encode() == as_bytes(CODEX)
    assert "Alfama" in run(tmp_path, "search", "alfama", "--kept")
    assert state_of(home) == before
    Path(next(iter(before))).unlink()
    assert sorted(row["file"] for row in value(tmp_path, "sessions")) == ["", "gone"]
    run(tmp_path, "sessions", "--agent", "claude")


@pytest.mark.parametrize(
    ("name", "target"),
    [
        (SESSION, "codex"),
        (THREAD, "claude"),
        (SESSION, "claude-code"),
        (THREAD, "codex"),
        (SESSION, "gemini"),
        (GEMINI_SESSION, "codex"),
        (GEMINI_SESSION, "gemini"),
        (SESSION, "opencode"),
        (OPENCODE_SESSION, "codex"),
        (OPENCODE_SESSION, "opencode"),
    ],
)
def test_what_an_agent_goes_on_from_has_the_whole_branch(tmp_path: Path, name: str, target: str) -> None:
    home = tmp_path / "home"
    claude_file(home, as_bytes(CLAUDE))
    codex_file(home, as_bytes(CODEX))
    gemini_file(home, as_bytes(GEMINI))
    opencode_file(home, OPENCODE, 5)
    before = state_of(home)
    run(tmp_path, "keep")
    told = run(tmp_path, "resume", name, "--in", target, "--dry-run")
    assert ("1 thought" in told) is (
        (name == THREAD and target != "codex") or name in {GEMINI_SESSION, OPENCODE_SESSION}
    ), "thoughts are for the provider that signed them"
    assert state_of(home) == before
    answer = value(tmp_path, "resume", name, "--in", target)
    lines = [json.loads(line) for line in Path(answer["file"]).read_text().splitlines()]
    text = json.dumps(lines)
    places = [
        text.find(part)
        for part in (
            "Where is fado sung?",
            {"codex": '"call_id"', "gemini": '"toolCalls": [{', "opencode": '"callID"'}.get(target, "tool_use"),
            "alfama.py",
            "In Alfama",
            "And opera?",
            "In Chiado.",
        )
    ]
    assert -1 not in places
    assert places == sorted(places)
    assert "And jazz?" not in text, "the branch that was left"
    new = state_of(home).keys() - before.keys()
    assert [Path(path).suffix for path in new] == ([".jsonl"] if target == "codex" else [])
    if target == "codex":
        assert [line["type"] for line in lines[:3]] == ["session_meta", "response_item", "event_msg"]
        assert Path(answer["file"]).name.endswith(f"{lines[0]['payload']['id']}.jsonl")
    elif target == "gemini":
        assert answer["command"] == ["gemini", "--session-file", answer["file"]]
        assert [line.get("type") for line in lines[1:4]] == ["user", "gemini", "gemini"]
    elif target == "opencode":
        assert answer["prepare"] == ["opencode", "import", answer["file"]]
        assert answer["command"] == ["opencode", "--session", lines[0]["info"]["id"]]
        ids = [message["info"]["id"] for message in lines[0]["messages"]]
        assert ids == sorted(ids), "the client reads them in this order"
    else:
        assert answer["command"] == ["claude", "--resume", answer["file"], "--fork-session"]
        assert [line["parentUuid"] for line in lines] == [None, *(line["uuid"] for line in lines[:-1])]
        assert all(line["message"]["model"] for line in lines if line["type"] == "assistant"), (
            "without it the client hangs"
        )


def test_a_fork_that_points_to_its_beginning_is_handed_on_with_it(tmp_path: Path) -> None:
    """Codex copies nothing into a fork: its lines go on where those of the other thread are left."""
    home, fork = tmp_path / "home", "01a1b2c3-0000-7000-8000-00000000000f"
    codex_file(home, as_bytes(CODEX))
    head = {"id": fork, "cwd": "/src/trip", "forked_from_id": THREAD, "forked_from_ordinal_exclusive": 12}
    content = [{"type": "input_text", "text": "And theatre?"}]
    said = codex_line(13, "response_item", {"type": "message", "role": "user", "content": content})
    own = as_bytes([codex_line(12, "session_meta", head), said])
    codex_file(home, own, fork)
    run(tmp_path, "keep")
    text = Path(value(tmp_path, "resume", fork, "--in", "claude")["file"]).read_text()

    assert run(tmp_path, "export", fork, "--format", "codex").encode() == own
    assert text.index("Where is fado sung?") < text.index("In Alfama.") < text.index("And theatre?")
    assert "jazz" not in text
    assert "opera" not in text


def test_a_name_that_is_none_is_said_in_one_line(tmp_path: Path) -> None:
    outcome = CliRunner(env=environment(tmp_path)).invoke(cli, ["sessions"])
    assert (outcome.exit_code, "chatledger keep" in outcome.stderr) == (1, True)
    claude_file(tmp_path / "home", as_bytes(CLAUDE))
    run(tmp_path, "keep")
    for arguments in (
        ["resume", "nothing"],
        ["export", "nothing", "--format", "codex"],
        ["resume", SESSION, "--at", "zz"],
    ):
        outcome = CliRunner(env=environment(tmp_path)).invoke(cli, arguments)
        assert outcome.exit_code == 1
        assert outcome.stderr.startswith("error: ")
    path = claude_file(tmp_path / "home", as_bytes(CLAUDE), "ffff0000-0000-4000-8000-000000000003")
    path.unlink()
    path.mkdir()
    assert "ffff0000" in CliRunner(env=environment(tmp_path)).invoke(cli, ["keep"]).stderr
    assert len(value(tmp_path, "sessions")) == 1, "all others are in"


def test_redacted_sessions_have_no_key_in_any_file(tmp_path: Path) -> None:
    keys = ["AKIA" + "Q" * 16, "ghp_" + "a1" * 18, "sk-ant-" + "x7" * 20, "xoxb-" + "1" * 12, "glpat-" + "y9" * 10]
    lines = [claude_entry(f"u{number}", None, "user", f"export KEY={key} # done") for number, key in enumerate(keys)]
    nested = claude_entry(
        "u90", None, "user", [{"type": "tool_result", "tool_use_id": "t", "content": json.dumps({"a": keys[1]})}]
    )
    claude_file(tmp_path / "home", as_bytes([*lines, nested]) + json.dumps({"odd": keys[0]}).encode() + b"\n")
    run(tmp_path, "keep", "--redact")
    exported = run(tmp_path, "export", SESSION, "--format", "claude")

    assert not any(key in exported for key in keys)
    assert "[redacted:github]" in exported
    assert all(
        key.encode() not in path.read_bytes()
        for key in keys
        for path in (tmp_path / "ledger").rglob("*")
        if path.is_file()
    )
    code = "sk-learn ghp_short AKIA sk-estimator-of-the-pipeline-with-words npm_config_registry glpat-"
    assert without_keys(code) == code


def test_secrets_are_listed_by_their_places_and_never_shown(tmp_path: Path) -> None:
    """Whatever carries them: a prompt, JSON in a result, a row of a database, and what was taken back."""
    key, token = "ghp_" + "a1" * 18, "glpat-" + "y9" * 10
    result = [{"type": "tool_result", "tool_use_id": "t1", "content": json.dumps({"a": key, "b": key})}]
    left = claude_entry("u11", "a5", "user", f"with {token}")
    claude_file(tmp_path / "home", as_bytes([*CLAUDE[:4], claude_entry("r4", "a3", "user", result), *CLAUDE[5:], left]))
    opencode_file(tmp_path / "home", [opencode_message("m01", "user", opencode_text(f"use {token}"))], 5)
    codex_file(tmp_path / "home", as_bytes(CODEX))
    run(tmp_path, "keep")
    rows = value(tmp_path, "keep", "--secrets")
    printed = run(tmp_path, "keep", "--secrets")

    assert sorted((row["kind"], row["count"], row["session"], row["message"].rpartition(":")[2]) for row in rows) == [
        ("github", 2, SESSION, "r4"),
        ("gitlab", 1, SESSION, "u11"),
        ("gitlab", 1, OPENCODE_SESSION, "m01"),
    ]
    assert key not in printed
    assert token not in printed
    assert value(tmp_path, "keep", "--secrets", "--agent", "codex") == []
    assert "No keys" in run(tmp_path, "keep", "--secrets", "--agent", "codex")


def test_some_sessions_are_left_out_when_asked(tmp_path: Path) -> None:
    home = tmp_path / "home"
    claude_file(home, as_bytes(CLAUDE))
    old = codex_file(home, as_bytes(CODEX))
    run(tmp_path, "keep", "--exclude", "/src/*")
    assert value(tmp_path, "sessions") == []
    os.utime(old, (1, 1))
    run(tmp_path, "keep", "--since", "1d", "--agent", "codex")
    assert value(tmp_path, "sessions") == []
    run(tmp_path, "keep", "--since", "1d")
    assert [row["agent"] for row in value(tmp_path, "sessions")] == ["claude-code"]


@pytest.mark.guard
def test_a_watcher_keeps_what_comes_and_is_the_only_one(tmp_path: Path) -> None:
    home = tmp_path / "home"
    path = claude_file(home, as_bytes(CLAUDE[:6]))
    with process(tmp_path, "keep", "--watch") as watcher:
        assert watcher.stdout is not None
        try:
            assert watcher.stdout.readline().split() == ["claude-code", "6", "lines"]
            with path.open("ab") as stream:
                stream.write(as_bytes(CLAUDE[6:9]))
            assert watcher.stdout.readline().split() == ["claude-code", "3", "lines"]
            codex_file(home, as_bytes(CODEX[:11]))
            assert watcher.stdout.readline().split() == ["codex", "11", "lines"], "a session that is new"
            for number, lines in ((2, "2"), (5, "3")):
                opencode_file(home, OPENCODE[:number], number)
                assert watcher.stdout.readline().split() == ["opencode", lines, "lines"], "a database, and what comes"
            with process(tmp_path, "keep", "--watch") as second:
                assert f"process {watcher.pid} is watching" in second.communicate(timeout=60)[1]
            assert second.returncode == 1
        finally:
            watcher.send_signal(signal.SIGTERM)
        assert watcher.wait(60) == 0
    assert run(tmp_path, "export", SESSION, "--format", "claude").encode() == as_bytes(CLAUDE[:9])


@pytest.mark.soak
def test_whoever_is_killed_keeps_each_line_once(tmp_path: Path) -> None:
    """Killed at points that are drawn while the file grows: no line twice, none missing."""
    draw = random.Random(7)
    lines: list[dict[str, Any]] = []
    for number in range(3000):
        parent = f"u{number - 1}" if number else None
        lines.append(claude_entry(f"u{number}", parent, "user" if number % 2 else "assistant", f"text {number} " * 200))
    content = as_bytes(lines)
    for round_ in range(1, 11):
        claude_file(tmp_path / "home", content[: len(content) * round_ // 10])
        with process(tmp_path, "keep") as child:
            time.sleep(draw.uniform(0.3, 2.5))
            child.kill()
    run(tmp_path, "keep")

    assert run(tmp_path, "export", SESSION, "--format", "claude").encode() == content
    assert [row["messages"] for row in value(tmp_path, "sessions")] == [len(lines)]
