"""Chats: made, listed, changed, forked and deleted; their members; exported whole, and imported as `docs/reference/export.md` has it."""

from io import BytesIO
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from chatledger.domain.chat.import_check import validate_links
from chatledger.domain.chat.import_tree import Reporter
from chatledger.domain.chat.import_versions import OnChange
from chatledger.domain.chat.interchange import ImportedChat, ImportResult, renamed
from chatledger.domain.errors import (
    AlreadyExistsError,
    BranchNotFoundError,
    ChainIntegrityError,
    ChatNotFoundError,
    ConflictError,
    HeldError,
    InvalidValueError,
    MessageConflictError,
    MessageNotFoundError,
    PayloadTooLargeError,
    UnsupportedFormatError,
)
from chatledger.domain.limits import check_id
from chatledger.domain.values import Chat, Graph, Link, Member, MemberRole
from chatledger.domain.wire import Value

from ....exchange.jsonl import read_jsonl, write_chats
from ..problems import RequestError
from ..routing import IDEMPOTENCY_KEY, HttpCall, Limit, Route, existing


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
    fields = msgspec.structs.asdict(body or NewChat())
    chat_id, user_id = fields.pop("id"), fields.pop("user_id")
    if chat_id is None:
        # A request that is repeated finds the chat that the first one made; for each owner it is another one.
        chat_id = call.named_by_key(user_id or "")
    return call.ledger.create_chat(chat_id, call.principal.owner if user_id is None else user_id, **fields)


def get_chat(call: HttpCall, chat_id: str) -> Chat:
    """Read a chat."""
    return existing(call.reader.get_chat(chat_id), ChatNotFoundError, chat_id)


def update_chat(call: HttpCall, chat_id: str, body: ChatChange) -> Chat:
    """Change the title, the metadata or the expiry of a chat."""
    return call.ledger.update_chat(chat_id, **msgspec.structs.asdict(body))


def delete_chat(call: HttpCall, chat_id: str) -> Deleted:
    """Delete a chat, and erase what it held from the log."""
    return Deleted(call.ledger.delete_chat(chat_id))


def fork_chat(call: HttpCall, chat_id: str, body: ChatFork) -> Chat:
    """Begin a new chat with the chain up to a message of this one; nothing is copied."""
    fields = msgspec.structs.asdict(body)
    if body.new_chat_id is None:
        fields["new_chat_id"] = call.named_by_key(chat_id)
    return call.ledger.fork_chat(chat_id, **fields)


def list_forks(call: HttpCall, chat_id: str, message_id: str | None = None) -> list[Chat]:
    """List the chats that were begun with messages of this one."""
    return call.reader.forks(chat_id, message_id=message_id)


def get_graph(call: HttpCall, chat_id: str) -> Graph:
    """Read the whole graph of a chat: its messages with previews, branches and checkpoints."""
    return call.reader.graph(chat_id)


class MemberBody(msgspec.Struct, forbid_unknown_fields=True):
    """The role of a member: a `reader` sees all of the chat, a `writer` also writes, branches and runs agents in it."""

    role: MemberRole


def list_members(call: HttpCall, chat_id: str) -> list[Member]:
    """List the members of a chat without its owner, those first that were added first."""
    get_chat(call, chat_id)
    return call.reader.members(chat_id)


def set_member(call: HttpCall, chat_id: str, user_id: str, body: MemberBody) -> Member:
    """Make a user a member of a chat, or give a member another role. Only its owner may."""
    return call.ledger.set_member(chat_id, user_id, body.role)


def remove_member(call: HttpCall, chat_id: str, user_id: str) -> Deleted:
    """Remove a member from a chat. Its owner may, and the member."""
    return Deleted(call.ledger.remove_member(chat_id, user_id))


class NewLink(msgspec.Struct, forbid_unknown_fields=True):
    """
    A link to be made. It shows all branches of the chat, or `branch`, or the chain that ends with the message `until`.

    It is over at `expires_at`, or after `ttl_seconds`; without these it holds until it is revoked.
    """

    branch: str | None = None
    until: str | None = None
    expires_at: int | None = None
    ttl_seconds: float | None = None


def list_links(call: HttpCall, chat_id: str) -> list[Link]:
    """List the links by which anybody reads a chat, without their paths."""
    get_chat(call, chat_id)
    return call.ledger.links(chat_id)


def create_link(call: HttpCall, chat_id: str, body: NewLink) -> Link:
    """Make a link by which anybody reads a chat: its `path`, below the address of this server, which nobody is told again. Only the owner may."""
    return call.ledger.create_link(chat_id, **msgspec.structs.asdict(body))


def revoke_link(call: HttpCall, chat_id: str, link_id: str) -> Deleted:
    """Revoke a link: it opens nothing any more. Only the owner may."""
    return Deleted(call.ledger.revoke_link(chat_id, link_id))


LINES: Final = "application/jsonl"

Lines = Annotated[
    str, msgspec.Meta(description="JSON lines: the format, the chat and what it has, its end, the totals.")
]
CopyId = Annotated[str, msgspec.Meta(description="Import it under this id, with new ids for its messages: a copy.")]


def export_chat(call: HttpCall, chat_id: str) -> Lines:
    """Export a conversation as JSON lines, which `POST /import` and `chatledger import` read."""
    lines = BytesIO()
    write_chats(lines, [call.reader.export_chat(chat_id)])
    return lines.getvalue().decode()


def import_chats(
    call: HttpCall, body: bytes, chat_id: CopyId | None = None, on_change: OnChange = "version"
) -> list[ImportResult]:
    """
    Take in the conversations of an export: what is there stays, what is lacking is added. Repeating it changes nothing.

    A copy, by `chat_id`, gets new ids for its messages: repeating it changes nothing with the same `Idempotency-Key` alone.
    A broken line refuses all. Of several conversations, those before one that the ledger refuses are taken in.
    """
    lines = Reporter("the body", strict=True, on_problem=lambda _: None)
    try:
        chats = list(read_jsonl(BytesIO(body), lines))
    except UnsupportedFormatError as error:
        raise InvalidValueError(str(error)) from error
    except ChainIntegrityError as error:
        raise RequestError(422, str(error), name="ChainIntegrityError") from error
    if chat_id is not None and len(chats) != 1:
        msg = f"chat_id names one copy, and the body has {len(chats):,} conversations"
        raise InvalidValueError(msg)
    return [_imported(call, chat, chat_id, on_change) for chat in chats]


def _imported(call: HttpCall, chat: ImportedChat, chat_id: str | None, on_change: OnChange) -> ImportResult:
    try:
        if chat_id is not None and call.header(IDEMPOTENCY_KEY) is not None:
            validate_links(chat)
            new_ids = {message.id: str(call.named_by_key(chat_id, message.id)) for message in chat.messages}
            chat, chat_id = renamed(chat, check_id(chat_id, "chat_id"), new_ids), None
        return call.ledger.import_chat(chat, chat_id=chat_id, on_change=on_change)
    except ChainIntegrityError as error:
        # Of what was sent, not of the log.
        raise RequestError(422, str(error), name="ChainIntegrityError") from error


ROUTES: Final = {
    "chats": [
        Route("GET", "/chats", list_chats, raises=[ChatNotFoundError]),
        Route("POST", "/chats", create_chat, status=201, raises=[AlreadyExistsError]),
        Route("GET", "/chats/count", count_chats),
        Route("GET", "/chats/{chat_id}", get_chat, raises=[ChatNotFoundError]),
        Route("PATCH", "/chats/{chat_id}", update_chat, raises=[ChatNotFoundError, ConflictError]),
        Route("DELETE", "/chats/{chat_id}", delete_chat, raises=[HeldError]),
        Route(
            "POST", "/chats/{chat_id}/fork", fork_chat, status=201, raises=[MessageNotFoundError, AlreadyExistsError]
        ),
        Route("GET", "/chats/{chat_id}/forks", list_forks, raises=[ChatNotFoundError]),
        Route("GET", "/chats/{chat_id}/graph", get_graph, raises=[ChatNotFoundError]),
    ],
    "members": [
        Route("GET", "/chats/{chat_id}/members", list_members, raises=[ChatNotFoundError]),
        Route("PUT", "/chats/{chat_id}/members/{user_id}", set_member, raises=[ChatNotFoundError]),
        Route("DELETE", "/chats/{chat_id}/members/{user_id}", remove_member),
        Route("GET", "/chats/{chat_id}/links", list_links, raises=[ChatNotFoundError]),
        Route(
            "POST",
            "/chats/{chat_id}/links",
            create_link,
            status=201,
            raises=[ChatNotFoundError, BranchNotFoundError, MessageNotFoundError],
        ),
        Route("DELETE", "/chats/{chat_id}/links/{link_id}", revoke_link),
    ],
    "interchange": [
        Route("GET", "/chats/{chat_id}/export", export_chat, media_type=LINES, raises=[ChatNotFoundError]),
        Route(
            "POST",
            "/import",
            import_chats,
            body_type=LINES,
            raises=[ChatNotFoundError, MessageConflictError, PayloadTooLargeError],
        ),
    ],
}
