"""Schemathesis against the OpenAPI document of the native API: no 5xx, and no answer that is not documented."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from tests.support.http_world import serving

import chatledger
from chatledger.server import create_app

SUPPORT: Final = Path(__file__).parents[3] / "support"
SEED: Final = 1


FEW: Final = ("--include-tag", "chats", "--include-tag", "live", "--include-tag", "history")


def run(tmp_path: Path, phases: str, *more: str, count: int) -> None:
    """Run phases with so many examples of each operation, against a ledger in memory."""
    with serving(create_app(chatledger.open_async("memory:"), enable=["api"])) as url:
        done = subprocess.run(
            [
                str(Path(sys.executable).with_name("schemathesis")),
                *["--config-file", str(SUPPORT / "schemathesis.toml")],
                *["run", f"{url}/openapi.json", "--url", url, *more],
                *["--phases", phases, "--max-examples", str(count), "--seed", str(SEED), "--continue-on-failure"],
                # It asks again for the ids of runs that it had made, and cannot use those with a slash: its draw, not our answer.
                "--suppress-health-check=filter_too_much",
                # Positions beyond the log, or ids of states, break rules that a schema cannot tell.
                *["--exclude-checks", "positive_data_acceptance", "--warnings", "off", "--no-color"],
            ],
            cwd=tmp_path,
            env=os.environ | {"SCHEMATHESIS_HOOKS": "tests.support.schemathesis_hooks", "PYTHONPATH": path()},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr


def path() -> str:
    """Where the hooks are found, before what was there."""
    return os.pathsep.join([str(SUPPORT.parents[1]), os.environ.get("PYTHONPATH", "")])


@pytest.mark.soak
def test_an_example_of_some_operations(tmp_path: Path) -> None:
    """The rest takes seconds."""
    run(tmp_path, "fuzzing", *FEW, count=1)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_all_phases(tmp_path: Path) -> None:
    """Examples, the edges of each parameter, generated values, and sequences of operations."""
    run(tmp_path, "examples,coverage,fuzzing,stateful", count=25)
