"""What an export says of messages and of runs of assistants: the references of it that lead nowhere are reported and left out."""

from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

import msgspec

from chatledger.domain.runs.values import MessageRun
from chatledger.domain.values import Annotation

from .model import ImportedMessage, ImportedRegeneration
from .report import Reporter

T = TypeVar("T")


def repair_annotations(
    chat_id: str, messages: Sequence[ImportedMessage], *, report: Reporter
) -> tuple[ImportedMessage, ...]:
    """Annotations as stored, but for replacements that are not there."""
    known = {message.id for message in messages}
    return tuple(_repaired(chat_id, message, known, report) for message in messages)


def repair_runs(
    chat_id: str,
    runs: Iterable[tuple[MessageRun, int | None]],
    messages: Sequence[ImportedMessage],
    *,
    report: Reporter,
) -> tuple[MessageRun, ...]:
    """Runs as stored, without those that name messages which are not there."""
    kept = _Kept[MessageRun]("run", chat_id, messages, report)
    for run, line in runs:
        kept.take(run.run_id, run, [run.trigger_message_id, run.message_id, *run.references], line)
    return tuple(kept.found.values())


def repair_regenerations(
    chat_id: str,
    regenerations: Iterable[tuple[ImportedRegeneration, int | None]],
    messages: Sequence[ImportedMessage],
    *,
    report: Reporter,
) -> tuple[ImportedRegeneration, ...]:
    """Regenerations as stored, without those whose messages are not there."""
    kept = _Kept[ImportedRegeneration]("regeneration", chat_id, messages, report)
    for one, line in regenerations:
        kept.take(one.id, one, [one.edited_message_id, one.new_message_id], line)
    return tuple(kept.found.values())


class _Kept(Generic[T]):
    """What has an id of its own and names messages that are there; the rest is reported."""

    def __init__(self, what: str, chat_id: str, messages: Sequence[ImportedMessage], report: Reporter) -> None:
        self._what, self._chat_id, self._report = what, chat_id, report
        self._known = {message.id for message in messages}
        self.found: dict[str, T] = {}

    def take(self, item_id: str, item: T, named: Iterable[str | None], line: int | None) -> None:
        what = f"{self._what} {item_id!r} of chat {self._chat_id!r}"
        lost = lost_message(self._known, *named)
        if not item_id or item_id in self.found:
            self._report.broken(f"{what} has an empty or repeated id; skipped", line=line)
        elif lost is not None:
            self._report.unlinked(f"the message {lost!r} of {what} is not there; skipped", line=line)
        else:
            self.found[item_id] = item


def lost_message(known: Iterable[str], *named: str | None) -> str | None:
    """The first named message that is not known."""
    return next((message_id for message_id in named if message_id is not None and message_id not in known), None)


def _repaired(chat_id: str, message: ImportedMessage, known: set[str], report: Reporter) -> ImportedMessage:
    annotation = message.annotation
    if annotation is None or annotation.replaced_by is None:
        return message
    if annotation.replaced_by in known and annotation.replaced_by != message.id:
        return message
    fault = f"message {annotation.replaced_by!r} can not replace message {message.id!r} of chat {chat_id!r}; left out"
    report.unlinked(fault, line=None)
    without = msgspec.structs.replace(annotation, replaced_by=None)
    return msgspec.structs.replace(message, annotation=None if without == Annotation() else without)
