"""Messages on a log that no chatledger wrote: they are passed over and reported, and take a position."""

from hashlib import sha256
from typing import ClassVar, Final

from .events import Body, Event, Recorded

REMOVED_PREFIX: Final = "chatledger:lost:foreign:"
"""What the id of the stream begins with whose tombstone accounts for foreign messages that were removed from the log."""


class ForeignMessage(Body, frozen=True):
    """What stands in place of an event where the log has something else. It is never written."""

    TOPIC: ClassVar[str] = "chatledger.foreign_message/1"
    why: str


def foreign_message(position: int, stream: str, content: bytes, why: str) -> Recorded:
    """A foreign message where it stands on the log, on the subject of a stream; "" for one that belongs to none."""
    event = Event(stream, 0, "", 0, b"", ForeignMessage(why))
    return Recorded(position, event, sha256(content).digest())


def is_foreign(recorded: Recorded) -> bool:
    """Whether this is a foreign message."""
    return isinstance(recorded.event.body, ForeignMessage)


def removed_stream(until: int, unique: str) -> str:
    """The stream of the tombstone that accounts for the foreign messages up to a position."""
    return f"{REMOVED_PREFIX}{until}:{unique}"


def removed_until(stream: str) -> int | None:
    """Up to which position a tombstone of that stream accounts for foreign messages; None for other streams."""
    if not stream.startswith(REMOVED_PREFIX):
        return None
    until, _, unique = stream.removeprefix(REMOVED_PREFIX).partition(":")
    return int(until) if unique and until.isascii() and until.isdecimal() else None
