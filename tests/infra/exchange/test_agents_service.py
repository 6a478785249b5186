"""`keep --install` and `--uninstall`: what they write into a home, that it runs, and that nothing is left of it."""

import os
import plistlib
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.support.coding_agents import CLAUDE, as_bytes, claude_file

import chatledger
from chatledger.domain.errors import ConfigurationError
from chatledger.infra.entrypoints.cli.app import cli
from chatledger.infra.entrypoints.cli.keep_service import install, launchd_agent, systemd_unit, uninstall

ODD = ["keep", "--exclude", "/src/a b%$x\"\\'*", "--agent", "codex"]
UNIT = ".config/systemd/user/chatledger-keep.service"
on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="units are of systemd")


def tree(folder: Path) -> Mapping[str, tuple[int, bytes | str | None]]:
    """All that a folder holds: modes, and bytes of files or aims of links."""
    return {
        str(path.relative_to(folder)): (
            path.lstat().st_mode,
            str(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else None,
        )
        for path in folder.rglob("*")
    }


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without commands in reach: the user's own systemd is not asked."""
    folder = tmp_path / "ho me--x"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("CHATLEDGER_KEEP", str(folder / "kept"))
    return folder


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments])


def test_a_service_that_would_not_have_the_key_is_not_installed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would keep in clear, or not open the ledger; and no key is written to its file."""
    monkeypatch.setenv("CHATLEDGER_ENCRYPTION_KEY", "a key")
    before = tree(home)
    refused = run(*ODD, "--install")
    assert refused.exit_code == 1
    assert "CHATLEDGER_ENCRYPTION_KEY is set" in refused.stderr
    assert tree(home) == before
    monkeypatch.delenv("CHATLEDGER_ENCRYPTION_KEY")
    assert run(*ODD, "--install").exit_code == 0
    monkeypatch.setenv("CHATLEDGER_ENCRYPTION_KEY", "a key")
    assert run(*ODD, "--uninstall").exit_code == 0, "which needs none"
    assert tree(home) == before


@on_linux
@pytest.mark.parametrize("has_units", [False, True], ids=["an empty home", "a home with units"])
def test_what_is_installed_is_removed_without_a_trace(home: Path, has_units: bool) -> None:  # noqa: FBT001 - a parameter
    if has_units:
        other = home / ".config/systemd/user/default.target.wants/other.service"
        other.parent.mkdir(parents=True)
        other.symlink_to("/usr/lib/systemd/user/other.service")
    before = tree(home)
    dry = run(*ODD, "--install", "--dry-run")
    assert (dry.exit_code, tree(home)) == (0, before)
    first = run(*ODD, "--install")
    installed = tree(home)
    written = (home / UNIT).stat().st_mtime_ns
    again = run(*ODD, "--install")

    assert (first.exit_code, again.exit_code) == (0, 0), first.output
    assert dry.stdout in first.stdout, "it shows what it writes"
    assert all(line in first.stdout for line in (home / UNIT).read_text().splitlines())
    assert "already" in again.stdout
    assert (tree(home), (home / UNIT).stat().st_mtime_ns) == (installed, written)
    assert (home / UNIT).stat().st_mode & 0o777 == 0o600
    assert run("keep", "--install", "--redact").exit_code == 0
    assert "--redact" in (home / UNIT).read_text(), "other options take the place of those before"
    assert run("keep", "--uninstall", "--dry-run").exit_code == 0
    assert (home / UNIT).exists()
    assert run("keep", "--uninstall").exit_code == 0
    assert tree(home) == before
    assert "is not there" in run("keep", "--uninstall").stdout


@on_linux
@pytest.mark.parametrize("name", [UNIT, ".config/systemd/user/default.target.wants/chatledger-keep.service"])
def test_what_somebody_else_wrote_stays(home: Path, name: str) -> None:
    path = home / name
    path.parent.mkdir(parents=True)
    path.write_text("[Service]\nExecStart=/bin/true\n")
    before = tree(home)
    for option in ("--install", "--uninstall"):
        outcome = run("keep", option)
        assert tree(home) == before
        assert option == "--uninstall" or (outcome.exit_code, "move it away" in outcome.stderr) == (1, True)


@on_linux
def test_what_others_put_into_folders_of_ours_stays(home: Path) -> None:
    assert run("keep", "--install").exit_code == 0
    (home / ".config/own").write_text("mine")
    assert run("keep", "--uninstall").exit_code == 0
    assert set(tree(home)) == {".config", ".config/own"}


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not here")
def test_systemd_reads_the_unit(tmp_path: Path) -> None:
    unit = systemd_unit([sys.executable, *ODD], {"CHATLEDGER_KEEP": '/a b/%c"$x'}, tmp_path / "con fig")
    install(unit._replace(start=(("true",),)), is_dry=False)
    checked = subprocess.run(
        [str(shutil.which("systemd-analyze")), "--user", "verify", str(unit.path)],
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    # Units of the system may say something too, such as that this folder is too deep for their sockets.
    about_it = [line for line in checked.stderr.splitlines() if unit.path.name in line]
    assert (checked.returncode, about_it) == (0, []), checked.stderr


def test_a_dry_run_of_nothing_keeps_nothing(home: Path) -> None:
    claude_file(home, as_bytes(CLAUDE))
    result = run("keep", "--dry-run")

    assert result.exit_code == 2
    assert "--dry-run goes with --install or --uninstall" in result.stderr
    assert run("sessions", "--json").stdout in {"", "[]\n"}


def said_in(unit: str, name: str) -> list[list[str]]:
    """The words of a setting of a unit, as systemd takes them apart."""
    lines = [line.partition("=")[2] for line in unit.splitlines() if line.startswith(f"{name}=")]
    return [[word.replace("%%", "%").replace("$$", "$") for word in shlex.split(line)] for line in lines]


@on_linux
def test_what_the_unit_says_keeps_sessions_until_it_is_stopped(home: Path) -> None:
    claude_file(home, as_bytes(CLAUDE))
    assert run(*ODD[:-2], "--install").exit_code == 0
    unit = (home / UNIT).read_text()
    (command,) = said_in(unit, "ExecStart")
    environ = dict(word.split("=", 1) for (word,) in said_in(unit, "Environment"))
    with subprocess.Popen(command, env={"HOME": str(home), **environ}, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"claude-code  {len(CLAUDE) - 1} lines\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
    with chatledger.open(home / "kept", durability="fast") as ledger:
        assert len(ledger.list_chats()) == 1
    assert command[-2:] == ODD[1:3]


def test_an_agent_of_launchd_is_a_property_list(home: Path) -> None:
    """Its remark is a comment of XML, whatever folders it names."""
    before = tree(home)
    agent = launchd_agent([sys.executable, *ODD], {"CHATLEDGER_KEEP": "/a--b"})
    install(agent, is_dry=False)
    told = plistlib.loads(agent.path.read_bytes())

    assert told["ProgramArguments"] == [sys.executable, *ODD]
    assert told["EnvironmentVariables"] == {"CHATLEDGER_KEEP": "/a--b"}
    install(agent, is_dry=False)
    uninstall(agent, is_dry=False)
    assert tree(home) == before


def test_a_link_to_elsewhere_is_somebody_else_s(tmp_path: Path) -> None:
    unit = systemd_unit(["true"], {}, tmp_path)
    assert unit.link is not None
    unit.link.parent.mkdir(parents=True)
    unit.link.symlink_to("/usr/lib/systemd/user/other.service")
    with pytest.raises(ConfigurationError, match="move it away"):
        install(unit, is_dry=False)
    assert not unit.path.exists()
