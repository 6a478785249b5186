"""The values that a store of states returns."""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypedDict, cast

from chatledger.domain.graph.transition import StateDiff
from chatledger.domain.versioned.keys import parse_state_id
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
    """

    version: int
    node: str | None
    parent: int | None
    is_final: bool
    stored_at: int
    size_bytes: int


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
    """A version as it is answered."""
    return StateVersion(
        version=record.version,
        node=record.node,
        parent=None if record.parent is None else int(record.parent),
        is_final=record.is_final,
        stored_at=record.stored_at,
        size_bytes=record.size_bytes,
    )


def state_info(record: VersionedRecord) -> StateInfo:
    """A state as it is listed."""
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
