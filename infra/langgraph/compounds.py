"""
Values of LangGraph that carry content of the user's: taken apart, so that what they carry is stored once.

A packet to a node repeats the state, and a snapshot of a delta channel the whole list.
"""

from typing import Any, Final, cast

from langgraph.checkpoint.serde.types import _DeltaSnapshot  # pyright: ignore[reportPrivateUsage]  # its only name

from chatledger.domain.errors import ConfigurationError, CorruptStateError

_SEND: Final = "langgraph.send/1"
_SNAPSHOT: Final = "langgraph.delta_snapshot/1"


def taken_apart(value: Any) -> tuple[str, list[Any]] | None:
    """The name of its form and what it carries; None for everything else."""
    kind = cast("type[Any]", type(value))
    if kind is _DeltaSnapshot:
        return _SNAPSHOT, [value.value]
    if kind.__name__ == "Send" and kind.__module__ == "langgraph.types" and getattr(value, "timeout", None) is None:
        return _SEND, [value.node, value.arg]
    return None


def put_together(form: str, parts: list[Any]) -> Any:
    """
    The value again.

    Raises:
        ConfigurationError: It needs a library that is not there.
        CorruptStateError: It is of a form that this version does not know.
    """
    if form == _SNAPSHOT and len(parts) == 1:
        return _DeltaSnapshot(parts[0])
    if form == _SEND and len(parts) == 2:
        try:
            from langgraph.types import Send
        except ImportError as error:
            msg = "this checkpoint sends packets to nodes, and reading them needs langgraph: pip install langgraph"
            raise ConfigurationError(msg) from error
        return Send(*parts)
    msg = f"a stored value has the form {form!r}, which this version does not know; a newer one wrote it"
    raise CorruptStateError(msg)
