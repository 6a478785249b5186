"""What the first bytes of a JSON text are about: its keys, without decoding it."""

import re
from typing import Final

_TOKENS: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}:,]', re.DOTALL)
_DEPTH: Final = 2


def key_paths(start: bytes) -> set[tuple[str, ...]]:
    """
    Return the keys that stand at the top, and one level below, as paths; lists do not count as a level.

    `[{"messages": [{"role": "user"}]}]` has the paths `("messages",)` and `("messages", "role")`. The text may be cut off, and nested
    to any depth.
    """
    found: set[tuple[str, ...]] = set()
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
            path = (*(one for one in above if one is not None), last) if len(above) <= 2 * _DEPTH else ()
            if 0 < len(path) <= _DEPTH:
                found.add(path)
        elif text == b",":
            key = None
        else:
            last = text[1:-1].decode(errors="replace")
    return found
