"""
The history of a chat as LlamaIndex counts it, each message active or archived.

A message is archived by its annotation: `{"llamaindex": {"status": "archived"}}`, with `"before": true` where all that come before
it on the chain are archived too. So archiving the oldest messages is one annotation, and reading the active ones ends there.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.storage.chat_store.base_db import MessageStatus

from chatledger.domain.chat.state import ChatState
from chatledger.domain.context.messages import object_at
from chatledger.domain.values import Message
from chatledger.projections.chat.reader import IndexedChat

from ....ledger.port import LedgerStore
from ....store.commands import ChatsToRead
from ..histories import standing
from .messages import FORM, messages_of

_FIRST_PAGE: Final = 32
ARCHIVED: Final[Mapping[str, Any]] = {"status": MessageStatus.ARCHIVED.value}
ARCHIVED_ALL: Final[Mapping[str, Any]] = {**ARCHIVED, "before": True}


class Entry(NamedTuple):
    """A message of the history: the message of the chain that it comes from, and its place among those that come from that."""

    base: Message
    stands: Message
    place: int
    is_last: bool
    message: ChatMessage
    status: MessageStatus


def read(store: LedgerStore, chat_id: str, status: MessageStatus | None) -> list[Entry] | None:
    """
    Return the messages of a status on the active branch, oldest first, all when None; None when there is no such chat.

    Source: the LMDB index. Active messages cost O(active messages), however many are archived.
    """
    with store.snapshot(ChatsToRead(chat_id)) as snapshot:
        chat = snapshot.chat(chat_id)
        return None if chat.record is None else entries(chat, status)


def entries(chat: IndexedChat, status: MessageStatus | None = None) -> list[Entry]:
    """Return the messages of a status on the active branch of a chat that is there, all when None."""
    branch = None if chat.record is None else chat.branch(chat.record.active_branch)
    if branch is None or branch.head_message_id is None:
        return []
    place = chat.place(branch.head_message_id)
    assert place is not None, "a head is stored"
    taken = branch.message_count
    if status is MessageStatus.ACTIVE:
        taken = min(_FIRST_PAGE, taken)
    while True:
        chain = chat.chains.chain(place, taken)
        if taken == branch.message_count or any(map(_ends_archive, chain)):
            break
        taken = min(2 * taken, branch.message_count)
    return [entry for entry in _entries(chat, chain) if status in {None, entry.status}]


def newest(chat: IndexedChat) -> list[Entry]:
    """Return what the newest message that counts stands for; none in an empty history. Mostly costs O(1)."""
    branch = None if chat.record is None else chat.branch(chat.record.active_branch)
    if branch is None or branch.head_message_id is None:
        return []
    place = chat.place(branch.head_message_id)
    assert place is not None, "a head is stored"
    taken = 1
    while True:
        found = _entries(chat, chat.chains.chain(place, taken))
        if found or taken == branch.message_count:
            return [entry for entry in found if entry.base.id == found[-1].base.id]
        taken = min(2 * taken, branch.message_count)


def _entries(state: ChatState, chain: Sequence[Message]) -> list[Entry]:
    ends = [number for number, message in enumerate(chain) if _ends_archive(message)]
    archived = {message.id for message in chain[: ends[-1] + 1]} if ends else set[str]()
    found: list[Entry] = []
    for base, stands in standing(state, chain):
        is_archived = base.id in archived or bool(_marks(base))
        status = MessageStatus.ARCHIVED if is_archived else MessageStatus.ACTIVE
        made = messages_of(stands)
        found += [
            Entry(base, stands, place, place == len(made) - 1, message, status) for place, message in enumerate(made)
        ]
    return found


def _marks(message: Message) -> Mapping[str, Any]:
    return {} if message.annotation is None else object_at(message.annotation.metadata, FORM)


def _ends_archive(message: Message) -> bool:
    return _marks(message).get("before") is True
