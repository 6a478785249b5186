"""Running a how-to page of an adapter, in the environment that has its framework."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def run_page(name: str) -> None:
    """
    Run the examples of `docs/how-to/<name>.md` in a directory and a process of their own.

    Warnings are no errors there, as they are on other pages: frameworks warn of much.
    """
    page = ROOT / "docs/how-to" / f"{name}.md"
    environment = {key: value for key, value in os.environ.items() if not key.startswith("CHATLEDGER_")}
    with tempfile.TemporaryDirectory(prefix="chatledger-page-") as folder:
        done = subprocess.run(
            [sys.executable, ROOT / "tests/docs/page.py", page],
            cwd=folder,
            env=environment | {"HOME": folder, "PYTHONUTF8": "1", "NO_COLOR": "1"},
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
    assert done.returncode == 0, done.stderr
