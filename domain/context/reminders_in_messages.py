"""Reminders inside of messages: how they get in, and how they get out again."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal

import msgspec

from ..errors import InvalidValueError
from .fragments import Fragment
from .messages import UIMessage, is_ui_message, object_at
from .predicates import OnError, ReminderContext
from .reminders import Fired, Render, fired_reminders

RECORDS: Final = "reminders"
ONCE_IDS: Final = "once_ids"


class Folded(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    One entry of `metadata.reminders`: a text that was folded into a message.

    `start` and `end` count code points in the text of the part, tags included. With mode `part` the whole part was added.
    """

    id: str
    text: str
    target: Literal["user"] = "user"
    part_index: int
    start: int
    end: int
    mode: Literal["inline", "part"]


def fold_reminders(
    message: UIMessage,
    reminders: Iterable[Fragment],
    context: ReminderContext,
    *,
    render: Render,
    new_ids: Iterator[str],
    on_error: OnError,
) -> UIMessage:
    """
    The message with the reminders whose time has come. Neither it nor what it consists of is changed.

    A message that carries reminders comes back as it is, so that folding it again adds nothing. If somebody has changed
    its text since, what is left of them goes first. Whatever goes wrong, nothing is raised: the message is more important
    than a reminder.

    Args:
        message: The last real user message of a save.
        reminders: Context fragments; those that are no reminders are passed over.
        context: The conversation before the message. `message` in it is set here.
        render: Gives a fragment as text, in XML by default.
        new_ids: Gives an id for each text that is folded in.
        on_error: Told what could not be asked or folded.
    """
    records = _records(message)
    if records and all(_is_in_place(record, message["parts"]) for record in records):
        return message
    plain = strip_reminders(message)
    known = msgspec.structs.replace(context, message=plain)
    fired = fired_reminders(reminders, known, render=render, on_error=on_error)
    if not fired:
        return plain
    obstacle = _obstacle(plain)
    if obstacle is not None:
        on_error("folding", InvalidValueError(f"reminders were not folded into a message: {obstacle}"))
        return plain
    return _folded(plain, fired, new_ids)


def strip_reminders(message: UIMessage) -> UIMessage:
    """
    The message as it was before reminders were folded into it.

    Their texts go, the parts that were added for them, and what the metadata say about them; metadata without anything
    else go too. A text that is not where the metadata say was changed by somebody, and stays. A message that carries no
    reminders comes back as it is, and so does anything that is no message.
    """
    records = _records(message)
    if not records:
        return message
    parts = list(message["parts"])
    for record in reversed(records):  # the last one first, so that places still are what they were at its time
        _take_out(record, parts)
    metadata = {name: value for name, value in message["metadata"].items() if name not in {RECORDS, ONCE_IDS}}
    stripped = {**message, "parts": parts, "metadata": metadata}
    if not metadata:
        del stripped["metadata"]
    return stripped


def _folded(message: UIMessage, fired: list[Fired], new_ids: Iterator[str]) -> UIMessage:
    parts = list(message["parts"])
    # Not a part that was added for a reminder: what is appended there would go with it.
    inline_at = next((at for at in reversed(range(len(parts))) if _text_of(parts[at]) is not None), None)
    records = [_put_in(one, parts, None if one.as_part else inline_at, next(new_ids)) for one in fired]
    metadata: dict[str, Any] = {**(message.get("metadata") or {}), RECORDS: msgspec.to_builtins(records)}
    once_ids = sorted(frozenset[str]().union(*(one.once_ids for one in fired)))
    if once_ids:
        metadata[ONCE_IDS] = once_ids
    return {**message, "parts": parts, "metadata": metadata}


def _put_in(one: Fired, parts: list[Any], at: int | None, record_id: str) -> Folded:
    """Append the text to the part at that place, or as a part of its own."""
    tagged = _tagged(one.text)
    mode: Literal["inline", "part"] = "part" if at is None else "inline"
    if at is None:
        at = len(parts)
        parts.append({"type": "text", "text": ""})
    before: str = parts[at]["text"]
    parts[at] = {**parts[at], "text": before + tagged}
    return Folded(
        id=record_id, text=one.text, part_index=at, start=len(before), end=len(before) + len(tagged), mode=mode
    )


def _take_out(record: Folded, parts: list[Any]) -> None:
    if not _is_in_place(record, parts):
        return
    at = record.part_index
    text: str = parts[at]["text"]
    rest = text[: record.start] + text[record.end :]
    if record.mode == "part" and not rest:
        del parts[at]
    else:
        parts[at] = {**parts[at], "text": rest}


def _is_in_place(record: Folded, parts: list[Any]) -> bool:
    text = _text_of(parts[record.part_index]) if 0 <= record.part_index < len(parts) else None
    return text is not None and text[record.start : record.end] == _tagged(record.text)


def _tagged(text: str) -> str:
    return f"<system-reminder>{text}</system-reminder>"


def _text_of(part: Any) -> str | None:
    fields = object_at(part)
    text = fields.get("text")
    return text if fields.get("type") == "text" and isinstance(text, str) else None


def _records(message: Any) -> list[Folded]:
    """The reminders that a message carries; none if its metadata do not say so in our form."""
    listed = object_at(message, "metadata").get(RECORDS) if is_ui_message(message) else None
    try:
        return msgspec.convert(listed, list[Folded])
    except msgspec.ValidationError:
        return []


def _obstacle(message: Any) -> str | None:
    """Why nothing can be folded into a message so that it can be taken out again; None if it can."""
    if not is_ui_message(message):
        return "it is no UIMessage"
    metadata: Any = message.get("metadata")
    if metadata is not None and not isinstance(metadata, Mapping):
        return "its metadata are no object"
    taken = [name for name in (RECORDS, ONCE_IDS) if name in (metadata or {})]
    return f"its metadata use the name {taken[0]!r} for something else" if taken else None
