"""Redacted messages and events: as they are without the content that was taken out of the log."""

import contextlib
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, cast

import msgspec
from msgspec.structs import replace

from ..values import OWNER, UNEXPLAINED, Message, Redaction
from .events import (
    Body,
    ChatCreated,
    ChatUpdated,
    ContentRedacted,
    Event,
    MessagesAnnotated,
    MessagesAppended,
    Recorded,
    RunChanged,
)

HEAD_WHO: Final = 0
"""The slot with the actor of an event."""
HEAD_CONTENT: Final = 1
"""The slot with the content of an event that has no parts."""
_REDACTED: Final = "redacted"
_EMPTY: Final[dict[str, Any]] = dict.fromkeys(("frames", "pieces", "rests", "tasks"), ()) | {"fields": {}}
"""Empty content of versioned values; other content is None once it is gone."""


def redaction_in(notes: dict[str, Any] | None) -> Redaction | None:
    """Return the redaction of the original that the notes of a copy or an import tell of; None where they do not."""
    own: Any = None if notes is None else notes.get(OWNER)
    noted: Any = cast("dict[str, Any]", own).get(_REDACTED) if isinstance(own, dict) else None
    if noted is None:
        return None
    with contextlib.suppress(msgspec.ValidationError):
        return replace(msgspec.convert(noted, Redaction), position=0, version=0)
    return None


def notes_of_copy(message: Message) -> dict[str, Any] | None:
    """Return the notes of a copy of a message. The copy of a redacted message says there that it was redacted."""
    if message.redacted is None:
        return message.notes
    notes = message.notes or {}
    redaction = msgspec.to_builtins(replace(message.redacted, position=0, version=0))
    return {**notes, OWNER: {**notes.get(OWNER, {}), _REDACTED: redaction}}


def content_slot(place: int) -> int:
    """Return the number of the slot with the content of the message at a place, from 0, among those of its event."""
    return 2 * place + 3


def redacted_messages(messages: Iterable[Message], recorded: Recorded) -> tuple[Message, ...]:
    """Return messages as they are after an event that takes their content away, or names."""
    body = recorded.body
    assert isinstance(body, ContentRedacted), "nothing else takes content away"
    if body.takes_senders:
        return tuple(replace(message, sender_id=body.text) for message in messages)
    if body.takes_names:
        return tuple(
            replace(message, redacted=replace(message.redacted or UNEXPLAINED, by=body.text)) for message in messages
        )
    why = Redaction(
        at=recorded.occurred_at,
        by=recorded.actor,
        reason=body.reason,
        cause=body.cause,
        position=recorded.position,
        version=recorded.version,
    )
    return tuple(emptied(message, body.text, why) for message in messages)


def emptied(message: Message, content: Any, why: Redaction | None) -> Message:
    """Return a message with something else in the place of its content. A text has no form: it is nobody's message object."""
    is_plain = content is None or isinstance(content, str)
    return replace(message, data=content, notes=None, form=None if is_plain else message.form, redacted=why)


def without_content(
    recorded: Recorded,
    slots: Collection[int],
    message_now: Callable[[str], Message | None],
    pseudonym: Callable[[int, int], str | None],
    owner: str | None,
) -> Recorded:
    """
    Return an event as it reads once content was taken away: messages say when and why, and show what is in the place of their content.

    Args:
        recorded: The event, with its content or without.
        slots: The slots that it is to lose, and those that it has lost.
        message_now: Returns a message as it is today; None where its chat was deleted.
        pseudonym: Returns what stands in the place of a name: in the event of a version, in a slot; None where nothing does.
        owner: Who owns the chat, as ever.
    """
    event: Event[Any] = recorded.event
    gone = {*slots, *event.redacted}
    body: Body = recorded.body
    if isinstance(body, MessagesAppended):
        messages = list(body.messages)
        for place, message in enumerate(body.messages):
            slot = content_slot(place)
            now = message_now(message.id) if slot in gone or slot - 1 in gone else None
            if slot in gone:
                why = message.redacted if now is None else now.redacted
                messages[place] = emptied(message, None if now is None else now.data, why or Redaction())
            if slot - 1 in gone:
                sender = None if now is None else now.sender_id
                messages[place] = replace(messages[place], sender_id=sender)
        body = replace(body, messages=tuple(messages))
    elif HEAD_CONTENT in gone and isinstance(body, ChatUpdated | MessagesAnnotated | RunChanged):
        changes = {name: value for name, value in body.changes.items() if name not in body.CONTENT}
        body = replace(body, changes=changes)
    elif HEAD_CONTENT in gone:
        # Of a member no other name: whoever bears that would be one, as of then.
        body = replace(body, **{name: _EMPTY.get(name) for name in body.CONTENT})
        if isinstance(body, ChatCreated):
            body = replace(body, user_id=owner)
    event = replace(event, body=body, redacted=tuple(sorted(gone)))
    if HEAD_WHO in gone:
        actor = pseudonym(recorded.version, HEAD_WHO)
        event = replace(event, actor=actor, correlation_id=None, causation_id=None, command_id=None)
    return replace(recorded, event=event)
