"""Checkpointing of graph states: write-through after every node, or write-behind."""

import contextlib
import queue
import threading
import time
from collections.abc import Collection, Generator, Mapping
from typing import Any, Final

import msgspec

from chatledger.domain.errors import ChatledgerError, LedgerClosedError, NotFoundError, StateConflictError
from chatledger.domain.graph.reducers import Transition, transition
from chatledger.domain.limits import json_copy
from chatledger.domain.versioned.keys import shown_id
from chatledger.domain.versioned.numbered import StateDraft
from chatledger.domain.versioned.serials import encoded

from ...log.envelope import clock_ms
from ...store.commands import RETRY_S
from .stored import ReadState, StoredStates
from .values import StateSettings, check_user

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


class WriteThroughSteps:
    """Write-through checkpointing: an update is on the log when the call returns. Nothing is kept in memory."""

    def __init__(self, stored: StoredStates, settings: StateSettings) -> None:
        self._stored, self._settings = stored, settings

    def update(self, task: Task) -> Step:
        """
        Read, reduce and store the fields that change; all fields when somebody watches.

        The reducers run again when another writer was faster.
        """
        deadline = time.monotonic() + RETRY_S
        only = None if task.is_watched else task.touched
        while True:
            base = read_base(self._stored, task.state_id, task.base_version, only)
            change = task.transition({} if base is None else base.values, self._settings)
            draft = state_draft(
                self._settings,
                task,
                change.new,
                known=() if base is None else base.version.fields,
                changed=task.touched,
                parent=None if base is None else base.version.version,
                basis=None if base is None else base.version.position,
                expected_version=None if task.base_version is not None else 0 if base is None else base.version.version,
            )
            try:
                return Step(self._stored.put(draft), True, change)  # noqa: FBT003 - a field by its place
            except StateConflictError:
                if task.base_version is not None or time.monotonic() > deadline:
                    raise

    def peek(self, state_id: str) -> dict[str, Any] | None:
        """Return None: everything is stored."""
        del state_id
        return None

    def settle(self) -> None:
        """Do nothing: no write is pending."""

    def drop(self, state_id: str) -> None:
        """Do nothing: no state is kept."""
        del state_id

    def flush(self, state_id: str | None = None) -> None:
        """Do nothing: no write is pending."""
        del state_id

    def close(self) -> None:
        """Do nothing: there is no thread."""


def read_base(
    stored: StoredStates, state_id: str, version: int | None, only: Collection[str] | None = None
) -> ReadState | None:
    """Return the version that an update starts from; None for an empty state. Raises `NotFoundError` for an unknown one."""
    base = stored.read(state_id, version, only=only)
    if base is None and version is not None:
        msg = f"state {shown_id(state_id)!r} has no version {version}; history() lists those it has"
        raise NotFoundError(msg)
    return base


def state_draft(
    settings: StateSettings,
    task: Task,
    state: Mapping[str, Any],
    *,
    known: Collection[str],
    changed: Collection[str],
    parent: int | None,
    expected_version: int | None,
    basis: int | None = None,
) -> StateDraft:
    """A version: of the fields that the parent has, `known` in their order, those that did not change are the parent's."""
    own = settings.kept({name: value for name, value in state.items() if name in changed or name not in known})
    return StateDraft(
        state_id=task.state_id,
        values={
            **dict.fromkeys(name for name in known if name not in settings.exclude),
            **{name: encoded(value) for name, value in own.items()},
        },
        node=task.node,
        parent=parent,
        basis=basis,
        is_final=task.is_end,
        expected_version=expected_version,
        ttl_ms=settings.ttl_ms,
        limit_bytes=settings.max_state_bytes,
    )


class _CachedState:
    """
    A state in memory that a run works on, with updates that are not checkpointed yet.

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


class WriteBehindSteps:
    """
    Write-behind checkpointing: after significant updates (`significant`), or after all by a thread of its own (`background`).

    Only one process may run a state at a time: what another one stores meanwhile makes the next checkpoint a conflict, and
    what is kept is forgotten.
    """

    def __init__(self, stored: StoredStates, settings: StateSettings) -> None:
        self._stored, self._settings = stored, settings
        self._is_background = settings.checkpointing == "background"
        self._cached: dict[str, _CachedState] = {}
        self._lock = threading.Lock()
        self._queue: queue.Queue[tuple[_CachedState, StateDraft] | None] = queue.Queue(settings.queue_size)
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
        with self._cached_state(task.state_id) as cached:
            self._load(cached, task)
            change = task.transition(cached.state, self._settings)
            kept = {name: value for name, value in change.new.items() if name not in self._settings.exclude}
            json_copy(kept, "the state")  # what cannot be stored is refused now, not later
            cached.state, cached.last = kept, task
            cached.changed |= task.touched
            cached.expires_at = None if self._settings.ttl_ms is None else clock_ms() + self._settings.ttl_ms
            is_due = self._is_background or bool(change.diff) or task.is_end or task.is_interrupt
            if is_due:
                self._checkpoint(task.state_id, cached, task)
            version = cached.newest
            if task.is_end or task.is_interrupt:
                self._settle(task.state_id, cached)
                self._forget(task.state_id, cached)
        return Step(version, is_due, change)

    def _load(self, cached: _CachedState, task: Task) -> None:
        is_expired = cached.expires_at is not None and cached.expires_at <= clock_ms()
        if cached.is_loaded and task.base_version is None and not is_expired:
            return
        self.settle()
        base = read_base(self._stored, task.state_id, task.base_version)
        newest = self._stored.versions(task.state_id, limit=1, before=None) if task.base_version is not None else []
        cached.state = {} if base is None else base.values
        cached.parent = None if base is None else base.version.version
        cached.newest = newest[0].version if newest else cached.parent or 0
        cached.changed, cached.is_loaded = set(), True

    def _checkpoint(self, state_id: str, cached: _CachedState, task: Task) -> None:
        draft = state_draft(
            self._settings,
            task,
            cached.state,
            known=() if cached.parent is None else cached.state,
            changed=cached.changed,
            parent=cached.parent,
            expected_version=cached.newest,
        )
        if self._is_background:
            self._start()
            self._queue.put((cached, draft))
        else:
            try:
                self._stored.put(draft)
            except ChatledgerError:
                self._forget(state_id, cached)
                raise
        cached.newest += 1
        cached.parent, cached.changed = cached.newest, set()

    def _start(self) -> None:
        with self._lock:
            if self._writer is None:
                self._writer = threading.Thread(target=self._write, name="chatledger-states", daemon=True)
                self._writer.start()

    def _write(self) -> None:
        while (waiting := self._queue.get()) is not None:
            cached, draft = waiting
            try:
                if cached.error is None:
                    self._stored.put(draft)
            except Exception as error:  # noqa: BLE001 - this thread must go on, or others would wait for it for ever
                cached.error = (
                    error  # raised by the next call on this state; later versions in the queue build on a missing one
                )
            finally:
                self._queue.task_done()
        self._queue.task_done()

    def peek(self, state_id: str) -> dict[str, Any] | None:
        """A copy of what is kept of a state; None when nothing is."""
        cached = self._cached.get(state_id)
        if cached is None:
            return None
        with cached.lock:
            is_expired = cached.expires_at is not None and cached.expires_at <= clock_ms()
            if not cached.is_loaded or cached.last is None or cached.error is not None or is_expired:
                return None
            copied: dict[str, Any] = json_copy(cached.state, "the state")
            return copied

    def settle(self) -> None:
        """Wait until what is on its way is stored. What failed is raised by who comes to it next."""
        self._queue.join()

    def _settle(self, state_id: str, cached: _CachedState) -> None:
        """Wait, and raise what failed."""
        self.settle()
        if cached.error is not None:
            self._forget(state_id, cached)
            raise cached.error

    def drop(self, state_id: str) -> None:
        """Forget what is kept of a state, when what is on its way is stored."""
        self.settle()
        cached = self._cached.get(state_id)
        if cached is not None:
            with cached.lock:
                self._forget(state_id, cached)

    def flush(self, state_id: str | None = None) -> None:
        """Checkpoint what is kept, of one state or of all, and keep it no longer. The first failure is raised at the end."""
        failure: Exception | None = None
        states = dict(self._cached) if state_id is None else {state_id: self._cached.get(state_id)}
        for each, cached in states.items():
            if cached is None:
                continue
            with cached.lock:
                try:
                    if cached.changed and cached.last is not None and cached.error is None:
                        self._checkpoint(each, cached, cached.last)
                    self._settle(each, cached)
                except Exception as error:  # noqa: BLE001 - the others are flushed first
                    failure = failure or error
                self._forget(each, cached)
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
    def _cached_state(self, state_id: str) -> Generator[_CachedState]:
        """Yield the cached state, locked for this thread. Raises the error of a checkpoint that failed."""
        while True:
            with self._lock:
                cached = self._cached.setdefault(state_id, _CachedState())
            with cached.lock:
                if self._cached.get(state_id) is not cached:
                    continue  # it was forgotten before it was ours
                if cached.error is not None:
                    self._forget(state_id, cached)
                    raise cached.error
                yield cached
                return

    def _forget(self, state_id: str, cached: _CachedState) -> None:
        with self._lock:
            if self._cached.get(state_id) is cached:
                del self._cached[state_id]
