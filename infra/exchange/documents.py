"""
The records of a file, whatever holds them: a list, lines of JSONL, one object, each also in a .zip; as UTF-8 or UTF-16.

One record is decoded at a time, so that a broken one costs itself: NaN, which Python writes and JSON does not have, half an emoji,
the end that is missing.
"""

import lzma
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from io import BytesIO
from pathlib import Path
from struct import error as StructError  # noqa: N812 - it is a class
from typing import Any, Final, NamedTuple, cast

import msgspec

from chatledger.domain.chat.import_tree import Reporter
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.forms.plain import object_at, text_at

from .source import (
    Allowance,
    LimitedStream,
    as_utf8,
    decode_json,
    number_lines,
    open_source,
    read_source,
    refuse_unreadable,
)

Decode = Callable[[bytes], tuple[Any, str | None]]
"""Decode a record, and say what was replaced in it; see `decode_json`."""

_START_BYTES: Final = 4096


class ImportedDocument(NamedTuple):
    """One record."""

    value: Any
    number: int
    line: int | None
    report: Reporter
    owner: str | None = None

    @property
    def fields(self) -> Mapping[str, Any]:
        return object_at(self.value)


ZIP_MAGIC: Final = b"PK\x03\x04"
_CONVERSATIONS: Final = re.compile(r"conversations(-\d+)?\.json")
_UNPACKABLE: Final = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    StructError,
    EOFError,
    OSError,
    RuntimeError,
    ValueError,
)
"""RuntimeError is an encrypted member, NotImplementedError (its subclass) an unknown version or compression; ValueError a bad name."""


def _base_name(name: str) -> str:
    # PowerShell's Compress-Archive separates the parts of names by backslashes.
    return name.replace("\\", "/").rpartition("/")[2]


def start_of_conversations(path: Path, size: int) -> bytes:
    """Return the first bytes of the conversations in a .zip; none where there are none that can be read."""
    try:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if _CONVERSATIONS.fullmatch(_base_name(name)):
                    with archive.open(name) as member:
                        return as_utf8(member.read(size))
    except _UNPACKABLE:
        pass
    return b""


def read_documents(path: Path, report: Reporter, *, decode: Decode = decode_json) -> Iterator[ImportedDocument]:
    """
    Yield the records of a file, one by one; what is no JSON is reported.

    Lines are read one at a time. A list is read whole, and decoded item by item.

    Raises:
        InvalidValueError: The file cannot be read, or is a .zip without conversations.json.
    """
    start = as_utf8(read_source(path, _START_BYTES))
    if start.startswith(ZIP_MAGIC):
        yield from _read_members(path, report, decode)
    elif start.lstrip().startswith(b"{"):
        with open_source(path, report.max_unpacked_bytes) as stream:
            for number, (line, text) in enumerate(number_lines(stream, report), 1):
                if number == 1 and not text.endswith(b"}"):
                    # Either the first line is broken, or the file is one object, written over many lines.
                    whole = as_utf8(read_source(path, max_unpacked_bytes=report.max_unpacked_bytes))
                    if text == b"{" or _is_json(whole, decode):
                        yield from _decoded(whole, report, decode, number, what="item 1: ")
                        return
                yield from _decoded(text, report.at(line), decode, number, line)
    else:
        text = as_utf8(read_source(path, max_unpacked_bytes=report.max_unpacked_bytes))
        yield from _read_text(text, report, decode)


def read_conversations(
    path: Path, report: Reporter, *, key: str, decode: Decode = decode_json
) -> Iterator[ImportedDocument]:
    """Yield the records of a file whose conversations are objects with a key: also those in lists of lists, and under `conversations`."""
    for document in read_documents(path, report, decode=decode):
        pending, number = [document.value], document.number
        while pending:
            value = pending.pop()
            fields = object_at(value)
            inner = fields.get("conversations") if fields and key not in fields else value
            if isinstance(inner, list):
                pending.extend(reversed(cast("list[Any]", inner)))
            else:
                yield document._replace(value=value, number=number)
                number += 1


def _read_members(path: Path, report: Reporter, decode: Decode) -> Iterator[ImportedDocument]:
    """Yield the records of the members that hold conversations: conversations.json, or its numbered parts."""
    try:
        archive = zipfile.ZipFile(path)
    except _UNPACKABLE as error:
        refuse_unreadable(path, error)
    allowance = Allowance(str(path), report.max_unpacked_bytes)

    def unpacked(name: str) -> bytes | None:
        try:
            with archive.open(name) as member:
                return as_utf8(LimitedStream(member, allowance).read())
        except InvalidValueError:  # a ValueError too, but past the limit nothing is read any more
            raise
        except _UNPACKABLE as error:
            report.broken(f"{name} cannot be unpacked: {error}; skipped")
            return None

    with archive:
        names = [name for name in archive.namelist() if not name.startswith("__MACOSX/")]
        members = sorted(name for name in names if _CONVERSATIONS.fullmatch(_base_name(name)))
        if not members:
            msg = f"{path} holds no conversations.json, so it is no data export"
            raise InvalidValueError(msg)
        owner: str | None = None
        for name in names:
            if _base_name(name) == "user.json":
                try:
                    user = object_at(decode_json(unpacked(name) or b"")[0])
                except InvalidValueError:
                    continue
                # As ChatGPT's export names it, and DeepSeek's.
                owner = text_at(user, "id") or text_at(user, "user_id") or owner
        for name in members:
            text = unpacked(name)
            if text is not None:
                for document in _read_text(text, report.within(name), decode):
                    yield document._replace(owner=owner)


def _read_text(text: bytes, report: Reporter, decode: Decode) -> Iterator[ImportedDocument]:
    """Yield the items of a JSON list, the one object that a text is, or lists one a line."""
    try:
        items: Iterable[bytes] = map(bytes, msgspec.json.decode(text, type=list[msgspec.Raw]))
    except (ValueError, RecursionError):
        first, _, rest = text.strip().partition(b"\n")
        if rest and first.startswith(b"[") and _is_json(first, decode):
            for number, (line, record) in enumerate(number_lines(BytesIO(text), report), 1):
                yield from _decoded(record, report.at(line), decode, number, line)
            return
        items = _split_list(text) if first.startswith(b"[") else [text]
    for number, item in enumerate(items, 1):
        yield from _decoded(item, report, decode, number, what=f"item {number}: ")


def _decoded(
    text: bytes, report: Reporter, decode: Decode, number: int, line: int | None = None, *, what: str = ""
) -> Iterator[ImportedDocument]:
    """Yield a record; nothing for what is no JSON, which is reported, as what was replaced in it is."""
    try:
        value, replaced = decode(text)
    except InvalidValueError as error:
        report.broken(f"{what}{error}; skipped")
        return
    if replaced is not None:
        report.broken(f"{what}{replaced}")
    yield ImportedDocument(value, number, line, report)


def _is_json(text: bytes, decode: Decode) -> bool:
    try:
        decode(text)
    except InvalidValueError:
        return False
    return True


# A text that does not end is the last token: what stands in it is no bracket.
_TOKENS: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[\]{},]', re.DOTALL)


def _split_list(text: bytes) -> Iterator[bytes]:
    """Yield the items of a JSON list as they stand, whatever is wrong with one, and when the end is missing."""
    depth, start = 0, text.index(b"[") + 1
    for token in _TOKENS.finditer(text):
        sign = token[0]
        if sign in {b"[", b"{"}:
            depth += 1
        elif sign in {b"]", b"}"}:
            depth -= 1
        if (sign == b"," and depth == 1) or depth == 0:
            if item := text[start : token.start()].strip():
                yield item
            start = token.end()
        if depth == 0:
            return
    yield text[start:].strip()
