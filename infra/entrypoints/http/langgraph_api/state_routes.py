"""Routes of the states of threads: the newest, those at checkpoints, the histories, and new ones."""

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Final, Literal, NoReturn, cast

import msgspec

from chatledger.domain.errors import InvalidValueError

from ..problems import RequestError
from .contract import AgentCall, Limit, route
from .known_threads import find_thread
from .states import Checkpoint, StatePlace, find_place, read_history, read_state, update_state

Field = Literal[
    "values",
    "next",
    "tasks",
    "checkpoint",
    "metadata",
    "created_at",
    "parent_checkpoint",
    "interrupts",
    "checkpoint_ns",
]
Namespace = Annotated[str, msgspec.Meta(description="A namespace as it is stored: `assistant:<id>`.")]


class StateAt(msgspec.Struct):
    """A checkpoint whose state is wanted."""

    checkpoint: dict[str, Any]
    subgraphs: bool = False
    select: list[Field] | None = None


class StateWrite(msgspec.Struct):
    """Values to be written as if a node had."""

    values: Any = None
    checkpoint: dict[str, Any] | None = None
    checkpoint_id: str | None = None
    as_node: str | None = None


class HistoryOf(msgspec.Struct):
    """A part of a history: filters, and the fields of its states."""

    limit: Limit = 10
    before: str | dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    checkpoint: dict[str, Any] | None = None
    checkpoint_ns: str | None = None
    assistant_id: str | None = None
    all_namespaces: bool = False
    select: list[Field] | None = None


async def get_state(
    call: AgentCall,
    thread_id: str,
    *,
    subgraphs: bool = False,
    select: list[Field] | None = None,
    checkpoint_ns: Namespace | None = None,
    assistant_id: str | None = None,
) -> dict[str, Any]:
    """Read the newest state."""
    return await _state(
        call, thread_id, {"checkpoint_ns": checkpoint_ns}, subgraphs=subgraphs, select=select, assistant_id=assistant_id
    )


async def get_state_at(
    call: AgentCall,
    thread_id: str,
    checkpoint_id: str,
    *,
    subgraphs: bool = False,
    select: list[Field] | None = None,
    checkpoint_ns: Namespace | None = None,
    assistant_id: str | None = None,
) -> dict[str, Any]:
    """Read the state at a checkpoint."""
    checkpoint = {"checkpoint_ns": checkpoint_ns, "checkpoint_id": checkpoint_id}
    return await _state(call, thread_id, checkpoint, subgraphs=subgraphs, select=select, assistant_id=assistant_id)


async def post_state_at(
    call: AgentCall, thread_id: str, body: StateAt, assistant_id: str | None = None
) -> dict[str, Any]:
    """Read the state at a checkpoint, which may be of a subgraph."""
    return await _state(
        call, thread_id, body.checkpoint, subgraphs=body.subgraphs, select=body.select, assistant_id=assistant_id
    )


async def post_state(
    call: AgentCall, thread_id: str, body: StateWrite, assistant_id: str | None = None
) -> dict[str, Any]:
    """Write a state as if a node had; after a checkpoint it begins a branch."""
    checkpoint = dict(body.checkpoint or {})
    if body.checkpoint_id is not None:
        checkpoint["checkpoint_id"] = body.checkpoint_id
    place = await find_place(call, thread_id, _checked(checkpoint), assistant_id)
    return await update_state(call, place, body.values, as_node=body.as_node, checkpoint=checkpoint)


async def refuse_patch(call: AgentCall, thread_id: str) -> NoReturn:
    """Refuse to change the metadata of a state."""
    del call, thread_id
    msg = "a checkpoint never changes, nor do its metadata; set those of the thread with PATCH /threads/{thread_id}"
    raise RequestError(501, msg)


async def post_history(call: AgentCall, thread_id: str, body: HistoryOf | None = None) -> list[dict[str, Any]]:
    """Read the states of all branches, the newest first; with `all_namespaces` those of all agents on the thread."""
    wanted = body or HistoryOf()
    checkpoint = dict(wanted.checkpoint or {})
    if wanted.checkpoint_ns is not None:
        checkpoint["checkpoint_ns"] = wanted.checkpoint_ns
    if wanted.all_namespaces and (checkpoint or wanted.assistant_id is not None):
        msg = "all_namespaces reads the states of all agents: leave out checkpoint, checkpoint_ns and assistant_id"
        raise InvalidValueError(msg)
    if wanted.all_namespaces:
        thread = await call.run(find_thread, call, thread_id)
        place = StatePlace(thread, "", None, None)
    else:
        place = await find_place(call, thread_id, _checked(checkpoint), wanted.assistant_id)
    states = await read_history(
        call,
        place,
        limit=wanted.limit,
        before=_before(wanted.before),
        metadata=wanted.metadata,
        checkpoint=checkpoint,
        all_namespaces=wanted.all_namespaces,
    )
    return [_selected(state, wanted.select) for state in states]


async def get_history(
    call: AgentCall,
    thread_id: str,
    *,
    limit: Limit = 10,
    before: str | None = None,
    checkpoint_ns: Namespace | None = None,
    assistant_id: str | None = None,
    all_namespaces: bool = False,
) -> list[dict[str, Any]]:
    """Read the states of all branches, the newest first; with `all_namespaces` those of all agents on the thread."""
    wanted = HistoryOf(
        limit=limit,
        before=before,
        checkpoint_ns=checkpoint_ns,
        assistant_id=assistant_id,
        all_namespaces=all_namespaces,
    )
    return await post_history(call, thread_id, wanted)


async def _state(
    call: AgentCall,
    thread_id: str,
    checkpoint: Checkpoint,
    *,
    subgraphs: bool,
    select: Collection[str] | None,
    assistant_id: str | None,
) -> dict[str, Any]:
    place = await find_place(call, thread_id, _checked(checkpoint), assistant_id)
    return _selected(await read_state(call, place, checkpoint, subgraphs=subgraphs), select)


def _selected(state: dict[str, Any], select: Collection[str] | None) -> dict[str, Any]:
    return state if select is None else {name: state[name] for name in select}


def _checked(checkpoint: Checkpoint) -> Checkpoint:
    for name in ("checkpoint_ns", "checkpoint_id"):
        if not isinstance(checkpoint.get(name), str | None):
            msg = f"{name} must be text"
            raise InvalidValueError(msg)
    if not isinstance(checkpoint.get("checkpoint_map"), Mapping | None):
        msg = "checkpoint_map must be an object"
        raise InvalidValueError(msg)
    return checkpoint


def _before(earlier: str | dict[str, Any] | None) -> str | None:
    """The id of the checkpoint; clients send it as an id, a checkpoint, or a config."""
    if not isinstance(earlier, dict):
        return earlier
    configurable = earlier.get("configurable", earlier)
    return (
        _checked(cast("dict[str, Any]", configurable)).get("checkpoint_id") if isinstance(configurable, dict) else None
    )


ROUTES: Final = [
    route("GET", "/threads/{thread_id}/state", get_state),
    route("POST", "/threads/{thread_id}/state", post_state),
    route("PATCH", "/threads/{thread_id}/state", refuse_patch),
    route("POST", "/threads/{thread_id}/state/checkpoint", post_state_at, is_reading=True),
    route("GET", "/threads/{thread_id}/state/{checkpoint_id}", get_state_at),
    route("GET", "/threads/{thread_id}/history", get_history),
    route("POST", "/threads/{thread_id}/history", post_history, is_reading=True),
]
