"""`LedgerStore`: ChatKit's store on a ledger. A thread is a chat, an item is a message."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

from chatkit.store import NotFoundError, Store
from chatkit.types import (
    AssistantMessageContent,
    AssistantMessageItem,
    Attachment,
    CustomTask,
    InferenceOptions,
    Page,
    SDKHiddenContextItem,
    ThoughtTask,
    ThreadItem,
    ThreadMetadata,
    UserMessageItem,
    UserMessageTextContent,
    Workflow,
    WorkflowItem,
)
from pydantic import TypeAdapter

from chatledger.domain.errors import AccessDeniedError, ChatNotFoundError
from chatledger.domain.forms.chatkit import NAME
from chatledger.domain.forms.items import ASSISTANT, SYSTEM, TOOL, Call, Reasoning, Refusal, Result, Text
from chatledger.domain.forms.plain import object_at
from chatledger.domain.forms.reading import items_of as parts_of
from chatledger.domain.forms.reading import role_of
from chatledger.domain.forms.writing import result_text
from chatledger.domain.limits import check_choice, check_count, check_id, same_json
from chatledger.domain.values import Chat, Message, NewMessage
from chatledger.domain.versioned.keys import state_id

from ...ledger.drafts import new_id
from ...ledger.graph.state_store import StateStore
from ...ledger.history import Commit, History, MessageHistory, Standing
from ...ledger.ledger import Ledger
from .access import NO_ID, AdapterLedger, Closable, Source, utc, with_floats

_items: Final[TypeAdapter[list[ThreadItem]]] = TypeAdapter(list[ThreadItem])


def ms_of(time: datetime) -> int:
    """Return a time in ms since the epoch; one without a zone is local."""
    return round(time.timestamp() * 1000)


def item_id(thread_id: str, message_id: str) -> str:
    return message_id.removeprefix(f"{thread_id}:") or message_id


def message_ids(thread_id: str, sought: str) -> tuple[str, str]:
    """Return the ids that the message of an item may have: of an item that ChatKit made, and of one made by something else."""
    return f"{thread_id}:{sought}", sought


def draft_of(thread_id: str, item: ThreadItem) -> NewMessage:
    """Return the message to store in a thread. Raises `InvalidValueError` for what JSON does not know."""
    own = item.id if item.id not in {"", NO_ID} else new_id()
    value = with_floats(item.model_dump(mode="json"), item.model_dump())
    role = role_of(NAME, value, ASSISTANT)
    return NewMessage(role, value, NAME, id=f"{thread_id}:{own}", created_at=ms_of(item.created_at))


def items_of(thread_id: str, standings: Sequence[Standing]) -> list[ThreadItem]:
    """Return the items for messages of a thread: for those that stand in the place of others, whose ids they have."""
    return _items.validate_python([_value_of(thread_id, standing) for standing in standings])


def _value_of(thread_id: str, standing: Standing) -> Any:
    base, stands = standing
    names = {"id": item_id(thread_id, base.id), "thread_id": thread_id}
    if stands.form != NAME:
        return _made_of(stands, {**names, "created_at": utc(base.created_at)})
    value: dict[str, Any] = stands.data
    # Items of models without ids share one, and what stands in the place of another is known by that one's id.
    return value if base.id == f"{thread_id}:{value.get('id')}" else {**value, **names}


def _made_of(message: Message, names: dict[str, Any]) -> ThreadItem:
    """The item for a message that something else than ChatKit wrote: its text or, where an assistant said none, what it did."""
    role = message.role
    whats = [item.what for item in parts_of(message.form, message.data, message.name)]
    texts = [what.text for what in whats if isinstance(what, Text | Refusal)]
    results = [what for what in whats if isinstance(what, Result)]
    if role == ASSISTANT:
        outcomes = {result.call_id: result_text(result) for result in results}
        tasks = [
            ThoughtTask(content=what.text)
            if isinstance(what, Reasoning)
            else CustomTask(title=what.name, content=outcomes.get(what.id))
            for what in whats
            if isinstance(what, Call) or (isinstance(what, Reasoning) and what.text)
        ]
        if tasks and not texts:
            return WorkflowItem(workflow=Workflow(type="custom", tasks=list(tasks)), **names)
        return AssistantMessageItem(content=[AssistantMessageContent(text=text) for text in texts], **names)
    if role in {SYSTEM, TOOL, "developer"}:
        return SDKHiddenContextItem(content="\n".join(texts or map(result_text, results)), **names)
    content = [UserMessageTextContent(text=text) for text in texts]
    return UserMessageItem(content=list(content), inference_options=InferenceOptions(), **names)


T = TypeVar("T")
TContext = TypeVar("TContext")
_attachment: Final[TypeAdapter[Attachment]] = TypeAdapter(Attachment)
_ATTACHMENT: Final = "attachment"
_NOBODY: Final = "chatkit"
_FIELDS: Final = ("created_at", "status", "allowed_image_domains", "metadata")


class LedgerStore(Closable, Store[TContext]):
    """
    Threads, items and attachments of ChatKit: `class MyServer(ChatKitServer): ...` and `MyServer(LedgerStore(ledger))`.

    The id of a thread is that of a chat, also of one that something else wrote; its active branch is shown and gone on with. Each
    call is one commit. Safe for threads and tasks.

    Args:
        source: A ledger, or the location of one, as `chatledger.open` takes it; `close` closes what was opened here.
        user_id: The user whose threads these are. None: the user of the ledger, or nobody.
        user_of: Of the context of a request, the user who makes it. Each call then sees, changes and makes only that user's
            threads and attachments, and is refused where there is no user.

    Raises:
        ConfigurationError: The source is neither a ledger nor a location.
    """

    def __init__(
        self, source: Source, *, user_id: str | None = None, user_of: Callable[[TContext], str | None] | None = None
    ) -> None:
        self._ledger = AdapterLedger(source, user_id=user_id, adapter="LedgerStore")
        self._user_of = user_of

    async def load_thread(self, thread_id: str, context: TContext) -> ThreadMetadata:
        """
        Return the metadata of a thread.

        Raises:
            NotFoundError: There is no such thread, or it is another user's.
        """
        chat = await self._run(context, lambda ledger, _owner: ledger.get_chat(thread_id))
        if chat is None:
            raise _no_thread(thread_id)
        return _thread_of(chat)

    async def save_thread(self, thread: ThreadMetadata, context: TContext) -> None:
        """
        Store the metadata of a thread; its chat is made if there is none.

        Raises:
            OwnerMismatchError: The chat of that id belongs to another user.
        """
        dumped = thread.model_dump(mode="json")
        value = {name: dumped[name] for name in _FIELDS}

        def save(commit: Commit) -> None:
            metadata = {NAME: value}
            if not commit.begin(title=thread.title, metadata=metadata, created_at=ms_of(thread.created_at)):
                commit.describe(title=thread.title, metadata=metadata)

        await self._ask(context, thread.id, lambda history: history.commit(save))

    async def load_thread_items(
        self, thread_id: str, after: str | None, limit: int, order: str, context: TContext
    ) -> Page[ThreadItem]:
        """
        Return a page of the items of a thread; an empty one where there is no such thread, or it is another user's.

        Costs O(limit), wherever in a thread of any length.

        Args:
            thread_id: The thread.
            after: The last item of the page before.
            limit: At most so many (>= 1).
            order: `asc` for the oldest first, or `desc`.
            context: The context of the request.

        Raises:
            NotFoundError: `after` is not in the thread.
        """
        check_choice(order, ("asc", "desc"), "order")
        check_count(limit, "limit")

        def read(history: History) -> list[Standing]:
            base = None if after is None else history.find(*message_ids(thread_id, after))
            if after is not None and base is None:
                raise _no_item(thread_id, after)
            return history.page(None if base is None else base.id, limit + 1, ascending=order == "asc")

        standings = await self._ask(context, thread_id, lambda history: history.read(read)) or []
        return _page(items_of(thread_id, standings[:limit]), limit, len(standings))

    async def load_threads(self, limit: int, after: str | None, order: str, context: TContext) -> Page[ThreadMetadata]:
        """
        Return a page of the threads by their creation. Costs O(limit).

        Raises:
            NotFoundError: `after` is no thread.
        """
        is_ascending = check_choice(order, ("asc", "desc"), "order") == "asc"
        check_count(limit, "limit")
        try:
            chats = await self._run(
                context,
                lambda ledger, _owner: ledger.list_chats(
                    order="created", ascending=is_ascending, limit=limit + 1, after=after
                ),
            )
        except ChatNotFoundError as error:
            raise _no_thread(str(after)) from error
        return _page([_thread_of(chat) for chat in chats[:limit]], limit, len(chats))

    async def add_thread_item(self, thread_id: str, item: ThreadItem, context: TContext) -> None:
        """Add an item at the end of a thread, as `add_thread_items` does."""
        await self.add_thread_items(thread_id, [item], context)

    async def add_thread_items(self, thread_id: str, items: Sequence[ThreadItem], context: TContext) -> None:
        """
        Add items at the end of a thread: one commit, all or nothing. Those that are there already are left out.

        Costs the same in a long thread as in a short one. The chat is made if there is none.

        Raises:
            OwnerMismatchError: The chat of that id belongs to another user.
            PayloadTooLargeError: An item exceeds the size limit of an event.
        """
        drafts = [draft_of(thread_id, item) for item in items]
        await self._ask(context, thread_id, lambda history: history.add(drafts))

    async def save_item(self, thread_id: str, item: ThreadItem, context: TContext) -> None:
        """
        Put an item in the place of the one with its id, or add it. The old one stays in the history, replaced.

        Raises:
            OwnerMismatchError: The chat of that id belongs to another user.
            PayloadTooLargeError: The item exceeds the size limit of an event.
        """
        draft = draft_of(thread_id, item)

        def save(commit: Commit) -> None:
            history = commit.history()
            base = None if history is None else history.find(*message_ids(thread_id, item.id))
            if base is None:
                commit.add([draft])
            else:
                commit.put(base, draft)

        await self._ask(context, thread_id, lambda history: history.commit(save))

    async def load_item(self, thread_id: str, item_id: str, context: TContext) -> ThreadItem:
        """
        Return an item of a thread.

        Raises:
            NotFoundError: There is no such thread, or no such item on its active branch.
        """
        standing = await self._ask(
            context, thread_id, lambda history: history.read(lambda read: _find(read, thread_id, item_id))
        )
        if standing is None:
            raise _no_item(thread_id, item_id)
        return items_of(thread_id, [standing])[0]

    async def delete_thread(self, thread_id: str, context: TContext) -> None:
        """Erase a thread with its branches, its history and the attachments of its items. Nothing where there is none."""

        def delete(ledger: Ledger, owner: str) -> None:
            shown = MessageHistory(ledger, thread_id).read(lambda history: history.standing(history.chain())) or []
            items = items_of(thread_id, shown)  # before the chat is gone: they name the attachments
            ledger.delete_chat(thread_id)
            for item in items:
                for attachment in item.attachments if isinstance(item, UserMessageItem) else []:
                    StateStore(ledger).delete(_attachment_id(owner, attachment.id))

        await self._run(context, delete)

    async def delete_thread_item(self, thread_id: str, item_id: str, context: TContext) -> None:
        """
        Take an item out of a thread. Nothing where there is none.

        It stays in the chat: the newest one as another version of what is said next, others as hidden messages.
        """

        def remove(commit: Commit) -> None:
            history = commit.history()
            standing = None if history is None else _find(history, thread_id, item_id)
            if standing is not None:
                commit.remove(standing)

        await self._ask(context, thread_id, lambda history: history.commit(remove))

    async def save_attachment(self, attachment: Attachment, context: TContext) -> None:
        """Store the metadata of an attachment, in the place of those that there were."""
        value = _attachment.dump_python(attachment, mode="json")

        def save(ledger: Ledger, owner: str) -> None:
            states, sought = StateStore(ledger), _attachment_id(owner, attachment.id)
            stored = states.get(sought)
            if stored is None or not same_json(stored.get(_ATTACHMENT), value):
                states.put(sought, {_ATTACHMENT: value})

        await self._run(context, save)

    async def load_attachment(self, attachment_id: str, context: TContext) -> Attachment:
        """
        Return the metadata of an attachment.

        Raises:
            NotFoundError: There is none of that id.
        """
        stored = await self._run(
            context, lambda ledger, owner: StateStore(ledger).get(_attachment_id(owner, attachment_id))
        )
        if stored is None:
            msg = f"Attachment {attachment_id} not found"
            raise NotFoundError(msg)
        return _attachment.validate_python(stored[_ATTACHMENT])

    async def delete_attachment(self, attachment_id: str, context: TContext) -> None:
        """Erase the metadata of an attachment. Nothing where there are none."""
        await self._run(context, lambda ledger, owner: StateStore(ledger).delete(_attachment_id(owner, attachment_id)))

    async def _ask(self, context: TContext, thread_id: str, call: Callable[[MessageHistory], T]) -> T:
        return await self._run(context, lambda ledger, owner: call(MessageHistory(ledger, thread_id, owner=owner)))

    async def _run(self, context: TContext, call: Callable[[Ledger, str], T]) -> T:
        """Call with the ledger of the user who asks, and that user, in a worker thread."""
        if self._user_of is None:
            return await self._ledger.run(lambda ledger: call(ledger, self._ledger.user_id or ""))
        user_id = self._user_of(context)
        if not user_id:
            msg = "the context of this request names no user, and user_of is to find one; see LedgerStore"
            raise AccessDeniedError(msg)
        return await self._ledger.run(lambda ledger: call(ledger.for_user(user_id), user_id))


def _find(history: History, thread_id: str, item_id: str) -> Standing | None:
    """An item of the branch; None where it is not there, or hidden."""
    base = history.find(*message_ids(thread_id, item_id))
    return None if base is None else history.standing_at(base.id)


def _thread_of(chat: Chat) -> ThreadMetadata:
    stored = dict(object_at(chat.metadata, NAME))
    value: dict[str, Any] = {"created_at": utc(chat.created_at), **stored}
    return ThreadMetadata.model_validate({**value, "id": chat.id, "title": chat.title})


def _page(data: list[Any], limit: int, count: int) -> Page[Any]:
    has_more = count > limit
    return Page(data=data, has_more=has_more, after=data[-1].id if has_more and data else None)


def _attachment_id(owner: str, attachment_id: str) -> str:
    return state_id(owner or _NOBODY, f"chatkit-attachment:{check_id(attachment_id, 'attachment id')}")


def _no_thread(thread_id: str) -> NotFoundError:
    return NotFoundError(f"Thread {thread_id} not found")


def _no_item(thread_id: str, item_id: str) -> NotFoundError:
    return NotFoundError(f"Item {item_id} not found in thread {thread_id}")
