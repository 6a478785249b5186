"""
An event as readers of the log get it: the body in its envelope, where it stands.

The bodies are in `events.py` of each kind of stream. What only shows or passes on events needs none of them, and this module alone.
"""

from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from ..wire import InNotebook, Times, Value, iso


class Body(msgspec.Struct, frozen=True):
    """
    The body of an event, besides its envelope.

    On the log the fields that `CONTENT` names are content, which a redaction can take away; the others are structure, which
    stays. Of `changes` those names are content.
    """

    TOPIC: ClassVar[str]
    CONTENT: ClassVar[tuple[str, ...]] = ()


B = TypeVar("B", bound=Body)


class Event(msgspec.Struct, Generic[B], frozen=True):
    """
    One event with its envelope.

    `originator_id` and `originator_version` (the eventsourcing library's words) are the chat and 1, 2, 3, ... in it without
    a hole. `previous_hash` is the hash of the chat's previous event. `rest` counts the events of the same commit that
    follow, so that readers never show half of one. `redacted` are the slots whose content was taken away, as `RawEvent` counts them.
    """

    originator_id: str
    originator_version: int
    event_id: str
    occurred_at: int
    previous_hash: bytes
    body: B
    rest: int = 0
    actor: str | None = None
    correlation_id: str | None = None
    causation_id: str | None = None
    command_id: str | None = None
    redacted: tuple[int, ...] = ()


class Recorded(Value, InNotebook, frozen=True):
    """An event where it stands on the log: `position` counts over all chats, `hash` is what the next event names."""

    position: int
    event: Event[Any]
    hash: bytes

    @property
    def chat_id(self) -> str:
        """The chat it belongs to."""
        return self.event.originator_id

    @property
    def version(self) -> int:
        """1, 2, 3, ... in the chat, without a hole."""
        return self.event.originator_version

    @property
    def event_id(self) -> str:
        """A UUID."""
        return self.event.event_id

    @property
    def occurred_at(self) -> int:
        """Milliseconds since the epoch."""
        return self.event.occurred_at

    @property
    def actor(self) -> str | None:
        """The actor, as the writer named it."""
        return self.event.actor

    @property
    def topic(self) -> str:
        """The stable name of its kind and schema version, e.g. `chatledger.chat_created/2`."""
        body: Body = self.event.body
        return body.TOPIC

    @property
    def type(self) -> str:
        """The kind alone, e.g. `chat_created`."""
        return self.topic.removeprefix("chatledger.").rpartition("/")[0]

    @property
    def schema_version(self) -> int:
        """The version of the kind's schema."""
        return int(self.topic.rpartition("/")[2])

    @property
    def body(self) -> Body:
        """The body: one of the classes of `chatledger.domain.chat.events`."""
        body: Body = self.event.body
        return body

    def to_dict(self, *, times: Times = "ms") -> dict[str, Any]:
        """Return all of it as JSON values, what happened as `payload`; see `Value.to_dict`."""
        event = self.event
        return {
            "position": self.position,
            "event_id": event.event_id,
            "type": self.type,
            "schema_version": self.schema_version,
            "chat_id": event.originator_id,
            "version": event.originator_version,
            "occurred_at": iso(event.occurred_at) if times == "iso" else event.occurred_at,
            "actor": event.actor,
            "correlation_id": event.correlation_id,
            "causation_id": event.causation_id,
            "command_id": event.command_id,
            "hash": self.hash.hex(),
            "previous_hash": event.previous_hash.hex(),
            "payload": {
                field: msgspec.to_builtins(getattr(event.body, field)) for field in event.body.__struct_fields__
            },
        }
