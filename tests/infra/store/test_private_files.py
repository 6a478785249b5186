"""All that a ledger makes belongs to its owner alone: 0600 and 0700, whatever the umask and whoever made the folder around it."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.cli_world import run

import chatledger
from chatledger import Encryption, user
from chatledger.admin import restore
from chatledger.projections.lmdb.environment import make_private_file


@pytest.fixture(params=[0o000, 0o022], ids=["umask 000", "umask 022"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A folder of others, who may enter it and read what they find."""
    before = os.umask(request.param)
    tmp_path.chmod(0o755)
    try:
        yield tmp_path
    finally:
        os.umask(before)


def exposed(folder: Path) -> list[str]:
    """All below a folder that others may read, write or enter."""
    return [f"{path} {path.stat().st_mode:o}" for path in folder.rglob("*") if path.stat().st_mode & 0o077]


PLACES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "directory": lambda folder: {"location": folder / "above" / "data"},
    "encrypted": lambda folder: {"location": folder / "data", "encryption": Encryption(Encryption.new_key("k1"))},
    "sqlite": lambda folder: {"location": f"sqlite:///{folder}/log.db"},
    "sqlalchemy": lambda folder: {
        "location": f"sqlite+pysqlite:///{folder}/log.db",
        "index": folder / "above" / "index",
    },
    "memory": lambda folder: {"location": "memory:", "index": folder / "above" / "index"},
}


def test_a_file_that_is_there_keeps_the_locks_of_sqlite(tmp_path: Path) -> None:
    """POSIX frees all locks of a process on a file with the first descriptor of it that is closed."""
    file, journal = tmp_path / "log.db", tmp_path / "log.db-wal"
    with chatledger.open(f"sqlite:///{file}") as ledger:
        ledger.create_chat("c", "ada")
        before = journal.stat().st_ino
        make_private_file(str(file))
        # Without the locks this process believes to be the last one, and removes the journal that is written to.
        look = "import sqlite3, sys; file = sqlite3.connect(sys.argv[1]); file.execute('SELECT * FROM sqlite_master'); file.close()"
        subprocess.run([sys.executable, "-c", look, file], check=True)
        assert journal.stat().st_ino == before


@pytest.mark.guard
@pytest.mark.parametrize("kind", PLACES)
def test_files_of_ledgers(folder: Path, kind: str) -> None:
    with chatledger.open(**PLACES[kind](folder)) as ledger:
        ledger.create_chat("c", "ada")
        ledger.append("c", [user("secret " * 200_000)])
        assert exposed(folder) == []  # while it is open: journals, sockets, the server's files
    assert exposed(folder) == []


@pytest.mark.guard
def test_backups_and_what_is_restored(folder: Path) -> None:
    (folder / "backup").mkdir(mode=0o755)
    with chatledger.open(folder / "data") as ledger:
        ledger.create_chat("c", "ada")
        ledger.append("c", [user("secret")])
        ledger.backup(folder / "backup")
    restore(folder / "backup", folder / "above" / "restored")

    (folder / "backup").chmod(0o700)  # its owner's affair
    assert exposed(folder) == []


@pytest.mark.guard
def test_what_the_command_line_writes(folder: Path) -> None:
    data = folder / "data"
    with chatledger.open(data) as ledger:
        ledger.create_chat("c", "ada")
        ledger.append("c", [user("secret")])
    key = folder / "key.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", key], check=True)  # made by its owner
    for arguments in (
        ["export", "-o", folder / "chats.json"],
        ["backup", folder / "backup"],
        ["keys", "add", "bob", "--all-users"],
        ["anchor", "--key", key, "--out", folder / "anchor.json"],
        ["doctor", "--repair"],
        ["rebuild"],
    ):
        assert run(*arguments, at=data).exit_code == 0, arguments
    key.unlink()
    assert exposed(folder) == []


@pytest.mark.guard
@pytest.mark.parametrize("folder", [0o000], indirect=True)
def test_what_serving_makes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "tmp").mkdir(mode=0o700)
    monkeypatch.setenv("TMPDIR", str(folder / "tmp"))
    command = [sys.executable, "-m", "chatledger", "-l", str(folder / "data"), "serve", "--port", "0", "--workers", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        assert httpx.post(f"{url}/api/v1/chats", json={"id": "c"}, timeout=60).status_code == 201
        assert "chatledger_" in httpx.get(f"{url}/metrics").text
        open_files = exposed(folder)
        process.terminate()
        assert process.wait(60) == 0
    assert open_files == exposed(folder) == []
