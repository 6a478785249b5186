"""The events of a chat that are about runs, and about messages after they were written."""

from typing import Any, ClassVar

from ..events import Body
from .values import MessageRun, PlannedRun


class MessagesAnnotated(Body, frozen=True):
    """Annotations of messages were changed, the same way for all; `changes` holds the new values of those that were."""

    TOPIC: ClassVar[str] = "chatledger.message_annotated/1"
    message_ids: tuple[str, ...]
    changes: dict[str, Any]


class RunRecorded(Body, frozen=True):
    """A run of an assistant became known."""

    TOPIC: ClassVar[str] = "chatledger.run_recorded/1"
    run: MessageRun


class RunChanged(Body, frozen=True):
    """A run went on or ended; `changes` holds its status, and what it produced."""

    TOPIC: ClassVar[str] = "chatledger.run_changed/1"
    run_id: str
    changes: dict[str, Any]


class RegenerationBegun(Body, frozen=True):
    """
    Runs are to be repeated, because `new_message_id` takes the place of `edited_message_id`.

    `created_at` says when that was decided, where it was imported; else that is the time of the event.
    """

    TOPIC: ClassVar[str] = "chatledger.regeneration_begun/1"
    regeneration_id: str
    edited_message_id: str
    new_message_id: str
    runs: tuple[PlannedRun, ...]
    approved: tuple[str, ...]
    created_at: int | None = None


class RegenerationApproved(Body, frozen=True):
    """More runs of a regeneration may be repeated."""

    TOPIC: ClassVar[str] = "chatledger.regeneration_approved/1"
    regeneration_id: str
    run_ids: tuple[str, ...]


RUN_BODIES: tuple[type[Body], ...] = (
    MessagesAnnotated,
    RunRecorded,
    RunChanged,
    RegenerationBegun,
    RegenerationApproved,
)
