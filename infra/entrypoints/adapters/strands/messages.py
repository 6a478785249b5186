# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownParameterType=false, reportUnknownArgumentType=false
# strands-agents is not among the development dependencies, with some of which it conflicts.
"""Messages of Strands as messages of a ledger, and back."""

from dataclasses import fields
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Final

from strands.types.session import SessionMessage, decode_bytes_values

from chatledger.domain.forms.plain import object_at
from chatledger.domain.forms.reading import name_of
from chatledger.domain.forms.strands import NAME, index_of
from chatledger.domain.limits import same_json
from chatledger.domain.packing import ordered_json
from chatledger.domain.values import Message, NewMessage

from ....ledger.history import Told

_FIELDS: Final = frozenset(field.name for field in fields(SessionMessage))


def draft_of(stored: SessionMessage, chat_id: str) -> NewMessage:
    """
    Return a message as it is to be stored.

    Its id is made from its index and its tracking id, so that the same call writes the same message.

    Raises:
        InvalidValueError: It has something that JSON does not know.
    """
    value = stored.to_dict()
    tracked = object_at(value, "message").get("tracking_id") or _digest(value.get("message"))
    return _draft(value, f"{chat_id}:{stored.message_id}:{tracked}")


def replacement_of(stored: SessionMessage, original: Message) -> NewMessage:
    """
    Return the message that takes the place of a stored one: it says what `stored` says now.

    Of a redacted message it has the new content only; the old one stays with the original.
    """
    value = stored.to_dict()
    if value.get("redact_message") is not None and same_json(value["message"], original.data.get("message")):
        del value["message"]
    told = _digest({key: value.get(key) for key in ("message", "redact_message")})
    return _draft(value, f"{original.id}:{told}", original.parent_id)


def is_same(message: Message, stored: SessionMessage) -> bool:
    """Whether a message that Strands wrote is this one, whenever it was made."""
    return same_json(message.data.get("message"), stored.to_dict()["message"])


def index_in(message: Message) -> int | None:
    """Return the index of a message that Strands wrote; None of any other."""
    return index_of(message.data) if message.form == NAME else None


def session_message(told: Told) -> SessionMessage:
    """
    Return a message of Strands as it was stored; one that took the place of another with what it does not say itself.

    As `SessionMessage.from_dict`, which looks at the class anew for each key: most of the time of reading a history.
    """
    base, message = told.origin[0]
    value: dict[str, Any] = {key: field for key, field in told.value.items() if key in _FIELDS}
    if "created_at" not in value:  # it was written by somebody else
        value["created_at"] = value["updated_at"] = iso_time(message.created_at)
    if "message" not in value:
        value["message"] = base.data["message"]
    return SessionMessage(**decode_bytes_values(value))


def iso_time(at_ms: int) -> str:
    """Return a time in ms as Strands writes it: `2026-11-23T16:00:00+00:00`."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat()


def _draft(value: dict[str, Any], message_id: str, parent_id: str | None = None) -> NewMessage:
    try:
        created_at = round(datetime.fromisoformat(value["created_at"]).timestamp() * 1000)
    except ValueError:
        created_at = None
    return NewMessage(name_of(value, NAME), value, form=NAME, id=message_id, parent_id=parent_id, created_at=created_at)


def _digest(value: Any) -> str:
    return blake2b(ordered_json(value), digest_size=8).hexdigest()
