"""Making new messages: the helpers that give them their ids."""

import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

import msgspec

from chatledger.domain.context.fragments import Fragment, is_fragment
from chatledger.domain.context.messages import (
    ASSISTANT,
    USER,
    StoredCodec,
    draft_of,
    fragment_of,
    from_ui_message,
    is_ui_message,
    message_fragment,
    ui_message,
)
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.forms.detect import form_of
from chatledger.domain.forms.plain import Dumpable, object_at, plain_object
from chatledger.domain.forms.reading import name_of
from chatledger.domain.limits import check_id
from chatledger.domain.values import UI, Message, NewMessage

from ..store.redactor import Redactor


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
        metadata: An object to keep beside the message, as its `notes`; `Message.metadata` gives it back.
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
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # users'
        msg = f"the text of a message must be text, not {type(text).__name__}; assistant() also takes a UIMessage"
        raise InvalidValueError(msg)
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
    return _message(role, text, message_id)


def new_id() -> str:
    return str(uuid.uuid4())


_LANGCHAIN: Final = "langchain"
MessageLike = NewMessage | Fragment | Mapping[str, Any] | Dumpable
"""A message to store: one of ours, or a dict or an object of an SDK, as the APIs of OpenAI, Anthropic and Google have them."""

Messages = MessageLike | str | Iterable[MessageLike | str]
"""Messages to store: one, or several in order. Text is from the user, and stored as it is."""


def as_drafts(messages: Messages, *, form: str | None = None, redactor: Redactor | None = None) -> list[NewMessage]:
    """
    The messages to store.

    `form`: the form of all mappings and objects of SDKs among them; told by their shape when None. `redactor`: takes
    secrets out of them; see `StorePort.redactor`.

    Raises:
        InvalidValueError: One of them is no message, or its shape does not tell its form.
    """
    values: Any = messages
    if not isinstance(values, list) and isinstance(values, str | NewMessage | Fragment | Mapping | Dumpable):
        values = [values]
    if isinstance(values, bytes) or not isinstance(values, Iterable):  # bytes are an iterable of numbers
        msg = f"expected messages, not {type(values).__name__}; chatledger.user(text) makes one from text"
        raise InvalidValueError(msg)
    drafts = [
        NewMessage(USER, value, None, id=new_id()) if isinstance(value, str) else as_draft(value, form=form)
        for value in cast("Iterable[Any]", values)
    ]
    return drafts if redactor is None else list(map(redactor.message, drafts))


def as_draft(value: MessageLike, *, form: str | None = None, default_id: str | None = None) -> NewMessage:
    """
    One message to store.

    `form`: its form, if it is a mapping or an object of an SDK; told by its shape when None. `default_id`: its id if it has
    none; None for a new random one.

    Raises:
        InvalidValueError: It is no message, or its shape does not tell its form.
    """
    if isinstance(value, NewMessage):
        if value.id is not None:
            return value
        return msgspec.structs.replace(value, id=new_id() if default_id is None else default_id)
    fragment: Any = value if isinstance(value, Fragment) else adopted(value, form)
    if not isinstance(fragment, Fragment):
        msg = (
            f"expected a message, not {type(value).__name__}: text is made one by chatledger.user(text) or assistant(text), "
            "other data by NewMessage(name, data)"
        )
        raise InvalidValueError(msg)
    if fragment.type != "message":
        return cast("NewMessage", fragment)  # refused where it is decided on
    draft = draft_of(fragment)
    return draft if default_id is None or not fragment.has_new_id else msgspec.structs.replace(draft, id=default_id)


def _is_of_langchain(value: Any) -> bool:
    return any(kind.__module__ == "langchain_core.messages.base" for kind in type(value).__mro__)


def adopted(value: Any, form: str | None = None) -> Any:
    """
    The fragment of a message that another library made, or that is written as it would be; anything else as it is.

    `form`: its form, if it is a mapping or an object of an SDK; told by its shape when None.

    Raises:
        InvalidValueError: It is no message of that form, or its shape does not tell its form.
    """
    if isinstance(value, NewMessage | Message) or is_fragment(value) or not isinstance(value, Mapping | Dumpable):
        return value
    what = "a message" if form is None else f"a message of the form {form!r}"
    if form in (None, _LANGCHAIN) and _is_of_langchain(value):
        from .langchain import value_of_langchain

        value, form = value_of_langchain(value), _LANGCHAIN
    source = cast("Any", value)
    if form is None and isinstance(source, Mapping):
        fields = cast("Mapping[str, Any]", source)
        # Written as a fragment: messages of SDKs may have a `name` too, but neither of the other two.
        if "name" in fields and not {"data", "codec"}.isdisjoint(fields):
            return fields
    data = plain_object(source, what)
    form = form_of(data) if form is None else check_id(form, "form")
    if form is None:
        msg = (
            f"this {type(cast('object', source)).__name__} is no message that is known by its shape; say its form, as in "
            'append(chat, message, form="openai"), or give NewMessage(name, data)'
        )
        raise InvalidValueError(msg)
    own_id: Any = data.get("id") if form == UI else object_at(data, "data").get("id") if form == _LANGCHAIN else None
    # Whether the id was made here is kept: a live stream commits such a message under the id that its readers were given, or a
    # browser that had read the stream would save a second version of the answer.
    has_new_id = not isinstance(own_id, str) or not own_id
    message_id = new_id() if has_new_id else own_id
    return message_fragment(name_of(data, form), StoredCodec(data, form), message_id, has_new_id=has_new_id)


def _message(
    role: str, content: Any, message_id: str | None, metadata: Mapping[str, Any] | None = None, **speaker: Any
) -> Fragment:
    origin = {name: value for name, value in speaker.items() if value is not None}
    notes = None if metadata is None else plain_object(metadata, "metadata")
    if message_id is None and not isinstance(content, str) and is_ui_message(content):
        message_id = cast("Mapping[str, Any]", content).get("id")
    has_new_id = message_id is None
    message_id = new_id() if message_id is None else message_id
    if isinstance(content, str):
        codec = StoredCodec(ui_message(role, content, message_id), UI, notes)
        return message_fragment(role, codec, message_id, metadata=origin, has_new_id=has_new_id)
    return from_ui_message(content, message_id, role=role, notes=notes, metadata=origin, has_new_id=has_new_id)
