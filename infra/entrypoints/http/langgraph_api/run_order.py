"""The order of the runs of a thread: which go first, and what becomes of them when another one is to run."""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from chatledger.domain.chat.runs import MessageRun

from .run_records import due_at

Strategy = Literal["enqueue", "reject", "interrupt", "rollback"]
"""What to do when another run is on the thread: wait for it, give up, end it, or end it and undo what it did."""
Action = Literal["interrupt", "rollback"]


class Turn(NamedTuple):
    """
    What becomes of a new run.

    Args:
        is_refused: Whether it is not to run at all.
        cancels: The runs that are to end for it, and how.
        waits_for: The ids of the runs that it waits for.
    """

    is_refused: bool = False
    cancels: tuple[tuple[str, Action], ...] = ()
    waits_for: tuple[str, ...] = ()


def ahead_of(run: MessageRun, runs: Sequence[MessageRun]) -> list[MessageRun]:
    """
    Return the runs that go before one: those that are running, and those that were due earlier.

    Args:
        run: The run.
        runs: All runs of its thread that have not ended, in the order of their records. The order follows from these alone, so
            that all processes find the same.
    """
    places = {one.run_id: (due_at(one), place) for place, one in enumerate(runs)}
    own = places[run.run_id]
    return [one for one in runs if one.run_id != run.run_id and (one.status == "running" or places[one.run_id] < own)]


def decide_turn(strategy: Strategy, ahead: Iterable[MessageRun]) -> Turn:
    """Decide what becomes of a new run, with those that go before it."""
    ids = tuple(one.run_id for one in ahead)
    if not ids:
        return Turn()
    if strategy == "reject":
        return Turn(is_refused=True)
    if strategy == "enqueue":
        return Turn(waits_for=ids)
    return Turn(cancels=tuple((one, strategy) for one in ids), waits_for=ids)
