"""
Items of a session: one item of the Responses API is one message, stored as it is.

Messages that something else wrote may stand for several items, such as what was said and the calls that followed, or for none.
Models get neither hidden nor replaced messages, so items leave them out too.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from chatledger.domain.chat.annotations import for_model
from chatledger.domain.chat.state import ChatState
from chatledger.domain.context.formats.message_format import RESPONSES
from chatledger.domain.context.formats.plain import plain_object
from chatledger.domain.context.formats.responses import ITEM, ui_of_item
from chatledger.domain.context.formats.stored import told
from chatledger.domain.context.messages import ASSISTANT
from chatledger.domain.values import UI, Message, NewMessage
from chatledger.projections.chat.chains import Place
from chatledger.projections.chat.reader import BranchRow, IndexedChat

from ....ledger.drafts import new_id
from ....ledger.messages import branch_at
from ....ledger.port import LedgerStore
from ....store.commands import ChatsToRead
from ..histories import Draft

NO_ID: Final = "__fake_id__"
"""The id that the SDK gives to items of models whose API has no ids; all of them have the same."""


class SessionItem(NamedTuple):
    """An item, the message of the chain that it stands for, and its place among the items of that message."""

    message: Message
    place: int
    item: dict[str, Any]


def draft_of_item(item: Any, chat_id: str) -> Draft:
    """
    Return the message to store for an item; an item with an id of its own makes the id of the message.

    Raises:
        InvalidValueError: It is no object, or there is something in it that JSON does not know.
    """
    fields = plain_object(item, "an item of a session")
    own = fields.get("id")
    has_own_id = isinstance(own, str) and own not in {"", NO_ID}
    message_id = f"{chat_id}:{own if has_own_id else new_id()}"
    return Draft(_message_of(fields, message_id), has_own_id)


def _message_of(fields: Mapping[str, Any], message_id: str) -> NewMessage:
    if isinstance(fields.get("type"), str) or "role" in fields:
        return NewMessage(ui_of_item(fields, message_id)["role"], dict(fields), "responses", id=message_id)
    # The SDK keeps whatever it is given.
    return NewMessage(
        ASSISTANT, {"role": ASSISTANT, "parts": [{"type": ITEM, "data": dict(fields)}]}, UI, id=message_id
    )


def copies_of(items: Iterable[Any], unique_id: str) -> list[NewMessage]:
    """Return messages for items under new ids, which begin with `unique_id`, whatever the ids of the items are."""
    return [
        _message_of(plain_object(item, "an item of a session"), f"{unique_id}-{number}")
        for number, item in enumerate(items)
    ]


def items_for_model(state: ChatState, chain: Sequence[Message]) -> list[SessionItem]:
    """Return the items that the messages of a chain stand for, in order, without those that models do not get."""
    return [
        SessionItem(message, place, cast("dict[str, Any]", item))
        for message in for_model(state, chain)
        for place, item in enumerate(
            RESPONSES.to_model(message.name, told(message.name, message.data, message.form, message.id))
        )
    ]


class ReadItems(NamedTuple):
    """The newest items of a branch, and the branch; `is_whole` when there are none before them."""

    branch: BranchRow
    items: list[SessionItem]
    is_whole: bool


def read_items(store: LedgerStore, chat_id: str, branch: str | None, limit: int | None) -> ReadItems | None:
    """
    Return the newest items of a branch, oldest first; None when there is no such chat.

    Args:
        store: What a ledger stands on, now or at a moment.
        chat_id: The chat.
        branch: Its name; the active branch when None.
        limit: At most so many (>= 1); all when None.

    Raises:
        BranchNotFoundError: The chat has no such branch.

    Source: the LMDB index. Costs O(result), however long the branch is.
    """
    with store.snapshot(ChatsToRead(chat_id)) as snapshot:
        chat = snapshot.chat(chat_id)
        if chat.record is None:
            return None
        row = branch_at(chat, branch, chat_id=chat_id)
        items, is_whole = ([], True) if row.place is None else _newest(chat, row.place, limit)
        return ReadItems(row, items, is_whole)


def _newest(chat: IndexedChat, head: Place, limit: int | None) -> tuple[list[SessionItem], bool]:
    length = chat.chains.depth(head) + 1
    taken = length if limit is None else min(limit, length)
    while True:
        items = items_for_model(chat, chat.chains.chain(head, taken))
        if taken == length or (limit is not None and len(items) >= limit):
            break
        taken = min(2 * taken, length)
    kept = items if limit is None else items[-limit:]
    return kept, taken == length and len(kept) == len(items)
