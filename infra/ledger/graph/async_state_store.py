"""`AsyncStateStore`: a `StateStore` whose methods are awaited."""

import copy
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

import anyio.to_thread

from chatledger.domain.graph.reducers import AGENT_REDUCERS, Reducers
from chatledger.domain.moments import Moment

from ..aio.async_ledger import AsyncLedger, UserAsyncLedger
from ..aio.awaiting import AsyncClosing, awaited
from .observers import StateObserver, log_transition
from .state_store import StateStore, StateView, update_of
from .values import MAX_STATE_BYTES, QUEUE_SIZE, Checkpointing, Nodes, StateUpdate, make_settings

T = TypeVar("T")


class AsyncStateView:
    """A `StateView` whose methods are awaited. Made by `AsyncStateStore.as_of`."""

    def __init__(self, ledger: AsyncLedger, view: StateView) -> None:
        self._ledger, self._view = ledger, view

    get_version = awaited(StateView.get_version)
    get = awaited(StateView.get)
    history = awaited(StateView.history)
    list = awaited(StateView.list)

    async def run(self, call: Callable[[StateView], T]) -> T:
        """The answer of a function of the view that runs in a worker thread."""
        return await self._ledger.run(lambda _: call(self._view))


class AsyncStateStore(AsyncClosing):
    """
    A `StateStore` whose methods are awaited, on an `AsyncLedger`. Observers may be coroutine functions.

    A call that is cancelled while it writes is waited for, so that its outcome is known.
    """

    def __init__(
        self,
        ledger: AsyncLedger,
        *,
        reducers: Reducers = AGENT_REDUCERS,
        nodes: Nodes | None = None,
        ttl_seconds: float | None = None,
        exclude: Collection[str] = (),
        max_state_bytes: int = MAX_STATE_BYTES,
        checkpointing: Checkpointing = "every",
        queue_size: int = QUEUE_SIZE,
    ) -> None:
        settings = make_settings(reducers, nodes, exclude, ttl_seconds, max_state_bytes, checkpointing, queue_size)
        self._ledger = ledger
        owner = ledger.user_id if isinstance(ledger, UserAsyncLedger) else None
        self._store = object.__new__(StateStore)
        # The ledger is opened by the first call, in its worker thread.
        self._store._set_up(ledger._open, owner, settings)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # one component, two modules

    put = awaited(StateStore.put)
    get = awaited(StateStore.get)
    resume = awaited(StateStore.resume)
    history = awaited(StateStore.history)
    list = awaited(StateStore.list)
    list_part = awaited(StateStore.list_part)
    delete = awaited(StateStore.delete)
    get_stats = awaited(StateStore.get_stats)
    cleanup = awaited(StateStore.cleanup)
    flush = awaited(StateStore.flush)

    def for_identity(self, user_id: str | None, *, is_admin: bool = False) -> "AsyncStateStore":
        """Return this store limited to what one user owns; see `StateStore.for_identity`. Not awaited, for nothing is read."""
        view = copy.copy(self)
        view._store = self._store.for_identity(user_id, is_admin=is_admin)  # noqa: SLF001 - of its own class
        return view

    async def as_of(self, moment: Moment) -> AsyncStateView:
        """Return the states as they stood at an earlier moment; see `StateStore.as_of`."""
        return AsyncStateView(self._ledger, await self.run(lambda store: store.as_of(moment)))

    def on_state_change(self, callback: StateObserver) -> Callable[[], None]:
        """Call a function or await a coroutine function after each update; see `StateStore.on_state_change`. Not awaited."""
        return self._store.on_state_change(callback)

    async def update(
        self,
        state_id: str,
        changes: Mapping[str, Any] | None,
        *,
        node: str,
        is_end: bool | None = None,
        is_interrupt: bool = False,
        base_version: int | None = None,
    ) -> StateUpdate:
        """Apply what a node returned; see `StateStore.update`. The observers are called, or awaited, before this returns."""
        store = self._store
        task = store._task(  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # one component, two modules
            state_id, changes, node=node, is_end=is_end, is_interrupt=is_interrupt, base_version=base_version
        )
        step = await self.run(lambda store: store._steps.update(task))  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # as above
        if task.is_watched:
            await store._observers.notify_async(step.change)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # as above
        else:
            log_transition(step.change)
        return update_of(step)

    async def run(self, call: Callable[[StateStore], T]) -> T:
        """The answer of a function of the store that runs in a worker thread: several calls for the price of one hop."""
        return await self._ledger.run(lambda _: call(self._store))

    async def close(self) -> None:
        """Flush, and end the thread of `background` checkpointing. The ledger stays open."""
        await anyio.to_thread.run_sync(self._store.close)
