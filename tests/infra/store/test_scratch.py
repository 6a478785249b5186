"""Scratch folders go with their process, also with one that was killed; those of living processes stay."""

import contextlib
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from tests.support.proof_world import SqliteFile, fill

import chatledger
from chatledger.infra.store import temp_folders
from chatledger.infra.store.temp_folders import Scratch

_TAKING = """
import signal, sys
from pathlib import Path
from chatledger.infra.store.temp_folders import Scratch

taken = Scratch(Path(sys.argv[1])).take()
(taken.path / "data.mdb").write_bytes(b"an index")
print("taken", flush=True)
signal.pause()
"""
_VERIFYING = """
import os, signal, sys
import chatledger
from chatledger.projections.verify import verification

def die(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)

verification.Walk.finish = die
with chatledger.open(sys.argv[1]) as ledger:
    ledger.verify()
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder of the system for this test alone."""
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    yield place
    assert list(place.iterdir()) == []


@contextlib.contextmanager
def _holding(base: Path) -> Generator[None]:
    """Another process that takes a folder, writes into it, and is killed in the end."""
    with subprocess.Popen([sys.executable, "-c", _TAKING, str(base)], stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == b"taken\n"
            yield
        finally:
            other.kill()


@pytest.mark.soak
def test_only_what_nobody_holds_is_removed(tmp_path: Path) -> None:
    """Folders of dead processes go; those of this one, of another one, and what only has such a name stay."""
    with _holding(tmp_path):
        pass
    with _holding(tmp_path), Scratch(tmp_path).folder() as ours:
        (tmp_path / "chatledger-other").mkdir()
        (tmp_path / "chatledger-scratch-file").touch()
        (tmp_path / "chatledger-scratch-link").symlink_to(tmp_path / "chatledger-other")
        before = set(tmp_path.iterdir())
        (abandoned,) = Scratch(tmp_path).abandoned()
        Scratch(tmp_path).remove_abandoned()
        assert set(tmp_path.iterdir()) == before - {abandoned}
        assert ours.exists()
    assert not ours.exists()

    Scratch(tmp_path).remove_abandoned()
    assert {path.name for path in tmp_path.iterdir()} == {
        "chatledger-other",
        "chatledger-scratch-file",
        "chatledger-scratch-link",
    }


@pytest.mark.soak
def test_a_killed_verify_is_tidied_up_by_the_next(temporary: Path, tmp_path: Path) -> None:
    """Its copy of the index does not stay in the temporary folder."""
    file = SqliteFile(tmp_path)
    with chatledger.open(file.location) as ledger:
        fill(ledger)
    died = subprocess.run([sys.executable, "-c", _VERIFYING, file.location], check=False)
    (left,) = temporary.iterdir()

    assert died.returncode == -signal.SIGKILL
    assert list(left.iterdir())
    with chatledger.open(file.location) as ledger:
        ledger.verify()
    assert not left.exists()


def test_one_that_is_removed_before_it_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between making a folder and locking it another process may take it for an abandoned one: then another one is made."""
    made: list[Path] = []
    original = temp_folders._lock  # pyright: ignore[reportPrivateUsage]

    def late(path: Path) -> int:
        made.append(path)
        if len(made) == 1:
            shutil.rmtree(path)
        return original(path)

    monkeypatch.setattr(temp_folders, "_lock", late)
    with Scratch(tmp_path).folder() as folder:
        assert folder == made[1]
        assert list(tmp_path.iterdir()) == [folder]


def test_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a file system that has none, folders are made and removed, and none counts as abandoned."""

    def refuse(path: Path) -> int:
        raise OSError(95, "no locks")

    monkeypatch.setattr(temp_folders, "_lock", refuse)
    with Scratch(tmp_path).folder() as folder:
        assert Scratch(tmp_path).abandoned() == []
        assert oct(folder.stat().st_mode & 0o777) == "0o700"
    assert list(tmp_path.iterdir()) == []


def test_a_ledger_in_memory_is_not_taken_for_dead(temporary: Path) -> None:
    """Its index is such a folder, for as long as it is open."""
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("c", "u")
        with chatledger.open("memory:") as other:
            other.verify()
        assert len(list(temporary.iterdir())) == 1
        assert ledger.get_chat("c") is not None
