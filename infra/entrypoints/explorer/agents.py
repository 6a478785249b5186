"""The page of agents: their threads, and the states of graphs, filtered, sorted, page by page."""

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

import msgspec

from chatledger.domain.wire import Value

from ...ledger.graph.state_store import StateStore
from ...ledger.graph.values import StateInfo
from ...ledger.threads import ThreadInfo, Threads
from ..agent_steps import assistants_of, step_of
from .page import Page, PageCall, refuse_moment

_ROWS: Final = 50

Kind = Literal["threads", "states"]
Order = Literal["updated", "created", "size", "id"]

_THREAD_KEYS: Final[dict[Order, Callable[[ThreadInfo], Any]]] = {
    "updated": lambda one: one.updated_at,
    "created": lambda one: one.created_at,
    "size": lambda one: one.checkpoint_count,
    "id": lambda one: one.thread_id,
}
_STATE_KEYS: Final[dict[Order, Callable[[StateInfo], Any]]] = {
    "updated": lambda one: one.updated_at,
    "created": lambda one: one.created_at,
    "size": lambda one: one.version,
    "id": lambda one: one.id,
}


class ThreadRow(Value, frozen=True, kw_only=True):
    """A thread of agents, its assistants, and the last step, where its framework says which it is."""

    thread: ThreadInfo
    assistants: list[str]
    last_step: int | None
    last_source: str | None


class Agents(Value, frozen=True, kw_only=True):
    """
    A page of threads or states.

    Args:
        kind: Which of the two.
        threads, states: Those of the page, in the order that was asked for.
        thread_count, state_count: How many there are that fit the filter.
        number: Of the page, from 1.
        pages: How many pages there are.
        q, owner, order, ascending: What was asked for.
    """

    kind: Kind
    threads: list[ThreadRow]
    states: list[StateInfo]
    thread_count: int
    state_count: int
    number: int
    pages: int
    q: str
    owner: str
    order: Order
    ascending: bool


def agents(
    call: PageCall,
    *,
    kind: Kind = "threads",
    q: Annotated[str, msgspec.Meta(max_length=1000)] = "",
    owner: str = "",
    order: Order = "updated",
    ascending: bool = False,
    number: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 1,
) -> Agents:
    """Read a page of the threads of agents, or of the states of graphs; with `q` those with these words in their ids or names."""
    refuse_moment(call)
    words = q.casefold().split()
    threads = [
        one
        for one in Threads(call.ledger).infos()
        if owner in {"", one.owner} and _has(words, one.thread_id, *one.namespaces)
    ]
    states = [
        one for one in StateStore(call.ledger).list() if owner in {"", one.user_id} and _has(words, one.id, one.node)
    ]
    threads.sort(key=lambda one: one.thread_id)
    threads.sort(key=_THREAD_KEYS[order], reverse=not ascending)
    states.sort(key=lambda one: one.id)
    states.sort(key=_STATE_KEYS[order], reverse=not ascending)
    part = slice((number - 1) * _ROWS, number * _ROWS)
    count = len(threads) if kind == "threads" else len(states)
    return Agents(
        kind=kind,
        threads=[_row(call, one) for one in threads[part]] if kind == "threads" else [],
        states=states[part] if kind == "states" else [],
        thread_count=len(threads),
        state_count=len(states),
        number=number,
        pages=max(-(-count // _ROWS), 1),
        q=q,
        owner=owner,
        order=order,
        ascending=ascending,
    )


def _has(words: list[str], *names: str | None) -> bool:
    text = " ".join(name for name in names if name).casefold()
    return all(word in text for word in words)


def _row(call: PageCall, info: ThreadInfo) -> ThreadRow:
    with Threads(call.ledger).reading(info.thread_id) as thread:
        newest = max(filter(None, map(thread.latest, info.namespaces)), key=lambda one: one.stored_at, default=None)
    step, source = (None, None) if newest is None else step_of(newest.metadata)
    return ThreadRow(thread=info, assistants=assistants_of(info.namespaces), last_step=step, last_source=source)


PAGES: Final = (Page("/agents", agents, "agents.html", title="Agents"),)
