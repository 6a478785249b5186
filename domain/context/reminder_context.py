"""What a condition or a text function of a reminder may ask."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec

from ..errors import InvalidValueError
from ..text import plain_text
from .summary import ChainSummary
from .ui_message import UIMessage


class ReminderContext(msgspec.Struct, frozen=True, kw_only=True):
    """
    The message that is about to be saved, and the conversation that it is added to.

    Args:
        now_ms: The time of the save, in ms since the epoch.
        chain: The conversation before the message.
        usage: The token counts of the chat, from its metadata.
        message: The user message, without reminders.
        reply: The reply that a window such as `within_last_n` looks at, in place of the last assistant message.
    """

    now_ms: int
    chain: ChainSummary = ChainSummary()
    usage: Mapping[str, Any] | None = None
    message: UIMessage = {}
    reply: UIMessage | None = None

    @property
    def turn(self) -> int:
        """The number of the message among the real user messages; 1 is the first."""
        return self.chain.turn + 1

    @property
    def content(self) -> str:
        """The plain text of the message."""
        return plain_text(self.message)

    @property
    def elapsed_ms(self) -> int | None:
        """The time since the last real user message; None without one."""
        last = self.chain.last_message_at
        return None if last is None else self.now_ms - last

    @property
    def last_message(self) -> UIMessage | None:
        """The real user message before this one, as it is stored."""
        return self.chain.last_message

    @property
    def last_assistant_message(self) -> UIMessage | None:
        """The last message of the assistant; inside a window, the whole reply that it looks at."""
        return self.chain.last_assistant_message if self.reply is None else self.reply

    @property
    def total_tokens(self) -> int | float:
        """The tokens that the chat has used: `total_tokens` of its usage, or `totalTokens` as the AI SDK says; else 0."""
        usage = self.usage or {}
        count = usage.get("total_tokens", usage.get("totalTokens"))
        return count if isinstance(count, int | float) and not isinstance(count, bool) else 0

    @property
    def locale(self) -> Mapping[str, Any]:
        """The `locale` in the metadata of the message, or an empty object."""
        metadata = self.message.get("metadata")
        locale = cast("Mapping[str, Any]", metadata).get("locale") if isinstance(metadata, Mapping) else None
        return cast("Mapping[str, Any]", locale) if isinstance(locale, Mapping) else {}

    @property
    def time_zone(self) -> str | None:
        """The `time_zone` of the locale, or `timeZone` as browsers say; None if it has none."""
        name = self.locale.get("time_zone", self.locale.get("timeZone"))
        return name if isinstance(name, str) else None


def check_function(function: Any, what: str) -> Callable[[ReminderContext], Any]:
    """
    A function of a `ReminderContext`.

    Raises:
        InvalidValueError: It cannot be called, or it is asynchronous: what is decided at a save waits for nothing.
    """
    if not callable(function):
        msg = f"{what} must be a function of a ReminderContext, not {type(function).__name__}"
        raise InvalidValueError(msg)
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004 - it is looked at, not asked for
        msg = f"{what} must not be asynchronous; ask what it needs before, and pass a plain function"
        raise InvalidValueError(msg)
    return cast("Callable[[ReminderContext], Any]", function)


def ask(function: Callable[[ReminderContext], Any], context: ReminderContext) -> Any:
    """Call a function that users wrote. A coroutine is no answer: being an object, it would count as true."""
    answer = function(context)
    if inspect.iscoroutine(answer):
        answer.close()
        msg = "the function is asynchronous; it returned a coroutine"
        raise TypeError(msg)
    return answer
