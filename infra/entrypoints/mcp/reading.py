"""Tools that read: search, lists, transcripts, differences and the past."""

from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Final

import msgspec

from chatledger.domain.draw.event_words import describe_event
from chatledger.domain.errors import BranchNotFoundError, ChatNotFoundError, InvalidValueError, MessageNotFoundError
from chatledger.domain.forms.plain import object_at, text_at
from chatledger.domain.values import Chat, Message
from chatledger.domain.wire import iso

from ...ledger.expiry import time_of_text
from ...ledger.ledger import Ledger
from ...ledger.view import LedgerView
from .answers import (
    LABEL_CHARS,
    MAX_ANSWER_CHARS,
    MESSAGE_CHARS,
    Answer,
    BranchInfo,
    CheckpointInfo,
    Conversation,
    MemberInfo,
    MessageLimit,
    Room,
    ShownMessage,
    TextLimit,
    show_branch,
    show_chat,
    show_checkpoint,
    show_member,
    show_message,
    uri_of,
)
from .tools import BranchName, ChatId, MessageId, Time, Tool

ListLimit = Annotated[int, msgspec.Meta(ge=1, le=100, description="At most this many.")]
_LOOKED_AT: Final = 5_000
"""Conversations that one call looks at, at most, to find those of a period."""
_LISTED_BRANCHES: Final = 200


class AgentPlace(Answer, frozen=True):
    """Where an agent said something: in a thread, a state or an item, in which version of it."""

    kind: str
    id: str
    namespace: str = ""
    version: str | None = None


class SearchedMessage(Answer, frozen=True):
    """
    A message that a search found; `matches` says where in the snippet the words are, from and to which character.

    It is in a conversation, which has a uri, or where an agent said it. One of a coding agent's session has its name, and the folder
    it worked in.
    """

    message: str
    role: str
    at: str | int
    snippet: str
    matches: tuple[list[int], ...] = ()
    conversation: str | None = None
    uri: str | None = None
    title: str | None = None
    agent: str | None = None
    cwd: str | None = None
    place: AgentPlace | None = None


class Members(Answer, frozen=True):
    """The members of a conversation, the earliest added first."""

    members: list[MemberInfo]


class FoundMessages(Answer, frozen=True):
    """The messages that were found, best first."""

    hits: list[SearchedMessage]


class ConversationList(Answer, frozen=True):
    """Conversations, the last changed first. With `next`, call again with it as `after` for more."""

    conversations: list[Conversation]
    next: str | None = None


class Transcript(Answer, frozen=True):
    """Messages of a branch, oldest first. With `before`, call again with it for the messages before these."""

    conversation: str
    branch: str
    messages: list[ShownMessage]
    before: str | None = None


class Surroundings(Answer, frozen=True):
    """A message with those before and after it, oldest first. `message` is the id of the one in the middle."""

    conversation: str
    message: str
    messages: list[ShownMessage]


class Branches(Answer, frozen=True):
    """The branches and checkpoints of a conversation."""

    conversation: Conversation
    branches: list[BranchInfo]
    checkpoints: list[CheckpointInfo]
    omitted: int = 0


class Difference(Answer, frozen=True):
    """The last message that two lines have in common, and the first messages that each has after it, oldest first."""

    common: ShownMessage | None
    only_a: list[ShownMessage]
    only_b: list[ShownMessage]
    only_a_count: int
    only_b_count: int


class Happened(Answer, frozen=True):
    """A change of a conversation: its position on the log, when, by whom, of which kind, and what it was."""

    position: int
    at: str | int
    type: str
    description: str
    actor: str | None = None


class ConversationHistory(Answer, frozen=True):
    """Changes of a conversation, in order. With `next`, call again with it as `after` for what came later."""

    events: list[Happened]
    next: int | None = None


def search_conversations(
    ledger: Ledger,
    *,
    query: Annotated[str, msgspec.Meta(description='Words, "phrases", prefixes*, AND, OR, NOT, parentheses.')],
    conversation: ChatId | None = None,
    user: Annotated[str, msgspec.Meta(description="Only conversations of this owner.")] | None = None,
    roles: Annotated[list[str], msgspec.Meta(description="Only messages of these roles, e.g. user.")] | None = None,
    since: Time | None = None,
    until: Time | None = None,
    limit: ListLimit = 20,
) -> FoundMessages:
    """
    Search the messages of all conversations, and what agents said in threads, states and items, by their words.

    Use it when you look for something that was said. Continue with read_around on the id of a message of a conversation.
    """
    hits = ledger.search(
        query,
        chat_id=conversation,
        user_id=user,
        roles=roles,
        since=since,
        until=until,
        limit=limit,
    )
    told: dict[str, dict[str, str | None]] = {}
    messages: list[SearchedMessage] = []
    for hit in hits:
        message, place = hit.message, hit.place
        searched_message = SearchedMessage(
            message=message.id,
            role=message.name,
            at=iso(message.created_at),
            snippet=hit.snippet,
            matches=tuple(hit.matches),
        )
        if place is not None:
            of_agent = AgentPlace(kind=place.kind, id=place.id, namespace=place.namespace, version=place.version)
            messages.append(msgspec.structs.replace(searched_message, place=of_agent))
            continue
        if message.chat_id not in told:
            told[message.chat_id] = _told_of(ledger.get_chat(message.chat_id))
        messages.append(
            msgspec.structs.replace(
                searched_message,
                conversation=message.chat_id,
                uri=uri_of(message.chat_id, "messages", message.id),
                **told[message.chat_id],
            )
        )
    return FoundMessages(hits=messages)


def _told_of(chat: Chat | None) -> dict[str, str | None]:
    """Return what a hit says of its conversation."""
    if chat is None:
        return {}
    title = None if chat.title is None else chat.title[:LABEL_CHARS]
    return {"title": title, **{key: text_at(object_at(chat.metadata), key) for key in ("agent", "cwd")}}


def list_conversations(
    ledger: Ledger,
    *,
    since: Annotated[
        str,
        msgspec.Meta(description="Only those changed at this time or later: ISO 8601, yesterday, tuesday or 7d (ago)."),
    ]
    | None = None,
    until: Annotated[str, msgspec.Meta(description="Only those changed before this time, given likewise.")]
    | None = None,
    metadata: Annotated[dict[str, str], msgspec.Meta(description="Only those whose metadata has these values.")]
    | None = None,
    user: Annotated[str, msgspec.Meta(description="Only conversations of this owner.")] | None = None,
    limit: ListLimit = 20,
    after: Annotated[str, msgspec.Meta(description="`next` of the list before.")] | None = None,
) -> ConversationList:
    """List conversations, the last changed first; those of a period with since and until."""
    first = None if since is None else time_of_text(since).timestamp() * 1000
    end = None if until is None else time_of_text(until).timestamp() * 1000
    conversations: list[Conversation] = []
    last: str | None = after
    for looked_at, chat in enumerate(_chats(ledger, user, metadata, after)):
        if first is not None and chat.updated_at < first:
            return ConversationList(conversations=conversations)
        # A period long ago has thousands of chats after it; the assistant goes on with `next`.
        if len(conversations) == limit or looked_at == _LOOKED_AT:
            return ConversationList(conversations=conversations, next=last)
        last = chat.id
        if end is None or chat.updated_at < end:
            conversations.append(show_chat(chat))
    return ConversationList(conversations=conversations)


def _chats(ledger: Ledger, user_id: str | None, metadata: dict[str, str] | None, after: str | None) -> Iterator[Chat]:
    while page := ledger.list_chats(user_id=user_id, metadata=metadata, limit=200, after=after):
        yield from page
        after = page[-1].id


def read_conversation(
    ledger: Ledger,
    *,
    conversation: ChatId,
    branch: BranchName | None = None,
    before: Annotated[str, msgspec.Meta(description="`before` of the page that follows.")] | None = None,
    limit: MessageLimit = 30,
    max_characters: TextLimit = MESSAGE_CHARS,
) -> Transcript:
    """
    Read the newest messages of a conversation, oldest first; page backwards with before.

    The text of long messages is cut; raise max_characters to see more of it.
    """
    return read_branch(ledger, conversation, branch, before, limit, max_characters)


def read_branch(
    reader: Ledger | LedgerView,
    chat_id: str,
    branch: str | None = None,
    before: str | None = None,
    limit: int = 30,
    max_characters: int = MESSAGE_CHARS,
) -> Transcript:
    """Read a page of a branch, now or at an earlier moment."""
    page = reader.get_page(chat_id, branch=branch, limit=limit, before=before)
    room = Room(each=max_characters)
    messages = room.take_newest([(entry.message, len(entry.versions.ids)) for entry in page.entries])
    is_cut = len(messages) < len(page.entries)
    assert page.branch is not None, "a branch was asked for, and no message"
    return Transcript(
        conversation=page.chat_id,
        branch=page.branch,
        messages=messages,
        before=messages[0].id if is_cut else page.before,  # what there was no room for is on the next page
    )


def read_as_of(
    ledger: Ledger,
    *,
    conversation: ChatId,
    time: Annotated[
        str,
        msgspec.Meta(description="A time: ISO 8601, yesterday, tuesday or 7d (ago), in UTC; or a position on the log."),
    ],
    branch: BranchName | None = None,
    before: Annotated[str, msgspec.Meta(description="`before` of the page that follows.")] | None = None,
    limit: MessageLimit = 30,
    max_characters: TextLimit = MESSAGE_CHARS,
) -> Transcript:
    """Read a conversation as it was at an earlier moment: its branches, and what they had then."""
    is_position = time.isascii() and time.isdigit() and len(time) < 19
    moment = int(time) if is_position else time
    with ledger.as_of(moment) as view:
        return read_branch(view, conversation, branch, before, limit, max_characters)


def read_around(
    ledger: Ledger,
    *,
    message: MessageId,
    n: Annotated[int, msgspec.Meta(ge=0, le=50, description="Messages before it, and after it.")] = 5,
    max_characters: TextLimit = MESSAGE_CHARS,
) -> Surroundings:
    """Read a message with the n messages before it and after it, such as one that a search found."""
    middle = ledger.get_message(message)
    if middle is None:
        raise MessageNotFoundError(message)
    room = Room(each=max_characters)
    shown = room.take(middle) or show_message(middle, each=max_characters)
    earlier = ledger.get_chain(middle.id, limit=n + 1)[:-1] if n else []
    later = list(islice(_following(ledger, middle.id), n))
    before: list[ShownMessage] = []
    after: list[ShownMessage] = []
    for index in range(n):  # the nearest first, on both sides in turns
        near = earlier[-1 - index] if index < len(earlier) and index == len(before) else None
        shown_near = None if near is None else room.take(near)
        if shown_near is not None:
            before.append(shown_near)
        shown_near = room.take(later[index]) if index < len(later) and index == len(after) else None
        if shown_near is not None:
            after.append(shown_near)
    return Surroundings(conversation=middle.chat_id, message=middle.id, messages=[*reversed(before), shown, *after])


def _following(ledger: Ledger, message_id: str) -> Iterator[Message]:
    """Yield what follows a message, by the versions that are shown."""
    while True:
        children = {message.id: message for message in ledger.children(message_id)}
        if not children:
            return
        message_id = ledger.versions(next(iter(children))).shown or next(reversed(children))
        if message_id not in children:
            return
        yield children[message_id]


def list_branches(ledger: Ledger, *, conversation: ChatId) -> Branches:
    """List the branches of a conversation (its alternative lines) and its checkpoints (named messages)."""
    chat = ledger.get_chat(conversation)
    if chat is None:
        raise ChatNotFoundError(conversation)
    branches = ledger.list_branches(conversation)
    checkpoints = ledger.list_checkpoints(conversation)
    return Branches(
        conversation=show_chat(chat),
        branches=[show_branch(branch) for branch in branches[:_LISTED_BRANCHES]],
        checkpoints=[show_checkpoint(checkpoint) for checkpoint in checkpoints[:_LISTED_BRANCHES]],
        omitted=max(0, len(branches) - _LISTED_BRANCHES) + max(0, len(checkpoints) - _LISTED_BRANCHES),
    )


def diff(
    ledger: Ledger,
    *,
    a: Annotated[str, msgspec.Meta(description="The id of a message, or with conversation the name of a branch.")],
    b: Annotated[str, msgspec.Meta(description="The same, of the other line.")],
    conversation: Annotated[str, msgspec.Meta(description="Whose branches a and b name.")] | None = None,
    max_characters: TextLimit = MESSAGE_CHARS,
) -> Difference:
    """Compare two lines of a conversation: what they have in common, and what each has after it."""
    ids = [a, b] if conversation is None else [_head(ledger, conversation, name) for name in (a, b)]
    divergence = ledger.diff(*ids)
    half = MAX_ANSWER_CHARS // 2
    common = (
        None if divergence.common is None else show_message(divergence.common, each=min(max_characters, MESSAGE_CHARS))
    )
    return Difference(
        common=common,
        only_a=Room(half, each=min(max_characters, half // 2)).take_oldest(divergence.only_a),
        only_b=Room(half, each=min(max_characters, half // 2)).take_oldest(divergence.only_b),
        only_a_count=len(divergence.only_a),
        only_b_count=len(divergence.only_b),
    )


def _head(ledger: Ledger, chat_id: str, name: str) -> str:
    branch = ledger.get_branch(chat_id, name)
    if branch is None:
        raise BranchNotFoundError(chat_id, name)
    if branch.head_message_id is None:
        msg = f"branch {name!r} of chat {chat_id!r} is empty: there is nothing to compare"
        raise InvalidValueError(msg)
    return branch.head_message_id


def history(
    ledger: Ledger,
    *,
    conversation: ChatId,
    after: Annotated[int, msgspec.Meta(ge=0, description="Only what happened after this position.")] = 0,
    limit: ListLimit = 50,
) -> ConversationHistory:
    """List what happened to a conversation, in order: messages, branches, moved heads, checkpoints, and by whom."""
    if ledger.get_chat(conversation) is None:
        raise ChatNotFoundError(conversation)
    recorded = list(islice(ledger.history(conversation, after=after), limit + 1))
    events = [
        Happened(
            position=each.position,
            at=iso(each.occurred_at),
            type=each.type,
            # Of messages their roles and ids, as some may be hidden now.
            description=describe_event(each, quotes_messages=False)[:LABEL_CHARS],
            actor=each.actor,
        )
        for each in recorded[:limit]
    ]
    return ConversationHistory(events=events, next=events[-1].position if len(recorded) > limit else None)


def list_members(ledger: Ledger, *, conversation: ChatId) -> Members:
    """List who may read a conversation, or write to it, besides its owner."""
    if ledger.get_chat(conversation) is None:
        raise ChatNotFoundError(conversation)
    return Members(members=[show_member(member) for member in ledger.members(conversation)])


READING: Final[list[Tool]] = [
    Tool(search_conversations, "Search conversations"),
    Tool(list_conversations, "List conversations"),
    Tool(read_conversation, "Read a conversation"),
    Tool(read_around, "Read around a message"),
    Tool(list_branches, "List branches"),
    Tool(diff, "Compare two lines"),
    Tool(read_as_of, "Read a conversation as it was"),
    Tool(history, "History of a conversation"),
    Tool(list_members, "List members"),
]
