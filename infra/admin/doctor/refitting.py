"""
Events that stand behind a hole, made to fit a chat or thread that lacks what was in the hole.

Whatever an event names and the chat does not have, is made: a lost message is stood for by a placeholder with its id, a lost
branch begins anew. So all that could be read stays, and what is missing shows.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, Protocol

import msgspec
from msgspec import structs

from chatledger.domain.chat.events import (
    Body,
    BranchActivated,
    BranchCreated,
    BranchDeleted,
    BranchRenamed,
    ChatCreated,
    ChatUpdated,
    CheckpointDeleted,
    CheckpointSet,
    HeadMoved,
    MemberRemoved,
    MemberSet,
    MessagesAnnotated,
    MessagesAppended,
    Recorded,
    RegenerationApproved,
    RegenerationBegun,
    RunChanged,
    RunRecorded,
)
from chatledger.domain.chat.state import ChatState
from chatledger.domain.content import Content, Piece, references_of
from chatledger.domain.graph.decide import StoredGraphState
from chatledger.domain.graph.events import StateContentPut, StatePut
from chatledger.domain.thread.events import (
    AgentCheckpointPut,
    AgentCheckpointsDeleted,
    AgentContentPut,
    AgentWritesPut,
    with_owner,
)
from chatledger.domain.thread.record import ThreadState
from chatledger.domain.values import MAIN, Branch, Message

LOST_NAME: Final = "lost"
"""Name and type of the messages that stand for lost ones."""
LOST_OWNER: Final = "chatledger:lost"
"""The owner of a chat or thread whose beginning, which says the owner, is lost. No user of an application is called that."""

encode_text: Final = msgspec.msgpack.Encoder().encode
"""Data as an event has them."""
_POINTERS: Final = (
    *(BranchActivated, BranchCreated, BranchRenamed, BranchDeleted),
    *(HeadMoved, CheckpointSet, CheckpointDeleted),
)


def refit_chat(recorded: Recorded, state: ChatState, *, gap: str, new_id: Callable[[], str]) -> list[Body]:
    """
    Return the events that say in a chat what an event said that does not follow there.

    Args:
        recorded: What was read behind the hole.
        state: The chat as it is now.
        gap: Which versions are missing before it, in words.
        new_id: Makes ids of branches that were lost.

    Returns:
        Nothing when it says what the chat says already, or what makes no sense without what is lost.
    """
    body = recorded.body
    bodies: list[Body] = []
    fit = _Fit(recorded, state, gap, new_id, bodies)
    if state.record is None:
        fit.create(body)
    if isinstance(body, MessagesAppended):
        fit.append(body)
    elif isinstance(body, ChatUpdated | MemberSet):
        bodies.append(body)
    elif isinstance(body, MemberRemoved):
        bodies += [body] if state.member(body.user_id) is not None else []
    elif isinstance(body, _POINTERS):
        fit.point(body)
    else:
        fit.tell(body)
    return bodies


class _Fit:
    """One event that is made to fit."""

    def __init__(
        self, recorded: Recorded, state: ChatState, gap: str, new_id: Callable[[], str], bodies: list[Body]
    ) -> None:
        self._recorded, self._state, self._gap, self._new_id, self._bodies = recorded, state, gap, new_id, bodies
        self._made: dict[str, Branch] = {}

    def create(self, body: Body) -> None:
        """The chat itself, whose beginning is lost unless this is it."""
        created = body if isinstance(body, ChatCreated) else None
        if created is None:
            created = ChatCreated(LOST_OWNER, None, None, self._new_id())
        self._bodies.append(created)
        self._made[MAIN] = self._branch(created.branch_id, MAIN, None, self._recorded.occurred_at)

    def append(self, body: MessagesAppended) -> None:
        """Messages, with placeholders for parents and for what they reply to."""
        before = None if body.branch is None else self._need_branch(body.branch)
        messages = [message for message in body.messages if not self._state.has_message(message.id)]
        own = {message.id for message in messages}
        named = [one for message in messages for one in (message.parent_id, message.reply_to)] + [body.to_head]
        lost = self._placeholders(named, own, before)
        head = None if before is None else before.head_message_id
        if lost or messages:
            appended = MessagesAppended((*lost, *messages), body.branch, head, body.to_head, body.changed_at)
            self._bodies.append(appended)
        elif body.branch is not None:
            self._move(body.branch, body.to_head)

    def point(self, body: Body) -> None:
        """Branches and checkpoints."""
        if isinstance(body, BranchCreated):
            self._need([body.head_message_id])
            if self._state.branch(body.name) is None and body.name not in self._made:
                self._bodies.append(body)
            else:
                self._move(body.name, body.head_message_id)
                if body.is_active:
                    self._activate(body.name)
        elif isinstance(body, BranchActivated):
            self._activate(body.name)
        elif isinstance(body, BranchRenamed):
            self._rename(body)
        elif isinstance(body, BranchDeleted):
            found = self._state.branch(body.name)
            if found is not None and not found.is_active:
                self._bodies.append(BranchDeleted(found.id, found.name))
        elif isinstance(body, HeadMoved):
            self._need_branch(body.branch)
            self._need([body.to_head])
            self._move(body.branch, body.to_head)
        elif isinstance(body, CheckpointSet):
            self._need([body.message_id])
            self._bodies.append(body)
        elif isinstance(body, CheckpointDeleted) and self._state.checkpoint(body.name) is not None:
            self._bodies.append(body)

    def tell(self, body: Body) -> None:
        """Annotations, runs and regenerations."""
        state = self._state
        if isinstance(body, MessagesAnnotated):
            self._need([*body.message_ids, body.changes.get("replaced_by")])
            self._bodies.append(body)
        elif isinstance(body, RunRecorded) and state.run(body.run.run_id) is None:
            self._need([body.run.trigger_message_id, body.run.message_id, *body.run.references])
            self._bodies.append(body)
        elif isinstance(body, RunChanged) and state.run(body.run_id) is not None:
            self._need([body.changes.get("message_id")])
            self._bodies.append(body)
        elif isinstance(body, RegenerationBegun) and state.regeneration(body.regeneration_id) is None:
            stretches = () if body.carries is None else body.carries.stretches
            self._need([body.edited_message_id, body.new_message_id, *(p.last for p in stretches)])
            time = self._recorded.occurred_at if body.created_at is None else body.created_at
            self._bodies.append(structs.replace(body, created_at=time))
        elif isinstance(body, RegenerationApproved) and state.regeneration(body.regeneration_id) is not None:
            self._bodies.append(body)

    def _need(self, message_ids: Iterable[Any]) -> None:
        lost = self._placeholders(message_ids, (), None)
        if lost:
            self._bodies.append(MessagesAppended(tuple(lost)))

    def _placeholders(self, message_ids: Iterable[Any], own: Collection[str], branch: Branch | None) -> list[Message]:
        """A message for each id that the chat does not have: on what the branch had last, or the active one."""
        lost = [one for one in dict.fromkeys(message_ids) if isinstance(one, str) and one not in own]
        lost = [one for one in lost if not self._state.has_message(one)]
        parent = None if branch is None else branch.head_message_id
        if parent is None and self._state.record is not None:
            active = self._state.branch(self._state.record.active_branch)
            parent = None if active is None else active.head_message_id
        return [placeholder(one, parent, self._gap, self._recorded.occurred_at) for one in lost]

    def _need_branch(self, name: str) -> Branch:
        """The branch of that name, which is made when it is lost."""
        found = self._made.get(name) or self._state.branch(name)
        if found is None:
            time = self._recorded.occurred_at
            found = self._branch(self._new_id(), name, None, time)
            self._bodies.append(BranchCreated(found.id, name, None, time))
            self._made[name] = found
        return found

    def _branch(self, branch_id: str, name: str, head: str | None, time: int) -> Branch:
        return Branch(
            id=branch_id,
            chat_id=self._state.chat_id,
            name=name,
            head_message_id=head,
            is_active=name == MAIN,
            message_count=0,
            created_at=time,
        )

    def _activate(self, name: str) -> None:
        branch = self._need_branch(name)
        if not branch.is_active:
            self._bodies.append(BranchActivated(branch.id, branch.name))

    def _rename(self, body: BranchRenamed) -> None:
        """A lost branch begins anew under its new name; where both names are there, the other event was read already."""
        found = self._made.get(body.name) or self._state.branch(body.name)
        if found is None:
            self._need_branch(body.new_name)
        elif self._state.branch(body.new_name) is None:
            self._bodies.append(BranchRenamed(found.id, body.name, body.new_name))

    def _move(self, name: str, to_head: str | None) -> None:
        branch = self._need_branch(name)
        if branch.head_message_id != to_head:
            self._bodies.append(HeadMoved(branch.id, name, branch.head_message_id, to_head))


def placeholder(message_id: str, parent_id: str | None, gap: str, time: int) -> Message:
    """Return the message that stands for a lost one."""
    text = f"[This message was lost when the log was damaged. {gap}. Its place in the conversation is assumed.]"
    return Message(
        id=message_id,
        parent_id=parent_id,
        name=LOST_NAME,
        type=LOST_NAME,
        data={"text": text, "is_lost": True},
        created_at=time,
    )


def refit_thread(recorded: Recorded, state: ThreadState) -> list[Body]:
    """
    Return the events that say in a thread what an event said that does not follow there.

    A checkpoint is kept only when all values of its channels are there; pieces only with all that they are made of.
    """
    body = recorded.body
    fitting: Body | None = None
    if isinstance(body, AgentCheckpointsDeleted) and state.record is not None:
        fitting = body
    elif isinstance(body, AgentContentPut | AgentCheckpointPut | AgentWritesPut):
        pieces = _Pieces(body.pieces, state)
        if isinstance(body, AgentContentPut):
            fitting = structs.replace(body, pieces=pieces.whole) if pieces.whole else None
        elif isinstance(body, AgentCheckpointPut):
            fitting = structs.replace(body, pieces=pieces.whole) if pieces.has(body.channels.values()) else None
        elif state.checkpoint(body.namespace, body.checkpoint_id) is not None:
            writes = tuple(slot for slot in body.writes if pieces.has([slot.digest]))
            fitting = structs.replace(body, pieces=pieces.whole, writes=writes) if writes else None
    if fitting is None:
        return []
    is_ownerless = state.record is None and getattr(fitting, "owner", None) is None
    return [with_owner(fitting, LOST_OWNER) if is_ownerless else fitting]


def refit_state(recorded: Recorded, state: StoredGraphState) -> list[Body]:
    """Return the events that say in a graph's state what an event said that does not follow: versions that are whole."""
    body = recorded.body
    if isinstance(body, StateContentPut):
        whole = _Pieces(body.pieces, state).whole
        return [structs.replace(body, pieces=whole)] if whole else []
    if isinstance(body, StatePut):
        pieces = _Pieces(body.pieces, state)
        if pieces.has(field.digest for field in body.fields.values()):
            return [structs.replace(body, pieces=pieces.whole)]
    return []


class _HasContent(Protocol):
    def content(self, digest: bytes) -> Content | None: ...


class _Pieces:
    """The pieces of an event that are there with all they are made of."""

    def __init__(self, pieces: Iterable[Piece], state: _HasContent) -> None:
        self._state = state
        self._known: set[bytes] = set()
        found: list[Piece] = []
        for piece in pieces:
            if self.has(references_of(piece.content)):
                found.append(piece)
                self._known.add(piece.digest)
        self.whole = tuple(found)

    def has(self, digests: Iterable[bytes]) -> bool:
        """Whether all of these are there."""
        return all(digest in self._known or self._state.content(digest) is not None for digest in digests)
