"""A ledger that reads an index alone: what writes, and what is on the log only, is refused."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final, Never, cast

from chatledger.domain.errors import AccessDeniedError, LogUnavailableError
from chatledger.projections.snapshot import Snapshot

from ..store.opening.index_alone import open_index
from ..store.opening.options import OpenOptions
from ..store.task_writes import TaskWriteBuffer
from .ledger import Ledger
from .port import AdminTask, LedgerLog

if TYPE_CHECKING:
    from ..log.live import LiveStreams
    from ..store.meaning import Meaning
    from ..store.opening.locations import SharedIndex, SharedStore
    from ..store.store import Store
    from ..store.temp_folders import Scratch

_NOT_WRITTEN: Final = "this ledger was opened with read_only=True; nothing was written. Open it without that to write"
_NOT_INDEXED: Final = (
    "this is answered from the log, and a ledger opened with read_only=True has its index only. Open it without that"
)
_OF_INDEX: Final = frozenset({"anchor", "export_user", "holds", "retention"})
"""The tasks on the chats of all users that an index alone answers."""
_OF_LOG: Final = frozenset({"backup", "projections", "verify"})
_LOOK_AGAIN_S: Final = 0.02


def open_read_only(options: OpenOptions) -> Ledger:
    """Open the index of a ledger to be read alone. Raises what `open_index` does."""
    return Ledger(_ReadOnlyStore(open_index(options)))


def _refusing(why: str) -> Callable[..., Never]:
    def refuse(*_args: object, **_options: object) -> Never:
        raise AccessDeniedError(why)

    return refuse


class _NoTaskWrites(TaskWriteBuffer):
    """Refuses at once what would be stored later, when nobody waits for it any more."""

    add = _refusing(_NOT_WRITTEN)


class _ReadOnlyStore:
    """
    The `HeldStore` and the `WholeStore` of a ledger that only reads, and its `LedgerLog`.

    Args:
        shared: What has the index, and is used for nothing else.
    """

    redactor = user_id = None

    def __init__(self, shared: "SharedStore | SharedIndex") -> None:
        self._index, self.location, self.release = shared.store, shared.location, shared.release
        self.task_writes: TaskWriteBuffer = _NoTaskWrites()
        self.store = self

    def check_open(self) -> None:
        """Implement `StorePort.check_open`; the ledger, which alone holds this, knows it."""

    def snapshot(self, _chats: object = None, /) -> AbstractContextManager[Snapshot]:
        """The index as it is now, whichever chats are read."""
        return self._index.snapshot()

    def last_position(self) -> int:
        """Return how far the index is: what is on the log is there, or about to be."""
        with self.snapshot() as snapshot:
            return snapshot.state.position

    def wait(self, after: int, timeout_s: float) -> bool:
        """Wait until a process that writes has brought the index above a position; False when the time is over."""
        deadline = time.monotonic() + timeout_s
        while (is_over := self.last_position() <= after) and time.monotonic() < deadline:
            time.sleep(_LOOK_AGAIN_S)
        return not is_over

    def catch_up(self, position: int | None, timeout_s: float) -> int:
        """Wait until a process that writes has brought the index to `position`; return the position reached."""
        if position is not None and not self.wait(position - 1, timeout_s):
            msg = f"the index is at position {self.last_position()}, and {position} did not come within {timeout_s} s"
            raise LogUnavailableError(msg)
        return self.last_position()

    def whole(self, task: AdminTask) -> "Store":
        """Return this store for tasks that an index alone answers, which use nothing else of a `Store`."""
        if task not in _OF_INDEX:
            raise AccessDeniedError(_NOT_INDEXED if task in _OF_LOG else _NOT_WRITTEN)
        return cast("Store", self)

    @property
    def log(self) -> LedgerLog:
        return self

    @property
    def live(self) -> "LiveStreams":
        raise AccessDeniedError(_NOT_INDEXED)

    @property
    def meaning(self) -> "Meaning":
        raise AccessDeniedError(_NOT_INDEXED)

    @property
    def scratch(self) -> "Scratch":
        """Refuse what is derived from the log."""
        raise AccessDeniedError(_NOT_INDEXED)

    adopt = execute = begin = submit = erase_deleted = finish_erasures = sweep_large = search_later = _refusing(
        _NOT_WRITTEN
    )
    save_bookmark = drop_bookmark = _refusing(_NOT_WRITTEN)
    identity = ""
    page = events = bytes_at = read = event_at = settled_position = load_bookmark = bookmarks = _refusing(_NOT_INDEXED)
