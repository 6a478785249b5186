"""Which events a feed lets through."""

from collections.abc import Callable, Collection
from typing import Final

from chatledger.domain.errors import InvalidValueError
from chatledger.domain.events import BODIES, ChatCreated, ChatDeleted, Recorded
from chatledger.domain.rules import check_id

_TYPES: Final = frozenset(body.TOPIC.removeprefix("chatledger.").rpartition("/")[0] for body in BODIES)


class FeedFilter:
    """
    Lets through events of one chat, of one owner's chats, of some types; each when given.

    Args:
        owner_of: The present owner of a chat, None when there is no such chat.
        chat_id, user_id, topics: As in `Ledger.feed`.

    Raises:
        InvalidValueError: A value breaks a rule, or there is no such topic.
    """

    def __init__(
        self,
        owner_of: Callable[[str], str | None],
        *,
        chat_id: str | None,
        user_id: str | None,
        topics: Collection[str] | None,
    ) -> None:
        self._owner_of = owner_of
        self._chat_id = None if chat_id is None else check_id(chat_id, "chat_id")
        self._user_id = None if user_id is None else check_id(user_id, "user_id", empty=True)
        self._topics = None if topics is None else _check_topics(topics)
        self._owners: dict[str, str | None] = {}

    def __call__(self, recorded: Recorded) -> bool:
        """Whether it is let through. To be asked of every event, in order."""
        if self._chat_id is not None and recorded.chat_id != self._chat_id:
            return False
        is_owned = self._user_id is None or self._owner(recorded) == self._user_id
        return is_owned and (self._topics is None or recorded.type in self._topics)

    def _owner(self, recorded: Recorded) -> str | None:
        chat_id, body = recorded.chat_id, recorded.body
        if isinstance(body, ChatCreated):
            self._owners[chat_id] = body.user_id
        elif chat_id not in self._owners:
            self._owners[chat_id] = self._owner_of(chat_id)
        # After the tombstone nothing says any more whose chat it was.
        return self._owners.pop(chat_id) if isinstance(body, ChatDeleted) else self._owners[chat_id]


def _check_topics(topics: Collection[str]) -> frozenset[str]:
    if isinstance(topics, str):
        msg = f"topics must be a collection of types, e.g. {{{topics!r}}}, not one text"
        raise InvalidValueError(msg)
    wanted = frozenset(topics)
    if unknown := wanted - _TYPES:
        msg = f"unknown topics {', '.join(sorted(unknown))}; there are {', '.join(sorted(_TYPES))}"
        raise InvalidValueError(msg)
    return wanted
