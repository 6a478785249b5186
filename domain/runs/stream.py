"""
The records of a run's event stream: `RunMetadata` first, `RunData` as it comes, `RunEnd` last.

How they travel is the caller's affair. As JSON each says in `event` what it is: `metadata`, `data` or `end`.
"""

from typing import Any, Self

import msgspec

from ..agents.namespaces import assistant_namespace
from .values import MessageRun, RunStatus


class RunMetadata(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="metadata"):
    """Which run it is. `checkpoint_ns` is the namespace that its state is stored under."""

    run_id: str
    thread_id: str
    assistant_id: str
    checkpoint_ns: str

    @classmethod
    def of(cls, run: MessageRun, *, checkpoint_ns: str | None = None) -> Self:
        """
        The first record of a run; `checkpoint_ns` where it is not that of the assistant.

        Raises:
            NamespaceError: The assistant's id can not name a namespace.
        """
        namespace = assistant_namespace(run.assistant_id) if checkpoint_ns is None else checkpoint_ns
        return cls(run_id=run.run_id, thread_id=run.thread_id, assistant_id=run.assistant_id, checkpoint_ns=namespace)


class RunData(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="data"):
    """A piece of the answer, or whatever the run has to say; `type` tells what `content` is."""

    content: Any
    type: str


class RunEnd(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag="end"):
    """How the run ended."""

    run_id: str
    checkpoint_id: str | None
    status: RunStatus

    @classmethod
    def of(cls, run: MessageRun) -> Self:
        """The last record of a run."""
        return cls(run_id=run.run_id, checkpoint_id=run.checkpoint_id, status=run.status)


RunStreamRecord = RunMetadata | RunData | RunEnd
"""What `msgspec.json.decode(line, type=RunStreamRecord)` reads."""
