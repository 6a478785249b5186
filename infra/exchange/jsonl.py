"""
The lossless export of chatledger: one JSON object a line.

    {"chatledger": 2}                                                     the format, first
    {"chat": {"id": ..., "user_id": ..., "title": ..., ...}}              a chat begins
    {"message": {...}}                                                    its messages in log order, parents first
    {"branch": {...}}
    {"checkpoint": {...}}
    {"run": {...}}                                                        what assistants did, in the order it was recorded
    {"regeneration": {...}}
    {"end": {"chat_id": ..., "messages": 2, "branches": 1, ...}}          how many there were of each
    {"chats": 1}                                                          the number of chats, last

The counts in the `end` and `chats` lines show a file that was cut off, wherever the cut is.
"""

from collections.abc import Iterable, Iterator
from typing import IO, Any, Final

import msgspec

from chatledger.domain.chat.import_check import (
    describe_json_fault,
    repair_annotations,
    repair_regenerations,
    repair_runs,
    validate_chat,
)
from chatledger.domain.chat.import_tree import MessageIds, Reporter, link_messages, repair_branches, repair_checkpoints
from chatledger.domain.chat.interchange import (
    ImportedBranch,
    ImportedChat,
    ImportedCheckpoint,
    ImportedMessage,
    ImportedRegeneration,
)
from chatledger.domain.chat.runs import MessageRun
from chatledger.domain.errors import InvalidValueError, UnsupportedFormatError

from .source import is_id, number_lines

VERSION = 2
"""Since version 2 with annotations, runs, regenerations and `expires_at`; the first one is read, too."""


class _ChatHead(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    user_id: str
    title: str | None = None
    metadata: dict[str, Any] | None = None
    created_at: int | None = None
    updated_at: int | None = None
    expires_at: int | None = None


class _End(msgspec.Struct, frozen=True, kw_only=True):
    chat_id: str
    messages: int
    branches: int
    checkpoints: int
    runs: int = 0
    regenerations: int = 0


class _Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Exactly one field is given; it says what the line is."""

    chatledger: int | None = None
    chat: _ChatHead | None = None
    message: ImportedMessage | None = None
    branch: ImportedBranch | None = None
    checkpoint: ImportedCheckpoint | None = None
    run: MessageRun | None = None
    regeneration: ImportedRegeneration | None = None
    end: _End | None = None
    chats: int | None = None


_PLURALS: Final = {
    "message": "messages",
    "branch": "branches",
    "checkpoint": "checkpoints",
    "run": "runs",
    "regeneration": "regenerations",
}
"""The lines between the head of a chat and its end, and the field of a chat that holds what they say."""


class _Draft:
    """A chat whose end has not been read."""

    def __init__(self, head: _ChatHead, line: int) -> None:
        self.head, self.line = head, line
        self.records: dict[str, list[tuple[Any, int | None]]] = {kind: [] for kind in _PLURALS}
        """The records of each kind, with their lines."""

    def counts(self) -> _End:
        return _End(chat_id=self.head.id, **{_PLURALS[kind]: len(found) for kind, found in self.records.items()})

    def finish(self, ids: MessageIds, report: Reporter) -> ImportedChat:
        chat_id, found = self.head.id, self.records
        linked = link_messages(chat_id, found["message"], ids=ids, report=report)
        messages = repair_annotations(chat_id, linked.messages, report=report)
        return ImportedChat(
            **msgspec.structs.asdict(self.head),
            messages=messages,
            branches=repair_branches(chat_id, found["branch"], linked, report=report),
            checkpoints=repair_checkpoints(chat_id, found["checkpoint"], messages, report=report),
            runs=repair_runs(chat_id, found["run"], messages, report=report),
            regenerations=repair_regenerations(chat_id, found["regeneration"], messages, report=report),
        )


def write_header(stream: IO[bytes]) -> None:
    """Begin an export."""
    _write(stream, _Line(chatledger=VERSION))


def write_chat(stream: IO[bytes], chat: ImportedChat) -> None:
    """Write one chat. Raises as `validate_chat` does when the chat could not be read back as it is; nothing is written then."""
    validate_chat(chat)
    for fault in (describe_json_fault(text) for text in (chat.user_id, chat.title, *_names(chat))):
        if fault is not None:
            msg = f"chat {chat.id!r}: {fault}"
            raise InvalidValueError(msg)
    head = _ChatHead(**{name: getattr(chat, name) for name in _ChatHead.__struct_fields__})
    end = _End(chat_id=chat.id, **{plural: len(getattr(chat, plural)) for plural in _PLURALS.values()})
    _write(stream, _Line(chat=head))
    for kind, plural in _PLURALS.items():
        for record in getattr(chat, plural):
            _write(stream, _Line(**{kind: record}))
    _write(stream, _Line(end=end))


def write_footer(stream: IO[bytes], *, chats: int) -> None:
    """End an export of so many chats."""
    _write(stream, _Line(chats=chats))


def write_chats(stream: IO[bytes], chats: Iterable[ImportedChat]) -> int:
    """Write a whole export: header, chats and footer. Returns the number of chats."""
    count = 0
    write_header(stream)
    for chat in chats:
        write_chat(stream, chat)
        count += 1
    write_footer(stream, chats=count)
    return count


def _names(chat: ImportedChat) -> Iterator[str | None]:
    for message in chat.messages:
        yield from (message.name, message.type, message.sender_id, message.agent_id, message.reply_to)
    for branch in chat.branches:
        yield from (branch.name, branch.id)
    for checkpoint in chat.checkpoints:
        yield from (checkpoint.name, checkpoint.id)
    for run in chat.runs:
        yield from (run.id, run.run_id, run.thread_id, run.assistant_id, run.runtime)
        yield from (run.checkpoint_id, run.repeats, run.regeneration_id)
    for regeneration in chat.regenerations:
        yield from (regeneration.id, *regeneration.approved)
        for planned in regeneration.runs:
            yield from (planned.run_id, planned.assistant_id, planned.runtime, planned.checkpoint_id, planned.thread_id)
            yield from (planned.trigger_message_id, planned.message_id, *planned.references)


def _write(stream: IO[bytes], line: _Line) -> None:
    try:
        text = msgspec.json.encode(line)
    except RecursionError:
        msg = "a value is nested too deeply to be written as JSON"
        raise InvalidValueError(msg) from None
    stream.write(text + b"\n")


def read_jsonl(stream: IO[bytes], report: Reporter) -> Iterator[ImportedChat]:
    """
    The chats of an export, one by one.

    A chat that is cut off is reported, and yielded with what was read of it. Raises UnsupportedFormatError when the file was written
    by a newer chatledger.
    """
    ids = MessageIds()
    draft: _Draft | None = None
    begun = 0
    announced: int | None = None
    has_header = False
    for number, text in number_lines(stream, report):
        kind, value = _decode(text, number, report)
        if kind is None:
            continue
        if kind == "chatledger":
            _check_version(value, report)
            has_header = True
        elif not has_header:
            report.broken("the export does not begin with its format version; read as the newest", line=number)
            has_header = True
        elif announced is not None:
            report.broken("a record follows the last line of the export; read all the same", line=number)
        if kind == "chats":
            announced = value
        if draft is not None and kind in {"chat", "end"}:
            yield _close(draft, value if kind == "end" else None, number, ids, report)
            draft = None
        elif draft is not None and kind in _PLURALS:
            draft.records[kind].append((value, number))
        elif draft is None and kind not in {"chat", "chatledger", "chats"}:
            report.broken("the record stands outside a chat; skipped", line=number)
        if kind == "chat":
            draft, begun = _Draft(value, number), begun + 1
    if draft is not None:
        yield _close(draft, None, draft.line, ids, report)
    if announced != begun:
        report.broken(f"the export is cut off: {begun} chat(s) found, {announced or 'an unknown number of'} written")


def _decode(text: bytes, number: int, report: Reporter) -> tuple[str | None, Any]:
    """Return the kind of a line and its value; no kind where it is broken, and reported."""
    try:
        line = msgspec.json.decode(text, type=_Line)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else _describe(error)
        report.broken(f"not a record of this format: {reason}; skipped", line=number)
        return None, None
    given = [(name, value) for name in line.__struct_fields__ if (value := getattr(line, name)) is not None]
    if len(given) != 1:
        report.broken(f"a record has one kind, this has {len(given)}; skipped", line=number)
        return None, None
    kind, value = given[0]
    if kind == "chat" and not is_id(value.id, "the id of the chat", report, line=number):
        return None, None
    return kind, value


def _describe(error: ValueError) -> str:
    # A UnicodeDecodeError carries the bytes it refused, and content stays out of messages.
    return "not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)


def _check_version(version: int, report: Reporter) -> None:
    if not 1 <= version <= VERSION:
        msg = f"{report.source} has format version {version}, this chatledger reads up to {VERSION}; upgrade to read it"
        raise UnsupportedFormatError(msg)


def _close(draft: _Draft, end: _End | None, number: int, ids: MessageIds, report: Reporter) -> ImportedChat:
    if end is None:
        report.broken(f"chat {draft.head.id!r} is cut off: its end is missing", line=number)
    # Before the counts are compared: what is wrong with a single record says more.
    chat = draft.finish(ids, report)
    if end is not None:
        _check_end(draft, end, number, report)
    return chat


def _check_end(draft: _Draft, end: _End, number: int, report: Reporter) -> None:
    found = draft.counts()
    if found != end:
        counts = ", ".join(
            f"{getattr(found, name)} of {getattr(end, name)} {name}"
            for name in end.__struct_fields__
            if name != "chat_id" and getattr(end, name) != getattr(found, name)
        )
        what = counts or f"it ends as chat {end.chat_id!r}"
        report.broken(f"chat {draft.head.id!r} is not complete: {what}", line=number)
