"""Updating a state that is stored after every node: read what is needed, reduce, store unless others were faster."""

import time
from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec

from chatledger.domain.errors import NotFoundError, StateConflictError
from chatledger.domain.graph_state.cutting import cut
from chatledger.domain.graph_state.decide import StateDraft
from chatledger.domain.graph_state.ids import shown_id
from chatledger.domain.graph_state.transition import Transition, transition

from ..store import RETRY_S
from .identity import check_user
from .settings import StateSettings
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
