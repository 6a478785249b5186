"""Conversations on their way between two ledgers of which the other has the beginning: the lines of an export, and whom its first messages follow."""

from collections.abc import Mapping
from io import BytesIO

import msgspec

from chatledger.domain.chat.import_tree import Reporter
from chatledger.domain.chat.interchange import ImportedChat
from chatledger.domain.errors import ChainIntegrityError, InvalidValueError, UnsupportedFormatError
from chatledger.domain.wire import Value

from .jsonl import read_jsonl, write_chats


class ChatTail(Value, frozen=True, kw_only=True):
    """
    A conversation, whole or without messages that its reader has.

    Args:
        lines: The conversation as the lines of an export. A message whose parent is left out has no parent there.
        parents: The parents of those messages, by message id: `parent_id`, empty for none, then `merged_from`.
    """

    lines: str
    parents: Mapping[str, tuple[str, ...]]


def written_tail(chat: ImportedChat) -> ChatTail:
    """Return a conversation as it travels. Raises `InvalidValueError` or `ChainIntegrityError` where it could not be read back."""
    here: set[str] = set()
    parents: dict[str, tuple[str, ...]] = {}
    for message in chat.messages:
        above = (message.parent_id or "", *message.merged_from)
        if not here.issuperset(filter(None, above)):
            parents[message.id] = above
        here.add(message.id)
    stream = BytesIO()
    write_chats(stream, [_with_parents(chat, dict.fromkeys(parents, ("",)))])
    return ChatTail(lines=stream.getvalue().decode(), parents=parents)


def read_tail(tail: ChatTail, source: str) -> ImportedChat:
    """Return the conversation that travelled from `source`. Raises `InvalidValueError` where it is not one whole conversation."""
    report = Reporter(source, strict=True, on_problem=lambda _: None)
    try:
        chats = list(read_jsonl(BytesIO(tail.lines.encode()), report))
    except (ChainIntegrityError, UnsupportedFormatError) as error:
        raise InvalidValueError(str(error)) from error
    if len(chats) != 1 or not all(tail.parents.values()):
        msg = (
            f"{source} has {len(chats):,} conversations where one is to be, or a message without a place for its parent"
        )
        raise InvalidValueError(msg)
    return _with_parents(chats[0], tail.parents)


def _with_parents(chat: ImportedChat, parents: Mapping[str, tuple[str, ...]]) -> ImportedChat:
    messages = tuple(
        msgspec.structs.replace(message, parent_id=parents[message.id][0] or None, merged_from=parents[message.id][1:])
        if message.id in parents
        else message
        for message in chat.messages
    )
    return msgspec.structs.replace(chat, messages=messages)
