"""The page of one chat: its graph beside the path that was chosen, at any moment."""

from typing import Annotated, Final

import msgspec
from starlette.responses import Response

from chatledger.domain.chat.live import LiveStream
from chatledger.domain.chat.recorded import Recorded
from chatledger.domain.chat.runs import RegenerationPlan
from chatledger.domain.draw.event_words import describe_event, messages_of
from chatledger.domain.draw.rows import BranchPoint, BranchPointChild
from chatledger.domain.errors import ChatNotFoundError, MessageNotFoundError, NotFoundError
from chatledger.domain.limits import MAX_COMMIT_EVENTS
from chatledger.domain.values import Branch, Chat, Message, PageEntry, SearchHit
from chatledger.domain.wire import Value

from ..http.routing import HttpCall
from .actions import Offer, chat_actions
from .log import last_position
from .page import ExplorerPage
from .rendering import file_of

_ROWS: Final = 50
"""The messages of a block of the path: about two screens."""

_POINTS: Final = 50
_BRANCHES: Final = 100
_HITS: Final = 200
_WAYS: Final = 20


class PathEntry(Value, frozen=True, kw_only=True):
    """A message of the path, its versions, the checkpoints at it, and whether the last step concerns it."""

    entry: PageEntry
    checkpoints: list[str]
    is_changed: bool


class PathBlock(Value, frozen=True, kw_only=True):
    """
    Messages of a path that follow each other.

    Args:
        along: What is read: a branch, or a message that no branch has.
        entries: The messages, the oldest first.
        first: The depth of the first one, counted from 0.
        count: The number of messages of the whole path.
        selected: The message that the query names.
    """

    along: str
    entries: list[PathEntry]
    first: int
    count: int
    selected: Message | None


class ConversationPage(Value, frozen=True, kw_only=True):
    """
    A chat, and a part of one path through it.

    Args:
        chat: The chat.
        branches: Its branches: the first 100, and besides these the active and the shown one.
        branch_count: How many there are.
        branch: The branch whose path it is; None where no branch has the selected message.
        part: A part of the path.
        selected: The message that the query names.
        points: Where the chat forks, the first 50 places.
        point_count: How many there are.
        hits: Messages of the chat with the words that were sought.
        step: What happened last up to the moment that is shown, event by event; nothing for now.
        live: The answers that are being written.
        plan: The runs that an edit of the selected message would make stale; None where there are none.
        message_actions: What can be done with the selected message; nothing where the caller may not write.
        chat_actions: What can be done with the chat, likewise.
    """

    chat: Chat
    branches: list[Branch]
    branch_count: int
    branch: str | None
    part: PathBlock
    selected: Message | None
    points: list[BranchPoint]
    point_count: int
    hits: list[SearchHit]
    step: list[str]
    live: list[LiveStream]
    plan: RegenerationPlan | None
    message_actions: list[Offer]
    chat_actions: list[Offer]


Depth = Annotated[int, msgspec.Meta(ge=0, le=2**32)]


def chat(
    call: HttpCall, chat_id: str, *, branch: str = "", m: str = "", first: Depth | None = None, q: str = ""
) -> ConversationPage:
    """
    Read a chat and a part of a path through it.

    Args:
        call: The request.
        chat_id: The chat.
        branch: The branch whose path is shown; without it, and without `m`, the active one.
        m: A message that the path leads through: on `branch`, if that has it, else on the branch seen last that has it.
        first: The depth of the first message that is shown; without it `m` is shown, else the end of the path.
        q: Words to be marked in the graph.
    """
    reader = call.reader
    shown_chat = reader.get_chat(chat_id)
    if shown_chat is None:
        raise ChatNotFoundError(chat_id)
    branches = reader.list_branches(chat_id)
    selected = _selected(call, chat_id, m)
    active = next((listed.name for listed in branches if listed.is_active), None)
    shown = (branch or active) if selected is None else _branch_of(call, selected, branch)
    step = _step(call, chat_id)
    points = reader.list_branch_points(chat_id, limit=_POINTS)
    of_message, of_chat = chat_actions(
        call, chat_id, next((listed for listed in branches if listed.name == shown), None), selected
    )
    return ConversationPage(
        chat=shown_chat,
        branches=[
            listed for at, listed in enumerate(branches) if at < _BRANCHES or listed.is_active or listed.name == shown
        ],
        branch_count=len(branches),
        branch=shown,
        part=_part(call, chat_id, shown, selected, first, step),
        selected=selected,
        points=points.points,
        point_count=points.total,
        hits=list(reader.search(q, chat_id=chat_id, limit=_HITS)) if q.strip() else [],
        step=[describe_event(recorded) for recorded in step],
        live=[]
        if call.moment is not None
        else [stream for stream in call.ledger.list_live(chat_id) if stream.status == "writing"],
        plan=_plan(call, selected),
        message_actions=of_message,
        chat_actions=of_chat,
    )


def path(
    call: HttpCall,
    chat_id: str,
    *,
    along: str = "",
    m: str = "",
    first: Depth = 0,
    rows: Annotated[int, msgspec.Meta(ge=1, le=200)] = _ROWS,
) -> PathBlock:
    """Read the messages of a path from a depth on, to be put beside those that a page has; `m` is drawn as selected."""
    if call.reader.get_chat(chat_id) is None:
        raise ChatNotFoundError(chat_id)
    selected = _selected(call, chat_id, m)
    return _block(call, chat_id, along or None, selected, first, rows, _step(call, chat_id))


class Ways(Value, frozen=True, kw_only=True):
    """The ways on after the message before another one; the first 20 of them, and how many there are."""

    chat_id: str
    of: str
    ways: list[BranchPointChild]
    count: int


def ways(call: HttpCall, chat_id: str, *, m: str) -> Ways:
    """Read where the conversation went on beside a message: its versions, with a branch of each."""
    selected = _message(call, chat_id, m)
    row = -1
    if selected.parent_id is not None:
        row = call.reader.get_row_numbers(chat_id, [selected.parent_id])[selected.parent_id]
    after = row - 1 if row >= 0 else None
    points = call.reader.list_branch_points(chat_id, after=after, limit=1).points
    children = points[0].children if points and points[0].id == selected.parent_id else []
    return Ways(chat_id=chat_id, of=selected.id, ways=children[:_WAYS], count=len(children))


class EditedMessage(Value, frozen=True, kw_only=True):
    """A message, and the version of it before; or after it, for the first one."""

    message: Message
    other: Message


def edited(call: HttpCall, chat_id: str, *, m: str) -> EditedMessage:
    """Read a message and the version that it is compared with."""
    message = _message(call, chat_id, m)
    ids = call.reader.versions(message.id).ids
    at = ids.index(message.id)
    other = None if len(ids) < 2 else call.reader.get_message(ids[at - 1] if at else ids[1])
    if other is None:
        raise MessageNotFoundError(message.id, chat_id=chat_id)
    return EditedMessage(message=message, other=other)


def _selected(call: HttpCall, chat_id: str, message_id: str) -> Message | None:
    return _message(call, chat_id, message_id) if message_id else None


def _message(call: HttpCall, chat_id: str, message_id: str) -> Message:
    message = call.reader.get_message(message_id)
    if message is None or message.chat_id != chat_id:
        raise MessageNotFoundError(message_id, chat_id=chat_id)
    return message


def _plan(call: HttpCall, selected: Message | None) -> RegenerationPlan | None:
    if selected is None or call.moment is not None:
        return None
    plan = call.ledger.plan_regeneration(selected.chat_id, selected.id)
    return plan if plan.runs else None


def _branch_of(call: HttpCall, selected: Message, wanted: str) -> str | None:
    """The branch whose path through a message is shown."""
    names = [branch.name for branch in call.reader.branches_of(selected.id)]
    return wanted if wanted in names else next(iter(names), None)


def _part(
    call: HttpCall, chat_id: str, branch: str | None, selected: Message | None, first: int | None, step: list[Recorded]
) -> PathBlock:
    """A part of a path: from a depth on, or with the selected message in its middle, or its end."""
    along = selected.id if branch is None and selected is not None else branch
    if first is None:
        # Of a path the number of rows is that of its messages.
        around = None if selected is None else selected.id
        window = call.reader.get_rows(chat_id, along=along, only="path", around=around, limit=1)
        middle = window.total if selected is None else window.first
        first = max(min(middle - _ROWS // 2, window.total - _ROWS), 0)
    return _block(call, chat_id, along, selected, first, _ROWS, step)


def _block(
    call: HttpCall,
    chat_id: str,
    along: str | None,
    selected: Message | None,
    first: int,
    rows: int,
    step: list[Recorded],
) -> PathBlock:
    part = call.reader.get_page(chat_id, along=along, first=first, limit=rows)
    changed = {message_id for recorded in step for message_id in messages_of(recorded)}
    flags: dict[str, list[str]] = {}
    ids = [entry.message.id for entry in part.entries]
    for checkpoint in call.reader.list_checkpoints(chat_id, message_ids=ids):
        flags.setdefault(checkpoint.message_id, []).append(checkpoint.name)
    return PathBlock(
        along=part.branch or along or "",
        entries=[
            PathEntry(
                entry=entry,
                checkpoints=flags.get(entry.message.id, []),
                is_changed=entry.message.id in changed,
            )
            for entry in part.entries
        ],
        first=part.first,
        count=part.count,
        selected=selected,
    )


def _step(call: HttpCall, chat_id: str) -> list[Recorded]:
    """The events of the chat that were committed together last, up to the moment that the page shows."""
    position = None if call.moment is None else last_position(call, chat_id, call.reader.position)
    if position is None:
        return []
    events: list[Recorded] = []
    # No commit has more events than that, so the last one of the chat begins after it.
    for recorded in call.ledger.history(chat_id, after=max(position - MAX_COMMIT_EVENTS, 0), up_to=position):
        events = [*events, recorded] if events and events[-1].event.rest else [recorded]
    return events


def file(call: HttpCall, chat_id: str, message_id: str, index: Annotated[int, msgspec.Meta(ge=0)]) -> Response:
    """Read the file that a part of a message holds."""
    message = call.reader.get_message(message_id)
    content = None if message is None or message.chat_id != chat_id else file_of(message, index)
    if content is None:
        msg = f"message {message_id!r} of chat {chat_id!r} has no file at {index}"
        raise NotFoundError(msg)
    return content


PAGES: Final = (
    ExplorerPage("/c/{chat_id}", chat, "chat.html"),
    ExplorerPage("/c/{chat_id}/path", path, "path.html"),
    ExplorerPage("/c/{chat_id}/ways", ways, "ways.html"),
    ExplorerPage("/c/{chat_id}/edited", edited, "edited.html"),
    ExplorerPage("/c/{chat_id}/files/{message_id}/{index}", file),
)
