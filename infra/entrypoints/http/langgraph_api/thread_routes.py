"""Routes of threads: made, found, changed, copied, pruned and deleted."""

from contextlib import suppress
from typing import Annotated, Any, Final, Literal

import msgspec
from langchain_core.utils.uuid import uuid7
from langgraph.types import StateUpdate

from chatledger.domain.errors import NotFoundError

from .contract import AgentCall, Limit, Offset, route
from .graph_events import command_of
from .known_threads import find_thread
from .states import place_of, write_supersteps
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


ROUTES: Final = [
    route("POST", "/threads", create),
    route("POST", "/threads/search", search, is_reading=True),
    route("POST", "/threads/count", count, is_reading=True),
    route("POST", "/threads/prune", prune),
    route("GET", "/threads/{thread_id}", get),
    route("PATCH", "/threads/{thread_id}", update),
    route("DELETE", "/threads/{thread_id}", delete),
    route("POST", "/threads/{thread_id}/copy", copy),
]
