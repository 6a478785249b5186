"""
The events of a stored state: its versions, and its end.

As with those of chats, a topic is stable, a new field goes last and has a default, and `tests/recorded/` holds bytes of every
version.
"""

from typing import ClassVar

import msgspec

from ..agents.content import Piece
from ..events import Body, StreamDeleted


class FieldRef(msgspec.Struct, frozen=True, array_like=True):
    """The value of a field: the digest of its piece, and how many bytes the value takes encoded."""

    digest: bytes
    size_bytes: int


class StateContentPut(Body, frozen=True):
    """Pieces of a state that do not fit into the event which needs them."""

    TOPIC: ClassVar[str] = "chatledger.state_content_put/1"
    pieces: tuple[Piece, ...]


class StatePut(Body, frozen=True):
    """
    A version of a state: all of its fields by digest, and the pieces that no version before had.

    `parent` is the version that it was made from, `node` what wrote it. From `expires_at` on, in ms, the state counts as absent.
    """

    TOPIC: ClassVar[str] = "chatledger.state_put/1"
    state_id: str
    version: int
    fields: dict[str, FieldRef]
    pieces: tuple[Piece, ...]
    node: str | None = None
    parent: int | None = None
    is_final: bool = False
    expires_at: int | None = None


class StateDeleted(StreamDeleted, frozen=True):
    """The tombstone of a state. `reason` is `deleted`, `expired`, `too_old` or `chat_deleted`."""

    TOPIC: ClassVar[str] = "chatledger.state_deleted/1"
    version_count: int
    reason: str


STATE_BODIES: tuple[type[Body], ...] = (StateContentPut, StatePut, StateDeleted)
