"""`KeptViews`: views of earlier moments, kept for a short while for the requests that follow."""

import threading
import time
from collections.abc import Generator, Hashable
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import anyio
import anyio.to_thread

from ...ledger.ledger import Ledger
from ...ledger.view import LedgerView, holds_deleted, is_start, replayed_bytes, view_carried_on

MOST: Final = 16
MOST_BYTES: Final = 256 << 20
IDLE_S: Final = 60.0
AGE_S: Final = 600.0
_SWEEP_S: Final = 5.0
_SETTLED: Final = timedelta(seconds=5)
"""A time is kept only when it is that old: before, writers whose clocks are behind may still add to it."""


class _ViewKey(NamedTuple):
    whose: Hashable
    moment: int | datetime


class _KeptView:
    """A view, when it was made and last read, and how many requests read it just now."""

    def __init__(self, view: LedgerView) -> None:
        self.view = view
        self.made_s = self.used_s = time.monotonic()
        self.readers = 0
        self.is_left = False


class KeptViews:
    """
    The views of earlier moments that requests read. A chat that changed since is replayed once for all requests of one moment,
    and a long one from the nearest earlier moment that is kept: a time slider asks for many moments of one chat.

    Every view has an owner, and only its owner's requests read it. No view shows what was deleted since, kept or not.

    Args:
        most_bytes: How much they may have replayed together; the one that was read last is kept whatever it has.
        idle_s: Seconds without a request after which a view is closed.
        age_s: Seconds after which it is closed in any case: so long a deleted chat may have a copy in files without a name.
    """

    def __init__(
        self,
        *,
        most: int = MOST,
        most_bytes: int = MOST_BYTES,
        idle_s: float = IDLE_S,
        age_s: float = AGE_S,
    ) -> None:
        self._most, self._most_bytes, self._idle_s, self._age_s = most, most_bytes, idle_s, age_s
        self._lock = threading.Lock()
        self._kept: dict[_ViewKey, _KeptView] = {}
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._kept)

    @contextmanager
    def reading(self, ledger: Ledger, whose: Hashable, moment: int | datetime) -> Generator[LedgerView]:
        """Give the view of a moment, which stays open as long as it is read. Callers that see the same chats are one owner."""
        key = _ViewKey(whose, moment)
        held = self._take(key)
        if held is None:
            held = self._put(key, view_carried_on(ledger, moment, lambda: self._views_of(whose)))
        try:
            yield held.view
        finally:
            with self._lock:
                held.used_s = time.monotonic()
                held.readers -= 1
                self._keep_start(held)
                is_over = held.is_left and not held.readers
            if is_over:
                held.view.close()
            self.sweep()

    def _views_of(self, whose: Hashable) -> list[LedgerView]:
        with self._lock:
            return [held.view for key, held in self._kept.items() if key.whose == whose]

    def _take(self, key: _ViewKey) -> _KeptView | None:
        with self._lock:
            held = self._kept.pop(key, None)
            if held is None:
                return None
            self._kept[key] = held  # as the last one
            held.used_s = time.monotonic()
            held.readers += 1
            return held

    def _put(self, key: _ViewKey, view: LedgerView) -> _KeptView:
        """Keep a view, unless another request was faster: then that one's."""
        # The view was made without the lock, which would hold up all other readers: two requests may have made one each.
        fresh = _KeptView(view)
        with self._lock:
            held = self._kept.get(key, fresh)
            held.readers += 1
            # A time of the future is the present: another request for it sees what was written meanwhile.
            is_settled = isinstance(key.moment, int) or key.moment <= datetime.now(UTC) - _SETTLED
            if not self._is_closed and is_settled:
                self._kept[key] = held
            else:
                held.is_left = True
        if held is not fresh:
            view.close()
        return held

    def _keep_start(self, held: _KeptView) -> None:
        """Count what a view was carried on from as used with it: with its anchors it serves the moments that follow."""
        last = next(reversed(self._kept), None)
        for key, start in list(self._kept.items()):
            if is_start(start.view, of=held.view):
                start.used_s = held.used_s
                self._kept[key] = self._kept.pop(key)
                if last is not None and last != key:
                    self._kept[last] = self._kept.pop(last)

    def sweep(self) -> None:
        """Close the views that were kept long enough, and those that are too many."""
        with self._lock:
            now_s = time.monotonic()
            old = [
                key
                for key, held in self._kept.items()
                if held.made_s + self._age_s <= now_s or (not held.readers and held.used_s + self._idle_s <= now_s)
            ]
            closing = self._leave(old)
            size = sum(replayed_bytes(held.view) for held in self._kept.values())
            while len(self._kept) > self._most or (size > self._most_bytes and len(self._kept) > 1):
                first = next(iter(self._kept))
                size -= replayed_bytes(self._kept[first].view)
                closing += self._leave([first])
        for view in closing:
            view.close()

    def _leave(self, keys: list[_ViewKey]) -> list[LedgerView]:
        """Keep views no longer; return those that nobody reads. The last reader of each other one closes it."""
        left = [self._kept.pop(key) for key in keys]
        for held in left:
            held.is_left = True
        return [held.view for held in left if not held.readers]

    async def sweep_often(self) -> None:
        """Close views in time, also when nobody asks for anything."""
        while True:
            await anyio.sleep(min(_SWEEP_S, self._idle_s, self._age_s))
            if self._kept:
                await anyio.to_thread.run_sync(self.sweep)
                await anyio.to_thread.run_sync(self.erase)

    def erase(self) -> None:
        """Close the views that keep something of a deleted chat. Nobody sees it in them, but their files have it."""
        with self._lock:
            views = {key: held.view for key, held in self._kept.items()}
        # Looking reads the ledger, so it is done without the lock; meanwhile another view may have taken the place of one.
        having = [key for key, view in views.items() if holds_deleted(view)]
        with self._lock:
            closing = self._leave([key for key in having if key in self._kept and self._kept[key].view is views[key]])
        for view in closing:
            view.close()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            closing = self._leave(list(self._kept))
        for view in closing:
            view.close()
