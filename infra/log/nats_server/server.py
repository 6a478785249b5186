"""The embedded server as callers see it: owned by this process, or shared with the process that owns it."""

import contextlib
import os
import secrets
import signal
import threading
import time
from collections.abc import Callable, Generator
from typing import Self

import msgspec

from chatledger.domain.errors import ConfigurationError, LedgerLockedError

from ..nats.endpoint import Endpoint
from .directory import FORMAT, DataDirectory, Durability, EndpointRecord, OwnerLock, pid_space
from .erasures import erasing, finish_interrupted_erasures
from .launcher import SYNC_INTERVALS, ServerProcess, get_command, is_server, is_stopped, make_token
from .preflight import check_store
from .seals import Sealer

RETRY_S = 0.02


class EmbeddedServer:
    """
    A running server on a data directory, from `acquire` until `close`. Safe to use from any thread.

    Attributes:
        endpoint: Where it is and how to log in.
        is_owner: Whether this process started it. The server ends with its owner; the others then call `acquire`
            again, and one of them becomes the owner.
        server_pid: Its process id, in the PID namespace of the owner.
        durability: What it runs with, which may be more than was asked for.
    """

    def __init__(
        self,
        record: EndpointRecord,
        *,
        directory: DataDirectory,
        process: ServerProcess | None,
        lock: OwnerLock | None,
        sealer: Sealer | None = None,
    ) -> None:
        self.endpoint = Endpoint(urls=(record.url,), token=record.token, server_name=record.server_name)
        self.is_owner = process is not None
        self.server_pid = record.server_pid
        self.durability: Durability = record.durability
        self.directory = directory
        self._record = record
        self._process = process
        self._lock = lock
        self._sealer = sealer
        self.is_settled = False
        """Whether this process ended the server cleanly, and all that it stored is on the disk."""
        self._pid = os.getpid()
        self._closing = threading.Lock()
        self._is_closed = False

    @classmethod
    def acquire(
        cls,
        directory: DataDirectory,
        *,
        durability: Durability,
        stream: str,
        timeout_s: float = 30,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> "EmbeddedServer":
        """
        Start the server of this directory, or attach to the live one. Blocks; any thread will do.

        Args:
            directory: Created when absent.
            durability: "always" syncs before every acknowledgement; "fast" may lose the last second when the
                operating system crashes, and nothing when only processes do.
            stream: The stream that holds the log; the same for all processes.
            timeout_s: How long to wait for another process that has the lock. A server of our own that still
                recovers a large store is waited for regardless.
            meanwhile: Called while a server of our own starts.

        Raises:
            ConfigurationError: The directory cannot be used, nats-server is missing, or the live server is less
                durable than asked or holds another stream.
            UnsupportedFormatError: A newer chatledger wrote the directory.
            LedgerLockedError: Somebody has the lock, and no server answered in time.
            LogUnavailableError: The server could not be started; the message quotes its log.
            CorruptStateError, ChainIntegrityError: The files of the log are damaged, see `check_store`; nothing was changed.
        """
        if durability not in SYNC_INTERVALS:
            msg = f'durability is {durability!r}; choose "always" or "fast"'
            raise ConfigurationError(msg)
        directory.prepare()
        deadline = time.monotonic() + timeout_s
        ended_orphans: set[str] = set()
        while True:
            # At each round: the owner may end while we wait, and whoever is first takes over.
            lock = OwnerLock.try_take(directory.lock_file)
            if lock is not None:
                return cls._start(directory, durability=durability, stream=stream, lock=lock, meanwhile=meanwhile)
            record = directory.read_endpoint()
            if record is not None and _is_orphan(record):
                # Told once, and only a server that answers under its name: the number may be another process's by now.
                if record.server_name not in ended_orphans and is_server(record.url, record.server_name):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(record.server_pid, signal.SIGTERM)
                    ended_orphans.add(record.server_name)
            elif record is not None and is_server(record.url, record.server_name):
                _require_match(record, durability=durability, stream=stream)
                return cls(record, directory=directory, process=None, lock=None)
            if time.monotonic() > deadline:
                raise LedgerLockedError(_explain_lock(directory, record, timeout_s))
            time.sleep(RETRY_S)

    @classmethod
    def _start(
        cls,
        directory: DataDirectory,
        *,
        durability: Durability,
        stream: str,
        lock: OwnerLock,
        meanwhile: Callable[[], object],
    ) -> "EmbeddedServer":
        process = sealer = None
        try:
            directory.make_log()
            # Before any server runs: one that meets a damaged record drops what follows, and gives the positions out again.
            sealer = Sealer(directory, check_store(directory, stream))
            directory.remove_traces()
            # Before a server starts, which could not tell any more what was deleted and not overwritten.
            finish_interrupted_erasures(directory)
            sealer.begin()
            server_name, token = f"cl-{secrets.token_hex(8)}", make_token()
            process, url = ServerProcess.start(
                directory,
                server_name=server_name,
                token=token,
                durability=durability,
                lock_descriptor=lock.descriptor,
                meanwhile=meanwhile,
            )
            record = EndpointRecord(
                format=FORMAT,
                url=url,
                token=token,
                server_name=server_name,
                owner_pid=os.getpid(),
                server_pid=process.pid,
                durability=durability,
                stream=stream,
                pid_space=pid_space(),
            )
            # Last: whoever reads it connects at once.
            directory.write(directory.endpoint_file, msgspec.json.encode(record))
            return cls(record, directory=directory, process=process, lock=lock, sealer=sealer)
        except BaseException:
            # A lock that stays behind would lock this very process out of its next attempt.
            if process is not None:
                process.stop()
            if sealer is not None:
                sealer.stop()
            lock.release()
            raise

    def is_alive(self) -> bool:
        """Whether the server runs; for one that another process owns, whether it answers under its name."""
        if self._is_closed:
            return False
        # A fork has a copy of the object, and no child of that number.
        if self._process is not None and os.getpid() == self._pid:
            return self._process.is_running
        return is_server(self._record.url, self._record.server_name)

    def close(self, *, on_settled: Callable[[], object] | None = None) -> None:
        """
        Stop the server and wait until it has ended, if this process owns it. Safe to call again.

        Close the clients first: appends that have not been acknowledged have an unknown outcome. `on_settled` is called while
        nobody else can have the directory yet, where the server ended cleanly, and all that it stored is on the disk.
        """
        if os.getpid() != self._pid:  # a fork of the owner: the server is not its own
            return
        with self._closing:
            if self._is_closed:
                return
            if self._process is not None and self._lock is not None:
                # First the endpoint: nobody may attach to a server that is about to end.
                with contextlib.suppress(OSError):
                    self.directory.endpoint_file.unlink(missing_ok=True)
                if self._sealer is not None:
                    self._sealer.stop()
                # Killed, it leaves no index of its blocks, and the next start scans all of them.
                is_clean = self._process.stop()
                self.is_settled = is_clean and self._sealer is not None and self._sealer.finish()
                try:
                    if self.is_settled and on_settled is not None:
                        on_settled()
                finally:
                    self._lock.release()
            self._is_closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _is_orphan(record: EndpointRecord) -> bool:
    """
    Whether the owner is dead and its server is not.

    The process id alone proves nothing: it may have been reused, or belong to another PID namespace, as for two
    containers that share a volume. Only a process that carries this start's random name is that server.
    """
    if get_command(record.owner_pid) is not None:
        return False
    command = get_command(record.server_pid)
    return command is not None and record.server_name in command


def _require_match(record: EndpointRecord, *, durability: Durability, stream: str) -> None:
    # The other way round is fine: the server does more than was asked for.
    if durability == "always" and record.durability != "always":
        msg = (
            f"the live server of {record.owner} runs with durability {record.durability!r}, "
            f"less than {durability!r}; close it, or open with the same durability"
        )
        raise ConfigurationError(msg)
    if stream != record.stream:
        msg = f"the live server of {record.owner} holds the log in stream {record.stream!r}, not in {stream!r}"
        raise ConfigurationError(msg)


def _explain_lock(directory: DataDirectory, record: EndpointRecord | None, timeout_s: float) -> str:
    lock = directory.lock_file
    if record is not None and record.has_our_pids and is_stopped(record.server_pid):
        return (
            f"the server of {directory.path} (process {record.server_pid}) is stopped; waited {timeout_s:g} s for it to go on. "
            f"`kill -CONT {record.server_pid}` lets it; then open again"
        )
    busy = f"waited {timeout_s:g} s. It may be busy: open again with a longer timeout_s. If it hangs, end that process"
    if record is not None and not record.has_our_pids:
        return (
            f"{record.owner} holds {lock}, and its server does not answer here; {busy} there, then open again. Containers that share "
            "a directory at the same time need one network namespace"
        )
    reason = (
        "and has not published a server"
        if record is None
        else f"(process {record.owner_pid}), and its server (process {record.server_pid}) does not answer"
    )
    return f"another process holds {lock} {reason}; {busy}, then open again; `fuser {lock}` names it"


class EmbeddedSource:
    """
    The embedded server of a directory: the first call starts it, or finds the one of another process.

    Called before each connection, it takes over when the process that ran the server has ended.
    """

    def __init__(
        self,
        directory: DataDirectory,
        *,
        durability: Durability,
        stream: str,
        timeout_s: float = 30.0,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> None:
        self.directory, self._stream, self._timeout_s, self._meanwhile = directory, stream, timeout_s, meanwhile
        self._durability: Durability = durability
        self._server: EmbeddedServer | None = None
        self._thread = threading.local()

    def __call__(self) -> Endpoint:
        """
        The endpoint of a live server.

        Raises:
            ConfigurationError, LedgerLockedError, LogUnavailableError: See `EmbeddedServer.acquire`.
        """
        if self._server is not None and self._server.is_alive():
            return self._server.endpoint
        self.close()
        self._server = EmbeddedServer.acquire(
            self.directory,
            durability=self._durability,
            stream=self._stream,
            timeout_s=self._timeout_s,
            meanwhile=self._meanwhile,
        )
        return self._server.endpoint

    @property
    def is_synced(self) -> bool:
        """Whether the server syncs what it acknowledges before it does."""
        return self._server is not None and self._server.durability == "always"

    def sync_messages(self, stream: str) -> None:
        """
        Bring the last messages of a stream to the disk, unless the server syncs each.

        Raises:
            LogUnavailableError: They could not be synced.
        """
        if not self.is_synced:
            self.directory.sync_messages(stream)

    @contextlib.contextmanager
    def erasing(self) -> Generator[None]:
        """
        Entered while messages are erased; see `erasures.erasing`. A thread that has entered it may do so again.

        Raises:
            LogUnavailableError: It could not be noted; nothing was erased.
        """
        if getattr(self._thread, "is_erasing", False):
            yield
            return
        with erasing(self.directory):
            self._thread.is_erasing = True
            try:
                yield
            finally:
                self._thread.is_erasing = False

    def close(self, *, on_settled: Callable[[], object] | None = None) -> bool:
        """Stop the server if this process runs it; whether it did, and all that the server stored is on the disk. See `EmbeddedServer.close`."""
        server, self._server = self._server, None
        if server is None:
            return False
        server.close(on_settled=on_settled)
        return server.is_settled
