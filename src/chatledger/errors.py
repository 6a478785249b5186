"""Everything that chatledger raises on purpose; see the tree in the reference of errors."""

from chatledger.domain.errors import *  # noqa: F403 - its `__all__`, the errors and nothing else
from chatledger.domain.errors import __all__ as __all__  # noqa: PLC0414 - by the alias it is exported
