"""Ancestors among messages of which some are stored and the others are about to be."""

from functools import cached_property

from .state import ChatState

KnownParents = dict[str, str | None]
"""The messages of an import, parents first, with their parents."""


class Lineage:
    """
    The ancestors of the messages of an import.

    All questions together take time in proportion to the number of messages, however long the chains are.
    """

    def __init__(self, state: ChatState, parents: KnownParents) -> None:
        self._state, self._parents = state, parents
        self._stored: dict[str | None, str | None] = {}

    def descends(self, message_id: str, ancestor_id: str) -> bool:
        """Whether a message of the import is another one, or follows it."""
        if not self._state.has_message(ancestor_id):
            start, end = self._spans.get(ancestor_id, (0, 0))
            return start <= self._spans[message_id][0] < end
        at = self._nearest_stored(message_id)
        return at is not None and self._state.is_ancestor(ancestor_id, at)

    def _nearest_stored(self, message_id: str) -> str | None:
        """The message itself, or the nearest one above it, that is stored; None when none is."""
        # What was walked is remembered for each message on the way, so that long chains are walked once.
        path: list[str | None] = []
        at: str | None = message_id
        while at is not None and at not in self._stored and not self._state.has_message(at):
            path.append(at)
            at = self._parents[at]
        nearest = self._stored.get(at, at)
        self._stored.update(dict.fromkeys(path, nearest))
        return nearest

    @cached_property
    def _spans(self) -> dict[str, tuple[int, int]]:
        """For each message a range of numbers, which contains those of all that follow from it."""
        sizes = dict.fromkeys(self._parents, 1)
        for message_id, parent_id in reversed(self._parents.items()):
            if parent_id in sizes:
                sizes[parent_id] += sizes[message_id]
        spans: dict[str, tuple[int, int]] = {}
        free: dict[str | None, int] = {None: 0}
        for message_id, parent_id in self._parents.items():
            place = parent_id if parent_id in sizes else None
            start, end = free[place], free[place] + sizes[message_id]
            spans[message_id], free[place], free[message_id] = (start, end), end, start + 1
        return spans
