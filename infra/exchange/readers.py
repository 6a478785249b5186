"""Detection of a file's format, and its reader."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Final

from chatledger.domain.chat.import_fit import fit_chat
from chatledger.domain.chat.import_tree import Reporter
from chatledger.domain.chat.interchange import ImportedChat, Problem
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.limits import MAX_UNPACKED_BYTES
from chatledger.domain.wire import encode_plain

from ..store.opening.presence import without_secrets
from .chat_apps import read_deepseek, read_librechat, read_openwebui
from .chatgpt import read_chatgpt
from .claude import read_claude
from .context_databases import is_database, read_database
from .deepagents import read_deepagents
from .documents import ZIP_MAGIC, start_of_conversations
from .jsonl import Exported, describe, read_export
from .linear import AISTUDIO, MESSAGES, PAIRS, SHAREGPT, read_linear, read_preferences
from .oasst import read_oasst
from .otlp import read_otlp
from .source import as_utf8, decode_json, number_lines, open_source, read_source

__all__ = ["FORMATS", "detect_format", "read_all", "read_chats", "without_secrets"]

_SUPPORTED: Final = (
    "supported are: oasst (OpenAssistant message or tree files, .jsonl), chatgpt (conversations.json or the export .zip), "
    "claude (conversations.json of Claude's export, or its .zip), deepseek (the same of DeepSeek's), openwebui (its export, "
    ".json), librechat (the same), aistudio (a prompt of Google AI Studio), messages (lists of messages of OpenAI's, Anthropic's and Gemini's APIs, and "
    "files for fine-tuning, .json or .jsonl), otlp (traces of OpenTelemetry, .json or .jsonl), dpo (pairs of a chosen and a rejected answer), sharegpt (.json or .jsonl), deepagents (SQLite files "
    "of @deepagents/context), langgraph (SQLite files of SqliteSaver, by 'chatledger import'), chatledger (our own export, .jsonl); each but .zip "
    "also as .gz"
)
_PEEK_BYTES: Final = 262_144
_LINE_BYTES: Final = 1024 * 1024
# The first lines may be the broken ones.
_PEEK_LINES: Final = 20
_CONTENTS: Final = ("content", "parts", "tool_calls")
_SQLITE_MAGIC: Final = b"SQLite format 3\0"
_SHAPES: Final = {
    "chatledger": ("chatledger", "chat.id chat.user_id"),
    "oasst": ("message_tree_id", "prompt.message_id", "message_id parent_id text role"),
    "claude": ("chat_messages", "conversations.chat_messages"),
    "deepseek": ("mapping *.fragments *.inserted_at",),
    "chatgpt": ("mapping", "current_node", "conversations.mapping"),
    "dpo": ("chosen rejected", "preferred_output non_preferred_output"),
    "sharegpt": ("from value", "conversations.from", "items.from"),
    "openwebui": ("chat.history", "history.messages history.currentId"),
    "librechat": ("conversationId messagesTree", "conversationId messages.messageId"),
    "aistudio": ("chunkedPrompt.chunks",),
    "otlp": ("resourceSpans",),
    "messages": (
        "messages",
        "conversation.role conversation.content",
        *(f"{question} {answer}" for question, answer in PAIRS),
        *(f"{above}role {above}{key}" for above in ("", "conversations.", "contents.") for key in _CONTENTS),
    ),
}
"""The formats of JSON, and for each the sets of keys that tell it, of which the first counts that is all there; `*` stands for any key above."""
_KEY_PATHS: Final = {
    name: [frozenset(tuple(key.split(".")) for key in keys.split()) for keys in shapes]
    for name, shapes in _SHAPES.items()
}


def _read_own(path: Path, report: Reporter) -> Iterator[Exported]:
    with open_source(path, report.max_unpacked_bytes) as stream:
        yield from read_export(stream, report)


_READERS: Final[dict[str, Callable[[Path, Reporter], Iterator[Exported]]]] = {
    "aistudio": partial(read_linear, dialect=AISTUDIO),
    "chatgpt": read_chatgpt,
    "chatledger": _read_own,
    "claude": read_claude,
    "deepagents": read_deepagents,
    "deepseek": read_deepseek,
    "dpo": read_preferences,
    "librechat": read_librechat,
    "messages": partial(read_linear, dialect=MESSAGES),
    "oasst": read_oasst,
    "openwebui": read_openwebui,
    "otlp": read_otlp,
    "sharegpt": partial(read_linear, dialect=SHAREGPT),
}
FORMATS: Final = tuple(_READERS)


def detect_format(path: str | Path, *, max_unpacked_bytes: int = MAX_UNPACKED_BYTES) -> str:
    """
    The format of a file, one of `FORMATS`, by its first bytes and never by its name.

    Raises:
        InvalidValueError: The file cannot be read, is empty, or is of no supported format; or its first lines are too large
            when they are unpacked.

    """
    path = Path(path)
    if path.is_dir():
        msg = f"{path} is a directory; name a file in it. {_SUPPORTED}"
        raise InvalidValueError(msg)
    peek = as_utf8(read_source(path, _PEEK_BYTES))
    start = peek.lstrip()
    if not start:
        what = "is empty" if len(peek) < _PEEK_BYTES else f"begins with {len(peek):,} blanks"
        msg = f"{path} {what}; {_SUPPORTED}"
        raise InvalidValueError(msg)
    if start.startswith(_SQLITE_MAGIC):
        return "deepagents"
    if start.startswith(ZIP_MAGIC):
        # Without conversations.json its reader says so.
        detected: str | None = _shape(_key_paths(start_of_conversations(path, _PEEK_BYTES))) or "chatgpt"
    else:
        detected = _detect_json(path, start, max_unpacked_bytes)
    if detected is None:
        fault = _json_fault(start) if len(peek) < _PEEK_BYTES else None
        msg = f"{path} {fault or 'has an unknown format'}; {_SUPPORTED}"
        raise InvalidValueError(msg)
    return detected


def _json_fault(text: bytes) -> str | None:
    """Return what is wrong with JSON, for a file that was cut off; None where it is sound, or is no JSON at all."""
    if not text.startswith((b"{", b"[")):
        return None
    try:
        decode_json(text.partition(b"\n")[0])
    except InvalidValueError:
        try:
            decode_json(text)
        except InvalidValueError as error:
            return f"is {error}" if "JSON" in str(error) else None
    return None


def _detect_json(path: Path, start: bytes, max_unpacked_bytes: int) -> str | None:
    if start.startswith(b"["):
        if start[1:].lstrip().startswith(b"]"):
            return "chatgpt"
        detected = _shape(_key_paths(start))
        return None if detected == "chatledger" else detected
    if not start.startswith(b"{"):
        return None
    # One object over many lines: what stands in a line by itself, a message for example, would tell another format.
    if start.partition(b"\n")[0].strip() == b"{" and (detected := _shape(_key_paths(start))):
        return detected
    quiet = Reporter(str(path), strict=False, on_problem=lambda _: None)
    with open_source(path, max_unpacked_bytes) as stream:
        for _, line in islice(number_lines(stream, quiet), _PEEK_LINES):
            detected = _shape(_key_paths(line[:_LINE_BYTES])) if line.startswith(b"{") else None
            if detected is not None:
                return detected
    # A single conversation, indented over many lines.
    return _shape(_key_paths(start))


def _shape(paths: set[tuple[str, ...]]) -> str | None:
    return next((name for name, shapes in _KEY_PATHS.items() if any(shape <= paths for shape in shapes)), None)


def read_all(
    path: str | Path,
    *,
    format: str | None = None,  # noqa: A002  # the word of the command line and the docs
    strict: bool = False,
    on_problem: Callable[[Problem], None],
    max_unpacked_bytes: int = MAX_UNPACKED_BYTES,
) -> Iterator[Exported]:
    """
    All that a file holds, one by one: conversations, and of our own export threads of agents, graph states and items too.

    Each conversation passes `validate_chat`. Give them to `import_chat` of a ledger, and the others to `import_value`.

    Args:
        path: The file, gzip or not. Or the location of a database of `@deepagents/context`: `postgresql://...`, `mssql+pyodbc://...`,
            with `?schema=`.
        format: One of `FORMATS`; found out when None.
        strict: Raise at the first problem instead of reporting it and going on.
        on_problem: Called with each problem, before the chat it belongs to is yielded. What is broken is skipped; a message
            whose parent is missing becomes a root; a cycle is cut at its first member. A thread or a state of which something
            is missing is left out.
        max_unpacked_bytes: How large a compressed file may become when it is unpacked, 1 GiB by default; of a .zip, all
            that is read of it together.

    Raises:
        InvalidValueError: The format is not supported, or the file cannot be read; at the call. While reading: it becomes
            too large when it is unpacked; strictly, also a broken record.
        ChainIntegrityError: While reading strictly: a cycle, or a parent, head or checkpoint that names no message.
        UnsupportedFormatError: The file was written by a newer chatledger.

    """
    if format is not None and format not in FORMATS:
        msg = f"format {format!r} is unknown; {_SUPPORTED}"
        raise InvalidValueError(msg)
    if isinstance(path, str) and is_database(path):
        report = Reporter(without_secrets(path), strict=strict, on_problem=on_problem)
        return _drop_repeated(_fitting(read_database(path, report), report), report)
    path = Path(path)
    # Reading the start also tells a missing or empty file, whatever the format.
    if format is None:
        format = detect_format(path, max_unpacked_bytes=max_unpacked_bytes)  # noqa: A001  # as above
    elif not read_source(path, 1):
        msg = f"{path} is empty; {_SUPPORTED}"
        raise InvalidValueError(msg)
    report = Reporter(str(path), strict=strict, on_problem=on_problem, max_unpacked_bytes=max_unpacked_bytes)
    return _drop_repeated(_fitting(_READERS[format](path, report), report), report)


def read_chats(
    path: str | Path,
    *,
    format: str | None = None,  # noqa: A002  # as above
    strict: bool = False,
    on_problem: Callable[[Problem], None],
    max_unpacked_bytes: int = MAX_UNPACKED_BYTES,
) -> Iterator[ImportedChat]:
    """The conversations of a file, one by one, as `read_all` yields them; without the threads and graph states of an export."""
    records = read_all(path, format=format, strict=strict, on_problem=on_problem, max_unpacked_bytes=max_unpacked_bytes)
    return (record for record in records if isinstance(record, ImportedChat))


def _fitting(records: Iterator[Exported], report: Reporter) -> Iterator[Exported]:
    for record in records:
        fitted = fit_chat(record, report.broken) if isinstance(record, ImportedChat) else record
        if fitted is not None:
            yield fitted


def _drop_repeated(records: Iterator[Exported], report: Reporter) -> Iterator[Exported]:
    """Yield each only once. What appears again with other content is yielded too: what it has besides, a ledger adds."""
    digests: set[bytes] = set()  # the records themselves may be larger than memory
    for record in records:
        try:
            digest = blake2b(encode_plain([type(record).__name__, record]), digest_size=16).digest()
        except RecursionError:
            report.broken(f"{describe(record)} holds a value that is nested too deeply; skipped")
            continue
        if digest not in digests:
            digests.add(digest)
            yield record


_TOKENS: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}:,]', re.DOTALL)
_DEPTH: Final = 2


def _key_paths(start: bytes) -> set[tuple[str, ...]]:
    """
    Return the keys that stand at the top, and one level below, as paths; lists do not count as a level.

    `[{"messages": [{"role": "user"}]}]` has the paths `("messages",)` and `("messages", "role")`, and each key at any depth behind
    `*`. The text may be cut off, and nested to any depth.
    """
    paths: set[tuple[str, ...]] = set()
    above: list[str | None] = []
    """The key under which each open container stands."""
    last, key = "", None
    for token in _TOKENS.finditer(start):
        text = token[0]
        if text in {b"{", b"["}:
            above.append(key)
            key = None
        elif text in {b"}", b"]"}:
            del above[-1:]
            key = None
        elif text == b":":
            key = last
            paths.add(("*", last))
            # Deeper ones need not be walked through: each list and object adds a level at most.
            path = (*(name for name in above if name is not None), last) if len(above) <= 2 * _DEPTH else ()
            if 0 < len(path) <= _DEPTH:
                paths.add(path)
        elif text == b",":
            key = None
        else:
            last = text[1:-1].decode(errors="replace")
    return paths
