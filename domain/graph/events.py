"""
The events of a stored state: its versions, and its end.

As with those of chats, a topic is stable, a new field goes last and has a default, and `tests/recorded/` holds bytes of every
version.
"""

from hashlib import blake2b
from typing import Any, ClassVar, Final, NamedTuple

import msgspec

from ..chat.events import Body, StreamDeleted
from ..content import Piece
from ..errors import InvalidValueError
from ..limits import check_id

STATE_PREFIX: Final = "chatledger:state:"
"""The prefix of the streams of states. No chat id begins with this."""
ASSISTANT_STATES: Final = "langgraph-assistant:"
"""Prefix of the conversation of a state that keeps an assistant of the server: no clean-up removes it for its age."""
_KIND: Final = "chat"
_FORM: Final = "chat:<user id>:<conversation id>"
_STREAM_DIGEST_BYTES: Final = 24


class StateKey(NamedTuple):
    """The parts of a state's id."""

    user_id: str
    conversation_id: str


def state_id(user_id: str, conversation_id: str) -> str:
    """
    The id of the state that a user has in a conversation: `chat:<user id>:<conversation id>`.

    `%` and `:` inside the parts are percent-encoded, so that two pairs never share an id.

    Raises:
        InvalidValueError: A part is empty or breaks another rule of ids.
    """
    parts = check_id(user_id, "user_id"), check_id(conversation_id, "conversation_id")
    return check_id(":".join((_KIND, *map(_escaped, parts))), "the id of a state")


def parse_state_id(state_id: Any) -> StateKey:
    """
    The user and the conversation of an id, as they were given to `state_id`.

    Raises:
        InvalidValueError: It is missing, or no id of a state.
    """
    check_id(state_id, "the id of a state")
    kind, *parts = state_id.split(":")
    if kind == _KIND and len(parts) == 2 and all(parts):
        key = StateKey(*map(_unescaped, parts))
        if all(key) and ":".join((_KIND, *map(_escaped, key))) == state_id:
            return key
    msg = f"the id of a state must have the form {_FORM}, with % and : inside the parts as %25 and %3A; state_id() makes it"
    raise InvalidValueError(msg)


def shown_id(state_id: str) -> str:
    """The id as logs and errors may show it: without the user."""
    return f"{_KIND}:[REDACTED]:{state_id.rpartition(':')[2]}"


def state_stream(state_id: str) -> str:
    """The stream of a state."""
    return STATE_PREFIX + blake2b(state_id.encode(), digest_size=_STREAM_DIGEST_BYTES).hexdigest()


def _escaped(part: str) -> str:
    return part.replace("%", "%25").replace(":", "%3A")


def _unescaped(part: str) -> str:
    return part.replace("%3A", ":").replace("%25", "%")


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
    `stored_at` is given by imports: when it was stored where it comes from, in ms; the time of the event otherwise.
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
    stored_at: int | None = None


class StateDeleted(StreamDeleted, frozen=True):
    """The tombstone of a state. `reason` is `deleted`, `expired`, `too_old` or `chat_deleted`."""

    TOPIC: ClassVar[str] = "chatledger.state_deleted/1"
    version_count: int
    reason: str


STATE_BODIES: tuple[type[Body], ...] = (StateContentPut, StatePut, StateDeleted)
