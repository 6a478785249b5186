"""What holds of every event on a sound log, beyond what the fold needs in order to go on."""

from .errors import ChainIntegrityError
from .events import BranchActivated, ChatDeleted, HeadMoved, MessagesAppended, Recorded, StreamDeleted
from .state import ChatState, stream_head


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
        _check_head(state, recorded, body.branch, body.from_head)
        _check_branch_id(state, recorded, body.branch, body.branch_id)
    elif isinstance(body, BranchActivated):
        _check_branch_id(state, recorded, body.name, body.branch_id)
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
    """The error for an event that can not have been written like this."""
    msg = (
        f"event {recorded.version} of chat {recorded.chat_id!r} at position {recorded.position} is not sound: {why}. "
        "Events are missing, repeated or altered; restore the log from a backup"
    )
    return ChainIntegrityError(msg, chat_id=recorded.chat_id, position=recorded.position)


def _check_head(state: ChatState, recorded: Recorded, name: str, from_head: str | None) -> None:
    branch = state.branch(name)
    if branch is not None and branch.head_message_id != from_head:
        raise broken(recorded, f"it moves branch {name!r} from {from_head!r}, which is at {branch.head_message_id!r}")


def _check_branch_id(state: ChatState, recorded: Recorded, name: str, branch_id: str) -> None:
    branch = state.branch(name)
    if branch is not None and branch.id != branch_id:
        raise broken(recorded, f"it names branch {name!r} by the id {branch_id!r}, which has the id {branch.id!r}")


def _check_counts(state: ChatState, recorded: Recorded, body: ChatDeleted) -> None:
    record = state.record
    if record is None:
        return
    said = (body.first_position, body.event_count, body.message_count, body.branch_count, body.checkpoint_count)
    found = (
        record.first_position,
        record.head.version - record.first_version + 1,
        record.message_count,
        record.branch_count,
        record.checkpoint_count,
    )
    if said != found:
        raise broken(recorded, f"it says that {said} of the chat were deleted, and there were {found}")
