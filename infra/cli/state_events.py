"""The events of a graph's state in words."""

from typing import Final

from chatledger.domain.events import Body
from chatledger.domain.graph_state.events import StateContentPut, StateDeleted, StatePut
from chatledger.domain.graph_state.ids import shown_id

from .output import count

STATE_STYLES: Final = {"state_put": "blue", "state_deleted": "bold red"}


def describe_state_event(body: Body) -> str:
    """What an event did, in a few words; no user and no content."""
    match body:
        case StatePut(state_id=state_id, version=version, node=node, is_final=is_final):
            by = "" if node is None else f", by {node}"
            return f"{shown_id(state_id)} version {version}{by}{', final' if is_final else ''}"
        case StateContentPut(pieces=pieces):
            return f"{count(len(pieces), 'piece')} of the version that follows"
        case StateDeleted(version_count=versions, reason=reason):
            return f"{count(versions, 'version')} erased, {reason.replace('_', ' ')}"
        case _:
            return ""
