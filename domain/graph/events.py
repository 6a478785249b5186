"""
The events of a stored state: its versions, and its end.

As with those of chats, a topic is stable, a new field goes last and has a default, and `tests/recorded/` holds bytes of every
version.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, ClassVar, Final, NamedTuple

import msgspec

from ..chat.events import Body, StreamDeleted
from ..content import Piece
from ..errors import InvalidValueError
from ..limits import check_id, check_ids

STATE_PREFIX: Final = "chatledger:state:"
"""The prefix of the streams of states. No chat id begins with this."""
ASSISTANT_STATES: Final = "langgraph-assistant:"
"""Prefix of the conversation of a state that keeps an assistant of the server: no clean-up removes it for its age."""
_KIND, _ITEM = "chat", "item"
MAX_LABELS: Final = 32
"""The most labels of the namespace of an item: it is listed under each of them."""
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
    msg = f"the id of a state must have the form {_FORM}, with % and : inside the parts as %25 and %3A"
    raise InvalidValueError(msg)


class ItemKey(NamedTuple):
    """The parts of an item's id: its owner, "" for nobody, its namespace, and its key in that."""

    user_id: str
    namespace: tuple[str, ...]
    key: str


def item_id(user_id: str, namespace: Sequence[str], key: str) -> str:
    """
    The id of the state that keeps an item: `item:<user id>:<label>/<label>:<key>`.

    `%`, `:` and `/` inside the parts are percent-encoded.

    Raises:
        InvalidValueError: The namespace has no label or more than 32, a label or the key is empty, or all together take more than
            an id may.
    """
    labels = check_namespace(namespace)
    check_id(user_id, "user_id", empty=True)
    check_id(key, "the key of an item")
    path = "/".join(map(_escaped_label, labels))
    return check_id(f"{_ITEM}:{_escaped(user_id)}:{path}:{_escaped(key)}", "namespace and key of an item together")


def check_namespace(namespace: Any, *, empty: bool = False) -> tuple[str, ...]:
    """Return the namespace of an item: 1 to 32 labels (0 with `empty`), none of them empty."""
    if isinstance(namespace, str) or not isinstance(namespace, Sequence):
        msg = f"a namespace must be a tuple of labels, such as ('memories', 'ada'), not {namespace!r}"
        raise InvalidValueError(msg)
    labels = check_ids(namespace, "a namespace")
    if not (labels or empty) or len(labels) > MAX_LABELS:
        msg = f"a namespace must have 1 to {MAX_LABELS} labels, not {len(labels)}"
        raise InvalidValueError(msg)
    return labels


def parse_item_id(state_id: str) -> ItemKey | None:
    """Return the parts of the id of a state that keeps an item; None for other states."""
    kind, *parts = state_id.split(":")
    if kind != _ITEM or len(parts) != 3:
        return None
    user_id, path, key = parts
    item = ItemKey(_unescaped(user_id), tuple(map(_unescaped, path.split("/"))), _unescaped(key))
    return item if all((*item.namespace, item.key)) and item_id(*item) == state_id else None


def owner_of_state(state_id: Any) -> str:
    """
    Return the user whom a state belongs to, which its id names: of a conversation's state or of an item.

    Raises:
        InvalidValueError: It is missing, or no id of a state.
    """
    item = parse_item_id(state_id) if isinstance(state_id, str) else None
    return parse_state_id(state_id).user_id if item is None else item.user_id


def shown_id(state_id: str) -> str:
    """The id as logs and errors may show it: without the user."""
    item = parse_item_id(state_id)
    if item is not None:
        return f"{_ITEM}:[REDACTED]:{'/'.join(item.namespace)}:{item.key}"
    return f"{_KIND}:[REDACTED]:{state_id.rpartition(':')[2]}"


def state_stream(state_id: str) -> str:
    """The stream of a state."""
    return STATE_PREFIX + blake2b(state_id.encode(), digest_size=_STREAM_DIGEST_BYTES).hexdigest()


def _escaped(part: str) -> str:
    return part.replace("%", "%25").replace(":", "%3A")


def _escaped_label(part: str) -> str:
    return _escaped(part).replace("/", "%2F")


def _unescaped(part: str) -> str:
    return part.replace("%2F", "/").replace("%3A", ":").replace("%25", "%")


class FieldRef(msgspec.Struct, frozen=True, array_like=True):
    """The value of a field: the digest of its piece, and how many bytes the value takes encoded."""

    digest: bytes
    size_bytes: int


class StateContentPut(Body, frozen=True):
    """Pieces of a state that do not fit into the event which needs them."""

    TOPIC: ClassVar[str] = "chatledger.state_content_put/2"
    CONTENT: ClassVar[tuple[str, ...]] = ("pieces",)
    pieces: tuple[Piece, ...]


class StatePut(Body, frozen=True):
    """
    A version of a state: all of its fields by digest, and the pieces that no version before had.

    `parent` is the version that it was made from, `node` what wrote it. From `expires_at` on, in ms, the state counts as absent.
    `stored_at` is given by imports: when it was stored where it comes from, in ms; the time of the event otherwise.
    """

    TOPIC: ClassVar[str] = "chatledger.state_put/2"
    CONTENT: ClassVar[tuple[str, ...]] = ("state_id", "fields", "pieces")
    state_id: str
    version: int
    fields: dict[str, FieldRef]
    pieces: tuple[Piece, ...]
    node: str | None = None
    parent: int | None = None
    is_final: bool = False
    expires_at: int | None = None
    stored_at: int | None = None


class StateExpirySet(Body, frozen=True):
    """A new end of a state, in ms: from `expires_at` on it counts as absent. None: it does not expire."""

    TOPIC: ClassVar[str] = "chatledger.state_expiry_set/2"
    expires_at: int | None


class StateDeleted(StreamDeleted, frozen=True):
    """The tombstone of a state. `reason` is `deleted`, `expired`, `too_old` or `chat_deleted`."""

    TOPIC: ClassVar[str] = "chatledger.state_deleted/2"
    version_count: int
    reason: str


STATE_BODIES: tuple[type[Body], ...] = (StateContentPut, StatePut, StateExpirySet, StateDeleted)
