"""The fixtures that chatledger brings along for pytest."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TESTS = """
import sys


def test_nothing_is_imported_before_it_is_asked_for():
    assert not any(name.startswith("chatledger.infra") for name in sys.modules)


def test_the_ledger_is_empty(memory_ledger):
    memory_ledger.create_chat("trip", "ada")
    assert memory_ledger.last_position() == 1


def test_each_test_has_its_own(memory_ledger):
    assert memory_ledger.list_chats() == []
"""


@pytest.mark.guard
def test_fixture_in_a_project_of_its_own(tmp_path: Path) -> None:
    """Pytest finds the plugin by the entry point, whether or not this checkout is installed anew since it was declared."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    metadata = tmp_path / "installed" / "entry_points-0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: entry-points\nVersion: 0\n")
    lines = [f"{name} = {module}" for name, module in declared.items()]
    (metadata / "entry_points.txt").write_text("\n".join(["[pytest11]", *lines]) + "\n")
    project = tmp_path / "project"
    project.mkdir()
    (project / "test_own.py").write_text(TESTS)
    path = os.pathsep.join([str(metadata.parent), str(ROOT / "src")])
    arguments = [
        "-W",
        "error",
        "-p",
        "no:langsmith_plugin",
        "-p",
        "no:asyncio",
        "-p",
        "no:schemathesis",
        "-p",
        "no:cacheprovider",
        "-q",
        ".",
    ]

    done = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        cwd=project,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout
