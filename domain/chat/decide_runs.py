"""Decisions on runs and annotations. A run that is recorded twice is one run, and a run that has ended never changes."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from ..errors import InvalidValueError, RunConflictError, RunNotFoundError, RunStatusError
from ..limits import (
    changed_metadata,
    check_choice,
    check_flag,
    check_id,
    check_ids,
    check_metadata,
    check_optional_id,
    same_json,
)
from ..values import Annotation, Branch, NewMessage
from .carry_over import branch_of, decide_carry_over
from .decide_branches import check_target
from .decide_chats import require_chat
from .decide_messages import decide_add_messages, decide_append
from .events import Body, MessagesAnnotated, MessagesAppended, RunChanged, RunRecorded
from .runs import PYTHON, MessageRun, RecordedRun, RegenerationRecord, RunStatus
from .state import ChatState


class RunDraft(msgspec.Struct, frozen=True, kw_only=True):
    """A run to record, see `MessageRun`. With `status` None it is completed if it has a message, else running."""

    id: str
    run_id: str
    thread_id: str
    assistant_id: str
    runtime: str = PYTHON
    trigger_message_id: str | None = None
    references: Sequence[str] = ()
    message_id: str | None = None
    checkpoint_id: str | None = None
    status: RunStatus | None = None
    repeats: str | None = None
    regeneration_id: str | None = None
    metadata: dict[str, Any] | None = None


class RunAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A message that a run produced, to be appended to a branch: when None the one that its regeneration builds, or the active one."""

    draft: NewMessage
    branch: str | None = None


def decide_record_run(state: ChatState, new: RunDraft, *, answer: RunAnswer | None = None, now: int) -> list[Body]:
    """
    A new run, with its answer if it has one already. Nothing when it is recorded.

    Raises:
        ChatNotFoundError, BranchNotFoundError, MessageNotFoundError, WrongChatError: Something is not there.
        RunConflictError: The run is recorded with other fields.
        InvalidValueError: A value breaks a rule.
    """
    require_chat(state)
    message_id = _check_new(new, answer)
    recorded = state.run(new.run_id)
    if recorded is not None:
        # What was learned of a run since it was recorded does not make it another one.
        names = ("thread_id", "assistant_id", "runtime", "trigger_message_id", "repeats", "regeneration_id")
        different = [name for name in names if getattr(recorded, name) != getattr(new, name)]
        if recorded.references != list(new.references):
            different.append("references")
        if message_id not in {None, recorded.message_id}:
            different.append("message_id")
        if new.checkpoint_id not in {None, recorded.checkpoint_id}:
            different.append("checkpoint_id")
        if new.status == "completed" and recorded.status != "completed":
            different.append("status")
        if different:
            why = f"is recorded with another {', '.join(different)}; use a new run id"
            raise RunConflictError(state.chat_id, recorded.run_id, why=why)
        return []
    for target in (new.trigger_message_id, *new.references, new.message_id):
        check_target(state, target)
    return [
        *_appended(state, answer, new.trigger_message_id, new.assistant_id, now),
        RunRecorded(
            RecordedRun(
                id=new.id,
                run_id=new.run_id,
                thread_id=new.thread_id,
                assistant_id=new.assistant_id,
                runtime=new.runtime,
                trigger_message_id=new.trigger_message_id,
                references=list(new.references),
                message_id=message_id,
                checkpoint_id=new.checkpoint_id,
                status=new.status or ("running" if message_id is None else "completed"),
                created_at=now,
                updated_at=now,
                repeats=new.repeats,
                regeneration_id=new.regeneration_id,
            ),
            check_metadata(new.metadata) or None,
        ),
    ]


def decide_start_run(state: ChatState, run_id: str) -> list[Body]:
    """A pending run begins, or a waiting run goes on; nothing when it is running. Raises `RunNotFoundError`, `RunStatusError`."""
    run = require_run(state, run_id)
    if run.status == "running":
        return []
    return [_moved(state, run, {"status": "running"})]


def decide_update_run(state: ChatState, run_id: str, metadata: dict[str, Any]) -> list[Body]:
    """More metadata of a run, also of one that has ended; nothing when it has them. Raises `RunNotFoundError`."""
    run = require_run(state, run_id)
    changes = _noted(run, metadata)
    return [RunChanged(run_id, changes)] if changes else []


def decide_suspend_run(
    state: ChatState, run_id: str, *, checkpoint_id: str | None = None, metadata: dict[str, Any] | None = None
) -> list[Body]:
    """A running run waits for an answer; nothing when it does. Raises `RunNotFoundError`, `RunStatusError`."""
    run = require_run(state, run_id)
    if run.status == "pending":  # nothing ran that could ask
        raise RunStatusError(state.chat_id, run_id, status=run.status, wanted="waiting")
    return _stopped(state, run, "waiting", checkpoint_id, metadata)


def decide_fail_run(
    state: ChatState, run_id: str, *, checkpoint_id: str | None = None, metadata: dict[str, Any] | None = None
) -> list[Body]:
    """A run ends without an answer; nothing when it did. Raises `RunNotFoundError`, `RunStatusError`."""
    return _stopped(state, require_run(state, run_id), "error", checkpoint_id, metadata)


def decide_complete_run(
    state: ChatState,
    run_id: str,
    *,
    message_id: str | None = None,
    answer: RunAnswer | None = None,
    checkpoint_id: str | None = None,
    metadata: dict[str, Any] | None = None,
    now: int,
) -> list[Body]:
    """
    A run ends with what it produced, which takes the place of what the run produced that it repeats. Nothing when it did.

    On the branch that its regeneration builds, the messages that follow the old answer are carried over.

    Raises:
        ChatNotFoundError, RunNotFoundError, BranchNotFoundError, MessageNotFoundError, WrongChatError: Something is not there.
        RunStatusError: It ended before, otherwise.
        InvalidValueError: A value breaks a rule.
    """
    run = require_run(state, run_id)
    message_id = _produced(message_id, answer)
    check_optional_id(checkpoint_id, "checkpoint_id")
    noted = _noted(run, metadata)
    is_same = message_id in {None, run.message_id} and checkpoint_id in {None, run.checkpoint_id} and not noted
    if run.status == "completed" and is_same:
        return []
    produced = _present(message_id=message_id, checkpoint_id=checkpoint_id)
    changed = _moved(state, run, {"status": "completed", **produced, **noted})
    if answer is None:
        check_target(state, message_id)
    record = None if run.regeneration_id is None else state.regeneration(run.regeneration_id)
    branch = None if record is None else branch_of(state, record)
    appended = _answered(state, run, answer, record, branch, now)
    bodies: list[Body] = [*appended, changed]
    before = None if run.repeats is None else state.run(run.repeats)
    if before is not None and before.message_id is not None and message_id not in {None, before.message_id}:
        bodies += annotations(state, [before.message_id], {"stale": True, "replaced_by": message_id})
    if record is not None and branch is not None:
        # The state is that before this commit: the head behind the answer, and the run as it ends, are known here only.
        head = next((body.to_head for body in appended if body.branch == branch.number), branch.head_message_id)
        ended = msgspec.structs.replace(run, status="completed", message_id=message_id)
        attempts = [ended if attempt.run_id == run_id else attempt for attempt in state.runs(regeneration_id=record.id)]
        bodies += decide_carry_over(state, record, head=head, branch=branch.number, attempts=attempts)
    return bodies


def decide_carry_on(state: ChatState, regeneration_id: str | None) -> list[Body]:
    """Return the events that carry over the rest to the branch of a regeneration, as far as its answers are there; none when all is there."""
    record = None if regeneration_id is None else state.regeneration(regeneration_id)
    branch = None if record is None else branch_of(state, record)
    if record is None or branch is None:
        return []
    attempts = state.runs(regeneration_id=record.id)
    return decide_carry_over(state, record, head=branch.head_message_id, branch=branch.number, attempts=attempts)


def require_run(state: ChatState, run_id: str) -> MessageRun:
    """The run of that id. Raises `ChatNotFoundError` or `RunNotFoundError`."""
    require_chat(state)
    run = state.run(check_id(run_id, "run_id"))
    if run is None:
        raise RunNotFoundError(state.chat_id, run_id)
    return run


def _check_new(new: RunDraft, answer: RunAnswer | None) -> str | None:
    """Check a new run; returns the id of the message that it produced."""
    for name in ("run_id", "thread_id", "assistant_id", "runtime"):
        check_id(getattr(new, name), name)
    for name in ("trigger_message_id", "checkpoint_id"):
        check_optional_id(getattr(new, name), name)
    check_ids(new.references, "references")
    if new.status is not None:
        check_choice(new.status, ("pending", "running", "completed"), "the status of a new run")
    message_id = _produced(new.message_id, answer)
    if message_id is not None and new.status not in {None, "completed"}:
        msg = f"run {new.run_id!r} has an answer, so it is completed, not {new.status}"
        raise InvalidValueError(msg)
    return message_id


def _produced(message_id: str | None, answer: RunAnswer | None) -> str | None:
    check_optional_id(message_id, "message_id")
    if answer is None:
        return message_id
    if message_id is not None:
        msg = "give either a message_id or the answer itself, not both"
        raise InvalidValueError(msg)
    return check_id(getattr(answer.draft, "id", None), "message id")


def _stopped(
    state: ChatState, run: MessageRun, status: RunStatus, checkpoint_id: str | None, metadata: dict[str, Any] | None
) -> list[Body]:
    """Move a run that has no answer; nothing when it is there with the same values."""
    check_optional_id(checkpoint_id, "checkpoint_id")
    noted = _noted(run, metadata)
    if run.status == status and checkpoint_id in {None, run.checkpoint_id} and not noted:
        return []
    return [_moved(state, run, {"status": status, **_present(checkpoint_id=checkpoint_id), **noted})]


def _moved(state: ChatState, run: MessageRun, changes: dict[str, Any]) -> RunChanged:
    if run.is_ended:
        raise RunStatusError(state.chat_id, run.run_id, status=run.status, wanted=changes["status"])
    return RunChanged(run.run_id, changes)


def _noted(run: MessageRun, metadata: dict[str, Any] | None) -> dict[str, Any]:
    """Return the change that merges metadata into those of a run; none when it has them."""
    merged = check_metadata({**run.metadata, **(check_metadata(metadata) or {})}) or {}
    return {} if same_json(merged, run.metadata) else {"metadata": merged}


def _present(**values: str | None) -> dict[str, str]:
    return {name: value for name, value in values.items() if value is not None}


def _answered(
    state: ChatState,
    run: MessageRun,
    answer: RunAnswer | None,
    record: RegenerationRecord | None,
    branch: Branch | None,
    now: int,
) -> list[MessagesAppended]:
    """Append the answer of a run; of one that has no place on the branch being built, as a version below its trigger."""
    if answer is None:
        return []
    trigger = run.trigger_message_id
    if answer.branch is None and record is not None and branch is not None:
        # Without a place it would stand behind whatever comes last on the branch, as if it answered that.
        is_placed = record.carries is not None and record.carries.places(run.repeats)
        if not is_placed and trigger is not None and isinstance(answer.draft, NewMessage):
            draft = msgspec.structs.replace(answer.draft, parent_id=trigger)
            added = decide_add_messages(state, [_signed(draft, trigger, run.assistant_id)], now=now)
            return [body for body in added if isinstance(body, MessagesAppended)]
        answer = msgspec.structs.replace(answer, branch=branch.name)
    return _appended(state, answer, trigger, run.assistant_id, now)


def _appended(
    state: ChatState, answer: RunAnswer | None, trigger_message_id: str | None, assistant_id: str, now: int
) -> list[MessagesAppended]:
    """Append the answer to its branch, from the assistant and as a reply to the trigger."""
    if answer is None:
        return []
    draft = _signed(answer.draft, trigger_message_id, assistant_id)
    bodies = decide_append(state, now, drafts=[draft], branch=answer.branch, expected_head=UNSET)
    return [body for body in bodies if isinstance(body, MessagesAppended)]


def _signed(draft: NewMessage, trigger_message_id: str | None, assistant_id: str) -> NewMessage:
    if not isinstance(draft, NewMessage):
        return draft  # refused where it is decided on
    is_unsigned = draft.agent_id is None and draft.sender_id is None
    return msgspec.structs.replace(
        draft,
        agent_id=assistant_id if is_unsigned else draft.agent_id,
        reply_to=trigger_message_id if draft.reply_to is None else draft.reply_to,
    )


def decide_annotate(
    state: ChatState,
    message_id: str,
    *,
    stale: bool | UnsetType = UNSET,
    replaced_by: str | UnsetType | None = UNSET,
    hidden: bool | UnsetType = UNSET,
    metadata: dict[str, Any] | UnsetType | None = UNSET,
    merged_metadata: dict[str, Any] | None = None,
) -> list[Body]:
    """
    Another annotation; UNSET leaves, None clears. Nothing when all is as it was.

    `merged_metadata` are set among those that are there, `metadata` take their place.

    Raises:
        ChatNotFoundError, MessageNotFoundError, WrongChatError: The chat or a message is not there.
        InvalidValueError: A value breaks a rule, or a message would replace itself.
    """
    require_chat(state)
    check_target(state, check_id(message_id, "message_id"))
    changes: dict[str, Any] = {}
    for name, value in (("stale", stale), ("hidden", hidden)):
        if value is not UNSET:
            changes[name] = check_flag(value, name)
    if replaced_by is not UNSET:
        if replaced_by is not None:
            check_target(state, check_id(replaced_by, "replaced_by"))
        if replaced_by == message_id:
            msg = f"message {message_id!r} cannot be replaced by itself"
            raise InvalidValueError(msg)
        changes["replaced_by"] = replaced_by
    before = state.annotation(message_id)
    after = changed_metadata(None if before is None else before.metadata, metadata, merged_metadata)
    if after is not UNSET:
        changes["metadata"] = after or {}
    return annotations(state, [message_id], changes)


def annotations(state: ChatState, message_ids: Sequence[str], changes: dict[str, Any]) -> list[Body]:
    """Changes of the annotations of messages: of those that do not say so already."""
    changing = [message_id for message_id in message_ids if not _says(state.annotation(message_id), changes)]
    return [MessagesAnnotated(tuple(changing), changes)] if changing else []


def _says(annotation: Annotation | None, changes: dict[str, Any]) -> bool:
    before = Annotation() if annotation is None else annotation
    return all(same_json(getattr(before, name), value) for name, value in changes.items())
