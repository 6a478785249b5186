"""The decision to take a whole conversation in."""

from collections.abc import Iterator, Mapping, Sequence

from ..errors import MessageNotFoundError
from ..events import Body, BranchCreated, ChatCreated, CheckpointSet, HeadMoved, MessagesAppended
from ..imported import ImportedBranch, ImportedChat, ImportedMessage, ImportResult
from ..rules import check_id, check_time
from ..runs.events import MessagesAnnotated, RegenerationBegun, RunRecorded
from ..state import ChatState
from ..values import MAIN, Branch, NewMessage
from .chats import decide_create_chat
from .imported_runs import missing_annotations, missing_runs
from .messages import missing_messages


def decide_import(
    state: ChatState, chat: ImportedChat, *, ids: Sequence[str], now: int, limit: int | None = None
) -> list[Body]:
    """
    What a chat lacks of an imported one: the chat itself, messages, branches, checkpoints, annotations, runs.

    What is there stays: a branch that exists only moves forward, when the imported head descends from its head; the active
    branch of an existing chat, its title, its end, its checkpoints, annotations and runs are not touched. So a repeated import
    has nothing to do.

    Args:
        state: The chat as it is, if it is.
        chat: As an importer read it.
        ids: New ids for branches, checkpoints and runs that have none: one for each, and one more.
        now: The time, in milliseconds.
        limit: Decide on so many events at most; the rest is decided when called again.

    Raises:
        MessageConflictError, ParentNotFoundError, SelfParentError: A message does not fit to what is stored.
        MessageNotFoundError: A branch, checkpoint, annotation or run names a message that the import does not have.
        InvalidValueError: A value breaks a rule.
    """
    new_ids = iter(ids)
    known = {message.id: message.parent_id for message in chat.messages}
    is_new = state.record is None
    bodies: list[Body] = _create(state, chat, new_ids) if is_new else []
    added = missing_messages(state, [_draft(message) for message in chat.messages], now=now)
    main_head = _main_head(chat, known) if is_new else None
    if added:
        bodies.append(MessagesAppended(tuple(added), MAIN if main_head else None, None, main_head))
    # The active branch comes first, so that it is active also when the rest waits for another commit.
    for number, branch in enumerate(sorted(chat.branches, key=lambda branch: not branch.is_active)):
        check_id(branch.name, "branch name")
        _check_known(chat, known, branch.head_message_id)
        if is_new and branch.name == MAIN:
            continue
        existing = state.branch(branch.name)
        if existing is None:
            bodies.append(_branch_created(branch, new_ids, now + number, activate=is_new and branch.is_active))
        elif _is_behind(state, existing, branch, known):
            bodies.append(HeadMoved(existing.id, existing.name, existing.head_message_id, branch.head_message_id))
    bodies.extend(_checkpoints(state, chat, known, new_ids, now))
    bodies.extend(missing_annotations(state, chat, known))
    bodies.extend(missing_runs(state, chat, known, new_ids))
    return bodies[:limit]


def import_result(chat_id: str, bodies: Sequence[Body]) -> ImportResult:
    """What these events of an import changed."""
    return ImportResult(
        chat_id=chat_id,
        is_new=any(isinstance(body, ChatCreated) for body in bodies),
        messages_added=sum(len(body.messages) for body in bodies if isinstance(body, MessagesAppended)),
        branches_added=sum(isinstance(body, ChatCreated | BranchCreated) for body in bodies),
        heads_moved=sum(isinstance(body, HeadMoved) for body in bodies),
        checkpoints_set=sum(isinstance(body, CheckpointSet) for body in bodies),
        messages_annotated=sum(len(body.message_ids) for body in bodies if isinstance(body, MessagesAnnotated)),
        runs_added=sum(isinstance(body, RunRecorded) for body in bodies),
        regenerations_added=sum(isinstance(body, RegenerationBegun) for body in bodies),
    )


def _draft(message: ImportedMessage) -> NewMessage:
    return NewMessage(
        message.name,
        message.data,
        id=message.id,
        type=message.type,
        parent_id=message.parent_id,
        created_at=message.created_at,
        sender_id=message.sender_id,
        agent_id=message.agent_id,
        reply_to=message.reply_to,
    )


def _create(state: ChatState, chat: ImportedChat, new_ids: Iterator[str]) -> list[Body]:
    main = next((branch for branch in chat.branches if branch.name == MAIN), None)
    return decide_create_chat(
        state,
        user_id=chat.user_id,
        title=chat.title,
        metadata=chat.metadata,
        branch_id=(main.id if main is not None else None) or next(new_ids),
        created_at=chat.created_at,
        expires_at=chat.expires_at,
    )


def _main_head(chat: ImportedChat, known: Mapping[str, str | None]) -> str | None:
    for branch in chat.branches:
        if branch.name == MAIN:
            _check_known(chat, known, branch.head_message_id)
            return branch.head_message_id
    return None


def _branch_created(branch: ImportedBranch, new_ids: Iterator[str], now: int, *, activate: bool) -> Body:
    created_at = now if branch.created_at is None else check_time(branch.created_at, "created_at of a branch")
    return BranchCreated(branch.id or next(new_ids), branch.name, branch.head_message_id, created_at, activate)


def _is_behind(state: ChatState, existing: Branch, imported: ImportedBranch, known: Mapping[str, str | None]) -> bool:
    """Whether the imported head descends from the head that the branch has."""
    head, at = existing.head_message_id, imported.head_message_id
    if head == at or at is None:
        return False
    if head is None:
        return True
    while at is not None and not state.has_message(at):
        at = known[at]
        if at == head:
            return True
    return at is not None and at != head and state.is_ancestor(head, at)


def _checkpoints(
    state: ChatState, chat: ImportedChat, known: Mapping[str, str | None], new_ids: Iterator[str], now: int
) -> Iterator[Body]:
    for checkpoint in chat.checkpoints:
        check_id(checkpoint.name, "checkpoint name")
        _check_known(chat, known, checkpoint.message_id)
        if state.checkpoint(checkpoint.name) is None:
            created_at = now if checkpoint.created_at is None else check_time(checkpoint.created_at, "created_at")
            yield CheckpointSet(checkpoint.id or next(new_ids), checkpoint.name, checkpoint.message_id, created_at)


def _check_known(chat: ImportedChat, known: Mapping[str, str | None], message_id: str | None) -> None:
    if message_id is not None and message_id not in known:
        raise MessageNotFoundError(message_id, chat_id=chat.id)
