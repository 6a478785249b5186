"""The elements of the lists that were read last, for who adds to them: a list is stored as what it adds to another one."""

from typing import Final

_MAX_BYTES: Final = 4 * 1024 * 1024


class KnownLists:
    """
    The digests of all elements of lists by the digest of the list, which stands for just these: none of it ever changes.

    Threads share it: each step is atomic, and when two meet something may be forgotten early.
    """

    def __init__(self) -> None:
        self._lists: dict[bytes, bytes] = {}
        self._size = 0
        self.get = self._lists.get

    def keep(self, digest: bytes, elements: bytes) -> None:
        """Keep the elements of a list."""
        if digest in self._lists:
            return
        if self._size + len(elements) > _MAX_BYTES:
            self._lists.clear()
            self._size = 0
        self._lists[digest] = elements
        self._size += len(elements)
