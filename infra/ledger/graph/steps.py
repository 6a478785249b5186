"""Updating a state that is stored after every node: read what is needed, reduce, store unless others were faster."""

import contextlib
import queue
import threading
import time
from collections.abc import Collection, Generator, Mapping
from typing import Any, Final

import msgspec

from chatledger.domain.errors import ChatledgerError, LedgerClosedError, NotFoundError, StateConflictError
from chatledger.domain.graph.chunks import cut
from chatledger.domain.graph.decide import StateDraft
from chatledger.domain.graph.events import shown_id
from chatledger.domain.graph.transition import Transition, transition
from chatledger.domain.limits import json_copy

from ...log.envelope import clock_ms
from ...store.store import RETRY_S
from .settings import StateSettings, check_user
from .stored import ReadState, StoredStates

_METADATA: Final = "metadata"


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """
    An update that is to be made.

    Args:
        state_id: The state.
        changes: What the node returned, copied.
        base_version: The version to go on from; the newest when None.
        is_end: Whether `node` is the end node.
        is_interrupt: Whether the run stops here for a while.
        is_watched: Whether somebody is to see the whole states before and after.
    """

    state_id: str
    changes: Mapping[str, Any]
    node: str
    base_version: int | None
    is_end: bool
    is_interrupt: bool
    is_watched: bool

    @property
    def touched(self) -> set[str]:
        """The fields that change: what the node returned, and what every transition sets."""
        return {*self.changes, _METADATA}

    def transition(self, state: Mapping[str, Any], settings: StateSettings) -> Transition[dict[str, Any]]:
        """The step from a state on. Raises `AccessDeniedError` when it would give the state to another user."""
        change = transition(dict(state), self.changes, self.node, is_end=self.is_end, reducers=settings.reducers)
        check_user(self.state_id, change.new)
        return change


class Step(msgspec.Struct, frozen=True):
    """An update that was made, and the newest version after it."""

    version: int
    is_checkpoint: bool
    change: Transition[dict[str, Any]]


class StoredSteps:
    """Updates that are on the log when the call returns. Nothing is kept in memory."""

    def __init__(self, stored: StoredStates, settings: StateSettings) -> None:
        self._stored, self._settings = stored, settings

    def update(self, task: Task) -> Step:
        """
        Only the fields that change are read, reduced and cut, unless somebody watches.

        The reducers run again when another writer was faster.
        """
        deadline = time.monotonic() + RETRY_S
        only = None if task.is_watched else task.touched
        while True:
            base = read_base(self._stored, task.state_id, task.base_version, only)
            change = task.transition({} if base is None else base.values, self._settings)
            draft = draft_of(
                self._settings,
                task,
                change.new,
                known=() if base is None else base.version.fields,
                changed=task.touched,
                parent=None if base is None else base.version.version,
                expected_version=None if task.base_version is not None else 0 if base is None else base.version.version,
            )
            try:
                return Step(self._stored.put(draft).version, True, change)  # noqa: FBT003 - a field by its place
            except StateConflictError:
                if task.base_version is not None or time.monotonic() > deadline:
                    raise

    def peek(self, state_id: str) -> dict[str, Any] | None:
        """None: what there is, is stored."""
        del state_id
        return None

    def settle(self) -> None:
        """Nothing is on its way."""

    def drop(self, state_id: str) -> None:
        """Nothing is kept."""
        del state_id

    def flush(self, state_id: str | None = None) -> None:
        """Nothing waits."""
        del state_id

    def close(self) -> None:
        """Nothing is open."""


def read_base(
    stored: StoredStates, state_id: str, version: int | None, only: Collection[str] | None = None
) -> ReadState | None:
    """What an update starts from; None for an empty state. Raises `NotFoundError` when a named version is not there."""
    base = stored.read(state_id, version, only=only)
    if base is None and version is not None:
        msg = f"state {shown_id(state_id)!r} has no version {version}; history() lists those it has"
        raise NotFoundError(msg)
    return base


def draft_of(
    settings: StateSettings,
    task: Task,
    state: Mapping[str, Any],
    *,
    known: Collection[str],
    changed: Collection[str],
    parent: int | None,
    expected_version: int | None,
) -> StateDraft:
    """A version: of the fields that the parent has, `known` in their order, those that did not change are the parent's."""
    own = settings.kept({name: value for name, value in state.items() if name in changed or name not in known})
    return StateDraft(
        state_id=task.state_id,
        values={
            **dict.fromkeys(name for name in known if name not in settings.exclude),
            **{name: cut(value) for name, value in own.items()},
        },
        node=task.node,
        parent=parent,
        is_final=task.is_end,
        expected_version=expected_version,
        ttl_ms=settings.ttl_ms,
        limit_bytes=settings.max_state_bytes,
    )


class _Line:
    """
    The state that a run works on.

    `newest` is the version that the next one is expected to follow, `parent` the one that unchanged fields are shared with,
    and `changed` has the fields that differ from it.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.is_loaded = False
        self.state: dict[str, Any] = {}
        self.newest = 0
        self.parent: int | None = None
        self.changed: set[str] = set()
        self.last: Task | None = None
        self.expires_at: int | None = None
        self.error: Exception | None = None


class KeptSteps:
    """
    Updates that are checkpointed when it matters (`significant`), or all by a thread of its own (`background`).

    Only one process may run a state at a time: what another one stores meanwhile makes the next checkpoint a conflict, and
    what is kept is forgotten.
    """

    def __init__(self, stored: StoredStates, settings: StateSettings) -> None:
        self._stored, self._settings = stored, settings
        self._is_background = settings.checkpointing == "background"
        self._lines: dict[str, _Line] = {}
        self._lock = threading.Lock()
        self._queue: queue.Queue[tuple[_Line, StateDraft] | None] = queue.Queue(settings.queue_size)
        self._writer: threading.Thread | None = None
        self._is_closed = False

    def update(self, task: Task) -> Step:
        """
        Apply an update to what is kept, or to what is stored, and checkpoint it if it is time to.

        Raises:
            StateConflictError: Another process stored a version; updates since the last checkpoint are lost.
        """
        if self._is_closed:
            msg = "the store of states is closed; make another one"
            raise LedgerClosedError(msg)
        with self._line(task.state_id) as line:
            self._load(line, task)
            change = task.transition(line.state, self._settings)
            kept = {name: value for name, value in change.new.items() if name not in self._settings.exclude}
            json_copy(kept, "the state")  # what can not be stored is refused now, not later
            line.state, line.last = kept, task
            line.changed |= task.touched
            line.expires_at = None if self._settings.ttl_ms is None else clock_ms() + self._settings.ttl_ms
            is_due = self._is_background or bool(change.diff) or task.is_end or task.is_interrupt
            if is_due:
                self._checkpoint(task.state_id, line, task)
            version = line.newest
            if task.is_end or task.is_interrupt:
                self._settle(task.state_id, line)
                self._forget(task.state_id, line)
        return Step(version, is_due, change)

    def _load(self, line: _Line, task: Task) -> None:
        is_expired = line.expires_at is not None and line.expires_at <= clock_ms()
        if line.is_loaded and task.base_version is None and not is_expired:
            return
        self.settle()
        base = read_base(self._stored, task.state_id, task.base_version)
        newest = self._stored.versions(task.state_id, limit=1, before=None) if task.base_version is not None else []
        line.state = {} if base is None else base.values
        line.parent = None if base is None else base.version.version
        line.newest = newest[0].version if newest else line.parent or 0
        line.changed, line.is_loaded = set(), True

    def _checkpoint(self, state_id: str, line: _Line, task: Task) -> None:
        draft = draft_of(
            self._settings,
            task,
            line.state,
            known=() if line.parent is None else line.state,
            changed=line.changed,
            parent=line.parent,
            expected_version=line.newest,
        )
        if self._is_background:
            self._start()
            self._queue.put((line, draft))
        else:
            try:
                self._stored.put(draft)
            except ChatledgerError:
                self._forget(state_id, line)
                raise
        line.newest += 1
        line.parent, line.changed = line.newest, set()

    def _start(self) -> None:
        with self._lock:
            if self._writer is None:
                self._writer = threading.Thread(target=self._write, name="chatledger-states", daemon=True)
                self._writer.start()

    def _write(self) -> None:
        while (waiting := self._queue.get()) is not None:
            line, draft = waiting
            try:
                if line.error is None:
                    self._stored.put(draft)
            except Exception as error:  # noqa: BLE001 - this thread must go on, or others would wait for it for ever
                line.error = (
                    error  # whoever comes to the line next raises it; what waits behind it builds on what is not there
                )
            finally:
                self._queue.task_done()
        self._queue.task_done()

    def peek(self, state_id: str) -> dict[str, Any] | None:
        """A copy of what is kept of a state; None when nothing is."""
        line = self._lines.get(state_id)
        if line is None:
            return None
        with line.lock:
            is_expired = line.expires_at is not None and line.expires_at <= clock_ms()
            if not line.is_loaded or line.last is None or line.error is not None or is_expired:
                return None
            copied: dict[str, Any] = json_copy(line.state, "the state")
            return copied

    def settle(self) -> None:
        """Wait until what is on its way is stored. What failed is raised by who comes to it next."""
        self._queue.join()

    def _settle(self, state_id: str, line: _Line) -> None:
        """Wait, and raise what failed."""
        self.settle()
        if line.error is not None:
            self._forget(state_id, line)
            raise line.error

    def drop(self, state_id: str) -> None:
        """Forget what is kept of a state, when what is on its way is stored."""
        self.settle()
        line = self._lines.get(state_id)
        if line is not None:
            with line.lock:
                self._forget(state_id, line)

    def flush(self, state_id: str | None = None) -> None:
        """Checkpoint what is kept, of one state or of all, and keep it no longer. The first failure is raised at the end."""
        failure: Exception | None = None
        lines = dict(self._lines) if state_id is None else {state_id: self._lines.get(state_id)}
        for each, line in lines.items():
            if line is None:
                continue
            with line.lock:
                try:
                    if line.changed and line.last is not None and line.error is None:
                        self._checkpoint(each, line, line.last)
                    self._settle(each, line)
                except Exception as error:  # noqa: BLE001 - the others are flushed first
                    failure = failure or error
                self._forget(each, line)
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Flush, and end the thread; calling it again does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self.flush()
        finally:
            writer = self._writer
            if writer is not None:
                self._queue.put(None)
                writer.join()

    @contextlib.contextmanager
    def _line(self, state_id: str) -> Generator[_Line]:
        """The line of a state, which nobody else uses meanwhile. Raises what failed on it."""
        while True:
            with self._lock:
                line = self._lines.setdefault(state_id, _Line())
            with line.lock:
                if self._lines.get(state_id) is not line:
                    continue  # it was forgotten before it was ours
                if line.error is not None:
                    self._forget(state_id, line)
                    raise line.error
                yield line
                return

    def _forget(self, state_id: str, line: _Line) -> None:
        with self._lock:
            if self._lines.get(state_id) is line:
                del self._lines[state_id]
