"""The decision to take the content of messages out of the log."""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

from ..errors import InvalidValueError, MessageNotFoundError
from ..limits import check_choice, data_copy, json_copy, same_json
from ..values import UNEXPLAINED, Message, RedactionCause
from .decide_chats import require_chat
from .events import Body, ContentRedacted
from .redaction import HEAD_CONTENT, HEAD_WHO
from .state import ChatState

MAX_TARGETS: Final = 5_000
"""The most messages of one event."""
CAUSES: Final[tuple[RedactionCause, ...]] = ("request", "retention", "erasure")

SlotsOf = Callable[[Sequence[str]], Sequence[tuple[int, int]]]
"""Returns where the content of messages is: the versions of their events, and the slots of these."""


def decide_redact(
    state: ChatState,
    message_ids: Sequence[str],
    keep: Callable[[Message], Any],
    slots_of: SlotsOf,
    *,
    reason: str | None = None,
    cause: RedactionCause = "request",
) -> list[Body]:
    """
    Messages lose their content. Nothing for those that have lost it already.

    Args:
        state: The chat.
        message_ids: The messages.
        keep: Returns what takes the place of the content of a message: a text, data in its form, or None for nothing. A message that
            was redacted is so again where this differs from what was put in the place of its content then.
        slots_of: Returns where the content of each of some messages of this chat is.
        reason: Why, in words; not what was there, as it stays.
        cause: Why, as one of a few words.

    Raises:
        ChatNotFoundError, MessageNotFoundError: There is no such chat or message.
        InvalidValueError: A value breaks a rule.
    """
    require_chat(state)
    check_reason(reason)
    check_choice(cause, CAUSES, "cause")
    state.look_up(message_ids)
    emptied: list[Message] = []
    bodies: list[Body] = []
    for message_id in message_ids:
        message = state.message(message_id)
        if message is None:
            raise MessageNotFoundError(message_id, chat_id=state.chat_id)
        is_empty = message.redacted not in {None, UNEXPLAINED} and message.data is None
        replacement = None if is_empty else data_copy(keep(message), f"what is kept of message {message_id!r}")
        if is_empty or (replacement is not None and same_json(message.data, replacement)):
            continue
        if replacement is None:
            emptied.append(message)
        else:
            # An event of its own: of what is replacement something may have to go later, and the event goes with all that it keeps.
            bodies.append(ContentRedacted((message_id,), _targets(slots_of, [message]), cause, replacement, reason))
    for start in range(0, len(emptied), MAX_TARGETS):
        some = emptied[start : start + MAX_TARGETS]
        ids = tuple(message.id for message in some)
        bodies.append(ContentRedacted(ids, _targets(slots_of, some), cause, None, reason))
    return bodies


def check_reason(reason: Any) -> None:
    """Check why something is redacted. Raises `InvalidValueError`."""
    if not isinstance(reason, str | None):
        msg = f"reason must be a text, not {type(reason).__name__}"
        raise InvalidValueError(msg)
    json_copy(reason, "reason")


class NamePlace(NamedTuple):
    """
    A slot with a name of a person: the version of its event, its number, and the messages whose sender or redactor it names.

    That with the content of a message is one where the message is a copy, and its notes name who redacted the original.
    """

    version: int
    slot: int
    message_ids: tuple[str, ...] = ()


def decide_pseudonymise(state: ChatState, places: Sequence[NamePlace], pseudonym: str) -> list[Body]:
    """
    The person who is named in these places is called otherwise. Nothing in a chat that was deleted since.

    `places` are in the order of their versions: in that order the events are rewritten, so that half of a membership is never one.
    Copies of redacted messages, whose notes name who redacted the original, are redacted anew; what is in the place of their content stays.
    """
    if state.record is None:
        return []
    first_version = state.record.first_version  # before it are those of an earlier chat of the id
    there = [place for place in places if place.version >= first_version]
    bodies: list[Body] = []
    for version, slot, message_ids in [place for place in there if place.slot > HEAD_CONTENT and place.slot % 2]:
        for message in map(state.message, message_ids):
            if message is not None and message.redacted is not None and not message.redacted.version:
                why = message.redacted
                bodies.append(
                    ContentRedacted(
                        (message.id,), ((version, (slot,)),), why.cause or "request", message.data, why.reason
                    )
                )
    there = [place for place in there if place.slot <= HEAD_CONTENT or place.slot % 2 == 0]
    for is_of_redactors in (False, True):
        of_kind = [place for place in there if (place.slot == HEAD_WHO and bool(place.message_ids)) == is_of_redactors]
        bodies += renamed_in(of_kind, pseudonym)
    return bodies


def renamed_in(places: Sequence[NamePlace], pseudonym: str) -> list[ContentRedacted]:
    """Return the events that put a pseudonym in these places, which are in the order of their versions."""
    bodies: list[ContentRedacted] = []
    for start in range(0, len(places), MAX_TARGETS):
        some = places[start : start + MAX_TARGETS]
        slots_by_version: dict[int, list[int]] = {}
        for place in some:
            slots_by_version.setdefault(place.version, []).append(place.slot)
        ids = dict.fromkeys(chain.from_iterable(place.message_ids for place in some))
        targets = tuple((version, tuple(sorted(slots))) for version, slots in slots_by_version.items())
        bodies.append(ContentRedacted(tuple(ids), targets, "erasure", pseudonym))
    return bodies


def _targets(slots_of: SlotsOf, messages: Sequence[Message]) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Return the slots that have the content of messages, by the versions of their events."""
    # Text in the place of content is in the event that put it there; but for a copy, it came with the message.
    redacted = {message.id: message.redacted.version for message in messages if message.redacted is not None}
    unredacted = [message.id for message in messages if not redacted.get(message.id)]
    slots_by_version: dict[int, list[int]] = {}
    for version, slot in slots_of(unredacted):
        slots_by_version.setdefault(version, []).append(slot)
    slots_by_version |= {version: [HEAD_CONTENT] for version in redacted.values() if version}
    return tuple((version, tuple(sorted(slots))) for version, slots in sorted(slots_by_version.items()))
