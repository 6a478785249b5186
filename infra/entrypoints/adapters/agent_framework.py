"""`LedgerHistoryProvider`: the history provider of Microsoft's Agent Framework on a ledger. The id of a session is that of a chat."""

from collections.abc import Sequence
from typing import Any, Final

from agent_framework import HistoryProvider
from agent_framework import Message as FrameworkMessage

from chatledger.domain.errors import InvalidValueError
from chatledger.domain.forms.agent_framework import NAME
from chatledger.domain.forms.reading import name_of
from chatledger.domain.limits import check_id
from chatledger.domain.values import NewMessage

from ...ledger.drafts import new_id
from ...ledger.history import MessageHistory
from .access import AdapterLedger, Closable, Source

DEFAULT_SOURCE_ID: Final = "chatledger"


class LedgerHistoryProvider(Closable, HistoryProvider):
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

        def read(history: MessageHistory) -> list[FrameworkMessage]:
            values = history.read(lambda branch: branch.values(NAME, self._limit)) or []
            # As `from_dict` makes them, which takes half as long again for dependencies that messages do not have.
            return [
                FrameworkMessage(**{key: field for key, field in value.items() if key != "type"}) for value in values
            ]

        return await self._ledger.ask(session_id, read)

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
        values = [(f"{chat_id}:{message.message_id or new_id()}", message.to_dict()) for message in messages]
        drafts = [NewMessage(name_of(value, NAME), value, form=NAME, id=own_id) for own_id, value in values]
        await self._ledger.ask(chat_id, lambda history: history.add(drafts, reused_ids=True))

    async def delete(self, session_id: str) -> bool:
        """Erase a session, with all its branches and its history. Returns whether there was one."""
        return await self._ledger.run(lambda ledger: ledger.delete_chat(session_id))
