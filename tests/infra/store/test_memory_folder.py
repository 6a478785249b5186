"""The folder in memory: found, private, and refused where it is not what it seems."""

# pyright: reportUnusedImport=false

import os
from pathlib import Path

import pytest
from tests.support.encrypted_world import MEMORY, in_memory  # noqa: F401 - a fixture

import chatledger
from chatledger import ConfigurationError, Encryption
from chatledger.infra.store import temp_folders
from chatledger.infra.store.temp_folders import Scratch, is_in_memory, memory_folder


def test_what_is_in_memory(in_memory: Path, tmp_path: Path) -> None:  # noqa: F811 - the fixture
    """Existing folders, and those that are to be made."""
    assert is_in_memory(in_memory)
    assert is_in_memory(in_memory / "to" / "be" / "made")
    (in_memory / "away").symlink_to("/")
    assert is_in_memory(in_memory / "away") == is_in_memory(Path("/"))
    (tmp_path / "here").symlink_to(in_memory)
    assert is_in_memory(tmp_path / "here")


DISKS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
23 22 0:21 / /dev/shm rw,nosuid - tmpfs tmpfs rw
24 22 0:22 / /both rw - tmpfs tmpfs rw
25 22 0:22 / /twice rw - ext4 /dev/vdb rw
26 22 0:23 / /ram rw - ramfs ramfs rw
"""


@pytest.mark.parametrize(
    ("device", "expected"),
    [((254, 0), False), ((0, 21), True), ((0, 22), False), ((0, 23), True), ((0, 99), False)],
    ids=["disk", "tmpfs", "doubtful", "ramfs", "unknown"],
)
def test_file_systems_are_told_apart(
    device: tuple[int, int],
    expected: bool,  # noqa: FBT001 - a parameter of the test
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What cannot be known to be in memory is not."""
    mounts = tmp_path / "mountinfo"
    mounts.write_text(DISKS)
    monkeypatch.setattr(temp_folders, "_MOUNTS", mounts)

    def major(_: int) -> int:
        return device[0]

    def minor(_: int) -> int:
        return device[1]

    monkeypatch.setattr(os, "major", major)
    monkeypatch.setattr(os, "minor", minor)

    assert is_in_memory(tmp_path) == expected


def test_a_system_without_proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing tells what is in memory, encryption asks for a decision, and nothing is made."""
    monkeypatch.delenv(temp_folders.RUNTIME_DIR_ENV, raising=False)
    monkeypatch.setattr(temp_folders, "_MOUNTS", tmp_path / "absent")
    with pytest.raises(ConfigurationError, match="index_at_rest='plain'"):
        chatledger.open(tmp_path / "data", encryption=Encryption(Encryption.new_key()))
    assert not (tmp_path / "data").exists()


def test_the_folder_that_was_asked_for(in_memory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811 - the fixture
    folder = memory_folder()
    assert folder == memory_folder() == in_memory / f"chatledger-{os.geteuid()}"
    assert folder.stat().st_mode & 0o777 == 0o700
    if not is_in_memory(tmp_path):
        monkeypatch.setenv(temp_folders.RUNTIME_DIR_ENV, str(tmp_path))
        with pytest.raises(ConfigurationError, match="not a folder on a file system in memory"):
            memory_folder()


@pytest.mark.parametrize("trap", ["readable", "link", "file", "foreign"])
def test_a_folder_that_others_made(trap: str, in_memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811 - the fixture
    """In a folder that everybody can write to, somebody may have been there first."""
    folder = in_memory / f"chatledger-{os.geteuid()}"
    if trap == "link":
        (in_memory / "elsewhere").mkdir(mode=0o700)
        folder.symlink_to(in_memory / "elsewhere")
    elif trap == "file":
        folder.touch(mode=0o600)
    else:
        folder.mkdir(mode=0o700)
        if trap == "readable":
            folder.chmod(0o755)
        else:
            user = os.geteuid() + 1
            monkeypatch.setattr(os, "geteuid", lambda: user)
            folder.rename(in_memory / f"chatledger-{user}")
    with pytest.raises(ConfigurationError, match=r"private folder|cannot be made"):
        memory_folder()


def test_without_a_wish(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`/dev/shm` comes before `XDG_RUNTIME_DIR`, which is taken where the other is not in memory."""
    monkeypatch.delenv(temp_folders.RUNTIME_DIR_ENV, raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    made: list[Path] = []
    memory = {MEMORY, tmp_path}

    def pretend(folder: Path) -> Path:
        made.append(folder)
        return folder

    monkeypatch.setattr(temp_folders, "_private", pretend)
    monkeypatch.setattr(temp_folders, "is_in_memory", memory.__contains__)
    memory_folder()
    memory.remove(MEMORY)
    memory_folder()
    assert made == [place / f"chatledger-{os.geteuid()}" for place in (MEMORY, tmp_path)]


def test_scratch_folders_go_away(in_memory: Path) -> None:  # noqa: F811 - the fixture
    """Also when they were removed already, or the work in them failed."""
    scratch = Scratch(memory_folder())
    with scratch.folder() as first, scratch.folder() as second:
        assert first != second
        assert first.parent == second.parent == memory_folder()
        assert first.stat().st_mode & 0o777 == 0o700
        (first / "file").touch()
        second.rmdir()
    with pytest.raises(ZeroDivisionError), scratch.folder() as third:
        raise ZeroDivisionError
    assert not third.exists()
    assert list(memory_folder().iterdir()) == []
