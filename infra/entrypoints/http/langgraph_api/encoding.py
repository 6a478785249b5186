"""Values of graphs as JSON, in the forms that LangGraph's clients read."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, Protocol, cast, runtime_checkable

import msgspec
from langgraph.types import Interrupt

_MAX_DEPTH: Final = 200


@runtime_checkable
class _Model(Protocol):
    """A model of Pydantic, such as a message of LangChain."""

    def model_dump(self) -> dict[str, Any]: ...


def encode(value: Any) -> bytes:
    """
    Encode an answer. What JSON has no form for is sent as its text.

    Messages and other models are objects of their fields, interrupts of `id` and `value`, errors their `repr`.
    """
    try:
        return msgspec.json.encode(value, enc_hook=_plain)
    except (TypeError, ValueError, RecursionError):
        # Such as keys that are no text, or text with a lone surrogate. Only then, as it walks the whole value in Python.
        return msgspec.json.encode(_cleaned(value), enc_hook=_plain)


def to_plain(value: Any) -> Any:
    """Return a value of a graph as JSON has it: what a client reads of it."""
    return msgspec.json.decode(encode(value))


def interrupt_of(interrupt: Any) -> dict[str, Any]:
    """Return an interrupt as clients read it: `id`, `value`, and `response_schema` where the graph gave one."""
    asking: Any = interrupt
    if not isinstance(interrupt, Interrupt):
        return {"id": None, "value": asking}
    shown: dict[str, Any] = {"id": asking.id, "value": asking.value}
    return shown if asking.response_schema is None else shown | {"response_schema": asking.response_schema}


def time_of(moment_ms: int) -> str:
    """Return a time in ISO 8601, in UTC."""
    return datetime.fromtimestamp(moment_ms / 1000, UTC).isoformat(timespec="microseconds")


def _plain(value: Any) -> Any:
    untyped: Any = value
    if isinstance(value, Interrupt):
        return interrupt_of(value)
    if isinstance(value, type):
        return str(untyped)
    if isinstance(value, _Model):
        return value.model_dump()
    if isinstance(value, BaseException):
        return repr(value)
    tolist = getattr(value, "tolist", None)  # numbers and arrays of NumPy
    return tolist() if callable(tolist) else str(value)


def _cleaned(value: Any, depth: int = 0) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if depth > _MAX_DEPTH:
        return repr(type(cast("object", value)))
    if isinstance(value, _Model):
        value = value.model_dump()
    if isinstance(value, Mapping):
        entries = cast("Mapping[Any, Any]", value).items()
        return {str(_cleaned(str(key))): _cleaned(inner, depth + 1) for key, inner in entries}
    if isinstance(value, list | tuple | set | frozenset):
        return [_cleaned(inner, depth + 1) for inner in cast("list[Any]", value)]
    return value
