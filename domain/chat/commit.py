"""
Commits: what is done to the history of a chat, decided as one.

A decision is a function of a `Commit`, which is made anew for each state that it is asked on: it reads the chat, says what is to
be done by the verbs of the commit, and returns what the caller wants to know. Nothing is kept between two calls.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec import UNSET, UnsetType

from ..errors import (
    BranchExistsError,
    BranchNotFoundError,
    ChatNotFoundError,
    InvalidValueError,
    MessageConflictError,
)
from ..limits import check_id, same_json
from ..values import MAIN, MAIN_NUMBER, Annotation, Message, NewMessage
from .decide_branches import check_target
from .decide_chats import decide_create_chat, decide_delete_chat, decide_update_chat
from .decide_messages import check_message, check_references, missing_messages
from .decide_runs import annotations
from .events import (
    Body,
    BranchActivated,
    BranchCreated,
    BranchDeleted,
    ChatCreated,
    ChatDeleted,
    ChatUpdated,
    HeadMoved,
    MessagesAnnotated,
    MessagesAppended,
)
from .fork import bases_of, next_name
from .history import History, Standing, annotation_events, read_history, replacement, standing
from .state import ChatState, next_branch_number

T = TypeVar("T")

COMMITTED: Final = (
    ChatCreated,
    ChatUpdated,
    ChatDeleted,
    MessagesAppended,
    BranchCreated,
    BranchActivated,
    BranchDeleted,
    HeadMoved,
    MessagesAnnotated,
)
"""The events that commits write."""


def says_the_same(stored: Message, draft: NewMessage) -> bool:
    """Whether a stored message and another one are equal but for their ids, parents and times."""
    if draft.form not in {UNSET, stored.form}:  # an unset form follows from the data, which are compared
        return False
    ours = (stored.name, stored.type, stored.sender_id, stored.agent_id, stored.reply_to)
    theirs = (draft.name, draft.type, draft.sender_id, draft.agent_id, draft.reply_to)
    return ours == theirs and same_json(_without_id(stored.data), _without_id(draft.data))


def _without_id(data: Any) -> Any:
    return {**cast("dict[str, Any]", data), "id": ""} if isinstance(data, dict) else data


class Commit:
    """
    A commit in the making: a chat as a decision finds it, and what the decision has said so far.

    Verbs see what those before them did; `state` and `history` show the chat as it was. Each message has an id.

    Args:
        state: The chat, which may not be there.
        now: The time in ms.
        unique_id: An id that nothing has; those of what is made begin with it.
        owner: The owner of a chat that is made.
        branch: The branch that verbs mean which name none; the active one when None.
        clean: Returns a message as it may be stored, such as without secrets; None where all may be as they are.
    """

    def __init__(
        self,
        state: ChatState,
        *,
        now: int,
        unique_id: str,
        owner: str = "",
        branch: str | None = None,
        clean: Callable[[NewMessage], NewMessage] | None = None,
    ) -> None:
        self._clean = clean
        self.state, self.now_ms, self.unique_id = state, now, unique_id
        self._owner, self._branch = owner, branch
        self._active = None if state.record is None else state.record.active_branch
        self._bodies: list[Body] = []
        self._new: dict[str, Message] = {}
        self._heads: dict[str, str | None] = {}
        self._created: dict[str, tuple[int, str]] = {}

    @property
    def is_begun(self) -> bool:
        """Whether there is a chat by now."""
        return self._active is not None

    @property
    def active_branch(self) -> str:
        """The name of the active branch. Raises `ChatNotFoundError`."""
        if self._active is None:
            raise ChatNotFoundError(self.state.chat_id)
        return self._active

    @property
    def branch(self) -> str:
        """The name of the branch that verbs mean which name none."""
        return self._branch or self.active_branch

    def history(self) -> History | None:
        """Return that branch as it was; None when there was no chat. Raises `BranchNotFoundError`."""
        return read_history(self.state, self._branch)

    def message(self, message_id: str) -> Message | None:
        """Return a message of the chat."""
        return self._new.get(message_id) or self.state.message(message_id)

    def has(self, message_id: str) -> bool:
        """Whether the chat has a message."""
        return message_id in self._new or self.state.has_message(message_id)

    def has_branch(self, name: str) -> bool:
        """Whether the chat has a branch."""
        return name in self._heads or self.state.branch(name) is not None

    def head(self, branch: str | None = None) -> str | None:
        """Return the last message of a branch; None when it is empty. Raises `BranchNotFoundError`."""
        name = self.branch if branch is None else branch
        if name not in self._heads:
            stored = self.state.branch(check_id(name, "branch"))
            if stored is None:
                raise BranchNotFoundError(self.state.chat_id, name)
            self._heads[name] = stored.head_message_id
        return self._heads[name]

    def branch_ending_at(self, message_id: str) -> str | None:
        """Return the name of a branch whose head a message is, the one seen last first; None when there is none."""
        stored = [] if self.state.record is None else self.state.branches_seen()
        heads = {branch.name: branch.head_message_id for branch in stored} | self._heads
        return next((name for name, head in heads.items() if head == message_id), None)

    # What is done to a chat.

    def begin(
        self,
        *,
        title: str | None = None,
        metadata: dict[str, Any] | None = None,
        created_at: int | None = None,
    ) -> bool:
        """Make the chat if there is none, for the owner; returns whether it was made."""
        if self._active is not None:
            return False
        self._bodies += decide_create_chat(
            self.state,
            user_id=self._owner,
            title=title,
            metadata=metadata,
            branch_id=self.unique_id,
            created_at=created_at,
        )
        self._active, self._heads[MAIN], self._created[MAIN] = MAIN, None, (MAIN_NUMBER, self.unique_id)
        return True

    def describe(
        self,
        *,
        title: str | UnsetType | None = UNSET,
        metadata: dict[str, Any] | None = None,
        replace_metadata: dict[str, Any] | UnsetType | None = UNSET,
    ) -> None:
        """Set the title of a chat that was there, keys of its metadata, or all of them."""
        self._bodies += decide_update_chat(self.state, title=title, merged_metadata=metadata, metadata=replace_metadata)

    def delete_chat(self) -> None:
        """Delete the chat, with all its branches and its history."""
        self._bodies += decide_delete_chat(self.state, user_id=None)

    # What is done to branches.

    def create_branch(
        self, head: str | None, *, name: str | None = None, after: str | None = None, activate: bool = True
    ) -> str:
        """
        Make a branch that ends with a message, an empty one for None; returns its name.

        Args:
            head: The message.
            name: Its name; one after that of the branch `after` when None, such as `main-v2`.
            after: That branch; the one of the commit when None.
            activate: Whether it becomes the active one.

        Raises:
            BranchExistsError: There is one of that name.
        """
        if head is not None and head not in self._new:
            check_target(self.state, head)
        if name is None:
            base = self.branch if after is None else after
            name = next_name(base, named_after=self._branches_named_after, is_taken=self.has_branch)
        elif self.has_branch(check_id(name, "branch name")):
            raise BranchExistsError(self.state.chat_id, name)
        branch_id = f"{self.unique_id}-{len(self._created)}"
        # `main` has a number of its own, which the state of a chat that is not there yet has counted already.
        number = next_branch_number(self.state) + len(self._created) - (MAIN in self._created)
        self._bodies.append(BranchCreated(number, branch_id, name, head, self.now_ms, activate))
        self._heads[name], self._created[name] = head, (number, branch_id)
        if activate:
            self._active = name
        return name

    def activate(self, branch: str) -> None:
        """Make a branch the active one; nothing when it is. Raises `BranchNotFoundError`."""
        if branch != self._active:
            self._bodies.append(BranchActivated(self.branch_number(branch), branch))
            self._active = branch

    def move_head(self, head: str | None, *, branch: str | None = None) -> None:
        """Let a branch end with another message of the chat, or with none. Raises `BranchNotFoundError`."""
        name = self.branch if branch is None else branch
        at = self.head(name)
        if head is not None and head not in self._new:
            check_target(self.state, head)
        if at == head:
            return
        last = self._bodies[-1] if self._bodies else None
        if isinstance(last, MessagesAppended) and last.branch is None and _is_chain(last.messages, at, head):
            self._bodies[-1] = MessagesAppended(last.messages, self.branch_number(name), at, head)  # one event for both
        else:
            self._bodies.append(HeadMoved(self.branch_number(name), name, at, head))
        self._heads[name] = head

    def delete_branch(self, branch: str) -> None:
        """Delete a branch that is not the active one. Its messages stay. Raises `BranchNotFoundError`."""
        self._bodies.append(BranchDeleted(self.branch_number(branch), branch))
        del self._heads[branch]

    def branch_number(self, branch: str) -> int:
        """Return the number by which events name a branch. Raises `BranchNotFoundError`."""
        self.head(branch)
        stored = self.state.branch(branch)
        return self._created[branch][0] if stored is None else stored.number

    def branch_id(self, branch: str) -> str:
        """Return the id of a branch. Raises `BranchNotFoundError`."""
        self.head(branch)
        stored = self.state.branch(branch)
        return self._created[branch][1] if stored is None else stored.id

    def _branches_named_after(self, base: str) -> int:
        created = sum(base in bases_of(name) for name in self._created)
        return created + (0 if self.state.record is None else self.state.branches_named_after(base))

    # What is done to messages.

    def append(
        self, drafts: Iterable[NewMessage], *, branch: str | None = None, is_owned: bool = False
    ) -> list[Message]:
        """
        Chain messages onto the head of a branch, which moves to the last of them; returns them.

        Args:
            drafts: The messages.
            branch: The branch; the one of the commit when None.
            is_owned: Whether their data are JSON that was just read and nobody changes: then they are neither checked nor copied.

        Raises:
            BranchNotFoundError: There is no such branch.
            MessageConflictError: An id is taken.
            MessageNotFoundError: A `reply_to` is not in the chat.
            InvalidValueError: A value breaks a rule.
        """
        name = self.branch if branch is None else branch
        base = parent = self.head(name)
        chained: list[Message] = []
        for draft in self._cleaned(drafts):
            message = check_message(draft, self.now_ms, is_owned=is_owned)
            if self.has(message.id):
                raise MessageConflictError(message.id, chat_id=self.state.chat_id)
            if self.state.is_elsewhere(message.id):
                raise MessageConflictError(message.id, chat_id=self.state.chat_id, other_chat=True)
            check_references(self.state, message, self._new)
            if message.parent_id not in {None, parent}:
                msg = (
                    f"message {message.id!r} names the parent {message.parent_id!r}, but is appended behind {parent!r}"
                )
                raise InvalidValueError(msg)
            message = msgspec.structs.replace(message, parent_id=parent)
            chained.append(message)
            self._new[message.id] = message
            parent = message.id
        if chained:
            self._bodies.append(MessagesAppended(tuple(chained), self.branch_number(name), base, parent))
            self._heads[name] = parent
        return chained

    def insert(self, drafts: Sequence[NewMessage]) -> list[Message]:
        """
        Add messages with parents of their own, and move no head; returns those that were not there yet.

        Raises:
            ParentNotFoundError, MessageConflictError, InvalidValueError: As `Ledger.add_messages` does.
        """
        added = missing_messages(self.state, self._cleaned(drafts), now=self.now_ms)
        if added:
            self._bodies.append(MessagesAppended(tuple(added)))
            self._new |= {message.id: message for message in added}
        return added

    def annotate(
        self,
        message_ids: Iterable[str],
        *,
        hidden: bool | UnsetType = UNSET,
        stale: bool | UnsetType = UNSET,
        replaced_by: str | UnsetType | None = UNSET,
        metadata: dict[str, Any] | UnsetType = UNSET,
    ) -> None:
        """
        Change annotations, the same way for several messages of the chat: of those that do not say so already.

        UNSET leaves; the keys of `metadata` are set among those that are there.
        """
        fields = {"hidden": hidden, "stale": stale, "replaced_by": replaced_by, "metadata": metadata}
        changes: dict[str, Any] = {name: value for name, value in fields.items() if value is not UNSET}
        ids = dict.fromkeys(message_ids)
        # Of messages of this commit the state knows no annotation, so their event is not compared with one.
        stored = [message_id for message_id in ids if message_id not in self._new]
        if len(stored) < len(ids):
            new = tuple(message_id for message_id in ids if message_id in self._new)
            self._bodies.append(MessagesAnnotated(new, changes))
        if metadata is UNSET:
            self._bodies += annotations(self.state, stored, changes)
            return
        for message_id in stored:
            before = self.state.annotation(message_id) or Annotation()
            merged = {**before.metadata, **metadata}
            self._bodies += annotations(self.state, [message_id], {**changes, "metadata": merged})

    # What is done to histories.

    def add(
        self, drafts: Sequence[NewMessage], *, reused_ids: bool = False, annotation: Annotation | None = None
    ) -> list[Message]:
        """
        Add messages at the end of the branch; the chat is made if there is none. Returns those that were added.

        A message that the branch has already, with its id and content, is left out: so a call that is repeated changes nothing.
        An id that another message has is not used again, but one made of it: nothing is lost.

        Args:
            drafts: The messages.
            reused_ids: Whether several messages may have the same id, as some models give all their answers the same. Then only
                those are left out, from the first on, with which the branch ends.
            annotation: The annotation of those that are added.

        Raises:
            BranchNotFoundError: There is no such branch.
        """
        self.begin()
        head, drafts = self.head(), self._cleaned(drafts)
        if len(drafts) > 1:
            self.state.look_up(draft.id for draft in drafts if draft.id is not None)  # one read of the index for all
        if reused_ids:
            new = drafts[self._count_repeated(drafts, head) :]
        else:
            new = [draft for draft in drafts if not self._is_there(draft, head)]
        added = self.append(self.with_free_ids(new))
        if annotation is not None:
            self._bodies += annotation_events((message.id, annotation) for message in added)
        return added

    def replace(self, base: str | None, drafts: Sequence[NewMessage], *, activate: bool = True) -> str:
        """
        Go on with messages after `base`, in place of those that follow it on the branch: on a new one, named after it.

        Args:
            base: A message of the branch; None for all of it. Where it is the last one, the branch itself goes on.
            drafts: The messages; their ids may be taken.
            activate: Whether a new branch becomes the active one.

        Returns:
            The name of the branch that has them.
        """
        name = self.branch
        if base != self.head(name):
            name = self.create_branch(base, after=name, activate=activate)
        self.append(self.with_free_ids(drafts), branch=name)
        return name

    def clear(self, *, activate: bool = True) -> str | None:
        """Go on with an empty branch, named after this one; returns its name, None where this one is empty already."""
        if not self.is_begun or self.head() is None:
            return None
        return self.replace(None, (), activate=activate)

    def pop(self, rest: Callable[[Message], Sequence[NewMessage] | None] = lambda _message: ()) -> Message | None:
        """
        Take the newest message that counts off the branch, whose head moves back; returns it, None where there is none.

        Args:
            rest: For who takes a part of a message: of a message, those that are to stand in its place; None where nothing of
                it counts, so that the one before is taken.
        """
        history = self.history()
        for chain in () if history is None else history.growing(1):
            for base, message in reversed(standing(self.state, chain)):
                drafts = rest(message)
                if drafts is not None:
                    self.move_head(base.parent_id)
                    self.append(self.with_free_ids(drafts))
                    return message
        return None

    def remove(self, counted: Standing) -> None:
        """
        Take a message that counts out of the branch.

        Where nothing that counts follows it the head moves back, so that what is said instead is another version of it. Elsewhere
        it is hidden where it stands: what follows keeps its place and ids.
        """
        history = self.history()
        newest = [] if history is None else history.page(None, 1, ascending=False)
        if newest and newest[0].base.id == counted.base.id:
            self.move_head(counted.base.parent_id)
        else:
            self.hide([counted])

    def put(self, base: Message, draft: NewMessage) -> None:
        """Let a message stand in the place of one of the chat, of which it is another version; nothing where that says the same."""
        new_id = replacement(self.state, base.id)
        stands = base if new_id is None else self.state.message(new_id) or base
        (draft,) = self._cleaned([draft])
        if says_the_same(stands, draft):
            self.annotate([stands.id], hidden=False)
            return
        number = 2
        while self.has(own := f"{base.id}:{number}") or self.state.is_elsewhere(own):
            number += 1
        self.insert([msgspec.structs.replace(draft, id=own, parent_id=base.parent_id)])
        self.annotate([base.id, stands.id], replaced_by=own)

    def hide(self, counted: Iterable[Standing]) -> None:
        """Hide messages, and those in whose places they stand: models, searches and histories do not show them any more."""
        self.annotate((message.id for pair in counted for message in pair), hidden=True)

    def with_free_ids(self, drafts: Iterable[NewMessage]) -> list[NewMessage]:
        """Return messages under ids that nothing has: where theirs are taken, made of them and of the id of the commit."""
        free: list[NewMessage] = []
        taken: set[str] = set()
        for draft in drafts:
            message_id = own = draft.id or self.state.chat_id
            if draft.id is None or own in taken or self.has(own) or self.state.is_elsewhere(own):
                message_id = f"{own}:{self.unique_id}-{len(self._new) + len(free)}"
            taken.add(message_id)
            free.append(draft if message_id == draft.id else msgspec.structs.replace(draft, id=message_id))
        return free

    def _cleaned(self, drafts: Iterable[NewMessage]) -> Sequence[NewMessage]:
        # Before anything is compared: what is stored was cleaned too.
        return [*drafts] if self._clean is None else [*map(self._clean, drafts)]

    def _is_there(self, draft: NewMessage, head: str | None) -> bool:
        if draft.id is None or head is None:
            return False
        stored = self.state.message(draft.id)
        return stored is not None and says_the_same(stored, draft) and self.state.is_ancestor(stored.id, head)

    def _count_repeated(self, drafts: Sequence[NewMessage], head: str | None) -> int:
        """The number of messages, from the first on, that the branch ends with already."""
        if head is None or head in self._new:
            return 0
        for count in range(len(drafts), 0, -1):
            if _has_id_of(head, drafts[count - 1]):  # mostly none has: then nothing is read
                newest = self.state.chain(head, count)
                if len(newest) == count and all(
                    _has_id_of(stored.id, draft) and says_the_same(stored, draft)
                    for draft, stored in zip(drafts, newest, strict=False)  # of the first `count` drafts
                ):
                    return count
        return 0

    def finished(self) -> list[Body]:
        """Return the events: what was appended to one branch in a row is one."""
        bodies: list[Body] = []
        run: list[MessagesAppended] = []
        for body in (*self._bodies, None):
            if run and not (isinstance(body, MessagesAppended) and body.branch == run[0].branch is not None):
                messages = tuple(message for appended in run for message in appended.messages)
                bodies.append(msgspec.structs.replace(run[0], messages=messages, to_head=run[-1].to_head))
                run = []
            if isinstance(body, MessagesAppended):
                run.append(body)
            elif body is not None:
                bodies.append(body)
        return bodies


def decide(
    state: ChatState,
    change: Callable[[Commit], T],
    *,
    now: int,
    unique_id: str,
    owner: str = "",
    branch: str | None = None,
    clean: Callable[[NewMessage], NewMessage] | None = None,
) -> tuple[list[Body], T]:
    """Return the events of a decision, and what it returns of its commit; see `Commit`."""
    commit = Commit(state, now=now, unique_id=unique_id, owner=owner, branch=branch, clean=clean)
    outcome = change(commit)
    return commit.finished(), outcome


def _has_id_of(stored_id: str, draft: NewMessage) -> bool:
    """Whether a stored message has the id of a draft, or one with a suffix that it got as the id was taken."""
    return draft.id is not None and (stored_id == draft.id or stored_id.startswith(f"{draft.id}:"))


def _is_chain(messages: Sequence[Message], base: str | None, head: str | None) -> bool:
    """Whether messages follow a base one after the other, up to a head."""
    parents = [base, *(message.id for message in messages)]
    return parents[-1] == head and all(
        message.parent_id == parent for message, parent in zip(messages, parents, strict=False)
    )
