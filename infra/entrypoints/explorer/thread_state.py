"""The state of a thread after one of its steps: what it holds, what the step changed, and what its tasks wrote."""

from typing import Any, Final, Literal

from chatledger.domain.draw.state_tree import StateNode, changed_names, messages_in, state_tree, value_line
from chatledger.domain.errors import NotFoundError
from chatledger.domain.values import Message
from chatledger.domain.versioned.record import VersionRecord
from chatledger.domain.versioned.standing import RESUME, is_of_task, next_nodes, node_of
from chatledger.domain.wire import Value

from ...ledger.thread_trace import TraceStep, metadata_of, shown_values, trace_step
from ...ledger.threads import IndexedVersioned, PlainReader
from .rendering import as_message

_MESSAGES: Final = 50
_FRESH: Final = 20

View = Literal["state", "messages", "writes", "raw"]


class StepWrite(Value, frozen=True, kw_only=True):
    """A write of a task of a step: its node, to which channel, what, and when, in ms; 0 where nobody knows."""

    node: str
    task_id: str
    channel: str
    text: str
    written_at: int


class StepState(Value, frozen=True, kw_only=True):
    """
    The state after a step; of a step that is still to be made, that which it goes on from.

    Args:
        against: The step that it is compared with: its parent, or the step that the query names; None where there is none. A step
            that is still to be made is compared with the step before it.
        changed: The names of the values that differ.
        messages: Its messages, where it has a list of them: the last 50, or those from where the query says.
        first: The place of the first that is shown, counted from 0.
        fresh: Those that the step added.
        writes: What the tasks of the step wrote.
        values: The state as it is; None unless the query asks for it.
    """

    at: TraceStep
    against: TraceStep | None
    parent: TraceStep | None
    tree: list[StateNode]
    changed: list[str]
    messages: list[Message]
    message_count: int
    first: int
    fresh: list[Message]
    writes: list[StepWrite]
    next: list[str]
    metadata: dict[str, Any]
    values: dict[str, Any] | None


def state_after(
    thread: IndexedVersioned,
    record: VersionRecord,
    *,
    pending: TraceStep | None,
    to: str,
    view: View,
    first: int | None,
) -> StepState:
    """Read the state after the step that a checkpoint ends, or after the pending one that goes on from it, compared with the checkpoint `to`."""
    at = trace_step(thread, record) if pending is None else pending
    before: VersionRecord | None = record
    if pending is None:
        before = None if record.parent is None else thread.version(record.line, record.parent)
    writes = [] if before is None or not at.tasks else _writes_after(thread, before, view)
    if before is not None and before.skeleton is not None:
        before = None
    parent = None if before is None else trace_step(thread, before)
    if pending is None and to:
        before = find_checkpoint(thread, record.line, to)
    values, old_values = shown_values(thread, record), {} if before is None else shown_values(thread, before)
    messages, old_messages = messages_in(values), messages_in(old_values)
    begin = max(len(messages) - _MESSAGES, 0) if first is None else first
    same = 0
    while same < min(len(messages), len(old_messages)) and messages[same] == old_messages[same]:
        same += 1
    tree = state_tree(values, old_values)
    shown = messages[begin : begin + _MESSAGES] if view == "messages" else []
    fresh = messages[same:][-_FRESH:] if view == "state" else []
    return StepState(
        at=at,
        against=parent if before is None or not to else trace_step(thread, before),
        parent=parent,
        tree=tree if view == "state" else [],
        changed=changed_names(tree),
        messages=[as_message(fields, place) for place, fields in enumerate(shown, begin)],
        message_count=len(messages),
        first=begin,
        fresh=[as_message(fields, place) for place, fields in enumerate(fresh)],
        writes=writes,
        next=next_nodes(record, PlainReader(thread).value) if pending is None else [],
        metadata=metadata_of(record),
        values=values if view == "raw" else None,
    )


def _writes_after(thread: IndexedVersioned, before: VersionRecord, view: View) -> list[StepWrite]:
    """Return what the tasks wrote that went on from a checkpoint, and the answers that they were given."""
    reader = PlainReader(thread)
    return [
        StepWrite(
            node=node_of(write, before, reader.value) if is_task else "answer",
            task_id=write.task_id,
            channel=write.channel,
            text=value_line(reader.value(write.digest)) if view == "writes" else "",
            written_at=write.written_at,
        )
        for write in thread.writes(before.line, before.id)
        # An update of the state may have written there too: that is another step.
        if (is_task := is_of_task(write.task_id, write.task_path)) or write.channel == RESUME
    ]


def find_checkpoint(thread: IndexedVersioned, namespace: str, checkpoint_id: str) -> VersionRecord:
    """Return a checkpoint that has a state; raise `NotFoundError` where there is none."""
    record = thread.version(namespace, checkpoint_id)
    if record is None or record.skeleton is not None:
        msg = f"thread {thread.key!r} has no checkpoint {checkpoint_id!r}"
        raise NotFoundError(msg)
    return record
