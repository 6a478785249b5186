"""A cache of values, limited in bytes."""

from typing import Final, Generic, TypeVar

_MAX_BYTES: Final = 32 * 1024 * 1024
_MAX_COUNT: Final = 1 << 16

K = TypeVar("K")
V = TypeVar("V")


class Remembered(Generic[K, V]):
    """
    Values by key, at most so many bytes.

    It has two halves: a full one takes the place of the other, and what was not asked for meanwhile is forgotten. Threads
    share it: each step is atomic, and when two meet something may be forgotten early.
    """

    def __init__(self, max_bytes: int = _MAX_BYTES, max_count: int = _MAX_COUNT) -> None:
        self._half_bytes, self._half_count = max_bytes // 2, max_count // 2
        self._young: dict[K, tuple[V, int]] = {}
        self._old: dict[K, tuple[V, int]] = {}
        self._bytes = 0

    def get(self, key: K) -> V | None:
        """Return the value of a key."""
        found = self._young.get(key)
        if found is not None:
            return found[0]
        found = self._old.get(key)
        if found is None:
            return None
        self.put(key, *found)
        return found[0]

    def put(self, key: K, value: V, size: int) -> None:
        """Remember a value that takes about so many bytes."""
        if self._bytes + size > self._half_bytes or len(self._young) >= self._half_count:
            self._old, self._young = self._young, {}
            self._bytes = 0
        self._young[key] = value, size
        self._bytes += size
