"""Branches and checkpoints, which point at messages, and annotations, made after messages were written."""

from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from chatledger.domain.chat.merging import MergeHow
from chatledger.domain.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    BranchNotFoundError,
    ChatNotFoundError,
    CheckpointNotFoundError,
    ConflictError,
    HeldError,
    InvalidValueError,
    LastBranchError,
    MessageNotFoundError,
    WrongChatError,
)
from chatledger.domain.limits import check_id
from chatledger.domain.values import ANY, MAIN, Annotation, Branch, Checkpoint
from chatledger.domain.wire import Value

from ....ledger.merges import Merge
from ....ledger.redactions import Redacted
from ..routing import HttpCall, Route, existing, head_of
from .chats import Deleted, get_chat
from .messages import MessageBody


class NewBranch(msgspec.Struct, forbid_unknown_fields=True):
    """
    A branch to be made at a message; without a name it is a fork, which gets one.

    `activate` makes it the branch that is shown.
    """

    head_message_id: str | None
    name: str | None = None
    activate: bool = False


class BranchChange(msgspec.Struct, forbid_unknown_fields=True):
    """A change of a branch: where its head is, its name, whether it is the one that is shown."""

    head_message_id: str | UnsetType | None = UNSET
    name: str | None = None
    is_active: bool = False


def list_branches(call: HttpCall, chat_id: str) -> list[Branch]:
    """List the branches of a chat."""
    get_chat(call, chat_id)
    return call.reader.list_branches(chat_id)


def create_branch(call: HttpCall, chat_id: str, body: NewBranch) -> Branch:
    """Make a branch whose head is a message of the chat."""
    head = None if body.head_message_id is None else check_id(body.head_message_id, "head_message_id")
    if body.name is None and head is not None:
        return call.ledger.fork(chat_id, head, activate=body.activate)
    return call.ledger.create_branch(chat_id, body.name or "", head, activate=body.activate)


def get_branch(call: HttpCall, chat_id: str, name: str) -> Branch:
    """Read a branch."""
    return existing(call.reader.get_branch(chat_id, name), BranchNotFoundError, chat_id, name)


def get_active_branch(call: HttpCall, chat_id: str) -> Branch:
    """Read the branch that is shown."""
    return existing(call.reader.get_active_branch(chat_id), ChatNotFoundError, chat_id)


def update_branch(call: HttpCall, chat_id: str, name: str, body: BranchChange) -> Branch:
    """
    Move the head of a branch, rename it, or make it the one that is shown; in this order, each a write of its own.

    With `If-Match: "<message id>"` the head moves only if that message is there now. Without `head_message_id` it is refused.
    """
    expected = head_of(call)
    if expected is not UNSET and body.head_message_id is UNSET:
        msg = "If-Match and If-None-Match go with head_message_id, which moves the head; nothing was written"
        raise InvalidValueError(msg)
    if body.head_message_id is not UNSET:
        head = None if body.head_message_id is None else check_id(body.head_message_id, "head_message_id")
        call.ledger.move_head(chat_id, name, head, expected=ANY if expected is UNSET else expected)
    if body.name is not None and body.name != name:
        # One key for several writes: with the same command id the second would be taken for the first, and left out.
        with call.command("rename"):
            name = call.ledger.rename_branch(chat_id, name, body.name).name
    if body.is_active:
        with call.command("activate"):
            call.ledger.set_active_branch(chat_id, name)
    return get_branch(call, chat_id, name)


def delete_branch(call: HttpCall, chat_id: str, name: str) -> Deleted:
    """Delete a branch. Its messages stay, and are found by their ids."""
    return Deleted(call.ledger.delete_branch(chat_id, name))


class NewMerge(msgspec.Struct, forbid_unknown_fields=True):
    """
    A merge of the branch `source` into another one.

    `how`: `summary` appends the message `summary`, or a text, that sums the branch up; `pick` appends copies of the messages `pick`;
    `rebase` copies of all that the other branch does not have.
    """

    source: str
    into: str = MAIN
    how: MergeHow = "summary"
    summary: str | MessageBody | None = None
    pick: list[str] | None = None


def merge(call: HttpCall, chat_id: str, body: NewMerge) -> Merge:
    """Merge a branch into another one: the last message that is appended names its head in `merged_from`."""
    summary = body.summary.new() if isinstance(body.summary, MessageBody) else body.summary
    return call.ledger.merge(chat_id, body.source, body.into, how=body.how, summary=summary, pick=body.pick)


class CheckpointTarget(msgspec.Struct, forbid_unknown_fields=True):
    """The message that a checkpoint names."""

    message_id: str


def list_checkpoints(call: HttpCall, chat_id: str) -> list[Checkpoint]:
    """List the checkpoints of a chat."""
    get_chat(call, chat_id)
    return call.reader.list_checkpoints(chat_id)


def get_checkpoint(call: HttpCall, chat_id: str, name: str) -> Checkpoint:
    """Read a checkpoint."""
    return existing(call.reader.get_checkpoint(chat_id, name), CheckpointNotFoundError, chat_id, name)


def set_checkpoint(call: HttpCall, chat_id: str, name: str, body: CheckpointTarget) -> Checkpoint:
    """Give a message a name; a name that is there already is moved."""
    return call.ledger.set_checkpoint(chat_id, name, body.message_id)


def delete_checkpoint(call: HttpCall, chat_id: str, name: str) -> Deleted:
    """Delete a checkpoint. The message stays."""
    return Deleted(call.ledger.delete_checkpoint(chat_id, name))


class AnnotationChange(msgspec.Struct, forbid_unknown_fields=True):
    """A change of the annotation of a message; what is left out stays. `metadata` is merged into what there is, `replace_metadata` takes its place."""

    stale: bool | UnsetType = UNSET
    replaced_by: str | UnsetType | None = UNSET
    hidden: bool | UnsetType = UNSET
    metadata: dict[str, Any] | None = None
    replace_metadata: dict[str, Any] | UnsetType | None = UNSET


class Annotated(Value, frozen=True):
    """A message that has an annotation."""

    message_id: str
    annotation: Annotation


def get_annotations(call: HttpCall, chat_id: str) -> list[Annotated]:
    """Read the annotations of a chat."""
    get_chat(call, chat_id)
    return [
        Annotated(message_id, annotation) for message_id, annotation in call.reader.get_annotations(chat_id).items()
    ]


def annotate(call: HttpCall, chat_id: str, message_id: str, body: AnnotationChange) -> Annotation:
    """Annotate a message: as stale, hidden or replaced, or with metadata of your application."""
    return call.ledger.annotate(chat_id, message_id, **msgspec.structs.asdict(body))


class NewRedaction(msgspec.Struct, forbid_unknown_fields=True):
    """
    Messages whose content is to be erased; see `Ledger.redact`.

    `keep` is a text in its place. With `part`, keys and numbers such as `["parts", 0, "text"]`, only that part of the data goes.
    With `versions` the other versions of the messages go too, as before an edit.
    """

    message_ids: list[str]
    keep: str | None = None
    part: list[str | int] | None = None
    reason: str | None = None
    copies: bool = True
    versions: bool = False


def redact(call: HttpCall, body: NewRedaction) -> Redacted:
    """Erase what messages say, for ever; each stays in its place and says that it is redacted. Only owners of their chats may."""
    return call.ledger.redact(**msgspec.structs.asdict(body))


class WordsRedaction(msgspec.Struct, forbid_unknown_fields=True):
    """Why earlier words of a chat are erased, in words that may stay."""

    reason: str | None = None


class RedactedWords(Value, frozen=True):
    """The number of events that lost words."""

    event_count: int


def redact_words(call: HttpCall, chat_id: str, body: WordsRedaction) -> RedactedWords:
    """Erase titles, metadata, annotations, names of branches and checkpoints, and reasons of holds that others took the place of. Only the owner may."""
    return RedactedWords(call.ledger.redact_words(chat_id, reason=body.reason))


_NO_BRANCH: Final = (ChatNotFoundError, BranchNotFoundError)

ROUTES: Final = {
    "branches": [
        Route("GET", "/chats/{chat_id}/branches", list_branches, raises=[ChatNotFoundError]),
        Route(
            "POST",
            "/chats/{chat_id}/branches",
            create_branch,
            status=201,
            raises=[ChatNotFoundError, MessageNotFoundError, WrongChatError, AlreadyExistsError],
        ),
        Route("GET", "/chats/{chat_id}/active-branch", get_active_branch, raises=[ChatNotFoundError]),
        Route("GET", "/chats/{chat_id}/branches/{name}", get_branch, raises=_NO_BRANCH),
        Route(
            "PATCH",
            "/chats/{chat_id}/branches/{name}",
            update_branch,
            has_head=True,
            raises=[*_NO_BRANCH, MessageNotFoundError, WrongChatError, AlreadyExistsError, ConflictError],
        ),
        Route("DELETE", "/chats/{chat_id}/branches/{name}", delete_branch, raises=[ChatNotFoundError, LastBranchError]),
        Route("POST", "/chats/{chat_id}/merges", merge, raises=[*_NO_BRANCH, AlreadyExistsError, ConflictError]),
    ],
    "checkpoints": [
        Route("GET", "/chats/{chat_id}/checkpoints", list_checkpoints, raises=[ChatNotFoundError]),
        Route(
            "GET",
            "/chats/{chat_id}/checkpoints/{name}",
            get_checkpoint,
            raises=[ChatNotFoundError, CheckpointNotFoundError],
        ),
        Route(
            "PUT",
            "/chats/{chat_id}/checkpoints/{name}",
            set_checkpoint,
            raises=[ChatNotFoundError, MessageNotFoundError, WrongChatError],
        ),
        Route("DELETE", "/chats/{chat_id}/checkpoints/{name}", delete_checkpoint, raises=[ChatNotFoundError]),
    ],
    "annotations": [
        Route("GET", "/chats/{chat_id}/annotations", get_annotations, raises=[ChatNotFoundError]),
        Route(
            "PATCH",
            "/chats/{chat_id}/messages/{message_id}/annotation",
            annotate,
            raises=[ChatNotFoundError, MessageNotFoundError, WrongChatError],
        ),
        Route("POST", "/redactions", redact, raises=[MessageNotFoundError, AccessDeniedError, HeldError]),
        Route(
            "POST",
            "/chats/{chat_id}/redactions",
            redact_words,
            raises=[ChatNotFoundError, AccessDeniedError, HeldError],
        ),
    ],
}
