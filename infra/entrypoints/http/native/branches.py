"""Branches: made, moved, renamed, shown and deleted."""

from typing import Final

import msgspec

from chatledger.domain.errors import (
    AlreadyExistsError,
    BranchNotFoundError,
    ChatNotFoundError,
    ConflictError,
    LastBranchError,
    MessageNotFoundError,
    WrongChatError,
)
from chatledger.domain.values import ANY, Branch

from ..routing import HttpCall, Route, existing, head_of
from .chats import Deleted, get_chat


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

    head_message_id: str | msgspec.UnsetType | None = msgspec.UNSET
    name: str | None = None
    is_active: bool = False


def list_branches(call: HttpCall, chat_id: str) -> list[Branch]:
    """List the branches of a chat."""
    get_chat(call, chat_id)
    return call.reader.list_branches(chat_id)


def create_branch(call: HttpCall, chat_id: str, body: NewBranch) -> Branch:
    """Make a branch whose head is a message of the chat."""
    if body.name is None and body.head_message_id is not None:
        return call.ledger.fork(chat_id, body.head_message_id, activate=body.activate)
    return call.ledger.create_branch(chat_id, body.name or "", body.head_message_id, activate=body.activate)


def get_branch(call: HttpCall, chat_id: str, name: str) -> Branch:
    """Read a branch."""
    return existing(call.reader.get_branch(chat_id, name), BranchNotFoundError, chat_id, name)


def get_active_branch(call: HttpCall, chat_id: str) -> Branch:
    """Read the branch that is shown."""
    return existing(call.reader.get_active_branch(chat_id), ChatNotFoundError, chat_id)


def update_branch(call: HttpCall, chat_id: str, name: str, body: BranchChange) -> Branch:
    """
    Move the head of a branch, rename it, or make it the one that is shown; in this order, each a write of its own.

    With `If-Match: "<message id>"` the head moves only if that message is there now.
    """
    if body.head_message_id is not msgspec.UNSET:
        expected = head_of(call)
        call.ledger.move_head(
            chat_id, name, body.head_message_id, expected=ANY if expected is msgspec.UNSET else expected
        )
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


_NOT_FOUND: Final = (ChatNotFoundError, BranchNotFoundError)

ROUTES: Final = [
    Route("GET", "/chats/{chat_id}/branches", list_branches, raises=[ChatNotFoundError]),
    Route(
        "POST",
        "/chats/{chat_id}/branches",
        create_branch,
        status=201,
        raises=[ChatNotFoundError, MessageNotFoundError, WrongChatError, AlreadyExistsError],
    ),
    Route("GET", "/chats/{chat_id}/active-branch", get_active_branch, raises=[ChatNotFoundError]),
    Route("GET", "/chats/{chat_id}/branches/{name}", get_branch, raises=_NOT_FOUND),
    Route(
        "PATCH",
        "/chats/{chat_id}/branches/{name}",
        update_branch,
        has_head=True,
        raises=[*_NOT_FOUND, MessageNotFoundError, WrongChatError, AlreadyExistsError, ConflictError],
    ),
    Route("DELETE", "/chats/{chat_id}/branches/{name}", delete_branch, raises=[ChatNotFoundError, LastBranchError]),
]
