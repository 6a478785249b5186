"""
Decoding a lot of JSON without the garbage collector looking at all of it again and again.

Python's collector looks at new containers after every few hundred, which is quick, as they are in the processor's cache; at those that were
left, a second time; and now and then at all there are. The data of a long chain are nothing but new containers: none of them is garbage, and none
can be part of a cycle. So while they are made, new containers are looked at once, as ever, and the rest when it is over.
"""

import contextlib
import gc
import os
import sys
import threading
from collections.abc import Generator
from typing import Final

WORTH_FROM: Final = 500
"""How many messages take so long that it is worth the switching."""

_NEVER: Final = 2**31 - 1
_AT_ONCE: Final = -1
"""Those that were left after their first look are not looked at again, but belong to the old ones."""
_HAS_GENERATIONS: Final = sys.version_info < (3, 14)  # what thresholds mean has changed there


class _Decoding:
    """Those that go on in this process, in whatever thread: the first sets the thresholds, the last one sets them back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._before = self._meanwhile = gc.get_threshold()

    def begin(self) -> None:
        with self._lock:
            if not self._count:
                self._before = gc.get_threshold()
                self._meanwhile = (self._before[0], _AT_ONCE, _NEVER)
                gc.set_threshold(*self._meanwhile)
            self._count += 1

    def end(self) -> None:
        with self._lock:
            self._count -= 1
            if not self._count:
                self._restore()

    def _restore(self) -> None:
        if gc.get_threshold() == self._meanwhile:  # else somebody has set others since, which are to stay
            gc.set_threshold(*self._before)

    def end_in_child(self) -> None:
        """In a process that was forked there is only the thread that forked, and it did not decode."""
        self._lock = threading.Lock()
        if self._count:
            self._count = 0
            self._restore()


_decoding: Final = _Decoding()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_decoding.end_in_child)


@contextlib.contextmanager
def only_new_collected(messages: int = WORTH_FROM) -> Generator[None]:
    """While so many messages, or others that are as many, are decoded, if they are many, the collector looks at new containers only, in the whole process."""
    if messages < WORTH_FROM or not _HAS_GENERATIONS:
        yield
        return
    _decoding.begin()
    try:
        yield
    finally:
        _decoding.end()
