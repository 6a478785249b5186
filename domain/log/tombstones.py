"""Tombstones, which tell their owners from others without naming anybody, and foreign messages, which no chatledger wrote."""

from hashlib import sha256
from typing import ClassVar, Final

from ..chat.events import Body, Event, Recorded, StreamDeleted


def owner_digest(stream_id: str, user_id: str) -> str:
    """
    Return the digest of a deleted chat's owner, or of a member: 32 hexadecimal digits, different for each chat of a user.

    Who knows the user id can check it, so that users find their own tombstones. It hides ids that cannot be guessed, such
    as random ones; it does not hide one of a list that somebody tries.
    """
    identity = stream_id.encode()  # with its length, so that no two pairs of stream and user are alike
    return sha256(b"owner:%d:%s%s" % (len(identity), identity, user_id.encode())).hexdigest()[:32]


def is_member_of_deleted(body: StreamDeleted, stream_id: str, user_id: str) -> bool:
    digests: tuple[str, ...] = getattr(body, "member_digests", None) or ()
    return owner_digest(stream_id, user_id) in digests


def is_owner_of_deleted(body: StreamDeleted, stream_id: str, user_id: str, *, known: str | None = None) -> bool:
    """Whether a user owned the stream of a tombstone. Old ones, and those of states, do not tell: then, whether `known` is that user."""
    digest: str | None = getattr(body, "owner_digest", None)
    return known == user_id if digest is None else digest == owner_digest(stream_id, user_id)


REMOVED_PREFIX: Final = "chatledger:lost:foreign:"
"""The prefix of the id of the stream whose tombstone accounts for foreign messages that were removed from the log."""


class ForeignMessage(Body, frozen=True):
    """A placeholder for a message on the log that is no event. It is never written."""

    TOPIC: ClassVar[str] = "chatledger.foreign_message/2"
    why: str


def foreign_message(position: int, stream: str, content: bytes, why: str) -> Recorded:
    """A foreign message where it stands on the log, on the subject of a stream; "" for one that belongs to none."""
    event = Event(stream, 0, "", 0, b"", ForeignMessage(why))
    return Recorded(position, event, sha256(content).digest())


def is_foreign(recorded: Recorded) -> bool:
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
