"""`LedgerHistoryProvider`: the history provider of Agent Framework on a ledger. The id of a session is that of a chat."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec
from agent_framework import HistoryProvider
from agent_framework import Message as FrameworkMessage
from msgspec import UNSET

from chatledger.domain.chat.decide_chats import decide_create_chat
from chatledger.domain.chat.decide_messages import check_message, decide_append, find_branch
from chatledger.domain.chat.events import Body, ChatCreated, MessagesAppended
from chatledger.domain.chat.state import ChatState
from chatledger.domain.context.messages import is_ui_message, object_at
from chatledger.domain.errors import ChatExistsError, InvalidValueError, OwnerMismatchError
from chatledger.domain.limits import check_id, same_json
from chatledger.domain.values import MAIN_NUMBER, Message, NewMessage
from chatledger.projections.log.kinds import CHATS

from ....ledger.drafts import new_id
from ....ledger.ledger import Ledger
from ....ledger.port import store_of
from ..access import AdapterLedger, Source
from .messages import draft_of, messages_of

DEFAULT_SOURCE_ID: Final = "chatledger"


class LedgerHistoryProvider(HistoryProvider):
    """
    Histories of sessions, which are chats: `Agent(client, context_providers=[LedgerHistoryProvider(ledger)])`.

    A run reads the active branch of the chat, also one that something else wrote, and its messages are added to it in one commit.
    Messages that the branch ends with already, by `message_id` and content, are not added again. Safe for threads and tasks.

    Args:
        source: A ledger, or the location of one, as `chatledger.open` takes it; `close` closes what was opened here.
        user_id: The user whose chats these are. None: the user of the ledger, or nobody.
        source_id: The id of the provider, unique among those of an agent.
        limit: A run gets at most so many of the newest stored messages (>= 1); all when None.
        load_messages, store_inputs, store_context_messages, store_context_from, store_outputs: As `HistoryProvider` has them.

    Raises:
        ConfigurationError: The source is neither a ledger nor a location.
        InvalidValueError: `limit` is less than 1.
    """

    def __init__(
        self,
        source: Source,
        *,
        user_id: str | None = None,
        source_id: str = DEFAULT_SOURCE_ID,
        limit: int | None = None,
        load_messages: bool = True,
        store_inputs: bool = True,
        store_context_messages: bool = False,
        store_context_from: set[str] | None = None,
        store_outputs: bool = True,
    ) -> None:
        super().__init__(
            source_id,
            load_messages=load_messages,
            store_inputs=store_inputs,
            store_context_messages=store_context_messages,
            store_context_from=store_context_from,
            store_outputs=store_outputs,
        )
        if limit is not None and limit < 1:
            msg = f"limit must be at least 1, not {limit}; leave it out for all messages"
            raise InvalidValueError(msg)
        self._limit = limit
        self._ledger = AdapterLedger(source, user_id=user_id, adapter="LedgerHistoryProvider")

    async def get_messages(
        self, session_id: str | None, *, state: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[FrameworkMessage]:
        """
        Return the messages of the active branch of a session, oldest first; none when there is no such chat.

        Source: the LMDB index. Costs O(result), however long the history is.
        """
        del state, kwargs
        if session_id is None:
            return []

        def read(ledger: Ledger) -> list[FrameworkMessage]:
            branch = ledger.get_active_branch(session_id)
            if branch is None or branch.head_message_id is None:
                return []
            return messages_of(ledger.get_chain(branch.head_message_id, limit=self._limit))

        return await self._ledger.run(read)

    async def save_messages(
        self,
        session_id: str | None,
        messages: Sequence[FrameworkMessage],
        *,
        state: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """
        Add messages to the active branch of a session: one commit, all or nothing. The chat is made if there is none.

        Raises:
            InvalidValueError: There is no session id, or a message is not JSON.
            OwnerMismatchError: The chat of that id belongs to another user.
            PayloadTooLargeError: A message exceeds the size limit of an event.
        """
        del state, kwargs
        if session_id is None:
            msg = "a history needs the id of a session: run the agent with session=agent.create_session()"
            raise InvalidValueError(msg)
        chat_id = check_id(session_id, "session_id")
        if not messages:
            return
        drafts = [
            _Draft(draft_of(message, f"{chat_id}:{message.message_id or new_id()}"), bool(message.message_id))
            for message in messages
        ]
        adding = _Adding(drafts, self._ledger.user_id or "", new_id())
        try:
            await self._ledger.run(
                lambda ledger: store_of(ledger).execute(
                    CHATS, chat_id, adding.decided, kind=(ChatCreated, MessagesAppended)
                )
            )
        except ChatExistsError:  # one user's store does not show it
            raise OwnerMismatchError(chat_id) from None

    async def delete(self, session_id: str) -> bool:
        """Erase a session, with all its branches and its history. Returns whether there was one."""
        return await self._ledger.run(lambda ledger: ledger.delete_chat(session_id))

    def close(self) -> None:
        """Close the ledger, if it was opened here. Calling it again does nothing."""
        self._ledger.close()

    async def aclose(self) -> None:
        """Close, in a worker thread."""
        await self._ledger.aclose()


class _Draft(NamedTuple):
    """A message to store, and whether the framework gave it the id that tells it from others."""

    message: NewMessage
    has_own_id: bool


class _Adding(NamedTuple):
    """Messages to add at the end of the active branch of a chat, which is made for `owner` if there is none."""

    drafts: Sequence[_Draft]
    owner: str
    branch_id: str

    def decided(self, state: ChatState, now: int) -> list[Body]:
        """
        Return the events to write; none when the messages, by their ids, are the newest ones already.

        An id that a message has is not used again: models that give all their answers the same id lose nothing.
        """
        if state.record is not None:
            new = self.drafts[self._repeated(state) :]
            return decide_append(state, _free(state, new, self.branch_id), branch=None, expected_head=UNSET, now=now)
        created = decide_create_chat(
            state, user_id=self.owner, title=None, metadata=None, branch_id=self.branch_id, created_at=None
        )
        chained: list[Message] = []
        for draft in _free(state, self.drafts, self.branch_id):
            parent_id = chained[-1].id if chained else None
            chained.append(msgspec.structs.replace(check_message(draft, now), parent_id=parent_id))
        return [*created, MessagesAppended(tuple(chained), MAIN_NUMBER, None, chained[-1].id)]

    def _repeated(self, state: ChatState) -> int:
        """The number of messages that the branch ends with already."""
        newest: list[Message] = []
        at = find_branch(state, None).head_message_id
        while at is not None and len(newest) < len(self.drafts):
            message = state.message(at)
            assert message is not None, "a head and its ancestors are stored"
            newest.insert(0, message)
            at = message.parent_id
        for count in range(len(newest), 0, -1):
            if all(map(_is_stored_as, self.drafts[:count], newest[-count:])):
                return count
        return 0


def _is_stored_as(draft: _Draft, stored: Message) -> bool:
    message, message_id = draft.message, draft.message.id or ""
    if not draft.has_own_id or stored.name != message.name or not is_ui_message(stored.data):
        return False
    if stored.id != message_id and not stored.id.startswith(f"{message_id}:"):
        return False
    return same_json({**object_at(stored.data), "id": ""}, {**object_at(message.data), "id": ""})


def _free(state: ChatState, drafts: Sequence[_Draft], unique_id: str) -> list[NewMessage]:
    """The messages, with ids that end with `unique_id` where theirs are taken: the same ones, however often they are asked for."""
    found: list[NewMessage] = []
    taken: set[str] = set()
    for number, (message, _) in enumerate(drafts):
        message_id = message.id or ""
        if message_id in taken or state.has_message(message_id) or state.is_elsewhere(message_id):
            message_id = f"{message_id}:{unique_id}-{number}"
        taken.add(message_id)
        found.append(msgspec.structs.replace(message, id=message_id, data={**message.data, "id": message_id}))
    return found
