"""Ledgers of one process that were opened at the same place share what is expensive: server, connection and index."""

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..store import Store


class SharedStore:
    """A store and how many ledgers hold it."""

    def __init__(self, key: str | None, location: str, store: "Store", durability: str) -> None:
        self.key, self.location, self.store, self.durability = key, location, store, durability
        self.holders = 0

    def release(self) -> None:
        """Give up a hold; the last one closes the store."""
        with _lock:
            self.holders -= 1
            if self.holders:
                return
            if self.key is not None and _open.get(self.key) is self:
                del _open[self.key]
            # Under the lock, too: whoever opens it next would meet a server that ends.
            self.store.close()


_lock = threading.RLock()
_open: dict[str, SharedStore] = {}


def _forget() -> None:
    """A forked child has none of the parent's threads and connections: it begins with nothing open."""
    global _lock  # noqa: PLW0603 - a lock that another thread held when the process forked is held for ever
    _lock = threading.RLock()
    _open.clear()


os.register_at_fork(after_in_child=_forget)


def acquire(key: str | None, make: Callable[[], SharedStore]) -> SharedStore:
    """The open store of that key, or a new one; without a key always a new one. `SharedStore.release` must follow."""
    with _lock:
        shared = None if key is None else _open.get(key)
        if shared is None:
            # Under the lock: two threads that open the same directory at once must not start two servers. Others wait, also for another place.
            shared = make()
            if key is not None:
                _open[key] = shared
        shared.holders += 1
        return shared
