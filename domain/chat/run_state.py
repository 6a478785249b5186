"""The changes that events about runs and annotations make in a chat."""

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from ..values import Annotation
from .events import Body, MessagesAnnotated, Recorded, RegenerationApproved, RegenerationBegun, RunChanged, RunRecorded
from .runs import MessageRun, RegenerationRecord

S = TypeVar("S", Annotation, MessageRun)

_CHANGING = frozenset({"status", "message_id", "checkpoint_id", "metadata"})


class RunState(Protocol):
    """The state for decisions about runs and annotations of a chat."""

    def has_message(self, message_id: str) -> bool: ...

    def annotation(self, message_id: str) -> Annotation | None: ...

    def run(self, run_id: str) -> MessageRun | None: ...

    def runs(
        self,
        *,
        regeneration_id: str | None = None,
        message_id: str | None = None,
        trigger_message_id: str | None = None,
    ) -> Sequence[MessageRun]:
        """The runs in the order in which they were recorded: all, or those of one regeneration, answer or trigger."""
        ...

    def regeneration(self, regeneration_id: str) -> RegenerationRecord | None: ...


class RunChanges(msgspec.Struct, frozen=True, kw_only=True):
    """Annotations by message id, None to drop; a run, new or changed from `before`; a regeneration, new or changed."""

    annotations: tuple[tuple[str, Annotation | None], ...] = ()
    run: MessageRun | None = None
    before: MessageRun | None = None
    regeneration: RegenerationRecord | None = None

    @property
    def is_new_run(self) -> bool:
        """Whether the run was not there before."""
        return self.run is not None and self.before is None


class MisfitError(Exception):
    """The event does not fit to the state before it."""


def fold_runs(state: RunState, recorded: Recorded) -> RunChanges:
    """Return the changes of one of the events in `RUN_BODIES`. Raises `MisfitError`."""
    body = recorded.body
    match body:
        case MessagesAnnotated():
            _require_messages(state, body.message_ids)
            after = ((message_id, annotated(state, message_id, body.changes)) for message_id in body.message_ids)
            return RunChanges(annotations=tuple(after))
        case RunRecorded(run=run, metadata=metadata):
            if state.run(run.run_id) is not None:
                msg = f"there is a run {run.run_id!r} already"
                raise MisfitError(msg)
            _require_messages(state, [run.trigger_message_id, run.message_id, *run.references])
            return RunChanges(run=MessageRun.of(run, metadata))
        case RunChanged():
            return _changed(state, body, recorded.event.occurred_at)
        case _:
            return RunChanges(regeneration=_regeneration(state, body, recorded.event.occurred_at))


def annotated(state: RunState, message_id: str, changes: dict[str, Any]) -> Annotation | None:
    """The annotation of a message after changes; None when it says nothing any more. Raises `MisfitError`."""
    after = _with(state.annotation(message_id) or Annotation(), changes, frozenset(Annotation.__struct_fields__))
    return None if after == Annotation() else after


def _changed(state: RunState, body: RunChanged, now: int) -> RunChanges:
    before = state.run(body.run_id)
    if before is None:
        msg = f"there is no run {body.run_id!r} at that point"
        raise MisfitError(msg)
    after = _with(before, body.changes, _CHANGING)
    _require_messages(state, [after.message_id])
    return RunChanges(run=msgspec.structs.replace(after, updated_at=max(before.updated_at, now)), before=before)


def _regeneration(state: RunState, body: Body, now: int) -> RegenerationRecord:
    if isinstance(body, RegenerationBegun):
        if state.regeneration(body.regeneration_id) is not None:
            msg = f"there is a regeneration {body.regeneration_id!r} already"
            raise MisfitError(msg)
        _require_messages(state, [body.edited_message_id, body.new_message_id])
        return RegenerationRecord(
            body.regeneration_id,
            body.edited_message_id,
            body.new_message_id,
            body.runs,
            body.approved,
            now if body.created_at is None else body.created_at,
            body.carries,
        )
    assert isinstance(body, RegenerationApproved), body
    record = state.regeneration(body.regeneration_id)
    if record is None:
        msg = f"there is no regeneration {body.regeneration_id!r} at that point"
        raise MisfitError(msg)
    return msgspec.structs.replace(record, approved=(*record.approved, *body.run_ids))


def _with(value: S, changes: dict[str, Any], changing: frozenset[str]) -> S:
    if not changes.keys() <= changing:
        msg = "it changes what cannot change"
        raise MisfitError(msg)
    fields = {name: getattr(value, name) for name in value.__struct_fields__}
    try:
        return msgspec.convert({**fields, **changes}, type(value))
    except msgspec.ValidationError as error:
        raise MisfitError(str(error)) from error


def _require_messages(state: RunState, message_ids: Sequence[str | None]) -> None:
    for message_id in message_ids:
        if message_id is not None and not state.has_message(message_id):
            msg = f"it names message {message_id!r}, which the chat does not have"
            raise MisfitError(msg)
