"""Filters: which events a history shows, and a feed lets through."""

from collections.abc import Callable, Collection
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, cast

from chatledger.domain.chat.events import Recorded, StreamDeleted
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.limits import check_id, sought_id
from chatledger.domain.log.codec import BODIES
from chatledger.domain.moments import Moment
from chatledger.projections.log.entries import entry_at, is_deleted
from chatledger.projections.log.kinds import kind_of

from ..expiry import bound_ms
from ..port import StorePort

if TYPE_CHECKING:
    from ..scopes.user_store import Owners


class HistoryFilter:
    """
    Lets through events by owner, type, actor and time; each when given. To be asked of every event, in order.

    `user_id`, `topics`, `actor`, `since` and `until`: as in `Ledger.history`.

    Raises:
        InvalidValueError: A value breaks a rule, or there is no such topic.
    """

    def __init__(
        self,
        owners: "Owners",
        *,
        user_id: str | None,
        topics: Collection[str] | None,
        actor: str | None,
        since: Moment | None,
        until: Moment | None,
    ) -> None:
        self._owners = owners
        self._user_id = None if user_id is None else sought_id(user_id, "user_id", empty=True)
        self._has_topic = FeedFilter(owners.is_owner, chat_id=None, user_id=None, topics=topics)
        self._actor = None if actor is None else sought_id(actor, "actor")
        self._since = None if since is None else bound_ms(since, "since", up=True)
        self._last_time = None if until is None else bound_ms(until, "until")
        self._ended: set[str] = set()

    def __call__(self, recorded: Recorded) -> bool:
        # Owners and ends are noted before anything is left out for another reason, or what follows would be judged wrongly.
        is_owned = self._user_id is None or self._owners.is_owner(self._user_id, recorded)
        # Clocks of writers differ, so events of other chats are looked at on; of one chat the history must have no gap.
        if self._last_time is not None and recorded.occurred_at > self._last_time:
            self._ended.add(recorded.chat_id)
        return (
            is_owned
            and recorded.chat_id not in self._ended
            and (self._since is None or recorded.occurred_at >= self._since)
            and self._has_topic(recorded)
            and (self._actor is None or recorded.actor == self._actor)
        )


def is_gone(store: StorePort, recorded: Recorded) -> bool:
    """
    Return whether an event that was read a moment ago must not be shown any more.

    Its stream was deleted since, or the user of the store is no longer a member of the chat that it belongs to.
    """
    with store.snapshot() as snapshot:
        txn, tables = snapshot.txn, snapshot.tables
        # A position that has an entry is of a living stream, which spares the look-up of the stream.
        if entry_at(txn, tables, recorded.position) is None:
            return recorded.position <= snapshot.state.position and is_deleted(txn, tables, recorded)
        kind = kind_of(recorded.chat_id)
        if snapshot.user_id is None or not kind.has_members or isinstance(recorded.body, StreamDeleted):
            return False
        key = recorded.chat_id.removeprefix(kind.prefix)
        return bool(snapshot.stream(kind, key, even_quarantined=True).is_taken)


MAX_SHARES: Final = 4096
TOPICS: Final = frozenset(body.TOPIC.removeprefix("chatledger.").rpartition("/")[0] for body in BODIES)


class FeedFilter:
    """
    Lets through events of one chat, of one owner's chats, of some types, of a share of all chats; each when given.

    Args:
        is_owner: Whether an event belongs to a chat of a user; asked in the order of the log.
        chat_id, user_id, topics, share: As in `Ledger.feed`.

    Raises:
        InvalidValueError: A value breaks a rule, or there is no such topic.
    """

    def __init__(
        self,
        is_owner: Callable[[str, Recorded], bool],
        *,
        chat_id: str | None,
        user_id: str | None,
        topics: Collection[str] | None,
        share: tuple[int, int] | None = None,
    ) -> None:
        self._is_owner = is_owner
        self._chat_id = None if chat_id is None else check_id(chat_id, "chat_id")
        self._user_id = None if user_id is None else check_id(user_id, "user_id", empty=True)
        if isinstance(topics, str) or not (topics is None or isinstance(topics, Collection)):  # pyright: ignore[reportUnnecessaryIsInstance]  # users'
            actual = f"one text, {topics!r}" if isinstance(topics, str) else type(topics).__name__
            msg = f"topics must be a collection of types, such as {{'message_appended'}}, not {actual}"
            raise InvalidValueError(msg)
        if unknown := [str(topic) for topic in topics or () if not isinstance(topic, str) or topic not in TOPICS]:  # pyright: ignore[reportUnnecessaryIsInstance]
            msg = f"unknown topics {', '.join(sorted(unknown))}; there are {', '.join(sorted(TOPICS))}"
            raise InvalidValueError(msg)
        self._topics = None if topics is None else frozenset(topics)
        self._share = None if share is None else check_share(share)

    def __call__(self, recorded: Recorded) -> bool:
        """Whether it is let through. To be asked of every event, in order."""
        if self._chat_id is not None and recorded.chat_id != self._chat_id:
            return False
        if self._share is not None and share_of(recorded.chat_id, self._share[1]) != self._share[0]:
            return False
        is_owned = self._user_id is None or self._is_owner(self._user_id, recorded)
        return is_owned and (self._topics is None or recorded.type in self._topics)


@lru_cache(maxsize=4096)
def share_of(chat_id: str, count: int) -> int:
    """Return the share, of `count`, that a chat belongs to: always and everywhere the same."""
    return int.from_bytes(blake2b(chat_id.encode(), digest_size=8).digest()) % count


def check_share(share: Any) -> tuple[int, int]:
    """
    A share as (index, count).

    Raises:
        InvalidValueError: It is something else, or there is no such share.
    """
    parts = cast("tuple[Any, ...]", share) if isinstance(share, tuple) else ()
    if len(parts) != 2 or not all(isinstance(part, int) and not isinstance(part, bool) for part in parts):
        msg = f"share must be a pair of numbers, e.g. (0, 4) for the first of four shares, not {share!r}"
        raise InvalidValueError(msg)
    index, count = parts
    if not 1 <= count <= MAX_SHARES or not 0 <= index < count:
        msg = f"there is no share {index} of {count}: shares of n are 0 to n - 1, and n is at most {MAX_SHARES:,}"
        raise InvalidValueError(msg)
    return index, count
