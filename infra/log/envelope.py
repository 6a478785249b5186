"""Metadata of events: time, actor, correlation and causation, carried along threads and tasks as a context variable."""

import contextlib
import time
from collections.abc import Generator
from contextvars import ContextVar

import msgspec

from chatledger.domain.limits import check_id
from chatledger.domain.log.codec import Envelope


def clock_ms() -> int:
    """The time, in milliseconds since the Unix epoch."""
    return time.time_ns() // 1_000_000


_current: ContextVar[Envelope] = ContextVar("chatledger_context")
_NOBODY = Envelope()


def current() -> Envelope:
    """Return the envelope of operations begun here."""
    return _current.get(_NOBODY)


@contextlib.contextmanager
def acting(
    *,
    actor: str | None = None,
    correlation_id: str | None = None,
    causation_id: str | None = None,
    command_id: str | None = None,
) -> Generator[None]:
    """Let operations inside the `with` carry these; what is None stays as it is outside."""
    given = {
        "actor": actor,
        "correlation_id": correlation_id,
        "causation_id": causation_id,
        "command_id": command_id,
    }
    changed = {name: check_id(value, name) for name, value in given.items() if value is not None}
    token = _current.set(msgspec.structs.replace(current(), **changed))
    try:
        yield
    finally:
        _current.reset(token)


def acting_unless_named(actor: str) -> contextlib.AbstractContextManager[None]:
    """Let operations inside the `with` be by this actor, unless the context names one; `""` is nobody."""
    return contextlib.nullcontext() if current().actor is not None or not actor else acting(actor=actor)
