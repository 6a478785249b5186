"""Branches: create, fork, activate, rename, move, delete; and forks of whole chats, which begin with what another one said."""

from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Any, Literal

from chatledger.domain.chat.decide_branches import (
    check_target,
    decide_activate,
    decide_create_branch,
    decide_delete_branch,
    decide_fork,
    decide_move_head,
    decide_rename_branch,
)
from chatledger.domain.chat.decide_chats import require_chat
from chatledger.domain.chat.events import (
    Body,
    BranchActivated,
    BranchCreated,
    BranchDeleted,
    BranchRenamed,
    ChatCreated,
    HeadMoved,
    Recorded,
)
from chatledger.domain.chat.fork import BRANCHED_FROM, BRANCHED_FROM_CHAT, PlannedFork, decide_fork_chat
from chatledger.domain.errors import BranchExistsError, BranchNotFoundError, HeadConflictError, InvalidValueError
from chatledger.domain.limits import NO_ID, check_choice, check_id, check_time, sought_id
from chatledger.domain.values import AnyHead, Branch, Chat
from chatledger.projections.chat.lists import ChatList
from chatledger.projections.chat.reader import IndexedChat
from chatledger.projections.log.kinds import CHATS

from ..store.commands import ChatsToRead
from .drafts import new_id
from .port import LedgerPart, StorePort


class BranchMethods(LedgerPart):
    """The part of a ledger that is about branches."""

    def create_branch(
        self,
        chat_id: str,
        name: str,
        head_message_id: str | None,
        *,
        activate: bool = False,
        created_at: int | None = None,
        id: str | None = None,  # noqa: A002 - the field's name
    ) -> Branch:
        """
        Create a branch, and make it the active one if asked, in one commit.

        Args:
            chat_id: The chat.
            name: Unique in the chat, case-sensitive, 1 to 2,048 bytes.
            head_message_id: A message of the chat; None for an empty branch.
            activate: Whether it becomes the active branch.
            created_at: For imports; the time of the call when None.
            id: For imports, too; a new random one when None.

        Raises:
            ChatNotFoundError, MessageNotFoundError: The chat or the message is not there.
            WrongChatError: The message belongs to another chat.
            BranchExistsError: The name or the id is taken.
        """
        check_id(chat_id, "chat_id")
        if created_at is not None:
            check_time(created_at, "created_at")
        branch_id = new_id() if id is None else check_id(id, "branch id")

        def decide(state: IndexedChat, now: int) -> list[Body]:
            taken = [branch.name for branch in state.branches() if branch.id == id] if id is not None else []
            if taken:
                raise BranchExistsError(chat_id, taken[0])
            at = now if created_at is None else created_at
            return decide_create_branch(
                state, name, head_message_id, activate=activate, branch_id=branch_id, created_at=at
            )

        recorded = self._store.execute(CHATS, chat_id, decide, kind=BranchCreated)
        return self._created(chat_id, recorded)

    def fork(self, chat_id: str, message_id: str, *, activate: bool = True, base: str | None = None) -> Branch:
        """
        Create a branch at a message, named after another (`main-v2`, `main-v3`, ...), to go on from there.

        The old branch keeps its head. Two callers who fork at the same moment both succeed, with different names.

        Args:
            chat_id: The chat.
            message_id: The head of the new branch.
            activate: Whether it becomes the active branch.
            base: The branch it is named after; the active one when None.

        Raises:
            ChatNotFoundError, MessageNotFoundError: The chat or the message is not there.
            WrongChatError: The message belongs to another chat.
        """
        check_id(chat_id, "chat_id")
        branch_id = new_id()
        recorded = self._store.execute(
            CHATS,
            chat_id,
            lambda state, now: decide_fork(
                state, message_id, activate=activate, branch_id=branch_id, created_at=now, base=base
            ),
            kind=BranchCreated,
        )
        return self._created(chat_id, recorded)

    def _created(self, chat_id: str, recorded: list[Recorded]) -> Branch:
        body = recorded[0].body
        assert isinstance(body, BranchCreated), "a branch begins with its creation"
        with self._store.snapshot(ChatsToRead(chat_id, is_written=True)) as snapshot:
            chat = snapshot.chat(chat_id)
            place = None if body.head_message_id is None else chat.place(body.head_message_id)
            length = 0 if place is None else chat.chains.depth(place) + 1
        return Branch(
            id=body.branch_id,
            chat_id=chat_id,
            name=body.shown_name,
            head_message_id=body.head_message_id,
            is_active=body.is_active,
            message_count=length,
            created_at=body.created_at,
            number=body.number,
        )

    def get_branch(
        self,
        chat_id: str | None = None,
        name: str | None = None,
        *,
        id: str | None = None,  # noqa: A002 - as above
    ) -> Branch | None:
        """
        The branch of that name, or of that id, or None.

        Args:
            chat_id: The chat. May be left out with `id`: then the branch says which chat it is of.
            name: Its name, or
            id: its id. Ids that you gave yourself may be those of branches of several chats; without `chat_id`, the oldest chat
                counts.

        Raises:
            InvalidValueError: Neither name nor id is given, or both; or only an id in a view of an earlier moment.

        Source: the LMDB index at `position`.
        """
        if (name is None) == (id is None):
            msg = "give the name of a branch or its id"
            raise InvalidValueError(msg)
        if chat_id is None:
            if id is None:
                msg = "the name of a branch is that of one chat's branch: give the chat too, or the id of the branch"
                raise InvalidValueError(msg)
            from .scopes.as_of import AsOfStore

            # The table of ids is that of now: a branch that was deleted since is not in it.
            if isinstance(self._store, AsOfStore):
                msg = "which chat had a branch at an earlier moment is not known; give the chat too"
                raise InvalidValueError(msg)
            sought = sought_id(id, "branch id")
            with self._store.snapshot(ChatsToRead(branch_id=sought)) as snapshot:
                return snapshot.branch(sought)
        chat_id = sought_id(chat_id, "chat_id")
        with self._store.snapshot(ChatsToRead(chat_id)) as snapshot:
            chat = snapshot.chat(chat_id)
            if name is not None:
                return chat.branch(sought_id(name, "branch name"))
            return chat.branch_with_id(sought_id(id, "branch id"))

    def get_active_branch(self, chat_id: str) -> Branch | None:
        """The active branch; None only when there is no such chat."""
        return self._of_chat(
            chat_id, lambda chat: None if chat.record is None else chat.branch(chat.record.active_branch)
        )

    def set_active_branch(self, chat_id: str, name: str) -> Branch:
        """
        Make another branch the active one.

        Raises:
            ChatNotFoundError, BranchNotFoundError: The chat or the branch is not there; the active branch stays.
        """
        check_id(chat_id, "chat_id")
        recorded = self._store.execute(
            CHATS, chat_id, lambda state, _now: decide_activate(state, name), kind=BranchActivated
        )
        return branch_after(self._store, chat_id, recorded, name)

    def rename_branch(self, chat_id: str, name: str, new_name: str) -> Branch:
        """
        Give a branch another name. Its id, its messages and whether it is active stay, as do the names made from the old one.

        Engines and others that go by the old name find no branch of it any more.

        Args:
            chat_id: The chat.
            name: The present name; `main` can be renamed too.
            new_name: Unique in the chat, case-sensitive, 1 to 2,048 bytes. The present one changes nothing.

        Returns:
            The branch under its new name.

        Raises:
            ChatNotFoundError, BranchNotFoundError: The chat or the branch is not there.
            BranchExistsError: The new name is taken.
        """
        check_id(chat_id, "chat_id")
        recorded = self._store.execute(
            CHATS, chat_id, lambda state, _now: decide_rename_branch(state, name, new_name), kind=BranchRenamed
        )
        return branch_after(self._store, chat_id, recorded, new_name)

    def delete_branch(self, chat_id: str, name: str) -> bool:
        """
        Remove a branch; its messages stay, as versions of others, and `show` makes a branch for them again.

        Of the active branch, the one seen last before it becomes the active one, in the same commit. Automatic names are not given
        a second time. To erase what was said, delete the chat.

        Returns:
            Whether there was one of that name.

        Raises:
            LastBranchError: It is the only branch of the chat.
        """
        check_id(chat_id, "chat_id")
        written = self._store.execute(
            CHATS,
            chat_id,
            lambda state, _now: decide_delete_branch(state, name),
            kind=(BranchActivated, BranchDeleted),
        )
        return bool(written)

    def move_head(
        self,
        chat_id: str,
        branch: str,
        message_id: str | None,
        *,
        expected: str | Literal[AnyHead.ANY] | None,
        on_conflict: Literal["raise", "return"] = "raise",
    ) -> bool:
        """
        Point a branch at another message of the chat, if it is where the caller thinks it is.

        Args:
            chat_id: The chat.
            branch: Its name.
            message_id: The new head; None empties the branch. Messages are never removed.
            expected: The present head, None for an empty branch, or `chatledger.ANY`.
            on_conflict: Whether a head elsewhere raises, or returns False.

        Returns:
            Whether the branch is at `message_id` now.

        Raises:
            ChatNotFoundError, BranchNotFoundError, MessageNotFoundError: Something is not there.
            WrongChatError: The message belongs to another chat.
            HeadConflictError: The head is elsewhere.
        """
        check_id(chat_id, "chat_id")
        check_choice(on_conflict, ("raise", "return"), "on_conflict")
        try:
            self._store.execute(
                CHATS,
                chat_id,
                lambda state, now: decide_move_head(state, branch, message_id, expected=expected),
                kind=HeadMoved,
            )
        except HeadConflictError:
            if on_conflict == "raise":
                raise
            return False
        return True

    def list_branches(self, chat_id: str) -> list[Branch]:
        """
        The branches by `created_at`, ties by name; none when there is no such chat.

        Source: the LMDB index at `position`. Costs O(branches); no chain is walked for the counts.
        """
        return self._of_chat(chat_id, lambda chat: chat.branches())


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
            copy = snapshot.chat(fork_id).chat
        assert copy is not None, "the fork was made"
        return copy

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


def branch_after(store: StorePort, chat_id: str, recorded: Sequence[Recorded], name: str) -> Branch:
    """
    Return the branch that a commit activated, made or renamed; the branch of that name when nothing was written.

    It is returned as it is now, also under a newer name; where it was deleted since, as the commit left it.

    Raises:
        BranchNotFoundError: The chat was deleted since.
    """
    events = (BranchActivated, BranchCreated, BranchRenamed)
    number = next((event.body.number for event in recorded if isinstance(event.body, events)), None)
    with store.snapshot(ChatsToRead(chat_id, is_written=True)) as snapshot:
        chat = snapshot.chat(chat_id)
        # A chat that was erased and begun anew has other branches of the same numbers.
        is_begun_anew = bool(recorded) and (chat.stream_no or 0) > recorded[0].position
        branch = None if is_begun_anew else chat.branch(name)
        if number is not None and not is_begun_anew and (branch is None or branch.number != number):
            branch = _with_number(chat.branches(), number)
    # A repeated command answers what it answered, also after the branch is gone.
    if branch is None and number is not None:
        from .scopes.as_of import AsOfStore, find_point

        with (
            closing(AsOfStore(lambda: store, find_point(store, recorded[-1].position))) as then,
            then.snapshot(ChatsToRead(chat_id)) as snapshot,
        ):
            branch = _with_number(snapshot.chat(chat_id).branches(), number)
    if branch is None:
        raise BranchNotFoundError(chat_id, name)
    return branch


def _with_number(branches: Iterable[Branch], number: int) -> Branch | None:
    return next((branch for branch in branches if branch.number == number), None)
