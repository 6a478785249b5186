"""Reminders: what the model is told with a user message when the time has come, and not in the system prompt."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, cast

import msgspec

from ..errors import InvalidValueError
from ..limits import utf8_bytes
from .builder_codecs import check_holds_no_message
from .fragments import Fragment, as_fragment, copied, is_lazy_fragment, is_message_fragment
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
