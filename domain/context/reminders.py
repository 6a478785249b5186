"""
Reminders: what the model is told with a user message when the time has come, and not in the system prompt; and how they get into
messages, and out again.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, TypeVar, cast

import msgspec

from ..errors import InvalidValueError
from ..forms.plain import object_at
from ..limits import utf8_bytes
from .builders import check_holds_no_message
from .fragments import Fragment, as_fragment, copied, is_lazy_fragment, is_message_fragment
from .messages import UIMessage, is_ui_message
from .predicates import OnError, Predicate, ReminderContext, ask, check_function, judge

REMINDER: Final = "reminder"
"""The name of such fragments, and the place in their metadata that holds the `Reminder`."""

TextFunction = Callable[[ReminderContext], str]
Render = Callable[[Fragment], str]


class Reminder(msgspec.Struct, frozen=True, kw_only=True):
    """The data of a reminder fragment; see `reminder`."""

    content: str | TextFunction | Fragment
    when: Predicate | None = None
    as_part: bool = False
    target: Literal["user"] = "user"


class Fired(msgspec.Struct, frozen=True):
    """A reminder that is to be folded in: its text, and the ids of `once` that have fired with it."""

    text: str
    as_part: bool
    once_ids: frozenset[str]


def reminder(
    content: str | TextFunction | Fragment,
    *,
    when: Predicate | None = None,
    as_part: bool = False,
    target: Literal["user"] = "user",
) -> Fragment:
    """
    Return a fragment that reminds the model of something, for `ContextEngine.set`.

    It never becomes part of the system prompt. At each save whose `when` holds, `<system-reminder>text</system-reminder>`
    is appended to the last user message to be saved, and stored with it; `strip_reminders` takes it out again.

    Args:
        content: The text; or a function of the `ReminderContext` that returns it, blank for nothing; or a context
            fragment, which is rendered.
        when: The condition, a function of the `ReminderContext`; always when None. One that raises counts as not fired,
            and so does a text function; the error is logged.
        as_part: Whether the text becomes a part of its own, instead of the end of the last text part.
        target: What it is folded into: `user`.

    Raises:
        InvalidValueError: The content is blank, a message, or of another kind; a function is asynchronous or none; or the
            target is unknown.
    """
    if target != "user":
        msg = f"reminders have the target 'user', not {target!r}"
        raise InvalidValueError(msg)
    if when is not None:
        check_function(when, "when of a reminder")
    settings = Reminder(content=_checked(content), when=when, as_part=bool(as_part))
    # The data stay None, which every renderer leaves out: a reminder is in no prompt, wherever it was put.
    return Fragment(REMINDER, None, metadata={REMINDER: settings})


def is_reminder(value: Any) -> bool:
    """Whether this is a fragment that `reminder` made."""
    return isinstance(value, Fragment) and isinstance(value.metadata.get(REMINDER), Reminder)


def prompt_fragments(fragments: Iterable[Fragment]) -> list[Fragment]:
    """The fragments that belong into the system prompt: all but reminders."""
    return [fragment for fragment in fragments if not is_reminder(fragment)]


def fired_reminders(
    fragments: Iterable[Fragment], context: ReminderContext, *, render: Render, on_error: OnError
) -> list[Fired]:
    """
    The reminders among the fragments whose time has come, in order.

    All are judged by the conversation before the message, so that none depends on the order in which they were set.
    """
    fired: list[Fired] = []
    for number, fragment in enumerate(filter(is_reminder, fragments), 1):
        settings: Reminder = fragment.metadata[REMINDER]
        folded = _fired(settings, context, render, _labelled(on_error, fragment.id or str(number)))
        if folded is not None:
            fired.append(folded)
    return fired


def _fired(settings: Reminder, context: ReminderContext, render: Render, on_error: OnError) -> Fired | None:
    once_ids: frozenset[str] = frozenset()
    if settings.when is not None:
        holds, once_ids = judge(settings.when, context, on_error)
        if not holds:
            return None
    try:
        text = _text(settings.content, context, render)
    except Exception as error:  # noqa: BLE001 - users write text functions; no error of theirs may prevent a save
        on_error("text", error)
        return None
    return Fired(text, settings.as_part, once_ids) if text.strip() else None


def _text(content: str | TextFunction | Fragment, context: ReminderContext, render: Render) -> str:
    if isinstance(content, Fragment):
        return render(content)
    text = content if isinstance(content, str) else ask(content, context)
    if not isinstance(text, str):
        msg = f"a text function must return text, not {type(text).__name__}"
        raise TypeError(msg)
    utf8_bytes(text, "the text of a reminder")
    return text


def _labelled(on_error: OnError, label: str) -> OnError:
    return lambda part, error: on_error(f"{part} of reminder {label}", error)


def _checked(content: Any) -> str | TextFunction | Fragment:
    if isinstance(content, str):
        if not content.strip():
            msg = "the text of a reminder must not be blank"
            raise InvalidValueError(msg)
        utf8_bytes(content, "the text of a reminder")
        return content
    if isinstance(content, Fragment | Mapping):
        fragment = as_fragment(cast("Fragment | Mapping[str, Any]", content))
        if is_message_fragment(fragment) or is_lazy_fragment(fragment) or is_reminder(fragment):
            msg = f"the content of a reminder must be a context fragment, not the {fragment.name} {fragment.id or ''}"
            raise InvalidValueError(msg.rstrip())
        check_holds_no_message(fragment)
        return copied(fragment)
    return check_function(content, "the content of a reminder, unless text or a fragment,")


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
