"""Summaries of chains, by which reminders are decided, and the answer that ends a chain."""

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from itertools import islice
from typing import Any, Protocol, cast, overload

import msgspec

from ..forms.items import Result
from ..forms.plain import object_at
from ..forms.reading import items_of, ui_message_of
from ..values import Message
from .messages import ASSISTANT, USER, UIMessage


class Summary(Protocol):
    """A chain in short: the attributes of a `ChainSummary`, which a context engine reads as they are asked for."""

    @property
    def turn(self) -> int:
        """Number of real user messages."""
        ...

    @property
    def message_count(self) -> int: ...

    @property
    def last_message_at(self) -> int | None:
        """When the last real user message was created, in ms since the epoch."""
        ...

    @property
    def last_message(self) -> UIMessage | None:
        """The last real user message."""
        ...

    @property
    def last_assistant_message(self) -> UIMessage | None:
        """The last message of the assistant."""
        ...

    @property
    def assistant_replies(self) -> Sequence[UIMessage]:
        """The answers to each real user message, oldest first, several messages in a row merged into one."""
        ...

    @property
    def once_ids(self) -> AbstractSet[str]:
        """The ids of `once` that have fired."""
        ...

    @property
    def is_replied(self) -> bool:
        """Whether the assistant said something since the last real user message."""
        ...


class ChainSummary(msgspec.Struct, frozen=True, kw_only=True):
    """
    A chain from its root to some message, in short.

    A *real* user message is one that a user wrote. Those that a program put in as a reminder, which have `synthetic` in
    their metadata, count in `message_count` only.

    Args:
        turn: How many real user messages there are.
        message_count: How many messages there are.
        last_message_at: When the last real user message was created, in ms since the epoch.
        last_message: The last real user message, as it is stored: with the reminders that were folded into it.
        last_assistant_message: The last message of the assistant.
        assistant_replies: The answers to each real user message, oldest first. Several messages of the assistant in a row,
            with tool results and synthetic messages between them, are one reply: the last of them with the parts of all.
        once_ids: The ids of `once` that have fired.
        is_replied: Whether the assistant said something since the last real user message.
    """

    turn: int = 0
    message_count: int = 0
    last_message_at: int | None = None
    last_message: UIMessage | None = None
    last_assistant_message: UIMessage | None = None
    assistant_replies: tuple[UIMessage, ...] = ()
    once_ids: frozenset[str] = frozenset()
    is_replied: bool = False


def summarise(messages: Iterable[Message]) -> ChainSummary:
    """The summary of a chain, root first. Costs O(messages). Messages of other forms stand there as UIMessages."""
    turn = message_count = 0
    last_message: UIMessage | None = None
    last_message_at: int | None = None
    last_answer: UIMessage | None = None
    replies: list[UIMessage] = []
    segments: list[UIMessage] = []  # of a reply; they are merged once, when it ends
    once_ids: set[str] = set()
    for message in messages:
        message_count += 1
        if message.name == ASSISTANT:
            last_answer = ui_message_with_notes(message)
            segments.append(last_answer)
        elif message.name == USER:
            once_ids.update(once_ids_of(message))
            if is_real_user_message(message):
                turn += 1
                last_message, last_message_at = ui_message_with_notes(message), message.created_at
                replies += _merged(segments)
                segments = []
    return ChainSummary(
        turn=turn,
        message_count=message_count,
        last_message_at=last_message_at,
        last_message=last_message,
        last_assistant_message=last_answer,
        assistant_replies=(*replies, *_merged(segments)),
        once_ids=frozenset(once_ids),
        is_replied=bool(segments),
    )


class StoredChain(Protocol):
    """A stored chain, which can be asked without reading it from its root. What it says never changes."""

    @property
    def turn(self) -> int:
        """Number of its real user messages."""
        ...

    @property
    def message_count(self) -> int: ...

    def last_turn(self) -> Message | None:
        """Return the last real user message; None when there is none."""
        ...

    def first_turn(self) -> Message | None:
        """Return the first real user message; None when there is none."""
        ...

    def backwards(self) -> Iterator[Message]:
        """Yield its messages, the newest first, read as they are taken."""
        ...

    def has_fired(self, once_id: str) -> bool:
        """Whether an id of `once` has fired."""
        ...

    def fired(self) -> frozenset[str]:
        """Return the ids of `once` that have fired."""
        ...


class LazySummary:
    """
    The summary of a stored chain and of messages that are saved along with the one to be decided on, and before it.

    It reads what it is asked for, and nothing before: mostly the end of the chain, or counts, whatever its length. The
    unsaved messages count, but the last message and its time remain the stored ones: two messages of one save are no time
    apart, and the first of them must not hide from the second, which carries the reminders, that a new day has begun.
    """

    def __init__(self, stored: StoredChain, unsaved: Sequence[Message] = ()) -> None:
        self._stored, self._unsaved = stored, unsaved

    @property
    def turn(self) -> int:
        return self._stored.turn + sum(map(is_real_user_message, self._unsaved))

    @property
    def message_count(self) -> int:
        return self._stored.message_count + len(self._unsaved)

    @property
    def last_message_at(self) -> int | None:
        """When the last stored real user message was created, in ms since the epoch."""
        return None if self._last is None else self._last.created_at

    @property
    def last_message(self) -> UIMessage | None:
        """The last stored real user message."""
        return None if self._last is None else ui_message_with_notes(self._last)

    @property
    def last_assistant_message(self) -> UIMessage | None:
        """The last message of the assistant."""
        return self._last_answer

    @property
    def assistant_replies(self) -> "Replies":
        """The answers to each real user message, oldest first, several messages in a row merged into one."""
        return self._all_replies

    @property
    def once_ids(self) -> "OnceIds":
        """The ids of `once` that have fired."""
        return self._fired

    @property
    def is_replied(self) -> bool:
        """Whether the assistant said something since the last real user message."""
        for message in self._backwards():
            if message.name == ASSISTANT:
                return True
            if is_real_user_message(message):
                break
        return False

    @cached_property
    def _last(self) -> Message | None:
        return self._stored.last_turn()

    @cached_property
    def _last_answer(self) -> UIMessage | None:
        answers = (message for message in self._backwards() if message.name == ASSISTANT)
        return next(map(ui_message_with_notes, answers), None)

    @cached_property
    def _all_replies(self) -> "Replies":
        return Replies(_replies(self._backwards()))

    @cached_property
    def _fired(self) -> "OnceIds":
        return OnceIds(self._stored, frozenset(item for message in self._unsaved for item in once_ids_of(message)))

    def _backwards(self) -> Iterator[Message]:
        yield from reversed(self._unsaved)
        yield from self._stored.backwards()


class Replies(Sequence[UIMessage]):
    """The replies of an assistant, oldest first. The last ones, as in `replies[-2:]`, are read without the others."""

    def __init__(self, newest_first: Iterator[UIMessage]) -> None:
        self._rest, self._read = newest_first, list[UIMessage]()

    def __len__(self) -> int:
        self._read += self._rest
        return len(self._read)

    @overload
    def __getitem__(self, index: int) -> UIMessage: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[UIMessage]: ...
    def __getitem__(self, index: int | slice) -> UIMessage | Sequence[UIMessage]:
        first = 0
        if not isinstance(index, slice):
            first = index
        elif index.start is not None and index.stop is None and index.step is None:
            first = index.start
        self._read += self._rest if first >= 0 else islice(self._rest, max(0, -first - len(self._read)))
        return tuple(reversed(self._read))[index]

    def __bool__(self) -> bool:
        self._read += islice(self._rest, 0 if self._read else 1)
        return bool(self._read)


class OnceIds(AbstractSet[str]):
    """The ids of `once` that have fired; asking for one of them does not read the others."""

    def __init__(self, stored: StoredChain, unsaved: frozenset[str]) -> None:
        self._stored, self._unsaved = stored, unsaved

    def __contains__(self, once_id: object) -> bool:
        return once_id in self._unsaved or (isinstance(once_id, str) and self._stored.has_fired(once_id))

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    @classmethod
    def _from_iterable(cls, it: Iterable[Any]) -> frozenset[Any]:  # of unions and the like
        return frozenset(it)

    @cached_property
    def _all(self) -> frozenset[str]:
        return self._stored.fired() | self._unsaved


def _replies(newest_first: Iterable[Message]) -> Iterator[UIMessage]:
    """Yield the replies of the assistant, the newest first."""
    segments: list[UIMessage] = []
    for message in newest_first:
        if message.name == ASSISTANT:
            segments.append(ui_message_with_notes(message))
        elif is_real_user_message(message):
            yield from _merged(segments[::-1])
            segments = []
    yield from _merged(segments[::-1])


def is_real_user_message(message: Message) -> bool:
    """Whether a user wrote this message, and not a program that reminds the model of something."""
    return message.name == USER and not message.metadata.get("synthetic")


def _merged(segments: list[UIMessage]) -> list[UIMessage]:
    """The segments of a reply as one message; none when there are none."""
    if len(segments) <= 1:
        return segments
    return [{**segments[-1], "parts": [part for segment in segments for part in segment["parts"]]}]


def ui_message_with_notes(message: Message) -> UIMessage:
    """A message as a UIMessage, with what is noted beside it in its metadata, as conditions read them."""
    if message.form is None:
        return {"role": message.name, "parts": [{"type": "text", "text": message.text}]} | _noted(message)
    return ui_message_of(message.form, message.data, message.name) | _noted(message)


def _noted(message: Message) -> UIMessage:
    return {} if message.notes is None else {"metadata": dict(message.metadata)}


def once_ids_of(message: Message) -> list[str]:
    """
    The ids of `once` that fired with a message.

    Conversations imported from Deep Agents say `onceIds`, and synthetic messages have them in `synthetic`.
    """
    if message.name != USER or not (metadata := message.metadata):
        return []
    places = [metadata, object_at(metadata, "synthetic")]
    listed = [place.get(key) for place in places for key in ("once_ids", "onceIds")]
    return [item for ids in listed if isinstance(ids, list) for item in cast("list[Any]", ids) if isinstance(item, str)]


def answered_message(newest_first: Iterable[Message]) -> Message | None:
    """
    Return the message that the last answer of a chain follows; None for an answer at the root, and for an empty chain.

    An answer is all that one assistant said since the last message that a user wrote: its calls of tools, their results, and
    what a program put in between are parts of it. After an answer of another agent it begins anew. Without an answer
    at the end of the chain it is the last message: that is still to be answered.

    Args:
        newest_first: The chain from its end, of which no more is taken than the answer and what it follows.
    """
    answer: Message | None = None
    followed: Message | None = None
    is_next = True
    for message in newest_first:
        if is_next:
            followed, is_next = message, False
        if message.name == ASSISTANT:
            if answer is not None and message.agent_id != answer.agent_id:
                break
            answer, followed, is_next = message, None, True
        elif is_real_user_message(message):
            # Some APIs pass the results of tools as messages of the user: those are parts of the answer.
            items = items_of(message.form, message.data, message.name)
            if not items or not all(isinstance(item.what, Result) for item in items):
                break
    return followed
