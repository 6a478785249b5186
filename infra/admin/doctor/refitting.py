"""
Events that stand behind a hole, made to fit a chat or thread that lacks what was in the hole.

Whatever an event names and the chat does not have, is made: a lost message is stood for by a placeholder with its id, a lost
branch begins anew. So all that could be read stays, and what is missing shows.
"""

from collections.abc import Callable, Collection, Iterable
from functools import partial
from itertools import chain
from typing import Any, Final, Protocol

import msgspec
from msgspec import structs

from chatledger.domain.chat.decide_redact import NamePlace, decide_pseudonymise, decide_redact, renamed_in
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
    ContentRedacted,
    HeadMoved,
    LinkCreated,
    LinkRevoked,
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
from chatledger.domain.chat.redaction import redaction_in
from chatledger.domain.chat.state import BranchRecord, ChatState, next_branch_number
from chatledger.domain.values import MAIN, MAIN_NUMBER, Message
from chatledger.domain.versioned.content import Content, Piece, add_missing, references_of
from chatledger.domain.versioned.events import (
    Begins,
    TaskWrites,
    VersionContentPut,
    VersionPut,
    VersionsExpirySet,
    VersionsKept,
    VersionsRemoved,
    VersionWritesPut,
    begun,
)
from chatledger.domain.versioned.record import VersionedState
from chatledger.projections.chat.reader import IndexedChat
from chatledger.projections.log.stream_trees import content_slots
from chatledger.projections.versioned.reader import IndexedVersioned

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

    Returns:
        Nothing when it says what the chat says already, or what makes no sense without what is lost.
    """
    body = recorded.body
    # A revocation may be among what is lost: links open nothing after a repair.
    bodies: list[Body] = [] if state.profile is None else [LinkRevoked(link.id) for link in state.profile.links]
    fit = _Fit(recorded, state, gap, new_id, bodies)
    if state.record is None:
        fit.create(body)
    if isinstance(body, MessagesAppended):
        fit.append(body)
    elif isinstance(body, ChatUpdated):
        # Of a chat that was repaired as nobody's before the event came that says anew whose it is, it stays that.
        is_owner = state.profile is None or state.profile.user_id in {"", body.changes.get("user_id")}
        changes = {name: value for name, value in body.changes.items() if is_owner or name != "user_id"}
        bodies.append(ChatUpdated(changes))
    elif isinstance(body, MemberSet | MemberRemoved):
        is_fit = body.user_id is not None and (isinstance(body, MemberSet) or state.member(body.user_id) is not None)
        bodies += [body] if is_fit else []
    elif isinstance(body, LinkCreated | LinkRevoked):
        pass
    elif isinstance(body, ContentRedacted) and isinstance(state, IndexedChat):
        # The messages stand in other events now, maybe with their content.
        there = [message_id for message_id in body.message_ids if state.has_message(message_id)]
        slots_of = partial(content_slots, state)
        # Of the heads only those before the hole are as they were, and lack what nothing explains yet; behind it they are of the doctor.
        heads = [
            (version, slot) for version, slots in body.targets for slot in slots if state.is_unexplained(version, slot)
        ]
        if body.takes_names:
            redacted = () if body.takes_senders else tuple(there)
            places = [NamePlace(version, slot, redacted) for version, slot in heads]
            # The slot of the sender stands before that of the content.
            for message_id, (version, slot) in zip(there, slots_of(there), strict=True) if body.takes_senders else ():
                places.append(NamePlace(version, slot - 1, (message_id,)))
            return [*bodies, *decide_pseudonymise(state, sorted(places), str(body.text))]
        if heads and not body.message_ids:
            targets = tuple((version, (slot,)) for version, slot in heads)
            bodies.append(ContentRedacted((), targets, body.cause, None, body.reason))
        bodies += decide_redact(state, there, lambda _: body.text, slots_of, reason=body.reason, cause=body.cause)
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
        # What the events of this fit have made so far; the state knows nothing of it before they are written.
        self._new_branches: dict[int, BranchRecord] = {}

    def create(self, body: Body) -> None:
        """The chat itself, whose beginning is lost unless this is it."""
        created = body if isinstance(body, ChatCreated) else None
        if created is None:
            # Nobody who asks is its owner: without the event that says whose it is, it is shown to no user of the application.
            owner = body.changes.get("user_id") if isinstance(body, ChatUpdated) else None
            created = ChatCreated(owner or LOST_OWNER, None, None, self._new_id())
        self._bodies.append(created)
        time = self._recorded.occurred_at
        self._new_branches[MAIN_NUMBER] = BranchRecord(
            created.branch_id, MAIN, None, time, self._recorded.position, MAIN_NUMBER
        )

    def append(self, body: MessagesAppended) -> None:
        """Messages, with placeholders for parents, for what they merge and for what they reply to."""
        before = None if body.branch is None else self._need_branch(body.branch)
        messages = [
            structs.replace(message, redacted=redaction_in(message.notes))
            for message in body.messages
            if not self._state.has_message(message.id)
        ]
        own = {message.id for message in messages}
        edges = ((message.parent_id, message.reply_to, *message.merged_from) for message in messages)
        named = [*chain.from_iterable(edges), body.to_head]
        lost = self._placeholders(named, own, before)
        head = None if before is None else before.head_message_id
        if lost or messages:
            number, to_head = (None, None) if before is None else (before.number, body.to_head)
            appended = MessagesAppended((*lost, *messages), number, head, to_head, body.changed_at)
            self._bodies.append(appended)
        elif before is not None:
            self._move(before, body.to_head)

    def point(self, body: Body) -> None:
        if isinstance(body, BranchCreated):
            self._need([body.head_message_id])
            self._create_branch(body)
        elif isinstance(body, BranchActivated):
            self._activate(self._need_branch(body.number, body))
        elif isinstance(body, BranchRenamed):
            # A lost branch begins anew under its new name; where another one has that, the branch keeps its own.
            branch, name = self._need_branch(body.number, body), self._free_name(body)
            if branch is not None and name is not None and branch.name != name:
                self._bodies.append(BranchRenamed(branch.number, branch.name, name))
        elif isinstance(body, BranchDeleted):
            doomed = self._state.numbered_branch(body.number)
            if doomed is not None and not self._is_active(doomed):  # a chat keeps its active branch
                self._bodies.append(BranchDeleted(doomed.number, doomed.name))
        elif isinstance(body, HeadMoved):
            branch = self._need_branch(body.number, body)
            self._need([body.to_head])
            self._move(branch, body.to_head)
        elif isinstance(body, CheckpointSet) and body.name is not None:
            self._need([body.message_id])
            self._bodies.append(body)
        elif isinstance(body, CheckpointDeleted) and body.name and self._state.checkpoint(body.name) is not None:
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

    def _placeholders(
        self, message_ids: Iterable[Any], own: Collection[str], branch: BranchRecord | None
    ) -> list[Message]:
        """A message for each id that the chat does not have: on what the branch had last, or the active one."""
        named = [message_id for message_id in dict.fromkeys(message_ids) if isinstance(message_id, str)]
        lost = [message_id for message_id in named if message_id not in own and not self._state.has_message(message_id)]
        parent = None if branch is None else branch.head_message_id
        if parent is None and self._state.record is not None:
            active = self._state.branch(self._state.record.active_branch)
            parent = None if active is None else active.head_message_id
        text = (
            f"[This message was lost when the log was damaged. {self._gap}. Its place in the conversation is assumed.]"
        )
        return [
            Message(
                id=message_id,
                parent_id=parent,
                name=LOST_NAME,
                type=LOST_NAME,
                data={"text": text, "is_lost": True},
                created_at=self._recorded.occurred_at,
            )
            for message_id in lost
        ]

    def _create_branch(self, body: BranchCreated) -> None:
        if body.number >= next_branch_number(self._state):
            self._need_branch(body.number - 1)  # numbers are given in order, so those of lost branches before it too
            self._bodies.append(structs.replace(body, name=self._free_name(body) or _lost_name(body.number)))
            return
        branch = self._need_branch(body.number)
        self._move(branch, body.head_message_id)
        if body.is_active:
            self._activate(branch)

    def _need_branch(self, number: int, body: Body | None = None) -> BranchRecord | None:
        """
        The branch of that number, which is made when it is lost, with those before it: later events name all by number.

        None for one that was deleted. `body` is an event that may tell its name.
        """
        branch = self._new_branches.get(number) or self._state.numbered_branch(number)
        if branch is not None:
            name = self._free_name(body) if branch.name == _lost_name(number) else None
            if name is not None:
                self._bodies.append(BranchRenamed(number, branch.name, name))
                branch = self._new_branches[number] = structs.replace(branch, name=name)
            return branch
        time = self._recorded.occurred_at
        for lost in range(next_branch_number(self._state), number + 1):
            name = (self._free_name(body) if lost == number else None) or _lost_name(lost)
            branch = self._new_branches[lost] = BranchRecord(self._new_id(), name, None, time, 0, lost)
            self._bodies.append(BranchCreated(lost, branch.id, name, None, time))
        return branch

    def _free_name(self, body: Body | None) -> str | None:
        """The name that an event gives to its branch, unless another one has it."""
        name: str | None = None
        if isinstance(body, BranchCreated | BranchActivated):
            name = body.name
        elif isinstance(body, HeadMoved):
            name = body.branch
        elif isinstance(body, BranchRenamed):
            name = body.new_name
        return None if name is None or self._state.branch(name) is not None else name

    def _is_active(self, branch: BranchRecord) -> bool:
        record = self._state.record
        return branch.name == (MAIN if record is None else record.active_branch)

    def _activate(self, branch: BranchRecord | None) -> None:
        if branch is not None and not self._is_active(branch):
            self._bodies.append(BranchActivated(branch.number, branch.name))

    def _move(self, branch: BranchRecord | None, to_head: str | None) -> None:
        if branch is not None and branch.head_message_id != to_head:
            self._bodies.append(HeadMoved(branch.number, branch.name, branch.head_message_id, to_head))


def _lost_name(number: int) -> str:
    return f"{LOST_NAME}-{number}"


def refit_value(recorded: Recorded, state: VersionedState, indexed: VersionedState | None = None) -> list[Body]:
    """
    Return the events that say in a versioned value what an event said that does not follow there.

    A version is kept only when all values of its fields are there; pieces only with all that they are made of. Nothing is kept of a
    state or an item whose beginning is lost, which alone says whose it is. `indexed` is the value as an index has it, which knows how it
    began, and what lost events brought.
    """
    body, record = recorded.body, None if indexed is None else indexed.record
    begins = Begins(state.key, LOST_OWNER) if state.key else None
    if record is not None and record.key:
        begins = Begins(record.key, record.owner, record.created_at)
    if state.record is None and begins is None and not getattr(body, "begins", None):
        return []
    if isinstance(body, ContentRedacted) and isinstance(state, IndexedVersioned):
        # Of the heads only those before the hole are as they were, and lack what nothing explains yet.
        places = [NamePlace(version, slot) for version, slots in body.targets for slot in slots]
        left = [each for each in places if state.is_unexplained(each.version, each.slot)]
        if body.takes_names:
            return [*renamed_in(left, str(body.text))]
        targets = tuple((each.version, (each.slot,)) for each in left)
        return [ContentRedacted((), targets, body.cause)] if targets else []
    fitting: Body | None = None
    if isinstance(body, VersionsKept | VersionsRemoved | VersionsExpirySet) and state.record is not None:
        fitting = body
    elif isinstance(body, VersionContentPut | VersionPut | VersionWritesPut):
        pieces = _Pieces(_with_indexed(body, state, indexed), state)
        if isinstance(body, VersionContentPut):
            fitting = structs.replace(body, pieces=pieces.whole) if pieces.whole else None
        elif isinstance(body, VersionPut):
            if pieces.has(ref.digest for ref in body.fields.values()):
                fitting = structs.replace(
                    body, pieces=pieces.whole, writes=pieces.whole_writes(body.writes or ()) or None
                )
        elif state.version(body.line, body.id) is not None:
            tasks = pieces.whole_writes(body.tasks)
            fitting = structs.replace(body, pieces=pieces.whole, tasks=tasks) if tasks else None
    if fitting is None:
        return []
    is_ownerless = state.record is None and getattr(fitting, "begins", None) is None
    return begun([fitting], begins) if is_ownerless and begins is not None else [fitting]


def _with_indexed(
    body: VersionContentPut | VersionPut | VersionWritesPut, state: VersionedState, indexed: VersionedState | None
) -> Iterable[Piece]:
    """Return the pieces of an event behind those that it needs, the value lacks, and an index has."""
    if indexed is None:
        return body.pieces
    own = {piece.digest for piece in body.pieces}
    roots = [reference for piece in body.pieces for reference in references_of(piece.content)]
    if isinstance(body, VersionPut):
        roots += (ref.digest for ref in body.fields.values())
    missing: dict[bytes, Piece] = {}
    add_missing(roots, indexed.content, lambda digest: digest in own or state.content(digest) is not None, missing)
    return [*missing.values(), *body.pieces]


class _HasContent(Protocol):
    def content(self, digest: bytes) -> Content | None: ...


class _Pieces:
    """The pieces of an event that are there with all they are made of."""

    def __init__(self, pieces: Iterable[Piece], state: _HasContent) -> None:
        self._state = state
        self._digests: set[bytes] = set()
        whole: list[Piece] = []
        for piece in pieces:  # each stands behind those that it is made of
            if self.has(references_of(piece.content)):
                whole.append(piece)
                self._digests.add(piece.digest)
        self.whole = tuple(whole)

    def has(self, digests: Iterable[bytes]) -> bool:
        return all(digest in self._digests or self._state.content(digest) is not None for digest in digests)

    def whole_writes(self, tasks: Iterable[TaskWrites]) -> tuple[TaskWrites, ...]:
        slots = [(task, tuple(slot for slot in task.slots if self.has([slot.digest]))) for task in tasks]
        return tuple(structs.replace(task, slots=there) for task, there in slots if there)
