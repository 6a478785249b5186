"""The page of one chat: its graph beside the path that was chosen, at any moment."""

from typing import Annotated, Final

import msgspec
from starlette.responses import Response

from chatledger.domain.chat.live import LiveStream
from chatledger.domain.chat.recorded import Recorded
from chatledger.domain.chat.runs import RegenerationPlan
from chatledger.domain.draw.event_words import describe_event, messages_of
from chatledger.domain.draw.rows import BranchPoint
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
_AROUND: Final = 25
_POINTS: Final = 50
_BRANCHES: Final = 100
_HITS: Final = 200


class PathEntry(Value, frozen=True, kw_only=True):
    """A message of the path, its versions, the checkpoints at it, and whether the last step concerns it."""

    entry: PageEntry
    checkpoints: list[str]
    is_changed: bool


class ConversationPage(Value, frozen=True, kw_only=True):
    """
    A chat, and a part of one path through it.

    Args:
        chat: The chat.
        branches: Its branches: the first 100, and besides these the active and the shown one.
        branch_count: How many there are.
        branch: The branch whose path it is; None where no branch has the selected message.
        entries: Messages of the path, the oldest first.
        before: Begins the part before, None at the beginning.
        is_end: Whether the path ends here.
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
    entries: list[PathEntry]
    before: str | None
    is_end: bool
    selected: Message | None
    points: list[BranchPoint]
    point_count: int
    hits: list[SearchHit]
    step: list[str]
    live: list[LiveStream]
    plan: RegenerationPlan | None
    message_actions: list[Offer]
    chat_actions: list[Offer]


def chat(
    call: HttpCall, chat_id: str, *, branch: str = "", m: str = "", before: str = "", q: str = ""
) -> ConversationPage:
    """
    Read a chat and a part of a path through it.

    Args:
        call: The request.
        chat_id: The chat.
        branch: The branch whose path is shown; without it, and without `m`, the active one.
        m: A message that the path leads through: on `branch`, if that has it, else on the branch seen last that has it.
        before: A message of the path: the part before it.
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
    entries, start, is_end = _path(call, shown_chat, shown, selected, before)
    step = _step(call, chat_id)
    changed = {message_id for recorded in step for message_id in messages_of(recorded)}
    flags: dict[str, list[str]] = {}
    for checkpoint in reader.list_checkpoints(chat_id, message_ids=[entry.message.id for entry in entries]):
        flags.setdefault(checkpoint.message_id, []).append(checkpoint.name)
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
        entries=[
            PathEntry(
                entry=entry,
                checkpoints=flags.get(entry.message.id, []),
                is_changed=entry.message.id in changed,
            )
            for entry in entries
        ],
        before=start,
        is_end=is_end,
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


def _selected(call: HttpCall, chat_id: str, message_id: str) -> Message | None:
    if not message_id:
        return None
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


def _path(
    call: HttpCall, chat: Chat, branch: str | None, selected: Message | None, before: str
) -> tuple[list[PageEntry], str | None, bool]:
    """A part of a path, what begins the part before, and whether the path ends with it."""
    reader = call.reader
    if branch is not None:
        part = reader.get_page(chat.id, branch=branch, limit=_ROWS, before=before or None)
        if selected is None or before or any(entry.message.id == selected.id for entry in part.entries):
            return part.entries, part.before, not before
    if selected is None:
        return [], None, True
    messages = reader.get_chain(selected.id, limit=_AROUND, before=before or None)
    start = messages[0].id if messages and messages[0].parent_id is not None else None
    entries = [PageEntry(message=message, versions=reader.versions(message.id)) for message in messages]
    return entries, start, branch is None and not before


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
    ExplorerPage("/c/{chat_id}/files/{message_id}/{index}", file),
)
