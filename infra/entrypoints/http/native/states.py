"""
States of graphs: whole states by version, read, stored and deleted.

What needs the graph's own functions stays in the process that has them: reducing an update into a state, the node that comes
next, observers, and checkpointing in the background.
"""

from typing import Annotated, Any, Final

import msgspec

from chatledger.domain.errors import InvalidValueError, NotFoundError, PayloadTooLargeError, StateConflictError
from chatledger.domain.versioned.keys import shown_id
from chatledger.domain.wire import Value

from ....ledger.graph.state_store import StateStore, StateView
from ....ledger.graph.values import StateInfo, StateVersion
from ..routing import IDEMPOTENCY_KEY, HttpCall, Limit, Route, existing
from .chats import Deleted

Version = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class State(Value, frozen=True):
    """A state of a graph: its values at a version."""

    id: str
    version: int
    values: dict[str, Any]


class NewState(msgspec.Struct, forbid_unknown_fields=True):
    """A whole state, stored as the next version; with `expected_version` only after that one, 0 for none yet."""

    values: dict[str, Any]
    expected_version: Version | None = None
    node: str | None = None


class Stored(Value, frozen=True):
    """The version that was stored."""

    version: int


def list_states(call: HttpCall, user_id: str | None = None, conversation_id: str | None = None) -> list[StateInfo]:
    """List the states of graphs, the last changed first."""
    return _at(call).list(user_id=user_id, conversation_id=conversation_id)


def get_state(call: HttpCall, state_id: str, version: Version | None = None) -> State:
    """Read a state: the newest version, or the one that is named."""
    store = StateStore(call.ledger)
    if call.moment is not None:
        newest = store.as_of(call.moment).get_version(state_id)
        version = newest if version is None else version
        if not 0 < version <= newest:
            raise _absent(state_id)  # later versions were not there at that moment
    snapshot = existing(store.resume(state_id, version), _absent, state_id)
    return State(state_id, snapshot.version, snapshot.state)


def list_state_versions(
    call: HttpCall, state_id: str, limit: Limit = 50, before: Version | None = None
) -> list[StateVersion]:
    """List the versions of a state, the newest first, without their values."""
    return _at(call).history(state_id, limit=limit, before=before)


def put_state(call: HttpCall, state_id: str, body: NewState) -> Stored:
    """
    Store a whole state as the next version. The id names its owner: `chat:<user id>:<conversation id>`.

    What makes repeating safe is `expected_version`: an `Idempotency-Key` without it is refused.
    """
    if call.header(IDEMPOTENCY_KEY) is not None and body.expected_version is None:
        msg = f"states know no {IDEMPOTENCY_KEY}: send expected_version, so that repeating stores nothing twice"
        raise InvalidValueError(msg)
    version = StateStore(call.ledger).put(state_id, body.values, expected_version=body.expected_version, node=body.node)
    return Stored(version)


def delete_state(call: HttpCall, state_id: str) -> Deleted:
    """Delete a state with all its versions, and erase them from the log."""
    return Deleted(StateStore(call.ledger).delete(state_id))


def _at(call: HttpCall) -> StateStore | StateView:
    """Return the states, as of the moment of a call that names one."""
    store = StateStore(call.ledger)
    return store if call.moment is None else store.as_of(call.moment)


def _absent(state_id: str) -> NotFoundError:
    return NotFoundError(f"no state {shown_id(state_id)!r}, or not of that version")


ROUTES: Final = [
    Route("GET", "/states", list_states),
    Route("GET", "/states/{state_id}", get_state, raises=[NotFoundError]),
    Route("GET", "/states/{state_id}/versions", list_state_versions),
    Route("PUT", "/states/{state_id}", put_state, raises=[StateConflictError, PayloadTooLargeError]),
    Route("DELETE", "/states/{state_id}", delete_state),
]
