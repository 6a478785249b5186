"""The page of a state of a graph: its versions, the values of one, and what changed."""

import json
from collections.abc import Mapping
from difflib import unified_diff
from itertools import islice
from typing import Annotated, Any, Final, Literal

import msgspec

from chatledger.domain.errors import AccessDeniedError, InvalidValueError, NotFoundError
from chatledger.domain.graph.reducers import StateDiff, get_state_diff
from chatledger.domain.versioned.keys import parse_state_id, shown_id
from chatledger.domain.wire import Value

from ...ledger.graph.state_store import StateStore
from ...ledger.graph.values import StateInfo, StateVersion
from ..http.routing import HttpCall
from .actions import DeleteState
from .offers import Offer, deletion
from .page import ExplorerPage, refuse_moment

_LINES: Final = 400
_COMPARED: Final = 4000
"""The most lines of two values that are compared: hostile ones take quadratic time."""

_FIRST_HUNK: Final = ("@@ -0,0 ", "@@ -1 ", "@@ -1,")


class ChangedLine(Value, frozen=True):
    """A line of a value, as indented JSON: `-` of the left one, `+` of the right one, a space for both; `@` where some are left out."""

    sign: str
    text: str


class Change(Value, frozen=True, kw_only=True):
    """A value that differs, by the lines that do with two around them, at most 400; `is_cut` where there are more."""

    name: str
    kind: Literal["added", "removed", "changed"]
    lines: list[ChangedLine]
    is_cut: bool


def changes_between(left: Mapping[str, Any], right: Mapping[str, Any]) -> list[Change]:
    """Return the values that differ, in the order of their names."""
    return [
        _change(name, _lines(left, name), _lines(right, name))
        for name in sorted({*left, *right})
        if name not in left or name not in right or left[name] != right[name]
    ]


def _lines(values: Mapping[str, Any], name: str) -> list[str] | None:
    return json.dumps(values[name], ensure_ascii=False, indent=2).split("\n") if name in values else None


def _change(name: str, left: list[str] | None, right: list[str] | None) -> Change:
    kind: Literal["added", "removed", "changed"] = (
        "added" if left is None else "removed" if right is None else "changed"
    )
    old, new = left or [], right or []
    compared = unified_diff(old[:_COMPARED], new[:_COMPARED], n=2, lineterm="")
    # The first two lines name files; those of hunks count lines, and say nothing where one begins with the first line.
    shown = [
        ChangedLine("@", "…") if line[0] == "@" else ChangedLine(line[0], line[1:])
        for line in islice(compared, 2, None)
        if not line.startswith(_FIRST_HUNK)
    ]
    is_cut = len(shown) > _LINES or max(len(old), len(new)) > _COMPARED
    return Change(name=name, kind=kind, lines=shown[:_LINES], is_cut=is_cut)


_ROWS: Final = 50

Version = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]


class StatePage(Value, frozen=True, kw_only=True):
    """
    A state of a graph.

    Args:
        before: Begins the part of older ones; None at the first.
        compared: The version that it is compared with: the one that the query names, the one that it was made from,
            or the one before.
        observed: The same in numbers, as observers get it.
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
    """Read a state of a graph at a version, compared with the version `to`; those of others are not there."""
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
