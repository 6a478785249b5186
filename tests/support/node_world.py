"""Programs in Node, with packages of the registry, which are installed once for each list of them."""

import json
import os
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from platformdirs import user_cache_path

needs_node = pytest.mark.skipif(shutil.which("npm") is None, reason="Node is not installed")

_INSTALL_S = 150
_RUN_S = 60


def installed(*packages: str) -> Path:
    """A folder with these packages, such as `openai@6`; it is kept between runs."""
    name = sha256(" ".join(packages).encode()).hexdigest()[:16]
    folder = user_cache_path("chatledger-tests") / f"node-{name}"
    if (folder / "complete").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_text('{"private": true}')
    command = ["npm", "install", "--no-audit", "--no-fund", "--no-progress", *packages]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_INSTALL_S, check=False)
    if done.returncode:
        pytest.skip(f"the packages cannot be installed: {done.stderr[-300:]}")
    (folder / "complete").touch()
    return folder


def run_node(folder: Path, script: str, *arguments: str) -> Any:
    """Run a module with the packages of a folder, and return the JSON that it prints."""
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    done = subprocess.run(
        ["node", "--input-type=module", "--eval", script, "--", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_RUN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
