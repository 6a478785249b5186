"""Making new messages: the helpers that give them their ids."""

import uuid
from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from chatledger.domain.context.fragments import Fragment
from chatledger.domain.context.messages import (
    ASSISTANT,
    USER,
    StoredCodec,
    attribution,
    draft_of,
    fragment_of,
    from_ui_message,
    is_ui_message,
    message_fragment,
    ui_message,
)
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.values import Message, NewMessage


def user(
    content: str | Mapping[str, Any],
    *,
    id: str | None = None,  # noqa: A002 - the field's name everywhere else
    sender_id: str | None = None,
    reply_to: str | None = None,
) -> Fragment:
    """
    Return a new message from the user, for `ContextEngine.set`, `Ledger.append` and `Ledger.add_messages`.

    Its id is made here, so appending the same object again, because an answer was lost, does nothing.

    Args:
        content: Text, which becomes a UIMessage with one text part; or a UIMessage, whose parts are copied.
        id: Its id; that of the UIMessage, else a new one, when None. The id of a stored message makes it an edit of that.
        sender_id: The human it comes from.
        reply_to: Another message of the same chat.
    """
    return _message(USER, content, id, sender_id=sender_id, reply_to=reply_to)


def assistant(
    content: str | Mapping[str, Any],
    id: str | None = None,  # noqa: A002 - as above
    *,
    agent_id: str | None = None,
    reply_to: str | None = None,
) -> Fragment:
    """Return a new message from the assistant; `agent_id` names the agent it comes from. See `user`."""
    return _message(ASSISTANT, content, id, agent_id=agent_id, reply_to=reply_to)


def assistant_text(
    text: str,
    id: str | None = None,  # noqa: A002 - as above
    *,
    agent_id: str | None = None,
    reply_to: str | None = None,
) -> Fragment:
    """Return a new message from the assistant with one text part. See `user`."""
    _check_text(text)
    return assistant(text, id, agent_id=agent_id, reply_to=reply_to)


def message(content: str | Mapping[str, Any] | Message | NewMessage) -> Fragment:
    """
    Return the fragment of a message: of a UIMessage, named by its role, of text, which is a user message, or of a `Message`
    that was read from a ledger.
    """
    if isinstance(content, NewMessage) and content.id is None:
        content = msgspec.structs.replace(content, id=new_id())
    if isinstance(content, Message | NewMessage):
        return fragment_of(content)
    role = cast("Mapping[str, Any]", content)["role"] if is_ui_message(content) else USER
    return _message(role, content, None)


def new_id() -> str:
    """Return a new random id."""
    return str(uuid.uuid4())


def as_drafts(messages: Iterable[NewMessage | Fragment]) -> list[NewMessage]:
    """The messages to store, with new ids where they have none."""
    if isinstance(messages, NewMessage | Fragment | str | Mapping) or not isinstance(messages, Iterable):
        msg = "messages must be a list of messages; chatledger.user(text) makes one from text"
        raise InvalidValueError(msg)
    # What is neither passes: it is refused where it is decided on.
    drafts = [
        draft_of(value) if isinstance(value, Fragment) and value.type == "message" else value for value in messages
    ]
    return [
        cast("NewMessage", msgspec.structs.replace(draft, id=new_id()) if getattr(draft, "id", "") is None else draft)
        for draft in drafts
    ]


def _message(role: str, content: Any, message_id: str | None, **given: Any) -> Fragment:
    metadata = attribution(**given)
    if isinstance(content, str):
        message_id = new_id() if message_id is None else message_id
        return message_fragment(role, StoredCodec(ui_message(role, content, message_id)), message_id, metadata=metadata)
    own = cast("Mapping[str, Any]", content).get("id") if is_ui_message(content) else None
    message_id = own if message_id is None else message_id
    return from_ui_message(content, new_id() if message_id is None else message_id, role=role, metadata=metadata)


def _check_text(text: Any) -> None:
    if not isinstance(text, str):
        msg = f"the text of a message must be text, not {type(text).__name__}; assistant() also takes a UIMessage"
        raise InvalidValueError(msg)
