"""
Messages in the widely used UI-message shape, as fragments.

    {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "Plan a weekend in Riga"}]}

Its text parts are what a reader reads; other parts (tool calls, reasoning, files, data) and `metadata` are kept as given.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

import msgspec
from msgspec import UNSET, UnsetType

from ..errors import InvalidValueError
from ..forms.plain import object_at
from ..limits import check_id
from ..values import UI, Message, NewMessage
from .fragments import Codec, Fragment, Lazy, as_fragment, copied, stored_form

UIMessage = dict[str, Any]
"""An object with `id`, `role` and `parts`, and `metadata` if it has any."""

LAST_ASSISTANT: Final = "last-assistant"
ASSISTANT: Final = "assistant"
USER: Final = "user"


class StoredCodec(msgspec.Struct, frozen=True):
    """The data of a message as they are stored, the form they are in, and what is noted beside them."""

    data: Any
    form: str | UnsetType | None = UNSET
    notes: dict[str, Any] | None = None

    def encode(self) -> Any:
        return self.data

    def decode(self) -> Any:
        return self.data


def with_own_data(fragment: Fragment) -> Fragment:
    """The fragment with its own lists and objects, those of a stored message included; see `copied`."""
    own = copied(fragment)
    if not isinstance(own.codec, StoredCodec):
        return own
    codec = msgspec.structs.replace(own.codec, data=_json_copy(own.codec.data), notes=_json_copy(own.codec.notes))
    return msgspec.structs.replace(own, codec=codec)


def _json_copy(data: Any) -> Any:
    """A copy of lists and objects, of any depth and with cycles; what else there is, a save refuses or cannot change."""
    copies: dict[int, Any] = {}
    pending: list[Any] = []

    def copy(value: Any) -> Any:
        is_list = isinstance(value, list)
        if not is_list and not isinstance(value, dict):
            return value
        key = id(cast("Any", value))
        if key not in copies:
            copies[key] = [] if is_list else {}
            pending.append(value)
        return copies[key]

    whole = copy(data)
    while pending:
        source: Any = pending.pop()
        target: Any = copies[id(source)]
        if isinstance(target, list):
            cast("list[Any]", target).extend(map(copy, source))
        else:
            target.update((key, copy(item)) for key, item in source.items())
    return whole


_OBJECTS: Final = (dict, Mapping)
"""Nearly all are dicts, which is seen in a tenth of the time."""


def is_ui_message(value: Any) -> bool:
    """Whether this is an object with a text `role` and a list of `parts`."""
    if not isinstance(value, _OBJECTS):
        return False
    mapping = cast("Mapping[str, Any]", value)
    return isinstance(mapping.get("role"), str) and isinstance(mapping.get("parts"), list)


def ui_message(role: str, text: str, message_id: str) -> UIMessage:
    return {"id": message_id, "role": role, "parts": [{"type": "text", "text": text}]}


def message_fragment(
    name: str,
    codec: Codec,
    message_id: str,
    *,
    metadata: Mapping[str, Any] | None = None,
    has_new_id: bool = False,
) -> Fragment:
    """A fragment that is stored in the conversation under this name and id; `has_new_id` says that the id was made for it."""
    return Fragment(
        name,
        id=message_id if has_new_id else check_id(message_id, "message id"),
        type="message",
        persist=True,
        codec=codec,
        metadata=dict(metadata or {}),
        has_new_id=has_new_id,
    )


def from_ui_message(
    value: Any,
    message_id: str,
    *,
    role: str | None = None,
    notes: dict[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    has_new_id: bool = False,
) -> Fragment:
    """
    A fragment of a UIMessage, with copied parts, under `message_id`.

    Args:
        value: The message. Its own `id` gives way to `message_id`.
        message_id: The id of fragment and message.
        role: Replaces the role of the message; kept when None.
        notes: What to keep beside it.
        metadata: Of the fragment; see `attribution`.
        has_new_id: Whether the id was made for it.

    Raises:
        InvalidValueError: It is no UIMessage.
    """
    if not is_ui_message(value):
        msg = f"expected text or a UIMessage, an object with `role` and `parts`, not {type(value).__name__}; messages of other APIs go to `append` and `set` as they are"
        raise InvalidValueError(msg)
    mapping = cast("Mapping[str, Any]", value)
    name = mapping["role"] if role is None else role
    copied = {**mapping, "id": message_id, "role": name, "parts": _copied_parts(mapping["parts"])}
    codec = StoredCodec({"id": message_id, **copied}, UI, notes)
    return message_fragment(name, codec, message_id, metadata=metadata, has_new_id=has_new_id)


def last_assistant_message(content: str) -> Fragment:
    """
    Correct the most recent assistant message without knowing its id.

    A context engine resolves it: into the last pending assistant message, else the last stored one of the branch, else
    a new one. Correcting a stored message is an edit: each save of a correction makes a branch. Correcting a pending
    message replaces it, and saving equal content does nothing.
    """
    if not isinstance(content, str):
        msg = f"the content of last_assistant_message must be text, not {type(content).__name__}"
        raise InvalidValueError(msg)
    return Fragment(ASSISTANT, type="message", persist=True, lazy=Lazy(LAST_ASSISTANT, content))


def _copied_parts(parts: list[Any]) -> list[Any]:
    """The parts, copied; reasoning that repeats an earlier part, with the same item id of the provider and text, is dropped."""
    seen: set[tuple[str, str]] = set()
    copied: list[Any] = []
    for part in parts:
        item = _reasoning_item(part)
        if item is not None:
            if item in seen:
                continue
            seen.add(item)
        copied.append(dict(cast("Mapping[str, Any]", part)) if isinstance(part, Mapping) else part)
    return copied


def _reasoning_item(part: Any) -> tuple[str, str] | None:
    """The id that whichever provider gave a reasoning part, and its text: several paragraphs of one summary share the id."""
    fields = object_at(part)
    text = fields.get("text")
    if fields.get("type") != "reasoning" or not isinstance(text, str):
        return None
    items = (object_at(details).get("itemId") for details in object_at(fields, "providerMetadata").values())
    return next(((item, text) for item in items if isinstance(item, str)), None)


ATTRIBUTION: Final[tuple[str, ...]] = ("sender_id", "agent_id", "reply_to", "created_at")
"""The keys in a message fragment's metadata that say where it comes from; see `NewMessage`."""

_TYPE: Final = "type"
"""There too, of messages that are stored under another type than `message`."""


def attribution(**fields: Any) -> dict[str, Any]:
    """The metadata of a message fragment that say where it comes from; what is None is left out."""
    return {name: value for name, value in fields.items() if value is not None}


def draft_of(fragment: Fragment) -> NewMessage:
    """
    The message that a fragment is stored as.

    Raises:
        MissingCodecError: The fragment has no codec, or is still lazy.
    """
    fields: dict[str, Any] = {_TYPE: fragment.type}
    fields |= {name: fragment.metadata[name] for name in (*ATTRIBUTION, _TYPE) if name in fragment.metadata}
    codec = fragment.codec
    if (
        isinstance(codec, StoredCodec) and fragment.lazy is None
    ):  # the data are there, and no code of users is called for them
        return NewMessage(fragment.name, codec.data, codec.form, id=fragment.id, metadata=codec.notes, **fields)
    return NewMessage(fragment.name, stored_form(fragment), id=fragment.id, **fields)


def fragment_of(value: NewMessage | Message) -> Fragment:
    """The fragment of a message, with its id and where it comes from."""
    if value.id is None:
        msg = f"message {value.name!r} has no id; chatledger.user(text) makes messages that have one"
        raise InvalidValueError(msg)
    metadata = attribution(sender_id=value.sender_id, agent_id=value.agent_id, reply_to=value.reply_to)
    if value.type != "message":
        metadata[_TYPE] = value.type
    notes = value.metadata if isinstance(value, NewMessage) else value.notes
    codec = StoredCodec(value.shown if isinstance(value, Message) else value.data, value.form, notes)
    return message_fragment(value.name, codec, value.id, metadata=metadata)


def as_fragments(values: Iterable[Any]) -> list[Fragment]:
    """Fragments, mappings of their shape, and messages, as fragments."""
    return [fragment_of(value) if isinstance(value, NewMessage | Message) else as_fragment(value) for value in values]
