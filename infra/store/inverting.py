"""Processes that invert messages for the search index while this one applies the log."""

import contextlib
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from struct import Struct
from types import TracebackType
from typing import IO, Final, Self

from chatledger.domain.errors import InvalidValueError
from chatledger.projections.search.intake import BATCH_MESSAGES, Inverter

WORTH_MESSAGES: Final = 50_000
"""Processes take half a second to start: only for so many messages."""
MAX_PROCESSES: Final = 8
_QUEUED: Final = 2
"""Batches for each process: one that it inverts, and the next."""
_END_S: Final = 5.0
_LENGTH: Final = Struct(">Q")
_SERVE: Final = "from chatledger.infra.store.inverting import serve; serve()"
_logger: Final = logging.getLogger(__name__)


def usable_processes() -> int:
    """Return how many processes a build uses by default: one for each processor that this process may use, at most eight."""
    if hasattr(os, "sched_getaffinity"):
        return min(len(os.sched_getaffinity(0)), MAX_PROCESSES)
    return min(os.cpu_count() or 1, MAX_PROCESSES)


def check_processes(processes: int | None) -> int:
    """Return how many processes are asked for; the default for None. Raises `InvalidValueError` for less than one."""
    if processes is None:
        return usable_processes()
    if not isinstance(processes, int) or isinstance(processes, bool) or processes < 1:  # pyright: ignore[reportUnnecessaryIsInstance]  # users'
        msg = f"processes must be a number from 1, or None for one a processor, not {processes!r}"
        raise InvalidValueError(msg)
    return processes


class ProcessInverter(Inverter):
    """
    Inverts batches in processes of its own. A context manager: they end with it, and with this process.

    They get texts by pipes, so nothing in clear gets to a disk. Where one fails, this process does what it was to do.

    Args:
        processes: How many there are, this one included.
        share: Says which part of the log has been applied.
        worth_messages: About so many messages must be expected in all, or none is started.
        batch_messages: So many messages are inverted together.
    """

    def __init__(
        self,
        processes: int,
        *,
        share: Callable[[], float],
        worth_messages: int = WORTH_MESSAGES,
        batch_messages: int = BATCH_MESSAGES,
    ) -> None:
        self.batch_messages = batch_messages
        self._share, self._worth_messages = share, worth_messages
        # A frozen program would start itself again.
        self._count = 0 if getattr(sys, "frozen", False) or not sys.executable else processes - 1
        self._messages = 0
        self._is_ended = False
        self._under_way: set[Future[bytes]] = set()
        self._threads: ThreadPoolExecutor | None = None
        self._of_thread = threading.local()
        self.workers: list[Worker] = []

    def submit(self, batch: bytes, messages: int) -> Future[bytes] | None:
        """Implement `Inverter.submit`."""
        self._messages += messages
        if not self._count or self._messages / max(self._share(), 1e-9) < self._worth_messages:
            return None
        self._under_way = {future for future in self._under_way if not future.done()}
        if len(self._under_way) >= _QUEUED * self._count:
            return None
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._count, thread_name_prefix="chatledger-inverter")
        future = self._threads.submit(self._invert, batch)
        self._under_way.add(future)
        return future

    def _invert(self, batch: bytes) -> bytes:
        """Have the process of this thread invert a batch."""
        worker: Worker | None = getattr(self._of_thread, "worker", None)
        try:
            if worker is None:
                worker = self._of_thread.worker = Worker()
                self.workers.append(worker)
            return worker.invert(batch)
        except (OSError, EOFError) as error:
            if self._is_ended:
                raise
            if self._count:
                _logger.warning("a process that builds the search index failed: %s; this one goes on without it", error)
            self._count = 0
            # NumPy takes a tenth of a second to import: only for those who build.
            from chatledger.projections.search.inversion import Inversion

            return Inversion().invert(batch)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._count, self._is_ended = 0, error is not None
        if error is not None:
            for worker in self.workers:
                worker.kill()
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
        for worker in self.workers:
            worker.close()


class Worker:
    """A process that answers each batch with what `Inversion` makes of it. It ends when the pipe to it is closed."""

    def __init__(self) -> None:
        path = [os.path.realpath(entry) for entry in sys.path]
        self._process = subprocess.Popen(  # noqa: S603 - this interpreter, and a program of ours
            [sys.executable, "-P", "-c", _SERVE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
            start_new_session=True,  # an interrupt from the keyboard is for this process, which ends the other one
        )
        self.pid = self._process.pid

    def invert(self, batch: bytes) -> bytes:
        """Invert a batch. Raises `OSError` or `EOFError` when the process does not answer."""
        assert self._process.stdin is not None, "it is a pipe"
        assert self._process.stdout is not None, "it is a pipe"
        _write(self._process.stdin, batch)
        answer = _read(self._process.stdout)
        if answer is None:
            msg = f"process {self.pid} ended"
            raise EOFError(msg)
        return answer

    def kill(self) -> None:
        """End it at once; who waits for an answer gets none."""
        self._process.kill()

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None, "it is a pipe"
            with contextlib.suppress(OSError):
                pipe.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def serve() -> None:
    """Answer the batches on stdin on stdout, until there are no more."""
    from chatledger.projections.search.inversion import Inversion

    inversion = Inversion()
    with contextlib.suppress(BrokenPipeError):
        while (batch := _read(sys.stdin.buffer)) is not None:
            _write(sys.stdout.buffer, inversion.invert(batch))


def _write(pipe: IO[bytes], data: bytes) -> None:
    pipe.write(_LENGTH.pack(len(data)))
    pipe.write(data)
    pipe.flush()


def _read(pipe: IO[bytes]) -> bytes | None:
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (size,) = _LENGTH.unpack(head)
    data = pipe.read(size)
    return data if len(data) == size else None
