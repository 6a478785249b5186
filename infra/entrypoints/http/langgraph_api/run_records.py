"""Records of runs as LangGraph's clients read them: what the API keeps of a run in the metadata of its record."""

from collections.abc import Mapping
from typing import Any, Final, Literal, cast

import msgspec

from chatledger.domain.chat.runs import MessageRun

from .encoding import encode, time_of, to_plain

Outcome = Literal["success", "error", "timeout", "interrupted"]

KWARGS: Final = "run:kwargs"
"""What the run was asked to do."""
STRATEGY: Final = "run:multitask_strategy"
DUE_AT: Final = "run:due_at"
"""When it is to run, in ms since the epoch, where not at once."""
OUTCOME: Final = "run:outcome"
FAILURE: Final = "run:error"
CANCEL: Final = "run:cancel"
"""How it is to end before its time: `interrupt` or `rollback`."""
DELETED: Final = "run:deleted"
_PREFIX: Final = "run:"
_KWARGS_BYTES: Final = 64 * 1024
_STATUSES: Final = {"pending": "pending", "running": "running", "completed": "success", "error": "error"}


def recorded_kwargs(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is kept of what a run was asked to do: without its input, where that is large."""
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


def is_deleted(run: MessageRun) -> bool:
    """Whether clients are to see it no more."""
    return bool(run.metadata.get(DELETED))


def status_of_run(run: MessageRun) -> str:
    """Return the status in LangGraph's words."""
    return str(run.metadata.get(OUTCOME) or _STATUSES[run.status])


def failure_of(run: MessageRun) -> dict[str, str] | None:
    """Return what went wrong: `error` and `message`."""
    found = run.metadata.get(FAILURE)
    if isinstance(found, dict):
        return cast("dict[str, str]", found)
    return None if run.status != "error" else {"error": "Error", "message": "the run failed"}


def failure(error: BaseException) -> dict[str, str]:
    """Return an exception as clients read it."""
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


def end_of(run: MessageRun) -> bytes:
    """Return the data of the last event of a run."""
    return msgspec.json.encode(
        {"run_id": run.run_id, "checkpoint_id": run.checkpoint_id, "status": run.status},
    )
