"""`LedgerView`: a ledger as it stood at an earlier moment, to be read only."""

import functools
from collections.abc import Callable
from datetime import UTC, datetime
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar

from ..store.temp_folders import Scratch
from .methods import LedgerMethods
from .port import LedgerPart, LedgerStore
from .scopes.as_of import MomentStore, UnfoldedError, moment_at

P = ParamSpec("P")
T = TypeVar("T")


class _Reader(LedgerMethods):
    """The methods of a ledger, on a store of a moment. The view shows those that only read."""

    def __init__(self, moments: MomentStore, store: LedgerStore) -> None:
        self._moments, self._read = moments, store

    @property
    def _store(self) -> LedgerStore:
        return self._read

    def _is_over(self) -> bool:
        return self._moments.is_closed


def _then(method: Callable[Concatenate[LedgerMethods, P], T]) -> Callable[Concatenate["LedgerView", P], T]:
    """The same method, answering as it did at the moment of the view."""

    def ask(self: "LedgerView", /, *args: P.args, **kwargs: P.kwargs) -> T:
        while True:
            try:
                return method(self._reader, *args, **kwargs)  # pyright: ignore[reportPrivateUsage]  # this is a method of it
            except UnfoldedError as error:
                needed = error
            # Here, where no transaction is open.
            self._moments.prepare(needed)  # pyright: ignore[reportPrivateUsage]  # as above

    functools.update_wrapper(ask, method)
    return ask


def _until_then(method: Callable[Concatenate[LedgerMethods, P], T]) -> Callable[Concatenate["LedgerView", P], T]:
    """The same method, on the events up to the moment of the view."""

    def ask(self: "LedgerView", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return method(self._historian, *args, **kwargs)  # pyright: ignore[reportPrivateUsage]  # this is a method of it

    functools.update_wrapper(ask, method)
    return ask


class LedgerView:
    """
    A ledger as it stood at an earlier moment. Made by `Ledger.as_of`; use it as a context manager, or close it.

    It has the methods of `Ledger` that read, and none that write. They return what they returned at that moment, whatever
    was written since; but of a chat that was deleted since nothing is left. Safe for threads.

    A chat that has not changed since the moment is read from the index, at the cost of reading it now. Any other one is folded
    from its own events the first time it is asked for, and kept in a temporary index until the view is closed. Questions
    about all chats (`list_chats`, `search` without a chat) touch all of them, or all of an owner.
    """

    def __init__(self, store: MomentStore) -> None:
        self._moments = store
        self._reader = _Reader(store, store)
        self._historian = _Reader(store, store.log_only)

    get_chat = _then(LedgerMethods.get_chat)
    list_chats = _then(LedgerMethods.list_chats)

    get_message = _then(LedgerMethods.get_message)
    get_messages = _then(LedgerMethods.get_messages)
    get_chain = _then(LedgerMethods.get_chain)
    has_children = _then(LedgerMethods.has_children)
    children = _then(LedgerMethods.children)
    siblings = _then(LedgerMethods.siblings)
    common_ancestor = _then(LedgerMethods.common_ancestor)
    diff = _then(LedgerMethods.diff)

    get_branch = _then(LedgerMethods.get_branch)
    get_active_branch = _then(LedgerMethods.get_active_branch)
    list_branches = _then(LedgerMethods.list_branches)

    get_checkpoint = _then(LedgerMethods.get_checkpoint)
    list_checkpoints = _then(LedgerMethods.list_checkpoints)

    get_annotations = _then(LedgerMethods.get_annotations)
    get_run = _then(LedgerMethods.get_run)
    runs = _then(LedgerMethods.runs)
    get_context = _then(LedgerMethods.get_context)
    plan_regeneration = _then(LedgerMethods.plan_regeneration)
    get_regeneration = _then(LedgerMethods.get_regeneration)
    regenerations = _then(LedgerMethods.regenerations)
    forks = _then(LedgerMethods.forks)

    search = _then(LedgerMethods.search)

    export_chat = _then(LedgerMethods.export_chat)
    graph = _then(LedgerMethods.graph)
    owner_of = _then(LedgerMethods.owner_of)

    history = _until_then(LedgerMethods.history)

    @property
    def position(self) -> int:
        """The position of the last event up to then."""
        return self.get_position()

    def get_position(self) -> int:
        """
        The same as `position`, for `AsyncLedgerView` too.

        Of a view of a time, it is looked up on the log. Where clocks of writers differ, some later events may stand before it.
        """
        return self._moments.position

    def close(self) -> None:
        """Close the view; calling it again does nothing. The ledger stays open."""
        self._moments.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        moment = self._moments.moment
        at = f"position {moment.position}" if moment.time is None else _shown(moment.time)
        return f"<LedgerView as of {at}{' (closed)' if self._moments.is_closed else ''}>"


def _shown(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")


class TimeTravelMethods(LedgerPart):
    """The part of a ledger that looks back."""

    @property
    def _scratch(self) -> Scratch:
        raise NotImplementedError

    def as_of(self, moment: int | datetime) -> LedgerView:
        """
        A read-only view of the ledger as it stood at an earlier moment. Use it as a context manager, or close it.

        Args:
            moment: A position on the log, such as `Recorded.position`: after the event there; 0 is the empty ledger. Or a
                time with a time zone: of each chat the events up to it. A time in the future is now.

        Returns:
            A view that answers as this ledger did then, except for chats that were deleted since. It stays as it is while
            others write, and ends with this ledger. Costs one or two requests of the log; reading costs what the chats
            that are read have cost up to then, not what the log holds.

        Raises:
            InvalidValueError: The position is beyond the end of the log, or the time has no time zone.
            LogUnavailableError: The log did not answer.
        """
        return LedgerView(MomentStore(lambda: self._store, moment_at(self._store, moment), self._scratch))
