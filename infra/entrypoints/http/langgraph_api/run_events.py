"""Events of a run as chunks of its live stream: named, dated, and in parts where they are large."""

from typing import Final, NamedTuple

from chatledger.domain.chat.live import LiveChunk
from chatledger.domain.errors import CorruptStateError

PART_BYTES: Final = 192 * 1024
"""Bytes of an event in one chunk."""
METADATA, ERROR, END = "metadata", "error", "end"
ALWAYS: Final = frozenset({METADATA, ERROR, END})
"""Events that every reader gets, whatever it asked for."""
_LAST, _MORE = b".", b"+"
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


def pack(event: RunEvent) -> list[bytes]:
    """Return the chunks of an event."""
    whole = b"%d %s\n%s" % (event.time_ms, event.name.encode(), event.data)
    parts = [whole[at : at + PART_BYTES] for at in range(0, len(whole), PART_BYTES)]
    return [*(_MORE + part for part in parts[:-1]), _LAST + parts[-1]]


class Assembling:
    """Makes events of chunks, which are to be given in order."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def add(self, chunk: LiveChunk) -> RunEvent | None:
        """
        Take a chunk; return the event that it completes.

        Raises:
            CorruptStateError: It is none of `pack`.
        """
        data = chunk.data
        if not isinstance(data, bytes) or data[:1] not in {_LAST, _MORE}:
            msg = f"chunk {chunk.number} of a run's stream is no part of an event"
            raise CorruptStateError(msg)
        self._parts.append(data[1:])
        if data[:1] == _MORE:
            return None
        whole, self._parts = b"".join(self._parts), []
        head, _, body = whole.partition(b"\n")
        moment, _, name = head.partition(b" ")
        return RunEvent(name.decode(), body, int(moment), chunk.number)
