"""Finding what an argument names, and saying what it might have meant."""

from difflib import get_close_matches
from typing import Final

from chatledger.domain.errors import NotFoundError
from chatledger.domain.values import Branch, Chat

from ...ledger.ledger import Ledger
from ...ledger.view import LedgerView
from .output import format_time

LedgerOrView = Ledger | LedgerView
"""A ledger, or one as it stood at a moment."""

_CANDIDATES: Final = 10_000
_SUGGESTIONS: Final = 3


def require_chat(ledger: Ledger, chat_id: str) -> Chat:
    """The chat. Raises `NotFoundError`, which suggests ids that are near."""
    chat = ledger.get_chat(chat_id)
    if chat is None:
        raise unknown_chat(ledger, chat_id)
    return chat


def require_chat_then(ledger: Ledger, view: LedgerView, chat_id: str) -> Chat:
    """The chat as it was. Raises `NotFoundError`, which says when it was made if that was later."""
    chat = view.get_chat(chat_id)
    if chat is None:
        msg = f"chat {chat_id!r} was not there then; {describe_beginning(ledger, chat_id)}"
        raise NotFoundError(msg)
    return chat


def describe_beginning(ledger: Ledger, chat_id: str) -> str:
    """Since when a chat is there. Raises `NotFoundError` when it is not."""
    require_chat(ledger, chat_id)
    made = next(recorded for recorded in ledger.history(chat_id, topics={"chat_created"}))
    # Nobody ever saw a part of the commit that made it.
    return f"it is since position {made.position + made.event.rest}, {format_time(made.occurred_at)}"


def unknown_chat(ledger: Ledger, chat_id: str) -> NotFoundError:
    """Return the error for an unknown chat, with ids that are near."""
    ids = [chat.id for chat in ledger.list_chats(limit=_CANDIDATES)]
    begun = [known for known in ids if known.startswith(chat_id)]
    near = (begun or get_close_matches(chat_id, ids))[:_SUGGESTIONS]
    if near:
        hint = f"did you mean {' or '.join(map(repr, near))}?"
    else:
        hint = "'chatledger chats' lists them" if ids else "the ledger is empty, 'chatledger import FILE' fills it"
    return NotFoundError(f"no chat {chat_id!r}; {hint}")


def require_branch(ledger: LedgerOrView, chat_id: str, name: str) -> Branch:
    """The branch. Raises `NotFoundError`, which names those that there are."""
    branch = ledger.get_branch(chat_id, name)
    if branch is None:
        names = [branch.name for branch in ledger.list_branches(chat_id)]
        near = get_close_matches(name, names, n=_SUGGESTIONS) or names[:_SUGGESTIONS]
        others = "" if len(names) <= len(near) else f" and {len(names) - len(near)} more"
        msg = f"chat {chat_id!r} has no branch {name!r}; it has {', '.join(map(repr, near))}{others}"
        raise NotFoundError(msg)
    return branch
