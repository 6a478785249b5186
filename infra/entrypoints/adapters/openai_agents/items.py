"""
Items of a session: one item of the Responses API is one message, as it came.

Messages that something else wrote are told as items: one may stand for several, such as what was said and the calls that followed,
or for none.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from chatledger.domain.forms.items import ASSISTANT
from chatledger.domain.forms.plain import plain_object
from chatledger.domain.forms.reading import role_of
from chatledger.domain.forms.responses import NAME as RESPONSES
from chatledger.domain.values import NewMessage

from ....ledger.drafts import new_id
from ....ledger.history import Told

NO_ID: Final = "__fake_id__"
"""The id that the SDK gives to items of models whose API has no ids; all of them have the same."""


def draft_of(item: Any, chat_id: str) -> NewMessage:
    """
    Return the message to store for an item; an item with an id of its own makes the id of the message.

    Raises:
        InvalidValueError: It is no object, or there is something in it that JSON does not know.
    """
    fields = plain_object(item, "an item of a session")
    own = fields.get("id")
    has_own_id = isinstance(own, str) and own not in {"", NO_ID}
    return _message_of(fields, f"{chat_id}:{own if has_own_id else new_id()}")


def copies_of(items: Iterable[Any], unique_id: str) -> list[NewMessage]:
    """Return messages for items under new ids, which begin with `unique_id`, whatever the ids of the items are."""
    return [
        _message_of(plain_object(item, "an item of a session"), f"{unique_id}-{number}")
        for number, item in enumerate(items)
    ]


def _message_of(fields: dict[str, Any], message_id: str) -> NewMessage:
    # Whatever the SDK is given it keeps: what is no item is of the assistant.
    return NewMessage(role_of(RESPONSES, fields, ASSISTANT), fields, RESPONSES, id=message_id)


def cut(told: Sequence[Told], start: int, depth_of: Callable[[str], int]) -> tuple[str | None, list[Any]]:
    """
    Return where a branch is to end so that an item and those behind it are gone.

    Args:
        told: Items of the branch, its last ones at least.
        start: The place of the first item to go.
        depth_of: The depth of a message in the chain.

    Returns:
        The message that the branch ends with, and the items before the first to go that go with it: told of the same messages.
    """
    depths = [[depth_of(one.base.id) for one in item.origin] for item in told]
    first = min(min(of_item) for of_item in depths[start:])
    kept: list[int] = []
    while True:
        kept = [place for place in range(start) if max(depths[place]) >= first]
        earliest = min((min(depths[place]) for place in kept), default=first)
        if earliest >= first:
            break
        first = earliest
    base = next(
        one.base.parent_id
        for item, of_item in zip(told, depths, strict=True)
        for one, depth in zip(item.origin, of_item, strict=True)
        if depth == first
    )
    return base, [told[place].value for place in kept]
