"""Histories as frameworks count them: what a branch says that counts, in any form."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import dropwhile
from typing import Any, Final, NamedTuple

import msgspec

from ..forms.items import ASSISTANT, TOOL
from ..forms.reading import role_of
from ..forms.translate import translate
from ..values import Annotation, Branch, Message
from .decide_messages import find_branch
from .events import MessagesAnnotated
from .state import ChatState

_encode: Final = msgspec.msgpack.Encoder(order="deterministic").encode


def annotation_events(annotations: Iterable[tuple[str, Annotation]]) -> list[MessagesAnnotated]:
    """Return the events that give messages, by id, their first annotations: one for all that say the same, none for nothing."""
    ids_by_content: dict[bytes, tuple[dict[str, Any], list[str]]] = {}
    for message_id, annotation in annotations:
        # Of the defaults, msgspec leaves out False and None, but not an empty object.
        changes: dict[str, Any] = {name: value for name, value in msgspec.to_builtins(annotation).items() if value}
        if changes:
            ids_by_content.setdefault(_encode(changes), (changes, []))[1].append(message_id)
    return [MessagesAnnotated(tuple(message_ids), changes) for changes, message_ids in ids_by_content.values()]


def replacement(state: ChatState, message_id: str) -> str | None:
    """
    Return the id of the message that takes the place of another one in the end, that of a replaced one included.

    None when nothing does. Messages that replace each other in a circle stay where they are.
    """
    newest: str | None = None
    seen = {message_id}
    annotation = state.annotation(message_id)
    while annotation is not None and annotation.replaced_by is not None:
        newest = annotation.replaced_by
        if newest in seen:
            return None
        seen.add(newest)
        annotation = state.annotation(newest)
    return newest


def is_left_out(state: ChatState, message_id: str) -> bool:
    """Whether searches leave a message out: it is hidden, or another one takes its place."""
    annotation = state.annotation(message_id)
    return annotation is not None and (annotation.hidden or replacement(state, message_id) is not None)


class Standing(NamedTuple):
    """A message of a chain that counts, and the one that stands in its place: mostly itself."""

    base: Message
    message: Message


def standing(state: ChatState, chain: Sequence[Message], *, always: str | None = None) -> list[Standing]:
    """
    Return the messages of a chain that count, root first; `chain` ends anywhere and may begin anywhere.

    Hidden ones are left out. In place of a replaced one stands the one that takes its place, unless that is on the chain by
    itself; of several with the same one, in place of the last. `always` counts as it is, whatever was said of it.
    """
    counted: list[Standing] = []
    placed: set[str] = set()
    for base in reversed(chain):
        if base.annotation is None or base.id == always:
            counted.append(Standing(base, base))
            continue
        new_id = replacement(state, base.id)
        if new_id is not None and (new_id in placed or state.is_ancestor(new_id, chain[-1].id)):
            continue
        message = base if new_id is None else state.message(new_id)
        if message is not None and not message.is_hidden:
            counted.append(Standing(base, message))
            placed.add(message.id)
    return counted[::-1]


def for_model(state: ChatState, chain: Sequence[Message], *, always: str | None = None) -> list[Message]:
    """Return the messages of a chain that a model gets, root first: those that stand in the places of those that count."""
    if all(message.annotation is None for message in chain):
        return list(chain)
    return [message for _, message in standing(state, chain, always=always)]


_FIRST_PAGE: Final = 16


class Told(NamedTuple):
    """
    A message as a framework reads it.

    Args:
        value: The message in the framework's form.
        origin: The stored messages that it comes from: mostly one, several where an answer came in parts. Several values may come from
            the same one.
    """

    value: Any
    origin: Sequence[Standing]


class History:
    """
    A branch of a chat as it stands at one moment. Reads cost what is read, however long the branch is.

    Attributes:
        state: The chat.
        branch: The branch.
    """

    def __init__(self, state: ChatState, branch: Branch) -> None:
        self.state, self.branch = state, branch

    def chain(self, limit: int | None = None) -> list[Message]:
        """Return the messages of the branch, oldest first; the last `limit` of them, all when None."""
        head = self.branch.head_message_id
        return [] if head is None else self.state.chain(head, limit)

    def growing(self, first: int) -> Iterator[list[Message]]:
        """Yield the last `first` messages of the branch, twice as many, and so on, up to all: for readers who stop at enough."""
        head, length = self.branch.head_message_id, self.branch.message_count
        chain = self.chain(min(max(first, 1), length))
        yield chain
        while head is not None and len(chain) < length:
            rest = length - len(chain)
            chain = self.state.chain(self.state.ancestor(head, rest - 1), min(len(chain), rest)) + chain
            yield chain

    def standing(self, chain: Sequence[Message]) -> list[Standing]:
        """Return those messages of a chain that count, each with the one that stands in its place."""
        return standing(self.state, chain)

    def for_model(self, chain: Sequence[Message]) -> list[Message]:
        """Return what a model gets of a chain: neither hidden nor replaced messages."""
        return for_model(self.state, chain)

    def newest(self, limit: int | None = None) -> list[Message]:
        """Return what a model gets of the branch, oldest first; the last `limit` messages of it, all when None."""
        if limit is None:
            return self.for_model(self.chain())
        shown: list[Message] = []
        for chain in self.growing(limit):
            shown = self.for_model(chain)
            if len(shown) >= limit:
                break
        return shown[len(shown) - min(limit, len(shown)) :]

    def told(self, form: str, limit: int | None = None) -> list[Told]:
        """
        Return what counts of the branch in a form, oldest first; the last `limit` messages of that form, all when None.

        What came in the form is given as it came, and nothing is translated where all of it did.

        Raises:
            InvalidValueError: The form, or that of a message, is not known.
        """
        told: list[Told] = []
        for chain in self.growing(self.branch.message_count if limit is None else limit):
            _, told = self.tell(chain, form)
            if limit is not None and len(told) >= limit:
                return told[len(told) - limit :]
        return told

    def values(self, form: str, limit: int | None = None) -> list[Any]:
        """Return the values of `told`, which costs half of it where all came in the form."""
        shown = self.newest(limit)
        if all(message.form == form for message in shown):
            return [message.data for message in shown]
        return [message.value for message in self.told(form, limit)]

    def tell(self, chain: list[Message], form: str) -> tuple[list[Message], list[Told]]:
        """
        Return the end of the branch in a form, and the messages of the chain that were read for it.

        Where something is translated, the beginning of the chain is left out up to the first whole turn, unless the chain is the whole
        branch: a result cannot be told without its call.
        """
        counted = self.standing(chain)
        if all(message.form == form for _, message in counted):
            return chain, [Told(pair.message.data, (pair,)) for pair in counted]
        if len(chain) < self.branch.message_count:
            counted = list(dropwhile(lambda pair: _goes_on(pair.message), counted))
            chain = list(dropwhile(lambda message: not counted or message is not counted[0].base, chain))
        translated = translate([message for _, message in counted], form, open_calls="keep")
        told: list[Told] = []
        for value, places in zip(translated.messages, translated.origins, strict=True):
            origin = [counted[place] for place in places]
            if len(origin) > 1 and (role := role_of(form, value)) in {ASSISTANT, TOOL}:
                # A turn is written as calls and results: each comes from its own messages, so that one can be taken off alone.
                origin = [pair for pair in origin if (pair.message.name == TOOL) is (role == TOOL)] or origin
            told.append(Told(value, origin))
        return chain, told

    def turns(self, limit: int) -> list[Message]:
        """
        Return what a model gets of the branch, oldest first: the last `limit` messages, and those before them of the same turn.

        So no result stands without its call, and no answer begins in its midst.
        """
        shown: list[Message] = []
        for chain in self.growing(limit):
            shown = self.for_model(chain)
            for start in range(len(shown) - limit, -1, -1):
                if not _goes_on(shown[start]):
                    return shown[start:]
        return shown

    def find(self, *message_ids: str) -> Message | None:
        """Return the message of the first of these ids that the branch has; None when it has none of them."""
        head = self.branch.head_message_id
        for message_id in message_ids:
            if head is not None and self.state.has_message(message_id) and self.state.is_ancestor(message_id, head):
                return self.state.message(message_id)
        return None

    def at(self, depth: int) -> Message | None:
        """Return the message at a depth, which the root has at 0; None beyond the head."""
        head = self.branch.head_message_id
        if head is None or not 0 <= depth < self.branch.message_count:
            return None
        return self.state.message(self.state.ancestor(head, depth))

    def up_to(self, depth: int) -> "History":
        """Return the branch as it was when it ended with the message at a depth that it has."""
        head = self.branch.head_message_id
        assert head is not None, "only a branch with messages has a depth"
        return self.ending_with(self.state.ancestor(head, depth))

    def ending_with(self, message_id: str) -> "History":
        """Return what leads to a message of the chat, which need not be on the branch, as a branch that ends with it."""
        length = self.state.depth(message_id) + 1
        return History(
            self.state, msgspec.structs.replace(self.branch, head_message_id=message_id, message_count=length)
        )

    def standing_at(self, message_id: str) -> Standing | None:
        """Return a message of the branch, if it counts, with the one that stands in its place."""
        return next(iter(self.between(self.state.depth(message_id), 1)), None)

    def between(self, depth: int, count: int) -> list[Standing]:
        """Return those that count among so many messages of the branch from a depth on."""
        head, last = self.branch.head_message_id, min(depth + count, self.branch.message_count) - 1
        if head is None or last < depth:
            return []
        # One more is looked at, as several messages may have one in their places.
        end = min(last + 1, self.branch.message_count - 1)
        chain = self.state.chain(self.state.ancestor(head, end), end - depth + 1)
        beyond = chain[-1].id if end > last else None
        return [pair for pair in self.standing(chain) if pair.base.id != beyond]

    def page(self, after: str | None, limit: int, *, ascending: bool) -> list[Standing]:
        """Return at most `limit` of those that count and follow a message of the branch, or precede it, in that order."""
        depth, length = None if after is None else self.state.depth(after), self.branch.message_count
        entries: list[Standing] = []
        start = (0 if depth is None else depth + 1) if ascending else (length if depth is None else depth)
        step = max(limit, _FIRST_PAGE)
        while len(entries) < limit and (start < length if ascending else start > 0):
            if ascending:
                entries += self.between(start, step)
                start += step
            else:
                first = max(start - step, 0)
                entries += reversed(self.between(first, start - first))
                start = first
            # Doubled, so that a long stretch of hidden messages is passed in a few reads.
            step *= 2
        return entries[:limit]


def _goes_on(message: Message) -> bool:
    """Whether a message goes on with an answer: it is of an assistant or a tool."""
    return message.role in {ASSISTANT, TOOL}


def read_history(state: ChatState, branch: str | None) -> History | None:
    """
    Return a branch of a chat, the active one for None; None when there is no such chat.

    Raises:
        BranchNotFoundError: The chat has no such branch.
    """
    return None if state.record is None else History(state, find_branch(state, branch))
