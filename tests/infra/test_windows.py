"""Where POSIX's modules and calls are missing, ledgers in files and in memory work, and directories are refused in words."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there the other tests show it")

ROOT = Path(__file__).parents[2]


def run_as_windows(program: str, folder: Path) -> str:
    """Output of a program, from a process in which what Windows lacks is missing."""
    whole = f"from tests.support.as_windows import become_windows\nbecome_windows()\n{program}"
    temporary = folder / "temporary"  # its own: to processes of this system, a lock of Windows on a folder is none
    temporary.mkdir()
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", whole],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(folder / "cache"), "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def run_cli(calls: str, folder: Path) -> str:
    """Output of calls of the command line, and their exit codes."""
    return run_as_windows(
        f"""
from chatledger.infra.entrypoints.cli.app import cli
import shlex
for line in {calls!r}.strip().splitlines():
    print(line, "->", cli.main(shlex.split(line), standalone_mode=False), flush=True)
""",
        folder,
    )


@pytest.mark.guard
@pytest.mark.parametrize("location", ["memory:", "sqlite:///chats.db"])
def test_ledgers_without_a_server(location: str, tmp_path: Path) -> None:
    """They are written, read, forked, searched, verified, read at an earlier moment and backed up."""
    out = run_as_windows(
        f"""
import chatledger
from chatledger import user, assistant
with chatledger.open({location!r}) as ledger:
    ledger.create_chat("c", "ada", title="Trip")
    first = ledger.append("c", [user("Where to?"), assistant("Lisbon")])
    main = ledger.get_active_branch("c").name
    ledger.fork("c", first[0].id)
    ledger.append("c", [assistant("Porto")])
    print([m.text for m in ledger.get_messages("c", branch=main)], [m.text for m in ledger.get_messages("c")])
    print(len(ledger.search("lisbon")))
    ledger.rebuild()
    ledger.verify()
    with ledger.as_of(2) as then:
        print(len(then.get_messages("c")))
    ledger.create_chat("gone", "ada")
    ledger.append("gone", [user("a secret")])
    ledger.delete_chat("gone")
    if not ledger.location.startswith("memory"):
        ledger.backup("kept")
if {location!r} != "memory:":
    with chatledger.open({location!r}) as ledger, chatledger.open({location!r}, read_only=True):
        print(len(ledger.get_messages("c")))
""",
        tmp_path,
    )

    lines = out.splitlines()
    assert lines[:2] == ["['Where to?', 'Lisbon'] ['Where to?', 'Porto']", "1"]
    assert lines[2:] == (["2"] if location == "memory:" else ["2", "2"])


@pytest.mark.guard
def test_locks_exclude(tmp_path: Path) -> None:
    """An exclusive lock keeps all others out, shared ones keep out exclusive ones, and a lock is taken anew as another kind."""
    out = run_as_windows(
        """
import os
from pathlib import Path
from chatledger.projections.operating_system import is_running, lock_file, open_folder_lock, read_at, unlock_file, write_at
a, b = (open_folder_lock(Path(".")) for _ in range(2))
def tries(descriptor, **how):
    try:
        lock_file(descriptor, **how)
    except BlockingIOError:
        return False
    return True
print(tries(a), tries(b), tries(b, is_shared=True))
print(tries(a, is_shared=True), tries(b, is_shared=True), tries(b))
os.close(a)
print(tries(b))
write_at(b, b"a\\r\\nb\\n", 3)
print(read_at(b, 9, 3), is_running(os.getpid()), is_running(1 << 22))
""",
        tmp_path,
    )
    assert out.splitlines() == ["True False False", "True True False", "True", r"b'a\r\nb\n' True False"]


@pytest.mark.guard
def test_a_directory_is_refused_in_words(tmp_path: Path) -> None:
    """Each way to a directory says what to use instead, and makes nothing."""
    out = run_as_windows(
        """
import chatledger
from chatledger import admin
for call in (
    lambda: chatledger.open("chats"),
    lambda: chatledger.open("chats", read_only=True),
    lambda: admin.diagnose("chats"),
    lambda: chatledger.open(),
):
    try:
        call()
    except chatledger.ConfigurationError as error:
        print(error)
""",
        tmp_path,
    )

    refusal = (
        "is a directory, and the server that keeps one does not run on Windows yet; use a file (sqlite:///chats.db), "
        "memory:, or a NATS server of your own (nats://host:4222)"
    )
    places = ["chats", "chats", "chats", "./chatledger-data"]
    assert out.splitlines() == [f"{place!r} {refusal}" for place in places]
    assert [path.name for path in tmp_path.iterdir()] == ["temporary"]


@pytest.mark.guard
def test_command_line(tmp_path: Path) -> None:
    """Verbs work on a file, keys of a server are kept, and a directory is refused without a traceback."""
    (tmp_path / "talk.json").write_text(
        '{"messages": [{"role": "user", "content": "Where to? \\u2192"}]}', encoding="utf-8"
    )
    out = run_cli(
        """
-l sqlite:///chats.db import talk.json
-l sqlite:///chats.db chats --json
-l sqlite:///chats.db export -o out.jsonl
-l sqlite:///chats.db verify
-l sqlite:///chats.db backup kept
-l sqlite:///chats.db keys add ada --user ada
-l sqlite:///chats.db keys list
restore kept sqlite:///again.db
doctor
chats
""",
        tmp_path,
    )

    codes = [line.rpartition(" -> ")[2] for line in out.splitlines() if " -> " in line]
    assert codes == ["0"] * 8 + ["1", "1"], out
    assert "Where to? \u2192" in (tmp_path / "out.jsonl").read_text(encoding="utf-8")
