"""Settings of a kind of state: reducers, excluded fields, lifetime, size limit, and checkpointing."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Literal, get_args

import msgspec

from chatledger.domain.errors import AccessDeniedError, InvalidValueError
from chatledger.domain.graph.reducers import Reducers
from chatledger.domain.limits import check_count, check_id, json_copy
from chatledger.domain.versioned.keys import parse_state_id, shown_id

from .values import current_node

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

    def narrowed(self, given: "Identity") -> "Identity":
        """Return the identity of a view of a view: never more than the first one."""
        return given if self.is_admin or given == self else Identity(None)


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
    if not is_number or not math.isfinite(seconds) or not 0 < seconds < 2**40:
        msg = f"{what} must be a number of seconds above 0, not {seconds!r}"
        raise InvalidValueError(msg)
    return max(1, round(float(seconds) * 1000))
