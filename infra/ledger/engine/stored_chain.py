"""A stored chain that answers from its end, its first turn and its counts, and is read as a whole only where somebody asks for it."""

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Final, TypeVar

from chatledger.domain.values import Message
from chatledger.projections.chat.chains import Chains, Place

from ...store.commands import ChatsToRead
from ..port import StorePort

T = TypeVar("T")

_FIRST_PAGE: Final = 8
_PAGE: Final = 256


class ChainReader:
    """
    The chain of a message, asked one question at a time: a `StoredChain`. Its answers never change, for chains do not.

    Args:
        store: Where it is.
        head: The id of its last message; None for an empty chain, which also a chat has that was deleted meanwhile.
    """

    def __init__(self, store: StorePort, head: str | None) -> None:
        self._store, self._head = store, head

    @property
    def turn(self) -> int:
        """Number of its messages that a user wrote."""
        return self._counts[0]

    @property
    def message_count(self) -> int:
        """Number of its messages."""
        return self._counts[1]

    @cached_property
    def _counts(self) -> tuple[int, int]:
        return self._ask(lambda chains, head: (chains.turns(head).number, chains.depth(head) + 1), default=(0, 0))

    def last_turn(self) -> Message | None:
        """Return the last message that a user wrote; None when there is none."""
        return self._message(lambda chains, head: chains.turns(head).last)

    def first_turn(self) -> Message | None:
        """Return the first message that a user wrote; None when there is none."""
        return self._message(lambda chains, head: chains.first_turn(head))

    def backwards(self) -> Iterator[Message]:
        """Yield its messages, the newest first; they are read in pages that grow."""
        rest, limit = self.message_count, _FIRST_PAGE
        while rest:
            page = self._page(rest - 1, limit)
            yield from reversed(page)
            rest, limit = rest - len(page) if page else 0, min(2 * limit, _PAGE)

    def _page(self, depth: int, limit: int) -> list[Message]:
        return self._ask(lambda chains, head: chains.chain(chains.ancestor(head, depth), limit), default=[])

    def has_fired(self, once_id: str) -> bool:
        """Whether an id of `once` has fired."""
        return self._ask(lambda chains, head: chains.has_fired(head, once_id), default=False)

    def fired(self) -> frozenset[str]:
        """Return the ids of `once` that have fired."""
        return self._ask(lambda chains, head: chains.fired(head), default=frozenset())

    def _message(self, find: Callable[[Chains, Place], Place | None]) -> Message | None:
        def message(chains: Chains, head: Place) -> Message | None:
            place = find(chains, head)
            return None if place is None else chains.message(place)

        return self._ask(message, default=None)

    def _ask(self, question: Callable[[Chains, Place], T], *, default: T) -> T:
        if self._head is None:
            return default
        with self._store.snapshot(ChatsToRead(message_ids=(self._head,))) as snapshot:
            located = snapshot.find(self._head)
            return default if located is None else question(located[0].chains, located[1])
