"""The words in which a store is asked: what is to be read, what is to be decided, within which limits."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from chatledger.domain.chat.events import Body
from chatledger.domain.log.codec import EncodedEvent
from chatledger.projections.chat.reader import IndexedChat
from chatledger.projections.log.kinds import R
from chatledger.projections.snapshot import Snapshot
from chatledger.projections.user_snapshot import UserSnapshot

Decide = Callable[[IndexedChat, int], list[Body]]
"""(state, now in ms) to what is to be written: a pure function, for it is asked as often as it takes; see `Store.execute`."""
View = Callable[[Snapshot], Snapshot | UserSnapshot]
"""Limits a snapshot to what a caller may see."""
Take = Callable[[R], Sequence[EncodedEvent]]
"""State to the events of another log that follow it: a pure function too."""
EventKind = type[Body] | tuple[type[Body], ...]
"""The type of the event that a command writes first."""

RETRY_S: Final = 30.0
"""How long a lost race is tried again."""


class ChatsToRead(NamedTuple):
    """
    The chats that a read concerns. A store of an earlier moment prepares them, and then shows no others; one that holds a
    share of the chats refuses others.

    Args:
        chat_id: The chat of this id.
        message_ids: The chats that these messages belong to, up to the first message that is in none.
        branch_id: The chat that has the branch of this id.
        are_all: All chats, or with `user_id` those of that owner.
        are_searched: All chats, and they are searched together.
        user_id: The owner.
        is_written: The caller writes to the chat `chat_id`, which may be done from everywhere.
    """

    chat_id: str | None = None
    message_ids: tuple[str, ...] = ()
    are_all: bool = False
    are_searched: bool = False
    user_id: str | None = None
    is_written: bool = False
    branch_id: str | None = None


NO_CHATS: Final = ChatsToRead()


class EventLimits(NamedTuple):
    """The most bytes of an event as the log stores it, and of the data of a message, which may be stored beside it."""

    event_bytes: int
    message_bytes: int
