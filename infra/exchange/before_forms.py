"""
Messages of exports that were written before messages said their form, up to version 3.

What an API or a framework gave was a UIMessage there: a framework's message beside it under `native`, and what a UIMessage cannot
say below `chatledger` in its metadata.
"""

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Final

import msgspec

from chatledger.domain.chat.interchange import ImportedMessage
from chatledger.domain.context.messages import is_ui_message, object_at
from chatledger.domain.forms.detect import form_of
from chatledger.domain.values import OWNER

_NATIVE: Final = "native"
_METADATA: Final = "metadata"
_TEXT: Final = "claude-text"
_FORMS: Final[Mapping[str, str]] = {"claude": "claude-code", _TEXT: "claude-code"}
"""The names of forms that are called otherwise now. Of `claude-text` the value is JSON text."""

_DIGEST_BYTES: Final = 16
_encode: Final = msgspec.json.Encoder(order="deterministic").encode


def with_form(message: ImportedMessage) -> ImportedMessage:
    """Return the message with its form, as it would be stored today: a framework's message as it was given, notes beside the data."""
    data = message.data
    if not is_ui_message(data):
        return msgspec.structs.replace(message, form=form_of(data))
    native, details = object_at(data, _NATIVE), object_at(data, _METADATA, OWNER)
    notes = {OWNER: dict(details)} if details else None
    name = native.get("form")
    # A digest said which parts the native message is of: what somebody changed since is what they say.
    metadata = {key: value for key, value in object_at(data, _METADATA).items() if key != OWNER}
    parts = [data["role"], data["parts"]]
    if isinstance(name, str) and native.get("of") == blake2b(_encode(parts), digest_size=_DIGEST_BYTES).hexdigest():
        value = json.loads(native["value"]) if name == _TEXT else native.get("value")
        all_notes = {**metadata, **(notes or {})} or None
        return msgspec.structs.replace(message, data=value, form=_FORMS.get(name, name), notes=all_notes)
    rest = {key: value for key, value in data.items() if key not in {_NATIVE, _METADATA}}
    if data["role"] == "tool" and isinstance(call_id := details.get("tool_call_id"), str):
        text = "\n".join(part["text"] for part in data["parts"] if object_at(part).get("type") == "text")
        answer = {"role": "tool", "tool_call_id": call_id, "content": text}
        return msgspec.structs.replace(message, data=answer, form="openai", notes=notes)
    rest |= {_METADATA: metadata} if metadata else {}
    return msgspec.structs.replace(message, data=rest, form="ui", notes=notes)
