"""Numbers of examples that are tried: a little in each `make test`, all of it in `make soak`."""

import os
from typing import Final

IS_SOAK: Final = bool(os.environ.get("CHATLEDGER_SOAK"))
"""Whether there is time."""
EVERY: Final = 20
"""Of the examples of a property, and of the cases of a matrix, one in so many is tried where there is no time."""
_LEAST: Final = 4


def examples(count: int, *, one_in: int = EVERY) -> int:
    """Return how many examples of a property are tried: `count` where there is time, and otherwise one in so many."""
    return count if IS_SOAK else max(_LEAST, count // one_in)
