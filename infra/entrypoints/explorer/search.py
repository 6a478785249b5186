"""The page of a search over chats and what agents said: hits, what they may be narrowed down to, and each in its place."""

import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, Literal

import msgspec

from chatledger.domain.errors import MessageNotFoundError
from chatledger.domain.values import HitCounts, Message, SearchHit
from chatledger.domain.wire import Value

from ...ledger.searching import SearchOrder, Where
from ..http.native.search import Part
from ..http.routing import HttpCall, moment_of
from .page import ExplorerPage

_ROWS: Final = 25
_DEEPEST: Final = 10_000
_COUNTED: Final = 2_000
_OWNERS: Final = 12
_BEFORE: Final = 160
_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}")

Offset = Annotated[int, msgspec.Meta(ge=0, le=_DEEPEST)]
When = Literal["", "today", "week", "older"]
_WHEN: Final[Mapping[str, str]] = {"today": "Today", "week": "This week", "older": "Older"}
_WEEK: Final = timedelta(days=7)
_LABELS: Final[Mapping[str, str]] = {
    "chat": "Chats",
    "thread": "Threads of agents",
    "state": "States of graphs",
    "item": "Items",
}


_SEARCHED: Final[Mapping[str, Where]] = {
    "": "all",
    "chat": "chats",
    "thread": "threads",
    "state": "states",
    "item": "items",
}


class Hit(Value, frozen=True, kw_only=True):
    """
    A message that was found.

    Args:
        branch: A branch that has it, the one seen last of them; None where it is in no chat.
        before: The beginning of the message before it in the chat.
    """

    chat_title: str | None
    branch: str | None
    owner: str | None
    before: str | None
    hit: SearchHit


class FacetOption(Value, frozen=True, kw_only=True):
    """A choice: the value that is sent for it, how it is called, and how many of the counted hits it has."""

    value: str
    label: str
    count: int
    is_set: bool


class Facet(Value, frozen=True, kw_only=True):
    """Something by which hits are told apart: the name that is sent, the title, and the choices."""

    name: str
    title: str
    options: list[FacetOption]


class SearchPage(Value, frozen=True, kw_only=True):
    """
    A page of hits, best first.

    Args:
        next: The offset of those that follow; None where there are no more.
        is_degraded: Whether the search index is being built.
        facets: What the hits may be narrowed down to, with counts over the best 2,000 of the query alone.
        has_more: Whether more than those were found.
        filters: What narrows the hits down, by the names that are sent, as it is called.
        place: The messages around the first hit, where it is in a chat.
    """

    hits: list[Hit]
    next: int | None
    is_degraded: bool
    facets: list[Facet]
    counts: HitCounts
    has_more: bool
    filters: dict[str, str]
    place: list[Message]


def search(
    call: HttpCall,
    *,
    q: str = "",
    where: Literal["", "chat", "thread", "state", "item"] = "",
    chat: str | None = None,
    owner: str | None = None,
    role: list[str] | None = None,
    within: list[Part] | None = None,
    when: When = "",
    active: bool = False,
    since: str | None = None,
    until: str | None = None,
    order: SearchOrder = "best",
    offset: Offset = 0,
) -> SearchPage:
    """Search messages; see docs/reference/search.md. Days are those of UTC, `active` is about chats, `until` a day includes it."""
    parts: list[Part] = within or ["text"]
    roles = list(filter(None, role or ()))
    today = datetime.fromtimestamp(time.time(), UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    begins = today if when == "today" else today - _WEEK if when == "week" else None
    ends = today - _WEEK if when == "older" else None
    hits = call.reader.search(
        q,
        chat_id=chat or None,
        user_id=owner or None,
        where=_SEARCHED[where or ("chat" if chat else "")],
        roles=roles,
        within=parts,
        since=_time(since, "since") or begins,
        until=_time(until, "until", is_end=True) or ends,
        limit=_ROWS + 1,
        offset=offset,
        active_only=active,
        order=order,
    )
    counts = call.reader.count_hits(q, within=parts, limit=_COUNTED) if q else HitCounts()
    shown = _hits_of(call, hits[:_ROWS])
    sent = {"where": where, "role": "".join(roles[:1]), "owner": owner or "", "when": when}
    others = {"active": "Active branches" if active else "", "chat": chat, "since": since, "until": until}
    labels = sent | {"where": _LABELS.get(where), "when": _WHEN.get(when)} | others
    return SearchPage(
        hits=shown,
        next=offset + _ROWS if len(hits) > _ROWS and offset + _ROWS <= _DEEPEST else None,
        is_degraded=hits.is_degraded,
        facets=_facets(counts, sent, today, is_active=active),
        counts=counts,
        has_more=counts.total >= _COUNTED,
        filters={name: label for name, label in labels.items() if label},
        place=_around(call, shown[0].hit.message) if shown and shown[0].hit.place is None else [],
    )


def _hits_of(call: HttpCall, hits: list[SearchHit]) -> list[Hit]:
    chats: dict[str, tuple[str | None, str]] = {}
    shown: list[Hit] = []
    for hit in hits:
        message = hit.message
        if hit.place is not None:
            shown.append(Hit(chat_title=None, branch=None, owner=hit.place.owner, before=None, hit=hit))
            continue
        if message.chat_id not in chats:
            in_chat = call.reader.get_chat(message.chat_id)
            chats[message.chat_id] = (None, "") if in_chat is None else (in_chat.title, in_chat.user_id)
        title, owner = chats[message.chat_id]
        before = None if message.parent_id is None else call.reader.get_message(message.parent_id)
        branch = next(iter(call.reader.branches_of(message.id)), None)
        shown.append(
            Hit(
                chat_title=title,
                branch=None if branch is None else branch.name,
                owner=owner,
                before=None if before is None else " ".join(before.text[:_BEFORE].split()) or None,
                hit=hit,
            )
        )
    return shown


def _facets(counts: HitCounts, sent: Mapping[str, str], today: datetime, *, is_active: bool) -> list[Facet]:
    """Return what may be chosen, the most frequent first where it has no order of its own."""
    if not counts.total:
        return []
    ages: dict[str, int] = dict.fromkeys(_WHEN, 0)
    for day, count in counts.days.items():
        written = datetime.fromisoformat(day).replace(tzinfo=UTC)
        ages["today"] += count if written >= today else 0
        ages["week" if written >= today - _WEEK else "older"] += count
    owners = dict(sorted(counts.owners.items(), key=lambda item: -item[1])[:_OWNERS])
    choices: list[tuple[str, str, str, Mapping[str, int], Mapping[str, str]]] = [
        ("where", "Where", "Everything", {kind: counts.where.get(kind, 0) for kind in _LABELS}, _LABELS),
        ("role", "Who said it", "Anybody", dict(sorted(counts.roles.items(), key=lambda item: -item[1])), {}),
        ("owner", "Owner", "Everybody's", {name: count for name, count in owners.items() if name}, {}),
        ("when", "When", "Any time", ages, _WHEN),
    ]
    facets = [
        Facet(
            name=name,
            title=title,
            options=[
                FacetOption(value="", label=every, count=counts.total, is_set=not sent[name]),
                *(
                    FacetOption(value=value, label=labels.get(value, value), count=count, is_set=sent[name] == value)
                    for value, count in of_values.items()
                    if count or sent[name] == value
                ),
            ],
        )
        for name, title, every, of_values, labels in choices
    ]
    branches = [
        FacetOption(value="", label="All branches", count=counts.total, is_set=not is_active),
        FacetOption(value="true", label="Active only", count=counts.active, is_set=is_active),
    ]
    return [*facets, Facet(name="active", title="Branches", options=branches)]


class InPlace(Value, frozen=True, kw_only=True):
    """A message of a chat with the one before it and the newest answer to it."""

    message: Message
    messages: list[Message]


def in_place(call: HttpCall, *, m: str) -> InPlace:
    """Show a message of a chat in its place."""
    message = call.reader.get_message(m)
    if message is None:
        raise MessageNotFoundError(m)
    return InPlace(message=message, messages=_around(call, message))


def _around(call: HttpCall, message: Message) -> list[Message]:
    before = None if message.parent_id is None else call.reader.get_message(message.parent_id)
    after = call.reader.children(message.id)[-1:]
    return [*([] if before is None else [before]), message, *after]


def _time(text: str | None, name: str, *, is_end: bool = False) -> Any:
    """The time that a field of the form names: a day in UTC, which ends at its end, or what the API takes."""
    if not text:
        return None
    if not _DAY.fullmatch(text):
        return moment_of(text, name)
    try:
        day = datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        return moment_of(text, name)
    return day + timedelta(days=1) if is_end else day


PAGES: Final = (
    ExplorerPage("/search", search, "search.html", title="Search"),
    ExplorerPage("/search/place", in_place, "place.html"),
)
