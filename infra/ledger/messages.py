"""Messages: append, add, walk chains."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, Literal, NamedTuple, Self, get_args

import msgspec
from msgspec import UNSET, UnsetType

from chatledger.domain.chat.decide_messages import decide_add_messages, decide_append
from chatledger.domain.chat.events import Body, ChatUpdated, MessagesAppended, Recorded
from chatledger.domain.errors import (
    BranchNotFoundError,
    ChatledgerError,
    ChatNotFoundError,
    InvalidValueError,
    MessageNotFoundError,
    WrongChatError,
)
from chatledger.domain.limits import check_choice, check_count, check_id, sought_id
from chatledger.domain.values import Divergence, Message, NewMessage
from chatledger.projections.chat.chains import Chains, Place
from chatledger.projections.chat.reader import BranchRow, IndexedChat
from chatledger.projections.log.kinds import CHATS, Decision

from ..store.commands import ChatsToRead
from ..store.redactor import Redactor
from .drafts import Messages, as_drafts
from .port import LedgerPart, LedgerSnapshot, StorePort, store_of

OnExisting = Literal["raise", "skip"]
_ON_EXISTING: Final = get_args(OnExisting)


class Appending(NamedTuple):
    """
    The arguments of `append`, checked as far as they can be without the chat.

    `drafts`: the messages, all of which have ids. `kind`: the type of the first event that it writes.
    """

    drafts: list[NewMessage]
    decide: Decision[IndexedChat]
    kind: type[Body]

    @classmethod
    def of(
        cls,
        messages: Messages,
        *,
        form: str | None = None,
        branch: str | None,
        expected_head: str | UnsetType | None,
        on_existing: OnExisting = "raise",
        chat_metadata: dict[str, Any] | None = None,
        redactor: Redactor | None,
    ) -> Self:
        """See `MessageMethods.append`."""
        check_choice(on_existing, _ON_EXISTING, "on_existing")
        drafts = as_drafts(messages, form=form, redactor=redactor)
        decide = partial(
            decide_append,
            drafts=drafts,
            branch=branch,
            expected_head=expected_head,
            skips_stored=on_existing == "skip",
            chat_metadata=chat_metadata,
        )
        return cls(drafts, decide, ChatUpdated if chat_metadata is not None and not drafts else MessagesAppended)


class MessageMethods(LedgerPart):
    """The part of a ledger that is about messages."""

    def append(
        self,
        chat_id: str,
        messages: Messages,
        *,
        form: str | None = None,
        branch: str | None = None,
        expected_head: str | UnsetType | None = UNSET,
        on_existing: OnExisting = "raise",
        chat_metadata: dict[str, Any] | None = None,
    ) -> list[Message]:
        """
        Chain messages onto a branch and move its head to the last of them: one commit, all or nothing.

        Args:
            chat_id: The chat.
            messages: One, or several in order, each the parent of the next; none is fine. Those without an id
                get one. Also dictionaries and objects of SDKs, as the APIs of OpenAI, Anthropic and Google have them, and text,
                which is from the user and stored as it is.
            form: The form of the dictionaries and objects among them: one of `chatledger.forms.FormName`, or any other name. Told
                by their shape when None, but for those of frameworks. Each is stored as it is, with its form.
            branch: Its name; the active branch when None.
            expected_head: Only if the branch is still there: a message id, or None for an empty branch.
            on_existing: With `skip` each message that stands on the branch already with equal content is left out, wherever it
                stands, and only the others are appended: for callers who hold a whole conversation.
            chat_metadata: Keys to set in the metadata of the chat, in the same commit, as by `update_chat(metadata=...)`.
                When all messages are there already they are not set again.

        Returns:
            The messages as they are stored. Messages that stand on the branch already with equal content are returned as
            they are, and nothing is written: so repeating a call whose answer was lost is safe.

        Raises:
            ChatNotFoundError, BranchNotFoundError: There is no such chat or branch.
            HeadConflictError: The branch is not at `expected_head`, or not at the parent that the first message names.
            ParentNotFoundError, WrongChatError: That parent is not stored, or in another chat.
            MessageConflictError: An id is stored with other content, elsewhere in the chat, or in another chat.
            PayloadTooLargeError: A message exceeds the size limit of an event.
            InvalidValueError: A value breaks a rule.
        """
        check_id(chat_id, "chat_id")
        store = self._store
        appending = Appending.of(
            messages,
            form=form,
            branch=branch,
            expected_head=expected_head,
            on_existing=on_existing,
            chat_metadata=chat_metadata,
            redactor=store.redactor,
        )
        written = store.execute(CHATS, chat_id, appending.decide, kind=appending.kind)
        return stored_messages(store, chat_id, appending.drafts, written)

    def add_messages(self, chat_id: str, messages: Messages, *, form: str | None = None) -> list[Message]:
        """
        Add messages with explicit parents (`parent_id`, None for a root) and move no head: one commit, all or nothing.

        A commit is atomic within one chat, so messages of several chats take a call, and a commit, for each. Repeating the calls
        after a crash is safe where the messages have ids.

        Args:
            chat_id: The chat.
            messages: One or several, parents before their children. Those stored already with equal content are left out.
            form: As for `append`.

        Returns:
            The messages as they are stored.

        Raises:
            ChatNotFoundError: There is no such chat.
            SelfParentError, ParentNotFoundError: A parent is the message itself, or neither stored in this chat nor
                earlier in `messages`.
            MessageConflictError: An id is stored with other content, or in another chat.
            InvalidValueError: A value breaks a rule.
        """
        check_id(chat_id, "chat_id")
        store = self._store
        drafts = as_drafts(messages, form=form, redactor=store.redactor)
        written = store.execute(
            CHATS, chat_id, lambda state, now: decide_add_messages(state, drafts, now=now), kind=MessagesAppended
        )
        return stored_messages(store, chat_id, drafts, written)

    def get_message(self, message_id: str) -> Message | None:
        """
        The message, or None.

        Source: the LMDB index at `position`; the log is not read.
        """
        return self._of_message(message_id, lambda chat, place: chat.chains.message(place), absent=None)

    def get_messages(
        self,
        chat_id: str,
        *,
        branch: str | None = None,
        limit: int | None = None,
        before: str | None = None,
        lazy_data: bool = False,
    ) -> list[Message]:
        """
        The chain of a branch, root first.

        Args:
            chat_id: The chat.
            branch: Its name; the active branch when None.
            limit: At most this many, the newest ones. All when None.
            before: A message of the chain; the answer ends just before it. For paging backwards.
            lazy_data: Whether the data of a message are decoded when they are first asked for. Saves most of the time where
                few are looked into. Give such messages to `msgspec` (`encode`, `asdict`) only after that; it refuses them before.

        Raises:
            ChatNotFoundError, BranchNotFoundError: There is no such chat or branch.
            MessageNotFoundError, InvalidValueError: `before` is unknown, or not on the chain.

        Source: the LMDB index at `position`; the log is not read. Costs O(result).
        """
        sought = sought_id(chat_id, "chat_id")
        with self._store.snapshot(ChatsToRead(sought)) as snapshot:
            chat = snapshot.chat(sought)
            row = branch_at(chat, branch, chat_id=chat_id)
            if row.place is None:
                return _empty(limit, before)
            return _chain(chat, row.place, limit, before, lazy_data=lazy_data)

    def get_chain(
        self, head_message_id: str, *, limit: int | None = None, before: str | None = None, lazy_data: bool = False
    ) -> list[Message]:
        """
        The messages from the root to `head_message_id`, oldest first; none when there is no such message.

        Args:
            head_message_id: Any message, not only the head of a branch.
            limit: At most this many, the newest ones. All when None.
            before: An ancestor; the chain ends just before it. For paging backwards.
            lazy_data: As in `get_messages`.

        Raises:
            MessageNotFoundError, InvalidValueError: `before` is unknown, or not on the chain.

        Source: the LMDB index at `position`; the log is not read. Costs O(result), whatever the length of the chat.
        """
        chain = self._of_message(
            head_message_id,
            lambda chat, place: _chain(chat, place, limit, before, lazy_data=lazy_data),
            absent=None,
            what="head_message_id",
        )
        return _empty(limit, before) if chain is None else chain

    def has_children(self, message_id: str) -> bool:
        """Whether any message answers this one; False for an unknown one."""
        return self._of_message(message_id, lambda chat, place: chat.chains.has_children(place), absent=False)

    def children(self, message_id: str) -> list[Message]:
        """The messages that answer this one, in the order of their creation; none when there is no such message."""
        return self._of_message(
            message_id, lambda chat, place: _messages(chat.chains, chat.chains.children(place)), absent=[]
        )

    def siblings(self, message_id: str) -> list[Message]:
        """
        The other messages with the same parent, in the order of their creation; of a root, the other roots.

        None when there is no such message.
        """

        def others(chat: IndexedChat, place: Place) -> list[Message]:
            chains = chat.chains
            parent = chains.parent(place)
            family = chains.roots() if parent is None else chains.children(parent)
            return _messages(chains, [other for other in family if other != place])

        return self._of_message(message_id, others, absent=[])

    def common_ancestor(self, a: str, b: str) -> Message | None:
        """
        The last message that the chains of two messages share; None when they have different roots.

        Raises:
            MessageNotFoundError: One of them is unknown.
            WrongChatError: They belong to different chats.
        """
        with self._store.snapshot(_chats_of(a, b)) as snapshot:
            chat, place, other = _find_both(snapshot, a, b)
            common = chat.chains.common_ancestor(place, other)
            return None if common is None else chat.chains.message(common)

    def merge_base(self, a: str, b: str) -> Message | None:
        """
        The newest message that two messages both come after, also by way of what was merged; None when they share nothing.

        One of the two itself where the other comes after it: what is merged already. Without merges it is their `common_ancestor`.

        Raises:
            MessageNotFoundError: One of them is unknown.
            WrongChatError: They belong to different chats.
        """
        with self._store.snapshot(_chats_of(a, b)) as snapshot:
            chat, place, other = _find_both(snapshot, a, b)
            base = chat.chains.merge_base(place, other)
            return None if base is None else chat.chains.message(base)

    def diff(self, a: str, b: str) -> Divergence:
        """
        Compare the chains of two messages: the last common message, and what each has after it.

        Raises:
            MessageNotFoundError: One of them is unknown.
            WrongChatError: They belong to different chats.
        """
        with self._store.snapshot(_chats_of(a, b)) as snapshot:
            chat, place, other = _find_both(snapshot, a, b)
            chains = chat.chains
            common = chains.common_ancestor(place, other)
            shared = 0 if common is None else chains.depth(common) + 1
            return Divergence(
                common=None if common is None else chains.message(common),
                only_a=chains.chain(place, chains.depth(place) + 1 - shared),
                only_b=chains.chain(other, chains.depth(other) + 1 - shared),
                common_count=shared,
            )


def begin_append(
    ledger: LedgerPart, chat_id: str, appending: Appending, *, on_end: Callable[[], object]
) -> Callable[[], list[Message] | None]:
    """
    Begin an append in another thread, which calls `on_end` when it is over.

    Returns a function for the answer then: it raises what the log said, and returns None when only `append` can find out what is wrong.
    """
    store = store_of(ledger)
    queued = store.submit(chat_id, appending.decide, appending.kind, on_end)

    def end() -> list[Message] | None:
        # What the log said of an encoded event is final. A decision may have refused because the index is behind, which only
        # `append` finds out.
        if queued.decided is not None and isinstance(queued.error, ChatledgerError):
            raise queued.error
        return stored_messages(store, chat_id, appending.drafts, queued.written) if queued.written else None

    return end


def stored_messages(store: StorePort, chat_id: str, drafts: list[NewMessage], written: list[Recorded]) -> list[Message]:
    """Return the messages as they are stored: those just written, and those that were there."""
    bodies = [recorded.event.body for recorded in written]
    # From the events themselves, mostly all: the index has them too, but reading them back would be another look-up of each.
    new = {
        message.id: msgspec.structs.replace(message, chat_id=chat_id)
        for body in bodies
        if isinstance(body, MessagesAppended)
        for message in body.messages
    }
    ids = [draft.id for draft in drafts if draft.id is not None]
    if new and new.keys().isdisjoint(ids):
        return list(new.values())  # a command that is repeated under its id, with messages that got new ids since
    if new.keys() >= set(ids):
        return [new[message_id] for message_id in ids]
    with store.snapshot(ChatsToRead(chat_id, is_written=True)) as snapshot:
        chat = snapshot.chat(chat_id)
        return [message for message_id in ids if (message := new.get(message_id) or chat.message(message_id))]


def branch_at(chat: IndexedChat, name: str | None, *, chat_id: str) -> BranchRow:
    """
    The branch of that name, the active one for None, of the chat that was asked for as `chat_id`.

    Raises:
        ChatNotFoundError, BranchNotFoundError: There is no such chat or branch.
    """
    if chat.record is None:
        raise ChatNotFoundError(chat_id)
    name = chat.record.active_branch if name is None else name
    row = chat.branch_record(sought_id(name, "branch"))
    if row is None:
        raise BranchNotFoundError(chat_id, name)
    return row


def path_end(chat: IndexedChat, along: str | None, *, chat_id: str) -> tuple[str | None, Place | None]:
    """
    Return the branch whose path it is, the active one for None, and where that ends; for a message no branch, and its place.

    The place is None where the branch is empty.

    Raises:
        ChatNotFoundError: There is no such chat.
        BranchNotFoundError: It has neither a branch nor a message of that name.
    """
    if chat.record is None:
        raise ChatNotFoundError(chat_id)
    sought = chat.record.active_branch if along is None else sought_id(along, "along")
    branch = chat.branch_record(sought)
    if branch is not None:
        return branch.name, branch.place
    place = chat.place(sought)
    if place is None:
        raise BranchNotFoundError(chat_id, sought)
    return None, place


def chain_end(chat: IndexedChat, head: Place | None, before: str | None) -> Place | None:
    """
    The last message of a chain, or the message just before `before`; None where there is none.

    Raises:
        MessageNotFoundError, InvalidValueError: `before` is unknown, or not on the chain.
    """
    if before is None:
        return head
    place = chat.place(sought_id(before, "before"))
    if place is None:
        raise MessageNotFoundError(before, chat_id=chat.chat_id)
    if head is None or not chat.chains.is_ancestor(place, head):
        msg = f"message {before!r} is not on the chain; `before` must be an ancestor of its head"
        raise InvalidValueError(msg)
    return chat.chains.parent(place)


def place_in(chat: IndexedChat, chat_id: str, message_id: str) -> Place:
    """
    The place of a message of the chat that was asked for as `chat_id`.

    Raises:
        ChatNotFoundError, MessageNotFoundError: The chat or the message is not there.
        WrongChatError: The message belongs to another chat.
    """
    if chat.record is None:
        raise ChatNotFoundError(chat_id)
    sought = sought_id(message_id, "message_id")
    place = chat.place(sought)
    if place is None:
        raise (WrongChatError if chat.is_elsewhere(sought) else MessageNotFoundError)(message_id, chat_id=chat_id)
    return place


def _chain(chat: IndexedChat, head: Place, limit: int | None, before: str | None, *, lazy_data: bool) -> list[Message]:
    if limit is not None:
        check_count(limit, "limit")
    end = chain_end(chat, head, before)
    return [] if end is None else chat.chains.chain(end, limit, lazy_data=lazy_data)


def _empty(limit: int | None, before: str | None) -> list[Message]:
    """An answer without messages, from arguments that are looked at all the same."""
    if limit is not None:
        check_count(limit, "limit")
    if before is not None:
        sought_id(before, "before")
        raise MessageNotFoundError(before)
    return []


def _chats_of(*message_ids: str) -> ChatsToRead:
    return ChatsToRead(message_ids=tuple(sought_id(message_id, "message_id") for message_id in message_ids))


def _find(snapshot: LedgerSnapshot, message_id: str) -> tuple[IndexedChat, Place]:
    located = snapshot.find(sought_id(message_id, "message_id"))
    if located is None:
        raise MessageNotFoundError(message_id)
    return located


def _find_both(snapshot: LedgerSnapshot, a: str, b: str) -> tuple[IndexedChat, Place, Place]:
    chat, place = _find(snapshot, a)
    other = chat.place(sought_id(b, "message_id"))
    if other is None:
        _find(snapshot, b)
        raise WrongChatError(b, chat_id=chat.chat_id)
    return chat, place, other


def _messages(chains: Chains, places: Iterable[Place]) -> list[Message]:
    return [chains.message(place) for place in places]
