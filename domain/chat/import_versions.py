"""
What an imported conversation becomes next to what is stored: the ids of its messages, and its messages that were changed.

A conversation that was continued in a new one shares its messages with it, but in a ledger an id belongs to one chat. The chat that has
the id keeps it; in every other chat the message gets the id of that chat and its own. What is stored decides, not the order of the
file, as exports list first what changed last: any order, in one file or in several, gives the same conversations.

Here messages never change. A changed one comes as a new version beside the stored one, under an id that follows from its
content, so that importing it again changes nothing; what came after it follows it, as versions of their own.
"""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final, Literal, get_args

import msgspec

from ..limits import MAX_ID_BYTES, check_choice
from ..packing import packable
from ..values import Message
from .decide_messages import check_message, is_same_message
from .interchange import ImportedChat, ImportedMessage, draft_of, with_message_ids
from .redaction import notes_of_copy
from .state import ChatState

OnChange = Literal["version", "skip", "refuse"]
"""The treatment of a message that is stored with other content: add it as a new version, leave the stored one, or refuse the chat."""

_CONTENT: Final = tuple(
    name for name in ImportedMessage.__struct_fields__ if name not in {"id", "annotation"}
)  # a skipped message keeps what was said of it where it comes from
_MARK: Final = "~"
_encode: Final = msgspec.msgpack.Encoder(order="deterministic").encode


class Settled(msgspec.Struct, frozen=True):
    """An imported chat that fits what is stored: the new ids of its changed messages, and the ids of those left as stored."""

    chat: ImportedChat
    new_ids: Mapping[str, str] = {}
    skipped: frozenset[str] = frozenset()


def settle_ids(state: ChatState, chat: ImportedChat) -> ImportedChat:
    """Return the chat with ids of its own for the messages whose ids another chat has: `chat:id`, or a digest of it where that is too long."""
    state.look_up(message.id for message in chat.messages)
    own: dict[str, str] = {}
    for message in chat.messages:
        if not state.has_message(message.id):
            own_id = id_in_chat(chat.id, message.id)
            # Imported while another chat had the id, it stays the same message also when that chat is gone.
            if state.is_elsewhere(message.id) or (state.record is not None and state.has_message(own_id)):
                own[message.id] = own_id
    return with_message_ids(chat, own) if own else chat


def id_in_chat(chat_id: str, message_id: str) -> str:
    """Return the id that a message has in this chat where another chat has its own id."""
    own_id = f"{chat_id}:{message_id}"
    return own_id if len(own_id.encode()) <= MAX_ID_BYTES else blake2b(own_id.encode(), digest_size=16).hexdigest()


def settle_changes(state: ChatState, chat: ImportedChat, on_change: OnChange) -> Settled:
    """
    Return the chat with its changed messages as new versions, or as they are stored.

    A message is changed when it is stored with another name, type, attribution, data or parent.

    Raises:
        InvalidValueError: `on_change` is none of `OnChange`, or a value of a changed message breaks a rule.
    """
    check_choice(on_change, get_args(OnChange), "on_change")
    if state.record is None:
        return Settled(chat)
    state.look_up(message.id for message in chat.messages)
    chat = _without_erased(state, chat)
    if on_change == "refuse":
        return Settled(chat)
    new_ids: dict[str, str] = {}
    as_stored: dict[str, ImportedMessage] = {}
    for imported in chat.messages:
        stored = state.message(imported.id)
        if stored is None:
            continue
        # Under the new version of its parent, and answering that of its question: parents come first, so these are known by now.
        parent_id, reply_to = (
            None if message_id is None else new_ids.get(message_id, message_id)
            for message_id in (imported.parent_id, imported.reply_to)
        )
        merged_from = tuple(new_ids.get(parent, parent) for parent in imported.merged_from)
        draft = draft_of(
            msgspec.structs.replace(imported, parent_id=parent_id, reply_to=reply_to, merged_from=merged_from)
        )
        message = check_message(draft, 0)
        if stored.parent_id == message.parent_id and is_same_message(stored, message):
            continue
        if on_change == "version":
            new_ids[imported.id] = _version_id(imported.id, message)
        else:
            content: dict[str, Any] = {name: getattr(stored, name) for name in _CONTENT}
            as_stored[imported.id] = msgspec.structs.replace(imported, **content)
    if as_stored:
        messages = tuple(as_stored.get(message.id, message) for message in chat.messages)
        chat = msgspec.structs.replace(chat, messages=messages)
    return Settled(with_message_ids(chat, new_ids) if new_ids else chat, new_ids, frozenset(as_stored))


def _without_erased(state: ChatState, chat: ImportedChat) -> ImportedChat:
    """
    Return the chat without what was erased of stored messages: senders are called as they are now, and content is what stands in its place.

    Else an export of before would bring it back, in new versions of messages that come after a changed one.
    """
    now: dict[str, ImportedMessage] = {}
    for message in chat.messages:
        stored = state.message(message.id)
        if stored is None:
            continue
        changes: dict[str, Any] = {}
        if stored.sender_id != message.sender_id and state.has_pseudonym(message.id):
            changes["sender_id"] = stored.sender_id
        if stored.redacted is not None:
            changes |= {"data": stored.data, "form": stored.form, "notes": notes_of_copy(stored)}
        if changes:
            now[message.id] = msgspec.structs.replace(message, **changes)
    if not now:
        return chat
    return msgspec.structs.replace(chat, messages=tuple(now.get(message.id, message) for message in chat.messages))


def original_id(state: ChatState, message_id: str) -> str:
    """Return the id that a version of a message had at its source; of any other message its own."""
    original, _, _ = message_id.rpartition(_MARK)
    message = state.message(message_id) if original else None
    if message is None:
        return message_id
    return original if message_id == _version_id(original, message) else message_id


def _version_id(original: str, message: Message) -> str:
    content = (message.parent_id, message.name, message.type, message.sender_id, message.agent_id, message.reply_to)
    digest = blake2b(
        _encode([original, (*content, *message.merged_from), packable(message.data), message.form, message.notes]),
        digest_size=16,
    ).hexdigest()
    version_id = f"{original}{_MARK}{digest[:12]}"
    return version_id if len(version_id.encode()) <= MAX_ID_BYTES else digest
