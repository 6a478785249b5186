"""Appends of asyncio's tasks: those that come at the same time are carried out together, and none needs a thread to wait in."""

import asyncio
import threading
from collections.abc import Iterable
from functools import partial, update_wrapper
from typing import TYPE_CHECKING

import anyio
from msgspec import UNSET, UnsetType

from chatledger.domain.context.fragment import Fragment
from chatledger.domain.rules import check_id
from chatledger.domain.values import Message, NewMessage

from .ledger.ledger import Ledger
from .ledger.messages import begin_append
from .messages import as_drafts

if TYPE_CHECKING:
    from .async_ledger import AsyncLedger


class Waiting:
    """The tasks of one event loop that wait for another thread: those that need not wait any more are woken together."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._lock = threading.Lock()
        self._ended: list[asyncio.Future[None]] = []

    def end(self, future: "asyncio.Future[None]") -> None:
        """Let who awaits this go on, soon; from any thread."""
        with self._lock:
            self._ended.append(future)
            is_first = len(self._ended) == 1
        if is_first:
            try:
                self.loop.call_soon_threadsafe(self._wake)
            except RuntimeError:  # the loop was closed: nobody waits
                self._ended.clear()

    def _wake(self) -> None:
        with self._lock:
            ended, self._ended = self._ended, []
        for future in ended:
            if not future.done():
                future.set_result(None)


async def append(
    self: "AsyncLedger",
    chat_id: str,
    messages: Iterable[NewMessage | Fragment],
    *,
    branch: str | None = None,
    expected_head: str | UnsetType | None = UNSET,
) -> list[Message]:
    """As `Ledger.append`, awaited."""
    waiting = self.waiting()
    ledger = self.opened
    if waiting is None or ledger is None:
        return await self.run(
            lambda ledger: ledger.append(chat_id, messages, branch=branch, expected_head=expected_head)
        )
    check_id(chat_id, "chat_id")
    drafts = as_drafts(messages)
    future: asyncio.Future[None] = waiting.loop.create_future()
    end = begin_append(
        ledger, chat_id, drafts, branch=branch, expected_head=expected_head, on_end=partial(waiting.end, future)
    )
    with anyio.CancelScope(shield=True):  # as the outcome is to be known
        await future
    stored = end()
    if stored is None:
        return await self.run(lambda ledger: ledger.append(chat_id, drafts, branch=branch, expected_head=expected_head))
    return stored


update_wrapper(append, Ledger.append)
