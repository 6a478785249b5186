"""
The records of a file, whatever holds them: a list, lines of JSONL, one object, each also in a .zip; as UTF-8 or UTF-16.

One record is decoded at a time, so that a broken one costs itself: NaN, which Python writes and JSON does not have, half an emoji,
the end that is missing.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import msgspec

from chatledger.domain.chat.import_tree import Reporter
from chatledger.domain.errors import InvalidValueError

from .archive import ZIP_MAGIC, base_name, open_archive
from .source import as_utf8, decode_json, number_lines, open_source, read_source

Decode = Callable[[bytes], tuple[Any, str | None]]
"""Decode a record, and say what was replaced in it; see `decode_json`."""

_START_BYTES: Final = 4096


class Document(NamedTuple):
    """
    One record.

    Args:
        value: What it says.
        number: Counts from 1.
        line: Its line, where the file has one record a line.
        report: The reporter for what is wrong with it.
        owner: The user whom the archive around it belongs to.
    """

    value: Any
    number: int
    line: int | None
    report: Reporter
    owner: str | None = None


def object_of(document: Document) -> dict[str, Any]:
    """Return the fields of a record; none when it is no object."""
    value: Any = document.value
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def list_of(value: Any) -> list[Any]:
    """Return a list; an empty one for what is none."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def read_documents(path: Path, report: Reporter, *, decode: Decode = decode_json) -> Iterator[Document]:
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
                        yield from _decode_items([whole], report, decode)
                        return
                value = _decoded(text, report.at(line), decode)
                if value is not _BROKEN:
                    yield Document(value, number, line, report.at(line))
    else:
        text = as_utf8(read_source(path, max_unpacked_bytes=report.max_unpacked_bytes))
        yield from _read_text(text, report, decode)


def read_conversations(path: Path, report: Reporter, *, key: str) -> Iterator[Document]:
    """Yield the records of a file whose conversations are objects with a key: also those in lists of lists, and under `conversations`."""
    for document in read_documents(path, report):
        pending, number = [document.value], document.number
        while pending:
            value = pending.pop()
            inner = value
            if isinstance(value, dict) and key not in value:
                inner = cast("dict[str, Any]", value).get("conversations")
            if isinstance(inner, list):
                pending.extend(reversed(cast("list[Any]", inner)))
            else:
                yield document._replace(value=value, number=number)
                number += 1


def _read_members(path: Path, report: Reporter, decode: Decode) -> Iterator[Document]:
    with open_archive(path, report) as archive:
        members = archive.conversations()
        if not members:
            msg = f"{path} holds no conversations.json, so it is no data export"
            raise InvalidValueError(msg)
        owner: str | None = None
        for name in archive.names:
            if base_name(name) == "user.json":
                owner = _user_id(archive.read(name)) or owner
        for name in members:
            text = archive.read(name)
            if text is not None:
                for document in _read_text(text, report.within(name), decode):
                    yield document._replace(owner=owner)


def _user_id(text: bytes | None) -> str | None:
    try:
        user = decode_json(text or b"")[0]
    except InvalidValueError:
        return None
    user_id = cast("dict[str, Any]", user).get("id") if isinstance(user, dict) else None
    return user_id if isinstance(user_id, str) else None


def _read_text(text: bytes, report: Reporter, decode: Decode) -> Iterator[Document]:
    """Yield the items of a JSON list, the one object that a text is, or lists one a line."""
    try:
        items: Iterable[bytes] = map(bytes, msgspec.json.decode(text, type=list[msgspec.Raw]))
    except (ValueError, RecursionError):
        first, _, rest = text.strip().partition(b"\n")
        if rest and first.startswith(b"[") and _is_json(first, decode):
            for number, (line, one) in enumerate(number_lines(BytesIO(text), report), 1):
                value = _decoded(one, report.at(line), decode)
                if value is not _BROKEN:
                    yield Document(value, number, line, report.at(line))
            return
        items = _split_list(text) if first.startswith(b"[") else [text]
    yield from _decode_items(items, report, decode)


def _decode_items(items: Iterable[bytes], report: Reporter, decode: Decode) -> Iterator[Document]:
    for number, item in enumerate(items, 1):
        value = _decoded(item, report, decode, what=f"item {number}: ")
        if value is not _BROKEN:
            yield Document(value, number, None, report)


_BROKEN: Final = object()


def _decoded(text: bytes, report: Reporter, decode: Decode, *, what: str = "") -> Any:
    """Return the value of a record; `_BROKEN` for what is no JSON, which is reported, as what was replaced in it is."""
    try:
        value, replaced = decode(text)
    except InvalidValueError as error:
        report.broken(f"{what}{error}; skipped")
        return _BROKEN
    if replaced is not None:
        report.broken(f"{what}{replaced}")
    return value


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
