"""The page of a state of a graph: its versions, the values of one, and what changed."""

from typing import Annotated, Any, Final

import msgspec

from chatledger.domain.errors import AccessDeniedError, InvalidValueError, NotFoundError
from chatledger.domain.graph.transition import StateDiff, get_state_diff
from chatledger.domain.versioned.keys import parse_state_id, shown_id
from chatledger.domain.wire import Value

from ...ledger.graph.state_store import StateStore
from ...ledger.graph.values import StateInfo, StateVersion
from ..http.routing import HttpCall
from .actions import DeleteState, Offer, deletion
from .changes import Change, changes_between
from .page import ExplorerPage, refuse_moment

_ROWS: Final = 50

Version = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]


class StatePage(Value, frozen=True, kw_only=True):
    """
    A state of a graph.

    Args:
        info: What there is about it.
        versions: Its versions, the newest first.
        before: Begins the part of older ones; None at the first.
        shown: The version that the query names, or the newest one.
        values: Its values.
        compared: The version that it is compared with: the one that the query names, the one that it was made from,
            or the one before.
        changes: What differs from that.
        observed: The same in numbers, as observers get it.
        actions: What can be done.
    """

    info: StateInfo
    versions: list[StateVersion]
    before: int | None
    shown: StateVersion
    values: dict[str, Any]
    compared: int | None
    changes: list[Change]
    observed: StateDiff
    actions: list[Offer]


def state(
    call: HttpCall,
    state_id: str,
    *,
    version: Version | None = None,
    to: Version | None = None,
    before: Version | None = None,
) -> StatePage:
    """
    Read a state of a graph. Those of others are not there.

    Args:
        call: The request.
        state_id: The state.
        version: The version whose values are shown; the newest when None.
        to: The version to compare it with; its parent when None.
        before: Only versions before this one are listed.
    """
    refuse_moment(call)
    store = StateStore(call.ledger)
    info = _info(store, state_id)
    listed = store.history(state_id, limit=_ROWS + 1, before=before)
    wanted = info.version if version is None else version
    shown = next(iter(store.history(state_id, limit=1, before=wanted + 1)), None)
    values = store.get(state_id, wanted)
    if shown is None or shown.version != wanted or values is None:
        raise _absent(state_id)
    earlier = store.history(state_id, limit=1, before=wanted)
    # A version that began a branch of the state is compared with the one it was made from, not with its neighbour.
    other = to or shown.parent or next((listed_version.version for listed_version in earlier), None)
    old = None if other is None else store.get(state_id, other)
    if to is not None and old is None:
        raise _absent(state_id)
    return StatePage(
        info=info,
        versions=listed[:_ROWS],
        before=listed[_ROWS - 1].version if len(listed) > _ROWS else None,
        shown=shown,
        values=values,
        compared=None if old is None else other,
        changes=changes_between(old or {}, values),
        observed=get_state_diff(old, values),
        actions=deletion(call, DeleteState(state_id=state_id)),
    )


def _info(store: StateStore, state_id: str) -> StateInfo:
    try:
        key = parse_state_id(state_id)
        states = store.list(user_id=key.user_id, conversation_id=key.conversation_id)
    except (InvalidValueError, AccessDeniedError):
        states = []
    info = next((listed for listed in states if listed.id == state_id), None)
    if info is None:
        raise _absent(state_id)
    return info


def _absent(state_id: str) -> NotFoundError:
    return NotFoundError(f"there is no state {shown_id(state_id)!r}, or not of that version")


PAGES: Final = (ExplorerPage("/states/{state_id}", state, "state.html"),)
