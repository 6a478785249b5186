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

from chatledger.domain.context.messages import object_at
from chatledger.domain.values import Message

from ....ledger.history import History
from .messages import ORIGINAL, index_of, session_messages


class AgentHistory:
    """A history of an agent, as it is at one moment."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._length: Final = history.branch.message_count

    @property
    def count(self) -> int:
        """The index of the next message. Costs nothing more in a long history, and what others wrote since Strands did."""
        numbered = self._read(self._history, 1, lambda first: index_of(first) is not None)
        return numbered[-1].message_id + 1 if numbered else 0

    def at(self, index: int) -> Message | None:
        """Return the message that Strands wrote at an index, as it was written first; None where there is none."""
        message = self._history.at(index)
        if message is not None and index_of(message) == index:
            return message
        return next((message for message in self._history.chain() if index_of(message) == index), None)

    def page(self, limit: int | None, offset: int) -> list[SessionMessage]:
        """Return messages from an index on, at most `limit`."""
        if limit == 0:
            return []
        history, wanted = self._history, max(self._length - offset, 1)
        end = self._length if limit is None else offset + limit
        last = history.at(end - 1)
        if end < self._length and last is not None and index_of(last) == end - 1:
            # The last one of the page, where depths and indexes are the same.
            history, wanted = history.up_to(end - 1), min(end, limit or end)

        def is_enough(first: Message) -> bool:
            index = index_of(first)
            return index is not None and index <= offset

        found = [one for one in self._read(history, wanted, is_enough) if one.message_id >= offset]
        return found if limit is None else found[:limit]

    def _read(self, history: History, count: int, is_enough: Callable[[Message], bool]) -> list[SessionMessage]:
        """Read a branch back to its root, or to a message that is enough: as the messages of what a model gets of it."""
        chain: list[Message] = []
        for chain in history.growing(count):
            if chain and is_enough(chain[0]):
                break
        found: list[SessionMessage] = []
        index = 0
        for message in history.for_model(chain):
            replaced = object_at(message.data).get(ORIGINAL)
            original = history.state.message(replaced) if isinstance(replaced, str) else None
            told = session_messages(message, original, index)
            found += told
            index = told[-1].message_id + 1 if told else index
        return found
