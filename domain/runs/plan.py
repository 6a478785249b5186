"""Which runs an edit makes stale, transitively. Runs may refer to each other in circles."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from ..rules import check_count
from .values import Cause, MessageRun, PlannedRun, RegenerationPlan


def plan_regeneration(
    chat_id: str, message_id: str, runs: Sequence[MessageRun], *, max_cascade: int
) -> RegenerationPlan:
    """
    The runs that an edit of a message makes stale.

    A run is stale when its trigger or one of its references is the edited message, or a message produced by a stale run.

    Args:
        chat_id: The chat.
        message_id: The message that is edited.
        runs: All runs of the chat, in the order in which they were recorded.
        max_cascade: So many of them, all depths together, need no approval.

    Raises:
        InvalidValueError: `max_cascade` is negative.
    """
    check_count(max_cascade, "max_cascade")
    reached = _reach(message_id, runs)
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


def _reach(message_id: str, runs: Sequence[MessageRun]) -> dict[int, tuple[int, Cause]]:
    """The numbers of the stale runs, each with the steps to it and what the last of them was."""
    triggered, referring = defaultdict[str, list[int]](list), defaultdict[str, list[int]](list)
    for number, run in enumerate(runs):
        if run.trigger_message_id is not None:
            triggered[run.trigger_message_id].append(number)
        for reference in run.references:
            referring[reference].append(number)
    reached: dict[int, tuple[int, Cause]] = {}
    seen, edge, depth = {message_id}, [message_id], 0
    while edge:
        depth += 1
        found: dict[int, tuple[int, Cause]] = {}
        for number in _of(referring, edge):
            found[number] = depth, "reference"
        for number in _of(triggered, edge):
            found[number] = depth, "trigger"
        new = {number: how for number, how in found.items() if number not in reached}
        reached |= new
        edge = [made for number in new if (made := runs[number].message_id) is not None and made not in seen]
        seen.update(edge)
    return reached


def _of(numbers: dict[str, list[int]], message_ids: Iterable[str]) -> Iterable[int]:
    return (number for message_id in message_ids for number in numbers.get(message_id, ()))
