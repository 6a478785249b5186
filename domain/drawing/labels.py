"""What a drawing writes about a message: always one line."""

import re
from typing import Final

_ID_CHARACTERS: Final = 8
# Control characters would break lines, or drive the terminal.
_BLANKS: Final = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029], " ")
_NO_XML: Final = re.compile("[\ud800-\udfff\ufffe\uffff]")


def flat(text: str) -> str:
    """A text on one line: line breaks and other control characters become blanks."""
    return text.replace("\r\n", " ").translate(_BLANKS)


def printable(text: str) -> str:
    """As `flat`, and what neither XML nor UTF-8 can hold becomes U+FFFD."""
    return _NO_XML.sub("\ufffd", flat(text))


def short_id(message_id: str) -> str:
    """The first characters of an id."""
    return flat(message_id[:_ID_CHARACTERS])


def messages_left_out(count: int) -> str:
    """What stands for messages that are not shown."""
    return f"... {count} {'message' if count == 1 else 'messages'} ..."
