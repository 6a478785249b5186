"""Annotations at work: which messages contexts and searches leave out, and which ones take their places."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from ..values import Annotation, Message
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
