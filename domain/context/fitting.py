"""
Windows of a conversation: the last whole turns that fit the model.

A turn begins with a message that a user wrote and holds all that follows it, up to the next one: answers, calls of tools and
their results. What comes before the first of them is a turn as well.
"""

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

import msgspec

from ..errors import ContextTooLargeError, InvalidValueError
from ..forms.items import ASSISTANT, DEVELOPER, SYSTEM, TOOL, Call, FormItem, Own, Result
from ..forms.plain import object_at, text_at
from ..forms.reading import items_of
from ..limits import check_count
from ..values import Message
from ..wire import Value
from .estimate import Tokenizer, rough_tokens, tokens_of_message

_FIRST_PAGE: Final = 32


class Omitted(Value, frozen=True, kw_only=True):
    """
    The older messages that were left out of a context, hidden ones included.

    Args:
        count: How many they are.
        first_id: The id of the oldest, the root of the chain.
        last_id: The id of the newest; the context begins after it.
    """

    count: int
    first_id: str
    last_id: str


class Window(msgspec.Struct, frozen=True):
    """The last messages of a conversation from `start` on, with their tokens if they were counted."""

    start: int
    tokens: int | None
    uncounted: int


class Limit(Protocol):
    """A rule for how much of the end of a conversation is given."""

    @property
    def first_page(self) -> int:
        """The number of messages to read first."""
        ...

    def window(self, messages: Sequence[Message], *, is_whole: bool) -> Window | None:
        """Find what is given of the last messages, oldest first, which may be all; None when earlier ones are needed to tell."""
        ...


class LastMessages(msgspec.Struct, frozen=True):
    """At most `last_n` of the last messages, even if that cuts a turn."""

    last_n: int

    @property
    def first_page(self) -> int:
        """The number of messages to read first: as many as are wanted, for hidden ones are rare."""
        return max(self.last_n, 1)

    def window(self, messages: Sequence[Message], *, is_whole: bool) -> Window | None:
        """Find the last messages; see `Limit`."""
        is_enough = is_whole or len(messages) >= self.last_n
        return Window(max(len(messages) - self.last_n, 0), None, 0) if is_enough else None


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """
    The size that a context of whole turns may have.

    Args:
        last_n: At most this many messages; any number when None.
        max_tokens: At most this many tokens, those of the system prompt included; any number when None.
        counter: Counts the tokens of a text; of some texts twice, so give one that remembers if it is slow.
        system_tokens: What the system prompt takes of `max_tokens`.

    Raises:
        InvalidValueError: A limit is no whole number of at least 1.
    """

    last_n: int | None = None
    max_tokens: int | None = None
    counter: Tokenizer = rough_tokens
    system_tokens: int = 0

    def __post_init__(self) -> None:
        for name, limit in (("last_n", self.last_n), ("max_tokens", self.max_tokens)):
            if limit is not None and check_count(limit, name) < 1:
                msg = f"{name} must be at least 1: the newest turn is part of every context"
                raise InvalidValueError(msg)

    @property
    def first_page(self) -> int:
        """The number of messages to read first: one more than can be needed, where that is known."""
        return _FIRST_PAGE if self.last_n is None else self.last_n + 1

    def window(self, messages: Sequence[Message], *, is_whole: bool) -> Window | None:
        """
        Find the longest run of last turns that fits.

        Args:
            messages: The last messages of the conversation, oldest first.
            is_whole: Whether these are all.

        Returns:
            None when earlier messages are needed to tell.

        Raises:
            ContextTooLargeError: The newest turn does not fit beside the system prompt.
        """
        best: Window | None = None
        end, tokens, uncounted = len(messages), 0, 0
        for at in turn_starts(messages, is_whole=is_whole):
            counts = [self._count(message) for message in messages[at:end]]
            tokens += sum(count for count, _ in counts)
            uncounted += sum(count for _, count in counts)
            end, is_over = at, self._is_over(len(messages) - at, tokens, may_raise=best is None)
            if is_over:
                return best
            best = Window(at, None if self.max_tokens is None else tokens, uncounted)
        if is_whole:
            self._is_over(0, 0, may_raise=best is None)
            return best or Window(0, None if self.max_tokens is None else 0, 0)
        tokens += sum(self._count(message)[0] for message in messages[:end])
        return best if best is not None and self._is_over(len(messages), tokens, may_raise=False) else None

    def _is_over(self, count: int, tokens: int, *, may_raise: bool) -> bool:
        """Whether a limit is exceeded; an error, if that is so of the newest turn."""
        for name, size, limit in (
            ("last_n", count, self.last_n),
            ("max_tokens", tokens + self.system_tokens, self.max_tokens),
        ):
            if limit is not None and size > limit:
                if may_raise:
                    share = self.system_tokens if name == "max_tokens" else 0
                    raise ContextTooLargeError(name, size=size, limit=limit, system_tokens=share)
                return True
        return False

    def _count(self, message: Message) -> tuple[int, int]:
        return (0, 0) if self.max_tokens is None else tokens_of_message(message, self.counter)


def turn_starts(messages: Sequence[Message], *, is_whole: bool) -> Iterator[int]:
    """
    Yield the places where a turn begins, the newest first. No result of a tool is parted from its call there.

    Args:
        messages: The last messages of a conversation, oldest first.
        is_whole: Whether these are all. Then the first one begins a turn, and a result whose call is nowhere belongs to none.
    """
    read = [items_of(message.form, message.data, message.name) for message in messages]
    calls = [calls_in(items) for items in read]
    all_calls = set[str]().union(*calls)
    unanswered: set[str] = set()
    for at in range(len(read) - 1, -1, -1):
        results = results_in(read[at])
        unanswered |= results & all_calls if is_whole else results
        unanswered -= calls[at]
        if (is_whole and at == 0) or (begins_turn(messages[at]) and not unanswered):
            yield at


def begins_turn(message: Message) -> bool:
    """Whether a user wrote this message, in the eyes of a model; some APIs pass results of tools as messages of the user."""
    role = message.role
    return role not in {ASSISTANT, SYSTEM, DEVELOPER, TOOL} and not message.metadata.get("synthetic")


def calls_in(items: Sequence[FormItem]) -> set[str]:
    """The ids of the calls of tools in a message; the name of one that has no id."""
    keys = (_key(item, is_call=True) for item in items)
    return {key for key in keys if key is not None}


def results_in(items: Sequence[FormItem]) -> set[str]:
    """The ids of the calls whose results are in a message, but which are not in it themselves."""
    keys = (_key(item, is_call=False) for item in items)
    return {key for key in keys if key is not None} - calls_in(items)


def _key(item: FormItem, *, is_call: bool) -> str | None:
    """The id by which a call and its result find each other, those of a tool that an API runs by itself included."""
    what = item.what
    if is_call and isinstance(what, Call):
        return what.name if what.id is None else what.id
    if not is_call and isinstance(what, Result):
        return what.name if what.call_id is None else what.call_id
    if not isinstance(what, Own):
        return None
    block = object_at(what.block)
    kind = text_at(block, "type") or ""
    if is_call:
        return (
            text_at(block, "id")
            if kind.endswith("tool_use")
            else text_at(block, "call_id")
            if kind.endswith("_call")
            else None
        )
    return text_at(block, "call_id") if kind.endswith("_output") else text_at(block, "tool_use_id")
