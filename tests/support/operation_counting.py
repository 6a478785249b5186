"""Counting what is asked of LMDB, by wrapping its transactions."""

import contextlib
import threading
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from functools import partial
from typing import Any, Self
from unittest import mock

from chatledger.projections.lmdb.environment import Environment

_MOVES = ("first", "last", "next", "prev", "set_key", "set_range", "next_dup", "last_dup", "first_dup", "prev_dup")
_ITERATORS = ("iternext", "iterprev", "iternext_dup", "iternext_nodup", "iterprev_dup", "iterprev_nodup")
_CALLS = ("get", "put", "delete", "drop", "pop", "replace")


class Counted:
    """A transaction or a cursor that counts what is asked of it: `get`, `put`, `delete`, `move`, and `row` of iterators."""

    def __init__(self, whole: Any, counts: "Counter[str]") -> None:
        self._whole, self._counts = whole, counts

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._whole, name)
        if name == "cursor":
            return self._cursor
        if name in _ITERATORS:
            return partial(self._iterated, found)
        if name in _MOVES:
            self._counts["move"] += 1
        elif name in _CALLS:
            self._counts[name] += 1
        elif name in {"getmulti", "putmulti"}:
            return partial(self._multi, found, name[:3])
        return found

    def _cursor(self, *args: Any, **kwargs: Any) -> "Counted":
        return Counted(self._whole.cursor(*args, **kwargs), self._counts)

    def _iterated(self, call: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        return self._rows(call(*args, **kwargs))

    def _multi(self, call: Any, name: str, keys: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
        known = list(keys)
        self._counts[name] += len(known)
        return call(known, *args, **kwargs)

    def _rows(self, rows: Iterator[Any]) -> Iterator[Any]:
        for row in rows:
            self._counts["row"] += 1
            yield row

    def __iter__(self) -> Iterator[Any]:
        return self._rows(iter(self._whole))

    def __enter__(self) -> Self:
        self._whole.__enter__()
        return self

    def __exit__(self, *error: object) -> Any:
        return self._whole.__exit__(*error)


@contextlib.contextmanager
def counting() -> Generator["Counter[str]"]:
    """Count the operations of this thread on every index of the process."""
    counts: Counter[str] = Counter()
    begin, me = Environment.begin, threading.get_ident()

    def counted(self: Environment, *, write: bool = False) -> Any:
        txn = begin(self, write=write)
        if threading.get_ident() != me:
            return txn
        counts["transaction"] += 1
        return Counted(txn, counts)

    with mock.patch.object(Environment, "begin", counted):
        yield counts
