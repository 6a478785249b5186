"""
Items of a conversation: the messages of a branch in the form of OpenAI's Responses API, read by page and by id.

An item that a client adds is one message. A message that was stored otherwise may stand for several items, such as what was
said and the calls that followed, or for none. An item goes by its own `id`; one that came without goes by the id of its
message, which its copies keep: those that follow a deleted item are stored again after what was before it.
"""

from collections.abc import Iterator
from typing import Any, Final, Literal, NamedTuple

from chatledger.domain.context.in_forms import MessageInHand
from chatledger.domain.errors import InvalidValueError, MessageNotFoundError
from chatledger.domain.forms import reading
from chatledger.domain.forms.items import ASSISTANT, Call, Result
from chatledger.domain.forms.responses import NAME as RESPONSES
from chatledger.domain.forms.translate import translate
from chatledger.domain.values import Branch, Message

from ....ledger.ledger import Ledger
from ....ledger.view import LedgerView

Order = Literal["asc", "desc"]
Reader = Ledger | LedgerView

BATCH: Final = 100
_DONE: Final = frozenset({"message", "function_call", "function_call_output"})
"""Types whose items always have a status."""


class ShownItem(NamedTuple):
    """An item as it is shown, the message that it is of, and its place among the message's items."""

    message: Message
    place: int
    shown: dict[str, Any]

    @property
    def id(self) -> str:
        """The item's id in the conversation."""
        item_id: str = self.shown["id"]
        return item_id


def items_of(message: Message) -> list[ShownItem]:
    """Return the items that a message stands for."""
    base = message.copied_from or message.id
    return [
        ShownItem(message, index, shown_item(item, base if index == 0 else f"{base}.{index}"))
        for index, item in enumerate(_items_in(message))
    ]


def _items_in(message: Message) -> list[dict[str, Any]]:
    """The message as items, by itself: also results whose calls other messages have."""
    if message.form == RESPONSES:
        return [message.data]
    form = None if reading.known_form(message.form) is None else message.form
    in_hand = MessageInHand(message.id, message.name, form, message.data)
    whats = [item.what for item in reading.items_of(form, message.data, message.name, in_hand)]
    called = {what.id for what in whats if isinstance(what, Call)}
    # A translation leaves out results without a call: here each gets one, which is cut off again.
    calls = [
        MessageInHand(
            "", ASSISTANT, RESPONSES, {"type": "function_call", "call_id": what.call_id, "name": what.name or ""}
        )
        for what in whats
        if isinstance(what, Result) and what.call_id not in called
    ]
    return translate([*calls, in_hand], RESPONSES, open_calls="keep").messages[len(calls) :]


def shown_item(item: dict[str, Any], item_id: str) -> dict[str, Any]:
    """Return an item as OpenAI's clients expect it: with a type, an id, a status where its type has one, and parts for text."""
    shown = dict(item)
    if "type" not in shown:
        shown["type"] = "message"
    if not shown.get("id"):
        shown["id"] = item_id
    if shown["type"] in _DONE:
        shown.setdefault("status", "completed")
    if shown["type"] == "message" and isinstance(shown.get("content"), str):
        is_answer = shown.get("role") == "assistant"
        part: dict[str, Any] = {"type": "output_text", "annotations": []} if is_answer else {"type": "input_text"}
        shown["content"] = [{**part, "text": shown["content"]}]
    return shown


class Items:
    """
    The items of a branch as it was when this was made, whatever is written meanwhile.

    Args:
        reader: The ledger of the caller, now or at a moment.
        branch: The branch.
    """

    def __init__(self, reader: Reader, branch: Branch) -> None:
        self._reader, self._chat_id, self._head = reader, branch.chat_id, branch.head_message_id

    def page(self, *, after: str | None, limit: int, order: Order) -> list[ShownItem]:
        """
        Return at most `limit` items, those that come after the item `after` in the order.

        Costs O(limit) for the newest first; for the oldest first the ids of the chain are walked too.

        Raises:
            MessageNotFoundError: The branch has no item of that id.
        """
        start = None if after is None else self.find(after)
        walk = self._newest(start) if order == "desc" else self._oldest(start)
        return [item for item, _ in zip(walk, range(limit), strict=False)]

    def find(self, item_id: str) -> ShownItem:
        """
        Return the item of that id.

        Raises:
            MessageNotFoundError: The branch has none.
        """
        item = self.find_stored(item_id) or next((item for item in self._newest(None) if item.id == item_id), None)
        if item is None:
            raise MessageNotFoundError(item_id, chat_id=self._chat_id)
        return item

    def find_stored(self, item_id: str) -> ShownItem | None:
        """Return the item of that id where it leads to its message; a message that was stored again has another id."""
        outer, dot, index = item_id.rpartition(".")
        sought = [item_id, message_id_of(self._chat_id, item_id), *([outer] if dot and index.isdigit() else [])]
        for message_id in sought:
            message = self._message(message_id)
            if message is not None and self._is_on_chain(message_id):
                return next((item for item in items_of(message) if item.id == item_id), None)
        return None

    def is_stored(self, message_id: str) -> bool:
        """Whether there is such a message, on whatever branch."""
        return self._reader.get_message(message_id) is not None

    def messages_after(self, message: Message) -> list[Message]:
        """Return the messages that follow one on the branch, oldest first."""
        assert self._head is not None, "it has a message"
        return self._reader.diff(message.id, self._head).only_b

    def _message(self, message_id: str) -> Message | None:
        try:
            return self._reader.get_message(message_id)
        except InvalidValueError:  # no id of a message: too long
            return None

    def _is_on_chain(self, message_id: str) -> bool:
        if message_id == self._head:
            return True
        try:
            self._reader.get_chain(self._head or "", limit=1, before=message_id)
        except (InvalidValueError, MessageNotFoundError):
            return False
        return True

    def _newest(self, start: ShownItem | None) -> Iterator[ShownItem]:
        if start is not None:
            yield from reversed(items_of(start.message)[: start.place])
        before = None if start is None else start.message.id
        while self._head is not None:
            messages = self._reader.get_chain(self._head, limit=BATCH, before=before)
            for message in reversed(messages):
                yield from reversed(items_of(message))
            if len(messages) < BATCH:
                return
            before = messages[0].id

    def _oldest(self, start: ShownItem | None) -> Iterator[ShownItem]:
        if self._head is None:
            return
        chain = iter(self._reader.get_chain(self._head, lazy_data=True))
        if start is not None:
            yield from items_of(start.message)[start.place + 1 :]
            for message in chain:
                if message.id == start.message.id:
                    break
        for message in chain:
            yield from items_of(message)


def message_id_of(chat_id: str, item_id: str) -> str:
    """Return the id of the message for an item that came with an id, which other conversations may have too."""
    return f"{chat_id}:{item_id}"
