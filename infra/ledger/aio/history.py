"""`AsyncMessageHistory`: one conversation as frameworks store it, for asyncio and trio."""

from collections.abc import Callable
from typing import TypeVar

from ..history import MessageHistory
from .async_ledger import AsyncLedger
from .awaiting import awaited

T = TypeVar("T")


class AsyncMessageHistory:
    """A `MessageHistory` whose methods are awaited; each runs in a worker thread, and one that has begun is waited for."""

    def __init__(
        self, ledger: AsyncLedger, chat_id: str, *, branch: str | None = None, owner: str | None = None
    ) -> None:
        self._ledger, self.chat_id, self._branch, self._owner = ledger, chat_id, branch, owner

    messages = awaited(MessageHistory.messages)
    read = awaited(MessageHistory.read)
    branches = awaited(MessageHistory.branches)
    add = awaited(MessageHistory.add)
    replace = awaited(MessageHistory.replace)
    clear = awaited(MessageHistory.clear)
    pop = awaited(MessageHistory.pop)
    remove = awaited(MessageHistory.remove)
    annotate = awaited(MessageHistory.annotate)
    branch_off = awaited(MessageHistory.branch_off)
    commit = awaited(MessageHistory.commit)

    async def run(self, call: Callable[[MessageHistory], T]) -> T:
        """Return the answer of a function of the history that runs in a worker thread: several calls for the price of one hop."""
        return await self._ledger.run(
            lambda ledger: call(MessageHistory(ledger, self.chat_id, branch=self._branch, owner=self._owner))
        )
