"""Texts on one line as people see them: nothing in them breaks the line, drives a terminal, or is there unseen."""

import json
import re
from typing import Final

_ID_CHARACTERS: Final = 8
# Control characters would break lines, or drive the terminal.
_BLANKS: Final = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029], " ")
_UNSEEN: Final = (
    *range(0x202A, 0x202F),
    *range(0x2060, 0x2065),
    *range(0x2066, 0x2070),
    *range(0xFFF9, 0xFFFC),
    *range(0xE0000, 0xE0080),
    0x00AD,
    0x180E,
    0x200B,
    0xFEFF,
)
ESCAPES: Final = {code: f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}" for code in _UNSEEN}
"""
Characters that nobody sees, and that let a text look like another one: overrides of the direction, tags, blanks of no width.

Marks that a script needs (U+200C to U+200F) are not among them.
"""
_NOT_BARE: Final = re.compile(r'[][{}*,"]|^\s|\s$|^$')
_NO_XML: Final = re.compile("[\ud800-\udfff\ufffe\uffff]")


def flat(text: str) -> str:
    """A text on one line: line breaks and other control characters become blanks."""
    return text.replace("\r\n", " ").translate(_BLANKS)


def escaped(text: str) -> str:
    """A text on one line as people see it: what nobody sees, and lets it look like another one, is escaped."""
    return flat(text).translate(ESCAPES)


def printable(text: str) -> str:
    """A text as `escaped` gives it; characters that neither XML nor UTF-8 can hold become U+FFFD."""
    return _NO_XML.sub("\ufffd", escaped(text))


def marker(name: str) -> str:
    """The name of a branch or checkpoint, in quotes if it could be read as more than one, or as the sign of the active one."""
    shown = escaped(name)
    return json.dumps(shown, ensure_ascii=False) if _NOT_BARE.search(shown) else shown


def short_id(message_id: str) -> str:
    """The first characters of an id."""
    return flat(message_id[:_ID_CHARACTERS])
