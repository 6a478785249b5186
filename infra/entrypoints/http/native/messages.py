"""Messages: appended, read by page, chain and id, with their versions and differences."""

from typing import Annotated, Any, Final

import msgspec

from chatledger.domain.errors import (
    AlreadyExistsError,
    BranchNotFoundError,
    ChatNotFoundError,
    ConflictError,
    MessageConflictError,
    MessageNotFoundError,
    ParentNotFoundError,
    PayloadTooLargeError,
    WrongChatError,
)
from chatledger.domain.forms.items import Dropped
from chatledger.domain.forms.model import FormName
from chatledger.domain.forms.translate import OpenCalls, translate
from chatledger.domain.values import Branch, Divergence, Message, NewMessage, Page, Versions

from ....ledger.history import MessageHistory
from ..routing import HttpCall, Limit, Route, existing, head_of


class MessageBody(msgspec.Struct, forbid_unknown_fields=True):
    """
    A message to be stored. `name` is its role, `data` any JSON value: a text, a UIMessage, or what another API has. `form` says
    which, such as `openai`, and null that they are any JSON; without it their shape tells it.

    `merged_from` are further parents, which chains do not follow. `parent_id` is given to `POST /chats/{chat_id}/nodes` alone; appended messages follow one another.
    """

    name: str
    data: Any
    id: str | None = None
    parent_id: str | None = None
    type: str | None = None
    created_at: int | None = None
    sender_id: str | None = None
    agent_id: str | None = None
    reply_to: str | None = None
    merged_from: tuple[str, ...] = ()
    form: str | msgspec.UnsetType | None = msgspec.UNSET
    metadata: dict[str, Any] | None = None

    def new(self) -> NewMessage:
        return NewMessage(**msgspec.structs.asdict(self))


class Appended(msgspec.Struct, forbid_unknown_fields=True):
    """Messages to be appended, one after another, to a branch; the active one by default."""

    messages: Annotated[list[MessageBody], msgspec.Meta(min_length=1)]
    branch: str | None = None


def append_messages(call: HttpCall, chat_id: str, body: Appended) -> list[Message]:
    """
    Append messages to a branch.

    With `If-Match: "<message id>"` only if that message is at the head of the branch now, with `If-None-Match: *` only if the
    branch is empty; otherwise nothing is written.
    """
    messages = [message.new() for message in body.messages]
    return call.ledger.append(chat_id, messages, branch=body.branch, expected_head=head_of(call))


class Nodes(msgspec.Struct, forbid_unknown_fields=True):
    """Messages to be added, each after the one that its `parent_id` names, None for a root; parents before their children."""

    messages: Annotated[list[MessageBody], msgspec.Meta(min_length=1)]


def add_messages(call: HttpCall, chat_id: str, body: Nodes) -> list[Message]:
    """Add messages with explicit parents, and move no head. Those that are stored already with equal content are left out."""
    return call.ledger.add_messages(chat_id, [message.new() for message in body.messages])


def get_page(
    call: HttpCall,
    chat_id: str,
    branch: str | None = None,
    limit: Limit = 50,
    before: str | None = None,
    along: str | None = None,
    first: Annotated[int, msgspec.Meta(ge=0, le=2**32)] | None = None,
) -> Page:
    """
    Read a part of the chain of a branch, the newest first to be asked for, with the versions of each message.

    In place of `branch`, `along` names a branch or a message. In place of `before`, `first` is a depth, counted from 0.
    """
    return call.reader.get_page(chat_id, branch=branch, limit=limit, before=before, along=along, first=first)


class Translation(msgspec.Struct):
    """Messages as an API takes them, oldest first, and what they leave out, with the reason."""

    messages: list[Any]
    dropped: list[Dropped]


def translate_messages(
    call: HttpCall,
    chat_id: str,
    form: FormName,
    branch: str | None = None,
    limit: Limit = 50,
    open_calls: OpenCalls = "answer",
) -> Translation:
    """
    Read what a model gets of a branch, in the form of an API: its last messages, from the beginning of a turn on.

    Neither hidden nor replaced messages. What came in the form is given as it came, the rest is translated: calls of one answer
    stand together, and their results behind them. A call without a result gets the error `interrupted`; with `open_calls=drop` it
    is left out, and `keep` keeps those of the last turn.
    """
    # In whole turns: a model refuses results whose call was cut off.
    history = MessageHistory(call.reader, chat_id, branch=branch)
    translated = history.read(lambda read: translate(read.turns(limit), form, open_calls=open_calls))
    chain = existing(translated, ChatNotFoundError, chat_id)
    return Translation(chain.messages, chain.dropped)


def get_message(call: HttpCall, message_id: str) -> Message:
    """Read a message."""
    return existing(call.reader.get_message(message_id), MessageNotFoundError, message_id)


def get_chain(call: HttpCall, message_id: str, limit: Limit = 50, before: str | None = None) -> list[Message]:
    """Read the newest messages of the chain from the root to a message, oldest first."""
    get_message(call, message_id)
    return call.reader.get_chain(message_id, limit=limit, before=before)


def get_children(call: HttpCall, message_id: str) -> list[Message]:
    """List the messages that follow a message, on whatever branch."""
    get_message(call, message_id)
    return call.reader.children(message_id)


def get_siblings(call: HttpCall, message_id: str) -> list[Message]:
    """List the other messages that follow the same one."""
    get_message(call, message_id)
    return call.reader.siblings(message_id)


def get_versions(call: HttpCall, message_id: str) -> Versions:
    """Read the versions of a message, and which of them is shown."""
    return call.reader.versions(message_id)


def get_branches_of(call: HttpCall, message_id: str) -> list[Branch]:
    """List the branches whose chain has a message."""
    return call.reader.branches_of(message_id)


def show_message(call: HttpCall, message_id: str) -> Branch:
    """Make the branch active that has a message and was used last."""
    return call.ledger.show(message_id)


def diff(call: HttpCall, a: str, b: str) -> Divergence:
    """Compare the chains of two messages: what they have in common, and what each has after it."""
    return call.reader.diff(a, b)


_NOT_FOUND: Final = (ChatNotFoundError, MessageNotFoundError, BranchNotFoundError)


ROUTES: Final = {
    "messages": [
        Route(
            "POST",
            "/chats/{chat_id}/messages",
            append_messages,
            status=201,
            has_head=True,
            raises=[*_NOT_FOUND, ParentNotFoundError, AlreadyExistsError, ConflictError, PayloadTooLargeError],
        ),
        Route(
            "POST",
            "/chats/{chat_id}/nodes",
            add_messages,
            status=201,
            raises=[ChatNotFoundError, ParentNotFoundError, MessageConflictError, PayloadTooLargeError],
        ),
        Route("GET", "/chats/{chat_id}/messages", get_page, raises=_NOT_FOUND),
        Route("GET", "/chats/{chat_id}/translation", translate_messages, raises=_NOT_FOUND),
        Route("GET", "/messages/{message_id}", get_message, raises=[MessageNotFoundError]),
        Route("GET", "/messages/{message_id}/chain", get_chain, raises=[MessageNotFoundError]),
        Route("GET", "/messages/{message_id}/children", get_children, raises=[MessageNotFoundError]),
        Route("GET", "/messages/{message_id}/siblings", get_siblings, raises=[MessageNotFoundError]),
        Route("GET", "/messages/{message_id}/versions", get_versions, raises=[MessageNotFoundError]),
        Route("GET", "/messages/{message_id}/branches", get_branches_of, raises=[MessageNotFoundError]),
        Route("POST", "/messages/{message_id}/show", show_message, raises=[MessageNotFoundError, ConflictError]),
        Route("GET", "/diff", diff, raises=[MessageNotFoundError, WrongChatError]),
    ],
}
