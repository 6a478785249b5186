"""The page of agents: their threads by how they stand, and the states of graphs, filtered and in order, page by page."""

from typing import Annotated, Final, Literal

import msgspec

from chatledger.domain.versioned.record import StatusName
from chatledger.domain.wire import Value

from ...ledger.graph.state_store import StateStore
from ...ledger.graph.values import StateInfo
from ...ledger.thread_lists import ListOrder, ThreadInfo
from ..http.routing import HttpCall
from .page import ExplorerPage, refuse_moment

_ROWS: Final = 100

Kind = Literal["threads", "states"]


class Agents(Value, frozen=True, kw_only=True):
    """
    A page of threads or states.

    Args:
        threads, states: Those of the page, in `order`. Where few of many fit the filter, a page may have few or none of them,
            though others follow.
        next: To be sent as `after` for those that follow; None where there are no more.
        q, owner, order, ascending: The filter and the order of the request.
    """

    kind: Kind
    status: StatusName | None
    counts: dict[StatusName, int]
    threads: list[ThreadInfo]
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
    status: StatusName | None = None,
    q: Annotated[str, msgspec.Meta(max_length=1000)] = "",
    owner: str = "",
    order: ListOrder = "updated",
    ascending: bool = False,
    after: str | None = None,
) -> Agents:
    """Read a page of the threads of agents, or of the states of graphs; with `q` those with these words in their ids, nodes or words."""
    refuse_moment(call)
    words = q.casefold().split()
    threads: list[ThreadInfo] = []
    states: list[StateInfo] = []
    if kind == "threads":
        threads, following = call.ledger.list_threads(
            status=status,
            limit=_ROWS,
            user_id=owner or None,
            order=order,
            ascending=ascending,
            after=after or None,
            keep=lambda entry: _has(words, entry.thread_id, *entry.namespaces, entry.status.node, entry.status.words),
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
        status=status,
        counts=call.ledger.count_threads(user_id=owner or None),
        threads=threads,
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


def waiting(call: HttpCall) -> int:
    """Read how many threads wait for an answer."""
    return call.ledger.count_threads()["waits"]


PAGES: Final = (
    ExplorerPage("/agents", agents, "agents.html", title="Agents"),
    ExplorerPage("/waiting", waiting),
)
