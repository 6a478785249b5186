"""The ledger of an adapter: one that is open, or a location to open; asked by functions that run in a worker thread."""

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeVar, cast

from chatledger.domain.errors import ConfigurationError, LedgerClosedError

from ...ledger.aio.async_ledger import AsyncLedger, UserAsyncLedger
from ...ledger.aio.awaiting import in_thread
from ...ledger.history import MessageHistory
from ...ledger.ledger import Ledger, UserLedger
from ...ledger.open import open as open_ledger

T = TypeVar("T")
Source = Ledger | AsyncLedger | str | os.PathLike[str]
"""The ledger of an adapter, or the location of one, as `chatledger.open` takes it."""


class AdapterLedger:
    """
    The ledger that an adapter stands on. Safe for threads and tasks.

    Args:
        source: A ledger, which its opener closes; or a location, which is opened by the first call and closed by `close`.
        user_id: The user whose conversations the adapter sees and makes. None: everybody's, as the ledger itself does.
        adapter: The name of the adapter in errors.

    Raises:
        ConfigurationError: The source is neither a ledger nor a location.
        AccessDeniedError: The ledger is limited to another user.
    """

    def __init__(self, source: Source, *, user_id: str | None = None, adapter: str) -> None:
        if not isinstance(source, Ledger | AsyncLedger | str | os.PathLike):
            msg = f"{adapter} needs a Ledger, an AsyncLedger or a location such as './chatledger-data', not {type(source).__name__}"
            raise ConfigurationError(msg)
        self._source, self._adapter = source, adapter
        self._opening = threading.Lock()
        self._opened: Ledger | None = None
        self._is_closed = False
        self._user_id = user_id
        if isinstance(source, UserLedger | UserAsyncLedger):
            self._user_id = source.user_id
        if user_id is not None and isinstance(source, Ledger | AsyncLedger):
            self._source = source.for_user(user_id)

    @property
    def user_id(self) -> str | None:
        """The user that the adapter is limited to; None when it sees everybody's conversations."""
        return self._user_id

    @property
    def blocking(self) -> Ledger:
        """
        The ledger for calls that block; opened if it is not yet.

        Raises:
            LedgerClosedError: The adapter was closed.
        """
        source = self._source
        if isinstance(source, Ledger):
            return source
        if isinstance(source, AsyncLedger):
            return source.blocking()
        with self._opening:
            if self._is_closed:
                msg = f"{self._adapter} is closed; make another one"
                raise LedgerClosedError(msg)
            if self._opened is None:
                whole = open_ledger(source)
                self._whole = whole  # a ledger of one user does not close the one that it is of
                self._opened = whole if self._user_id is None else whole.for_user(self._user_id)
            return self._opened

    async def run(self, call: Callable[[Ledger], T]) -> T:
        """Return the answer of a function of the ledger, which runs in a worker thread; one that has begun is waited for."""
        if isinstance(self._source, AsyncLedger):
            return await self._source.run(call)
        return await in_thread(lambda: call(self.blocking))

    async def ask(self, chat_id: str, call: Callable[[MessageHistory], T], *, branch: str | None = None) -> T:
        """Return the answer of a function of a history, which runs in a worker thread, as by `run`."""
        return await self.run(lambda ledger: call(MessageHistory(ledger, chat_id, branch=branch)))

    def close(self) -> None:
        """Close a ledger that was opened here; others stay open. Calling it again does nothing."""
        with self._opening:
            self._is_closed = True
            if self._opened is not None:
                self._whole.close()
                self._opened = None


class Closable:
    """The end of an adapter: it closes a ledger that it opened, and leaves another one to its opener."""

    _ledger: AdapterLedger

    def close(self) -> None:
        """Close the ledger, if it was opened here. Calling it again does nothing."""
        self._ledger.close()

    async def aclose(self) -> None:
        """Close, in a worker thread."""
        await in_thread(self._ledger.close)


NO_ID: Final = "__fake_id__"
"""The id that OpenAI's SDKs give to items of models whose API has no ids; all of them have the same."""


def utc(at_ms: int) -> datetime:
    """Return a time in ms since the epoch, UTC."""
    return datetime.fromtimestamp(at_ms / 1000, UTC)


def joined(kind: str, *names: str) -> str:
    """Return an id of several names, from which each can be told: `adk/my app/ada/trip`. Slashes in names are escaped."""
    return "/".join((kind, *(name.replace("%", "%25").replace("/", "%2F") for name in names)))


def with_floats(dumped: Any, value: Any) -> Any:
    """Return dumped JSON with NaN and infinities, which pydantic writes as null."""
    if dumped is None:
        return value if isinstance(value, float) else None
    if isinstance(dumped, dict) and isinstance(value, Mapping):
        by_key = cast("Mapping[str, Any]", value)
        return {key: with_floats(item, by_key.get(key)) for key, item in cast("dict[str, Any]", dumped).items()}
    if isinstance(dumped, list) and isinstance(value, list | tuple):
        pairs = zip(cast("list[Any]", dumped), cast("Sequence[Any]", value), strict=True)
        return [with_floats(item, original) for item, original in pairs]
    return dumped  # pyright: ignore[reportUnknownVariableType]
