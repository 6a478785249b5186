"""`AsyncItemStore`: an `ItemStore` whose methods are awaited."""

from collections.abc import Callable
from typing import TypeVar

from chatledger.domain.moments import Moment

from ..aio.async_ledger import AsyncLedger, UserAsyncLedger
from ..aio.awaiting import awaited
from ..graph.values import MAX_STATE_BYTES
from .item_store import NOBODY, ItemReader, ItemStore

T = TypeVar("T")


class AsyncItemReader:
    """The methods of an item store that read, awaited; as of an earlier moment. Made by `AsyncItemStore.as_of`."""

    def __init__(self, ledger: AsyncLedger, reader: ItemReader) -> None:
        self._ledger, self._reader = ledger, reader

    get = awaited(ItemReader.get)
    list = awaited(ItemReader.list)
    namespaces = awaited(ItemReader.namespaces)

    async def run(self, call: Callable[[ItemReader], T]) -> T:
        """Return the answer of a function of the reader, which runs in a worker thread."""
        return await self._ledger.run(lambda _: call(self._reader))


class AsyncItemStore:
    """
    An `ItemStore` whose methods are awaited, on an `AsyncLedger`.

    A call that is cancelled while it writes is waited for, so that its outcome is known.
    """

    def __init__(self, ledger: AsyncLedger, *, max_value_bytes: int = MAX_STATE_BYTES) -> None:
        self._ledger = ledger
        user_id = ledger.user_id if isinstance(ledger, UserAsyncLedger) else NOBODY
        self._store = object.__new__(ItemStore)
        # The ledger is opened by the first call, in its worker thread.
        self._store._set_up(ledger._open, user_id, max_value_bytes)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # one component, two modules

    put = awaited(ItemStore.put)
    end = awaited(ItemStore.end)
    write = awaited(ItemStore.write)
    get = awaited(ItemStore.get)
    list = awaited(ItemStore.list)
    namespaces = awaited(ItemStore.namespaces)
    delete = awaited(ItemStore.delete)
    refresh = awaited(ItemStore.refresh)
    history = awaited(ItemStore.history)

    async def as_of(self, moment: Moment) -> AsyncItemReader:
        """Return the items as they stood at an earlier moment; see `ItemStore.as_of`."""
        return AsyncItemReader(self._ledger, await self.run(lambda store: store.as_of(moment)))

    async def run(self, call: Callable[[ItemStore], T]) -> T:
        """Return the answer of a function of the store, which runs in a worker thread: several calls for the price of one hop."""
        return await self._ledger.run(lambda _: call(self._store))
