"""The world of tests of the command line: running it, in this process and in one of its own, and sample data."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import chatledger
from chatledger.infra.entrypoints.cli import cli
from chatledger.infra.entrypoints.cli.options import LOCATION_ENV
from chatledger.infra.entrypoints.demo import sample_file

TIMEOUT_S = 60


def run(*args: str | Path, at: Path | None = None) -> Result:
    """The command line in this process."""
    location = [] if at is None else ["--location", str(at)]
    result = CliRunner(env={LOCATION_ENV: None}).invoke(cli, [*location, *map(str, args)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def ask(*args: str | Path, at: Path) -> Any:
    """Return what a command prints with `--json`, which is all of stdout."""
    result = run(*args, "--json", at=at)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def ask_lines(*args: str | Path, at: Path) -> list[dict[str, Any]]:
    """Return what a command prints with `--json`, one object a line."""
    result = run(*args, "--json", at=at)
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def fails(code: int, *args: str | Path, at: Path | None = None) -> str:
    """The one line on stderr of a command that must fail, and print nothing else."""
    result = run(*args, at=at)
    lines = result.stderr.splitlines()
    assert result.exit_code == code, result.stderr
    assert not result.stdout
    assert len(lines) == 1, lines
    assert lines[0].startswith("error: ")
    return lines[0].removeprefix("error: ")


def start(*args: str | Path, start_new_session: bool = False, **environment: str) -> subprocess.Popen[str]:
    """The command line in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "chatledger", *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        start_new_session=start_new_session,
        env={name: value for name, value in os.environ.items() if name != LOCATION_ENV} | environment,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr."""
    with process:
        try:
            out, err = process.communicate(timeout=TIMEOUT_S)
        except BaseException:
            process.kill()
            raise
    return process.returncode, out, err


@pytest.fixture(scope="session")
def imported_samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed ledger with the sample conversations, to be copied."""
    location = tmp_path_factory.mktemp("samples") / "data"
    with sample_file() as path:
        result = run("import", path, at=location)
    assert result.exit_code == 0, result.stderr
    return location


@pytest.fixture
def samples(imported_samples: Path, tmp_path: Path) -> Iterator[Path]:
    """A ledger with the sample conversations, open in this process: commands need not start its server each time."""
    location = tmp_path / "data"
    shutil.copytree(imported_samples, location)
    with chatledger.open(location):
        yield location


def write_lines(path: Path, *rows: Any) -> Path:
    """A file with one JSON value a line; texts as they are."""
    lines = (row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def oasst_row(message_id: str, parent_id: str | None = None, *, tree: str = "tree", **fields: Any) -> dict[str, Any]:
    """A line of an OpenAssistant message file."""
    return {
        "message_id": message_id,
        "parent_id": parent_id,
        "message_tree_id": tree,
        "role": "prompter" if parent_id is None else "assistant",
        "text": f"text of {message_id}",
    } | fields
