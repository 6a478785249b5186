"""
The limits of a ledger, applied to what a foreign file holds, one record at a time.

A value that a ledger would refuse is repaired where that loses little, else left out and reported, so that one value never costs
the rest of its conversation.
"""

from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from itertools import repeat
from typing import Any, Final, TypeVar, cast

import msgspec

from ..errors import InvalidValueError
from ..forms.detect import is_of_form
from ..limits import (
    MAX_ID_BYTES,
    MAX_JSON_DEPTH,
    MAX_TITLE_BYTES,
    check_id,
    check_metadata,
    check_time,
    data_copy,
    json_copy,
)
from ..log.codec import NO_HASH, Envelope, encode_events
from ..log.large_data import LARGE_BYTES
from ..log.parts import SALT_BYTES
from ..packing import pack
from ..values import Annotation, Message
from ..versioned.keys import check_chat_id
from .decide_import import check_run
from .decide_messages import check_merged, check_message
from .events import MessagesAppended
from .interchange import (
    ImportedBranch,
    ImportedChat,
    ImportedCheckpoint,
    ImportedMessage,
    ImportedRegeneration,
    draft_of,
)
from .runs import MessageRun

Tell = Callable[[str], None]
"""Takes what is wrong with a record, and what became of it."""

_MIN_INT, _MAX_INT = -(2**63), 2**64 - 1
_ATTRIBUTES: Final = ("type", "sender_id", "agent_id", "reply_to", "copied_from")
S = TypeVar("S", ImportedBranch, ImportedCheckpoint, ImportedRegeneration)
T = TypeVar("T")


def describe_id_fault(value: object) -> str | None:
    """Return what is wrong with an id (1 to 2,048 bytes of UTF-8, no NUL), or None."""
    if not isinstance(value, str):
        return "is not a text"
    if not value:
        return "is empty"
    if "\0" in value:
        return "contains a NUL"
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return "contains a lone surrogate"
    return f"has {size} bytes, more than {MAX_ID_BYTES}" if size > MAX_ID_BYTES else None


def fit_message(chat_id: str, message: ImportedMessage, tell: Tell) -> ImportedMessage | None:
    """
    Return a message as a ledger takes it, or None when it is to be skipped; its parent is not looked at.

    An attribute that breaks a rule is left out.
    """
    what = f"message {message.id!r} of chat {chat_id!r}"
    # Nearly all messages keep every rule, which one check tells; only of the others each field is looked at.
    try:
        checked = check_message(draft_of(message), 0)
        return message if _is_storable(checked, what, tell) else None
    except InvalidValueError:
        pass
    try:
        check_id(message.id, "its id")
        check_id(message.name, "its name")
        data = data_copy(message.data, "its data")
    except InvalidValueError as error:
        tell(f"{what}: {error}; skipped")
        return None
    changes: dict[str, Any] = {"data": data}
    form = message.form or None
    is_odd = not is_of_form(data, form)
    changes["form"] = None if is_odd else _kept(form, partial(check_id, what="form"), what, tell)
    try:
        changes["notes"] = _fit_json(message.notes, what, tell)
    except InvalidValueError as error:
        tell(f"{what}: {error}; imported without its notes")
        changes["notes"] = None
    for name in _ATTRIBUTES:
        changes[name] = _kept(getattr(message, name), partial(check_id, what=name), what, tell)
    changes["merged_from"] = _kept(message.merged_from, partial(check_merged, what=what), what, tell) or ()
    if changes["sender_id"] is not None and changes["agent_id"] is not None:
        tell(f"{what} has both sender_id and agent_id; imported without agent_id")
        changes["agent_id"] = None
    changes["created_at"] = _kept(message.created_at, partial(check_time, what="created_at"), what, tell)
    fitted = msgspec.structs.replace(message, **changes)
    checked = check_message(draft_of(msgspec.structs.replace(fitted, parent_id=None)), 0)
    return fitted if _is_storable(checked, what, tell) else None


def fit_chat(chat: ImportedChat, tell: Tell) -> ImportedChat | None:
    """Return a chat, whose messages fit already, as a ledger takes it; None when it has to be skipped."""
    try:
        check_chat_id(chat.id)
    except InvalidValueError as error:
        tell(f"chat {chat.id!r}: {error}; skipped")
        return None
    what = f"chat {chat.id!r}"
    return msgspec.structs.replace(
        chat,
        user_id=_kept(chat.user_id, partial(check_id, what="user_id", empty=True), what, tell) or "",
        title=_fit_title(chat.title, what, tell),
        metadata=_fit_metadata(chat.metadata, what, tell),
        messages=_fit_links(chat.messages, what, tell),
        branches=_fit_times(chat.branches, "branch", what, tell),
        checkpoints=_fit_times(chat.checkpoints, "checkpoint", what, tell),
        regenerations=_fit_times(chat.regenerations, "regeneration", what, tell),
        runs=tuple(run for run in chat.runs if _is_sound(run, what, tell)),
        **{
            name: _kept(getattr(chat, name), partial(check_time, what=name), what, tell)
            for name in ("created_at", "updated_at", "expires_at")
        },
    )


def _kept(value: T | None, check: Callable[[T], object], what: str, tell: Tell) -> T | None:
    """Return a value that keeps a rule; None of one that does not, which is told."""
    if value is None:
        return None
    try:
        check(value)
    except InvalidValueError as error:
        tell(f"{what}: {error}; imported without")
        return None
    return value


def _is_storable(message: Message, what: str, tell: Tell) -> bool:
    """Whether a message fits into an event; what is small does in any case."""
    if len(pack(message.data)) <= LARGE_BYTES:
        return True
    try:
        encode_events(
            [MessagesAppended((message,))],
            stream_id="",
            version=0,
            previous_hash=NO_HASH,
            occurred_at=0,
            event_ids=[""],
            salts=repeat(bytes(SALT_BYTES)),  # only the size is looked at
            envelope=Envelope(),
        )
    except InvalidValueError as error:
        tell(f"{what}: {error}; skipped")
        return False
    return True


def _fit_json(value: Any, what: str, tell: Tell) -> Any:
    """Return a JSON value with floats for integers beyond 64 bits. Raises `InvalidValueError` as `json_copy` does."""
    rounded: list[int] = []
    fitted = json_copy(with_floats(value, rounded), "its data")
    if rounded:
        tell(f"{what}: {len(rounded)} integer(s) beyond 64 bits were rounded to floats")
    return fitted


def with_floats(value: Any, rounded: list[int] | None = None) -> Any:
    """Return a JSON value with floats for integers beyond 64 bits; those that are no number of JavaScript go to `rounded`."""
    return _with_floats(value, [] if rounded is None else rounded, 0)


def _with_floats(value: Any, rounded: list[int], depth: int) -> Any:
    if isinstance(value, int) and not _MIN_INT <= value <= _MAX_INT:
        try:
            rounded_value = float(value)
        except OverflowError:
            return value
        # JavaScript writes the shortest digits that give the float, and zeros after them.
        if value not in {int(rounded_value), int(Decimal(repr(rounded_value)))}:
            rounded.append(value)
        return rounded_value
    if depth >= MAX_JSON_DEPTH:
        return value  # refused for its depth
    if isinstance(value, list):
        return [_with_floats(item, rounded, depth + 1) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: _with_floats(item, rounded, depth + 1) for key, item in cast("dict[Any, Any]", value).items()}
    return value


def _fit_title(title: str | None, what: str, tell: Tell) -> str | None:
    if title is None:
        return None
    text = title.encode("utf-8", "replace")
    if len(text) > MAX_TITLE_BYTES:
        tell(f"{what}: its title takes {len(text):,} bytes; cut to {MAX_TITLE_BYTES:,}")
    return text[:MAX_TITLE_BYTES].decode("utf-8", "ignore")


def _fit_metadata(metadata: dict[str, Any] | None, what: str, tell: Tell) -> dict[str, Any] | None:
    try:
        return check_metadata(metadata)
    except InvalidValueError:
        pass
    try:
        return check_metadata(_fit_json(metadata, f"the metadata of {what}", tell))
    except InvalidValueError as error:
        tell(f"{what}: {error}; imported without its metadata")
        return None


def _fit_links(messages: Sequence[ImportedMessage], what: str, tell: Tell) -> tuple[ImportedMessage, ...]:
    """Leave out answers to and merges of messages that do not come before, and annotations that break a rule."""
    seen: set[str] = set()
    fitted: list[ImportedMessage] = []
    for message in messages:
        changes: dict[str, Any] = {}
        if message.reply_to is not None and message.reply_to not in seen:
            tell(
                f"message {message.id!r} of {what} answers {message.reply_to!r}, which does not come before; imported without"
            )
            changes["reply_to"] = None
        if not seen.issuperset(message.merged_from):
            absent = next(parent for parent in message.merged_from if parent not in seen)
            tell(f"message {message.id!r} of {what} merges {absent!r}, which does not come before; imported without")
            changes["merged_from"] = tuple(parent for parent in message.merged_from if parent in seen)
        if message.annotation is not None:
            changes["annotation"] = _fit_annotation(
                message.annotation, f"the annotation of {message.id!r}, {what}", tell
            )
        fitted.append(msgspec.structs.replace(message, **changes) if changes else message)
        seen.add(message.id)
    return tuple(fitted)


def _fit_annotation(annotation: Annotation, what: str, tell: Tell) -> Annotation | None:
    fitted = msgspec.structs.replace(annotation, metadata=_fit_metadata(annotation.metadata, what, tell) or {})
    return None if fitted == Annotation() else fitted


def _fit_times(items: Sequence[S], kind: str, what: str, tell: Tell) -> tuple[S, ...]:
    def fit(item: S) -> S:
        created_at = _kept(item.created_at, partial(check_time, what=f"created_at of a {kind}"), what, tell)
        return item if created_at == item.created_at else msgspec.structs.replace(item, created_at=None)

    return tuple(map(fit, items))


def _is_sound(run: MessageRun, what: str, tell: Tell) -> bool:
    try:
        check_run(run)
    except InvalidValueError as error:
        tell(f"run {run.run_id!r} of {what}: {error}; skipped")
        return False
    return True
