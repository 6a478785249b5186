"""Steps of a thread as rows with bars on one axis of time, in which idle time is squeezed."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal

from chatledger.domain.wire import Value

from ...ledger.thread_trace import TaskSpan, TaskState, TraceStep, TraceTask
from ..agent_steps import duration

WIDTH: Final = 200
"""The width of the drawing of bars, in px."""
_LEAST: Final = 2
_CROSS: Final = 10
"""Room for the cross at the end of a bar that failed."""
_SQUEEZED: Final = 0.12
"""A time in which nothing worked takes at most so much of what was worked."""
_ALL_SQUEEZED: Final = 0.6
"""All of them together at most so much: a thread with forty questions is still seen working."""
_LAST: Final = 170
"""From here on a label ends at its place: in its middle it would lie beyond the edge."""
LETTER: Final = 6.7
"""The most that a letter of a label takes, in px: a digit in DejaVu Sans, the widest of the common fonts; `m` has a space beside it."""


class TraceBar(Value, frozen=True, kw_only=True):
    """A bar: where it begins, how wide it is, in px, and what it is: `step`, `task`, `waits`, or `failed`, which ends in a cross."""

    x: float
    width: float
    kind: Literal["step", "task", "waits", "failed"]


class TraceRow(Value, frozen=True, kw_only=True):
    """
    A row: a step, or one of its tasks.

    Args:
        level: How deep it stands: 0 for a step, 1 for its tasks, and so on.
        number: Of a step, as text; empty for a task.
        chips: What happened on the way: `answered`, `retried`.
        since: When its question began to wait, in ms since the epoch; None where none waits.
        is_pruned: Whether only its place is left.
    """

    checkpoint_id: str
    namespace: str
    level: int
    number: str
    node: str
    words: str
    state: TaskState
    chips: list[str]
    bars: list[TraceBar]
    took: str
    since: int | None
    is_pending: bool
    is_pruned: bool


class AxisLabel(Value, frozen=True, kw_only=True):
    """A text on the axis, where its middle is, in px, or its end if it is near that of the axis, and whether it stands for time that is cut."""

    x: float
    text: str
    is_gap: bool
    is_last: bool = False


class TraceAxis:
    """Maps times to px: time in which something worked is drawn to scale, and what lies between is cut to an eighth of all that."""

    def __init__(self, steps: Iterable[TraceStep], now: int) -> None:
        self._now = now
        every = list(_all_spans(steps))
        worked = sorted((span.began_at, self._end(span)) for span in every if span.kind == "work")
        times = [*(span.began_at for span in every), *(self._end(span) for span in every)]
        self._parts = list(_parts(worked, min(times, default=0), max(times, default=0)))
        total = sum(width for _, _, width, _ in self._parts)
        self._scale = (WIDTH - _CROSS) / total if total else 0.0
        self._cuts = [part for part in self._parts if part[3] and part[2] < part[1] - part[0]]
        self._lasted_ms = max(times, default=0) - min(times, default=0)

    def x(self, time: int) -> float:
        """Return where a time stands, in px."""
        x = 0.0
        for begin, end, width, _ in self._parts:
            if time >= end:
                x += width
            elif time > begin:
                x += width * (time - begin) / (end - begin)
        return round(x * self._scale, 1)

    def bar(self, span: TaskSpan, kind: Literal["step", "task", "waits", "failed"]) -> TraceBar:
        x = self.x(span.began_at)
        width = max(round(self.x(self._end(span)) - x, 1), _LEAST)
        return TraceBar(x=min(x, WIDTH - _LEAST), width=width, kind="waits" if span.kind == "waits" else kind)

    def labels(self) -> list[AxisLabel]:
        """Return the labels: the beginning, how long what is cut was, the longest first where not all have room, and the end."""
        labels, taken = [AxisLabel(x=0, text="0", is_gap=False)], [(0.0, LETTER)]
        if self._lasted_ms and not (self._parts and self._parts[-1] in self._cuts):
            text = duration(self._lasted_ms)
            labels.append(AxisLabel(x=WIDTH, text=text, is_gap=False, is_last=True))
            taken.append((WIDTH - len(text) * LETTER, WIDTH))
        for begin, end, _, _ in sorted(self._cuts, key=lambda part: part[0] - part[1]):
            text = " ".join(duration(end - begin).split()[:2])  # `2 h` of `2 h 04 min`
            x, width = round((self.x(begin) + self.x(end)) / 2, 1), len(text) * LETTER
            first = x - width if x > _LAST else x - width / 2
            if all(first + width + LETTER < left or first > right + LETTER for left, right in taken):
                labels.append(AxisLabel(x=x, text=text, is_gap=True, is_last=x > _LAST))
                taken.append((first, first + width))
        return labels

    def _end(self, span: TaskSpan) -> int:
        return max(self._now if span.ended_at is None else span.ended_at, span.began_at)


def _all_spans(steps: Iterable[TraceStep]) -> Iterator[TaskSpan]:
    for step in steps:
        yield TaskSpan(kind="work", began_at=step.created_at, ended_at=step.created_at)
        for task in step.tasks:
            yield from task.spans
            yield from _all_spans(task.subgraph)


def _parts(worked: Sequence[tuple[int, int]], first: int, last: int) -> Iterator[tuple[int, int, float, bool]]:
    """Yield parts of the time that follow each other: from when to when, how wide it is drawn, and whether it was idle."""
    busy: list[list[int]] = []
    for begin, end in worked:
        if busy and begin <= busy[-1][1]:
            busy[-1][1] = max(busy[-1][1], end)
        else:
            busy.append([begin, end])
    most = max(sum(end - begin for begin, end in busy) * min(_SQUEEZED, _ALL_SQUEEZED / (len(busy) + 1)), 1.0)
    at = first
    for begin, end in busy:
        if begin > at:
            yield at, begin, min(begin - at, most), True
        yield begin, end, float(end - begin), False
        at = end
    if last > at:
        yield at, last, min(last - at, most), True


def rows_of(steps: Iterable[TraceStep], axis: TraceAxis, level: int = 0) -> Iterator[TraceRow]:
    """Yield the rows of steps; several tasks of one stand below it, and the steps of a subgraph below the task that ran it."""
    for step in steps:
        is_one = step.task_count == 1
        tasks = step.tasks
        if is_one:
            bars, took = _bars(tasks[0], axis, "step"), _took(tasks[0])
        else:
            ends = [span.ended_at or span.began_at for task in tasks for span in task.spans]
            end = max(ends, default=step.created_at)
            whole = TaskSpan(kind="work", began_at=min(step.began_at, end) if tasks else end, ended_at=end)
            bars, took = [axis.bar(whole, "step")], duration(end - whole.began_at)
        yield TraceRow(
            checkpoint_id=step.checkpoint_id,
            namespace=step.namespace,
            level=level,
            number="\u2013" if step.number is None or step.number < 0 else str(step.number),
            node=step.node,
            words=tasks[0].words if is_one else "in parallel" if tasks else step.words,
            state=step.state,
            chips=_chips(tasks[0]) if is_one else [],
            bars=bars,
            took="" if step.is_pending and step.state == "open" else took,
            since=_since(tasks[0]) if is_one else None,
            is_pending=step.is_pending,
            is_pruned=step.is_pruned,
        )
        for task in tasks:
            if not is_one:
                yield _task_row(step, task, axis, level + 1)
            yield from rows_of(task.subgraph, axis, level + (1 if is_one else 2))
        if step.task_count > len(tasks):
            yield _more_row(step, level + 1)


def _task_row(step: TraceStep, task: TraceTask, axis: TraceAxis, level: int) -> TraceRow:
    return TraceRow(
        checkpoint_id=step.checkpoint_id,
        namespace=step.namespace,
        level=level,
        number="",
        node=task.node,
        words=task.words,
        state=task.state,
        chips=_chips(task),
        bars=_bars(task, axis, "task"),
        took=_took(task),
        since=_since(task),
        is_pending=step.is_pending,
        is_pruned=False,
    )


def _more_row(step: TraceStep, level: int) -> TraceRow:
    return TraceRow(
        checkpoint_id=step.checkpoint_id,
        namespace=step.namespace,
        level=level,
        number="",
        node=f"and {step.task_count - len(step.tasks):,} more",
        words="",
        state="done",
        chips=[],
        bars=[],
        took="",
        since=None,
        is_pending=step.is_pending,
        is_pruned=False,
    )


def _bars(task: TraceTask, axis: TraceAxis, kind: Literal["step", "task"]) -> list[TraceBar]:
    last = len(task.spans) - 1
    return [
        axis.bar(span, "failed" if task.state == "failed" and place == last else kind)
        for place, span in enumerate(task.spans)
    ]


def _since(task: TraceTask) -> int | None:
    return next((span.began_at for span in task.spans if span.ended_at is None), None)


def _took(task: TraceTask) -> str:
    return "" if task.took_ms is None else duration(task.took_ms)


def _chips(task: TraceTask) -> list[str]:
    return [*(["answered"] if task.is_answered else []), *(["retried"] if task.is_retried else [])]
