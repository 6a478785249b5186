"""`AsyncLedgerView`: a ledger as it stood at an earlier moment, for asyncio and trio."""

from collections.abc import Callable
from typing import TypeVar

import anyio.to_thread

from .awaiting import AsyncClosing, Runner, awaited, iterated
from .ledger.ledger import Ledger
from .ledger.view import LedgerView

T = TypeVar("T")


class AsyncLedgerView(AsyncClosing):
    """
    A `LedgerView` whose methods are awaited. Made by `AsyncLedger.as_of`; use it with `async with`, or close it.

    Example:
        async with await ledger.as_of(120) as view:
            chat = await view.get_chat("trip")
    """

    def __init__(self, ledger: Runner[Ledger], view: LedgerView) -> None:
        self._ledger, self._view = ledger, view

    get_chat = awaited(LedgerView.get_chat)
    list_chats = awaited(LedgerView.list_chats)

    get_message = awaited(LedgerView.get_message)
    get_messages = awaited(LedgerView.get_messages)
    get_chain = awaited(LedgerView.get_chain)
    has_children = awaited(LedgerView.has_children)
    children = awaited(LedgerView.children)
    siblings = awaited(LedgerView.siblings)
    common_ancestor = awaited(LedgerView.common_ancestor)
    diff = awaited(LedgerView.diff)

    get_branch = awaited(LedgerView.get_branch)
    get_active_branch = awaited(LedgerView.get_active_branch)
    list_branches = awaited(LedgerView.list_branches)

    get_checkpoint = awaited(LedgerView.get_checkpoint)
    list_checkpoints = awaited(LedgerView.list_checkpoints)

    get_annotations = awaited(LedgerView.get_annotations)
    get_run = awaited(LedgerView.get_run)
    runs = awaited(LedgerView.runs)
    get_context = awaited(LedgerView.get_context)
    plan_regeneration = awaited(LedgerView.plan_regeneration)
    get_regeneration = awaited(LedgerView.get_regeneration)
    regenerations = awaited(LedgerView.regenerations)
    forks = awaited(LedgerView.forks)

    search = awaited(LedgerView.search)

    export_chat = awaited(LedgerView.export_chat)
    graph = awaited(LedgerView.graph)
    owner_of = awaited(LedgerView.owner_of)
    get_position = awaited(LedgerView.get_position)

    history = iterated(LedgerView.history)

    async def run(self, call: Callable[[LedgerView], T]) -> T:
        """The answer of a function of the view that runs in a worker thread: several calls for the price of one hop."""
        return await self._ledger.run(lambda _: call(self._view))

    async def close(self) -> None:
        """Close the view; calling it again does nothing. The ledger stays open."""
        await anyio.to_thread.run_sync(self._view.close)

    def __repr__(self) -> str:
        return f"<Async{repr(self._view)[1:]}"
