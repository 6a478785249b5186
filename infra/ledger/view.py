"""`LedgerView`: a ledger as it stood at an earlier moment, to be read only."""

import functools
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Self, TypeVar

from chatledger.domain.errors import LedgerClosedError
from chatledger.domain.moments import Moment

from .branches import BranchMethods, ForkMethods
from .chats import ChatMethods
from .checkpoints import AnnotationMethods, CheckpointMethods, VersionMethods
from .holds import HoldMethods
from .interchange import InterchangeMethods
from .links import LinkMethods
from .live import LiveMethods
from .log import BackupMethods, LogMethods
from .members import MemberMethods
from .merges import MergeMethods
from .messages import MessageMethods
from .persons import PersonMethods
from .port import LedgerPart, StorePort
from .redactions import RedactionMethods
from .regenerations import RegenerationMethods
from .remotes import RemoteMethods
from .replays import ReplayMethods
from .retention import RetentionMethods
from .rows import RowMethods
from .runs import RunMethods
from .saves import SaveMethods
from .search import SearchMethods
from .sync import SyncMethods
from .thread_lists import ThreadMethods

if TYPE_CHECKING:
    from .scopes.as_of import AsOfEvents, AsOfStore

P = ParamSpec("P")
T = TypeVar("T")


class LedgerMethods(
    ReplayMethods,
    SyncMethods,
    MergeMethods,
    ChatMethods,
    MessageMethods,
    BranchMethods,
    VersionMethods,
    CheckpointMethods,
    MemberMethods,
    LinkMethods,
    AnnotationMethods,
    RedactionMethods,
    RunMethods,
    RegenerationMethods,
    ThreadMethods,
    ForkMethods,
    SaveMethods,
    LiveMethods,
    SearchMethods,
    RowMethods,
    InterchangeMethods,
    LogMethods,
    PersonMethods,
    HoldMethods,
    RemoteMethods,
    RetentionMethods,
    BackupMethods,
):
    """All methods of a ledger but those that look back."""


class _AsOfReader(LedgerMethods):
    """The methods of a ledger, on a store as of a point or on its events. The view exposes those that only read."""

    def __init__(self, as_of_store: "AsOfStore", store: "AsOfStore | AsOfEvents") -> None:
        self._as_of_store, self._read = as_of_store, store

    @property
    def _store(self) -> StorePort:
        return self._read

    def _is_over(self) -> bool:
        return self._as_of_store.is_closed


def _as_of(
    method: Callable[Concatenate[LedgerMethods, P], T], *, is_of_events: bool = False
) -> Callable[Concatenate["LedgerView", P], T]:
    """Return a method that answers as of the point of the view, from chats or from events."""

    def ask(self: "LedgerView", /, *args: P.args, **kwargs: P.kwargs) -> T:
        reader = self._events_reader if is_of_events else self._reader  # pyright: ignore[reportPrivateUsage]  # a method of it
        return method(reader, *args, **kwargs)

    functools.update_wrapper(ask, method)
    return ask


class LedgerView(LedgerPart):
    """
    A ledger as it stood at an earlier moment. Made by `Ledger.as_of`; use it as a context manager, or close it.

    It has the methods of `Ledger` that read chats, and none that write. Threads of agents and states of graphs list their earlier
    versions themselves. The methods return what they returned at that moment, whatever
    was written since; but of a chat that was deleted since nothing is left. Safe for threads.

    A chat that has not changed since the moment is read from the index, at the cost of reading it now. Any other one is replayed
    from its own events the first time it is asked for, and kept in a temporary index until the view is closed. A `search` without
    a chat touches all chats, or all of an owner. `list_chats` and `count_chats` replay only chats whose title, metadata or end
    changed since, in which messages were hidden since, or that had more than 10,000 events since; the others cost a row of the index for each event since.
    """

    def __init__(self, store: "AsOfStore") -> None:
        from .scopes.as_of import AsOfEvents

        self._as_of_store = store
        self._reader = _AsOfReader(store, store)
        self._events_reader = _AsOfReader(store, AsOfEvents(store))

    @property
    def _store(self) -> StorePort:
        return self._as_of_store

    get_chat = _as_of(LedgerMethods.get_chat)
    list_chats = _as_of(LedgerMethods.list_chats)
    count_chats = _as_of(LedgerMethods.count_chats)

    get_message = _as_of(LedgerMethods.get_message)
    get_messages = _as_of(LedgerMethods.get_messages)
    get_chain = _as_of(LedgerMethods.get_chain)
    compare = _as_of(LedgerMethods.compare)
    bisect = _as_of(LedgerMethods.bisect)
    has_children = _as_of(LedgerMethods.has_children)
    children = _as_of(LedgerMethods.children)
    siblings = _as_of(LedgerMethods.siblings)
    common_ancestor = _as_of(LedgerMethods.common_ancestor)
    merge_base = _as_of(LedgerMethods.merge_base)
    diff = _as_of(LedgerMethods.diff)

    get_branch = _as_of(LedgerMethods.get_branch)
    get_active_branch = _as_of(LedgerMethods.get_active_branch)
    list_branches = _as_of(LedgerMethods.list_branches)

    get_page = _as_of(LedgerMethods.get_page)
    versions = _as_of(LedgerMethods.versions)
    branches_of = _as_of(LedgerMethods.branches_of)

    get_checkpoint = _as_of(LedgerMethods.get_checkpoint)
    list_checkpoints = _as_of(LedgerMethods.list_checkpoints)

    members = _as_of(LedgerMethods.members)

    get_annotations = _as_of(LedgerMethods.get_annotations)
    get_run = _as_of(LedgerMethods.get_run)
    runs = _as_of(LedgerMethods.runs)
    get_context = _as_of(LedgerMethods.get_context)
    plan_regeneration = _as_of(LedgerMethods.plan_regeneration)
    get_regeneration = _as_of(LedgerMethods.get_regeneration)
    regenerations = _as_of(LedgerMethods.regenerations)
    forks = _as_of(LedgerMethods.forks)

    search = _as_of(LedgerMethods.search)
    count_hits = _as_of(LedgerMethods.count_hits)

    get_rows = _as_of(LedgerMethods.get_rows)
    list_bundled_lines = _as_of(LedgerMethods.list_bundled_lines)
    list_branch_points = _as_of(LedgerMethods.list_branch_points)
    get_row_numbers = _as_of(LedgerMethods.get_row_numbers)
    get_row_strip = _as_of(LedgerMethods.get_row_strip)
    get_row_line = _as_of(LedgerMethods.get_row_line)

    export_chat = _as_of(LedgerMethods.export_chat)
    graph = _as_of(LedgerMethods.graph)
    owner_of = _as_of(LedgerMethods.owner_of)

    history = _as_of(LedgerMethods.history, is_of_events=True)

    @property
    def position(self) -> int:
        """The position of the last event up to then."""
        return self.get_position()

    def get_position(self) -> int:
        """
        Return `position`, by a method.

        Of a view of a time, it is looked up on the log. Where clocks of writers differ, some later events may stand before it.
        """
        return self._as_of_store.position

    def close(self) -> None:
        """Close the view; calling it again does nothing. The ledger stays open."""
        self._as_of_store.close()

    def __enter__(self) -> Self:
        if self._as_of_store.is_closed:
            msg = "the view is closed; make another one with as_of"
            raise LedgerClosedError(msg)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        point = self._as_of_store.point
        at = f"position {point.position}"
        if point.time is not None:
            at = datetime.fromtimestamp(point.time / 1000, UTC).isoformat(timespec="milliseconds")
        return f"<LedgerView as of {at}{' (closed)' if self._as_of_store.is_closed else ''}>"


def methods_then(view: LedgerView) -> LedgerMethods:
    """Return the methods of a ledger, on chats as of the point of a view: for its twin, which offers those that the view has."""
    return view._reader  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # users are not to see it


def replayed_bytes(view: LedgerView) -> int:
    """Return how many bytes the chats take that a view has replayed; 0 after it was closed."""
    return view._as_of_store.used_bytes  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # users are not to see it


def holds_deleted(view: LedgerView) -> bool:
    """Whether a view may keep something of a chat that was deleted since, which it does not show; False after it was closed."""
    store = view._as_of_store  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # users are not to see it
    try:
        return store.holds_deleted
    except LedgerClosedError:
        return False


def is_start(view: LedgerView, of: LedgerView) -> bool:
    start = of._as_of_store.start  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # users are not to see it
    return start is not None and start() is view._as_of_store  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def view_carried_on(
    ledger: "TimeTravelMethods", moment: Moment, earlier: Callable[[], Iterable[LedgerView]]
) -> LedgerView:
    """
    Return what `Ledger.as_of` returns, which replays long chats from the nearest of other views.

    `ledger`: the ledger, limited to a user. `earlier`: returns views of the same ledger and user. Some may be closed
    meanwhile.
    """
    from .scopes.as_of import AsOfStore, find_point

    store = ledger._store  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # of this module
    point = find_point(store, moment)
    return LedgerView(
        AsOfStore(
            lambda: ledger._store,  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
            point,
            earlier=lambda: [view._as_of_store for view in earlier()],  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        )
    )


class TimeTravelMethods(LedgerPart):
    """The part of a ledger that looks back."""

    def as_of(self, moment: Moment) -> LedgerView:
        """
        A read-only view of the ledger as it stood at an earlier moment. Use it as a context manager, or close it.

        Args:
            moment: A position on the log, such as `Recorded.position`: after the event there; 0 is the empty ledger. Or a
                time with a time zone, or as a text such as `yesterday`, `tuesday`, `7d` (ago) or ISO 8601: of each chat the
                events up to it. A day is its beginning in UTC; a time in the future is now.

        Returns:
            A view that answers as this ledger did then, except for chats that were deleted since. It stays as it is while
            others write, and ends with this ledger. Costs one or two requests of the log; reading costs what the chats
            that are read have cost up to then, not what the log holds.

        Raises:
            InvalidValueError: The position is beyond the end of the log, or the time has no time zone.
            LogUnavailableError: The log did not answer.
        """
        from .scopes.as_of import AsOfStore, find_point

        return LedgerView(AsOfStore(lambda: self._store, find_point(self._store, moment)))
