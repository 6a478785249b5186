"""The page of agents: their threads, and the states of graphs, filtered, in the order of their changes or beginnings, page by page."""

from typing import Annotated, Final, Literal

import msgspec

from chatledger.domain.versioned.record import METADATA
from chatledger.domain.wire import Value

from ...ledger.graph.state_store import StateStore
from ...ledger.graph.values import StateInfo
from ...ledger.parts import ListOrder
from ...ledger.threads import ThreadInfo, Threads
from ..agent_steps import assistants_of, step_of
from ..http.routing import HttpCall
from .page import ExplorerPage, refuse_moment

_ROWS: Final = 50

Kind = Literal["threads", "states"]


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
        threads, states: Those of the page, in `order`. Where few of many fit the filter, a page may have few or none of them,
            though others follow.
        next: To be sent as `after` for those that follow; None where there are no more.
        q, owner, order, ascending: The filter and the order of the request.
    """

    kind: Kind
    threads: list[ThreadRow]
    states: list[StateInfo]
    next: str | None
    q: str
    owner: str
    order: ListOrder
    ascending: bool


def agents(
    call: HttpCall,
    *,
    kind: Kind = "threads",
    q: Annotated[str, msgspec.Meta(max_length=1000)] = "",
    owner: str = "",
    order: ListOrder = "updated",
    ascending: bool = False,
    after: str | None = None,
) -> Agents:
    """Read a page of the threads of agents, or of the states of graphs; with `q` those with these words in their ids or names."""
    refuse_moment(call)
    words = q.casefold().split()
    threads: list[ThreadInfo] = []
    states: list[StateInfo] = []
    if kind == "threads":
        threads, following = Threads(call.ledger).list_part(
            limit=_ROWS,
            user_id=owner or None,
            order=order,
            ascending=ascending,
            after=after or None,
            keep=lambda entry: _has(words, entry.thread_id, *entry.namespaces),
        )
    else:
        states, following = StateStore(call.ledger).list_part(
            limit=_ROWS,
            user_id=owner or None,
            order=order,
            ascending=ascending,
            after=after or None,
            keep=lambda entry: _has(words, entry.id, entry.node),
        )
    return Agents(
        kind=kind,
        threads=[_row(call, entry) for entry in threads],
        states=states,
        next=following,
        q=q,
        owner=owner,
        order=order,
        ascending=ascending,
    )


def _has(words: list[str], *names: str | None) -> bool:
    text = " ".join(name for name in names if name).casefold()
    return all(word in text for word in words)


def _row(call: HttpCall, info: ThreadInfo) -> ThreadRow:
    with Threads(call.ledger).reading(info.thread_id) as thread:
        newest = max(
            filter(None, map(thread.newest, info.namespaces)), key=lambda record: record.stored_at, default=None
        )
    step, source = (None, None) if newest is None else step_of(newest.frames[METADATA])
    return ThreadRow(thread=info, assistants=assistants_of(info.namespaces), last_step=step, last_source=source)


PAGES: Final = (ExplorerPage("/agents", agents, "agents.html", title="Agents"),)
