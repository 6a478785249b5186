"""Records of runs, and of their regeneration. All are frozen; times are integer milliseconds since the epoch."""

from hashlib import blake2b
from typing import Any, Final, Literal, Self, get_args

import msgspec

from ..versioned.keys import assistant_namespace
from ..wire import Value

RunStatus = Literal["pending", "running", "waiting", "completed", "error"]
StepStatus = Literal["awaiting_approval", "waiting", "ready", "pending", "running", "asking", "completed", "error"]
Cause = Literal["trigger", "reference", "memory"]

RUN_STATUSES: Final = get_args(RunStatus)
ENDED: Final = frozenset({"completed", "error"})
PYTHON: Final = "python"
"""The runtime of a run that names none."""
MAX_CASCADE: Final = 5
"""The number of runs that are repeated after an edit before a human is asked."""


class RecordedRun(Value, frozen=True, kw_only=True, omit_defaults=True):
    """
    A run as it stands in the event that recorded it; see `MessageRun`, which has its metadata too.

    A sixteenth field would change the bytes of all such events, as the header of a map with more fields is another one.
    """

    # `chat_id` has a default so that records inside one chat need not repeat it; answers always carry it.
    id: str
    run_id: str
    thread_id: str
    chat_id: str = ""
    assistant_id: str
    runtime: str = PYTHON
    trigger_message_id: str | None = None
    references: list[str] = msgspec.field(default_factory=list[str])
    message_id: str | None = None
    checkpoint_id: str | None = None
    status: RunStatus
    created_at: int
    updated_at: int
    repeats: str | None = None
    regeneration_id: str | None = None


class MessageRun(RecordedRun, frozen=True, kw_only=True, omit_defaults=True):
    """
    One run of an assistant: what triggered it and what it produced.

    Args:
        id: A UUID of the record.
        run_id: The caller's id of the run, unique in the chat.
        thread_id: The agent thread on which it runs.
        chat_id: The chat.
        assistant_id: Whose run it is.
        runtime: What executes it.
        trigger_message_id: The message that set it off.
        references: Further messages that the trigger refers to.
        message_id: The message it produced; None until there is one.
        checkpoint_id: Of its thread: where to fork or replay from.
        status: `pending`, `running`, `waiting` for an answer to what it asked, `completed` or `error`. The last two are final.
        created_at, updated_at: When it was recorded, and when its status changed last.
        repeats: The run id of the run that this one repeats after an edit. Without a `regeneration_id` it was not executed: its
            message is a copy of what that run produced, which was carried over.
        regeneration_id: The regeneration that this is a step of.
        metadata: A JSON object of yours.
    """

    metadata: dict[str, Any] = {}  # noqa: RUF012 - each struct gets its own

    @classmethod
    def of(cls, recorded: RecordedRun, metadata: dict[str, Any] | None) -> Self:
        """Make it of what the event that recorded it has."""
        fields = {name: getattr(recorded, name) for name in RecordedRun.__struct_fields__}
        return cls(**fields, metadata=metadata or {})

    @property
    def recorded(self) -> RecordedRun:
        """The run without its metadata, as an event has it."""
        return RecordedRun(**{name: getattr(self, name) for name in RecordedRun.__struct_fields__})

    @property
    def is_ended(self) -> bool:
        """Whether its status is final."""
        return self.status in ENDED


class PlannedRun(Value, frozen=True, kw_only=True, omit_defaults=True):
    """
    A run that an edit makes stale, as it was recorded.

    `depth` counts the steps from the edited message, 1 for a run that depends on it directly. `cause` says by what it is
    reached in so many steps: its `trigger`, one of its references, or its memory. `remembers` is the planned run whose
    memory it went on from.
    """

    run_id: str
    assistant_id: str
    runtime: str
    trigger_message_id: str | None
    message_id: str | None
    checkpoint_id: str | None
    depth: int
    cause: Cause
    thread_id: str
    references: list[str]
    remembers: str | None = None


class RegenerationPlan(Value, frozen=True, kw_only=True):
    """
    The runs that an edit of a message makes stale. Nothing is started or written.

    Args:
        chat_id: The chat.
        edited_message_id: The message as it was before the edit.
        runs: In the order in which they were recorded, so that each comes after those it depends on.
        stale_message_ids: The messages that these runs produced.
        automatic: The ids of the first `max_cascade` runs.
        awaiting_approval: The ids of the others, which a human has to approve.
        max_cascade: The bound.
        needs_approval: Whether any run awaits approval.
    """

    chat_id: str
    edited_message_id: str
    runs: list[PlannedRun]
    stale_message_ids: list[str]
    automatic: list[str]
    awaiting_approval: list[str]
    max_cascade: int
    needs_approval: bool


class Stretch(Value, frozen=True, kw_only=True, omit_defaults=True):
    """
    A part of the branch that a regeneration builds: messages that are carried over, then answers of repeated runs.

    The messages are those from `first` to `last`, which is `first` or follows it; None where there are only answers.
    """

    first: str | None = None
    last: str | None = None
    run_ids: tuple[str, ...] = ()


class CarryOver(Value, frozen=True, kw_only=True):
    """The branch that a regeneration builds, and the plan of what comes on it after the new message."""

    branch_id: str
    stretches: tuple[Stretch, ...]

    def places(self, run_id: str | None) -> bool:
        """Whether the answer of the run that repeats this one has a place on the branch."""
        return any(run_id in stretch.run_ids for stretch in self.stretches)


class RegenerationRecord(msgspec.Struct, frozen=True, array_like=True):
    """The stored record of a regeneration; its progress follows from the records of its runs."""

    id: str
    edited_message_id: str
    new_message_id: str
    runs: tuple[PlannedRun, ...]
    approved: tuple[str, ...]
    created_at: int
    carries: CarryOver | None = None


class RegenerationStep(Value, frozen=True, kw_only=True):
    """
    A run that is to be repeated, and how far that is.

    Args:
        repeats: The run as it was before the edit.
        status: `awaiting_approval`; `waiting` for earlier steps; `ready` to be repeated; `asking` when the new run waits for an
            answer; or else the status of the new run.
        trigger_message_id: What triggers the new run: the new message, what was produced anew, or the copy of the old trigger,
            as far as it is there.
        references: The same of the references.
        run: The record of the new run, the last one when it was attempted several times.
    """

    repeats: PlannedRun
    status: StepStatus
    trigger_message_id: str | None
    references: list[str]
    run: MessageRun | None


class Regeneration(Value, frozen=True, kw_only=True):
    """
    The repetition of runs after an edit: which are done, and what is next.

    `branch` is the one that it builds, by its present name; None when it builds none, or that was deleted.
    """

    id: str
    chat_id: str
    edited_message_id: str
    new_message_id: str
    created_at: int
    steps: list[RegenerationStep]
    branch: str | None = None

    @property
    def ready(self) -> list[RegenerationStep]:
        """The steps that can be repeated now; more follow when these are done."""
        return [step for step in self.steps if step.status == "ready"]

    @property
    def is_done(self) -> bool:
        """Whether every run has been repeated to its end."""
        return all(step.status == "completed" for step in self.steps)


def copy_id(regeneration_id: str, original_id: str) -> str:
    """The id of the copy of a message or a run that a regeneration carries over."""
    digest = blake2b(digest_size=16)
    for part in (regeneration_id.encode(), original_id.encode()):  # with their lengths, so that no two pairs are alike
        digest.update(b"%d:%s" % (len(part), part))
    digits = digest.hexdigest()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


class RunMetadata(Value, frozen=True, kw_only=True, tag_field="event", tag="metadata"):
    """The identity of a run. `checkpoint_ns` is the namespace that its state is stored under."""

    run_id: str
    thread_id: str
    assistant_id: str
    checkpoint_ns: str

    @classmethod
    def of(cls, run: MessageRun, *, checkpoint_ns: str | None = None) -> Self:
        """
        The first record of a run; `checkpoint_ns` where it is not that of the assistant.

        Raises:
            NamespaceError: The assistant's id cannot name a namespace.
        """
        namespace = assistant_namespace(run.assistant_id) if checkpoint_ns is None else checkpoint_ns
        return cls(run_id=run.run_id, thread_id=run.thread_id, assistant_id=run.assistant_id, checkpoint_ns=namespace)


class RunData(Value, frozen=True, kw_only=True, tag_field="event", tag="data"):
    """A piece of what is said in the run; `type` tells whose it is, such as `ai` or `tool`."""

    content: Any
    type: str


class RunEnd(Value, frozen=True, kw_only=True, tag_field="event", tag="end"):
    """The end of a run."""

    run_id: str
    checkpoint_id: str | None
    status: RunStatus

    @classmethod
    def of(cls, run: MessageRun) -> Self:
        """The last record of a run."""
        return cls(run_id=run.run_id, checkpoint_id=run.checkpoint_id, status=run.status)


RunStreamRecord = RunMetadata | RunData | RunEnd
"""The type to decode a line of the stream with: `msgspec.json.decode(line, type=RunStreamRecord)`."""
