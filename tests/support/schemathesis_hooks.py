"""How schemathesis sends what it does not know: JSON lines."""

from typing import Any

import schemathesis


@schemathesis.serializer("application/jsonl")
def lines(_context: Any, value: Any) -> bytes:
    """A text as it is."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")
