"""
Items of a session: one item of the Responses API is one message, stored as it is.

Messages that something else wrote may stand for several items, such as what was said and the calls that followed, or for none.
Models get neither hidden nor replaced messages, so items leave them out too.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from chatledger.domain.context.formats.responses import ITEM, responses_items, ui_of_item
from chatledger.domain.context.formats.stored import converted
from chatledger.domain.context.messages import ASSISTANT
from chatledger.domain.forms.plain import plain_object
from chatledger.domain.values import UI, Branch, Message, NewMessage

from ....ledger.drafts import new_id
from ....ledger.history import History

NO_ID: Final = "__fake_id__"
"""The id that the SDK gives to items of models whose API has no ids; all of them have the same."""


class SessionItem(NamedTuple):
    """An item, the message of the chain that it stands for, and its place among the items of that message."""

    message: Message
    place: int
    item: dict[str, Any]


def draft_of_item(item: Any, chat_id: str) -> NewMessage:
    """
    Return the message to store for an item; an item with an id of its own makes the id of the message.

    Raises:
        InvalidValueError: It is no object, or there is something in it that JSON does not know.
    """
    fields = plain_object(item, "an item of a session")
    own = fields.get("id")
    has_own_id = isinstance(own, str) and own not in {"", NO_ID}
    return _message_of(fields, f"{chat_id}:{own if has_own_id else new_id()}")


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


def session_items(messages: Iterable[Message]) -> list[SessionItem]:
    """Return the items that messages stand for, in order."""
    return [
        SessionItem(message, place, item)
        for message in messages
        for place, item in enumerate(converted(message, responses_items))
    ]


class ReadItems(NamedTuple):
    """The newest items of a branch, and the branch; `is_whole` when there are none before them."""

    branch: Branch
    items: list[SessionItem]
    is_whole: bool


def read_items(history: History, limit: int | None) -> ReadItems:
    """Return the newest items of a branch, oldest first: at most `limit` (>= 1), all when None. Costs O(result)."""
    items: list[SessionItem] = []
    is_whole = False
    for chain in history.growing(history.branch.message_count if limit is None else limit):
        items, is_whole = session_items(history.for_model(chain)), len(chain) == history.branch.message_count
        if limit is not None and len(items) >= limit:
            break
    kept = items if limit is None else items[-limit:]
    return ReadItems(history.branch, kept, is_whole and len(kept) == len(items))
