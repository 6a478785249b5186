"""Forks of whole chats: a new chat that begins with what another one said up to a message."""

from typing import Any

from chatledger.domain.chat.decide_branches import check_target
from chatledger.domain.chat.decide_chats import require_chat
from chatledger.domain.chat.events import ChatCreated
from chatledger.domain.chat.fork import BRANCHED_FROM, BRANCHED_FROM_CHAT, PlannedFork, decide_fork_chat
from chatledger.domain.limits import NO_ID, check_id, sought_id
from chatledger.domain.values import Chat
from chatledger.projections.chat.lists import ChatList
from chatledger.projections.log.kinds import CHATS

from ..store.commands import ChatsToRead
from .drafts import new_id
from .port import LedgerPart


class ForkMethods(LedgerPart):
    """The part of a ledger that forks whole chats."""

    def fork_chat(
        self,
        chat_id: str,
        message_id: str,
        *,
        new_chat_id: str | None = None,
        user_id: str | None = None,
        title: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> Chat:
        """
        Begin a new chat with copies of the messages up to a message: one commit. Agents start afresh in it.

        The copies have new ids, for an id is used once in a ledger, and the annotations of the originals; they follow each
        other like these, so `get_messages` of the new chat and `get_chain` of the message pair up. The new chat's metadata
        say where it comes from: `branched_from` is the message, `branched_from_chat` its chat.

        Args:
            chat_id: The chat.
            message_id: The last message to copy.
            new_chat_id: Any id; a new one when None. Making the same fork again changes nothing.
            user_id: The owner of the new chat; when None that of the old one, or the user whom the ledger is limited to. Members
                of the old chat are none of the new one.
            title: Its title; that of the old one when None.
            metadata: More metadata of the new chat.

        Raises:
            ChatNotFoundError, MessageNotFoundError: The chat or the message is not there.
            WrongChatError: The message belongs to another chat.
            ChatExistsError: There is another chat of the new id.
        """
        check_id(chat_id, "chat_id")
        with self._store.snapshot(ChatsToRead(chat_id)) as snapshot:
            source = snapshot.chat(chat_id)
            require_chat(source)
            check_target(source, check_id(message_id, "message_id"))
            place, chat = source.place(message_id), source.chat
            assert place is not None, "the message is there"
            assert chat is not None, "the chat is there"
            chain = source.chains.chain(place)
            owner = chat.user_id if snapshot.user_id is None else snapshot.user_id
        fork = PlannedFork(
            source_id=chat_id,
            chain=chain,
            user_id=owner if user_id is None else user_id,
            title=chat.title if title is None else title,
            metadata=metadata,
        )
        # Made here and not in the decision, which may be asked several times: a retry must not name the copies anew.
        new_ids, branch_id = {message.id: new_id() for message in chain}, new_id()
        fork_id = new_id() if new_chat_id is None else check_id(new_chat_id, "new_chat_id")
        self._store.execute(
            CHATS,
            fork_id,
            lambda state, now: decide_fork_chat(state, fork, new_ids=new_ids, branch_id=branch_id, now=now),
            kind=ChatCreated,
        )
        with self._store.snapshot(ChatsToRead(fork_id, is_written=True)) as snapshot:
            made = snapshot.chat(fork_id).chat
        assert made is not None, "the fork was made"
        return made

    def forks(self, chat_id: str, *, message_id: str | None = None) -> list[Chat]:
        """
        The chats that were forked from a chat, or at one message of it, the oldest first. None for an unknown one.

        Source: the LMDB index at `position`, by the metadata of the forks.
        """
        chat_id = sought_id(chat_id, "chat_id")
        if message_id is not None:
            message_id = sought_id(message_id, "message_id")
        if NO_ID in {chat_id, message_id}:
            return []
        with self._store.snapshot(ChatsToRead(are_all=True)) as snapshot:
            forks = snapshot.list_chats(ChatList(entries=((BRANCHED_FROM_CHAT, chat_id),)))
        at_message = [chat for chat in forks if message_id in {None, (chat.metadata or {}).get(BRANCHED_FROM)}]
        return sorted(at_message, key=lambda chat: (chat.created_at, chat.id))
