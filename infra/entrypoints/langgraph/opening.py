"""A saver with a ledger of its own, as a context manager."""

from types import TracebackType
from typing import Generic, TypeVar

from ...ledger.aio.async_ledger import AsyncLedger

S = TypeVar("S")


class SaverOpening(Generic[S]):
    """
    A saver whose ledger is opened by `with` or `async with`, and closed at its end. Made by `LedgerSaver.from_conn_string`.

    Example:
        async with LedgerSaver.from_conn_string("./chatledger-data") as saver:
            graph = builder.compile(checkpointer=saver)
    """

    def __init__(self, saver: S, ledger: AsyncLedger) -> None:
        self._saver, self._ledger = saver, ledger

    def __enter__(self) -> S:
        self._ledger.blocking()
        return self._saver

    def __exit__(self, *error: object) -> None:
        self._ledger.blocking().close()

    async def __aenter__(self) -> S:
        await self._ledger
        return self._saver

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._ledger.__aexit__(kind, error, trace)
