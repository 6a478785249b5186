"""Base class of custom projections, which turn events into rows."""

from abc import ABC, abstractmethod
from typing import Any, Final

from chatledger.domain.chat.events import Recorded
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.limits import check_count, check_id

from .rows import ProjectionRows

RESERVED_NAMES: Final = frozenset({"search"})
"""Parts of the index that are there without it."""
_MAX_NAME_BYTES: Final = 200


class Projection(ABC):
    """
    Answers of your own, kept up to date with the log: derive a class, and give it to `chatledger.open(projections=[...])`.

    `name` says what it is, `version` counts its meanings: raise it when `apply` changes, and the rows are built anew from the
    log.
    """

    name: str
    version: int = 1

    @abstractmethod
    def apply(self, rows: ProjectionRows, recorded: Recorded) -> None:
        """
        Take one event in. Called for every event, in the order of the log, and applied exactly once.

        What it does must follow from the rows and the event alone: no clock, no randomness, no ledger, nothing kept in the
        object. It may be called again for an event of which nothing was kept.

        Rows under a chat, `rows.of(recorded.chat_id)`, go when the chat is deleted, after the `ChatDeleted` event was applied.
        What is kept elsewhere of a chat has to be removed at that event: once a chat is deleted, a rebuild sees nothing of it
        but the tombstone.
        """


def check_projection(projection: Any) -> Projection:
    """The projection, if it can be used. Raises `InvalidValueError`."""
    if isinstance(projection, type) or not isinstance(projection, Projection):
        what = projection.__name__ if isinstance(projection, type) else type(projection).__name__
        msg = f"projections holds instances of classes derived from chatledger.Projection, not {what}"
        raise InvalidValueError(msg)
    kind = type(projection).__name__
    name = check_id(getattr(projection, "name", None), f"the name of projection {kind}")
    if len(name.encode()) > _MAX_NAME_BYTES or name in RESERVED_NAMES:
        msg = (
            f"the name of projection {kind} is taken by the index, or longer than {_MAX_NAME_BYTES} bytes: {name!r:.80}"
        )
        raise InvalidValueError(msg)
    check_count(projection.version, f"the version of projection {name!r}")
    return projection
