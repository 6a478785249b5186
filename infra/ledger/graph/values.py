"""The values that a store of states returns."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypedDict, cast, get_args

import msgspec

from chatledger.domain.errors import AccessDeniedError, InvalidValueError
from chatledger.domain.graph.reducers import Reducers, StateDiff
from chatledger.domain.legal_hold import LegalHold
from chatledger.domain.limits import check_count, check_id, json_copy
from chatledger.domain.versioned.keys import parse_state_id, shown_id
from chatledger.domain.versioned.record import VersionedRecord, VersionRecord
from chatledger.domain.wire import Value


class StateVersion(Value, frozen=True):
    """
    One version of a state, without its content.

    Args:
        version: 1, 2, 3, ...
        node: The node that wrote it, if it said so.
        parent: The version that it was made from.
        is_final: Whether that was the end node.
        stored_at: When, in ms.
        size_bytes: What the whole state takes encoded; versions share most of it.
        is_pruned: Whether its content is gone, as a rule kept it no longer; its place is left.
    """

    version: int
    node: str | None
    parent: int | None
    is_final: bool
    stored_at: int
    size_bytes: int
    is_pruned: bool = False


class StateInfo(Value, frozen=True):
    """A state without its content. Times are in ms; `expires_at` is None when it does not expire."""

    id: str
    user_id: str
    conversation_id: str
    version: int
    node: str | None
    created_at: int
    updated_at: int
    expires_at: int | None
    size_bytes: int
    hold: LegalHold | None = None


class StatePart(NamedTuple):
    """
    A part of a list of states.

    Args:
        states: The states.
        next: To be given as `after` for those that follow; None where there are none.
    """

    states: list[StateInfo]
    next: str | None


class StateUpdate(Value, frozen=True):
    """
    The result of an update.

    Args:
        version: The newest version that is stored or on its way to the log; 0 when there is none yet.
        is_checkpoint: Whether this update is a version of its own, which the way of checkpointing decides.
        node: The node.
        diff: What it changed, without content.
    """

    version: int
    is_checkpoint: bool
    node: str
    diff: StateDiff


class ResumePoint(Value, frozen=True):
    """
    The version at which a run goes on.

    Args:
        state: The state of that version.
        version: The version.
        node: The node that wrote it, by `metadata.current_node`; None before the first node.
        next: The node that comes next; None at the end, or when the store does not know the nodes.
        is_final: Whether the run had ended.
    """

    state: dict[str, Any]
    version: int
    node: str | None
    next: str | None
    is_final: bool


class StateStats(TypedDict):
    """
    Of all states that can be seen: how many versions there are, when the first state began and the last one changed (in ms, None
    without states), the mean size of a state in bytes, and the number of versions by user, which only admins see.
    """

    total_checkpoints: int
    oldest_checkpoint: int | None
    newest_checkpoint: int | None
    average_state_size: float
    checkpoints_by_user: dict[str, int] | None


def state_version(record: VersionRecord) -> StateVersion:
    return StateVersion(
        version=record.version,
        node=record.node,
        parent=None if record.parent is None else int(record.parent),
        is_final=record.is_final,
        stored_at=record.stored_at,
        size_bytes=record.size_bytes,
        is_pruned=record.skeleton is not None,
    )


def state_info(record: VersionedRecord) -> StateInfo:
    user_id, conversation_id = parse_state_id(record.key)
    return StateInfo(
        id=record.key,
        user_id=user_id,
        conversation_id=conversation_id,
        version=record.version,
        node=record.node,
        created_at=record.created_at,
        updated_at=record.updated_at,
        expires_at=record.expires_at,
        size_bytes=record.size_bytes,
        hold=record.hold,
    )


def stats_of(infos: list[StateInfo], *, with_users: bool) -> StateStats:
    """The numbers over some states."""
    by_user: dict[str, int] = {}
    for info in infos:
        by_user[info.user_id] = by_user.get(info.user_id, 0) + info.version
    return {
        "total_checkpoints": sum(info.version for info in infos),
        "oldest_checkpoint": min((info.created_at for info in infos), default=None),
        "newest_checkpoint": max((info.updated_at for info in infos), default=None),
        "average_state_size": sum(info.size_bytes for info in infos) / len(infos) if infos else 0.0,
        "checkpoints_by_user": by_user if with_users else None,
    }


def current_node(state: Mapping[str, Any]) -> str | None:
    """The node that wrote last, by the state itself."""
    node = _marked(state).get("current_node")
    return node if isinstance(node, str) else None


def is_final(state: Mapping[str, Any]) -> bool:
    """Whether the end node wrote last, by the state itself."""
    return _marked(state).get("is_final_state") is True


def _marked(state: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = state.get("metadata")
    return cast("Mapping[str, Any]", metadata) if isinstance(metadata, Mapping) else {}


AccessKind = Literal["access", "modify", "delete"]


class Identity(msgspec.Struct, frozen=True):
    """On whose behalf a store is used. Without a user nothing is allowed."""

    user_id: str | None
    is_admin: bool = False

    def check(self, kind: AccessKind, state_id: str) -> None:
        """Raise `AccessDeniedError` unless the state is the user's, or the user is an admin."""
        self.check_known()
        if not self.is_admin and parse_state_id(state_id).user_id != self.user_id:
            msg = f"may not {kind} state {shown_id(state_id)!r}: it belongs to another user"
            raise AccessDeniedError(msg)

    def check_known(self) -> None:
        """Raise `AccessDeniedError` without a user."""
        if not self.user_id:
            msg = "may not access, modify or delete states without an identity; give the id of the user to for_identity"
            raise AccessDeniedError(msg)

    def narrowed(self, narrower: "Identity") -> "Identity":
        """Return the identity of a view of a view: never more than the first one."""
        return narrower if self.is_admin or narrower == self else Identity(None)


def check_user(state_id: str, state: Mapping[str, Any]) -> None:
    """Raise `AccessDeniedError` when a state says that it is of another user than its id."""
    user_id = state.get("user_id")
    if user_id is not None and user_id != parse_state_id(state_id).user_id:
        msg = f"may not modify state {shown_id(state_id)!r}: its user_id is not that of its owner, who never changes"
        raise AccessDeniedError(msg)


Checkpointing = Literal["every", "significant", "background"]
"""
When updates become versions, and what the end of the process at any point can lose:

- `every`: each update, before the call returns. Nothing is lost.
- `significant`: updates whose diff is not empty, those of the end node, and those at an interrupt. What came after the last of
  them is lost.
- `background`: each update, by a thread of the store. What still waits is lost: at most `queue_size` updates and the one that is
  being written. The end node, an interrupt, `flush` and `close` wait until nothing waits.
"""

Route = Callable[[str, dict[str, Any]], "str | None"]
Nodes = Sequence[str] | Route
"""The nodes of a graph in their order; or a function of the node that wrote last and the state, that gives the next one."""

MAX_STATE_BYTES: Final = 16 * 1024 * 1024
QUEUE_SIZE: Final = 64


class StateSettings(msgspec.Struct, frozen=True):
    """The checked arguments of a store of states."""

    reducers: Reducers
    order: tuple[str, ...]
    route: Route | None
    exclude: frozenset[str]
    ttl_ms: int | None
    max_state_bytes: int
    checkpointing: Checkpointing
    queue_size: int

    def is_end(self, node: str) -> bool:
        """Whether it is the last one of the nodes in order."""
        return self.order[-1:] == (node,)

    def next_node(self, state: dict[str, Any]) -> str | None:
        """The node after the one that wrote last."""
        node = current_node(state)
        if self.route is not None:
            return None if node is None else self.route(node, state)
        if node is None or not self.order:
            return next(iter(self.order), None)
        if node not in self.order:
            msg = (
                f"the state was written by node {node!r}, which is not one of the nodes; give all nodes in their order"
            )
            raise InvalidValueError(msg)
        return next(iter(self.order[self.order.index(node) + 1 :]), None)

    def kept(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """The fields that are stored, copied."""
        return {
            check_id(name, "the name of a field", empty=True): json_copy(value, f"field {name!r} of the state")
            for name, value in state.items()
            if name not in self.exclude
        }


def make_settings(
    reducers: Reducers,
    nodes: Nodes | None,
    exclude: Collection[str],
    ttl_seconds: float | None,
    max_state_bytes: int,
    checkpointing: Checkpointing,
    queue_size: int,
) -> StateSettings:
    """Check the arguments. Raises `InvalidValueError`."""
    if checkpointing not in get_args(Checkpointing):
        msg = f"checkpointing must be one of {', '.join(get_args(Checkpointing))}, not {checkpointing!r}"
        raise InvalidValueError(msg)
    if isinstance(exclude, str) or isinstance(nodes, str):
        msg = "exclude and nodes are lists of names, not text"
        raise InvalidValueError(msg)
    if check_count(queue_size, "queue_size") == 0:
        msg = "queue_size must be at least 1"
        raise InvalidValueError(msg)
    return StateSettings(
        reducers=reducers,
        order=() if nodes is None or callable(nodes) else tuple(nodes),
        route=nodes if callable(nodes) else None,
        exclude=frozenset(exclude),
        ttl_ms=None if ttl_seconds is None else milliseconds(ttl_seconds, "ttl_seconds"),
        max_state_bytes=check_count(max_state_bytes, "max_state_bytes"),
        checkpointing=checkpointing,
        queue_size=queue_size,
    )


def milliseconds(seconds: Any, what: str) -> int:
    """A number of seconds above 0, in ms."""
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not 0 < seconds < 2**40:
        msg = f"{what} must be a number of seconds above 0, not {seconds!r}"
        raise InvalidValueError(msg)
    return max(1, round(float(seconds) * 1000))
