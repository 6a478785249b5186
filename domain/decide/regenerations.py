"""Decisions on what is repeated after an edit."""

from collections.abc import Collection

from ..errors import (
    InvalidValueError,
    PlanOutdatedError,
    RegenerationNotFoundError,
    RunConflictError,
    RunNotFoundError,
    RunStatusError,
)
from ..events import Body
from ..rules import check_id
from ..runs.events import MessagesAnnotated, RegenerationApproved, RegenerationBegun
from ..runs.plan import plan_regeneration
from ..runs.steps import describe_regeneration
from ..runs.values import RegenerationPlan, RegenerationRecord, RegenerationStep, RunStatus
from ..state import ChatState
from .annotations import annotations
from .branches import check_target
from .chats import require_chat
from .runs import NewRun, decide_record_run


def decide_mark_stale(state: ChatState, plan: RegenerationPlan) -> list[Body]:
    """
    The messages that the planned runs produced are stale, and not yet replaced. Nothing when they are.

    Raises:
        ChatNotFoundError, MessageNotFoundError, WrongChatError: The chat or a message is not there.
    """
    require_chat(state)
    for message_id in plan.stale_message_ids:
        check_target(state, message_id)
    return annotations(state, plan.stale_message_ids, {"stale": True, "replaced_by": None})


def decide_begin_regeneration(
    state: ChatState, plan: RegenerationPlan, *, regeneration_id: str, new_message_id: str
) -> list[Body]:
    """
    Runs are to be repeated for a message that takes the place of the edited one. Nothing when this was begun already.

    Raises:
        ChatNotFoundError, MessageNotFoundError, WrongChatError: The chat or the new message is not there.
        RunConflictError: A regeneration of another message has this id.
        PlanOutdatedError: Planning now gives another plan.
    """
    require_chat(state)
    check_id(regeneration_id, "regeneration_id")
    check_target(state, check_id(new_message_id, "new_message_id"))
    edited = plan.edited_message_id
    known = state.regeneration(regeneration_id)
    if known is not None:
        if (known.edited_message_id, known.new_message_id) == (edited, new_message_id):
            return []
        why = f"is the regeneration after an edit of {known.edited_message_id!r}; use a new id"
        raise RunConflictError(state.chat_id, regeneration_id, why=why)
    if plan != plan_regeneration(state.chat_id, edited, state.runs(), max_cascade=plan.max_cascade):
        raise PlanOutdatedError(state.chat_id, edited)
    bodies = decide_mark_stale(state, plan)
    if edited != new_message_id:
        replaced = {"replaced_by": new_message_id}
        # Where runs refer to each other in circles it may be among those that were just marked as not replaced.
        is_marked = edited in plan.stale_message_ids
        bodies += [MessagesAnnotated((edited,), replaced)] if is_marked else annotations(state, [edited], replaced)
    return [
        *bodies,
        RegenerationBegun(regeneration_id, edited, new_message_id, tuple(plan.runs), tuple(plan.automatic)),
    ]


def decide_approve(state: ChatState, regeneration_id: str, run_ids: Collection[str] | None) -> list[Body]:
    """
    More of its runs may be repeated, all when None. Nothing when they may already.

    Raises:
        ChatNotFoundError, RegenerationNotFoundError, RunNotFoundError: The chat, the regeneration or a run of it is not there.
    """
    record = require_regeneration(state, regeneration_id)
    planned = [run.run_id for run in record.runs]
    if isinstance(run_ids, str):
        msg = "run_ids must be a list of run ids"
        raise InvalidValueError(msg)
    for run_id in run_ids or ():
        if run_id not in planned:
            raise RunNotFoundError(state.chat_id, run_id)
    wanted = planned if run_ids is None else run_ids
    approved = tuple(run_id for run_id in planned if run_id in wanted and run_id not in record.approved)
    return [RegenerationApproved(regeneration_id, approved)] if approved else []


def decide_repeat_run(
    state: ChatState,
    regeneration_id: str,
    repeats: str,
    *,
    record_id: str,
    run_id: str,
    is_new_id: bool,
    status: RunStatus,
    now: int,
) -> list[Body]:
    """
    A new run on the same thread, of the same assistant, triggered by what is new. Nothing when there is one and it did not fail.

    Args:
        state: The chat.
        regeneration_id: The regeneration.
        repeats: The run id of the run to repeat.
        record_id: The id of the record.
        run_id: The id of the new run.
        is_new_id: Whether the caller leaves the id to the ledger, so that a run which is there already will do.
        status: `running` or `pending`.
        now: The time in ms.

    Raises:
        ChatNotFoundError, RegenerationNotFoundError, RunNotFoundError: The chat, the regeneration or a run of it is not there.
        RunStatusError: It is not approved, or waits for others.
        RunConflictError: Another run repeats it already, or the id is taken.
    """
    step = require_step(state, regeneration_id, repeats)
    run = step.run
    if run is not None and (run.run_id == run_id or (run.status != "error" and is_new_id)):
        return []
    if run is not None and run.status != "error":
        raise RunConflictError(state.chat_id, run.run_id, why=f"repeats {repeats!r} already, and is {run.status}")
    if step.status not in {"ready", "error"}:
        raise RunStatusError(state.chat_id, repeats, status=step.status, wanted=status)
    planned = step.repeats
    new = NewRun(
        id=record_id,
        run_id=run_id,
        thread_id=planned.thread_id,
        assistant_id=planned.assistant_id,
        runtime=planned.runtime,
        trigger_message_id=step.trigger_message_id,
        references=step.references,
        status=status,
        repeats=planned.run_id,
        regeneration_id=regeneration_id,
    )
    bodies = decide_record_run(state, new, now=now)
    if not bodies:
        raise RunConflictError(state.chat_id, run_id, why="is an earlier attempt, which failed; use a new run id")
    return bodies


def require_regeneration(state: ChatState, regeneration_id: str) -> RegenerationRecord:
    """The regeneration of that id. Raises `ChatNotFoundError` or `RegenerationNotFoundError`."""
    require_chat(state)
    record = state.regeneration(check_id(regeneration_id, "regeneration_id"))
    if record is None:
        raise RegenerationNotFoundError(state.chat_id, regeneration_id)
    return record


def require_step(state: ChatState, regeneration_id: str, repeats: str) -> RegenerationStep:
    """The step of a regeneration that repeats this run. Raises as `require_regeneration`, and `RunNotFoundError`."""
    record = require_regeneration(state, regeneration_id)
    regeneration = describe_regeneration(state.chat_id, record, state.runs(regeneration_id=regeneration_id))
    for step in regeneration.steps:
        if step.repeats.run_id == repeats:
            return step
    raise RunNotFoundError(state.chat_id, repeats)
