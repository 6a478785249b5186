"""Fencing of runs: the latest checkpoint that a saver knows of each namespace, to notice when another run went on in between."""

import asyncio
import threading
import weakref
from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from typing import Any, Final, NamedTuple

from chatledger.domain.errors import ChatledgerError

_MAX_KNOWN: Final = 65_536

_Key = tuple[str, str, str | None]
Flow = weakref.ReferenceType[Any]
"""The task, or outside of tasks the thread, in which a run read the thread that it goes on with."""

_flow: ContextVar[Flow | None] = ContextVar("chatledger_flow", default=None)


class _How(Enum):
    """The way in which the saver came by a checkpoint last."""

    AS_LATEST = "read as the latest one of its namespace, or found that there is none"
    BY_NAME = "read by its id, or as the latest before another one"
    MISSED = "looked for by its id, and not there"
    PUT = "put"


class _CheckpointOrigin(NamedTuple):
    how: _How
    putter: Flow | None = None
    """The flow of the run that put it, if it was put by this saver."""
    is_left_over: bool | None = False
    """Whether it was put after the end of its run: a cancelled run does not wait for its last checkpoints. None: it is on its way."""


class Expectations:
    """
    The checkpoints that a saver has read or put, and how. None stands for a namespace that was found empty.

    A run that goes on from the latest checkpoint means to continue the thread, and must not when somebody else did: another writer,
    or another run of this saver. A run that goes on from a checkpoint that it named forks it. And what this saver put itself may
    be gone on from several times, beside what this saver put, but not beside what others did.
    """

    def __init__(self) -> None:
        self._origins: OrderedDict[_Key, _CheckpointOrigin] = OrderedDict()
        self._lock = threading.Lock()
        """For looks that lead to changes; a look alone is one step."""

    def note(
        self, thread_id: str, namespace: str, checkpoint_id: str | None, *, is_named: bool, is_missed: bool = False
    ) -> None:
        """
        Note that a checkpoint was read as the latest of its namespace, or that there is none.

        Or else it `is_named`, by its id or as the latest before another one: a run that reads it so means to go back. With
        `is_missed` a checkpoint that was named was not there.
        """
        key, how = (thread_id, namespace, checkpoint_id), _How.BY_NAME if is_named else _How.AS_LATEST
        how = _How.MISSED if is_missed else how
        with self._lock:
            self._keep(key, self._origins.get(key, _CheckpointOrigin(how))._replace(how=how))

    @contextmanager
    def putting(self, thread_id: str, namespace: str, checkpoint_id: str) -> Generator[None]:
        """Note a checkpoint as this saver's own before others can see it."""
        # A run that reads it goes on at once, maybe before `put` has returned here, and must not take it for a stranger's.
        key, putter = (thread_id, namespace, checkpoint_id), _current_flow()
        with self._lock:
            before = self._origins.get(key)
            self._keep(key, _CheckpointOrigin(_How.PUT, putter, is_left_over=None))
        try:
            yield
        except ChatledgerError:
            with self._lock:
                self._origins.pop(key, None)
                if before is not None:
                    self._keep(key, before)
            raise
        with self._lock:
            self._keep(key, _CheckpointOrigin(_How.PUT, putter, is_left_over=_is_over(putter)))

    def is_continuing(self, thread_id: str, namespace: str, parent_id: str | None) -> bool:
        """Whether a checkpoint that is put below that parent is meant to continue the thread."""
        origin = self._origins.get((thread_id, namespace, parent_id))
        return origin is not None and origin.how not in {_How.BY_NAME, _How.MISSED}

    def was_missed(self, thread_id: str, namespace: str, checkpoint_id: str) -> bool:
        """Whether it was looked for by its id, and was not there: a run that goes on from it takes nothing for its state."""
        origin = self._origins.get((thread_id, namespace, checkpoint_id))
        return origin is not None and origin.how is _How.MISSED

    def may_branch(self, thread_id: str, namespace: str, parent_id: str | None, latest_id: str) -> bool:
        """Whether a checkpoint that is put below that parent may begin a branch beside the latest."""
        parent = self._origins.get((thread_id, namespace, parent_id))
        latest = self._origins.get((thread_id, namespace, latest_id))
        if latest is None or latest.putter is None:
            return False
        # No run ends by itself before all that it puts is stored.
        is_left_over = _is_over(latest.putter) if latest.is_left_over is None else latest.is_left_over
        here = _current_flow()
        # Of a flow that has ended only the reference is left to compare.
        is_own = is_left_over or latest.putter is here or (here() is not None and here() is latest.putter())
        return is_own or (parent is not None and parent.how is _How.PUT)

    def was_put(self, thread_id: str, namespace: str, checkpoint_id: str) -> bool:
        """Whether this saver put it."""
        origin = self._origins.get((thread_id, namespace, checkpoint_id))
        return origin is not None and origin.putter is not None

    def _keep(self, key: _Key, origin: _CheckpointOrigin) -> None:
        self._origins[key] = origin
        self._origins.move_to_end(key)
        if len(self._origins) > _MAX_KNOWN:
            self._origins.popitem(last=False)


def begin_flow() -> None:
    """Note that a run reads a thread here: what it puts, LangGraph puts from other tasks and threads, in copies of this context."""
    _flow.set(_here())


def need_flow() -> None:
    """Begin a flow, unless the context has one already."""
    if _flow.get() is None:
        begin_flow()


def _current_flow() -> Flow:
    return _flow.get() or _here()


def _here() -> Flow:
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop runs in this thread
        task = None
    return weakref.ref(task or threading.current_thread())


def _is_over(flow: Flow) -> bool:
    runner = flow()
    if isinstance(runner, asyncio.Task):
        return runner.done()
    return runner is None or not runner.is_alive()
