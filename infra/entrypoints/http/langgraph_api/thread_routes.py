"""Routes of threads: made, found, changed, copied, pruned and deleted; and of their states, of now, at checkpoints, and new ones."""

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Annotated, Any, Final, Literal, NoReturn, cast

import msgspec
from langchain_core.utils.uuid import uuid7
from langgraph.types import StateUpdate

from chatledger.domain.errors import InvalidValueError, NotFoundError

from ..problems import RequestError
from .contract import AgentCall, Limit, Offset, route
from .graph_events import command_of
from .known_threads import find_thread
from .states import (
    Checkpoint,
    StatePlace,
    find_place,
    place_of,
    read_history,
    read_state,
    update_state,
    write_supersteps,
)
from .threads import (
    Field,
    Ids,
    SortBy,
    ThreadFilter,
    TimeToLive,
    copy_thread,
    count_fitting,
    create_thread,
    delete_thread,
    find_threads,
    shown_threads,
    shown_ttl,
    update_thread,
)

Minutes = Annotated[float, msgspec.Meta(gt=0)]


class Update(msgspec.Struct):
    """A write of a node: values, or a command."""

    values: Any = None
    command: dict[str, Any] | None = None
    as_node: str | None = None

    @property
    def state(self) -> StateUpdate:
        """The write as the graph takes it."""
        values: Any = self.values if self.command is None else command_of(self.command)
        return StateUpdate(values, self.as_node)


class Superstep(msgspec.Struct):
    """The writes of nodes in one step."""

    updates: Annotated[list[Update], msgspec.Meta(min_length=1)]


class NewThread(msgspec.Struct):
    """A thread to be made."""

    thread_id: str | None = None
    metadata: dict[str, Any] | None = None
    if_exists: Literal["raise", "do_nothing"] | None = None
    supersteps: list[Superstep] | None = None
    ttl: TimeToLive | Minutes | None = None


class ThreadChange(msgspec.Struct):
    """Changes of a thread."""

    metadata: dict[str, Any] | None = None
    ttl: TimeToLive | Minutes | None = None


class ThreadSearch(ThreadFilter):
    """A page of the threads that fit, with some of their fields."""

    limit: Limit = 10
    offset: Offset = 0
    sort_by: SortBy | None = None
    sort_order: Literal["asc", "desc"] | None = None
    select: list[Field] | None = None
    extract: dict[str, str] | None = None


class Pruning(msgspec.Struct):
    """Threads of which old checkpoints go, or all."""

    thread_ids: Ids
    strategy: Literal["delete", "keep_latest"] | None = None


async def create(call: AgentCall, body: NewThread | None = None) -> dict[str, Any]:
    """Make a thread."""
    new = body or NewThread()
    thread_id = str(uuid7()) if new.thread_id is None else new.thread_id
    may_exist = new.if_exists == "do_nothing"
    async with call.runs.starting(thread_id):  # a client that chose the id may begin a run before the steps are there
        thread, is_new = await call.run(
            create_thread, call, thread_id, metadata=new.metadata, ttl=_ttl(new.ttl), may_exist=may_exist
        )
        if new.supersteps and is_new:
            try:
                place = await call.run(place_of, call, thread)
                await write_supersteps(
                    call, place, [[write.state for write in step.updates] for step in new.supersteps]
                )
            except Exception:
                # The client asked for a thread with these steps: one without them would be in its way when it tries again.
                await call.run(delete_thread, call, thread_id)
                raise
    return await _shown(call, thread_id)


async def get(call: AgentCall, thread_id: str, include: str = "") -> dict[str, Any]:
    """Read a thread."""
    return await _shown(call, thread_id, with_ttl="ttl" in include.split(","))


async def update(call: AgentCall, thread_id: str, body: ThreadChange) -> dict[str, Any] | None:
    """Merge metadata into those of a thread, and set its end."""
    await call.run(update_thread, call, thread_id, body.metadata, _ttl(body.ttl))
    if "return=minimal" in call.request.headers.get("prefer", ""):
        return None
    return await _shown(call, thread_id)


def delete(call: AgentCall, thread_id: str) -> None:
    """Delete a thread."""
    delete_thread(call, thread_id)


async def search(call: AgentCall, body: ThreadSearch | None = None) -> list[dict[str, Any]]:
    """Find threads, those that changed last first."""
    wanted = body or ThreadSearch()
    threads, looks = await find_threads(
        call,
        wanted,
        sort_by=wanted.sort_by or "updated_at",
        ascending=wanted.sort_order == "asc",
        until=wanted.offset + wanted.limit + 1,
    )
    page = call.page(threads, wanted.offset, wanted.limit)
    seen = None if looks is None else looks[wanted.offset : wanted.offset + wanted.limit]
    return await shown_threads(call, page, select=wanted.select, extract=wanted.extract, looks=seen)


async def count(call: AgentCall, body: ThreadFilter | None = None) -> int:
    """Count threads."""
    return await count_fitting(call, body or ThreadFilter())


async def copy(call: AgentCall, thread_id: str) -> dict[str, Any]:
    """Copy a thread, under a new id."""
    new_id = str(uuid7())
    await call.run(copy_thread, call, thread_id, new_id)
    return await _shown(call, new_id)


def prune(call: AgentCall, body: Pruning) -> dict[str, int]:
    """Remove all but the newest checkpoints of threads, or the threads."""
    pruned = 0
    for thread_id in dict.fromkeys(body.thread_ids):
        with suppress(NotFoundError):
            if body.strategy == "keep_latest":
                find_thread(call, thread_id)
                call.saver.prune([thread_id])
            else:
                delete_thread(call, thread_id)
            pruned += 1
    return {"pruned_count": pruned}


async def _shown(call: AgentCall, thread_id: str, *, with_ttl: bool = False) -> dict[str, Any]:
    thread = await call.run(find_thread, call, thread_id)
    [shown] = await shown_threads(call, [thread])
    return {**shown, "ttl": shown_ttl(thread.chat)} if with_ttl else shown


def _ttl(life: TimeToLive | float | None) -> TimeToLive | None:
    return life if life is None or isinstance(life, TimeToLive) else TimeToLive(life)


StateField = Literal[
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
    select: list[StateField] | None = None


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
    select: list[StateField] | None = None


async def get_state(
    call: AgentCall,
    thread_id: str,
    *,
    subgraphs: bool = False,
    select: list[StateField] | None = None,
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
    select: list[StateField] | None = None,
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
    route("POST", "/threads", create),
    route("POST", "/threads/search", search, is_reading=True),
    route("POST", "/threads/count", count, is_reading=True),
    route("POST", "/threads/prune", prune),
    route("GET", "/threads/{thread_id}", get),
    route("PATCH", "/threads/{thread_id}", update),
    route("DELETE", "/threads/{thread_id}", delete),
    route("POST", "/threads/{thread_id}/copy", copy),
    route("GET", "/threads/{thread_id}/state", get_state),
    route("POST", "/threads/{thread_id}/state", post_state),
    route("PATCH", "/threads/{thread_id}/state", refuse_patch),
    route("POST", "/threads/{thread_id}/state/checkpoint", post_state_at, is_reading=True),
    route("GET", "/threads/{thread_id}/state/{checkpoint_id}", get_state_at),
    route("GET", "/threads/{thread_id}/history", get_history),
    route("POST", "/threads/{thread_id}/history", post_history, is_reading=True),
]
