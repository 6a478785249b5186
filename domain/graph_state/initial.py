"""The state that a graph starts with."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, cast

from ..errors import InvalidValueError
from ..rules import check_count, check_id, check_optional_id, check_time, json_copy
from .schema import AgentState, Options, StateMeta
from .shape import check_object

DEFAULT_OPTIONS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "enhance_with_context": True,
        "max_context_items": 5,
        "include_source_info": True,
        "max_tokens": 1000,
        "temperature": 0.7,
    }
)
"""What holds unless an option is given."""


def initial_state(
    user_id: str, query: str, *, now: int, trace_id: str | None = None, options: Mapping[str, Any] | None = None
) -> AgentState:
    """
    The state before the first node: one message of the user, the options, and when it began.

    Args:
        user_id: The owner.
        query: What the user asks.
        now: Milliseconds since the epoch.
        trace_id: The caller's own id of the run.
        options: Values that replace those of `DEFAULT_OPTIONS`, one by one; further ones are kept.

    Raises:
        InvalidValueError: An id, the query, the time or an option breaks a rule.
    """
    check_id(user_id, "user_id")
    if not isinstance(query, str):
        msg = f"query must be text, not {type(query).__name__}"
        raise InvalidValueError(msg)
    started_at = check_time(now, "now")
    metadata: StateMeta = {"start_time": started_at, "node_timings": {}, "token_counts": {}}
    if check_optional_id(trace_id, "trace_id") is not None:
        metadata["trace_id"] = trace_id
    return {
        "user_id": user_id,
        "messages": [{"role": "user", "content": json_copy(query, "query"), "timestamp": started_at}],
        "options": _complete(options),
        "metadata": metadata,
    }


def _complete(given: Mapping[str, Any] | None) -> Options:
    options: dict[str, Any] = json_copy({**DEFAULT_OPTIONS, **check_object(given, "options")}, "options")
    for name in ("enhance_with_context", "include_source_info"):
        if not isinstance(options[name], bool):
            msg = f"options.{name} must be true or false, not {type(options[name]).__name__}"
            raise InvalidValueError(msg)
    for name in ("max_context_items", "max_tokens"):
        check_count(options[name], f"options.{name}")
    temperature = options["temperature"]
    if temperature is not None and (isinstance(temperature, bool) or not isinstance(temperature, int | float)):
        msg = f"options.temperature must be a number or None, not {type(temperature).__name__}"
        raise InvalidValueError(msg)
    check_optional_id(options.get("model_id"), "options.model_id")
    return cast("Options", options)
