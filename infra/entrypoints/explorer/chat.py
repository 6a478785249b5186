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
from chatledger.domain.values import Branch, Chat, Message, PageEntry, SearchHit, preview
from chatledger.domain.wire import Value

from ...ledger.proof import message_position
from ..http.routing import HttpCall
from .log import last_commit
from .markup import is_like
from .offers import Offer, chat_actions
from .page import ExplorerPage
from .rendering import file_of, tokens_of, usage_of

_ROWS: Final = 50
"""The messages of a block of the path: about two screens."""

_SUMMED: Final = 200
"""So many messages of a path are summed up, the last ones: the page of a longer chat costs no more."""

_POINTS: Final = 50
_BRANCHES: Final = 100
_HITS: Final = 200
_WAYS: Final = 20


class PathEntry(Value, frozen=True, kw_only=True):
    """
    A message of the path.

    Args:
        other: The beginning of the version before it; of the one after it, for the first. Empty where there is no other.
        is_edited: Whether that one is the same with other words, by its role and at least half of its words.
        is_changed: Whether the last step concerns it.
    """

    entry: PageEntry
    other: str
    is_edited: bool
    checkpoints: list[str]
    is_changed: bool


class PathBlock(Value, frozen=True, kw_only=True):
    """
    Messages of a path that follow each other.

    Args:
        along: What is read: a branch, or a message that no branch has.
        first: The depth of the first one, counted from 0.
        count: The number of messages of the whole path.
    """

    along: str
    entries: list[PathEntry]
    first: int
    count: int
    selected: Message | None


class PathSum(Value, frozen=True, kw_only=True):
    """
    What the messages of a path took, as far as they say: the last 200 of it, of which `counted` have figures.

    `cost` is in dollars; `began_at` and `ended_at` are when the first and the last of them were written, in ms since the epoch.
    """

    messages: int
    counted: int
    tokens: int
    cost: float
    began_at: int
    ended_at: int


class ConversationPage(Value, frozen=True, kw_only=True):
    """
    A chat, and a part of one path through it.

    Args:
        branches: Its branches: the first 100, and besides these the active and the shown one.
        branch: The branch whose path it is; None where no branch has the selected message.
        depth: Its place on that path, counted from 0; None where none is selected.
        row: The row of the graph at which it opens: that of the selected message, else of the last one of the path.
        total: What the path took in sum; None where it has no messages.
        holders: The branches that have it, the first 20; the one seen last first.
        versions: Its versions, the first 20, itself among them.
        points: Where the chat forks, the first 50 places.
        step: What happened last up to the moment that is shown, event by event; nothing for now.
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
    depth: int | None
    row: int | None
    position: int | None
    total: PathSum | None
    holders: list[str]
    versions: list[Message]
    version_count: int
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
    holders = [] if selected is None else [holder.name for holder in reader.branches_of(selected.id)]
    shown = branch or active if selected is None else branch if branch in holders else next(iter(holders), None)
    ids = [] if selected is None else reader.versions(selected.id).ids
    step = [] if call.moment is None else last_commit(call, chat_id, call.reader.position)
    names = {listed.number: listed.name for listed in branches}
    points = reader.list_branch_points(chat_id, limit=_POINTS)
    part, depth = _part(call, chat_id, shown, selected, first, step)
    branch_shown = next((listed for listed in branches if listed.name == shown), None)
    of_message, of_chat = chat_actions(call, chat_id, branch_shown, selected)
    opened_at = m or (branch_shown and branch_shown.head_message_id)
    return ConversationPage(
        chat=shown_chat,
        branches=[
            listed for at, listed in enumerate(branches) if at < _BRANCHES or listed.is_active or listed.name == shown
        ],
        branch_count=len(branches),
        branch=shown,
        part=part,
        selected=selected,
        depth=depth,
        row=reader.get_row_numbers(chat_id, [opened_at])[opened_at] if opened_at else None,
        position=None if selected is None else message_position(call.ledger, selected.id),
        total=_sum_of(call, chat_id, part),
        holders=holders[:_WAYS],
        versions=[version for each in ids[:_WAYS] if (version := reader.get_message(each)) is not None],
        version_count=len(ids),
        points=points.points,
        point_count=points.total,
        hits=list(reader.search(q, chat_id=chat_id, limit=_HITS)) if q.strip() else [],
        step=[describe_event(recorded, names.get(getattr(recorded.body, "branch", -1))) for recorded in step],
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
    step = [] if call.moment is None else last_commit(call, chat_id, call.reader.position)
    return _block(call, chat_id, along or None, selected, first, rows, step)


class Way(Value, frozen=True, kw_only=True):
    """A message that answers the same one, when it was written, and how many messages its first branch has from it on."""

    message: BranchPointChild
    created_at: int
    count: int


class Ways(Value, frozen=True, kw_only=True):
    """The ways on after the message before another one; the first 20 of them, and how many there are."""

    chat_id: str
    of: str
    ways: list[Way]
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
    # Of a path the number of a row is the depth of its message, and all ways on begin at the same depth.
    depth = call.reader.get_rows(chat_id, along=selected.id, only="path", around=selected.id, limit=1).first
    ways: list[Way] = []
    for child in children[:_WAYS]:
        message = call.reader.get_message(child.id)
        branch = call.reader.get_branch(chat_id, child.branches[0]) if child.branches else None
        count = 1 if branch is None else branch.message_count - depth
        ways.append(Way(message=child, created_at=0 if message is None else message.created_at, count=count))
    return Ways(chat_id=chat_id, of=selected.id, ways=ways, count=len(children))


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


def _part(
    call: HttpCall, chat_id: str, branch: str | None, selected: Message | None, first: int | None, step: list[Recorded]
) -> tuple[PathBlock, int | None]:
    """A part of a path, from a depth on, or with the selected message in its middle, or its end; and the depth of that message."""
    along = selected.id if branch is None and selected is not None else branch
    # Of a path the number of rows is that of its messages.
    around = None if selected is None else selected.id
    window = call.reader.get_rows(chat_id, along=along, only="path", around=around, limit=1)
    middle = window.total if selected is None else window.first
    begin = max(min(middle - _ROWS // 2, window.total - _ROWS), 0) if first is None else first
    block = _block(call, chat_id, along, selected, begin, _ROWS, step)
    return block, None if selected is None else window.first


def _sum_of(call: HttpCall, chat_id: str, part: PathBlock) -> PathSum | None:
    begin = max(part.count - _SUMMED, 0)
    page = call.reader.get_page(chat_id, along=part.along or None, first=begin, limit=_SUMMED)
    messages = [entry.message for entry in page.entries]
    if not messages:
        return None
    usages = [usage for message in messages if (usage := usage_of(message)) is not None]
    return PathSum(
        messages=len(messages),
        counted=len(usages),
        tokens=sum(tokens_of(usage) or 0 for usage in usages),
        cost=sum(cost for usage in usages if isinstance(cost := usage.get("cost"), int | float)),
        began_at=messages[0].created_at,
        ended_at=messages[-1].created_at,
    )


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
    entries: list[PathEntry] = []
    for entry in part.entries:
        message, other = entry.message, _other(call, entry)
        entries.append(
            PathEntry(
                entry=entry,
                other="" if other is None else preview(other.shown, other.form),
                is_edited=other is not None and other.name == message.name and is_like(other.text, message.text),
                checkpoints=flags.get(message.id, []),
                is_changed=message.id in changed,
            )
        )
    return PathBlock(
        along=part.branch or along or "",
        entries=entries,
        first=part.first,
        count=part.count,
        selected=selected,
    )


def _other(call: HttpCall, entry: PageEntry) -> Message | None:
    ids = entry.versions.ids
    if len(ids) < 2:
        return None
    at = ids.index(entry.message.id)
    return call.reader.get_message(ids[at - 1] if at else ids[1])


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
