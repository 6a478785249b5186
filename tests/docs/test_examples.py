"""The examples of the documentation run, each page in a directory and a process of its own, as if a reader typed along."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Final

import pytest
from tests.docs.page import PAGES, is_generated, page_name

from chatledger.infra.log.nats_server.launcher import find_nats_server

RUNNER: Final = Path(__file__).with_name("page.py")
FILES: Final = Path(__file__).with_name("files")
TOKEN: Final = "s3cret"
_GIVEN: Final = re.compile(r"^<!-- given: (\S+) -->$", re.MULTILINE)
_NEEDS: Final = re.compile(r"^<!-- needs: (\S+) -->$", re.MULTILINE)


@pytest.fixture
def nats_url(tmp_path: Path) -> Generator[str]:
    """A real server, not the embedded one: the address with its token, as the pages take it from NATS_URL."""
    folder = tmp_path / "nats"
    folder.mkdir()
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [
                find_nats_server(),
                "-js",
                "-sd",
                folder,
                "-a",
                "127.0.0.1",
                "-p",
                "-1",
                "--auth",
                TOKEN,
                "--ports_file_dir",
                folder,
            ],
            stdout=log,
            stderr=log,
        )
    try:
        yield f"nats://{TOKEN}@127.0.0.1:{_port(folder / f'nats-server_{server.pid}.ports')}"
    finally:
        server.terminate()
        server.wait(30)


@pytest.fixture
def memory() -> Generator[Path]:
    """A folder in memory, for the indexes of encrypted ledgers."""
    with tempfile.TemporaryDirectory(prefix="chatledger-docs-", dir="/dev/shm") as folder:
        yield Path(folder)


def _port(file: Path) -> int:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        found = re.search(r"nats://[^\"]*:(\d+)", file.read_text()) if file.exists() else None
        if found is not None:
            return int(found[1])
        time.sleep(0.01)
    msg = "the server did not start"
    raise TimeoutError(msg)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page_name(page), marks=pytest.mark.soak)
        # The one with the most commands first: begun at the end, it would keep all other workers waiting.
        for page in sorted(PAGES, key=lambda page: page.read_text(encoding="utf-8").count("\n$ "), reverse=True)
        if not is_generated(page)
    ],
)
def test_examples_run(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Each page in a directory and a process of its own, as if a reader typed along; where the modules are that it needs."""
    text = page.read_text(encoding="utf-8")
    for needed in _NEEDS.findall(text):
        pytest.importorskip(needed)
    desk = tmp_path / "desk"
    desk.mkdir()
    for given in _GIVEN.findall(text):
        shutil.copy(FILES / given, desk / given)
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("CHATLEDGER_", "XDG_"))}
    environment |= {
        "PATH": os.pathsep.join([sysconfig.get_path("scripts"), environment["PATH"]]),
        "HOME": str(tmp_path),
        "NO_COLOR": "1",
        "PYTHONUTF8": "1",
    }
    if "NATS_URL" in text:
        environment["NATS_URL"] = request.getfixturevalue("nats_url")
    if "Encryption(" in text:
        environment["CHATLEDGER_RUNTIME_DIR"] = str(request.getfixturevalue("memory"))
    done = subprocess.run(
        # Python ignores warnings of imports unless it is asked; CrewAI's own modules have some.
        [sys.executable, "-W", "error", "-W", "ignore::ImportWarning", RUNNER, page],
        cwd=desk,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
