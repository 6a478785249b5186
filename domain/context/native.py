"""
Native messages: a message of an agent framework kept as it was given, beside the UIMessage form that all others read.

    {"id": "trip:1", "role": "user", "parts": [{"type": "text", "text": "Riga?"}],
     "native": {"form": "pydantic-ai", "value": {...}, "of": "5d41..."}}

The framework that wrote a message gets it back as it was; others get what its parts say. Whoever changes the parts of such a
message need not know of the rest: a digest tells that the native message is not what the parts say any more.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final

import msgspec

from ..errors import InvalidValueError
from ..limits import json_copy
from ..values import UI, Message, NewMessage
from .messages import object_at

NATIVE: Final = "native"
"""The key of the native message in the data of a message."""
_DIGEST_BYTES: Final = 16
_encode: Final = msgspec.json.Encoder(order="deterministic").encode


def native_message(
    form: str,
    value: Any,
    *,
    id: str | None,  # noqa: A002 - the field's name everywhere else
    role: str,
    parts: Sequence[Mapping[str, Any]],
    parent_id: str | None = None,
    created_at: int | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> NewMessage:
    """
    Return a message to store: a framework's own, and what it says as a UIMessage.

    Args:
        form: The name of the framework's form, such as `pydantic-ai`.
        value: The message as JSON, which `native_of` gives back.
        id: The id of the message. One that is made from the framework's own id makes a repeated write one write.
        role: `user`, `assistant`, `system`, or another speaker.
        parts: Parts of a UIMessage, such as `{"type": "text", "text": "..."}`: what is searched, drawn and read by others.
        parent_id: The message that it follows, for `Ledger.add_messages`.
        created_at: When it was made, in ms; now when None.
        metadata: Metadata of the UIMessage.

    Raises:
        InvalidValueError: Something is not JSON.
    """
    own_parts = json_copy([dict(part) for part in parts], "parts")
    data: dict[str, Any] = {} if id is None else {"id": id}
    data |= {"role": role, "parts": own_parts}
    if metadata:
        data["metadata"] = json_copy(dict(metadata), "metadata")
    data[NATIVE] = {"form": form, "value": json_copy(value, "a native message"), "of": _digest(role, own_parts)}
    return NewMessage(role, data, UI, id=id, parent_id=parent_id, created_at=created_at)


def native_of(message: Message, form: str) -> Any | None:
    """
    Return the native message that a message was stored with; None when it has none of that form, or its parts were changed since.

    Args:
        message: A stored message, whose data are not changed.
        form: The name of the form.
    """
    if message.form == form:
        return message.data  # imported from an export that was written before messages had forms
    native, data = object_at(message.data, NATIVE), object_at(message.data)
    if native.get("form") != form:
        return None
    if native.get("of") != _digest(data.get("role"), data.get("parts")):
        return None
    return native.get("value")


def _digest(role: Any, parts: Any) -> str:
    try:
        encoded = _encode([role, parts])
    except (TypeError, msgspec.MsgspecError) as error:
        msg = f"the parts of a message must be JSON: {error}"
        raise InvalidValueError(msg) from error
    return blake2b(encoded, digest_size=_DIGEST_BYTES).hexdigest()
