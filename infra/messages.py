"""Making new messages."""

import uuid
from collections.abc import Iterable

import msgspec

from chatledger.domain.errors import InvalidValueError
from chatledger.domain.values import NewMessage


def user(text: str, *, id: str | None = None) -> NewMessage:  # noqa: A002 - the field's name everywhere else
    """
    Return a new message from the user, as a UIMessage with one text part.

    Its id is made here, so appending the same object again, because an answer was lost, does nothing.
    """
    return _ui_message("user", text, id)


def assistant(text: str, *, id: str | None = None) -> NewMessage:  # noqa: A002 - as above
    """Return a new message from the assistant, as a UIMessage with one text part. See `user`."""
    return _ui_message("assistant", text, id)


def new_id() -> str:
    """Return a new random id."""
    return str(uuid.uuid4())


def with_ids(messages: Iterable[NewMessage]) -> list[NewMessage]:
    """The same messages, with new ids where they have none."""
    if isinstance(messages, NewMessage | str) or not isinstance(messages, Iterable):
        msg = "messages must be a list of NewMessage; chatledger.user(text) makes one from text"
        raise InvalidValueError(msg)
    return [_with_id(message) for message in messages]


def _with_id(message: NewMessage) -> NewMessage:
    # What is no NewMessage passes: it is refused where it is decided on.
    return msgspec.structs.replace(message, id=new_id()) if getattr(message, "id", "") is None else message


def _ui_message(role: str, text: str, message_id: str | None) -> NewMessage:
    if not isinstance(text, str):
        msg = f"the text of a message must be text, not {type(text).__name__}; NewMessage takes any JSON value"
        raise InvalidValueError(msg)
    message_id = new_id() if message_id is None else message_id
    return NewMessage(role, {"id": message_id, "role": role, "parts": [{"type": "text", "text": text}]}, id=message_id)
