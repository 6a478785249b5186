"""
The lossless export of chatledger: one JSON object a line.

    {"chatledger": 6}                                                     the format, first
    {"chat": {"id": ..., "user_id": ..., "title": ..., ...}}              a chat begins
    {"message": {...}, "chat_id": ..., "text": ...}                       its messages in log order, parents first
    {"branch": {...}, "chat_id": ...}
    {"checkpoint": {...}, "chat_id": ...}
    {"run": {...}, "chat_id": ...}                                        what assistants did, in the order it was recorded
    {"regeneration": {...}, "chat_id": ...}
    {"end": {"chat_id": ..., "messages": 2, "branches": 1, ...}}          how many there were of each
    {"value": {"family": "thread", "id": ..., "owner": ..., ...}}         a thread of agents, a state or an item begins
    {"piece": ["nlp6Y0...", [0, "msgpack", "g6Ri..."]]}                   its content in pieces, each after what it is made of
    {"version": {"id": ..., "fields": {...}, "writes": [...], ...}}       its versions, in the order they were recorded
    {"value_end": {"id": ..., "pieces": 5, "versions": 2, "writes": 3}}
    {"totals": {"chats": 1, "threads": 1, "states": 1}}                   how many there are of each, last

The counts show a file that was cut off, wherever the cut is. Binary content is base64. What stands beside a record, the chat that it is
of and the plain text of a message, is for programs that group and search rows; it is not read back.

Messages of exports that were written before messages said their form, up to version 3.

What an API or a framework gave was a UIMessage there: a framework's message beside it under `native`, and what a UIMessage cannot
say below `chatledger` in its metadata.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import IO, Any, ClassVar, Final

import msgspec

from chatledger.domain.chat.import_check import (
    repair_annotations,
    repair_regenerations,
    repair_runs,
    validate_chat,
)
from chatledger.domain.chat.import_tree import Reporter, link_messages, repair_branches, repair_checkpoints
from chatledger.domain.chat.interchange import (
    ImportedBranch,
    ImportedChat,
    ImportedCheckpoint,
    ImportedMessage,
    ImportedRegeneration,
)
from chatledger.domain.chat.runs import MessageRun
from chatledger.domain.context.messages import is_ui_message
from chatledger.domain.errors import InvalidValueError, UnsupportedFormatError
from chatledger.domain.forms.detect import form_of
from chatledger.domain.forms.plain import object_at
from chatledger.domain.values import OWNER, MemberRole
from chatledger.domain.versioned.content import Piece
from chatledger.domain.versioned.interchange import ImportedValue, ImportedVersion, check_value
from chatledger.domain.versioned.keys import FamilyName
from chatledger.domain.wire import Value

from .source import is_id, number_lines

_NATIVE: Final = "native"
_METADATA: Final = "metadata"
_TEXT: Final = "claude-text"
_FORMS: Final[Mapping[str, str]] = {"claude": "claude-code", _TEXT: "claude-code"}
"""The names of forms that are called otherwise now. Of `claude-text` the value is JSON text."""

_DIGEST_BYTES: Final = 16
_encode: Final = msgspec.json.Encoder(order="deterministic").encode


def with_form(message: ImportedMessage) -> ImportedMessage:
    """Return the message with its form, as it would be stored today: a framework's message as it was given, notes beside the data."""
    data = message.data
    if not is_ui_message(data):
        return msgspec.structs.replace(message, form=form_of(data))
    native, details = object_at(data, _NATIVE), object_at(data, _METADATA, OWNER)
    notes = {OWNER: dict(details)} if details else None
    name = native.get("form")
    # A digest said which parts the native message is of: what somebody changed since is what they say.
    metadata = {key: value for key, value in object_at(data, _METADATA).items() if key != OWNER}
    parts = [data["role"], data["parts"]]
    if isinstance(name, str) and native.get("of") == blake2b(_encode(parts), digest_size=_DIGEST_BYTES).hexdigest():
        value = json.loads(native["value"]) if name == _TEXT else native.get("value")
        all_notes = {**metadata, **(notes or {})} or None
        return msgspec.structs.replace(message, data=value, form=_FORMS.get(name, name), notes=all_notes)
    rest = {key: value for key, value in data.items() if key not in {_NATIVE, _METADATA}}
    if data["role"] == "tool" and isinstance(call_id := details.get("tool_call_id"), str):
        text = "\n".join(part["text"] for part in data["parts"] if object_at(part).get("type") == "text")
        answer = {"role": "tool", "tool_call_id": call_id, "content": text}
        return msgspec.structs.replace(message, data=answer, form="openai", notes=notes)
    rest |= {_METADATA: metadata} if metadata else {}
    return msgspec.structs.replace(message, data=rest, form="ui", notes=notes)


VERSION = 6
"""
Since version 2 with annotations, runs, regenerations and `expires_at`, since 4 with form and notes of messages, since 5 with threads,
states and items in one form, since 6 with the chat beside each record; the chats of all are read.
"""

Exported = ImportedChat | ImportedValue
"""A chat, thread, state or item in an export."""


def describe(exported: Exported) -> str:
    """Return the name of a chat, thread, state or item in problems and errors."""
    return exported.name if isinstance(exported, ImportedValue) else f"chat {exported.id!r}"


class ExportCounts(Value, frozen=True, kw_only=True):
    """The number of chats, threads of agents and graph states, items too, in an export."""

    chats: int = 0
    threads: int = 0
    states: int = 0


class _ChatHead(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    user_id: str
    title: str | None = None
    metadata: dict[str, Any] | None = None
    created_at: int | None = None
    updated_at: int | None = None
    expires_at: int | None = None
    members: Mapping[str, MemberRole] = {}


class _ChatEnd(msgspec.Struct, frozen=True, kw_only=True):
    chat_id: str
    messages: int
    branches: int
    checkpoints: int
    runs: int = 0
    regenerations: int = 0


class _ValueHead(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    family: FamilyName
    id: str
    owner: str | None = None
    created_at: int | None = None
    expires_at: int | None = None


class _ValueEnd(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    pieces: int
    versions: int
    writes: int


class _ExportLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Exactly one field besides `chat_id` and `text` is given; it says what the line is."""

    chatledger: int | None = None
    chat: _ChatHead | None = None
    message: ImportedMessage | None = None
    branch: ImportedBranch | None = None
    checkpoint: ImportedCheckpoint | None = None
    run: MessageRun | None = None
    regeneration: ImportedRegeneration | None = None
    end: _ChatEnd | None = None
    value: _ValueHead | None = None
    piece: Piece | None = None
    version: ImportedVersion | None = None
    value_end: _ValueEnd | None = None
    chats: int | None = None
    totals: ExportCounts | None = None
    chat_id: str | None = None
    text: str | None = None


_PLURALS: Final = {
    "message": "messages",
    "branch": "branches",
    "checkpoint": "checkpoints",
    "run": "runs",
    "regeneration": "regenerations",
}
"""The lines between the head of a chat and its end, and the field of a chat that holds what they say."""


_ENDS: Final = {"end", "value_end"}
_LAST: Final = {"chats", "totals"}
_BESIDE: Final = {"chat_id", "text"}


class _Draft:
    """A chat in an export, as far as it was read."""

    kinds: ClassVar[frozenset[str]] = frozenset(_PLURALS)
    end_kind: ClassVar[str] = "end"

    def __init__(self, head: Any, line: int) -> None:
        self.head, self.line = head, line
        self.records: dict[str, list[tuple[Any, int | None]]] = {kind: [] for kind in self.kinds}
        """The records of each kind, with their lines."""

    @property
    def name(self) -> str:
        return f"chat {self.head.id!r}"

    def counts(self) -> Any:
        return _ChatEnd(chat_id=self.head.id, **{_PLURALS[kind]: len(lines) for kind, lines in self.records.items()})

    def finish(self, report: Reporter, *, is_whole: bool) -> Exported | None:
        """Return what was read; None when that is of no use. Of a chat that was cut off some may be."""
        chat_id, records = self.head.id, self.records
        linked = link_messages(chat_id, records["message"], report=report)
        messages = repair_annotations(chat_id, linked.messages, report=report)
        if not (messages or is_whole):
            return None
        return ImportedChat(
            **msgspec.structs.asdict(self.head),
            messages=messages,
            branches=repair_branches(chat_id, records["branch"], linked, report=report),
            checkpoints=repair_checkpoints(chat_id, records["checkpoint"], messages, report=report),
            runs=repair_runs(chat_id, records["run"], messages, report=report),
            regenerations=repair_regenerations(chat_id, records["regeneration"], messages, report=report),
        )


class _ValueDraft(_Draft):
    """A versioned value while it is read. An agent would go on from an earlier step, so that less than all is of no use."""

    kinds = frozenset({"piece", "version"})
    end_kind = "value_end"

    @property
    def _value(self) -> ImportedValue:
        pieces, versions = (tuple(value for value, _ in self.records[kind]) for kind in ("piece", "version"))
        return ImportedValue(**msgspec.structs.asdict(self.head), pieces=pieces, versions=versions)

    @property
    def name(self) -> str:
        return self._value.name

    def counts(self) -> Any:
        return _end_of(self._value)

    def finish(self, report: Reporter, *, is_whole: bool) -> Exported | None:
        if not is_whole:  # half a thread would be gone on with as if it were all
            return None
        try:
            check_value(self._value)
        except InvalidValueError as error:
            report.incomplete(f"{self.name} is left out: {error}", line=self.line)
            return None
        return self._value


def _end_of(value: ImportedValue) -> _ValueEnd:
    writes = sum(len(version.writes) for version in value.versions)
    return _ValueEnd(id=value.id, pieces=len(value.pieces), versions=len(value.versions), writes=writes)


_DRAFTS: Final[dict[str, type[_Draft]]] = {"chat": _Draft, "value": _ValueDraft}
"""By the line that they begin with."""


def write_chat(stream: IO[bytes], chat: ImportedChat) -> None:
    """Write one chat. Raises as `validate_chat` does when the chat could not be read back as it is; nothing is written then."""
    validate_chat(chat)
    head = _ChatHead(**{name: getattr(chat, name) for name in _ChatHead.__struct_fields__})
    end = _ChatEnd(chat_id=chat.id, **{plural: len(getattr(chat, plural)) for plural in _PLURALS.values()})
    _write(stream, _ExportLine(chat=head))
    for kind, plural in _PLURALS.items():
        for record in getattr(chat, plural):
            fields: dict[str, Any] = {kind: record, "chat_id": chat.id}
            _write(stream, _ExportLine(**fields, text=record.text if kind == "message" else None))
    _write(stream, _ExportLine(end=end))


def write_all(stream: IO[bytes], exported: Iterable[Exported]) -> ExportCounts:
    """
    Write a whole export: header, what it holds, footer.

    Args:
        stream: Where to, a file that is open in binary mode.
        exported: E.g. `ledger.export_all()`; or some of what `export_chat`, `export_thread` and `export_state` return.

    Returns:
        How many of each were written.

    Raises:
        InvalidValueError: One of them could not be read back as it is; what stands before it was written.
    """
    written = Counter[str]()
    for _ in write_steps(stream, exported, written):
        pass
    return _counts_of(written)


def write_steps(stream: IO[bytes], exported: Iterable[Exported], written: Counter[str]) -> Iterator[None]:
    """Write a whole export as `write_all` does, and stop after each chat or value: what is in the stream by then may go elsewhere."""
    _write(stream, _ExportLine(chatledger=VERSION))
    for record in exported:
        if isinstance(record, ImportedChat):
            write_chat(stream, record)
            written["chat"] += 1
        else:
            check_value(record)
            head = _ValueHead(**{name: getattr(record, name) for name in _ValueHead.__struct_fields__})
            _write(stream, _ExportLine(value=head))
            for piece in record.pieces:
                _write(stream, _ExportLine(piece=piece))
            for version in record.versions:
                _write(stream, _ExportLine(version=version))
            _write(stream, _ExportLine(value_end=_end_of(record)))
            written[record.family] += 1
        yield
    _write(stream, _ExportLine(totals=_counts_of(written)))
    yield


def _counts_of(kinds: Counter[str]) -> ExportCounts:
    return ExportCounts(chats=kinds["chat"], threads=kinds["thread"], states=kinds["state"] + kinds["item"])


def write_chats(stream: IO[bytes], chats: Iterable[ImportedChat]) -> int:
    """Write a whole export of chats: header, chats and footer. Returns the number of chats."""
    return write_all(stream, chats).chats


def _write(stream: IO[bytes], line: _ExportLine) -> None:
    try:
        if line.message is None:
            text = msgspec.json.encode(line)
        else:  # data of messages have NaN, infinities and half an emoji, which Python's `json` writes, and reads
            value = msgspec.to_builtins(line)
            if not line.message.merged_from:  # as nearly all
                del value["message"]["merged_from"]
            try:
                text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
            except UnicodeEncodeError:
                text = json.dumps(value, separators=(",", ":")).encode()
    except RecursionError:
        msg = "a value is nested too deeply to be written as JSON"
        raise InvalidValueError(msg) from None
    stream.write(text + b"\n")


def read_jsonl(stream: IO[bytes], report: Reporter) -> Iterator[ImportedChat]:
    """Yield the chats of an export, one by one, as `read_export` does, and not its threads and states."""
    return (exported for exported in read_export(stream, report) if isinstance(exported, ImportedChat))


def read_export(stream: IO[bytes], report: Reporter) -> Iterator[Exported]:
    """
    Yield the chats, threads and states of an export, one by one.

    What is cut off is reported, and of a chat yielded is what was read of it, unless that is no message. Raises
    UnsupportedFormatError when the file was written by a newer chatledger.
    """
    draft: _Draft | None = None
    begun = Counter[str]()
    announced: ExportCounts | None = None
    has_header = False
    for number, text in number_lines(stream, report):
        kind, value = _decode(text, number, report)
        if kind is None:
            continue
        if kind == "chatledger":
            if not 1 <= value <= VERSION:
                msg = f"{report.source} has format version {value}, this chatledger reads up to {VERSION}; upgrade to read it"
                raise UnsupportedFormatError(msg)
            has_header = True
        elif not has_header:
            report.broken("the export does not begin with its format version; read as the newest", line=number)
            has_header = True
        elif announced is not None:
            report.broken("a record follows the last line of the export; read all the same", line=number)
        if kind in _LAST:
            announced = ExportCounts(chats=value) if kind == "chats" else value
        if draft is not None and kind in _DRAFTS.keys() | _ENDS:
            yield from _close(draft, kind, value, number, report)
            draft = None
        elif draft is not None and kind in draft.kinds:
            draft.records[kind].append((value, number))
        elif kind not in _DRAFTS.keys() | _LAST | {"chatledger"}:
            where = "a chat, thread or state" if draft is None else draft.name
            does = "stands outside" if draft is None else "does not belong to"
            report.broken(f"the record {does} {where}; skipped", line=number)
        if kind in _DRAFTS:
            draft = _DRAFTS[kind](value, number)
            begun[kind if kind == "chat" else value.family] += 1
    if draft is not None:
        yield from _close(draft, "", None, draft.line, report)
    if announced != _counts_of(begun):
        report.incomplete(
            f"the export is cut off: {_in_words(_counts_of(begun))} found, {_in_words(announced)} written"
        )


def _in_words(counts: ExportCounts | None) -> str:
    if counts is None:
        return "an unknown number"
    more = {"thread(s)": counts.threads, "state(s)": counts.states}
    return ", ".join((f"{counts.chats} chat(s)", *(f"{count} {what}" for what, count in more.items() if count)))


def _decode(text: bytes, number: int, report: Reporter) -> tuple[str | None, Any]:
    """Return the kind of a line and its value; no kind where it is broken, and reported."""
    try:
        line = _line_of(text)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        if isinstance(error, UnicodeDecodeError):  # it carries the bytes it refused, and content stays out of messages
            reason = "not UTF-8"
        report.broken(f"not a record of this format: {reason}; skipped", line=number)
        return None, None
    kinds = (name for name in line.__struct_fields__ if name not in _BESIDE)
    records = [(name, value) for name in kinds if (value := getattr(line, name)) is not None]
    if len(records) != 1:
        report.broken(f"a record has one kind, this has {len(records)}; skipped", line=number)
        return None, None
    kind, value = records[0]
    if isinstance(value, ImportedMessage) and value.form is msgspec.UNSET:
        value = with_form(value)
    if kind in _DRAFTS and not is_id(value.id, f"the id of the {getattr(value, 'family', kind)}", report, line=number):
        return None, None
    return kind, value


def _line_of(text: bytes) -> _ExportLine:
    try:
        return msgspec.json.decode(text, type=_ExportLine)
    except msgspec.ValidationError:
        raise
    except ValueError:
        try:
            value = json.loads(text.decode())  # what `json.dumps` wrote
        except ValueError:
            value = None
        if value is None:
            raise
        return msgspec.convert(value, _ExportLine)


def _close(draft: _Draft, kind: str, end: Any, number: int, report: Reporter) -> Iterator[Exported]:
    """Yield what was read since a beginning, where that is of use; `end` is the value of the line that ends it."""
    has_end = kind == draft.end_kind
    if not has_end:
        report.incomplete(f"{draft.name} is cut off: its end is missing", line=number)
    counts = draft.counts()
    # Before the counts are compared: what is wrong with a single record says more.
    exported = draft.finish(report, is_whole=has_end and (isinstance(draft.head, _ChatHead) or counts == end))
    if has_end and counts != end:
        id_field, *fields = end.__struct_fields__
        differences = ", ".join(
            f"{getattr(counts, name)} of {getattr(end, name)} {name}"
            for name in fields
            if getattr(end, name) != getattr(counts, name)
        )
        what = differences or f"it ends as {getattr(end, id_field)!r}"
        report.incomplete(f"{draft.name} is not complete: {what}", line=number)
    if exported is not None:
        yield exported
