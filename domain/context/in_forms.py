"""Messages as the APIs of models take them: of a chat, or as a program has them in hand."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeGuard, cast

from msgspec import UNSET

from ..errors import InvalidValueError
from ..forms.detect import form_of
from ..forms.items import Source
from ..forms.reading import role_of
from ..forms.translate import OpenCalls, StrayResults, translate
from ..values import Message, NewMessage
from .fragments import Fragment, as_fragment, is_fragment
from .messages import USER, draft_of


class MessageInHand(NamedTuple):
    """A message that need not be stored: its id, empty if it has none, its name, the form of its data, and these."""

    id: str
    name: str
    form: str | None
    data: Any


def chain_of(messages: Any) -> list[Source]:
    """
    Return messages with their forms: one, or several in order.

    Args:
        messages: Stored or new messages, message fragments, UIMessages, messages of an API, pairs of name and data, or texts,
            which are from the user.

    Raises:
        InvalidValueError: These are no messages.
        MissingCodecError: A fragment that is still lazy, or has no codec.
    """
    if isinstance(messages, str | Mapping | Message | MessageInHand | NewMessage | Fragment):
        messages = [messages]
    if isinstance(messages, bytes) or not isinstance(messages, Iterable):
        msg = f"expected messages, not {type(messages).__name__}"
        raise InvalidValueError(msg)
    return [_with_form(value) for value in cast("Iterable[Any]", messages)]


def _with_form(value: Any) -> Source:
    if isinstance(value, Message) and value.redacted is not None:
        return MessageInHand(value.id, value.name, value.form, value.shown)
    if isinstance(value, Message | MessageInHand):
        return value
    if isinstance(value, str):
        return MessageInHand("", USER, None, value)
    if isinstance(value, NewMessage):
        form = form_of(value.data) if value.form is UNSET else value.form
        return MessageInHand(value.id or "", value.name, form, value.data)
    if _is_pair(value):
        return MessageInHand("", value[0], form_of(value[1]), value[1])
    if is_fragment(value):
        return _with_form(draft_of(as_fragment(value)))
    form = form_of(value)
    if form is not None:
        own_id: Any = cast("Mapping[str, Any]", value).get("id")
        return MessageInHand(own_id if isinstance(own_id, str) else "", role_of(form, value), form, value)
    msg = f"expected a message, a UIMessage, a pair of name and data, or text, not {type(value).__name__}"
    raise InvalidValueError(msg)


def _is_pair(value: Any) -> TypeGuard[tuple[str, Any]]:
    if not isinstance(value, tuple):
        return False
    pair = cast("tuple[Any, ...]", value)
    return len(pair) == 2 and isinstance(pair[0], str)


def to_openai(
    messages: Any, *, open_calls: OpenCalls = "answer", stray_results: StrayResults = "drop"
) -> list[dict[str, Any]]:
    """
    Return messages as the OpenAI Chat Completions API takes them. See `translate`, which also tells what is left out.

    Args:
        messages: A chain, oldest first: what a ledger gave, fragments, UIMessages, messages of another API, pairs of name and
            data, or text from the user.
        open_calls: As for `translate`.
        stray_results: As for `translate`.

    Raises:
        InvalidValueError: One of them is no message, or its form is not known.
    """
    return translate(chain_of(messages), "openai", open_calls=open_calls, stray_results=stray_results).messages


def to_responses(
    messages: Any, *, open_calls: OpenCalls = "answer", stray_results: StrayResults = "drop"
) -> list[dict[str, Any]]:
    """Return messages as input items for the OpenAI Responses API. See `to_openai`."""
    return translate(chain_of(messages), "responses", open_calls=open_calls, stray_results=stray_results).messages


def to_anthropic(
    messages: Any, *, open_calls: OpenCalls = "answer", stray_results: StrayResults = "drop"
) -> list[dict[str, Any]]:
    """Return messages as the Anthropic API takes them: without the fields that only its answers have. See `to_openai`."""
    return translate(chain_of(messages), "anthropic", open_calls=open_calls, stray_results=stray_results).messages


def to_google(
    messages: Any, *, open_calls: OpenCalls = "answer", stray_results: StrayResults = "drop"
) -> list[dict[str, Any]]:
    """Return messages as contents for Google's Gemini API. See `to_openai`."""
    return translate(chain_of(messages), "google", open_calls=open_calls, stray_results=stray_results).messages
