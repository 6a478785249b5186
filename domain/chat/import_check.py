"""The rules a foreign conversation must keep before anything of it is written."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final, cast

import msgspec

from ..errors import ChainIntegrityError, InvalidValueError
from ..limits import read_back
from ..packing import is_whole
from ..values import Annotation
from .import_fit import describe_id_fault
from .import_tree import Linked, Reporter, lost_message, sort_parents_first
from .interchange import ImportedBranch, ImportedChat, ImportedCheckpoint, ImportedMessage, ImportedRegeneration
from .members import members_of_new
from .runs import MessageRun

_KINDS: Final[dict[str, type]] = {
    "messages": ImportedMessage,
    "branches": ImportedBranch,
    "checkpoints": ImportedCheckpoint,
    "runs": MessageRun,
    "regenerations": ImportedRegeneration,
}


def repair_annotations(
    chat_id: str, messages: Sequence[ImportedMessage], *, report: Reporter
) -> tuple[ImportedMessage, ...]:
    """Annotations as stored, but for replacements that are not there."""
    message_ids = {message.id for message in messages}
    repaired: list[ImportedMessage] = []
    for message in messages:
        annotation = message.annotation
        replaced_by = None if annotation is None else annotation.replaced_by
        if annotation is None or replaced_by is None or (replaced_by in message_ids and replaced_by != message.id):
            repaired.append(message)
            continue
        report.unlinked(f"message {replaced_by!r} cannot replace message {message.id!r} of chat {chat_id!r}; left out")
        without = msgspec.structs.replace(annotation, replaced_by=None)
        annotation = None if without == Annotation() else without
        repaired.append(msgspec.structs.replace(message, annotation=annotation))
    return tuple(repaired)


def repair_runs(
    chat_id: str,
    runs: Iterable[tuple[MessageRun, int | None]],
    messages: Sequence[ImportedMessage],
    *,
    report: Reporter,
) -> tuple[MessageRun, ...]:
    """Runs as stored, without those that name messages which are not there."""
    linked = Linked[MessageRun]("run", chat_id, messages, report)
    for run, line in runs:
        linked.take(run.run_id, run, [run.trigger_message_id, run.message_id, *run.references], line)
    return tuple(linked.items.values())


def repair_regenerations(
    chat_id: str,
    regenerations: Iterable[tuple[ImportedRegeneration, int | None]],
    messages: Sequence[ImportedMessage],
    *,
    report: Reporter,
) -> tuple[ImportedRegeneration, ...]:
    """Regenerations as stored, without those whose messages are not there."""
    linked = Linked[ImportedRegeneration]("regeneration", chat_id, messages, report)
    for regeneration, line in regenerations:
        linked.take(regeneration.id, regeneration, regeneration.message_ids, line)
    return tuple(linked.items.values())


def describe_json_fault(value: Any, *, is_strict: bool = True) -> str | None:
    """
    Return what keeps a value from being read back as it was written, or None. Iterative, so depth does not matter.

    Data of messages, which are not looked at strictly, may have NaN and half an emoji; see `data_copy`.
    """
    pending: list[Any] = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            if is_strict and not is_whole(item):
                return "a text contains a lone surrogate"
        elif isinstance(item, dict):
            members = cast("dict[Any, Any]", item)
            for key in members:
                if not (isinstance(key, str) and (not is_strict or is_whole(key))):
                    return "a key is not an encodable text"
            pending.extend(members.values())
        elif isinstance(item, list):
            pending.extend(cast("list[Any]", item))
        elif isinstance(item, float):
            if is_strict and not math.isfinite(item):
                return "a number is not finite"
        elif not (item is None or isinstance(item, int)):
            return f"{type(item).__name__} is not a JSON type"
    return None


def validate_chat(chat: ImportedChat) -> None:
    """
    Check that a chat can be written as it is; nothing is repaired.

    Raises:
        ChainIntegrityError: The parents form a cycle, or a parent, head, checkpoint, annotation or run names no message of
            the chat.
        InvalidValueError: A value is of another type than its field, an id or name breaks a rule or is taken, data are no
            JSON value, a child comes before its parent, or not exactly one branch is active.

    """
    where = _check_head(chat)
    for message in chat.messages:
        _require(describe_id_fault(message.id), f"the id of message {message.id!r} of {where}")
        if not message.name:
            msg = f"message {message.id!r} of {where} has no name"
            raise InvalidValueError(msg)
        _require(describe_json_fault(message.data, is_strict=False), f"the data of message {message.id!r} of {where}")
    _check_links(where, chat)


def validate_links(chat: ImportedChat) -> None:
    """
    Check what `validate_chat` checks, except for the values that `check_message` looks at next: each message's own.

    Raises:
        ChainIntegrityError, InvalidValueError: As `validate_chat` does.
    """
    _check_links(_check_head(chat), chat)


def _check_head(chat: ImportedChat) -> str:
    """Check the types and the chat's own values, and return its name in errors."""
    if not isinstance(chat, ImportedChat):
        msg = f"expected an ImportedChat, not {type(chat).__name__}; read_chats yields them, export_chat returns one"
        raise InvalidValueError(msg)
    where = f"chat {chat.id!r}"
    # The types first: what follows reads fields of the items. Data and metadata, which may be any JSON, are looked at apart.
    for name, kind in _KINDS.items():
        items: Any = getattr(chat, name)
        if not isinstance(items, tuple | list) or not all(isinstance(item, kind) for item in cast("list[Any]", items)):
            msg = f"{name} of {where} must be a tuple of {kind.__name__}"
            raise InvalidValueError(msg)
    messages = tuple(msgspec.structs.replace(message, data=None) for message in chat.messages)
    read_back(msgspec.structs.replace(chat, metadata=None, messages=messages), ImportedChat, where)
    _require(describe_id_fault(chat.id), f"the id of {where}")
    _require(describe_json_fault(chat.metadata), f"the metadata of {where}")
    for user_id in chat.members:
        _require(describe_id_fault(user_id), f"the id of a member of {where}")
    members_of_new(chat.id, chat.user_id, chat.members)
    return where


def _check_links(where: str, chat: ImportedChat) -> None:
    for message in chat.messages:
        if message.annotation is None:
            continue
        if not isinstance(message.annotation, Annotation):
            msg = f"the annotation of message {message.id!r} of {where} must be an Annotation, not {type(message.annotation).__name__}"
            raise InvalidValueError(msg)
        fault = describe_json_fault(message.annotation.metadata)
        _require(fault, f"the metadata of the annotation of message {message.id!r} of {where}")
    _check_unique(where, "message id", (message.id for message in chat.messages))
    _check_parents(where, chat.messages)
    _check_pointers(where, chat)


def _check_parents(where: str, messages: tuple[ImportedMessage, ...]) -> None:
    # Mostly they are in order; only where they are not is the tree built that says what is wrong.
    seen: set[str | None] = {None}
    for message in messages:
        if message.parent_id not in seen:
            break
        if not seen.issuperset(message.merged_from):
            msg = f"{where}: message {message.id!r} merges messages that do not come before it"
            raise ChainIntegrityError(msg)
        seen.add(message.id)
    else:
        return

    def refuse(_: str, fault: str) -> None:
        msg = f"{where}: {fault}"
        raise ChainIntegrityError(msg)

    order = sort_parents_first({message.id: message.parent_id for message in messages}, on_fault=refuse)
    for message, first in zip(messages, order, strict=True):
        if message.id != first:
            msg = f"{where}: message {message.id!r} comes before its parent; order parents before children"
            raise InvalidValueError(msg)


def _check_pointers(where: str, chat: ImportedChat) -> None:
    stored_ids = {message.id for message in chat.messages}
    named: list[tuple[str, Iterable[str | None]]] = [
        *((f"branch {branch.name!r}", [branch.head_message_id]) for branch in chat.branches),
        *((f"checkpoint {checkpoint.name!r}", [checkpoint.message_id]) for checkpoint in chat.checkpoints),
        *(
            (f"the annotation of message {message.id!r}", [message.annotation.replaced_by])
            for message in chat.messages
            if message.annotation is not None
        ),
        *((f"run {run.run_id!r}", [run.trigger_message_id, run.message_id, *run.references]) for run in chat.runs),
        *((f"regeneration {record.id!r}", record.message_ids) for record in chat.regenerations),
    ]
    for what, message_ids in named:
        lost = lost_message(stored_ids, message_ids)
        if lost is not None:
            msg = f"{what} of {where} names message {lost!r}, which is not there"
            raise ChainIntegrityError(msg)
    _check_unique(where, "branch name", (branch.name for branch in chat.branches))
    _check_unique(where, "checkpoint name", (checkpoint.name for checkpoint in chat.checkpoints))
    _check_unique(where, "run id", (run.run_id for run in chat.runs))
    _check_unique(where, "regeneration id", (record.id for record in chat.regenerations))
    active = sum(branch.is_active for branch in chat.branches)
    if active != 1:
        msg = f"{where} has {active} active branches; exactly one must be active"
        raise InvalidValueError(msg)


def _check_unique(where: str, what: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if not name or name in seen:
            msg = f"{where} has an empty {what}" if not name else f"{where} has the {what} {name!r} twice"
            raise InvalidValueError(msg)
        seen.add(name)


def _require(fault: str | None, what: str) -> None:
    if fault is not None:
        msg = f"{what}: {fault}"
        raise InvalidValueError(msg)
