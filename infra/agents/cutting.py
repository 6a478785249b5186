"""What is worth being cut into elements: the same for all that write threads, so that equal values are stored once."""

import marshal
from typing import Any, Final, cast

MAX_DEPTH: Final = 16
MARSHAL_VERSION: Final = 2  # the last one whose bytes do not depend on who else refers to a value
_WHOLE_BYTES: Final = 512
"""Values of plain data that are smaller than this are not cut."""


def is_cut(value: Any, depth: int) -> bool:
    """Whether a list, or a dict with text keys, is stored as its elements."""
    if depth >= MAX_DEPTH or not value:
        return False
    kind = cast("type[Any]", type(value))
    if kind is dict and set(map(type, value)) != {str}:
        return False
    return kind in {list, dict} and not _is_small(value)


def _is_small(value: Any) -> bool:
    """Whether it is plain data of few bytes, which is not worth being cut."""
    try:
        return len(marshal.dumps(value, MARSHAL_VERSION)) < _WHOLE_BYTES
    except ValueError:
        return False
