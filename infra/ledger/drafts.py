"""Making new messages: the helpers that give them their ids."""

import uuid
from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from chatledger.domain.context.formats.plain import Dumpable
from chatledger.domain.context.formats.stored import of_an_api
from chatledger.domain.context.fragments import Fragment, is_fragment
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
    with_metadata,
)
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.values import Message, NewMessage


def user(
    content: str | Mapping[str, Any],
    *,
    id: str | None = None,  # noqa: A002 - the field's name everywhere else
    sender_id: str | None = None,
    reply_to: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Fragment:
    """
    Return a new message from the user, for `ContextEngine.set`, `Ledger.append` and `Ledger.add_messages`.

    Its id is made here, so appending the same object again, because an answer was lost, does nothing.

    Args:
        content: Text, which becomes a UIMessage with one text part; or a UIMessage, whose parts are copied.
        id: Its id; that of the UIMessage, else a new one, when None. The id of a stored message makes it an edit of that.
        sender_id: The human it comes from.
        reply_to: Another message of the same chat.
        metadata: An object for the `metadata` of the UIMessage, beside what is there; `Message.metadata` gives them back.
    """
    return _message(USER, content, id, metadata, sender_id=sender_id, reply_to=reply_to)


def assistant(
    content: str | Mapping[str, Any],
    id: str | None = None,  # noqa: A002 - as above
    *,
    agent_id: str | None = None,
    reply_to: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Fragment:
    """Return a new message from the assistant; `agent_id` names the agent it comes from. See `user`."""
    return _message(ASSISTANT, content, id, metadata, agent_id=agent_id, reply_to=reply_to)


def assistant_text(
    text: str,
    id: str | None = None,  # noqa: A002 - as above
    *,
    agent_id: str | None = None,
    reply_to: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Fragment:
    """Return a new message from the assistant with one text part. See `user`."""
    _check_text(text)
    return assistant(text, id, agent_id=agent_id, reply_to=reply_to, metadata=metadata)


def message(content: str | Mapping[str, Any] | Message | NewMessage) -> Fragment:
    """
    Return the fragment of a message: of a UIMessage, named by its role, of text, which is a user message, or of a `Message`
    that was read from a ledger.
    """
    if isinstance(content, NewMessage) and content.id is None:
        fragment = fragment_of(msgspec.structs.replace(content, id=new_id()))
        return msgspec.structs.replace(fragment, has_new_id=True)
    if isinstance(content, Message | NewMessage):
        return fragment_of(content)
    role = cast("Mapping[str, Any]", content)["role"] if is_ui_message(content) else USER
    return _message(role, content, None)


def text_message(role: str, text: str, message_id: str) -> Fragment:
    """Return a message of a role with one text part, under that id."""
    return _message(role, text, message_id)


def new_id() -> str:
    """Return a new random id."""
    return str(uuid.uuid4())


MessageLike = NewMessage | Fragment | Mapping[str, Any] | Dumpable
"""A message to store: one of ours, or a dict or an object of an SDK, as the APIs of OpenAI, Anthropic and Google have them."""

Messages = MessageLike | Iterable[MessageLike]
"""Messages to store: one, or several in order."""


def as_drafts(messages: Messages, *, default_id: str | None = None) -> list[NewMessage]:
    """
    The messages to store.

    Args:
        messages: The messages.
        default_id: The id for a message that has none; None for a new random one each.

    Raises:
        InvalidValueError: One of them is no message.
    """
    given: Any = messages
    if not isinstance(given, list) and isinstance(given, NewMessage | Fragment | Mapping | Dumpable):
        given = [given]
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        msg = f"expected messages, not {type(given).__name__}; chatledger.user(text) makes one from text"
        raise InvalidValueError(msg)
    return [_draft(value, default_id) for value in cast("Iterable[Any]", given)]


def _draft(value: Any, default_id: str | None) -> NewMessage:
    if isinstance(value, Fragment) and value.type != "message":
        return cast("NewMessage", value)  # refused where it is decided on
    if not isinstance(value, NewMessage):
        fragment = _adopted(value)
        draft = draft_of(fragment)
        if default_id is None or not fragment.has_new_id:
            return draft
        data = {**draft.data, "id": default_id} if is_ui_message(draft.data) else draft.data
        return msgspec.structs.replace(draft, id=default_id, data=data)
    if value.id is not None and value.metadata is None:
        return value
    message_id = (new_id() if default_id is None else default_id) if value.id is None else value.id
    data = with_metadata(value.data, value.metadata, role=value.name, message_id=message_id)
    return msgspec.structs.replace(value, id=message_id, data=data, metadata=None)


def adopted(value: Any) -> Any:
    """The fragment of a message that another library made, or that is written as it would be; anything else as it is."""
    if isinstance(value, NewMessage | Message) or is_fragment(value) or not isinstance(value, Mapping | Dumpable):
        return value
    plain: Any = cast("Any", value)
    if isinstance(plain, Dumpable):
        plain = cast("Any", plain.model_dump(mode="json", exclude_unset=True))
    message_id = new_id()
    stored = of_an_api(plain, message_id)
    if stored is not None:
        fragment = message_fragment(stored["role"], StoredCodec(stored), message_id)
        return msgspec.structs.replace(fragment, has_new_id=True)
    if is_ui_message(plain):
        return message(plain)
    return cast("Any", value)


def _adopted(value: Any) -> Fragment:
    found = adopted(value)
    if isinstance(found, Fragment):
        return found
    msg = (
        f"expected a message, not {type(value).__name__}: text is made one by chatledger.user(text) or assistant(text), other "
        f"data by NewMessage(name, data), one of LangChain by chatledger.codecs.langchain_message(message); a dict needs a `role`, "
        f"and `content` or `parts`"
    )
    raise InvalidValueError(msg)


def _message(
    role: str, content: Any, message_id: str | None, metadata: Mapping[str, Any] | None = None, **given: Any
) -> Fragment:
    said = attribution(**given)
    if message_id is None and is_ui_message(content):
        message_id = cast("Mapping[str, Any]", content).get("id")
    has_new_id = message_id is None
    message_id = new_id() if message_id is None else message_id
    if isinstance(content, str):
        data = ui_message(role, content, message_id)
        data = with_metadata(data, metadata, role=role, message_id=message_id)
        fragment = message_fragment(role, StoredCodec(data), message_id, metadata=said)
    else:
        if is_ui_message(content):
            content = with_metadata(content, metadata, role=role, message_id="")
        fragment = from_ui_message(content, message_id, role=role, metadata=said)
    return msgspec.structs.replace(fragment, has_new_id=has_new_id)


def _check_text(text: Any) -> None:
    if not isinstance(text, str):
        msg = f"the text of a message must be text, not {type(text).__name__}; assistant() also takes a UIMessage"
        raise InvalidValueError(msg)
