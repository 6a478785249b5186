"""The health of a server and its process, seen from outside: names, refusals, signs of life, memory."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from chatledger.domain.errors import DECODE_ERRORS

FLOOR_BYTES: Final = 2 << 30
"""The memory that the server of any log may take. That of an ordinary log needs far less: 0.3 GB for a million events in 20,000 chats,
0.4 GB for a million chats."""
_TIMES_THE_LOG: Final = 2


def excess_of(pid: int, log: Path) -> str | None:
    """Return a warning when a server takes more memory than a sound log of that size needs; None else, or when it is unknown."""
    try:
        taken = int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):  # it has ended, or this is another system
        return None
    # Looked at first: to add up the files of a large log takes longer.
    if taken <= FLOOR_BYTES:
        return None
    size = sum(path.stat().st_size for path in log.rglob("*") if path.is_file())
    if taken <= FLOOR_BYTES + _TIMES_THE_LOG * size:
        return None
    return f"{taken / 1e9:.1f} GB of memory for a log of {size / 1e6:,.1f} MB"


PROBE_TIMEOUT_S = 2.0
MAX_LINE_BYTES = 65_536


class ServerInfo(msgspec.Struct, frozen=True):
    """The part of the server's INFO that identifies it."""

    server_name: str


def get_server_info(url: str) -> ServerInfo | None:
    """The first line that the server at `url` sends to everybody who connects; None when nobody answers properly."""
    try:
        with _connect(url) as connection, connection.makefile("rb") as lines:
            line = lines.readline(MAX_LINE_BYTES)
            return msgspec.json.decode(line[5:], type=ServerInfo) if line.startswith(b"INFO ") else None
    except (OSError, ValueError, *DECODE_ERRORS):  # a port that cannot be one is a ValueError
        return None


def is_server(url: str, name: str) -> bool:
    """Return whether the server at `url` answers, and has that name."""
    info = get_server_info(url)
    return info is not None and info.server_name == name


def is_stranger_refused(url: str) -> bool:
    """Whether the server at `url` turns a connection without a token away. OSError when it does not answer."""
    with _connect(url) as connection, connection.makefile("rb") as lines:
        # A limit, as anybody may listen there.
        lines.readline(MAX_LINE_BYTES)
        connection.sendall(b'CONNECT {"verbose":false,"pedantic":false}\r\nPING\r\n')
        return lines.readline(MAX_LINE_BYTES).startswith(b"-ERR 'Authorization")


def get_command(pid: int) -> str | None:
    """The command line of a process that is alive for us, None otherwise; a zombie is not alive."""
    if sys.platform == "linux":
        state = _state(pid)
        try:
            # Empty for a zombie, but also in the middle of an `execve`: the state decides, not the arguments.
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            return None
    else:
        listing = subprocess.run(  # noqa: S603 - fixed arguments and a number
            ["/bin/ps", "-o", "stat=", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
        )
        state, _, command = listing.stdout.strip().partition(" ")
    return None if state[:1] in {"", "Z", "X"} else command.strip()


def is_stopped(pid: int) -> bool:
    """Whether a process was stopped by a signal (SIGSTOP) or a debugger, and may go on; False where that cannot be known."""
    return _state(pid)[:1] in {"T", "t"}


def _state(pid: int) -> str:
    """The state of a process on Linux, and what follows it in `/proc/<pid>/stat`; empty where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].strip()
    except OSError:
        return ""


def _connect(url: str) -> socket.socket:
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname or "", parts.port or 0), timeout=PROBE_TIMEOUT_S)
