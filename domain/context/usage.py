"""Adding up token counts."""

from collections.abc import Mapping
from typing import Any, Final, cast

from ..errors import InvalidValueError
from ..values import Chat

RAW: Final = "raw"
"""The field that holds what the provider said, word for word: the last one replaces those before."""


def usage_of(chat: Chat) -> Mapping[str, Any] | None:
    """The token counts of a chat, from its metadata."""
    usage = (chat.metadata or {}).get("usage")
    return cast("Mapping[str, Any]", usage) if isinstance(usage, Mapping) else None


def add_usage(total: Mapping[str, Any] | None, usage: Mapping[str, Any]) -> dict[str, Any]:
    """
    The sum of token counts, field by field and also in nested objects.

    A field that neither has stays absent; None counts as absent. `raw` is the last given.

    Raises:
        InvalidValueError: A count is no number of at least 0.
    """
    if not isinstance(usage, Mapping):
        msg = f"usage must be an object of token counts, not {type(usage).__name__}"
        raise InvalidValueError(msg)
    summed = dict(total or {})
    for name, count in usage.items():
        if count is None:
            continue
        before = summed.get(name)
        if name == RAW:
            summed[name] = count
        elif isinstance(count, Mapping):
            nested = cast("Mapping[str, Any]", before) if isinstance(before, Mapping) else None
            summed[name] = add_usage(nested, cast("Mapping[str, Any]", count))
        elif isinstance(count, bool) or not isinstance(count, int | float) or not count >= 0:
            msg = f"the token count {name!r} must be a number of at least 0, not {type(count).__name__}"
            raise InvalidValueError(msg)
        else:
            known = before if isinstance(before, int | float) and not isinstance(before, bool) else 0
            summed[name] = known + count
    return summed
