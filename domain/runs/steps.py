"""How far a regeneration is: worked out from what was planned and the records of the runs that repeat it."""

from collections.abc import Mapping, Sequence

from .values import MessageRun, PlannedRun, Regeneration, RegenerationRecord, RegenerationStep, StepStatus


def describe_regeneration(chat_id: str, record: RegenerationRecord, attempts: Sequence[MessageRun]) -> Regeneration:
    """
    A regeneration with its steps.

    A step is ready when it is approved and the earlier steps whose messages it needs are done. What later steps produce,
    where runs refer to each other in circles, is not waited for.

    Args:
        chat_id: The chat.
        record: What was written down when it began.
        attempts: The runs of this regeneration, in the order in which they were recorded.
    """
    last = {attempt.repeats: attempt for attempt in attempts}
    replaced = {record.edited_message_id: record.new_message_id}
    for planned in record.runs:
        attempt = last.get(planned.run_id)
        if planned.message_id is not None and attempt is not None and attempt.message_id is not None:
            # The edited message stays what it was edited to, also where a circle leads back to it.
            replaced.setdefault(planned.message_id, attempt.message_id)
    undone: set[str] = set()
    steps: list[RegenerationStep] = []
    for planned in record.runs:
        attempt = last.get(planned.run_id)
        status = _status(planned, attempt, undone, is_approved=planned.run_id in record.approved)
        if status != "completed" and planned.message_id is not None and planned.message_id != record.edited_message_id:
            undone.add(planned.message_id)
        steps.append(_step(planned, status, attempt, replaced))
    return Regeneration(
        id=record.id,
        chat_id=chat_id,
        edited_message_id=record.edited_message_id,
        new_message_id=record.new_message_id,
        created_at=record.created_at,
        steps=steps,
    )


def _status(planned: PlannedRun, attempt: MessageRun | None, undone: set[str], *, is_approved: bool) -> StepStatus:
    if attempt is not None:
        return attempt.status
    if not is_approved:
        return "awaiting_approval"
    return "waiting" if not undone.isdisjoint([planned.trigger_message_id or "", *planned.references]) else "ready"


def _step(
    planned: PlannedRun, status: StepStatus, attempt: MessageRun | None, replaced: Mapping[str, str]
) -> RegenerationStep:
    if attempt is not None:
        return RegenerationStep(
            repeats=planned,
            status=status,
            trigger_message_id=attempt.trigger_message_id,
            references=list(attempt.references),
            run=attempt,
        )
    trigger = planned.trigger_message_id
    return RegenerationStep(
        repeats=planned,
        status=status,
        trigger_message_id=None if trigger is None else replaced.get(trigger, trigger),
        references=[replaced.get(reference, reference) for reference in planned.references],
        run=None,
    )
