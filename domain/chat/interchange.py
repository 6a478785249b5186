"""A whole conversation as importers hand it in and exports hand it out."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from ..forms.reading import text_of
from ..values import Annotation, MemberRole, Message, NewMessage
from ..wire import Value
from .redaction import notes_of_copy
from .runs import CarryOver, MessageRun, PlannedRun, copy_id

R = TypeVar("R", MessageRun, PlannedRun)
_New = Callable[[str | None], str | None]
"""The new id of a message; None stays."""


class ImportedMessage(Value, frozen=True, kw_only=True):
    """
    One message of a foreign conversation.

    `data` is the message as it came, in the form that `form` names, or any JSON value where that is None; their shape tells it where
    it is not given. `notes` is what is kept beside the data. `created_at` is integer milliseconds since the epoch (UTC), None where the source does not say.
    `annotation` is what was said of it later.
    """

    id: str
    parent_id: str | None
    name: str
    data: Any
    type: str | None = "message"
    created_at: int | None = None
    sender_id: str | None = None
    agent_id: str | None = None
    reply_to: str | None = None
    annotation: Annotation | None = None
    copied_from: str | None = None
    form: str | UnsetType | None = UNSET
    notes: dict[str, Any] | None = None
    merged_from: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The plain text: a string as it is, the texts of a message in its form, else every string found in `data`, by lines."""
        return text_of(self.form or None, self.data)


class ImportedBranch(Value, frozen=True, kw_only=True):
    """A named pointer to a head message; None is an empty branch."""

    name: str
    head_message_id: str | None
    created_at: int | None = None
    is_active: bool = False
    id: str | None = None


class ImportedCheckpoint(Value, frozen=True, kw_only=True):
    """A checkpoint of an imported chat."""

    name: str
    message_id: str
    created_at: int | None = None
    id: str | None = None


class ImportedRegeneration(Value, frozen=True, kw_only=True):
    """The repetition of runs after an edit: of which runs, which of them a human approved, and which branch it builds."""

    id: str
    edited_message_id: str
    new_message_id: str
    runs: tuple[PlannedRun, ...] = ()
    approved: tuple[str, ...] = ()
    created_at: int | None = None
    carries: CarryOver | None = None

    @property
    def message_ids(self) -> list[str | None]:
        """The messages that it names, besides those of its runs."""
        stretches = () if self.carries is None else self.carries.stretches
        ends = (message_id for stretch in stretches for message_id in (stretch.first, stretch.last))
        return [self.edited_message_id, self.new_message_id, *ends]


class ImportedChat(Value, frozen=True, kw_only=True):
    """
    A whole conversation.

    Parents come before their children in `messages`, and exactly one of `branches` is active. `runs` are in the order in
    which they were recorded; one with an empty `id` gets a new one. `members` are the roles by user.
    """

    id: str
    user_id: str
    title: str | None
    metadata: dict[str, Any] | None
    messages: tuple[ImportedMessage, ...]
    branches: tuple[ImportedBranch, ...]
    checkpoints: tuple[ImportedCheckpoint, ...] = ()
    created_at: int | None = None
    updated_at: int | None = None
    expires_at: int | None = None
    runs: tuple[MessageRun, ...] = ()
    regenerations: tuple[ImportedRegeneration, ...] = ()
    members: Mapping[str, MemberRole] = {}


class ImportResult(Value, frozen=True, kw_only=True):
    """
    The changes of an import; a repeated one changes nothing.

    `versions_added` counts those of the `messages_added` that are new versions: of messages that were changed at their source
    since they were imported, and of what follows these.
    """

    chat_id: str
    is_new: bool = False
    messages_added: int = 0
    branches_added: int = 0
    heads_moved: int = 0
    checkpoints_set: int = 0
    messages_annotated: int = 0
    runs_added: int = 0
    regenerations_added: int = 0
    versions_added: int = 0


def renamed(chat: ImportedChat, chat_id: str, new_ids: Mapping[str, str]) -> ImportedChat:
    """
    Return the conversation under another id and with other message ids, so that it can stand beside the original.

    Branches, checkpoints and runs get new ids too. The copy has no members. What a regeneration carried over gets the id that
    follows from that of its original.
    """
    all_new_ids = dict(new_ids)
    building = [regeneration.id for regeneration in chat.regenerations if regeneration.carries is not None]
    for message in chat.messages:
        original = message.copied_from
        if original is not None and message.id in all_new_ids:
            for regeneration_id in building:
                # `carry_over` finds its copies by their ids: another id, and it would carry the message over once more.
                if message.id == copy_id(regeneration_id, original):
                    all_new_ids[message.id] = copy_id(regeneration_id, all_new_ids.get(original, original))
    copy = with_message_ids(chat, all_new_ids)
    built: set[str] = set()
    regenerations: list[ImportedRegeneration] = []
    for regeneration in copy.regenerations:
        carries = regeneration.carries
        if carries is not None:
            built.add(carries.branch_id)
            carries = msgspec.structs.replace(carries, branch_id=copy_id(chat_id, carries.branch_id))
        regenerations.append(msgspec.structs.replace(regeneration, carries=carries))
    return msgspec.structs.replace(
        copy,
        id=chat_id,
        branches=tuple(
            msgspec.structs.replace(branch, id=copy_id(chat_id, branch.id) if branch.id in built else None)
            for branch in copy.branches
        ),
        regenerations=tuple(regenerations),
        checkpoints=tuple(msgspec.structs.replace(checkpoint, id=None) for checkpoint in copy.checkpoints),
        runs=tuple(msgspec.structs.replace(run, id="") for run in copy.runs),
        members={},
    )


def with_message_ids(chat: ImportedChat, new_ids: Mapping[str, str]) -> ImportedChat:
    """
    Return the conversation with other ids of these messages, wherever they are named.

    The data stay as they came: a UIMessage is told under the id of its message.
    """

    def new(message_id: str | None) -> str | None:
        return None if message_id is None else new_ids.get(message_id, message_id)

    return msgspec.structs.replace(
        chat,
        messages=tuple(
            msgspec.structs.replace(
                message,
                id=new(message.id),
                parent_id=new(message.parent_id),
                reply_to=new(message.reply_to),
                copied_from=new(message.copied_from),
                merged_from=tuple(new_ids.get(parent, parent) for parent in message.merged_from),
                annotation=message.annotation
                and msgspec.structs.replace(message.annotation, replaced_by=new(message.annotation.replaced_by)),
            )
            for message in chat.messages
        ),
        branches=tuple(
            msgspec.structs.replace(branch, head_message_id=new(branch.head_message_id)) for branch in chat.branches
        ),
        checkpoints=tuple(
            msgspec.structs.replace(checkpoint, message_id=new(checkpoint.message_id))
            for checkpoint in chat.checkpoints
        ),
        runs=tuple(_renamed_run(run, new) for run in chat.runs),
        regenerations=tuple(
            msgspec.structs.replace(
                regeneration,
                edited_message_id=new(regeneration.edited_message_id),
                new_message_id=new(regeneration.new_message_id),
                runs=tuple(_renamed_run(run, new) for run in regeneration.runs),
                carries=_renamed_carries(regeneration.carries, new),
            )
            for regeneration in chat.regenerations
        ),
    )


def _renamed_carries(carries: CarryOver | None, new: _New) -> CarryOver | None:
    if carries is None:
        return None
    stretches = tuple(
        msgspec.structs.replace(stretch, first=new(stretch.first), last=new(stretch.last))
        for stretch in carries.stretches
    )
    return msgspec.structs.replace(carries, stretches=stretches)


def _renamed_run(run: R, new: _New) -> R:
    return msgspec.structs.replace(
        run,
        trigger_message_id=new(run.trigger_message_id),
        message_id=new(run.message_id),
        references=[new(reference) for reference in run.references],
    )


def draft_of(message: ImportedMessage | Message) -> NewMessage:
    return NewMessage(
        message.name,
        message.data,
        message.form,
        id=message.id,
        type=message.type,
        parent_id=message.parent_id,
        created_at=message.created_at,
        sender_id=message.sender_id,
        agent_id=message.agent_id,
        reply_to=message.reply_to,
        metadata=notes_of_copy(message) if isinstance(message, Message) else message.notes,
        copied_from=message.copied_from,
        merged_from=message.merged_from,
    )


class Problem(Value, frozen=True, kw_only=True):
    """
    A broken record or a warning.

    Args:
        source: The file.
        line: Counts from 1; None where the format has no lines.
        message: What is wrong, without content.
        is_incomplete: Whether something that the file had is missing: it was cut off, or lost records that it counts.
    """

    source: str
    line: int | None
    message: str
    is_incomplete: bool = False

    def __str__(self) -> str:
        place = self.source if self.line is None else f"{self.source}, line {self.line}"
        return f"{place}: {self.message}"
