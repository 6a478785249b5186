"""Regenerations: which runs an edit makes stale, how far their repetition is, and the decisions on it."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from ..errors import (
    PlanOutdatedError,
    RegenerationNotFoundError,
    RunConflictError,
    RunNotFoundError,
    RunStatusError,
)
from ..limits import check_count, check_id, check_ids
from ..values import Branch
from .carry_over import branch_of, decide_carry_over, decide_target, last_open, replacements, successor
from .decide_branches import check_target
from .decide_chats import require_chat
from .decide_runs import RunDraft, annotations, decide_record_run
from .events import Body, MessagesAnnotated, RegenerationApproved, RegenerationBegun
from .runs import (
    Cause,
    MessageRun,
    PlannedRun,
    Regeneration,
    RegenerationPlan,
    RegenerationRecord,
    RegenerationStep,
    RunStatus,
    StepStatus,
)
from .state import ChatState


def plan_regeneration(
    chat_id: str, message_id: str, runs: Sequence[MessageRun], *, max_cascade: int, lineage: Mapping[str, str]
) -> RegenerationPlan:
    """
    The runs that an edit of a message makes stale.

    A run is stale when its trigger or one of its references is the edited message, or a message produced by a stale run; or
    when its agent went on from what it remembered of a stale run.

    Args:
        chat_id: The chat.
        message_id: The message that is edited.
        runs: All runs of the chat, in the order in which they were recorded.
        max_cascade: So many of them, all depths together, need no approval.
        lineage: By the ids of runs those of the runs whose memory they went on from, see `lineage_of`.

    Raises:
        InvalidValueError: `max_cascade` is negative.
    """
    check_count(max_cascade, "max_cascade")
    reached = _reach(message_id, runs, lineage)
    stale = {runs[number].run_id for number in reached}
    planned = [
        PlannedRun(
            run_id=run.run_id,
            assistant_id=run.assistant_id,
            runtime=run.runtime,
            trigger_message_id=run.trigger_message_id,
            message_id=run.message_id,
            checkpoint_id=run.checkpoint_id,
            depth=reached[number][0],
            cause=reached[number][1],
            thread_id=run.thread_id,
            references=list(run.references),
            remembers=before if (before := lineage.get(run.run_id)) in stale else None,
        )
        for number, run in enumerate(runs)
        if number in reached
    ]
    run_ids = [run.run_id for run in planned]
    return RegenerationPlan(
        chat_id=chat_id,
        edited_message_id=message_id,
        runs=planned,
        stale_message_ids=list(dict.fromkeys(run.message_id for run in planned if run.message_id is not None)),
        automatic=run_ids[:max_cascade],
        awaiting_approval=run_ids[max_cascade:],
        max_cascade=max_cascade,
        needs_approval=len(run_ids) > max_cascade,
    )


def _reach(message_id: str, runs: Sequence[MessageRun], lineage: Mapping[str, str]) -> dict[int, tuple[int, Cause]]:
    """Return the numbers of the stale runs, each with its depth and its cause."""
    triggered, referring = defaultdict[str, list[int]](list), defaultdict[str, list[int]](list)
    remembering = defaultdict[str, list[int]](list)
    for number, run in enumerate(runs):
        if run.run_id in lineage:
            remembering[lineage[run.run_id]].append(number)
        if run.trigger_message_id is not None:
            triggered[run.trigger_message_id].append(number)
        for reference in run.references:
            referring[reference].append(number)
    reached: dict[int, tuple[int, Cause]] = {}
    edge, stale, depth = [message_id], list[str](), 0
    while edge or stale:
        depth += 1
        causes: dict[int, tuple[int, Cause]] = {}
        # The plainest cause is said last and stays, where a run is reached in several ways at once.
        for number in _of(remembering, stale):
            causes[number] = depth, "memory"
        for number in _of(referring, edge):
            causes[number] = depth, "reference"
        for number in _of(triggered, edge):
            causes[number] = depth, "trigger"
        new = {number: how for number, how in causes.items() if number not in reached}
        reached |= new
        edge = [answer for number in new if (answer := runs[number].message_id) is not None]
        stale = [runs[number].run_id for number in new]
    return reached


def _of(numbers: dict[str, list[int]], ids: Iterable[str]) -> Iterable[int]:
    return (number for cause_id in ids for number in numbers.get(cause_id, ()))


def regeneration_of(
    state: ChatState, record: RegenerationRecord, *, branches: Sequence[Branch] | None = None
) -> Regeneration:
    """
    A regeneration of a chat with its steps.

    A step is ready when it is approved and the earlier steps are done whose messages it needs, or whose memory its agent goes
    on from. What later steps produce, where runs refer to each other in circles, is not waited for. On the branch that is
    built, it also waits for the answers that stand before its own. The steps of an assistant on a thread are ready one after
    the other, in their order: a second run would begin without what the first adds to the memory, and would put an end to its
    question. So what is ready stays ready, whatever others finish.

    `branches`: the branches of the chat, where they are known.
    """
    branch = branch_of(state, record, branches=branches)
    attempts = state.runs(regeneration_id=record.id)
    last = {attempt.repeats: attempt for attempt in attempts}
    replaced = replacements(record, attempts)
    stretches = () if record.carries is None or branch is None else record.carries.stretches
    numbers = {run_id: number for number, stretch in enumerate(stretches) for run_id in stretch.run_ids}
    opened = last_open(record, state.has_message)

    def new(message_id: str) -> str:
        if branch is None:
            return replaced.get(message_id, message_id)
        return successor(state.has_message, record.id, replaced, message_id)

    earliest_behind = _earliest_behind(record.runs, numbers, len(stretches))
    missing, undone, held = set[str | None](), set[str | None](), set[str | None]()
    ahead: set[tuple[str, str]] = set()
    steps: list[RegenerationStep] = []
    for planned in record.runs:
        behind = earliest_behind.pop()
        attempt = last.get(planned.run_id)
        agent = planned.thread_id, planned.assistant_id
        is_free = (
            numbers.get(planned.run_id, opened) <= opened
            and planned.remembers not in undone
            and agent not in ahead
            and missing.isdisjoint([planned.trigger_message_id, *planned.references])
        )
        # An agent's earlier step holds up its later one: were that ready meanwhile, whoever read the list would be refused in the end.
        status = _status(attempt, is_approved=planned.run_id in record.approved, is_free=is_free)
        if status == "waiting" and _waits_for_later(planned, held, numbers.get(planned.run_id, 0), behind):
            held |= {planned.run_id, planned.message_id} - {None}
        elif status in {"waiting", "ready", "pending", "running", "asking"}:
            ahead.add(agent)
        if status != "completed":
            undone.add(planned.run_id)
            if planned.message_id not in {None, record.edited_message_id}:
                missing.add(planned.message_id)
        steps.append(_step(planned, status, attempt, new))
    return Regeneration(
        id=record.id,
        chat_id=state.chat_id,
        edited_message_id=record.edited_message_id,
        new_message_id=record.new_message_id,
        created_at=record.created_at,
        steps=steps,
        branch=None if branch is None else branch.name,
    )


def _earliest_behind(runs: Sequence[PlannedRun], numbers: Mapping[str, int], end: int) -> list[int]:
    """Return for each run, the last one first, the number of the earliest stretch that has a run behind it in the plan."""
    earliest = [end]
    for planned in reversed(runs[1:]):
        earliest.append(min(earliest[-1], numbers.get(planned.run_id, end)))
    return earliest


def _waits_for_later(planned: PlannedRun, held: Collection[str | None], number: int, behind: int) -> bool:
    """
    Whether a run waits for a later one of the plan: for its place on the branch, or for what a run with such a place says.

    The later one must not wait for it in turn, or neither would ever be ready.
    """
    needed = {planned.trigger_message_id, planned.remembers, *planned.references}
    return number > behind or not needed.isdisjoint(held)


def _status(attempt: MessageRun | None, *, is_approved: bool, is_free: bool) -> StepStatus:
    if attempt is not None:
        return "asking" if attempt.status == "waiting" else attempt.status
    if not is_approved:
        return "awaiting_approval"
    return "ready" if is_free else "waiting"


def _step(
    planned: PlannedRun, status: StepStatus, attempt: MessageRun | None, new: Callable[[str], str]
) -> RegenerationStep:
    trigger, references = planned.trigger_message_id, planned.references
    if attempt is None:
        trigger, references = None if trigger is None else new(trigger), [new(reference) for reference in references]
    else:
        trigger, references = attempt.trigger_message_id, attempt.references
    return RegenerationStep(
        repeats=planned, status=status, trigger_message_id=trigger, references=list(references), run=attempt
    )


def decide_mark_stale(state: ChatState, plan: RegenerationPlan) -> list[Body]:
    """
    Mark the messages that the planned runs produced as stale, and not yet replaced. No events when they are.

    Raises:
        ChatNotFoundError, MessageNotFoundError, WrongChatError: The chat or a message is not there.
    """
    require_chat(state)
    for message_id in plan.stale_message_ids:
        check_target(state, message_id)
    return annotations(state, plan.stale_message_ids, {"stale": True, "replaced_by": None})


def decide_begin_regeneration(
    state: ChatState,
    plan: RegenerationPlan,
    *,
    regeneration_id: str,
    new_message_id: str,
    branch: str | None,
    branch_id: str,
    now: int,
    lineage: Mapping[str, str],
) -> list[Body]:
    """
    Begin to repeat runs for a message that replaces the edited one. No events when this was begun already.

    The messages before the first stale answer are carried over to the branch of the new message, see `carry_over`.

    Args:
        state: The chat.
        plan: The runs.
        regeneration_id: A new id.
        new_message_id: The message.
        branch: The branch to build; None to find or to make one.
        branch_id: The id of a branch that is made.
        now: The time in ms.
        lineage: As for `plan_regeneration`.

    Raises:
        ChatNotFoundError, MessageNotFoundError, WrongChatError: The chat or the new message is not there.
        BranchNotFoundError, InvalidValueError: The branch is not there, or does not contain the new message.
        RunConflictError: A regeneration of another message has this id.
        PlanOutdatedError: Planning now gives another plan.
    """
    require_chat(state)
    check_id(regeneration_id, "regeneration_id")
    check_target(state, check_id(new_message_id, "new_message_id"))
    edited = plan.edited_message_id
    begun = state.regeneration(regeneration_id)
    if begun is not None:
        if (begun.edited_message_id, begun.new_message_id) == (edited, new_message_id):
            return []
        why = f"is the regeneration after an edit of {begun.edited_message_id!r}; use a new id"
        raise RunConflictError(state.chat_id, regeneration_id, why=why)
    current = plan_regeneration(state.chat_id, edited, state.runs(), max_cascade=plan.max_cascade, lineage=lineage)
    if plan != current:
        raise PlanOutdatedError(state.chat_id, edited)
    # A plan is shown to a human before it is carried out: what was approved is what runs, or nothing.
    bodies = decide_mark_stale(state, plan)
    if edited != new_message_id:
        replaced = {"replaced_by": new_message_id}
        # Where runs refer to each other in circles it may be among those that were just marked as not replaced.
        is_marked = edited in plan.stale_message_ids
        bodies += [MessagesAnnotated((edited,), replaced)] if is_marked else annotations(state, [edited], replaced)
    target = decide_target(state, plan, new_message_id=new_message_id, branch=branch, branch_id=branch_id, now=now)
    runs, automatic = tuple(plan.runs), tuple(plan.automatic)
    bodies.append(RegenerationBegun(regeneration_id, edited, new_message_id, runs, automatic, carries=target.carries))
    record = RegenerationRecord(regeneration_id, edited, new_message_id, runs, automatic, now, target.carries)
    follows = decide_carry_over(state, record, head=target.head_message_id, branch=target.number)
    return [*bodies, *target.bodies, *follows]


def decide_approve(state: ChatState, regeneration_id: str, run_ids: Collection[str] | None) -> list[Body]:
    """
    Allow more runs of a regeneration to be repeated, all when `run_ids` is None. No events when they may be already.

    Raises:
        ChatNotFoundError, RegenerationNotFoundError, RunNotFoundError: The chat, the regeneration or a run of it is not there.
    """
    record = require_regeneration(state, regeneration_id)
    planned = [run.run_id for run in record.runs]
    wanted = planned if run_ids is None else check_ids(run_ids, "run_ids")
    for run_id in wanted:
        if run_id not in planned:
            raise RunNotFoundError(state.chat_id, run_id)
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
    metadata: dict[str, Any] | None = None,
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
        metadata: Those of the new run.

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
    new = RunDraft(
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
        metadata=metadata,
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
    for step in regeneration_of(state, require_regeneration(state, regeneration_id)).steps:
        if step.repeats.run_id == repeats:
            return step
    raise RunNotFoundError(state.chat_id, repeats)
