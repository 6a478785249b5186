"""The world of tests of encrypted ledgers: a place in memory that is taken away after the test, and looking for clear text."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.support.files_in_clear import in_clear

from chatledger import Encryption
from chatledger.infra.store.temp_folders import RUNTIME_DIR_ENV

MEMORY: Final = Path("/dev/shm")
KEY: Final = Encryption.new_key("k1")
SECRETS: Final = {
    "message": "the password is swordfish",
    "title": "Dinner with Ophelia",
    "metadata": "oysters",
    "actor": "detective-marlowe",
    "user": "user-hamlet",
    "branch": "elsinore",
    "checkpoint": "yorick",
}
"""Texts that `fill` writes, none of which may be found on a disk."""


@pytest.fixture
def in_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder in memory that indexes of encrypted logs are put in during the test, also by other processes."""
    if not MEMORY.is_dir():
        pytest.skip("this machine has no /dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="chatledger-test-", dir=MEMORY))
    monkeypatch.setenv(RUNTIME_DIR_ENV, str(folder))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def found_in(folder: Path, secrets: dict[str, str] = SECRETS) -> set[str]:
    """Which of the secrets stand in clear in a file, or in the name of one, below a folder."""
    found: set[str] = set()
    for file in folder.rglob("*"):
        content = in_clear(file.read_bytes()) if file.is_file() else b""
        for what, secret in secrets.items():
            forms = [secret.encode(), secret.encode("utf-16-le"), secret.encode().hex().encode()]
            if secret in str(file) or any(form in content for form in forms):
                found.add(what)
    return found
