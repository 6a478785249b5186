"""Message fragments on their way into the conversation."""

from collections.abc import Iterable
from typing import Any, Final

from ..errors import InvalidValueError
from ..values import Message, NewMessage
from .fragment import Fragment, as_fragment, stored_form
from .ui_message import StoredCodec, message_fragment

ATTRIBUTION: Final[tuple[str, ...]] = ("sender_id", "agent_id", "reply_to", "created_at")
"""What the metadata of a message fragment may say about where it comes from; see `NewMessage`."""

_TYPE: Final = "type"
"""There too, of messages that are stored under another type than `message`."""


def attribution(**given: Any) -> dict[str, Any]:
    """The metadata of a message fragment that say where it comes from; what is None is left out."""
    return {name: value for name, value in given.items() if value is not None}


def draft_of(fragment: Fragment) -> NewMessage:
    """
    The message that a fragment is stored as.

    Raises:
        MissingCodecError: The fragment has no codec, or is still lazy.
    """
    given: dict[str, Any] = {_TYPE: fragment.type}
    given |= {name: fragment.metadata[name] for name in (*ATTRIBUTION, _TYPE) if name in fragment.metadata}
    return NewMessage(fragment.name, stored_form(fragment), id=fragment.id, **given)


def fragment_of(value: NewMessage | Message) -> Fragment:
    """The fragment of a message, with its id and where it comes from."""
    if value.id is None:
        msg = f"message {value.name!r} has no id; chatledger.user(text) makes messages that have one"
        raise InvalidValueError(msg)
    given = attribution(sender_id=value.sender_id, agent_id=value.agent_id, reply_to=value.reply_to)
    if value.type != "message":
        given[_TYPE] = value.type
    return message_fragment(value.name, StoredCodec(value.data), value.id, metadata=given)


def as_fragments(values: Iterable[Any]) -> list[Fragment]:
    """Fragments, mappings of their shape, and messages, as fragments."""
    return [fragment_of(value) if isinstance(value, NewMessage | Message) else as_fragment(value) for value in values]
