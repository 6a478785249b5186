"""What a save is asked for, and what it says: the values that the decision, the ledger and the engine share."""

from typing import Any, Literal, cast

import msgspec
from msgspec import UNSET, UnsetType

from .values import Message, NewMessage

OnConflict = Literal["rebase", "fork", "raise"]
"""What a save does when the branch moved since it was read: go on from where it is now, branch off from where it was read, or refuse."""


class Save(msgspec.Struct, frozen=True, kw_only=True):
    """
    Messages to save on a branch.

    Args:
        drafts: New and edited messages in order, each with an id, no id twice.
        spare_ids: For each draft the id that it gets if it is an edit, whose own id is taken.
        branch: The name of the branch.
        read_head: The head that the writer has seen, None for an empty branch; UNSET when any will do.
        on_conflict: What to do when the head is another one now.
        branch_id: The id of the branch, if one is made.
    """

    drafts: tuple[NewMessage, ...]
    spare_ids: tuple[str, ...]
    branch: str
    read_head: str | UnsetType | None = UNSET
    on_conflict: OnConflict = "rebase"
    branch_id: str


class SaveResult(msgspec.Struct, frozen=True, kw_only=True):
    """
    What a save left behind.

    Args:
        head_message_id: The head of the branch now; None when it is empty.
        branch: The branch that was written to: another than before when messages were edited.
        message_ids: The ids of the given messages as they are stored, in order; of skipped ones too, which were stored before.
        id_map: From the id that was given to the id that it is stored under, of each message that got another one.
    """

    head_message_id: str | None
    branch: str
    message_ids: list[str]
    id_map: dict[str, str]


class SavePreview(msgspec.Struct, frozen=True, kw_only=True):
    """
    The chain as it would be after a save; `saved` of its messages, the last ones, are not stored yet.

    `read_head` is the head that the branch of the save has at this moment.
    """

    read_head: str | None
    branch: str
    head_message_id: str | None
    messages: list[Message]
    saved: int


def renamed_data(data: Any, old_id: str, new_id: str) -> Any:
    """The data of a message that gets another id, with that id in them if they carry the old one."""
    if not isinstance(data, dict):
        return data
    fields = cast("dict[str, Any]", data)
    return {**fields, "id": new_id} if "id" in fields and (fields["id"] == old_id or "parts" in fields) else fields
