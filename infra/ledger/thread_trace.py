"""Steps of a thread as a trace: which tasks made each, side by side, how long they worked and waited, and where lines fork."""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, islice, takewhile
from operator import attrgetter
from typing import Any, Final, Literal, cast

import msgspec

from chatledger.domain.errors import ConfigurationError, NotFoundError
from chatledger.domain.versioned.record import METADATA, StoredWrite, VersionRecord
from chatledger.domain.versioned.standing import (
    ERROR,
    INTERRUPT,
    NULL_TASK,
    OF_GRAPH,
    RESUME,
    START,
    error_words,
    is_agents,
    is_of_task,
    is_waiting,
    made_at,
    next_nodes,
    node_of,
    question_words,
    shortened,
    shown_node,
    words_of_input,
)
from chatledger.domain.wire import Value
from chatledger.projections.versioned.reader import IndexedVersioned, PlainReader

TaskState = Literal["done", "waits", "failed", "open"]
_MOST_TASKS: Final = 100
_MOST_LINES: Final = 300
"""Checkpoints beside the line that is read are looked for among so many of the newest."""
_MOST_DEPTH: Final = 4
_METADATA_FORMS: Final[dict[str, Callable[[bytes], Any]]] = {
    "msgpack": msgspec.msgpack.decode,
    "json": msgspec.json.decode,
}


class TaskSpan(Value, frozen=True, kw_only=True):
    """A time in which a task works, or waits for an answer, in ms since the epoch; `ended_at` is None where it waits still."""

    kind: Literal["work", "waits"]
    began_at: int
    ended_at: int | None


class TraceTask(Value, frozen=True, kw_only=True):
    """
    A task of a step.

    Args:
        node: The node that it runs.
        task_id: Its id; None while it has not written anything.
        state: `done`, `waits` for an answer, `failed`, or `open`: it has not written what it writes.
        spans: When it worked and waited.
        words: What it asks or failed with, in a line.
        asked: What it asks, as `id` and `value`, where it does or did.
        is_answered: Whether it asked, and was answered.
        is_retried: Whether it failed before it was done.
        subgraph: The steps of the graph that it ran, the oldest first; the newest 100.
    """

    derived = ("took_ms",)

    node: str
    task_id: str | None
    state: TaskState
    spans: list[TaskSpan]
    words: str
    asked: list[dict[str, Any]]
    is_answered: bool
    is_retried: bool
    subgraph: list["TraceStep"]

    @property
    def took_ms(self) -> int | None:
        """How long it worked and waited, in ms; None while it goes on, or where nobody knows."""
        if not self.spans or self.spans[-1].ended_at is None:
            return None
        return self.spans[-1].ended_at - self.spans[0].began_at


class TraceStep(Value, frozen=True, kw_only=True):
    """
    A step: the checkpoint, and the tasks that made it.

    Args:
        namespace, checkpoint_id, parent_id: Of the checkpoint.
        number, source: As its metadata say: `input`, `loop`, `update` or `fork`; None where only its framework can read them.
        created_at: When it was made, in ms since the epoch.
        began_at: When the checkpoint before it was; its own time at the first.
        run_id: The run that made it.
        position: That of its event on the log.
        is_pruned: Whether only its place is left.
        is_pending: Whether it is still to be made: then the checkpoint is the one that it goes on from.
        tasks: The tasks, the first 100.
        task_count: How many there are.
        words: The input, where that is what it stores.
    """

    derived = ("state", "node")

    namespace: str
    checkpoint_id: str
    parent_id: str | None
    number: int | None
    source: str | None
    created_at: int
    began_at: int
    run_id: str | None
    position: int
    is_pruned: bool
    is_pending: bool
    tasks: list[TraceTask]
    task_count: int
    words: str

    @property
    def state(self) -> TaskState:
        """The state of its tasks together: a question counts most, then a failure."""
        order: tuple[TaskState, ...] = ("waits", "failed", "open", "done")
        return order[min((order.index(task.state) for task in self.tasks), default=-1)]

    @property
    def node(self) -> str:
        """The name of what made it: the node, how many of them, or where its values came from."""
        if self.task_count == 1:
            return self.tasks[0].node
        return f"{self.task_count} nodes" if self.tasks else self.source or "checkpoint"


class TraceLine(Value, frozen=True, kw_only=True):
    """Steps on another line, the oldest first, at most 100; `forked_from` is the checkpoint at which it leaves, and `fork_number` its step."""

    steps: list[TraceStep]
    forked_from: str | None
    fork_number: int | None
    is_cut: bool


class Trace(Value, frozen=True, kw_only=True):
    """
    A part of a line of steps, and the lines beside it.

    Args:
        steps: The steps, the oldest first; the last may be pending.
        earlier: The newest checkpoint of the part before; None at the beginning.
        is_newest: Whether the line ends here.
        others: The other lines that leave it here, the newest first.
    """

    steps: list[TraceStep]
    earlier: str | None
    is_newest: bool
    others: list[TraceLine]


def read_trace(thread: IndexedVersioned, namespace: str, *, end: str | None = None, limit: int = 100) -> Trace:
    """
    Read the steps of an agent up to a checkpoint, at most `limit` of them.

    It costs what it returns, however long the thread is: other lines are looked for among the 300 newest checkpoints.

    Args:
        thread: The thread.
        namespace: The namespace of the agent, as it is stored.
        end: The last step; the newest checkpoint when None.
        limit: At most so many.

    Raises:
        NotFoundError: There is no such checkpoint.
    """
    newest = thread.newest(namespace)
    last = newest if end is None else thread.version(namespace, end)
    if last is None:
        if end is None:
            return Trace(steps=[], earlier=None, is_newest=True, others=[])
        msg = f"thread {thread.key!r} has no checkpoint {end!r}"
        raise NotFoundError(msg)
    reader = _StepReader(thread)
    line = list(islice(reader.upwards(last), limit + 1))
    shown, earlier = line[:limit], line[limit].id if len(line) > limit else None
    is_end = not any(record.parent == last.id for record in islice(thread.versions(namespace), _MOST_LINES))
    pending = reader.pending(last) if is_end else None
    return Trace(
        steps=[*(reader.step(record) for record in reversed(shown)), *([] if pending is None else [pending])],
        earlier=earlier,
        is_newest=newest is not None and newest.id == last.id,
        others=list(reader.others(line, limit=limit)),
    )


def trace_step(thread: IndexedVersioned, record: VersionRecord) -> TraceStep:
    return _StepReader(thread).step(record)


def pending_step(thread: IndexedVersioned, record: VersionRecord) -> TraceStep | None:
    """Return the step that goes on from the newest checkpoint of an agent; None where nothing is left to run."""
    return _StepReader(thread).pending(record)


class _StepReader:
    """Reads steps of one thread; each value once."""

    def __init__(self, thread: IndexedVersioned, depth: int = 0) -> None:
        self._thread, self._depth = thread, depth
        self._reader = PlainReader(thread)

    def upwards(self, record: VersionRecord) -> Iterable[VersionRecord]:
        """Yield a checkpoint and its ancestors, the nearest first, skeletons too."""
        seen: set[str] = set()
        at: VersionRecord | None = record
        while at is not None and at.id not in seen:
            yield at
            seen.add(at.id)
            at = None if at.parent is None else self._thread.version(at.line, at.parent)

    def others(self, line: Sequence[VersionRecord], *, limit: int) -> Iterable[TraceLine]:
        """Yield the lines that leave a line, which is given from its end, or that end beside it."""
        on_line, oldest = {record.id: record for record in line}, line[-1]
        looked_at = islice(self._thread.versions(line[0].line), _MOST_LINES)
        beside = {
            record.id: record
            for record in takewhile(lambda record: record.id >= oldest.id, looked_at)
            if record.id not in on_line
        }
        while beside:
            leaf = next(iter(beside.values()))
            own = list(takewhile(lambda record: beside.pop(record.id, None) is not None, self.upwards(leaf)))
            forked_from = own[-1].parent
            fork = on_line.get(forked_from or "")
            steps = [self.step(record) for record in reversed(own[:limit])]
            pending = self.pending(leaf)
            yield TraceLine(
                steps=[*steps, *([] if pending is None else [pending])],
                forked_from=forked_from,
                fork_number=None if fork is None else metadata_of(fork).get("step"),
                is_cut=len(own) > limit,
            )

    def step(self, record: VersionRecord) -> TraceStep:
        metadata = metadata_of(record)
        source = metadata.get("source")
        parent = None if record.parent is None else self._thread.version(record.line, record.parent)
        # What an update or another input follows was not made by the tasks that wrote there.
        tasks = [] if parent is None or source not in {"loop", None} else self._tasks(parent)
        words = ""
        if START in record.fields and source == "input":
            words = words_of_input(self._reader.value(record.fields[START].digest))
        return TraceStep(
            namespace=record.line,
            checkpoint_id=record.id,
            parent_id=record.parent,
            number=metadata.get("step") if isinstance(metadata.get("step"), int) else None,
            source=source if isinstance(source, str) else None,
            created_at=made_at(record),
            began_at=made_at(record if parent is None else parent),
            run_id=record.run_id,
            position=record.position,
            is_pruned=record.skeleton is not None,
            is_pending=False,
            tasks=tasks[:_MOST_TASKS],
            task_count=len(tasks),
            words=words,
        )

    def pending(self, record: VersionRecord) -> TraceStep | None:
        """Return the step that goes on from a checkpoint; None where nothing is left to run there, or it went on already."""
        tasks = self._tasks(record)
        written = {task.node for task in tasks}
        following = map(shown_node, next_nodes(record, self._reader.value))
        tasks += [_open_task(node) for node in following if node not in written]
        if not tasks or record.skeleton is not None:
            return None
        step = self.step(record)
        return msgspec.structs.replace(
            step,
            number=None if step.number is None else step.number + 1,
            began_at=made_at(record),
            is_pending=True,
            tasks=tasks[:_MOST_TASKS],
            task_count=len(tasks),
            words="",
        )

    def _tasks(self, version: VersionRecord) -> list[TraceTask]:
        """Return the tasks that wrote after a checkpoint, in the order of their paths in the graph."""
        writes = self._thread.writes(version.line, version.id)
        answers = [write.written_at for write in writes if write.channel == RESUME and write.task_id == NULL_TASK]
        return [
            self._task(version, list(own), max(answers, default=None))
            for (task_path, task_id), own in groupby(writes, key=attrgetter("task_path", "task_id"))
            if is_of_task(task_id, task_path)
        ]

    def _task(self, version: VersionRecord, own: list[StoredWrite], answered_at: int | None) -> TraceTask:
        last = {write.channel: write for write in own}
        interrupt, error, answer = last.get(INTERRUPT), last.get(ERROR), last.get(RESUME)
        is_done = any(write.index >= 0 for write in own)
        waits = interrupt is not None and not is_done and is_waiting(interrupt, own, answered_at)
        state: TaskState = "done" if is_done else "waits" if waits else "failed" if error is not None else "open"
        question: Any = None if interrupt is None else self._reader.value(interrupt.digest)
        words = ""
        if waits:
            words = question_words(question)
        elif error is not None and not is_done:
            words = error_words(self._reader.value(error.digest))
        node = node_of(own[0], version, self._reader.value)
        return TraceTask(
            node=shown_node(node),
            task_id=own[0].task_id,
            state=state,
            spans=_spans(made_at(version), own, interrupt, None if answer is None else answer.written_at, waits=waits),
            words=shortened(words),
            asked=[entry for entry in cast("list[Any]", question) if isinstance(entry, dict)]
            if isinstance(question, list)
            else [],
            is_answered=interrupt is not None and not waits,
            is_retried=error is not None and is_done,
            subgraph=self._subgraph(version.line, f"{node}:{own[0].task_id}"),
        )

    def _subgraph(self, line: str, name: str) -> list[TraceStep]:
        namespace = f"{line}|{name}" if line else name
        if self._depth == _MOST_DEPTH or self._thread.line_no(namespace) is None:
            return []
        newest = self._thread.newest(namespace)
        inner = _StepReader(self._thread, self._depth + 1)
        records = [] if newest is None else list(islice(inner.upwards(newest), _MOST_TASKS))
        pending = None if newest is None else inner.pending(newest)
        return [*(inner.step(record) for record in reversed(records)), *([] if pending is None else [pending])]


def _spans(
    began_at: int, own: Sequence[StoredWrite], interrupt: StoredWrite | None, answered_at: int | None, *, waits: bool
) -> list[TaskSpan]:
    """Return when a task worked and waited: from the checkpoint before it to its last write, without the time of its question."""
    ended_at = max((write.written_at for write in own), default=0)
    if not ended_at:
        return []
    ended_at = max(ended_at, began_at)
    if interrupt is None or not interrupt.written_at:
        return [TaskSpan(kind="work", began_at=began_at, ended_at=ended_at)]
    asked_at = max(interrupt.written_at, began_at)
    before = TaskSpan(kind="work", began_at=began_at, ended_at=asked_at)
    if waits:
        return [before, TaskSpan(kind="waits", began_at=asked_at, ended_at=None)]
    answered = min(max(answered_at or ended_at, asked_at), ended_at)
    return [
        before,
        TaskSpan(kind="waits", began_at=asked_at, ended_at=answered),
        TaskSpan(kind="work", began_at=answered, ended_at=ended_at),
    ]


def _open_task(node: str) -> TraceTask:
    return TraceTask(
        node=node,
        task_id=None,
        state="open",
        spans=[],
        words="",
        asked=[],
        is_answered=False,
        is_retried=False,
        subgraph=[],
    )


def decode_metadata(metadata: tuple[str, bytes]) -> dict[str, Any] | None:
    """Return the metadata of a checkpoint, where they can be read without the framework that wrote them; None otherwise."""
    form, data = metadata
    decode = _METADATA_FORMS.get(form)
    try:
        fields: Any = None if decode is None else decode(data)
    except (msgspec.DecodeError, ValueError):
        return None
    return cast("dict[str, Any]", fields) if isinstance(fields, dict) else None


def metadata_of(record: VersionRecord) -> dict[str, Any]:
    """Return the metadata of a checkpoint; none where only the framework that wrote them can read them."""
    return (decode_metadata(record.frames[METADATA]) or {}) if len(record.frames) > METADATA else {}


def need_metadata(record: VersionRecord) -> dict[str, Any]:
    """Return the metadata of a checkpoint, which say what it needs. Raises `ConfigurationError` where that is not known."""
    metadata = decode_metadata(record.frames[METADATA])
    if metadata is None:
        msg = (
            f"the metadata of checkpoint {record.id!r} have the form {record.frames[METADATA][0]!r}, which only the "
            "serializer that wrote them reads; the program that has it can prune the thread"
        )
        raise ConfigurationError(msg)
    return metadata


def shown_values(thread: IndexedVersioned, record: VersionRecord) -> dict[str, Any]:
    """Return the values of the state at a checkpoint as plain data: without the channels by which LangGraph chooses nodes."""
    reader = PlainReader(thread)
    return {name: reader.value(field.digest) for name, field in record.fields.items() if not name.startswith(OF_GRAPH)}


def agents_of(namespaces: Iterable[str]) -> list[str]:
    """Return the namespaces that are agents' own, in their order; all where none is."""
    names = list(namespaces)
    return list(filter(is_agents, names)) or names
