"""Chats: made, listed, changed, forked and deleted."""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from chatledger.domain.errors import AlreadyExistsError, ChatNotFoundError, ConflictError, MessageNotFoundError
from chatledger.domain.values import Chat, Graph, MemberRole
from chatledger.domain.wire import Value

from ..routing import HttpCall, Limit, Route, existing


class NewChat(msgspec.Struct, forbid_unknown_fields=True):
    """A chat to be made; what is left out is given by the server, or is not there. `members` are roles by user."""

    id: str | None = None
    user_id: str | None = None
    title: str | None = None
    metadata: dict[str, Any] | None = None
    expires_at: int | None = None
    ttl_seconds: float | None = None
    members: dict[str, MemberRole] | None = None


class ChatChange(msgspec.Struct, forbid_unknown_fields=True):
    """A change of a chat: `metadata` is merged into what there is, `replace_metadata` takes its place."""

    title: str | UnsetType | None = UNSET
    metadata: dict[str, Any] | None = None
    replace_metadata: dict[str, Any] | UnsetType | None = UNSET
    expires_at: int | UnsetType | None = UNSET
    ttl_seconds: float | None = None


class ChatFork(msgspec.Struct, forbid_unknown_fields=True):
    """A new chat that begins with the chain up to a message, without copying it."""

    message_id: str
    new_chat_id: str | None = None
    title: str | None = None
    metadata: dict[str, Any] | None = None


class ChatPage(Value, frozen=True):
    """Chats, and the id to be sent as `after` for those that follow; None where there are no more."""

    chats: list[Chat]
    next: str | None


class ChatCount(Value, frozen=True):
    """A number of chats."""

    count: int


class Deleted(Value, frozen=True):
    """The result of a deletion: whether there was something to delete."""

    deleted: bool


MetadataFilter = Annotated[
    dict[str, str], msgspec.Meta(description="Only those whose metadata has these values: `metadata[topic]=travel`.")
]


def list_chats(
    call: HttpCall,
    *,
    user_id: str | None = None,
    metadata: MetadataFilter | None = None,
    order: Literal["updated", "created"] = "updated",
    ascending: bool = False,
    limit: Limit = 50,
    after: Annotated[str, msgspec.Meta(description="The `next` of the page before.")] | None = None,
) -> ChatPage:
    """List chats, those that changed last first."""
    chats = call.reader.list_chats(
        user_id=user_id, metadata=metadata, order=order, ascending=ascending, limit=limit + 1, after=after
    )
    return ChatPage(chats[:limit], chats[limit - 1].id if len(chats) > limit else None)


def count_chats(call: HttpCall, user_id: str | None = None, metadata: MetadataFilter | None = None) -> ChatCount:
    """Count chats."""
    return ChatCount(call.reader.count_chats(user_id=user_id, metadata=metadata))


def create_chat(call: HttpCall, body: NewChat | None = None) -> Chat:
    """Make a chat, owned by the caller."""
    new = body or NewChat()
    return call.ledger.create_chat(
        # A request that is repeated finds the chat that the first one made; for each owner it is another one.
        call.named_by_key(new.user_id or "") if new.id is None else new.id,
        call.principal.owner if new.user_id is None else new.user_id,
        title=new.title,
        metadata=new.metadata,
        expires_at=new.expires_at,
        ttl_seconds=new.ttl_seconds,
        members=new.members,
    )


def get_chat(call: HttpCall, chat_id: str) -> Chat:
    """Read a chat."""
    return existing(call.reader.get_chat(chat_id), ChatNotFoundError, chat_id)


def update_chat(call: HttpCall, chat_id: str, body: ChatChange) -> Chat:
    """Change the title, the metadata or the expiry of a chat."""
    return call.ledger.update_chat(
        chat_id,
        title=body.title,
        metadata=body.metadata,
        replace_metadata=body.replace_metadata,
        expires_at=body.expires_at,
        ttl_seconds=body.ttl_seconds,
    )


def delete_chat(call: HttpCall, chat_id: str) -> Deleted:
    """Delete a chat, and erase what it held from the log."""
    return Deleted(call.ledger.delete_chat(chat_id))


def fork_chat(call: HttpCall, chat_id: str, body: ChatFork) -> Chat:
    """Begin a new chat with the chain up to a message of this one; nothing is copied."""
    new_chat_id = call.named_by_key(chat_id) if body.new_chat_id is None else body.new_chat_id
    return call.ledger.fork_chat(
        chat_id, body.message_id, new_chat_id=new_chat_id, title=body.title, metadata=body.metadata
    )


def list_forks(call: HttpCall, chat_id: str, message_id: str | None = None) -> list[Chat]:
    """List the chats that were begun with messages of this one."""
    return call.reader.forks(chat_id, message_id=message_id)


def get_graph(call: HttpCall, chat_id: str) -> Graph:
    """Read the whole graph of a chat: its messages with previews, branches and checkpoints."""
    return call.reader.graph(chat_id)


ROUTES: Final = [
    Route("GET", "/chats", list_chats, raises=[ChatNotFoundError]),
    Route("POST", "/chats", create_chat, status=201, raises=[AlreadyExistsError]),
    Route("GET", "/chats/count", count_chats),
    Route("GET", "/chats/{chat_id}", get_chat, raises=[ChatNotFoundError]),
    Route("PATCH", "/chats/{chat_id}", update_chat, raises=[ChatNotFoundError, ConflictError]),
    Route("DELETE", "/chats/{chat_id}", delete_chat),
    Route("POST", "/chats/{chat_id}/fork", fork_chat, status=201, raises=[MessageNotFoundError, AlreadyExistsError]),
    Route("GET", "/chats/{chat_id}/forks", list_forks, raises=[ChatNotFoundError]),
    Route("GET", "/chats/{chat_id}/graph", get_graph, raises=[ChatNotFoundError]),
]
