# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownParameterType=false, reportUnknownArgumentType=false
# strands-agents is not among the development dependencies, with some of which it conflicts.
"""
The history of an agent of Strands: the active branch of its chat, by the indexes that Strands counts messages by.

A message that Strands wrote says its index, which mostly is its depth in the chain. Messages of others count as many as they become.
"""

from typing import Final

from strands.types.session import SessionMessage

from chatledger.domain.forms.strands import NAME
from chatledger.domain.values import Message

from ....ledger.history import History, Told
from .messages import index_in, session_message


class AgentHistory:
    """A history of an agent, as it is at one moment."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._length: Final = history.branch.message_count

    @property
    def count(self) -> int:
        """The index of the next message. Costs nothing more in a long history, and what others wrote since Strands did."""
        told = self._read(self._history, 1, self._length)
        return told[-1].value["message_id"] + 1 if told else 0

    def at(self, index: int) -> Message | None:
        """Return the message that Strands wrote at an index, as it was written first; None where there is none."""
        message = self._history.at(index)
        if message is not None and index_in(message) == index:
            return message
        return next((message for message in self._history.chain() if index_in(message) == index), None)

    def page(self, limit: int | None, offset: int) -> list[SessionMessage]:
        """Return messages from an index on, at most `limit`."""
        if limit == 0:
            return []
        history, wanted = self._history, max(self._length - offset, 1)
        end = self._length if limit is None else offset + limit
        last = history.at(end - 1)
        if end < self._length and last is not None and index_in(last) == end - 1:
            # The last one of the page, where depths and indexes are the same.
            history, wanted = history.up_to(end - 1), min(end, limit or end)
        told = [one for one in self._read(history, wanted, offset) if one.value["message_id"] >= offset]
        return [session_message(one) for one in told[:limit]]

    def _read(self, history: History, count: int, index: int) -> list[Told]:
        """
        Return a branch from a message on that is at an index or before it.

        The first one has to be one that Strands wrote: of others the index is known only if all before them are read.
        """
        limit = count
        while limit < history.branch.message_count:
            told = history.told(NAME, limit)
            first = index_in(told[0].origin[0].message) if told else None
            if first is not None and first <= index:
                return told
            limit *= 2
        return history.told(NAME)
