"""Whose chat an event of the log belongs to."""

from typing import Final

from chatledger.domain.agents.events import AgentThreadDeleted
from chatledger.domain.agents.streams import thread_of
from chatledger.domain.events import ChatCreated, ChatDeleted, Recorded
from chatledger.domain.graph_state.events import StateDeleted, StatePut
from chatledger.domain.graph_state.ids import is_state_stream, parse_state_id
from chatledger.domain.ownership import is_owner_of_deleted
from chatledger.projections.graph_state.indexed_state import IndexedGraphState

from .ledger.port import LedgerSnapshot, LedgerStore
from .store import RETRY_S

_KEPT: Final = 10_000


class Owners:
    """
    Tells the events of one user's chats and threads from those of others. To be asked in the order of the log.

    The owner of a chat never changes, but its id can get another owner after its deletion. What is still on the log of a
    deleted chat is about to be erased, and belongs to nobody any more unless its beginning was seen here; its tombstone
    belongs to who owned it.
    """

    def __init__(self, store: LedgerStore) -> None:
        self._store = store
        self._known: dict[str, str | None] = {}

    def is_owner(self, user_id: str, recorded: Recorded) -> bool:
        """Whether the event belongs to a chat of this user."""
        chat_id, body = recorded.chat_id, recorded.body
        if isinstance(body, ChatDeleted | AgentThreadDeleted):
            known = self._known.pop(chat_id, None)
            if body.owner_digest is None:  # written before tombstones could tell
                return known == user_id
            return is_owner_of_deleted(body, chat_id, user_id)
        if isinstance(body, StateDeleted):  # who has not seen the state can not tell whose it was
            return self._known.pop(chat_id, None) == user_id
        if isinstance(body, ChatCreated):
            self._keep(chat_id, body.user_id)
        elif isinstance(body, StatePut):
            self._keep(chat_id, parse_state_id(body.state_id).user_id)
        elif chat_id not in self._known:
            self._keep(chat_id, self._look_up(recorded))
        return self._known[chat_id] == user_id

    def _keep(self, chat_id: str, user_id: str | None) -> None:
        if len(self._known) >= _KEPT:
            self._known.clear()
        self._known[chat_id] = user_id

    def _look_up(self, recorded: Recorded) -> str | None:
        """The owner of the chat that the event belongs to; None when that chat is deleted."""
        while True:
            with self._store.snapshot() as snapshot:
                position = snapshot.state.position
                first_position, owner = _life(snapshot, recorded.chat_id)
            if position >= recorded.position:
                break
            self._store.catch_up(recorded.position, RETRY_S)
        return None if first_position is None or recorded.position < first_position else owner


def _life(snapshot: LedgerSnapshot, stream: str) -> tuple[int | None, str | None]:
    """Where a chat or a thread of agents that is there began, and its owner."""
    thread_id = thread_of(stream)
    if thread_id is not None:
        thread = snapshot.thread(thread_id, even_quarantined=True)
        return (None, None) if thread.record is None else (thread.record.first_position, thread.owner)
    if is_state_stream(stream):
        state = IndexedGraphState(snapshot.tables, snapshot.txn, stream).record
        return (None, None) if state is None else (state.first_position, parse_state_id(state.state_id).user_id)
    chat = snapshot.chat(stream, even_quarantined=True)
    if chat.record is None or chat.profile is None:
        return None, None
    return chat.record.first_position, chat.profile.user_id
