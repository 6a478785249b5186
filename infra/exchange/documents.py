"""The records of a JSON file: the items of a list, the lines of JSONL, or the one object that it is."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

from chatledger.domain.chat.import_tree import Reporter
from chatledger.domain.errors import InvalidValueError

from .source import decode_json, number_lines, open_source, read_source

_BOM = b"\xef\xbb\xbf"
_START_BYTES = 4096


class Document(NamedTuple):
    """One record, its number from 1, and its line where the file has one to a line."""

    value: Any
    number: int
    line: int | None


def object_of(document: Document) -> dict[str, Any]:
    """Return the fields of a record; none when it is no object."""
    value: Any = document.value
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def read_documents(path: Path, report: Reporter) -> Iterator[Document]:
    """
    The records of a file, one by one; what is no JSON is reported.

    Lines are read one at a time. A list is read whole, and decoded item by item.
    """
    if read_source(path, _START_BYTES).removeprefix(_BOM).lstrip().startswith(b"{"):
        yield from _read_lines(path, report)
        return
    yield from decode_documents(read_source(path, max_unpacked_bytes=report.max_unpacked_bytes), report)


def decode_documents(text: bytes, report: Reporter) -> Iterator[Document]:
    """The items of a JSON list, or the one object that a text is."""
    try:
        items: list[Any] = msgspec.json.decode(text.removeprefix(_BOM), type=list[msgspec.Raw])
    except (ValueError, RecursionError):
        try:
            value, is_repaired = decode_json(text)
        except InvalidValueError as error:
            report.broken(f"{error}; skipped")
            return
        if is_repaired:
            report.broken("lone surrogates replaced by U+FFFD")
        items = cast("list[Any]", value) if isinstance(value, list) else [value]
    for number, item in enumerate(items, 1):
        try:
            value, is_repaired = decode_json(bytes(item)) if isinstance(item, msgspec.Raw) else (item, False)
        except InvalidValueError as error:
            report.broken(f"item {number}: {error}; skipped")
            continue
        if is_repaired:
            report.broken(f"item {number}: lone surrogates replaced by U+FFFD")
        yield Document(value, number, None)


def _read_lines(path: Path, report: Reporter) -> Iterator[Document]:
    with open_source(path, report.max_unpacked_bytes) as stream:
        for number, (line, text) in enumerate(number_lines(stream, report), 1):
            try:
                value, is_repaired = decode_json(text)
            except InvalidValueError as error:
                if number == 1 and (whole := _one_object(path, report)) is not None:
                    yield whole
                    return
                report.broken(f"{error}; skipped", line=line)
                continue
            if is_repaired:
                report.broken("lone surrogates replaced by U+FFFD", line=line)
            yield Document(value, number, line)


def _one_object(path: Path, report: Reporter) -> Document | None:
    """Return the object that a file is, if it is one, written over several lines."""
    try:
        value, is_repaired = decode_json(read_source(path, max_unpacked_bytes=report.max_unpacked_bytes))
    except InvalidValueError:
        return None
    if is_repaired:
        report.broken("lone surrogates replaced by U+FFFD")
    return Document(value, 1, None)
