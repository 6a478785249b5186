"""The page of a search over all chats."""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

import msgspec

from chatledger.domain.values import SearchHit
from chatledger.domain.wire import Value

from ..http.native.search import Part
from ..http.routing import HttpCall, moment_of
from .page import ExplorerPage

_ROWS: Final = 25
_DEEPEST: Final = 10_000
_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}")

Offset = Annotated[int, msgspec.Meta(ge=0, le=_DEEPEST)]


class Hit(Value, frozen=True, kw_only=True):
    """A message that was found, and the title of its chat."""

    chat_title: str | None
    hit: SearchHit


class SearchPage(Value, frozen=True, kw_only=True):
    """Hits, best first, and the offset of those that follow; None where there are no more."""

    hits: list[Hit]
    next: int | None
    is_degraded: bool


def search(
    call: HttpCall,
    *,
    q: str = "",
    chat: str | None = None,
    owner: str | None = None,
    role: list[str] | None = None,
    within: list[Part] | None = None,
    since: str | None = None,
    until: str | None = None,
    offset: Offset = 0,
) -> SearchPage:
    """
    Search messages; see docs/reference/search.md.

    Args:
        call: The request.
        q: The query.
        chat: Only in this chat.
        owner: Only in the chats of this owner.
        role: Only messages of these roles.
        within: What is searched of each message; its text when None.
        since: Only messages of this day or time and later.
        until: Only messages of this day and earlier, or before this time.
        offset: How many hits to leave out.
    """
    parts: list[Part] = within or ["text"]
    hits = call.reader.search(
        q,
        chat_id=chat or None,
        user_id=owner or None,
        roles=[name for name in role or () if name],
        within=parts,
        since=_time(since, "since"),
        until=_time(until, "until", is_end=True),
        limit=_ROWS + 1,
        offset=offset,
    )
    titles: dict[str, str | None] = {}
    for hit in hits[:_ROWS]:
        chat_id = hit.message.chat_id
        if chat_id not in titles:
            in_chat = call.reader.get_chat(chat_id)
            titles[chat_id] = None if in_chat is None else in_chat.title
    has_more = len(hits) > _ROWS and offset + _ROWS <= _DEEPEST
    return SearchPage(
        hits=[Hit(chat_title=titles[hit.message.chat_id], hit=hit) for hit in hits[:_ROWS]],
        next=offset + _ROWS if has_more else None,
        is_degraded=hits.is_degraded,
    )


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


PAGES: Final = (ExplorerPage("/search", search, "search.html", title="Search"),)
