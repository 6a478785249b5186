"""Records of runs: as LangGraph's clients read them, what the API keeps in their metadata, and the order in which they go."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, cast

import msgspec

from chatledger.domain.chat.runs import MessageRun, RunStatus
from chatledger.domain.versioned.keys import ASSISTANT

from .encoding import encode, time_of, to_plain

Outcome = Literal["success", "error", "timeout", "interrupted"]
Strategy = Literal["enqueue", "reject", "interrupt", "rollback"]
"""The way to go on when another run of the assistant is on the thread: wait for it, give up, end it, or end it and undo what it did."""
Action = Literal["interrupt", "rollback"]

KWARGS: Final = "run:kwargs"
"""The request of the run."""
STRATEGY: Final = "run:multitask_strategy"
DUE_AT: Final = "run:due_at"
"""The time when it is to run, in ms since the epoch, where not at once."""
OUTCOME: Final = "run:outcome"
FAILURE: Final = "run:error"
CANCEL: Final = "run:cancel"
"""The way to end it before its time: `interrupt` or `rollback`."""
DELETED: Final = "run:deleted"
BEGAN: Final = "run:began"
"""The checkpoint at which a run that asks something began; None for the beginning of the thread."""
NAMESPACE: Final = "run:namespace"
"""The namespace of its checkpoints, where it asked for another one than its assistant's."""
RESUMES: Final = "run:resumes"
"""The id of the run that asked what this one brings the answer to."""
CHECKPOINT: Final = "run:checkpoint"
"""The last checkpoint of a run that brings an answer: an agent remembers it as that of the run that asked, which has it in its record."""
_PREFIX: Final = "run:"
_KWARGS_BYTES: Final = 64 * 1024
# A run that waits for an answer has ended for LangGraph's clients, which bring the answer with another run.
_STATUSES: Final = {
    "pending": "pending",
    "running": "running",
    "waiting": "success",
    "completed": "success",
    "error": "error",
}


def recorded_kwargs(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the record keeps of a request: without its input, and then the rest, where they are large."""
    # An event has a limit, and a record goes with each list of runs.
    plain: dict[str, Any] = to_plain(kwargs)
    for name in ("input", "command", "config", "context"):
        if len(encode(plain)) <= _KWARGS_BYTES:
            break
        plain[name] = None
    return plain


def own_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata that are the client's."""
    return {name: value for name, value in metadata.items() if not name.startswith(_PREFIX)}


def due_at(run: MessageRun) -> int:
    """Return when a run is to run, in ms since the epoch."""
    moment = run.metadata.get(DUE_AT)
    return moment if isinstance(moment, int) else run.created_at


def is_served(run: MessageRun) -> bool:
    """Whether it was begun over LangGraph's API; an application executes others itself."""
    return KWARGS in run.metadata


def is_over(run: MessageRun) -> bool:
    """Whether nothing of it is executed any more: it has ended; or it asked something, and another run brings the answer."""
    return run.is_ended or run.status == "waiting" or OUTCOME in run.metadata


def namespace_of(run: MessageRun) -> str:
    """Return the namespace that its state is stored under."""
    return str(run.metadata.get(NAMESPACE) or ASSISTANT + run.assistant_id)


def checkpoint_of(run: MessageRun) -> str | None:
    """Return the last checkpoint of a run; None where it has none."""
    return run.checkpoint_id or run.metadata.get(CHECKPOINT)


def is_deleted(run: MessageRun) -> bool:
    """Whether clients are to see it no more."""
    return bool(run.metadata.get(DELETED))


def status_of_run(run: MessageRun) -> str:
    """Return the status in LangGraph's words."""
    return str(run.metadata.get(OUTCOME) or _STATUSES[run.status])


def reason(run: MessageRun) -> dict[str, str] | None:
    """Return what a run failed with, as `error` and `message`; None for one that did not, or was ended."""
    if run.status != "error" or run.metadata.get(OUTCOME) not in {None, "error"}:
        return None
    recorded = run.metadata.get(FAILURE)
    is_told = isinstance(recorded, dict)
    return cast("dict[str, str]", recorded) if is_told else {"error": "Error", "message": "the run failed"}


def failure(error: BaseException) -> dict[str, str]:
    return {"error": type(error).__name__, "message": str(error)}


def shown_run(run: MessageRun) -> dict[str, Any]:
    """Return a run in the form that clients read."""
    return {
        "run_id": run.run_id,
        "thread_id": run.thread_id,
        "assistant_id": run.assistant_id,
        "metadata": own_metadata(run.metadata),
        "status": status_of_run(run),
        "kwargs": run.metadata.get(KWARGS, {}),
        "multitask_strategy": run.metadata.get(STRATEGY, "enqueue"),
        "created_at": time_of(run.created_at),
        "updated_at": time_of(run.updated_at),
    }


def end_of(run: MessageRun, status: RunStatus | None = None) -> bytes:
    """Return the data of the last event of a run; with the status that it ended with, where its record has another one."""
    return msgspec.json.encode(
        {"run_id": run.run_id, "checkpoint_id": checkpoint_of(run), "status": status or run.status},
    )


def ahead_of(run: MessageRun, runs: Sequence[MessageRun]) -> list[MessageRun]:
    """Return the runs that go before one: those that are running, and those that were due earlier."""
    places = {other.run_id: (due_at(other), place) for place, other in enumerate(runs)}
    own = places[run.run_id]
    return [
        other
        for other in runs
        if other.run_id != run.run_id and (other.status == "running" or places[other.run_id] < own)
    ]
