"""`StateStore`: the states of graphs on a ledger, version by version."""

import builtins
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from typing import Any, Self

import msgspec

from chatledger.domain.graph import schema
from chatledger.domain.graph.reducers import AGENT_REDUCERS, Reducers, check_object
from chatledger.domain.graph.schema import AgentState
from chatledger.domain.limits import check_choice, check_count, check_flag, check_id, check_optional_id, json_copy
from chatledger.domain.moments import Moment
from chatledger.domain.versioned.keys import parse_state_id
from chatledger.domain.versioned.numbered import StateDraft
from chatledger.domain.versioned.record import VersionedRecord
from chatledger.domain.versioned.serials import encoded

from ...log.envelope import clock_ms
from ..ledger import Ledger, UserLedger
from ..scopes.as_of import AsOfPoint
from ..thread_lists import ListOrder
from .observers import StateObserver, StateObservers, log_transition
from .steps import Step, Task, WriteBehindSteps, WriteThroughSteps
from .stored import StoredStates
from .values import (
    MAX_STATE_BYTES,
    QUEUE_SIZE,
    AccessKind,
    Checkpointing,
    Identity,
    Nodes,
    ResumePoint,
    StateInfo,
    StatePart,
    StateSettings,
    StateStats,
    StateUpdate,
    StateVersion,
    check_user,
    current_node,
    is_final,
    make_settings,
    milliseconds,
    state_info,
    state_version,
    stats_of,
)


def initial_state(
    user_id: str, query: str, *, trace_id: str | None = None, options: Mapping[str, Any] | None = None
) -> AgentState:
    """
    The state before the first node: one message of the user, the options, and the time of the call.

    Args:
        user_id: The owner.
        query: What the user asks.
        trace_id: The caller's own id of the run.
        options: Values that replace those of `DEFAULT_OPTIONS`, one by one; further ones are kept.

    Raises:
        InvalidValueError: An id, the query or an option breaks a rule.
    """
    return schema.initial_state(user_id, query, now=clock_ms(), trace_id=trace_id, options=options)


class StateStore:
    """
    The states of graphs, kept on a ledger as versions that are never overwritten. No framework is needed.

    A version stores what changed; fields, documents and messages that stay the same are shared with the versions before. An
    id names a user and a conversation, see `state_id`; the user owns the state, for ever.

    This store is for trusted code and sees all states. Give `for_identity(...)` to code that acts for a user. Of a ledger
    made by `for_user`, it is that user's view. Safe for threads.

    Args:
        ledger: The ledger, which stays open as long as the store is used and is not closed by it.
        reducers: How `update` makes the next value of each field.
        nodes: The nodes of the graph in order, the last one being the end; or a function of the node that wrote last and the
            state, that gives the next node or None. For `resume`.
        ttl_seconds: A state without a new version for so long is absent from then on; it never is when None.
        exclude: Fields that are not stored, such as what can be fetched again.
        max_state_bytes: How large a state may be, encoded. Store large binary data elsewhere, and their hash in the state.
        checkpointing: When `update` stores a version. `every`: each time, and nothing can be lost. `significant`: when its diff
            is not empty, at the end node and at an interrupt; the end of the process loses what came after that.
            `background`: each time, by a thread; the end of the process loses what waits, at most `queue_size` updates and the
            one that is being written. With the last two, close the store.
        queue_size: In the background, so many updates may wait; then `update` waits too.

    Raises:
        InvalidValueError: An argument is not as described.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        reducers: Reducers = AGENT_REDUCERS,
        nodes: Nodes | None = None,
        ttl_seconds: float | None = None,
        exclude: Collection[str] = (),
        max_state_bytes: int = MAX_STATE_BYTES,
        checkpointing: Checkpointing = "every",
        queue_size: int = QUEUE_SIZE,
    ) -> None:
        settings = make_settings(reducers, nodes, exclude, ttl_seconds, max_state_bytes, checkpointing, queue_size)
        self._set_up(lambda: ledger, ledger.user_id if isinstance(ledger, UserLedger) else None, settings)

    def _set_up(self, ledger: Callable[[], Ledger], owner: str | None, settings: StateSettings) -> None:
        self._settings = settings
        self._identity = None if owner is None else Identity(owner)
        self._stored = StoredStates(ledger)
        kind = WriteThroughSteps if settings.checkpointing == "every" else WriteBehindSteps
        self._steps: WriteThroughSteps | WriteBehindSteps = kind(self._stored, settings)
        self._observers = StateObservers()

    def for_identity(self, user_id: str | None, *, is_admin: bool = False) -> "StateStore":
        """
        Return this store limited to what one user owns, or to nothing for an unknown user.

        Other users' states are refused by their id alone, whether or not they exist, and not listed. Without a user every
        call is refused.

        Args:
            user_id: The user, whom the caller has identified.
            is_admin: Whether all states may be seen and changed.
        """
        view = object.__new__(StateStore)
        view.__dict__.update(self.__dict__)
        given = Identity(user_id, is_admin)
        view._observers = StateObservers(others=self._observers)
        view._identity = given if self._identity is None else self._identity.narrowed(given)
        return view

    def put(
        self, state_id: str, state: Mapping[str, Any], *, expected_version: int | None = None, node: str | None = None
    ) -> int:
        """
        Store a whole state as the next version.

        Args:
            state_id: The state; `state_id()` makes the id.
            state: A JSON object. It is copied.
            expected_version: Only if this is the newest version; 0 when there must be none yet.
            node: The node that wrote it; by default its `metadata.current_node`.

        Returns:
            The version: 1, 2, 3, ...

        Raises:
            StateConflictError: Another version came meanwhile.
            AccessDeniedError: The state belongs to another user, or says so in `user_id`.
            PayloadTooLargeError: It is larger than `max_state_bytes`.
            InvalidValueError: The id is none, or the state is not JSON.
        """
        self._check("modify", state_id)
        given = check_object(state, "state")
        check_user(state_id, given)
        if expected_version is not None:
            check_count(expected_version, "expected_version")
        self._steps.drop(state_id)
        kept = self._settings.kept(given)
        node = check_optional_id(node, "node") or current_node(kept)
        draft = StateDraft(
            state_id=state_id,
            values={name: encoded(value) for name, value in kept.items()},
            node=node,
            is_final=is_final(kept),
            expected_version=expected_version,
            ttl_ms=self._settings.ttl_ms,
            limit_bytes=self._settings.max_state_bytes,
        )
        return self._stored.put(draft)

    def update(
        self,
        state_id: str,
        changes: Mapping[str, Any] | None,
        *,
        node: str,
        is_end: bool | None = None,
        is_interrupt: bool = False,
        base_version: int | None = None,
    ) -> StateUpdate:
        """
        Apply what a node returned: reduce it into the newest state, checkpoint that, and tell the observers.

        `metadata.current_node` and `metadata.is_final_state` are set before the state is stored. A state that is not there
        starts empty.

        Args:
            state_id: The state.
            changes: The changed fields, or a whole state. None changes nothing but the metadata.
            node: The name of the node.
            is_end: Whether it is the end node; by default whether it is the last one of `nodes`.
            is_interrupt: Whether the run stops here for a while: what waits is stored before this returns.
            base_version: Go on from this version instead of the newest one. What came after it stays as it is.

        Raises:
            StateConflictError: Unless `checkpointing` is `every`: another process stored a version, and updates that were not
                stored yet are lost.
            NotFoundError: There is no `base_version`.
            AccessDeniedError, PayloadTooLargeError, InvalidValueError: As `put`; or a reducer refuses a field.
        """
        task = self._task(
            state_id, changes, node=node, is_end=is_end, is_interrupt=is_interrupt, base_version=base_version
        )
        step = self._steps.update(task)
        if task.is_watched:
            self._observers.notify(step.change)
        else:
            log_transition(step.change)
        return update_of(step)

    def _task(
        self,
        state_id: str,
        changes: Mapping[str, Any] | None,
        *,
        node: str,
        is_end: bool | None,
        is_interrupt: bool,
        base_version: int | None,
    ) -> Task:
        self._check("modify", state_id)
        check_id(node, "node")
        return Task(
            state_id=state_id,
            changes=json_copy(dict(check_object(changes, "changes")), "changes"),
            node=node,
            base_version=base_version if base_version is None else check_count(base_version, "base_version"),
            is_end=self._settings.is_end(node) if is_end is None else is_end,
            is_interrupt=is_interrupt,
            is_watched=not self._observers.is_empty,
        )

    def get(self, state_id: str, version: int | None = None) -> dict[str, Any] | None:
        """
        The newest state, or that of a version; None when there is none, or it has expired. Reading changes nothing.

        With `significant` and `background` checkpointing, the newest one has the updates that were made here and are not
        stored yet.

        Raises:
            CorruptStateError: It is damaged. Other versions may not be.
            AccessDeniedError: It belongs to another user.
        """
        self._check("access", state_id)
        if version is not None:
            check_count(version, "version")
        elif (kept := self._steps.peek(state_id)) is not None:
            return kept
        self._steps.settle()
        found = self._stored.read(state_id, version)
        return None if found is None else found.values

    def resume(self, state_id: str, version: int | None = None) -> ResumePoint | None:
        """
        The state to go on from, and the node after the one that wrote it; None when there is no state.

        Args:
            state_id: The state.
            version: The version; the newest when None. To go on from an earlier one, give it to `update` as `base_version`.

        Raises:
            CorruptStateError: It is damaged. An earlier version may not be.
            InvalidValueError: It was written by a node that the store does not know.
            AccessDeniedError: It belongs to another user.
        """
        self._check("access", state_id)
        if version is not None:
            check_count(version, "version")
        self._steps.flush(state_id)
        found = self._stored.read(state_id, version)
        if found is None:
            return None
        return ResumePoint(
            state=found.values,
            version=found.version.version,
            node=current_node(found.values),
            next=None if found.version.is_final else self._settings.next_node(found.values),
            is_final=found.version.is_final,
        )

    def history(self, state_id: str, *, limit: int = 10, before: int | None = None) -> list[StateVersion]:
        """
        The versions of a state, the newest first, without content; none when there is no state.

        Args:
            state_id: The state.
            limit: At most so many.
            before: Only versions before this one.
        """
        self._check("access", state_id)
        check_count(limit, "limit")
        if before is not None:
            check_count(before, "before")
        self._steps.settle()
        return list(map(state_version, self._stored.versions(state_id, limit=limit, before=before)))

    def list(self, *, user_id: str | None = None, conversation_id: str | None = None) -> builtins.list[StateInfo]:
        """The states that can be seen, the last changed first; of a user, of a conversation, or of both."""
        self._check_known()
        for given, what in ((user_id, "user_id"), (conversation_id, "conversation_id")):
            check_optional_id(given, what)
        self._steps.settle()
        identity = self._identity
        if identity is not None and not identity.is_admin:
            if user_id not in {None, identity.user_id}:
                return []
            user_id = identity.user_id
        infos = map(state_info, self._stored.records(user_id=user_id, conversation_id=conversation_id))
        return [info for info in infos if conversation_id is None or info.conversation_id == conversation_id]

    def list_part(
        self,
        *,
        user_id: str | None = None,
        limit: int = 50,
        order: ListOrder = "updated",
        ascending: bool = False,
        after: str | None = None,
        keep: Callable[[StateInfo], bool] = lambda _info: True,
    ) -> StatePart:
        """
        A part of the states that can be seen, in the order of their last versions or of their beginnings; of a user.

        It costs what is looked at: at most 2,000 states, so that a part may have few that `keep` wants, or none, though others
        follow.

        Args:
            user_id: Only those of this user.
            limit: At most so many.
            order: The order.
            ascending: Whether the earliest come first.
            after: The `next` of the part before.
            keep: Whether a state is wanted.

        Raises:
            InvalidValueError: An argument is not what is asked for; `after` is no `next`.
        """
        self._check_known()
        check_optional_id(user_id, "user_id")
        check_choice(order, ("updated", "created"), "order")
        check_flag(ascending, "ascending")
        if not check_count(limit, "limit"):
            return StatePart([], after)
        self._steps.settle()
        identity = self._identity
        if identity is not None and not identity.is_admin:
            if user_id not in {None, identity.user_id}:
                return StatePart([], None)
            user_id = identity.user_id

        def wanted(record: VersionedRecord) -> StateInfo | None:
            info = state_info(record)
            return info if keep(info) else None

        infos, following = self._stored.part(
            user_id=user_id,
            limit=limit,
            is_by_update=order == "updated",
            is_ascending=ascending,
            after=after,
            wanted=wanted,
        )
        return StatePart(infos, following)

    def as_of(self, moment: Moment) -> "StateView":
        """
        The states as they stood at an earlier moment, to be read only. Of states that were deleted or expired since nothing is left.

        Args:
            moment: A position on the log, or a time with a time zone; see `Ledger.as_of`.

        Raises:
            InvalidValueError: The position is beyond the end of the log, or the time has no time zone.
        """
        self._check_known()
        self._steps.settle()
        return StateView(self, self._stored, self._stored.point(moment))

    def delete(self, state_id: str) -> bool:
        """
        Remove a state with all versions; its content is erased from the log and the index.

        Returns:
            Whether there was one that had not expired.

        Raises:
            AccessDeniedError: It belongs to another user.
        """
        self._check("delete", state_id)
        self._steps.drop(state_id)
        return self._stored.delete(state_id)

    def get_stats(self) -> StateStats:
        """Numbers over the states that can be seen; `checkpoints_by_user` only for admins and trusted code."""
        infos = self.list()
        return stats_of(infos, with_users=self._identity is None or self._identity.is_admin)

    def cleanup(self, max_age: float | timedelta | None = None) -> int:
        """
        Erase the states that have expired, and those whose newest version is older than `max_age`; chats stay as they are,
        and so do the assistants of `chatledger serve`, which are states.

        Of a view for a user who is no admin, only that user's.

        Args:
            max_age: In seconds, or a `timedelta`. None: only what has expired.

        Returns:
            How many were erased.
        """
        self._check_known()
        seconds = max_age.total_seconds() if isinstance(max_age, timedelta) else max_age
        before = None if seconds is None else clock_ms() - milliseconds(seconds, "max_age")
        self._steps.settle()
        identity = self._identity
        user_id = None if identity is None or identity.is_admin else identity.user_id
        return self._stored.clean(updated_before=before, user_id=user_id)

    def on_state_change(self, callback: StateObserver) -> Callable[[], None]:
        """
        Call a function with (old, new, node, diff) after each update; see `StateObservers.on_state_change`.

        A callback of a store is invoked after updates by the store and by its views, that of a view after updates by the view only.

        Returns:
            A function that ends it.
        """
        self._check_known()
        return self._observers.on_state_change(callback)

    def flush(self) -> None:
        """Store what was updated and is not stored yet. With `every` checkpointing there is nothing."""
        self._check_known()
        self._steps.flush()

    def close(self) -> None:
        """Flush, and end the thread of `background` checkpointing. The ledger stays open."""
        self._steps.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check(self, kind: AccessKind, state_id: str) -> None:
        if self._identity is not None:
            self._identity.check(kind, state_id)
        parse_state_id(state_id)

    def _check_known(self) -> None:
        if self._identity is not None:
            self._identity.check_known()


class StateView:
    """The states of a `StateStore` as they stood at an earlier moment. Made by `StateStore.as_of`."""

    def __init__(self, store: StateStore, stored: StoredStates, point: AsOfPoint) -> None:
        self._store, self._stored, self._point = store, stored, point

    def get_version(self, state_id: str) -> int:
        """
        The number of the newest version at that moment; 0 when there was none.

        Raises:
            CorruptStateError: It is damaged.
            AccessDeniedError: It belongs to another user.
        """
        self._store._check("access", state_id)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # of one module
        found = self._stored.version_at(state_id, self._point)
        return 0 if found is None else found.version

    def get(self, state_id: str) -> dict[str, Any] | None:
        """The newest state at that moment; None when there was none. The errors are those of `StateStore.get`."""
        version = self.get_version(state_id)
        return self._store.get(state_id, version) if version else None

    def history(self, state_id: str, *, limit: int = 10, before: int | None = None) -> builtins.list[StateVersion]:
        """The versions at that moment, the newest first; see `StateStore.history`."""
        end = self.get_version(state_id) + 1
        return self._store.history(state_id, limit=limit, before=end if before is None else min(before, end))

    def list(self, *, user_id: str | None = None, conversation_id: str | None = None) -> builtins.list[StateInfo]:
        """The states of that moment as they were, the last changed first; see `StateStore.list`. Costs all that there are now."""
        found: builtins.list[StateInfo] = []
        for info in self._store.list(user_id=user_id, conversation_id=conversation_id):
            version = self._stored.version_at(info.id, self._point)
            if version is not None:
                of_then = {name: getattr(version, name) for name in ("version", "node", "size_bytes")}
                # When it ends, and what holds it, are of now.
                earlier = msgspec.structs.replace(
                    info, updated_at=version.stored_at, expires_at=None, hold=None, **of_then
                )
                found.append(earlier)
        return sorted(found, key=lambda info: (-info.updated_at, info.id))


def update_of(step: Step) -> StateUpdate:
    """Return the observers' account of a step."""
    return StateUpdate(step.version, step.is_checkpoint, step.change.node, step.change.diff)
