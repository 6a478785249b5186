"""
Keys of versioned values, and the families that they are of: threads of agents, states of graphs, and items.

A versioned value is one stream of the log. The id of the stream of a state or an item is a digest of its key, which names a user; the id of
that of a thread has the thread's.

Namespaces: whose checkpoints those of a thread are.

An assistant has the namespace `assistant:<id>`, and what it calls has namespaces below it, after `|`. Storage takes any text
as a namespace and reads nothing out of it.
"""

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, Final, Literal, NamedTuple

import msgspec

from ..errors import InvalidValueError, NamespaceError
from ..limits import check_id, check_ids

ASSISTANT: Final = "assistant:"
_SEPARATOR: Final = "|"


def assistant_namespace(assistant_id: str, *parts: str) -> str:
    """
    The namespace of an assistant, or of a part below it: `assistant:<id>|<part>|<part>`.

    Raises:
        NamespaceError: The id or a part is empty, or contains `|`.
    """
    for part in (assistant_id, *parts):
        if not isinstance(part, str) or not part or _SEPARATOR in part:
            msg = f"assistant namespace parts must be text that is not empty and has no {_SEPARATOR!r}, not {part!r}"
            raise NamespaceError(msg)
    return check_id(_SEPARATOR.join((ASSISTANT + assistant_id, *parts)), "namespace")


def assistant_of(namespace: str) -> str | None:
    """
    The assistant that a namespace belongs to; None when it is no assistant's.

    Raises:
        NamespaceError: It begins as an assistant's, but has an empty part.
    """
    if not namespace.startswith(ASSISTANT):
        return None
    assistant, *parts = namespace.removeprefix(ASSISTANT).split(_SEPARATOR)
    if not assistant or not all(parts):
        msg = f"namespace {namespace!r} has an empty part; the form is assistant:<id>|<part>|<part>"
        raise NamespaceError(msg)
    return assistant


def root_of(namespace: str) -> str:
    """The namespace of the assistant that it belongs to; `""` when it is none's."""
    return namespace.partition(_SEPARATOR)[0] if namespace.startswith(ASSISTANT) else ""


def is_within(namespace: str, root: str) -> bool:
    """Whether a namespace is `root` or below it."""
    return namespace == root or namespace.startswith(root + _SEPARATOR)


VERSIONED_PREFIX: Final = "chatledger:v:"
"""The prefix of the streams of versioned values. No chat id begins with this."""
ASSISTANT_STATES: Final = "langgraph-assistant:"
"""Prefix of the conversation of a state that keeps an assistant of the server: no clean-up removes it for its age."""
MAX_LABELS: Final = 32
"""The most labels of the namespace of an item: it is listed under each of them."""
_STATE, _ITEM = "chat", "item"
_FORM: Final = "chat:<user id>:<conversation id>"
_STREAM_DIGEST_BYTES: Final = 24


FamilyName = Literal["thread", "state", "item"]


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """
    What differs between threads, states and items, as far as the log knows it. Nothing else asks which of them a value is.

    Args:
        name: What one of them is called in errors.
        prefix: How the ids of their streams begin.
        stream_of: Returns the id of the stream with a key.
        owner_of: Returns the owner that a key names; None where keys name none, and the beginning of the stream does.
        shown: Returns a key as logs and errors may show it: without the user.
        key_of: Returns the key that the id of a stream has in it; None where only the stream says it.
        is_numbered: Whether a value has one line of versions, whose ids are 1, 2, 3, ... and nothing waits to be written.
    """

    name: FamilyName
    prefix: str
    stream_of: Callable[[str], str]
    owner_of: Callable[[str], str | None]
    shown: Callable[[str], str]
    key_of: Callable[[str], str | None]
    is_numbered: bool = True


class StateKey(NamedTuple):
    """The parts of a state's id."""

    user_id: str
    conversation_id: str


class ItemKey(NamedTuple):
    """The parts of an item's id: its owner, "" for nobody, its namespace, and its key in that."""

    user_id: str
    namespace: tuple[str, ...]
    key: str


def thread_stream(thread_id: str) -> str:
    return THREAD_PREFIX + check_id(thread_id, "thread_id")


def check_chat_id(chat_id: str) -> str:
    """An id that a new chat may have."""
    check_id(chat_id, "chat_id")
    if chat_id.startswith(VERSIONED_PREFIX):
        msg = f"chat_id must not begin with {VERSIONED_PREFIX!r}, which is kept for threads, states and items"
        raise InvalidValueError(msg)
    return chat_id


def state_id(user_id: str, conversation_id: str) -> str:
    """
    The id of the state that a user has in a conversation: `chat:<user id>:<conversation id>`.

    `%` and `:` inside the parts are percent-encoded, so that two pairs never share an id.

    Raises:
        InvalidValueError: A part is empty or breaks another rule of ids.
    """
    parts = check_id(user_id, "user_id"), check_id(conversation_id, "conversation_id")
    return check_id(":".join((_STATE, *map(_escaped, parts))), "the id of a state")


def parse_state_id(state_id: Any) -> StateKey:
    """
    The user and the conversation of an id, as they were given to `state_id`.

    Raises:
        InvalidValueError: It is missing, or no id of a state.
    """
    check_id(state_id, "the id of a state")
    kind, *parts = state_id.split(":")
    if kind == _STATE and len(parts) == 2 and all(parts):
        key = StateKey(*map(_unescaped, parts))
        if all(key) and ":".join((_STATE, *map(_escaped, key))) == state_id:
            return key
    msg = f"the id of a state must have the form {_FORM}, with % and : inside the parts as %25 and %3A"
    raise InvalidValueError(msg)


def item_id(user_id: str, namespace: Sequence[str], key: str) -> str:
    """
    The id of an item: `item:<user id>:<label>/<label>:<key>`.

    `%`, `:` and `/` inside the parts are percent-encoded.

    Raises:
        InvalidValueError: The namespace has no label or more than 32, a label or the key is empty, or all together take more than
            an id may.
    """
    labels = check_labels(namespace)
    check_id(user_id, "user_id", empty=True)
    check_id(key, "the key of an item")
    return check_id(_joined(ItemKey(user_id, labels, key)), "namespace and key of an item together")


def _joined(item: ItemKey) -> str:
    return f"{_ITEM}:{_escaped(item.user_id)}:{'/'.join(map(_escaped_label, item.namespace))}:{_escaped(item.key)}"


def check_labels(namespace: Any, *, empty: bool = False) -> tuple[str, ...]:
    """Return the namespace of an item: 1 to 32 labels (0 with `empty`), none of them empty."""
    if isinstance(namespace, str) or not isinstance(namespace, Sequence):
        msg = f"a namespace must be a tuple of labels, such as ('memories', 'ada'), not {namespace!r}"
        raise InvalidValueError(msg)
    labels = check_ids(namespace, "a namespace")
    if not (labels or empty) or len(labels) > MAX_LABELS:
        msg = f"a namespace must have 1 to {MAX_LABELS} labels, not {len(labels)}"
        raise InvalidValueError(msg)
    return labels


def parse_item_id(some_id: str) -> ItemKey | None:
    """Return the parts of the id of an item, which keeps the rules of ids; None for other ids."""
    kind, *parts = some_id.split(":")
    if kind != _ITEM or len(parts) != 3:
        return None
    user_id, path, key = parts
    item = ItemKey(_unescaped(user_id), tuple(map(_unescaped, path.split("/"))), _unescaped(key))
    is_item = item.key and all(item.namespace) and len(item.namespace) <= MAX_LABELS
    # What is escaped in another way would be a second id of the same item.
    return item if is_item and _joined(item) == some_id else None


def family_of_id(some_id: Any) -> Family:
    """
    Return the family of the id of a state or an item.

    Raises:
        InvalidValueError: It is missing, or an id of neither.
    """
    if parse_item_id(check_id(some_id, "the id of a state")) is not None:
        return ITEM
    parse_state_id(some_id)
    return STATE


def owner_of_state(some_id: Any) -> str:
    """Return the user whom a state or an item belongs to. Raises `InvalidValueError` as `family_of_id` does."""
    return family_of_id(some_id).owner_of(some_id) or ""


def shown_id(some_id: str) -> str:
    """The id of a state or an item as logs and errors may show it: without the user."""
    item = parse_item_id(some_id)
    if item is not None:
        return f"{_ITEM}:[REDACTED]:{'/'.join(item.namespace)}:{item.key}"
    return f"{_STATE}:[REDACTED]:{some_id.rpartition(':')[2]}"


def _digested(prefix: str) -> Callable[[str], str]:
    # The id of a stream stands in more places than its content, so it must not name the user.
    return lambda key: prefix + blake2b(key.encode(), digest_size=_STREAM_DIGEST_BYTES).hexdigest()


def _owner_of_item(key: str) -> str:
    item = parse_item_id(key)
    if item is None:
        msg = f"{key!r} is no id of an item"
        raise InvalidValueError(msg)
    return item.user_id


def _escaped(part: str) -> str:
    return part.replace("%", "%25").replace(":", "%3A")


def _escaped_label(part: str) -> str:
    return _escaped(part).replace("/", "%2F")


def _unescaped(part: str) -> str:
    return part.replace("%2F", "/").replace("%3A", ":").replace("%25", "%")


THREAD_PREFIX: Final = f"{VERSIONED_PREFIX}t:"
THREAD: Final = Family(
    name="thread",
    prefix=THREAD_PREFIX,
    stream_of=thread_stream,
    owner_of=lambda _key: None,
    shown=lambda key: key,
    key_of=lambda stream: stream.removeprefix(THREAD_PREFIX),
    is_numbered=False,
)
STATE: Final = Family(
    name="state",
    prefix=f"{VERSIONED_PREFIX}s:",
    stream_of=_digested(f"{VERSIONED_PREFIX}s:"),
    owner_of=lambda key: parse_state_id(key).user_id,
    shown=shown_id,
    key_of=lambda _stream: None,
)
ITEM: Final = Family(
    name="item",
    prefix=f"{VERSIONED_PREFIX}i:",
    stream_of=_digested(f"{VERSIONED_PREFIX}i:"),
    owner_of=_owner_of_item,
    shown=shown_id,
    key_of=lambda _stream: None,
)
FAMILIES: Final = (THREAD, STATE, ITEM)


def family_of_stream(stream_id: str) -> Family:
    """Return the family of the stream of a versioned value."""
    return next(family for family in FAMILIES if stream_id.startswith(family.prefix))


MAX_CHECKPOINT_ID_BYTES: Final = 200
"""Ids of versions are part of keys, in whose order they are listed."""


def check_namespace(namespace: str) -> str:
    """A line, such as a namespace of LangGraph: any text of up to 2,048 bytes, empty too."""
    return check_id(namespace, "checkpoint_ns", empty=True)


def check_checkpoint_id(checkpoint_id: str) -> str:
    check_id(checkpoint_id, "checkpoint_id")
    size = len(checkpoint_id.encode())
    if size > MAX_CHECKPOINT_ID_BYTES:
        msg = f"checkpoint_id takes {size:,} bytes, at most {MAX_CHECKPOINT_ID_BYTES} are allowed"
        raise InvalidValueError(msg)
    return checkpoint_id
