"""What an imported conversation says of its messages and of the runs of assistants, and the chat does not."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from ..errors import InvalidValueError, MessageNotFoundError
from ..events import Body
from ..imported import ImportedChat, ImportedRegeneration
from ..rules import check_id, check_metadata, check_optional_id, check_time
from ..runs.events import MessagesAnnotated, RegenerationBegun, RunRecorded
from ..runs.values import RUN_STATUSES, MessageRun
from ..state import ChatState
from ..values import Annotation

_encode: Final = msgspec.msgpack.Encoder(order="deterministic").encode
Known = Mapping[str, str | None]
"""The messages of the import, with their parents."""


def missing_annotations(state: ChatState, chat: ImportedChat, known: Known) -> Iterator[Body]:
    """Annotations of messages that have none here; one event for all that say the same."""
    said: dict[bytes, tuple[dict[str, Any], list[str]]] = {}
    for message in chat.messages:
        annotation = message.annotation
        if annotation is None or state.annotation(message.id) is not None:
            continue
        if annotation.replaced_by is not None:
            _check_known(chat, known, annotation.replaced_by)
            if annotation.replaced_by == message.id:
                msg = f"message {message.id!r} can not be replaced by itself"
                raise InvalidValueError(msg)
        changes = _changes(annotation)
        if changes:
            said.setdefault(_encode(changes), (changes, []))[1].append(message.id)
    for changes, message_ids in said.values():
        yield MessagesAnnotated(tuple(message_ids), changes)


def missing_runs(state: ChatState, chat: ImportedChat, known: Known, new_ids: Iterator[str]) -> Iterator[Body]:
    """Regenerations and runs whose ids the chat does not have, as they were; the runs in their order."""
    for regeneration in chat.regenerations:
        if state.regeneration(check_id(regeneration.id, "regeneration id")) is None:
            yield _begun(chat, known, regeneration)
    for run in chat.runs:
        if state.run(check_id(run.run_id, "run_id")) is None:
            yield RunRecorded(
                msgspec.structs.replace(_checked(chat, known, run), id=run.id or next(new_ids), chat_id="")
            )


def _changes(annotation: Annotation) -> dict[str, Any]:
    plain = Annotation()
    changes = {name: getattr(annotation, name) for name in annotation.__struct_fields__}
    changes["metadata"] = check_metadata(annotation.metadata) or {}
    return {name: value for name, value in changes.items() if value != getattr(plain, name)}


def _begun(chat: ImportedChat, known: Known, regeneration: ImportedRegeneration) -> Body:
    _check_known(chat, known, regeneration.edited_message_id)
    _check_known(chat, known, regeneration.new_message_id)
    return RegenerationBegun(
        regeneration.id,
        regeneration.edited_message_id,
        regeneration.new_message_id,
        regeneration.runs,
        regeneration.approved,
        None
        if regeneration.created_at is None
        else check_time(regeneration.created_at, "created_at of a regeneration"),
    )


def _checked(chat: ImportedChat, known: Known, run: MessageRun) -> MessageRun:
    for name in ("thread_id", "assistant_id", "runtime"):
        check_id(getattr(run, name), name)
    for name in ("checkpoint_id", "repeats", "regeneration_id"):
        check_optional_id(getattr(run, name), name)
    for name in ("created_at", "updated_at"):
        check_time(getattr(run, name), f"{name} of a run")
    for message_id in (run.trigger_message_id, run.message_id, *run.references):
        _check_known(chat, known, message_id)
    if run.status not in RUN_STATUSES:
        msg = f"the status of run {run.run_id!r} is {run.status!r}, not one of {', '.join(RUN_STATUSES)}"
        raise InvalidValueError(msg)
    return run


def _check_known(chat: ImportedChat, known: Known, message_id: str | None) -> None:
    if message_id is not None and message_id not in known:
        raise MessageNotFoundError(message_id, chat_id=chat.id)
