"""Events of a run as chunks of its live stream: named, dated, and in parts where they are large."""

from typing import Final, NamedTuple

from chatledger.domain.chat.live import LiveChunk
from chatledger.domain.errors import CorruptStateError

PART_BYTES: Final = 192 * 1024
"""Bytes of an event in one chunk."""
DIFFERENCE_BYTES: Final = 4096
"""From so many bytes on, an event is stored as its difference to the one before it of its name: each `values` has the whole state."""
_NAMES: Final = 8
"""Names of which the last event is remembered for the difference: those of subgraphs have an id, and do not come again."""
_BLOCK_BYTES: Final = 64 * 1024
METADATA, ERROR, END = "metadata", "error", "end"
ALWAYS: Final = frozenset({METADATA, ERROR, END})
"""Events that every reader gets, whatever it asked for."""
_ONLY, _FIRST, _MORE, _LAST = b".", b"(", b"+", b")"
CUT: Final = b"!"
"""The chunk behind which a stream has no more events than `error` and `end`, as it is full."""
_MODES: Final = {"messages": "messages-tuple", "data": "text"}


class RunEvent(NamedTuple):
    """
    An event of a run.

    Args:
        name: The mode that it is of, or `metadata`, `error` or `end`; `|` and a namespace follow where it is of a subgraph.
        data: JSON.
        time_ms: When it happened, in ms since the epoch.
        number: That of its last chunk: reading goes on behind it. 0 for an event that is not stored.
    """

    name: str
    data: bytes
    time_ms: int
    number: int = 0

    @property
    def base(self) -> str:
        """The name without the namespace."""
        return self.name.partition("|")[0]

    @property
    def namespace(self) -> list[str]:
        """The namespace of the subgraph that it is of; empty for the graph itself."""
        return [part for part in self.name.split("|")[1:] if part]

    @property
    def mode(self) -> str:
        """The mode of streaming that a client asks for to get it."""
        base = self.base
        return _MODES.get(base, base.partition("/")[0])


class Packing:
    """
    Makes chunks of the events of a run.

    The head of an event has its time, how many bytes it has in common with the last large event of its name, at the
    beginning and at the end, and its name. So the stream of a run grows with what is new in its state, not with steps times state.
    """

    def __init__(self) -> None:
        self._last = _Last()

    def pack(self, name: str, data: bytes, time_ms: int) -> list[bytes]:
        """Return the chunks of an event."""
        before = self._last.of(name)
        start = _common(before, data) if len(data) >= DIFFERENCE_BYTES else 0
        end = _common(before[start:], data[start:], is_end=True) if start else 0
        self._last.keep(name, data)
        whole = b"%d %d %d %s\n%s" % (time_ms, start, end, name.encode(), data[start : len(data) - end])
        if len(whole) <= PART_BYTES:
            return [_ONLY + whole]
        parts = [whole[at : at + PART_BYTES] for at in range(0, len(whole), PART_BYTES)]
        return [_FIRST + parts[0], *(_MORE + part for part in parts[1:-1]), _LAST + parts[-1]]


class Assembling:
    """Makes events of chunks, which are to be given in order, and from the first. `is_cut` says that some are missing."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._last = _Last()
        self.is_cut = False

    def add(self, chunk: LiveChunk) -> RunEvent | None:
        """Take a chunk; return the event that it completes. The parts of an event that was not written to its end are dropped."""
        data = chunk.data
        mark = data[:1] if isinstance(data, bytes) else b""
        if mark == CUT:
            self.is_cut = True
            return None
        if mark not in {_ONLY, _FIRST, _MORE, _LAST} or (mark in {_MORE, _LAST} and not self._parts):
            msg = f"chunk {chunk.number} of a run's stream is no part of an event"
            raise CorruptStateError(msg)
        if mark in {_ONLY, _FIRST}:
            self._parts = []
        self._parts.append(data[1:])
        if mark in {_FIRST, _MORE}:
            return None
        whole, self._parts = b"".join(self._parts), []
        head, _, body = whole.partition(b"\n")
        moment, start, end, name_bytes = head.split(b" ", 3)
        name = name_bytes.decode()
        before = self._last.of(name)
        event = before[: int(start)] + body + before[len(before) - int(end) :]
        self._last.keep(name, event)
        return RunEvent(name, event, int(moment), chunk.number)


class _Last:
    """
    The last large events of the names that came last.

    Writers and readers forget the same ones, so that each difference is to an event that both have.
    """

    def __init__(self) -> None:
        self._data: dict[str, bytes] = {}

    def of(self, name: str) -> bytes:
        return self._data.get(name, b"")

    def keep(self, name: str, data: bytes) -> None:
        if len(data) >= DIFFERENCE_BYTES:
            self._data.pop(name, None)
            self._data[name] = data
            if len(self._data) > _NAMES:
                del self._data[next(iter(self._data))]


def _common(former: bytes, latter: bytes, *, is_end: bool = False) -> int:
    """Return the number of bytes that both have in common at the beginning, or at the end."""
    # Slices are compared at the speed of memory; a loop over the bytes of a state of 5 MB would take a second at each step.
    most, count, size = min(len(former), len(latter)), 0, _BLOCK_BYTES
    while size and count < most:
        step = min(size, most - count)
        starts = (len(former) - count - step, len(latter) - count - step) if is_end else (count, count)
        if former[starts[0] : starts[0] + step] == latter[starts[1] : starts[1] + step]:
            count += step
        else:
            size = step // 2  # the first byte that differs lies in this block
    return count
