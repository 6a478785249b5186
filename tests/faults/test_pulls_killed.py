"""Pulls of processes that are killed, and over links that break: the next ones bring what is missing, and all ledgers come to tell the same."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.faults.nursery import ROOT


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("kind", "schedules"),
    [
        pytest.param("sqlite", 4, marks=pytest.mark.guard),
        pytest.param("sqlite", 400, marks=pytest.mark.soak),
        pytest.param("directory", 40, marks=pytest.mark.soak),
    ],
)
def test_all_come_to_have_the_same(tmp_path: Path, kind: str, schedules: int) -> None:
    command = [sys.executable, "-m", "tests.faults.killed_pulls", str(tmp_path), kind, "0", str(schedules)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    seen = json.loads(run.stdout)
    assert not seen["failed"], f"{seen['failed']}\n{run.stderr}"
    assert seen["schedules"] == schedules
    assert seen["killed"], "some have died"
