"""Programs of JavaScript, with packages that are installed once."""

import os
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest

_TIMEOUT_S = 120


def run_node(program: Path, *arguments: str, packages: tuple[str, ...]) -> str:
    """What a program prints; the test is skipped where there is no Node, or its packages cannot be had."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("there is no Node")
    folder = _installed(npm, packages)
    script = folder / program.name
    script.write_bytes(program.read_bytes())
    done = subprocess.run([node, script, *arguments], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _installed(npm: str, packages: tuple[str, ...]) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "chatledger-tests" / sha256(" ".join(packages).encode()).hexdigest()[:16]
    if not (folder / "installed").exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), *packages]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        if done.returncode != 0:
            pytest.skip(f"npm cannot install {', '.join(packages)}: {done.stderr[-300:]}")
        (folder / "installed").touch()
    return folder
