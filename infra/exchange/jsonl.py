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
from typing import IO, Any

import msgspec

from chatledger.domain.chat.import_check import (
    describe_id_fault,
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

from .source import number_lines

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


class _Draft:
    """A chat whose end has not been read."""

    def __init__(self, head: _ChatHead, line: int) -> None:
        self.head = head
        self.line = line
        self.messages: list[tuple[ImportedMessage, int | None]] = []
        self.branches: list[tuple[ImportedBranch, int | None]] = []
        self.checkpoints: list[tuple[ImportedCheckpoint, int | None]] = []
        self.runs: list[tuple[MessageRun, int | None]] = []
        self.regenerations: list[tuple[ImportedRegeneration, int | None]] = []

    def finish(self, ids: MessageIds, report: Reporter) -> ImportedChat:
        head = self.head
        messages = link_messages(head.id, self.messages, ids=ids, report=report)
        messages = repair_annotations(head.id, messages, report=report)
        return ImportedChat(
            id=head.id,
            user_id=head.user_id,
            title=head.title,
            metadata=head.metadata,
            messages=messages,
            branches=repair_branches(head.id, self.branches, messages, report=report),
            checkpoints=repair_checkpoints(head.id, self.checkpoints, messages, report=report),
            created_at=head.created_at,
            updated_at=head.updated_at,
            expires_at=head.expires_at,
            runs=repair_runs(head.id, self.runs, messages, report=report),
            regenerations=repair_regenerations(head.id, self.regenerations, messages, report=report),
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
    head = _ChatHead(
        id=chat.id,
        user_id=chat.user_id,
        title=chat.title,
        metadata=chat.metadata,
        created_at=chat.created_at,
        updated_at=chat.updated_at,
        expires_at=chat.expires_at,
    )
    end = _End(
        chat_id=chat.id,
        messages=len(chat.messages),
        branches=len(chat.branches),
        checkpoints=len(chat.checkpoints),
        runs=len(chat.runs),
        regenerations=len(chat.regenerations),
    )
    _write(stream, _Line(chat=head))
    for message in chat.messages:
        _write(stream, _Line(message=message))
    for branch in chat.branches:
        _write(stream, _Line(branch=branch))
    for checkpoint in chat.checkpoints:
        _write(stream, _Line(checkpoint=checkpoint))
    for run in chat.runs:
        _write(stream, _Line(run=run))
    for regeneration in chat.regenerations:
        _write(stream, _Line(regeneration=regeneration))
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

    A chat that is cut off is reported and yielded as far as it goes. Raises UnsupportedFormatError when the file was written
    by a newer chatledger.
    """
    ids = MessageIds()
    draft: _Draft | None = None
    begun = 0
    announced: int | None = None
    has_header = False
    for number, text in number_lines(stream, report):
        line = _decode(text, number, report)
        if line is None:
            continue
        if line.chatledger is not None:
            _check_version(line.chatledger, report)
            has_header = True
        elif not has_header:
            report.broken("the export does not begin with its format version; read as the newest", line=number)
            has_header = True
        elif announced is not None:
            report.broken("a record follows the last line of the export; read all the same", line=number)
        if line.chats is not None:
            announced = line.chats
        if draft is not None and (line.chat is not None or line.end is not None):
            yield _close(draft, line.end, number, ids, report)
            draft = None
        elif draft is not None:
            _collect(draft, line, number, report)
        elif line.chat is None and line.chatledger is None and line.chats is None:
            report.broken("the record stands outside a chat; skipped", line=number)
        if line.chat is not None:
            draft, begun = _Draft(line.chat, number), begun + 1
    if draft is not None:
        yield _close(draft, None, draft.line, ids, report)
    if announced != begun:
        report.broken(f"the export is cut off: {begun} chat(s) found, {announced or 'an unknown number of'} written")


def _decode(text: bytes, number: int, report: Reporter) -> _Line | None:
    try:
        line = msgspec.json.decode(text, type=_Line)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else _describe(error)
        report.broken(f"not a record of this format: {reason}; skipped", line=number)
        return None
    given = [name for name in line.__struct_fields__ if getattr(line, name) is not None]
    if len(given) != 1:
        report.broken(f"a record has one kind, this has {len(given)}; skipped", line=number)
        return None
    faults = (
        describe_id_fault(line.message.id) if line.message else describe_id_fault(line.chat.id) if line.chat else None
    )
    if faults is not None:
        report.broken(f"the id of the {given[0]} {faults}; skipped", line=number)
        return None
    return line


def _describe(error: ValueError) -> str:
    # A UnicodeDecodeError carries the bytes it refused, and content stays out of messages.
    return "not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)


def _check_version(version: int, report: Reporter) -> None:
    if not 1 <= version <= VERSION:
        msg = f"{report.source} has format version {version}, this chatledger reads up to {VERSION}; upgrade to read it"
        raise UnsupportedFormatError(msg)


def _collect(draft: _Draft, line: _Line, number: int, report: Reporter) -> None:
    if line.message is not None and line.message.name:
        draft.messages.append((line.message, number))
    elif line.message is not None:
        report.broken(f"message {line.message.id!r} has no name; skipped", line=number)
    elif line.branch is not None:
        draft.branches.append((line.branch, number))
    elif line.checkpoint is not None:
        draft.checkpoints.append((line.checkpoint, number))
    elif line.run is not None:
        draft.runs.append((line.run, number))
    elif line.regeneration is not None:
        draft.regenerations.append((line.regeneration, number))


def _close(draft: _Draft, end: _End | None, number: int, ids: MessageIds, report: Reporter) -> ImportedChat:
    if end is None:
        report.broken(f"chat {draft.head.id!r} is cut off: its end is missing", line=number)
    # Before the counts are compared: what is wrong with a single record says more.
    chat = draft.finish(ids, report)
    if end is not None:
        _check_end(draft, end, number, report)
    return chat


def _check_end(draft: _Draft, end: _End, number: int, report: Reporter) -> None:
    found = _End(
        chat_id=draft.head.id,
        messages=len(draft.messages),
        branches=len(draft.branches),
        checkpoints=len(draft.checkpoints),
        runs=len(draft.runs),
        regenerations=len(draft.regenerations),
    )
    if found != end:
        counts = ", ".join(
            f"{getattr(found, name)} of {getattr(end, name)} {name}"
            for name in end.__struct_fields__
            if name != "chat_id" and getattr(end, name) != getattr(found, name)
        )
        what = counts or f"it ends as chat {end.chat_id!r}"
        report.broken(f"chat {draft.head.id!r} is not complete: {what}", line=number)
