# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownParameterType=false, reportUnknownArgumentType=false
# strands-agents is not among the development dependencies, with some of which it conflicts.
"""
The history of an agent of Strands: the active branch of its chat, by the indexes that Strands counts messages by.

A message that Strands wrote has its index with it, which mostly is its depth in the chain. Messages of others count as many as
they become.
"""

from collections.abc import Callable
from typing import Final

from strands.types.session import SessionMessage

from chatledger.domain.chat.annotations import for_model
from chatledger.domain.context.messages import object_at
from chatledger.domain.errors import ChatNotFoundError
from chatledger.domain.values import Message
from chatledger.projections.chat.chains import Place
from chatledger.projections.chat.reader import IndexedChat

from .messages import ORIGINAL, index_of, session_messages

_PAGE: Final = 64


class History:
    """
    A history as it is in one snapshot.

    Args:
        chat: The chat.
        chat_id: The id that it was asked for by.

    Raises:
        ChatNotFoundError: There is no such chat.
    """

    def __init__(self, chat: IndexedChat, chat_id: str) -> None:
        branch = None if chat.record is None else chat.branch(chat.record.active_branch)
        if branch is None:
            raise ChatNotFoundError(chat_id)
        self._chat = chat
        self.head_message_id = branch.head_message_id
        """The last message; None in an empty history."""
        self._length = branch.message_count
        self._head: Place | None = None if self.head_message_id is None else chat.place(self.head_message_id)

    @property
    def count(self) -> int:
        """The index of the next message. Costs nothing more in a long history, and what others wrote since Strands did."""
        if self._head is None:
            return 0
        last = index_of(self._chat.chains.message(self._head))
        if last is not None:
            return last + 1
        numbered = self._numbered(self._read(self._head, 1, _is_anchor))
        return numbered[-1].message_id + 1 if numbered else 0

    def at(self, index: int) -> Message | None:
        """Return the message that Strands wrote at an index, as it was written first; None where there is none."""
        if self._head is None:
            return None
        chains = self._chat.chains
        if 0 <= index < self._length:
            message = chains.message(chains.ancestor(self._head, index))
            if index_of(message) == index:
                return message
        return next((message for message in chains.chain(self._head) if index_of(message) == index), None)

    def page(self, limit: int | None, offset: int) -> list[SessionMessage]:
        """Return messages from an index on, at most `limit`."""
        if self._head is None or limit == 0:
            return []
        chains, head, wanted = self._chat.chains, self._head, max(self._length - offset, 1)
        end = self._length if limit is None else offset + limit
        if end < self._length:  # the last one of the page, where depths and indexes are the same
            place = chains.ancestor(head, end - 1)
            if index_of(chains.message(place)) == end - 1:
                head, wanted = place, min(end, limit or end)

        def is_enough(first: Message) -> bool:
            index = index_of(first)
            return index is not None and index <= offset

        found = [one for one in self._numbered(self._read(head, wanted, is_enough)) if one.message_id >= offset]
        return found if limit is None else found[:limit]

    def _read(self, head: Place, count: int, is_enough: Callable[[Message], bool]) -> list[Message]:
        """Read the chain that ends at a place, back to its root or to a message that is enough."""
        chains = self._chat.chains
        length = chains.depth(head) + 1
        taken = min(max(count, 1), length)
        while True:
            messages = chains.chain(head, taken)
            if taken == length or is_enough(messages[0]):
                return messages
            taken = min(taken * 2, length)

    def _numbered(self, chain: list[Message]) -> list[SessionMessage]:
        """The messages of Strands for a chain: of what a model gets of it."""
        found: list[SessionMessage] = []
        index = 0
        for message in for_model(self._chat, chain):
            replaced = object_at(message.data).get(ORIGINAL)
            original = self._chat.message(replaced) if isinstance(replaced, str) else None
            told = session_messages(message, original, index)
            found += told
            index = told[-1].message_id + 1 if told else index
        return found


def _is_anchor(first: Message) -> bool:
    return index_of(first) is not None
