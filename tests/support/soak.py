"""How much is tried: a little in each `make test`, all of it in `make soak`."""

import os
from typing import Final

IS_SOAK: Final = bool(os.environ.get("CHATLEDGER_SOAK"))
"""Whether there is time."""
_SHARE: Final = 4
_LEAST: Final = 4


def examples(count: int) -> int:
    """Return how many examples of a property are tried: `count` where there is time, and otherwise a quarter."""
    return count if IS_SOAK else max(_LEAST, count // _SHARE)
