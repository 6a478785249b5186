"""Writes of tasks on their way to the log: they wait for each other, or ride with the checkpoint after them, so that one event stores many."""

import logging
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import Context, copy_context
from typing import Final, NamedTuple
from weakref import WeakSet

from chatledger.domain.errors import LogUnavailableError
from chatledger.domain.log.codec import Envelope
from chatledger.domain.versioned.content import Piece, Serial, Tree, size_of
from chatledger.domain.versioned.record import TaskPut
from chatledger.projections.operating_system import call_in_forked_child

from ..log.envelope import current

_logger = logging.getLogger(__name__)

RIDE_S: Final = 0.05
"""So long writes may wait for the checkpoint after them: what a kill of the process may cost."""
_MOST_WAITING_BYTES: Final = 1024 * 1024
"""A step whose writes take so many is stored at once: what waits takes memory, and is what a kill may cost."""


class StepKey(NamedTuple):
    """The step whose writes are stored together: its checkpoint, and who writes, since an event has one envelope."""

    namespace: str
    checkpoint_id: str
    user_id: str | None
    envelope: Envelope


class StepWrites:
    """
    The writes of a step that are not stored yet.

    Args:
        store: Stores writes of its tasks.
    """

    def __init__(self, store: Callable[[Sequence[TaskPut]], object]) -> None:
        self._store = store
        self._context: Context = copy_context()
        self.tasks: list[TaskPut] = []
        self.size = 0
        self.due = time.monotonic() + RIDE_S
        self.is_awaited = False
        """Whether a caller waits for them, and raises their error."""
        self.is_over = False
        self.error: Exception | None = None

    def store(self) -> None:
        """Store them in an event of their own; `error` says when that failed. Raises only what interrupts this thread."""
        try:
            self._context.run(self._store, self.tasks)
        except Exception as error:  # noqa: BLE001 - raised by the caller who waits for them, or by the user's next call
            self.error = error
        except BaseException:
            msg = "storing writes of tasks was interrupted. The outcome is unknown; retrying is safe"
            self.error = LogUnavailableError(msg)
            raise
        finally:
            self.is_over = True


class _ThreadWrites:
    """The steps of a thread that have writes which wait. The holder of `turn` stores some of them; others wait for that."""

    def __init__(self) -> None:
        self.turn = threading.Lock()
        self.users = 0
        self.steps: dict[StepKey, StepWrites] = {}
        self.errors: dict[str | None, Exception] = {}
        """By user, why writes that nobody waited for could not be stored."""


class TaskWriteBuffer:
    """
    The writes of tasks that are not stored yet, of all ledgers of a process on one store.

    A child of `os.fork` has none: those of its parent are its parent's to store.
    """

    def __init__(self) -> None:
        self.forget()
        _buffers.add(self)

    def forget(self) -> None:
        self._lock = threading.Lock()
        self._threads: dict[str, _ThreadWrites] = {}
        self._is_watched = False

    def add(
        self,
        thread_id: str,
        place: tuple[str, str],
        task: TaskPut,
        store: Callable[[Sequence[TaskPut]], object],
        *,
        user_id: str | None,
        is_riding: bool,
    ) -> None:
        """
        Take writes of a task of the checkpoint at `place`, its namespace and id. Return once they are stored, or at once if they ride.

        Raises what storing them did, and also what storing earlier ones of the user did, after which these are not taken.
        """
        self.raise_error(thread_id, user_id)
        key = StepKey(*place, user_id, current())
        with self._lock:
            writes = self._threads.setdefault(thread_id, _ThreadWrites())
            step = writes.steps.get(key)
            if step is None:
                step = writes.steps[key] = StepWrites(store)
            step.tasks.append(task)
            step.size += sum(_size_of(value) for _, _, value in task.writes)
            is_riding = is_riding and step.size < _MOST_WAITING_BYTES
            step.is_awaited |= not is_riding
            if is_riding and not self._is_watched:
                # It is no daemon: a process that ends without closing its ledger waits for the last writes of its tasks.
                threading.Thread(target=self._watch, name="chatledger-task-writes").start()
                self._is_watched = True
        if is_riding:
            return
        with self._turn(thread_id) as writes:
            if not step.is_over:  # else another call has taken these along
                self._store(writes)
        if step.error is not None:
            raise step.error

    @contextmanager
    def carried(self, thread_id: str, place: tuple[str, str], *, user_id: str | None) -> Generator[Sequence[TaskPut]]:
        """
        Give the writes of a checkpoint that wait to the block, which stores them with the checkpoint after it.

        Where it fails they are stored alone, as they would have been without it. Those of other users are stored before.
        """
        self.raise_error(thread_id, user_id)
        if thread_id not in self._threads:
            yield ()
            return
        own = StepKey(*place, user_id, current())
        with self._turn(thread_id) as writes:
            with self._lock:
                step = writes.steps.pop(own, None)
            self._store(writes, lambda key, _step: key[:2] == place)
            if step is None:
                yield ()
                return
            try:
                yield step.tasks
            except BaseException:
                self._store_step(writes, own, step)
                raise
            step.is_over = True

    def settle(self, thread_id: str | None = None) -> None:
        """
        Store what waits, of one thread or of all: before it is read, removed or copied, and at the end.

        Why writes could not be stored is not raised here: that is for their own user, see `raise_error`.
        """
        for each in [*self._threads] if thread_id is None else [thread_id]:
            if each in self._threads:
                with self._turn(each) as writes:
                    self._store(writes)

    def raise_error(self, thread_id: str, user_id: str | None) -> None:
        """Raise, once, why writes of a user that nobody waited for could not be stored."""
        if thread_id not in self._threads:
            return
        with self._lock:
            writes = self._threads.get(thread_id)
            error = None if writes is None else writes.errors.pop(user_id, None)
            if writes is not None:
                self._drop_if_idle(thread_id, writes)
        if error is not None:
            raise error

    def close(self) -> None:
        """Store what waits. Raises why some of it could not be stored, if nobody was told yet."""
        self.settle()
        with self._lock:
            errors = [error for writes in self._threads.values() for error in writes.errors.values()]
            self._threads = {name: writes for name, writes in self._threads.items() if writes.users or writes.steps}
        if errors:
            raise errors[0]

    def _store(
        self, writes: _ThreadWrites, is_wanted: Callable[[StepKey, StepWrites], bool] = lambda _key, _step: True
    ) -> None:
        """Store steps of a thread whose turn the caller has."""
        with self._lock:
            wanted = [key for key, step in writes.steps.items() if is_wanted(key, step)]
        for key in wanted:
            with self._lock:
                step = writes.steps.pop(key)  # not all of them before: what an interrupt leaves goes on waiting
            self._store_step(writes, key, step)

    @staticmethod
    def _store_step(writes: _ThreadWrites, key: StepKey, step: StepWrites) -> None:
        try:
            step.store()
        finally:
            if step.error is not None and not step.is_awaited:
                _logger.warning(
                    "writes of tasks of checkpoint %s could not be stored: %s", key.checkpoint_id, step.error
                )
                writes.errors[key.user_id] = step.error

    @contextmanager
    def _turn(self, thread_id: str) -> Generator[_ThreadWrites]:
        with self._lock:
            writes = self._threads.setdefault(thread_id, _ThreadWrites())
            writes.users += 1
        try:
            with writes.turn:
                yield writes
        finally:
            with self._lock:
                writes.users -= 1
                self._drop_if_idle(thread_id, writes)

    def _drop_if_idle(self, thread_id: str, writes: _ThreadWrites) -> None:
        if not (writes.users or writes.steps or writes.errors) and self._threads.get(thread_id) is writes:
            del self._threads[thread_id]

    def _watch(self) -> None:
        """Store what nobody took along in time, until nothing waits."""
        while True:
            with self._lock:
                dues = [(step.due, name) for name, writes in self._threads.items() for step in writes.steps.values()]
                if not dues:
                    self._is_watched = False
                    return
            due, thread_id = min(dues)
            time.sleep(max(due - time.monotonic(), 0))
            if time.monotonic() >= due and thread_id in self._threads:
                with self._turn(thread_id) as writes:
                    self._store(writes, lambda _key, step: step.due <= time.monotonic())


def _size_of(value: Tree | Serial) -> int:
    if isinstance(value, Serial):
        return len(value.data)
    return size_of([Piece(value.digest, value.content)]) + sum(map(_size_of, value.children))


_buffers: Final = WeakSet[TaskWriteBuffer]()


def _forget_all() -> None:
    for buffer in [*_buffers]:
        buffer.forget()


call_in_forked_child(_forget_all)
