"""Reminders inside of messages: how they get in, and how they get out again."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal, TypeVar

import msgspec

from ..errors import InvalidValueError
from .fragments import Fragment
from .messages import UIMessage, is_ui_message, object_at
from .predicates import OnError, ReminderContext
from .reminders import Fired, Render, fired_reminders

T = TypeVar("T")

RECORDS: Final = "reminders"
ONCE_IDS: Final = "once_ids"
ESCAPED: Final = "escaped_tags"
_OURS: Final = frozenset({RECORDS, ONCE_IDS, ESCAPED})
_NOT_TAKEN_OVER: Final = _OURS | {"onceIds"}
"""Metadata that are dropped from a message before it is saved: with them a client could keep reminders away."""

_NAME: Final = "system-reminder"
_TAG: Final = re.compile(rf"<(?=\s*/?\s*{_NAME})", re.IGNORECASE)
_BEGUN_TAG: Final = re.compile(
    rf"<(?=\s*/?\s*(?:{_NAME}|(?:{'|'.join(_NAME[:length] for length in range(len(_NAME)))})\Z))", re.IGNORECASE
)
"""Also a tag that the next part may go on with."""

_LESS_THAN: Final = "&lt;"


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


class Escaped(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of `metadata.escaped_tags`: where `<` of a tag that the user typed is `&lt;`, in code points."""

    part_index: int
    start: int


def fold_reminders(
    message: UIMessage,
    reminders: Iterable[Fragment],
    context: ReminderContext,
    *,
    notes: Mapping[str, Any] | None = None,
    render: Render,
    new_ids: Iterator[str],
    on_error: OnError,
) -> UIMessage:
    """
    The message with the reminders whose time has come. Neither it nor what it consists of is changed.

    What it carries of reminders goes first, so that folding twice is as folding once, and nobody can keep reminders out by
    saying that they are in. Tags of reminders that the user typed are escaped. Whatever goes wrong, nothing is raised: the
    message is more important than a reminder.

    Args:
        message: A real user message of a save.
        reminders: Context fragments; those that are no reminders are passed over.
        context: The conversation before the message. `message` in it is set here.
        notes: What is noted beside the message, which conditions see in its metadata.
        render: Gives a fragment as text, in XML by default.
        new_ids: Gives an id for each text that is folded in.
        on_error: Told what could not be asked or folded.
    """
    plain: UIMessage = _without(strip_reminders(message), _NOT_TAKEN_OVER)
    seen = plain if notes is None else {**plain, "metadata": {**object_at(plain, "metadata"), **notes}}
    context_with_message = msgspec.structs.replace(context, message=seen)
    fired = fired_reminders(reminders, context_with_message, render=render, on_error=on_error)
    obstacle = _obstacle(plain)
    if obstacle is not None:
        if fired:
            on_error("folding", InvalidValueError(f"reminders were not folded into a message: {obstacle}"))
        return plain
    parts, escaped = _escaped(plain["parts"])
    return _folded(plain, parts, escaped, fired, new_ids) if fired or escaped else plain


def without_once(notes: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Notes of a client without those that would keep reminders away; None if nothing is left."""
    return {name: value for name, value in (notes or {}).items() if name not in _NOT_TAKEN_OVER} or None


def strip_reminders(message: UIMessage) -> UIMessage:
    """
    The message as it was before reminders were folded into it.

    Their texts go, the parts that were added for them, and what the metadata say about them; metadata without anything
    else go too. Tags that the user typed are tags again. A text that is not where the metadata say was changed by
    somebody, and stays. A message that carries no reminders comes back as it is, and so does anything that is no message.
    """
    records, escaped = _listed(message, RECORDS, list[Folded]), _listed(message, ESCAPED, list[Escaped])
    if not records and not escaped:
        return message
    parts = list(message["parts"])
    for record in reversed(records):  # the last one first, so that places still are what they were at its time
        _take_out(record, parts)
    for tag in reversed(escaped):
        _unescape(tag, parts)
    stripped: UIMessage = _without({**message, "parts": parts}, _OURS)
    return stripped


def _without(message: Any, names: frozenset[str]) -> Any:
    """A message without these entries of its metadata, and without metadata if nothing is left; itself if it has none of them."""
    metadata = object_at(message, "metadata")
    if names.isdisjoint(metadata):
        return message
    rest = {name: value for name, value in metadata.items() if name not in names}
    if rest:
        return {**message, "metadata": rest}
    return {name: value for name, value in message.items() if name != "metadata"}


def _escaped(parts: list[Any]) -> tuple[list[Any], list[Escaped]]:
    """The parts with tags of reminders escaped, and where that was."""
    texts = {at: text for at, part in enumerate(parts) if (text := _text_of(part)) is not None}
    escaped: list[Escaped] = []
    result = list(parts)
    for at, text in texts.items():
        # Readers may join the texts of parts, so that the next one completes a tag that was begun here.
        tag = _BEGUN_TAG if at + 1 in texts else _TAG
        longer = len(_LESS_THAN) - 1
        places = [Escaped(at, match.start() + longer * number) for number, match in enumerate(tag.finditer(text))]
        if places:
            escaped += places
            result[at] = {**result[at], "text": tag.sub(_LESS_THAN, text)}
    return result, escaped


def _unescape(tag: Escaped, parts: list[Any]) -> None:
    text = _text_of(parts[tag.part_index]) if 0 <= tag.part_index < len(parts) else None
    if text is None or tag.start < 0 or not text.startswith(_LESS_THAN, tag.start):
        return
    typed = f"{text[: tag.start]}<{text[tag.start + len(_LESS_THAN) :]}"
    if _BEGUN_TAG.match(typed, tag.start):
        parts[tag.part_index] = {**parts[tag.part_index], "text": typed}


def _folded(
    message: UIMessage, parts: list[Any], escaped: list[Escaped], fired: list[Fired], new_ids: Iterator[str]
) -> UIMessage:
    # Not a part that was added for a reminder: what is appended there would go with it.
    inline_at = next((at for at in reversed(range(len(parts))) if _text_of(parts[at]) is not None), None)
    records = [_put_in(reminder, parts, None if reminder.as_part else inline_at, next(new_ids)) for reminder in fired]
    metadata: dict[str, Any] = {**(message.get("metadata") or {})}
    if escaped:
        metadata[ESCAPED] = msgspec.to_builtins(escaped)
    if records:
        metadata[RECORDS] = msgspec.to_builtins(records)
    once_ids = sorted(frozenset[str]().union(*(reminder.once_ids for reminder in fired)))
    if once_ids:
        metadata[ONCE_IDS] = once_ids
    return {**message, "parts": parts, "metadata": metadata}


def _put_in(reminder: Fired, parts: list[Any], at: int | None, record_id: str) -> Folded:
    """Append the text to the part at that place, or as a part of its own."""
    tagged = _tagged(reminder.text)
    mode: Literal["inline", "part"] = "part" if at is None else "inline"
    if at is None:
        at = len(parts)
        parts.append({"type": "text", "text": ""})
    before: str = parts[at]["text"]
    parts[at] = {**parts[at], "text": before + tagged}
    return Folded(
        id=record_id, text=reminder.text, part_index=at, start=len(before), end=len(before) + len(tagged), mode=mode
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
    if text is None:
        return False
    # In older messages the tags in the text of a reminder are not escaped.
    return text[record.start : record.end] in {_tagged(record.text), f"<{_NAME}>{record.text}</{_NAME}>"}


def _tagged(text: str) -> str:
    """The text between tags, of which it cannot close or open another."""
    return f"<{_NAME}>{_TAG.sub(_LESS_THAN, text)}</{_NAME}>"


def _text_of(part: Any) -> str | None:
    fields = object_at(part)
    text = fields.get("text")
    return text if fields.get("type") == "text" and isinstance(text, str) else None


def _listed(message: Any, name: str, kind: type[T]) -> T | tuple[()]:
    """A list in the metadata of a message; empty if it is not in our form."""
    listed = object_at(message, "metadata").get(name) if is_ui_message(message) else None
    try:
        return msgspec.convert(listed, kind)
    except msgspec.ValidationError:
        return ()


def _obstacle(message: Any) -> str | None:
    """Why nothing can be folded into a message so that it can be taken out again; None if it can."""
    if not is_ui_message(message):
        return "it is no UIMessage"
    metadata: Any = message.get("metadata")
    if metadata is not None and not isinstance(metadata, Mapping):
        return "its metadata are no object"
    return None
