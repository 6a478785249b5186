"""Branches: create, fork, activate, rename, move, delete."""

from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Literal

from chatledger.domain.chat.decide_branches import (
    decide_activate,
    decide_create_branch,
    decide_delete_branch,
    decide_fork,
    decide_move_head,
    decide_rename_branch,
)
from chatledger.domain.chat.events import (
    Body,
    BranchActivated,
    BranchCreated,
    BranchDeleted,
    BranchRenamed,
    HeadMoved,
    Recorded,
)
from chatledger.domain.errors import BranchExistsError, BranchNotFoundError, HeadConflictError, InvalidValueError
from chatledger.domain.limits import check_choice, check_id, check_time, sought_id
from chatledger.domain.values import AnyHead, Branch
from chatledger.projections.chat.reader import IndexedChat
from chatledger.projections.log.kinds import CHATS

from ..store.commands import ChatsToRead
from .drafts import new_id
from .port import LedgerPart, StorePort
from .scopes.as_of import AsOfStore, find_point


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
            name=body.name,
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
            if isinstance(
                self._store, AsOfStore
            ):  # the table of ids is that of now: a branch that was deleted since is not in it
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
        chat_id = sought_id(chat_id, "chat_id")
        with self._store.snapshot(ChatsToRead(chat_id)) as snapshot:
            chat = snapshot.chat(chat_id)
            return None if chat.record is None else chat.branch(chat.record.active_branch)

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
        chat_id = sought_id(chat_id, "chat_id")
        with self._store.snapshot(ChatsToRead(chat_id)) as snapshot:
            return snapshot.chat(chat_id).branches()


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
