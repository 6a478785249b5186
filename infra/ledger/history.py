"""`MessageHistory` and `AsyncMessageHistory`: one conversation as frameworks store it, for adapters of theirs."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from msgspec import UNSET, UnsetType

from chatledger.domain.chat.commit import COMMITTED, Commit, decide
from chatledger.domain.chat.events import Body, ChatDeleted, MessagesAppended
from chatledger.domain.chat.history import History, Standing, Told, read_history
from chatledger.domain.chat.state import ChatState
from chatledger.domain.errors import ChatExistsError, MessageNotFoundError, OwnerMismatchError
from chatledger.domain.limits import check_id, sought_id
from chatledger.domain.values import Annotation, Branch, Message, NewMessage
from chatledger.projections.chat.reader import IndexedChat
from chatledger.projections.log.kinds import CHATS

from ..store.commands import ChatsToRead
from .aio.async_ledger import AsyncLedger
from .aio.awaiting import awaited
from .drafts import Messages, as_drafts, new_id
from .port import LedgerPart, store_of

T = TypeVar("T")


class MessageHistory:
    """
    The history of one conversation, which is a chat: what an adapter reads and writes for a framework.

    Whatever framework wrote it, it reads what counts: neither hidden nor replaced messages, of one branch. Each call that writes is
    one commit, all or nothing; nothing that was said is lost by any of them. Safe for threads.

    Args:
        ledger: A ledger, also one limited to a user; or a view of an earlier moment, which is read only.
        chat_id: The id of the chat.
        branch: The branch; None: the active one, whichever that is.
        owner: The owner of a chat that is made. None: the user of the ledger, or nobody.

    Example:
        history = MessageHistory(ledger, "trip")
        history.add([user("Where is the fado?"), assistant("In Alfama.")])
        history.messages(limit=50)
    """

    def __init__(
        self, ledger: LedgerPart, chat_id: str, *, branch: str | None = None, owner: str | None = None
    ) -> None:
        self._ledger, self.chat_id, self._branch = ledger, chat_id, branch
        self._owner = getattr(ledger, "user_id", "") if owner is None else owner

    def messages(self, *, limit: int | None = None) -> list[Message]:
        """
        Return the messages that count, oldest first; none when there is no such chat.

        Args:
            limit: At most so many, the newest ones; all when None.

        Raises:
            BranchNotFoundError: The chat has no such branch.

        Source: the LMDB index. Costs O(result), however long the branch is.
        """
        return self.read(lambda history: history.newest(limit)) or []

    def read(self, read: Callable[[History], T]) -> T | None:
        """
        Return what a function reads of the branch as it is at one moment; None when there is no such chat.

        Raises:
            BranchNotFoundError: The chat has no such branch.
        """
        sought = sought_id(self.chat_id, "chat_id")
        with store_of(self._ledger).snapshot(ChatsToRead(sought)) as snapshot:
            history = read_history(snapshot.chat(sought), self._branch)
            return None if history is None else read(history)

    def branches(self) -> list[tuple[Branch, int]]:
        """
        Return the branches by `created_at`, each with the number of turns of a user on it; none when there is no such chat.

        Source: the LMDB index. Costs O(branches); no branch is read.
        """
        sought = sought_id(self.chat_id, "chat_id")
        with store_of(self._ledger).snapshot(ChatsToRead(sought)) as snapshot:
            chat = snapshot.chat(sought)
            turns = {
                name: 0 if place is None else chat.chains.turns(place).number for _, name, place in chat.branch_places()
            }
            return [(branch, turns[branch.name]) for branch in chat.branches()]

    def add(
        self,
        messages: Messages,
        *,
        reused_ids: bool = False,
        annotation: Annotation | None = None,
        chat_metadata: dict[str, Any] | None = None,
    ) -> list[Message]:
        """
        Add messages at the end of the branch; the chat is made if there is none. Costs the same in a long chat as in a short one.

        A message that the branch has already, with its id and content, is left out: so a call that is repeated, because its answer
        was lost, changes nothing. An id that another message has is not used again, but one made of it.

        Args:
            messages: As `Ledger.append` takes them.
            reused_ids: Whether several messages may have the same id, as some models give all their answers the same. Then only
                those are left out, from the first on, with which the branch ends.
            annotation: The annotation of those that are added, in the same commit.
            chat_metadata: Keys to set in the metadata of the chat, in the same commit.

        Returns:
            The messages that were added.

        Raises:
            BranchNotFoundError: The chat has no such branch.
            OwnerMismatchError: The chat belongs to another user.
            PayloadTooLargeError: A message exceeds the size limit of an event.
            InvalidValueError: A value breaks a rule.
        """
        drafts = as_drafts(messages)

        def add(commit: Commit) -> list[Message]:
            if not commit.begin(metadata=chat_metadata) and chat_metadata is not None:
                commit.describe(metadata=chat_metadata)
            return commit.add(drafts, reused_ids=reused_ids, annotation=annotation)

        return self.commit(add) or []

    def replace(
        self,
        base: str | None,
        messages: Messages,
        *,
        expected: Branch | None = None,
        activate: bool = True,
    ) -> str | None:
        """
        Go on with messages after `base`, in place of those that follow it: on a new branch, named after this one.

        Args:
            base: A message of the branch; None for all of it. Where it is the last one, the branch itself goes on.
            messages: As `Ledger.append` takes them; their ids may be taken.
            expected: Only if this is still the branch, as it was read, and still the active one if it is to be.
            activate: Whether a new branch becomes the active one.

        Returns:
            The name of the branch that has them; None where the branch is not as expected, and nothing was written.

        Raises:
            ChatNotFoundError, BranchNotFoundError, MessageNotFoundError: Something is not there.
            InvalidValueError: A value breaks a rule.
        """
        drafts = as_drafts(messages)

        def replace(commit: Commit) -> str | None:
            if expected is not None:
                present = commit.state.branch(expected.name)
                # A chat that was erased and begun anew may have a branch and messages of the same names.
                is_as_read = (
                    present is not None
                    and (present.id, present.head_message_id) == (expected.id, expected.head_message_id)
                    and (present.is_active or not activate)
                )
                if not is_as_read or commit.branch != expected.name:
                    return None
            return commit.replace(base, drafts, activate=activate)

        return self.commit(replace)

    def clear(self, *, activate: bool = True) -> str | None:
        """Go on with an empty branch; returns its name, None where there is nothing to clear. What was said stays on its own."""
        return self.commit(lambda commit: commit.clear(activate=activate))

    def pop(self, rest: Callable[[Message], Sequence[NewMessage] | None] = lambda _message: ()) -> Message | None:
        """
        Take the newest message that counts off the branch and return it; None where there is none. Concurrent calls get others.

        Args:
            rest: For callers that take a part of a message: returns the messages that are to stand in its place; None where nothing
                of it counts, so that the one before is taken. A pure function, which may be called several times.
        """
        return self.commit(lambda commit: commit.pop(rest))

    def remove(self, message_id: str) -> Message | None:
        """
        Take a message that counts out of the branch and return it; None where it is not there.

        The newest one stays as another version of what is said next, others as hidden messages, which no history shows any more.
        """

        def remove(commit: Commit) -> Message | None:
            history = commit.history()
            base = None if history is None else history.find(message_id)
            standing = None if history is None or base is None else history.standing_at(base.id)
            if standing is None:
                return None
            commit.remove(standing)
            return standing.message

        return self.commit(remove)

    def annotate(
        self,
        message_ids: Sequence[str],
        *,
        hidden: bool | UnsetType = UNSET,
        stale: bool | UnsetType = UNSET,
        replaced_by: str | UnsetType | None = UNSET,
        metadata: dict[str, Any] | UnsetType = UNSET,
    ) -> None:
        """
        Change annotations, the same way for several messages in one commit; see `Ledger.annotate`.

        Raises:
            MessageNotFoundError: A message is not there.
        """

        def annotate(commit: Commit) -> None:
            for message_id in message_ids:
                if not commit.has(message_id):
                    raise MessageNotFoundError(message_id, chat_id=self.chat_id)
            commit.annotate(message_ids, hidden=hidden, stale=stale, replaced_by=replaced_by, metadata=metadata)

        self.commit(annotate)

    def branch_off(self, base: str | None, *, name: str | None = None, activate: bool = True) -> str | None:
        """
        Make a branch that ends with a message of the chat, an empty one for None, and return its name, as `commit` does.

        Raises:
            ChatNotFoundError, MessageNotFoundError: The chat or the message is not there.
            BranchExistsError: There is one of that name.
        """
        return self.commit(lambda commit: commit.create_branch(base, name=name, activate=activate))

    def commit(self, change: Callable[[Commit], T]) -> T | None:
        """
        Carry out a decision of your own: one commit of what it says by the verbs of `Commit`, nothing where it says nothing.

        Args:
            change: The decision: a pure function, asked anew, with another commit, as often as others are faster. It makes no ids and
                keeps nothing; what it needs is made before.

        Returns:
            What the decision returned when it was carried out; None where a command of the same id was carried out before.

        Raises:
            OwnerMismatchError: A chat was to be made whose id another user has.
            InvalidValueError: The id is no id of a chat.
        """
        check_id(self.chat_id, "chat_id")
        unique_id, owner, branch = new_id(), self._owner, self._branch
        store = store_of(self._ledger)
        clean = None if store.redactor is None else store.redactor.message
        bodies: list[Body] = []
        outcome: T | None = None

        def decided(state: IndexedChat, now: int) -> list[Body]:
            nonlocal bodies, outcome
            bodies, outcome = decide(
                state, change, now=now, unique_id=unique_id, owner=owner, branch=branch, clean=clean
            )
            return bodies

        try:
            written = store.execute(CHATS, self.chat_id, decided, kind=COMMITTED)
        except ChatExistsError:  # a store of one user does not show the chats of others
            raise OwnerMismatchError(self.chat_id) from None
        if any(isinstance(recorded.body, ChatDeleted) for recorded in written):
            store.erase_deleted()
        # Where another writer carried out the command of this id meanwhile, these are its events, and not what was decided here.
        is_repeated = bool(written) and not (bodies and _is_begun_by(written[0].body, bodies[0]))
        return None if is_repeated else outcome


def _is_begun_by(written: Body, body: Body) -> bool:
    """Whether an event is that of a body, or the first of those that it became: messages that are too many for one are several."""
    if isinstance(written, MessagesAppended) and isinstance(body, MessagesAppended):
        return written.messages[0] is body.messages[0]
    return written is body


__all__ = ["ChatState", "Commit", "History", "MessageHistory", "Standing", "Told"]


class AsyncMessageHistory:
    """A `MessageHistory` whose methods are awaited; each runs in a worker thread, and one that has begun is waited for."""

    def __init__(
        self, ledger: AsyncLedger, chat_id: str, *, branch: str | None = None, owner: str | None = None
    ) -> None:
        self._ledger, self.chat_id, self._branch, self._owner = ledger, chat_id, branch, owner

    messages = awaited(MessageHistory.messages)
    read = awaited(MessageHistory.read)
    branches = awaited(MessageHistory.branches)
    add = awaited(MessageHistory.add)
    replace = awaited(MessageHistory.replace)
    clear = awaited(MessageHistory.clear)
    pop = awaited(MessageHistory.pop)
    remove = awaited(MessageHistory.remove)
    annotate = awaited(MessageHistory.annotate)
    branch_off = awaited(MessageHistory.branch_off)
    commit = awaited(MessageHistory.commit)

    async def run(self, call: Callable[[MessageHistory], T]) -> T:
        """Return the answer of a function of the history that runs in a worker thread: several calls for the price of one hop."""
        return await self._ledger.run(
            lambda ledger: call(MessageHistory(ledger, self.chat_id, branch=self._branch, owner=self._owner))
        )
