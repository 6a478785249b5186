"""
OpenAI's Conversations API, at `/v1/conversations`: chats as its clients and its Agents SDK make, fill, read and delete them.

Items of a conversation: the messages of a branch in the form of OpenAI's Responses API, read by page and by id.

An item that a client adds is one message. A message that was stored otherwise may stand for several items, such as what was
said and the calls that followed, or for none. An item goes by its own `id`; one that came without goes by the id of its
message, which its copies keep: those that follow a deleted item are stored again after what was before it.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple
from urllib.parse import quote
from uuid import uuid4

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from chatledger.domain.chat.save import Save
from chatledger.domain.context.in_forms import MessageInHand
from chatledger.domain.errors import (
    BranchNotFoundError,
    ChatledgerError,
    ChatNotFoundError,
    InvalidValueError,
    MessageNotFoundError,
)
from chatledger.domain.forms import reading
from chatledger.domain.forms.items import ASSISTANT, Call, Result
from chatledger.domain.forms.responses import NAME as RESPONSES
from chatledger.domain.forms.translate import translate
from chatledger.domain.values import Branch, Chat, Message, NewMessage
from chatledger.domain.wire import Value

from ....ledger.drafts import as_draft
from ....ledger.ledger import Ledger
from ....ledger.view import LedgerView
from ..contract import Contract
from ..problems import RequestError, answer_problem, problem_of
from ..routing import IDEMPOTENCY_KEY, MAX_MESSAGES_BYTES, HttpCall, Method, Route, existing

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
    """The items of a branch as it was when this was made, whatever is written meanwhile."""

    def __init__(self, reader: Reader, branch: Branch) -> None:
        self._reader, self._chat_id, self._head = reader, branch.chat_id, branch.head_message_id

    def page(self, *, after: str | None, limit: int, order: Order) -> list[ShownItem]:
        """
        Return at most `limit` items, those that come after the item `after` in the order.

        Costs O(limit) for the newest first; for the oldest first the ids of the chain are walked too.
        """
        start = None if after is None else self.find(after)
        walk = self._newest(start) if order == "desc" else self._oldest(start)
        return [item for item, _ in zip(walk, range(limit), strict=False)]

    def find(self, item_id: str) -> ShownItem:
        """Return the item of that id, or raise `MessageNotFoundError`."""
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


BRANCH: Final = "Chatledger-Branch"
"""The header that names the branch which a deletion left without the item, percent-encoded."""

_INVALID: Final = "invalid_request_error"
_LIMIT: Final = "rate_limit_error"
_SERVER: Final = "server_error"
_PREFIXES: Final = {"message": "msg", "function_call": "fc", "function_call_output": "fco", "reasoning": "rs"}

Metadata = Annotated[
    dict[Annotated[str, msgspec.Meta(max_length=64)], Annotated[str, msgspec.Meta(max_length=512)]],
    msgspec.Meta(max_length=16),
]
GivenItems = Annotated[list[dict[str, Any]], msgspec.Meta(max_length=20)]
Limit = Annotated[int, msgspec.Meta(ge=1, le=100)]


class NewConversation(msgspec.Struct):
    """A conversation to be made."""

    items: GivenItems | None = None
    metadata: Metadata | None = None


class ConversationChange(msgspec.Struct):
    """New metadata of a conversation, in place of those that it has."""

    metadata: Metadata | None = None


class NewItems(msgspec.Struct):
    """Items to be added to a conversation."""

    items: GivenItems


class OpenAIConversation(Value, frozen=True, kw_only=True):
    """A conversation; `created_at` is in seconds since the epoch."""

    id: str
    object: Literal["conversation"] = "conversation"
    created_at: int
    metadata: dict[str, Any]


class DeletedConversation(Value, frozen=True, kw_only=True):
    """A conversation that is deleted now."""

    id: str
    object: Literal["conversation.deleted"] = "conversation.deleted"
    deleted: bool = True


class ItemList(Value, frozen=True, kw_only=True):
    """A page of items. `last_id` is what to send as `after` for those that follow; both ids are empty where there are none."""

    object: Literal["list"] = "list"
    data: list[dict[str, Any]]
    first_id: str
    last_id: str
    has_more: bool


class DuplicateItemError(RequestError):
    """Raised when a conversation has another item of that id."""

    def __init__(self, item_id: str) -> None:
        msg = f"the conversation has another item of the id {item_id!r}; items never change, leave the id out to add a new one"
        super().__init__(400, msg, name="DuplicateItemError")


def create_conversation(call: HttpCall, body: NewConversation | None = None) -> OpenAIConversation:
    """
    Make a conversation, with up to 20 items.

    With an `Idempotency-Key`, a request that is repeated gets the conversation that the first one made.
    """
    new = body or NewConversation()
    has_key = call.header(IDEMPOTENCY_KEY) is not None
    chat_id = f"conv_{call.named_by_key() or uuid4().hex}"
    adding = _Adding(call, chat_id, new.items or [], None)
    chat = call.ledger.create_chat(chat_id, call.principal.owner, metadata=new.metadata or {})
    try:
        with call.command("items"):
            adding.add(None)
    except ChatledgerError:
        # Nobody knows the id of a conversation without items. With a key the same request finds it, and goes on.
        if not has_key:
            call.ledger.delete_chat(chat_id)
        raise
    return _conversation(chat)


def get_conversation(call: HttpCall, conversation_id: str) -> OpenAIConversation:
    """Read a conversation."""
    return _conversation(_chat(call.reader, conversation_id))


def update_conversation(call: HttpCall, conversation_id: str, body: ConversationChange) -> OpenAIConversation:
    """Replace the metadata of a conversation."""
    return _conversation(call.ledger.update_chat(conversation_id, replace_metadata=body.metadata or {}))


def delete_conversation(call: HttpCall, conversation_id: str) -> DeletedConversation:
    """Delete a conversation, and erase its items."""
    if not call.ledger.delete_chat(conversation_id):
        raise ChatNotFoundError(conversation_id)
    return DeletedConversation(id=conversation_id)


def create_items(call: HttpCall, conversation_id: str, body: NewItems, branch: str | None = None) -> ItemList:
    """Add up to 20 items to a branch, the active one by default. Those that it has already are not added again."""
    into = _branch(call.ledger, conversation_id, branch)
    added = _Adding(call, conversation_id, body.items, Items(call.ledger, into)).add(into.name)
    return _listed(added, has_more=False)


def list_items(
    call: HttpCall,
    *,
    conversation_id: str,
    after: str | None = None,
    limit: Limit = 20,
    order: Order = "desc",
    branch: str | None = None,
) -> ItemList:
    """Read a page of the items of a branch, the newest first unless asked otherwise."""
    items = Items(call.reader, _branch(call.reader, conversation_id, branch))
    page = items.page(after=after, limit=limit + 1, order=order)
    return _listed([item.shown for item in page[:limit]], has_more=len(page) > limit)


def get_item(call: HttpCall, conversation_id: str, item_id: str, branch: str | None = None) -> dict[str, Any]:
    """Read an item of a branch."""
    return Items(call.reader, _branch(call.reader, conversation_id, branch)).find(item_id).shown


def delete_item(call: HttpCall, conversation_id: str, item_id: str, branch: str | None = None) -> OpenAIConversation:
    """
    Take an item out of the conversation; nothing is lost.

    The last item: the head of the branch moves to the item before. Another one: a new branch without it becomes the active one,
    and the old branch stays as it is.
    """
    ledger, onto = call.ledger, _branch(call.ledger, conversation_id, branch)
    items = Items(ledger, onto)
    item = items.find(item_id)
    siblings = [other for other in items_of(item.message) if other.place != item.place]
    # Nothing follows the last item, so that no copies are needed.
    if item.message.id == onto.head_message_id and not siblings:
        ledger.move_head(conversation_id, onto.name, item.message.parent_id, expected=onto.head_message_id)
        call.headers[BRANCH] = quote(onto.name)
    else:
        copies = [
            msgspec.structs.replace(
                _draft_of(other.shown, f"{other.message.id}:{uuid4().hex}"), created_at=other.message.created_at
            )
            for other in siblings
        ]
        copies += [_copy_of(message) for message in items.messages_after(item.message)]
        save = Save(
            drafts=tuple(copies),
            spare_ids=tuple(uuid4().hex for _ in copies),
            branch=onto.name,
            read_head=onto.head_message_id,
            on_conflict="raise",
            branch_id=str(uuid4()),
            after=item.message.parent_id,
        )
        call.headers[BRANCH] = quote(ledger.save(conversation_id, save).branch)
    return get_conversation(call, conversation_id)


class _Adding:
    """Items that are about to be added: those that are there already, and drafts of the others."""

    def __init__(
        self, call: HttpCall, chat_id: str, items_to_add: Sequence[dict[str, Any]], items: Items | None
    ) -> None:
        self._call, self._ledger, self._chat_id, self._items = call, call.ledger, chat_id, items
        self._there: dict[str, ShownItem] = {}
        self._drafts: dict[str, NewMessage] = {}
        self._ids = [self._take(item, position) for position, item in enumerate(items_to_add)]

    def add(self, branch: str | None) -> list[dict[str, Any]]:
        """Append what is not there yet, and return all as they are shown, in the order in which they were given."""
        drafts = list(self._drafts.values())
        written = self._ledger.append(self._chat_id, drafts, branch=branch) if drafts else []
        added = [item for message in written for item in items_of(message)]
        if len(added) != len(drafts):  # the ledger answered with what the key had written before
            msg = f"the {IDEMPOTENCY_KEY} was used for other items; use a new one"
            raise RequestError(400, msg, name="InvalidValueError")
        shown = dict(zip(self._drafts, added, strict=True)) | self._there
        return [shown[item_id].shown for item_id in self._ids]

    def _take(self, item: dict[str, Any], position: int) -> str:
        if item.get("type") == "item_reference":
            msg = "an item_reference names an item that there is; send the item itself"
            raise RequestError(400, msg, name="InvalidValueError")
        own: Any = item.get("id")
        if own is None:
            kind = item.get("type") or "message"
            prefix = _PREFIXES.get(kind, "item") if isinstance(kind, str) else "item"
            item_id = f"{prefix}_{self._call.named_by_key(self._chat_id, str(position)) or uuid4().hex}"
            self._drafts[item_id] = _draft_of(item, item_id)
            return item_id
        if not isinstance(own, str) or not own:
            raise RequestError(400, "the id of an item is text, and not empty", name="InvalidValueError")
        # An item that was taken out of the branch is still stored, and may be added again: its message id is taken.
        message_id = message_id_of(self._chat_id, own)
        is_taken = self._items is not None and self._items.is_stored(message_id)
        draft = _draft_of(item, (f"{message_id}:{uuid4().hex}" if is_taken else message_id))
        present = self._present(own)
        if present is None:
            self._drafts[own] = draft
        elif present != shown_item(item, own):
            raise DuplicateItemError(own)
        return own

    def _present(self, item_id: str) -> dict[str, Any] | None:
        """The item of that id, as it is shown, among those of the request before it and those of the branch."""
        if item_id in self._drafts:
            draft = self._drafts[item_id]
            message = Message(
                id=draft.id or "",
                chat_id=self._chat_id,
                name=draft.name,
                data=draft.data,
                form="responses",
                created_at=0,
            )
            (item,) = items_of(message)
            return item.shown
        stored = None if self._items is None else self._items.find_stored(item_id)
        if stored is not None:
            self._there[item_id] = stored
        return None if stored is None else stored.shown


def _draft_of(item: dict[str, Any], message_id: str) -> NewMessage:
    return msgspec.structs.replace(as_draft(item, form="responses"), id=message_id)


def _copy_of(message: Message) -> NewMessage:
    return NewMessage(
        message.name,
        message.data,
        message.form,
        id=str(uuid4()),
        type=message.type,
        created_at=message.created_at,
        sender_id=message.sender_id,
        agent_id=message.agent_id,
        reply_to=message.reply_to,
        metadata=message.notes,
        copied_from=message.copied_from or message.id,
    )


def _chat(reader: Reader, conversation_id: str) -> Chat:
    return existing(reader.get_chat(conversation_id), ChatNotFoundError, conversation_id)


def _branch(reader: Reader, conversation_id: str, name: str | None) -> Branch:
    branch = reader.get_active_branch(conversation_id) if name is None else reader.get_branch(conversation_id, name)
    if branch is None:
        _chat(reader, conversation_id)
        raise BranchNotFoundError(conversation_id, name or "")
    return branch


def _conversation(chat: Chat) -> OpenAIConversation:
    return OpenAIConversation(id=chat.id, created_at=chat.created_at // 1000, metadata=chat.metadata or {})


def _listed(shown: list[dict[str, Any]], *, has_more: bool) -> ItemList:
    first, last = (shown[0]["id"], shown[-1]["id"]) if shown else ("", "")
    return ItemList(data=shown, first_id=first, last_id=last, has_more=has_more)


def answer_openai_error(request: Request, error: Exception) -> Response:
    """
    Answer a request with an error, as OpenAI's clients read it.

    `code` names the error of the ledger. Requests that cannot be read answer 400, as OpenAI has it, for our 422.
    """
    problem = problem_of(error)
    plain = answer_problem(request, error)  # for its status and headers
    status = 400 if plain.status_code == 422 else plain.status_code
    kind = _SERVER if status >= 500 else _LIMIT if status == 429 else _INVALID
    code = None if isinstance(error, HTTPException) else problem["type"].rpartition(":")[2]
    body = {"error": {"message": problem["detail"], "type": kind, "param": None, "code": code}}
    headers = {name: value for name, value in plain.headers.items() if name not in {"content-length", "content-type"}}
    return Response(msgspec.json.encode(body), status, headers, "application/json")


def _route(method: Method, path: str, handler: Any) -> Route:
    return Route(method, path, handler, is_strict=False, max_body_bytes=MAX_MESSAGES_BYTES)


_ROUTES: Final = [
    _route("POST", "/conversations", create_conversation),
    _route("GET", "/conversations/{conversation_id}", get_conversation),
    _route("POST", "/conversations/{conversation_id}", update_conversation),
    _route("DELETE", "/conversations/{conversation_id}", delete_conversation),
    _route("POST", "/conversations/{conversation_id}/items", create_items),
    _route("GET", "/conversations/{conversation_id}/items", list_items),
    _route("GET", "/conversations/{conversation_id}/items/{item_id}", get_item),
    _route("DELETE", "/conversations/{conversation_id}/items/{item_id}", delete_item),
]
OPENAI: Final = Contract("/v1", _ROUTES, refuse=answer_openai_error)
