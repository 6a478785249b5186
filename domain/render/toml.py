"""Fragments as TOML 1.0: https://toml.io/en/v1.0.0."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ..errors import ConfigurationError
from .plain import Plain, plain_data
from .prepared import Named, Renderer, scalar_text

MAX_HEADER_LENGTH: Final = 16_384
"""
Characters of a table header. A header repeats its path, so deeper tables stand inline: with headers the document would
grow with the square of its depth.
"""

MAX_LINE_LENGTH: Final = 100
"""Characters of a line with an array; longer ones have a line per item."""


class TomlWords(NamedTuple):
    """How single words are written."""

    key: Callable[[str], str]
    text: Callable[[str], str]
    number: Callable[[float], str]


class _Table(NamedTuple):
    header: str
    path: str
    entries: dict[str, Plain]
    is_item: bool = False


def toml_document(data: dict[str, Plain], words: TomlWords) -> str:
    """The TOML document of an object, without a line break at its end. The object may be nested at will."""
    blocks: list[str] = []
    pending = [_Table("", "", data)]
    while pending:
        table = pending.pop()
        lines: list[str] = []
        inner: list[_Table] = []
        for name, value in table.entries.items():
            key = words.key(name)
            tables = _tables(f"{table.path}.{key}" if table.path else key, value)
            inner += tables
            if not tables:
                lines.append(f"{key} = {_outer_value(value, words, room=MAX_LINE_LENGTH - len(key) - 3)}")
        # A table that holds nothing but tables is there through their headers. An item of an array of tables is not.
        if table.header and (lines or table.is_item or not inner):
            lines.insert(0, table.header)
        if lines:
            blocks.append("\n".join(lines))
        pending += reversed(inner)
    return "\n\n".join(blocks)


def _tables(path: str, value: Plain) -> list[_Table]:
    """The tables which a value is written as; none if it stands on the line of its key."""
    if len(path) > MAX_HEADER_LENGTH:
        return []
    if isinstance(value, dict):
        return [_Table(f"[{path}]", path, value)]
    if not isinstance(value, list):
        return []
    items = [_Table(f"[[{path}]]", path, item, is_item=True) for item in value if isinstance(item, dict)]
    return items if len(items) == len(value) else []


def _outer_value(value: Plain, words: TomlWords, *, room: int) -> str:
    text = _value(value, words)
    if len(text) <= room or not isinstance(value, list):
        return text
    return "[\n" + "".join(f"  {_value(item, words)},\n" for item in value) + "]"


def _value(value: Plain, words: TomlWords) -> str:
    """A value on one line."""
    written: list[str] = []
    pending: list[tuple[str, Plain | None]] = [("", value)]  # what comes before a value, and the value
    while pending:
        before, value_or_end = pending.pop()
        written.append(before)
        if isinstance(value_or_end, list):
            pending.append(("]", None))
            pending += reversed([(", " if at else "[", item) for at, item in enumerate(value_or_end)])
            written += [] if value_or_end else ["["]
        elif isinstance(value_or_end, dict):
            entries = enumerate(value_or_end.items())
            pending.append(("}", None))
            pending += reversed([(f"{', ' if at else '{'}{words.key(key)} = ", item) for at, (key, item) in entries])
            written += [] if value_or_end else ["{"]
        elif value_or_end is not None:
            written.append(_scalar(value_or_end, words))
    return "".join(written)


def _scalar(value: str | float, words: TomlWords) -> str:
    return words.text(value) if isinstance(value, str) else words.number(value)


_MAX_EXACT_INTEGER = 2**53
"""Up to here each whole number is a float of its own."""


@dataclass(frozen=True, kw_only=True)
class TomlRenderer(Renderer):
    """
    Writes fragments as a TOML document; see `Renderer`.

    Names are keys, objects are tables, and names that repeat are arrays: see `plain_data`. As this groups fragments of
    one name already, `group_fragments` changes nothing. It needs `pip install 'chatledger[toml]'`.
    """

    def _document(self, fragments: Sequence[Named]) -> str:
        return toml_document(plain_data(fragments), _words())


def _words() -> TomlWords:
    """
    Keys, text and numbers as TOML has them.

    The library quotes and escapes. It is not asked for whole documents: it fails with a `RecursionError` on 300 levels.
    """
    try:
        import tomli_w
    except ImportError as error:
        msg = "rendering TOML needs the library tomli-w; pip install 'chatledger[toml]'"
        raise ConfigurationError(msg) from error

    def key(name: str) -> str:
        return tomli_w.dumps({name: {}}).removeprefix("[").removesuffix("]\n")

    def text(value: str) -> str:
        return tomli_w.dumps({"_": value}).removeprefix("_ = ").removesuffix("\n")

    return TomlWords(key=key, text=text, number=_number)


def _number(value: float) -> str:
    """A number or boolean as in ECMAScript, but not in the notation of integers where a parser would read another one."""
    if isinstance(value, int):
        return scalar_text(value)
    if not math.isfinite(value):
        return str(value)  # nan, inf and -inf are TOML
    text = scalar_text(value)
    is_ambiguous = abs(value) > _MAX_EXACT_INTEGER and "e" not in text
    return f"{text}.0" if is_ambiguous else text
