"""
Shares of the chats: which part of them a node of a cluster holds.

Every user has a bucket, a hash of the id modulo 60; a share holds the users whose bucket modulo the number of shares is its
own number. So all chats of a user are in one share, and their list and their search stay whole. As 60 has many divisors,
the same log can be held in 2, 3, 4, 5, 6, 10, 12, 15, 20, 30 or 60 shares, and by nodes of different numbers at the same time.
"""

from hashlib import blake2b
from typing import Any, Final, NamedTuple

from ..chat.events import Body, ChatCreated
from ..errors import ConfigurationError
from ..versioned.events import BeginningBody
from ..versioned.keys import family_of_stream

BUCKETS: Final = 60
UNSHARED: Final = -1
"""In place of a bucket, for what is in no share: agents' threads, which may refer to those of other users."""


class Share(NamedTuple):
    """A share of the chats. `number`: its number, from 0."""

    number: int
    total: int

    def __str__(self) -> str:
        return f"{self.number}/{self.total}"

    def holds(self, bucket: int) -> bool:
        """Whether the chats of users with this bucket are in the share."""
        return bucket != UNSHARED and bucket % self.total == self.number

    def same_for(self, bucket: int) -> "Share":
        """Return the one of the same number of shares that holds a bucket."""
        return Share(bucket % self.total, self.total)


def bucket_of(user_id: str) -> int:
    """Return the bucket of a user, from 0 to 59."""
    return int.from_bytes(blake2b(user_id.encode(errors="surrogatepass"), digest_size=8).digest()) % BUCKETS


def owner_named(stream_id: str, body: Body) -> str | None:
    """Return the owner that an event names with which a chat, a state or an item begins; None for threads and other events."""
    if isinstance(body, ChatCreated):
        return body.user_id
    begins = body.begins if isinstance(body, BeginningBody) else None
    return None if begins is None else family_of_stream(stream_id).owner_of(begins.key)


def check_share(share: Any) -> Share | None:
    """
    Return a share that was given as (index, count); None for None.

    Raises:
        ConfigurationError: There is no such share.
    """
    if share is None:
        return None
    try:
        index, count = share
    except (TypeError, ValueError):
        index, count = None, None
    if type(index) is not int or type(count) is not int or not 0 <= index < count or BUCKETS % count:
        counts = ", ".join(str(number) for number in range(1, BUCKETS + 1) if BUCKETS % number == 0)
        msg = f"share must be (index, count) with an index from 0 and a count of {counts}, not {share!r}"
        raise ConfigurationError(msg)
    return Share(index, count)
