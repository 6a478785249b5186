"""Metadata of events: time, actor, correlation and causation, carried along threads and tasks as a context variable."""

import contextlib
import os
from collections.abc import Generator, Iterator
from contextvars import ContextVar
from typing import Final

import msgspec

from chatledger.domain.limits import check_id
from chatledger.domain.log.codec import Envelope
from chatledger.domain.log.parts import SALT_BYTES

from ..clock import clock_ms

__all__ = ["acting", "acting_unless_named", "clock_ms", "current", "draw_salts"]

_DRAWN: Final = 256
"""The most salts that are drawn at once."""


def draw_salts() -> Iterator[bytes]:
    """Yield random salts for the slots of events: a few at first, as most commits have one message, and then ever more at once."""
    count = 4
    while True:
        drawn = os.urandom(SALT_BYTES * count)
        for start in range(0, len(drawn), SALT_BYTES):
            yield drawn[start : start + SALT_BYTES]
        count = min(4 * count, _DRAWN)


_current: ContextVar[Envelope] = ContextVar("chatledger_context")
_NOBODY = Envelope()


def current() -> Envelope:
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
    fields = {
        "actor": actor,
        "correlation_id": correlation_id,
        "causation_id": causation_id,
        "command_id": command_id,
    }
    changed = {name: check_id(value, name) for name, value in fields.items() if value is not None}
    token = _current.set(msgspec.structs.replace(current(), **changed))
    try:
        yield
    finally:
        _current.reset(token)


def acting_unless_named(actor: str) -> contextlib.AbstractContextManager[None]:
    """Let operations inside the `with` be by this actor, unless the context names one; `""` is nobody."""
    return contextlib.nullcontext() if current().actor is not None or not actor else acting(actor=actor)
