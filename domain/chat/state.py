"""
The state of a chat and the one fold over its events.

A state is a snapshot that is asked for what a decision needs: the index answers from one LMDB transaction, `ReplayedChat`
from dictionaries. `evolve` says what an event changes in it; whoever keeps a state applies those changes to its tables.
So the projection, replay and time travel share one fold, and none loads a whole chat to change a part of it.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any, Final, Literal, Protocol, TypeVar

import msgspec

from ..errors import ChainIntegrityError
from ..legal_hold import HoldKind, LegalHold
from ..log.codec import NO_HASH
from ..log.merkle import event_leaf, grown
from ..values import MAIN, MAIN_NUMBER, Branch, Chat, Checkpoint, Member, MemberRole, Message
from ..versioned.events import VERSIONED_BODIES
from .events import (
    RUN_BODIES,
    Body,
    BranchActivated,
    BranchCreated,
    BranchDeleted,
    BranchRenamed,
    ChatCreated,
    ChatDeleted,
    ChatUpdated,
    CheckpointDeleted,
    CheckpointSet,
    ContentRedacted,
    Event,
    HeadMoved,
    HoldNote,
    LinkCreated,
    LinkRevoked,
    MemberRemoved,
    MemberSet,
    MessagesAppended,
    Recorded,
    StreamDeleted,
    stand_in,
)
from .redaction import redacted_messages
from .run_state import MisfitError, RunChanges, RunState, fold_runs

_TIMES_END: Final = 2**63
_TIMES: Final = ("created_at", "expires_at", "updated_at", "branch_created_at", "changed_at")
"""The fields of events that say when something was, or will be."""


class StreamHead(msgspec.Struct, frozen=True, array_like=True):
    """
    The last event of a chat: what the next one builds on. `position` is 0 before the first.

    `size` counts the events since the last tombstone, with it; `peaks` are those of the Merkle tree over their positions and hashes.
    """

    version: int
    position: int
    hash: bytes
    occurred_at: int = -(2**63)
    size: int = 0
    peaks: bytes = b""


NO_STREAM = StreamHead(version=0, position=0, hash=NO_HASH)


class ChatRecord(msgspec.Struct, frozen=True, array_like=True):
    """
    The part of a chat that changes with every event; its size does not depend on the chat's.

    `branches_made` is the number of the next branch: how many it had, with those that were deleted.
    """

    first_position: int
    first_version: int
    head: StreamHead
    created_at: int
    updated_at: int
    message_count: int
    branch_count: int
    checkpoint_count: int
    active_branch: str
    run_count: int = 0
    member_count: int = 0
    branches_made: int = 1


class LinkRecord(msgspec.Struct, frozen=True, array_like=True):
    """A link that was not revoked, see `LinkCreated`."""

    id: str
    digest: str
    created_at: int
    expires_at: int | None
    branch: int | None
    until: str | None

    def is_over(self, now: int) -> bool:
        """Whether its time is over."""
        return self.expires_at is not None and self.expires_at <= now


class ChatProfile(msgspec.Struct, frozen=True, array_like=True):
    """The part of a chat that only `update_chat` changes."""

    id: str
    user_id: str
    title: str | None = None
    metadata: dict[str, object] | None = None
    expires_at: int | None = None
    holds: tuple[LegalHold, ...] = ()
    links: tuple[LinkRecord, ...] = ()

    @property
    def hold(self) -> LegalHold | None:
        """The legal hold that keeps it; None for none."""
        return self.holds[0] if self.holds else None

    @property
    def ends_at(self) -> int | None:
        """When a sweep deletes it; None for never, as under a hold."""
        return None if self.holds else self.expires_at


Role = MemberRole | Literal["owner"]
"""The role of a user in a chat."""


def describe_chat(record: ChatRecord | None, profile: ChatProfile | None, last_text: str | None) -> Chat | None:
    """The chat as users see it, with the line of the last message of its active branch; None when there is none."""
    if record is None or profile is None:
        return None
    return Chat(
        id=profile.id,
        user_id=profile.user_id,
        title=profile.title,
        metadata=profile.metadata,
        created_at=record.created_at,
        updated_at=record.updated_at,
        message_count=record.message_count,
        branch_count=record.branch_count,
        expires_at=profile.expires_at,
        last_text=last_text,
        hold=profile.hold,
    )


class Tombstone(msgspec.Struct, frozen=True, array_like=True):
    """The remains of a deleted chat; a new chat of the same id continues its stream."""

    head: StreamHead
    deleted_at: int
    command_id: str | None = None
    owner_digest: str | None = None


class BranchRecord(msgspec.Struct, frozen=True, array_like=True):
    """
    A branch without what follows from elsewhere (whether it is active, how long its chain is).

    `number` is what events name it by, whatever its name is at the time. `seen` is the position of the event that last made it the active branch, 0 before there is one. The active branch is the
    one seen last, so appending to it changes nothing in the order.
    """

    id: str
    name: str
    head_message_id: str | None
    created_at: int
    seen: int
    number: int


K = TypeVar("K", bound=BranchRecord)


def by_seen(branches: Iterable[K]) -> list[K]:
    """Return branches, the one seen last first; those that were never active last, the newest of them first, ties by name."""
    return sorted(branches, key=lambda branch: (-branch.seen, -branch.created_at, branch.name))


class StreamRecord(Protocol):
    """The part of a stream's state that changes with every event."""

    @property
    def head(self) -> StreamHead:
        """The last event."""
        ...


class StreamSnapshot(Protocol):
    """The state of a stream (a chat or a thread) at one moment."""

    @property
    def stream_id(self) -> str:
        """The id of the stream."""
        ...

    @property
    def record(self) -> StreamRecord | None:
        """None when there is no such thing."""
        ...

    @property
    def tombstone(self) -> Tombstone | None:
        """The tombstone of its last deletion."""
        ...


class ChatState(RunState, StreamSnapshot, Protocol):
    """One chat as it stood at one moment. Asking twice gives the same answer."""

    @property
    def chat_id(self) -> str:
        """The id that was asked for, whether or not there is such a chat."""
        ...

    @property
    def record(self) -> ChatRecord | None:
        """None when there is no such chat."""
        ...

    @property
    def profile(self) -> ChatProfile | None:
        """None when there is no such chat."""
        ...

    def branch(self, name: str) -> Branch | None:
        """The branch of that name."""
        ...

    def branch_record(self, name: str) -> BranchRecord | None:
        """The branch of that name as it is kept."""
        ...

    def numbered_branch(self, number: int) -> BranchRecord | None:
        """The branch of that number as it is kept."""
        ...

    def branches_seen(self) -> list[Branch]:
        """All branches, the one seen last first; those that were never active last, the newest of them first."""
        ...

    def checkpoint(self, name: str) -> Checkpoint | None:
        """The checkpoint of that name."""
        ...

    def role_of(self, user_id: str) -> Role | None:
        """The role of a user in the chat; None for a stranger, and where there is no such chat."""
        ...

    def member(self, user_id: str) -> Member | None:
        """The member of that name; the owner is none."""
        ...

    def members(self) -> list[Member]:
        """All members, those first that were added first, ties by name."""
        ...

    def message(self, message_id: str) -> Message | None:
        """The message, if it belongs to this chat."""
        ...

    def has_pseudonym(self, message_id: str) -> bool:
        """Whether the sender of a message of this chat is called otherwise than when it was said."""
        ...

    def look_up(self, message_ids: Iterable[str]) -> None:
        """Find many messages together, before they are asked for one by one; changes no answer."""

    def is_elsewhere(self, message_id: str) -> bool:
        """Whether another chat has a message of this id."""
        ...

    def is_ancestor(self, message_id: str, descendant_id: str) -> bool:
        """Whether the chain of `descendant_id` contains `message_id`. Both belong to this chat."""
        ...

    def all_messages(self) -> list[Message]:
        """All messages on all branches, with annotations, in the order in which they were written."""
        ...

    def chain(self, head_message_id: str, limit: int | None = None) -> list[Message]:
        """The chain of a message of this chat, oldest first, with annotations; the last `limit` messages of it, all when None."""
        ...

    def depth(self, message_id: str) -> int:
        """The number of ancestors of a message of this chat."""
        ...

    def ancestor(self, message_id: str, depth: int) -> str:
        """The ancestor of a message of this chat, or the message itself, at a depth that its chain has."""
        ...

    def merge_base(self, a: str, b: str, *, is_on_chain: bool = False) -> str | None:
        """
        The newest message that both `a` and `b` are or come after, with what they merged; None where they share nothing.

        With `is_on_chain` only messages of the chain of `a` count. Both belong to this chat.
        """
        ...

    def newest_leaf(self, message_id: str) -> str:
        """The message at which one arrives from a message of this chat by going on to the newest child each time."""
        ...

    def branches_named_after(self, base: str) -> int:
        """The number of branches named `base` or starting with `<base>-v`, with those renamed or deleted since."""
        ...


class ChatChanges(msgspec.Struct, frozen=True, kw_only=True):
    """
    The changes of an event: rows to put, and names of rows to drop. `record` None ends the chat and all its rows.

    `redacted` are messages that were there, as they are without their content. `is_new_name`: the chat had no branch of the name
    that `branch` has. `recounts_names`: how many branches are named alike is counted anew.
    """

    record: ChatRecord | None
    profile: ChatProfile | None = None
    tombstone: Tombstone | None = None
    messages: tuple[Message, ...] = ()
    redacted: tuple[Message, ...] = ()
    branch: BranchRecord | None = None
    is_new_name: bool = False
    recounts_names: bool = False
    dropped_branch: str | None = None
    checkpoint: Checkpoint | None = None
    dropped_checkpoint: str | None = None
    member: Member | None = None
    dropped_member: str | None = None
    runs: RunChanges | None = None


def stream_head(state: StreamSnapshot) -> StreamHead:
    """The last event of a stream, be what it tells of alive or deleted."""
    record = state.record
    if record is not None:
        return record.head
    return NO_STREAM if state.tombstone is None else state.tombstone.head


def next_head(last: StreamHead, recorded: Recorded) -> StreamHead:
    """Return the last event of a stream after the next one. A tombstone begins a new tree: what stood before it may be erased."""
    is_begun_anew = isinstance(recorded.event.body, StreamDeleted)
    size, peaks = (0, b"") if is_begun_anew else (last.size, last.peaks)
    event, position, hash_ = recorded.event, recorded.position, recorded.hash
    peaks = grown(size, peaks, event_leaf(position, hash_))
    return StreamHead(event.originator_version, position, hash_, event.occurred_at, size + 1, peaks)


def next_branch_number(state: ChatState) -> int:
    """The number of the next branch of a chat; of one that begins in the same commit, the one after `main`."""
    return MAIN_NUMBER + 1 if state.record is None else state.record.branches_made


def evolve(state: ChatState, recorded: Recorded, last: StreamHead | None = None) -> ChatChanges:
    """
    Return the changes that an event makes in the state before it. The single fold over events.

    `last` is the event before it, where the caller has seen that they follow each other.

    Raises:
        ChainIntegrityError: The event does not follow the state: a version is missing, repeated or altered.
    """
    event = recorded.event
    body = event.body
    before = state.record
    if last is None:
        last = check_follows(state, recorded)
    if not _is_in_calendar(event):
        raise misplaced(recorded, "its time is beyond the calendar")
    head = next_head(last, recorded)
    if isinstance(body, ChatCreated):
        return _created(state, recorded, body, head)
    if isinstance(body, ChatDeleted):
        return ChatChanges(
            record=None, tombstone=Tombstone(head, event.occurred_at, event.command_id, body.owner_digest)
        )
    if before is None:
        raise misplaced(recorded, "there is no such chat at that point")
    if isinstance(body, MessagesAppended):  # first, for nearly all are
        return _appended(state, recorded, body, before, head)
    if isinstance(body, VERSIONED_BODIES):
        raise misplaced(recorded, "it is of a versioned value, not of a chat")
    record = msgspec.structs.replace(before, head=head)
    if isinstance(body, ChatUpdated):
        return _updated(state, recorded, body, record)
    if isinstance(body, LinkCreated | LinkRevoked):
        return _links_changed(state, recorded, body, record)
    if isinstance(body, RUN_BODIES):
        return _runs_changed(state, recorded, record)
    if isinstance(body, ContentRedacted):
        redacted = [(message_id, state.message(message_id)) for message_id in body.message_ids]
        unknown = [message_id for message_id, message in redacted if message is None]
        if unknown:
            raise misplaced(recorded, f"it redacts message {unknown[0]!r}, which the chat does not have")
        return ChatChanges(
            record=record,
            redacted=redacted_messages((message for _, message in redacted if message is not None), recorded),
            recounts_names=not (body.message_ids or body.takes_names),
        )
    return _pointers_changed(state, recorded, record)


def _is_in_calendar(event: Event[Any]) -> bool:
    """Whether all times of an event are signed numbers of 64 bits: msgpack has some that are larger, and none that are smaller."""
    body: Body = event.body
    for name in _times_of(type(body)):
        time: int | None = getattr(body, name)
        if time is not None and time >= _TIMES_END:
            return False
    return event.occurred_at < _TIMES_END


@cache
def _times_of(body: type[Body]) -> tuple[str, ...]:
    return tuple(name for name in _TIMES if hasattr(body, name))


def _pointers_changed(state: ChatState, recorded: Recorded, record: ChatRecord) -> ChatChanges:
    body = recorded.body
    if isinstance(body, BranchCreated):
        name = body.shown_name
        _check_no_branch(state, recorded, name)
        if body.number != record.branches_made:
            raise misplaced(recorded, f"it is branch {body.number}, and the next one is {record.branches_made}")
        record = msgspec.structs.replace(
            record,
            branch_count=record.branch_count + 1,
            branches_made=record.branches_made + 1,
            active_branch=name if body.is_active else record.active_branch,
        )
        seen = recorded.position if body.is_active else 0
        branch = BranchRecord(body.branch_id, name, body.head_message_id, body.created_at, seen, body.number)
        return ChatChanges(record=record, branch=branch, is_new_name=True)
    if isinstance(body, BranchActivated):
        branch = msgspec.structs.replace(_branch(state, recorded, body.number), seen=recorded.position)
        return ChatChanges(record=msgspec.structs.replace(record, active_branch=branch.name), branch=branch)
    if isinstance(body, BranchRenamed):
        return _renamed(state, recorded, body, record)
    if isinstance(body, BranchDeleted):
        return _branch_deleted(state, recorded, body, record)
    if isinstance(body, HeadMoved):
        return ChatChanges(record=record, branch=_moved(state, recorded, body.number, body.to_head))
    if isinstance(body, CheckpointSet):
        return _checkpoint_set(state, body, record)
    if isinstance(body, MemberSet | MemberRemoved):
        return _members_changed(state, recorded, body, record)
    assert isinstance(body, CheckpointDeleted), body
    # Its name was taken away, or that in the event which set it, and the one in this is about to be.
    if body.name is None or state.checkpoint(body.name) is None:
        return ChatChanges(record=record)
    record = msgspec.structs.replace(record, checkpoint_count=record.checkpoint_count - 1)
    return ChatChanges(record=record, dropped_checkpoint=body.name)


def check_follows(state: StreamSnapshot, recorded: Recorded) -> StreamHead:
    """Return the event that another one follows. Raises `ChainIntegrityError` when that is not the next one of its stream."""
    last = stream_head(state)
    event = recorded.event
    if recorded.chat_id != state.stream_id:
        raise misplaced(recorded, f"it is of another chat than {state.stream_id!r}")
    if isinstance(event.body, StreamDeleted) and event.originator_version > last.version + 1:
        return last  # a tombstone explains the hole before it: those events are erased
    if event.originator_version != last.version + 1:
        raise misplaced(recorded, f"version {last.version + 1} was expected")
    if event.previous_hash != last.hash:
        raise misplaced(recorded, "it does not name the hash of the event before it")
    return last


def misplaced(recorded: Recorded, why: str) -> ChainIntegrityError:
    """The error that an event does not follow what was before it."""
    msg = (
        f"event {recorded.version} of chat {recorded.chat_id!r} at position {recorded.position} does not follow: {why}. "
        "Events are missing, repeated or altered; restore the log from a backup"
    )
    return ChainIntegrityError(msg, chat_id=recorded.chat_id, position=recorded.position)


def _created(state: ChatState, recorded: Recorded, body: ChatCreated, head: StreamHead) -> ChatChanges:
    if state.record is not None:
        raise misplaced(recorded, "the chat exists already")
    time = recorded.event.occurred_at
    created_at = time if body.created_at is None else body.created_at
    record = ChatRecord(
        first_position=recorded.position,
        first_version=head.version,
        head=head,
        created_at=created_at,
        updated_at=max(time if body.updated_at is None else body.updated_at, created_at),
        message_count=0,
        branch_count=1,
        checkpoint_count=0,
        active_branch=MAIN,
    )
    return ChatChanges(
        record=record,
        profile=ChatProfile(recorded.chat_id, body.user_id or "", body.title, body.metadata, body.expires_at),
        branch=BranchRecord(
            body.branch_id,
            MAIN,
            None,
            created_at if body.branch_created_at is None else body.branch_created_at,
            recorded.position,
            MAIN_NUMBER,
        ),
        is_new_name=True,
    )


def _updated(state: ChatState, recorded: Recorded, body: ChatUpdated, record: ChatRecord) -> ChatChanges:
    profile = state.profile
    assert profile is not None, "a chat with a record has a profile"
    changes = {**body.changes}
    title, metadata, expires_at = (changes.get(name) for name in ("title", "metadata", "expires_at"))
    is_sound = (
        isinstance(title, str | None)
        and isinstance(metadata, dict | None)
        and isinstance(expires_at, int | None)
        # Nobody owns it where the event with the owner lost its words: then this one says who does.
        and changes.get("user_id", profile.user_id) == (profile.user_id or changes.get("user_id", ""))
    )
    holds, notes = changes.pop("holds", None), changes.pop("hold_notes", None)
    is_sound = is_sound and (expires_at is None or expires_at < _TIMES_END)
    if not (is_sound and changes.keys() <= {"title", "metadata", "expires_at", "user_id"}):
        raise misplaced(recorded, "it changes what cannot change")
    if holds is not None:
        profile = msgspec.structs.replace(profile, holds=read_holds(recorded, holds, notes))
    # A hold is no change of the chat, and moves it in no list. Without any change it was one whose words were taken away since.
    if changes or holds is None:
        record = msgspec.structs.replace(record, updated_at=max(record.updated_at, recorded.event.occurred_at))
    return ChatChanges(record=record, profile=msgspec.structs.replace(profile, **changes))


def read_holds(recorded: Recorded, holds: Any, notes: Any) -> tuple[LegalHold, ...]:
    """
    Return the holds that an event leaves, those on the thing itself first. Where the notes were redacted only kinds and times are left.

    Raises:
        ChainIntegrityError: They are none.
    """
    if not holds:
        return ()
    try:
        notes_of = msgspec.convert(notes or {}, dict[HoldKind, HoldNote])
        return tuple(
            LegalHold(kind=kind, id=id_, held_at=held_at, held_by=held_by, reason=reason)
            for kind, held_at in sorted(msgspec.convert(holds, dict[HoldKind, int]).items(), key=_order_of_hold)
            for id_, held_by, reason in [notes_of.get(kind, ("", None, None))]
        )
    except msgspec.ValidationError as error:
        raise misplaced(recorded, f"its holds are none: {error}") from error


def _order_of_hold(hold: tuple[HoldKind, int]) -> tuple[bool, bool]:
    return hold[0] == "user", hold[0] == "chat"


def _appended(
    state: ChatState, recorded: Recorded, body: MessagesAppended, record: ChatRecord, head: StreamHead
) -> ChatChanges:
    changed_at = recorded.event.occurred_at if body.changed_at is None else body.changed_at
    record = msgspec.structs.replace(
        record,
        head=head,
        message_count=record.message_count + len(body.messages),
        updated_at=max(record.updated_at, changed_at),
    )
    branch = None if body.branch is None else _moved(state, recorded, body.branch, body.to_head)
    return ChatChanges(record=record, messages=body.messages, branch=branch)


def _members_changed(
    state: ChatState, recorded: Recorded, body: MemberSet | MemberRemoved, record: ChatRecord
) -> ChatChanges:
    if body.user_id is None:  # a name that was taken away, of whom an event behind it removes
        return ChatChanges(record=record)
    before = state.member(body.user_id)
    if isinstance(body, MemberRemoved):
        if before is None:  # the name in the event before it was taken away, and the one in this is about to be
            return ChatChanges(record=record)
        record = msgspec.structs.replace(record, member_count=record.member_count - 1)
        return ChatChanges(record=record, dropped_member=body.user_id)
    if state.role_of(body.user_id) == "owner":
        raise misplaced(recorded, "it makes the owner a member")
    added_at = recorded.occurred_at if before is None else before.added_at
    member = Member(chat_id=state.chat_id, user_id=body.user_id, role=body.role, added_at=added_at)
    count = record.member_count + (before is None)
    return ChatChanges(record=msgspec.structs.replace(record, member_count=count), member=member)


def _links_changed(
    state: ChatState, recorded: Recorded, body: LinkCreated | LinkRevoked, record: ChatRecord
) -> ChatChanges:
    profile = state.profile
    assert profile is not None, "a chat with a record has a profile"
    others = tuple(link for link in profile.links if link.id != body.link_id)
    if isinstance(body, LinkRevoked):
        if len(others) == len(profile.links):
            raise misplaced(recorded, f"there is no link {body.link_id!r} at that point")
        return ChatChanges(record=record, profile=msgspec.structs.replace(profile, links=others))
    now = recorded.event.occurred_at
    # Those that are over go here: a chat for which links are made again and again has no more of them than may hold.
    others = tuple(link for link in others if not link.is_over(now))
    link = LinkRecord(body.link_id, body.digest, now, body.expires_at, body.branch, body.until)
    return ChatChanges(record=record, profile=msgspec.structs.replace(profile, links=(*others, link)))


def _runs_changed(state: ChatState, recorded: Recorded, record: ChatRecord) -> ChatChanges:
    try:
        runs = fold_runs(state, recorded)
    except MisfitError as error:
        raise misplaced(recorded, str(error)) from error
    return ChatChanges(record=msgspec.structs.replace(record, run_count=record.run_count + runs.is_new_run), runs=runs)


def _branch(state: ChatState, recorded: Recorded, number: int) -> BranchRecord:
    branch = state.numbered_branch(number)
    if branch is None:
        raise misplaced(recorded, f"there is no branch {number} at that point")
    return branch


def _check_no_branch(state: ChatState, recorded: Recorded, name: str) -> None:
    if state.branch_record(name) is not None:
        raise misplaced(recorded, f"there is a branch {name!r} already")


def _moved(state: ChatState, recorded: Recorded, number: int, to_head: str | None) -> BranchRecord:
    branch = _branch(state, recorded, number)
    return BranchRecord(branch.id, branch.name, to_head, branch.created_at, branch.seen, number)


def _renamed(state: ChatState, recorded: Recorded, body: BranchRenamed, record: ChatRecord) -> ChatChanges:
    before, name = _branch(state, recorded, body.number), body.new_name or stand_in(body.number)
    if name != before.name:
        _check_no_branch(state, recorded, name)
    if record.active_branch == before.name:
        record = msgspec.structs.replace(record, active_branch=name)
    branch = msgspec.structs.replace(before, name=name)
    return ChatChanges(record=record, branch=branch, is_new_name=True, dropped_branch=before.name)


def _branch_deleted(state: ChatState, recorded: Recorded, body: BranchDeleted, record: ChatRecord) -> ChatChanges:
    branch = _branch(state, recorded, body.number)
    if record.active_branch == branch.name:
        raise misplaced(recorded, f"branch {branch.name!r} is the active one at that point")
    record = msgspec.structs.replace(record, branch_count=record.branch_count - 1)
    profile = state.profile
    assert profile is not None, "a chat with a record has a profile"
    # A link never shows more than it did: without its branch it would be one that shows all of them.
    links = tuple(link for link in profile.links if link.branch != body.number)
    changed = None if links == profile.links else msgspec.structs.replace(profile, links=links)
    return ChatChanges(record=record, profile=changed, dropped_branch=branch.name)


def _checkpoint_set(state: ChatState, body: CheckpointSet, record: ChatRecord) -> ChatChanges:
    if body.name is None:  # taken away, after an event behind it removed the checkpoint
        return ChatChanges(record=record)
    is_new = state.checkpoint(body.name) is None
    return ChatChanges(
        record=msgspec.structs.replace(record, checkpoint_count=record.checkpoint_count + is_new),
        checkpoint=Checkpoint(
            id=body.checkpoint_id,
            chat_id=state.chat_id,
            name=body.name,
            message_id=body.message_id,
            created_at=body.created_at,
        ),
    )
