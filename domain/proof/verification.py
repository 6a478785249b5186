"""Verification: what holds of every event on a sound log, how two states of one chat differ, and what a verification reports."""

from collections.abc import Callable
from typing import Any

from ..chat.events import (
    BranchActivated,
    BranchDeleted,
    BranchRenamed,
    ChatDeleted,
    HeadMoved,
    MessagesAppended,
    Recorded,
    StreamDeleted,
    stand_in,
)
from ..chat.interchange import ImportedChat, ImportedMessage
from ..chat.state import ChatState, stream_head
from ..errors import ChainIntegrityError
from ..wire import Value


class ForeignRecord(Value, frozen=True):
    """
    A message on the log that no chatledger wrote, or that does not belong where it stands. It is passed over.

    Args:
        position: Where it stands.
        chat_id: The chat on whose subject, which is refused because of it; None when it is on that of none.
        why: What is wrong with it.
    """

    position: int
    chat_id: str | None
    why: str


class Verification(Value, frozen=True, kw_only=True):
    """
    A log that is sound, with an index that equals it.

    Args:
        position: The last position that was read.
        event_count: How many events were read and checked.
        chat_count: How many chats were compared with the index.
        message_count: How many messages they have.
        deletion_count: How many deletions the log has; what was erased after them is accounted for.
        erased_since_anchor: The chats of the anchor that were deleted after it, by id, in the order of their deletion.
        foreign: Messages that others published into the log, the first 1,000; `chatledger doctor --repair` removes them.
        foreign_count: How many there are.
        thread_count, state_count: How many threads of agents and states of graphs (items too) were compared.
        broken_holds: The positions of events that deleted what a legal hold kept. chatledger writes none.
        overdue_count: How many chats, threads, states, items, messages and versions a sweep would erase now, as they ended or no rule keeps
            them longer.
        erasure_pending: The chats and other streams that were deleted, by id, and of which the log still has events, or again.
            No answer has them, and the next open of the ledger erases them.
        redaction_pending: The chats, by id, with messages that were redacted and whose content the log still has, or again. No answer
            has it, and the next open of the ledger erases it.
    """

    position: int
    event_count: int
    chat_count: int
    message_count: int
    deletion_count: int
    erased_since_anchor: tuple[str, ...] = ()
    foreign: tuple[ForeignRecord, ...] = ()
    foreign_count: int = 0
    thread_count: int = 0
    state_count: int = 0
    erasure_pending: tuple[str, ...] = ()
    broken_holds: tuple[int, ...] = ()
    overdue_count: int = 0
    redaction_pending: tuple[str, ...] = ()


class ChatDifference(Value, frozen=True, kw_only=True):
    """
    One thing that differs. `a` and `b` are its values; None also where it is not there.

    `name` is a field of the chat (`title`, `metadata`, `active_branch`), or the name of a branch or checkpoint, whose
    values are ids of messages.
    """

    name: str
    a: Any
    b: Any
    in_a: bool = True
    in_b: bool = True


class ChatComparison(Value, frozen=True, kw_only=True):
    """Two states of one chat, `a` and `b`: what differs, and which messages only one of them has, in log order."""

    chat: list[ChatDifference]
    branches: list[ChatDifference]
    checkpoints: list[ChatDifference]
    only_a: list[ImportedMessage]
    only_b: list[ImportedMessage]

    @property
    def is_equal(self) -> bool:
        return not any((self.chat, self.branches, self.checkpoints, self.only_a, self.only_b))


def compare_chats(a: ImportedChat | None, b: ImportedChat | None) -> ChatComparison:
    """Compare two states of one chat; None is one in which it is not there."""

    def both(contents: Callable[[ImportedChat], dict[str, Any]]) -> list[dict[str, Any]]:
        return [{} if chat is None else contents(chat) for chat in (a, b)]

    messages_a, messages_b = both(lambda chat: {message.id: message for message in chat.messages})
    return ChatComparison(
        chat=_compare(*both(_fields)),
        branches=_compare(*both(lambda chat: {branch.name: branch.head_message_id for branch in chat.branches})),
        checkpoints=_compare(*both(lambda chat: {mark.name: mark.message_id for mark in chat.checkpoints})),
        only_a=[message for message_id, message in messages_a.items() if message_id not in messages_b],
        only_b=[message for message_id, message in messages_b.items() if message_id not in messages_a],
    )


def _fields(chat: ImportedChat) -> dict[str, Any]:
    active = next((branch.name for branch in chat.branches if branch.is_active), None)
    return {"user_id": chat.user_id, "title": chat.title, "metadata": chat.metadata, "active_branch": active}


def _compare(a: dict[str, Any], b: dict[str, Any]) -> list[ChatDifference]:
    """By name, those of `a` first, in their order."""
    return [
        ChatDifference(name=name, a=a.get(name), b=b.get(name), in_a=name in a, in_b=name in b)
        for name in {**a, **b}
        if name not in a or name not in b or a[name] != b[name]
    ]


def check_event(state: ChatState, recorded: Recorded) -> None:
    """
    Check an event against the state of its chat before it.

    Raises:
        ChainIntegrityError: Its time lies before that of the event it follows, or it says something of branches or counts
            that was not so.
    """
    last, body = stream_head(state), recorded.body
    is_next = recorded.version == last.version + 1
    if is_next and recorded.occurred_at < last.occurred_at:
        raise broken(
            recorded, f"its time, {recorded.occurred_at}, lies before {last.occurred_at}, that of the event before it"
        )
    if isinstance(body, MessagesAppended) and body.branch is not None:
        _check_head(state, recorded, body.branch, body.from_head)
    elif isinstance(body, HeadMoved):
        _check_head(state, recorded, body.number, body.from_head)
        _check_branch_name(state, recorded, body.number, body.branch)
    elif isinstance(body, BranchActivated | BranchRenamed | BranchDeleted):
        _check_branch_name(state, recorded, body.number, body.name)
    elif isinstance(body, ChatDeleted) and is_next:
        _check_counts(state, recorded, body)


def check_commit(before: Recorded | None, recorded: Recorded) -> None:
    """
    Check that the commit of the event before, whatever its chat, goes on with this one.

    Raises:
        ChainIntegrityError: It broke off; the error names the event that stands last in it.
    """
    if before is None or not before.event.rest:
        return
    is_same = before.chat_id == recorded.chat_id
    goes_on = recorded.version == before.version + 1 and recorded.event.rest == before.event.rest - 1
    if not (is_same and (goes_on or isinstance(recorded.body, StreamDeleted))):
        raise broken_off(before)


def broken_off(before: Recorded) -> ChainIntegrityError:
    """The error for a commit whose last events are missing."""
    return broken(before, f"its commit has {before.event.rest} more events, which do not follow it on the log")


def broken(recorded: Recorded, why: str) -> ChainIntegrityError:
    """The error for an event that cannot have been written like this."""
    msg = (
        f"event {recorded.version} of chat {recorded.chat_id!r} at position {recorded.position} is not sound: {why}. "
        "Events are missing, repeated or altered; restore the log from a backup"
    )
    return ChainIntegrityError(msg, chat_id=recorded.chat_id, position=recorded.position)


def _check_head(state: ChatState, recorded: Recorded, number: int, from_head: str | None) -> None:
    branch = state.numbered_branch(number)
    if branch is not None and branch.head_message_id != from_head:
        raise broken(
            recorded, f"it moves branch {branch.name!r} from {from_head!r}, which is at {branch.head_message_id!r}"
        )


def _check_branch_name(state: ChatState, recorded: Recorded, number: int, name: str | None) -> None:
    branch = state.numbered_branch(number)
    # Names that were taken away are not compared, nor what stands for one.
    if branch is not None and name is not None and branch.name not in {name, stand_in(number)}:
        raise broken(recorded, f"it names branch {number} {name!r}, which has the name {branch.name!r}")


def _check_counts(state: ChatState, recorded: Recorded, body: ChatDeleted) -> None:
    record = state.record
    if record is None:
        return
    claimed = (body.first_position, body.event_count, body.message_count, body.branch_count, body.checkpoint_count)
    counted = (
        record.first_position,
        record.head.version - record.first_version + 1,
        record.message_count,
        record.branch_count,
        record.checkpoint_count,
    )
    if claimed != counted:
        raise broken(recorded, f"it says that {claimed} of the chat were deleted, and there were {counted}")
