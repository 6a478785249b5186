# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownParameterType=false, reportUnknownArgumentType=false
# strands-agents is not among the development dependencies, with some of which it conflicts.
"""
Messages of Strands as messages of a ledger, and back; and the history of an agent, the active branch of its chat, by the indexes that
Strands counts messages by.

A message that Strands wrote says its index, which mostly is its depth in the chain. Messages of others count as many as they become.
"""

from dataclasses import fields
from datetime import datetime
from hashlib import blake2b
from typing import Any, Final

from strands.types.session import SessionMessage, decode_bytes_values

from chatledger.domain.forms.plain import object_at
from chatledger.domain.forms.reading import name_of
from chatledger.domain.forms.strands import NAME, index_of
from chatledger.domain.limits import same_json
from chatledger.domain.packing import ordered_json
from chatledger.domain.values import Message, NewMessage

from ....ledger.history import History, Told
from ..access import utc

_FIELDS: Final = frozenset(field.name for field in fields(SessionMessage))


def draft_of(stored: SessionMessage, chat_id: str) -> NewMessage:
    """Return a message as it is to be stored. Raises `InvalidValueError` for what JSON does not know."""
    # Its id is made from its index and its tracking id, so that the same call writes the same message.
    value = stored.to_dict()
    tracked = object_at(value, "message").get("tracking_id") or _digest(value.get("message"))
    return _draft(value, f"{chat_id}:{stored.message_id}:{tracked}")


def replacement_of(stored: SessionMessage, original: Message) -> NewMessage:
    """Return the message that takes the place of a stored one: it says what `stored` says now."""
    value = stored.to_dict()
    # Of a redacted message it has the new content only; the old one stays with the original.
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
        value["created_at"] = value["updated_at"] = utc(message.created_at).isoformat()
    if "message" not in value:
        value["message"] = base.data["message"]
    return SessionMessage(**decode_bytes_values(value))


class AgentHistory:
    """A history of an agent, as it is at one moment."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._length: Final = history.branch.message_count

    @property
    def count(self) -> int:
        """The index of the next message. Costs nothing more in a long history, and what others wrote since Strands did."""
        told = self._read(self._history, 1, self._length)
        return told[-1].value["message_id"] + 1 if told else 0

    def at(self, index: int) -> Message | None:
        """Return the message that Strands wrote at an index, as it was written first; None where there is none."""
        message = self._history.at(index)
        if message is not None and index_in(message) == index:  # depths and indexes mostly are the same
            return message
        return next((message for message in self._history.chain() if index_in(message) == index), None)

    def page(self, limit: int | None, offset: int) -> list[SessionMessage]:
        """Return messages from an index on, at most `limit`."""
        if limit == 0:
            return []
        history, wanted = self._history, max(self._length - offset, 1)
        end = self._length if limit is None else offset + limit
        last = history.at(end - 1)
        if end < self._length and last is not None and index_in(last) == end - 1:
            # The last one of the page, where depths and indexes are the same.
            history, wanted = history.up_to(end - 1), min(end, limit or end)
        told = [message for message in self._read(history, wanted, offset) if message.value["message_id"] >= offset]
        return [session_message(message) for message in told[:limit]]

    def _read(self, history: History, count: int, index: int) -> list[Told]:
        """
        Return a branch from a message on that is at an index or before it.

        The first one has to be one that Strands wrote: of others the index is known only if all before them are read.
        """
        limit = count
        while limit < history.branch.message_count:
            told = history.told(NAME, limit)
            first = index_in(told[0].origin[0].message) if told else None
            if first is not None and first <= index:
                return told
            limit *= 2
        return history.told(NAME)


def _draft(value: dict[str, Any], message_id: str, parent_id: str | None = None) -> NewMessage:
    try:
        created_at = round(datetime.fromisoformat(value["created_at"]).timestamp() * 1000)
    except ValueError:
        created_at = None
    return NewMessage(name_of(value, NAME), value, form=NAME, id=message_id, parent_id=parent_id, created_at=created_at)


def _digest(value: Any) -> str:
    return blake2b(ordered_json(value), digest_size=8).hexdigest()
