"""Resources: conversations, branches, messages and checkpoints, each under its URI."""

from typing import Any, Final

from chatledger.domain.errors import ChatNotFoundError, CheckpointNotFoundError, InvalidValueError, MessageNotFoundError
from chatledger.domain.wire import encode_json, encode_plain

from ...ledger.ledger import Ledger
from .answers import Answer, Conversation, Room, ShownMessage, show_chat, show_message
from .reading import Branches, Transcript, list_branches, read_branch
from .uris import ResourceName

MIME_TYPE: Final = "application/json"
LISTED: Final = 50
MAX_MESSAGE_BYTES: Final = 1 << 20


class ConversationResource(Answer, frozen=True):
    """A conversation: its branches and checkpoints, and the newest messages of the active branch."""

    about: Branches
    newest: Transcript


class MessageResource(Answer, frozen=True):
    """A message with its whole text, and its data as they are stored."""

    message: ShownMessage
    data: Any = None


class CheckpointResource(Answer, frozen=True):
    """The message that a checkpoint names, with those before it, oldest first."""

    conversation: str
    name: str
    message: str
    messages: list[ShownMessage]


def list_resources(ledger: Ledger, after: str | None) -> tuple[list[Conversation], str | None]:
    """Return a page of conversations, the last changed first, and what the next page comes after; None for the last one."""
    chats = ledger.list_chats(limit=LISTED + 1, after=after)
    more = chats[LISTED - 1].id if len(chats) > LISTED else None
    return [show_chat(chat) for chat in chats[:LISTED]], more


def read_resource(ledger: Ledger, named: ResourceName) -> bytes:
    """
    Return what a URI names, as JSON.

    Raises:
        NotFoundError: There is no such thing, or not for this user.
        InvalidValueError: A message is too large to be sent as a whole.
    """
    return encode_json(_read(ledger, named))


def _read(ledger: Ledger, named: ResourceName) -> Answer:
    chat_id = named.chat_id
    if named.part is None:
        return ConversationResource(
            about=list_branches(ledger, conversation=chat_id), newest=read_branch(ledger, chat_id)
        )
    if named.part == "branches":
        return read_branch(ledger, chat_id, named.name, limit=100)
    if named.part == "messages":
        return _message(ledger, chat_id, named.name)
    return read_checkpoint(ledger, chat_id, named.name)


def _message(ledger: Ledger, chat_id: str, message_id: str) -> MessageResource:
    message = ledger.get_message(message_id)
    if message is None or message.chat_id != chat_id:
        raise MessageNotFoundError(message_id)
    if message.is_hidden:  # as in all that assistants read: what it says is not for them
        return MessageResource(message=show_message(message))
    size = len(encode_plain(message.data))
    if size > MAX_MESSAGE_BYTES:
        msg = f"message {message_id!r} has {size:,} bytes, more than the {MAX_MESSAGE_BYTES:,} that are sent as a whole"
        raise InvalidValueError(msg)
    return MessageResource(message=show_message(message), data=message.data)


def read_checkpoint(ledger: Ledger, chat_id: str, name: str) -> CheckpointResource:
    """
    Return a checkpoint with the newest messages up to it.

    Raises:
        ChatNotFoundError, CheckpointNotFoundError: It is not there.
    """
    if ledger.get_chat(chat_id) is None:
        raise ChatNotFoundError(chat_id)
    marked = ledger.get_checkpoint(chat_id, name)
    if marked is None:
        raise CheckpointNotFoundError(chat_id, name)
    chain = ledger.get_chain(marked.message_id, limit=100)
    return CheckpointResource(
        conversation=chat_id,
        name=name,
        message=marked.message_id,
        messages=Room().take_newest([(message, 1) for message in chain]),
    )
