"""With a chat go the states of graphs whose conversation it is."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

from chatledger.domain.agents.streams import thread_of
from chatledger.domain.events import Body
from chatledger.domain.graph_state.decide import decide_delete_state
from chatledger.domain.graph_state.ids import is_state_stream
from chatledger.projections.graph_state.indexed_state import IndexedGraphState
from chatledger.projections.graph_state.listing import listed_states
from chatledger.projections.index import Snapshot

Look = Callable[[], AbstractContextManager[Snapshot]]
Execute = Callable[[str, Callable[[IndexedGraphState, int], list[Body]]], object]


def delete_states_of_chats(look: Look, execute: Execute) -> None:
    """Remove the states of chats that were deleted, and are still to be erased; not those that came later."""
    due: list[tuple[str, int]] = []
    with look() as snapshot:
        for erasure in snapshot.erasures():
            if thread_of(erasure.chat_id) is None and not is_state_stream(erasure.chat_id):
                states = listed_states(snapshot.txn, snapshot.tables, conversation_id=erasure.chat_id)
                tombstone = erasure.tombstone_position
                due += [(state.state_id, tombstone) for state in states if state.first_position < tombstone]
    for state_id, tombstone in due:
        execute(state_id, partial(_end, tombstone=tombstone))


def _end(state: IndexedGraphState, now: int, *, tombstone: int) -> list[Body]:
    del now
    if state.record is None or state.record.first_position > tombstone:
        return []
    return decide_delete_state(state, reason="chat_deleted")
