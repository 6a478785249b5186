"""Finding messages by their words: the checked arguments of a search, and the chats that it looks at."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from chatledger.domain.errors import BranchNotFoundError
from chatledger.domain.limits import sought_id
from chatledger.domain.search.fields import TEXT, SearchField, field_text
from chatledger.domain.values import SearchHit, SearchHits
from chatledger.projections.chat.reader import IndexedChat

from ..store.commands import ChatsToRead
from .port import LedgerSnapshot, StorePort

if TYPE_CHECKING:
    from chatledger.domain.search.snippets import Snippets
    from chatledger.projections.search.search import WordHit


class SearchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of a search, checked; see `SearchMethods.search`."""

    text: str
    chat_id: str | None = None
    user_id: str | None = None
    roles: frozenset[str] | None = None
    branch: str | None = None
    fields: Sequence[SearchField] = (TEXT,)
    since: int | None = None
    until: int | None = None
    limit: int | None = None
    offset: int = 0
    include_hidden: bool = False

    @property
    def chats(self) -> ChatsToRead:
        """The chats that it reads."""
        if self.chat_id is None:
            return ChatsToRead(are_searched=True, user_id=self.user_id)
        return ChatsToRead(self.chat_id)


class Searched(NamedTuple):
    """
    The chats that a search looks at, in one snapshot.

    Args:
        chat: The only one, when it was named.
        chat_nos: Their numbers; None for all that there are.
        runs: The runs of the branch that was named, if it was.
    """

    chat: IndexedChat | None
    chat_nos: list[int] | None
    runs: dict[int, int] | None


def searched_by(snapshot: LedgerSnapshot, request: SearchRequest) -> Searched:
    """Return the chats that a search looks at. Raises `BranchNotFoundError`."""
    if request.chat_id is None:
        return Searched(None, snapshot.searched_chats(user_id=request.user_id), None)
    chat = snapshot.chat(request.chat_id)
    is_meant = request.user_id is None or (chat.profile is not None and chat.profile.user_id == request.user_id)
    if chat.chat_no is None or not is_meant:
        return Searched(chat, [], None)
    if request.branch is None:
        return Searched(chat, [chat.chat_no], None)
    row = chat.branch_row(sought_id(request.branch, "branch"))
    if row is None:
        raise BranchNotFoundError(chat.chat_id, request.branch)
    return Searched(chat, [chat.chat_no], {} if row.place is None else chat.chains.runs(row.place))


def search_words(store: StorePort, request: SearchRequest) -> SearchHits:
    """Find messages by their words."""
    # NumPy and the patterns of words take a tenth of a second to import: only programs that search pay for it.
    from chatledger.domain.search.query import parse
    from chatledger.domain.search.snippets import Snippets
    from chatledger.projections.search import search
    from chatledger.projections.search.evaluation import Filter

    parsed = parse(request.text)
    with store.snapshot(request.chats) as snapshot:
        searched = searched_by(snapshot, request)
        only = Filter(roles=request.roles, since=request.since, until=request.until, runs=searched.runs)
        if parsed is None or request.limit == 0 or searched.chat_nos == []:
            return SearchHits()
        scope = search.Scope(snapshot.txn, snapshot.tables, searched.chat_nos, request.fields, searched.chat)
        answer = search.ask(
            scope,
            parsed,
            request.text,
            only=only,
            limit=request.limit,
            offset=request.offset,
            include_hidden=request.include_hidden,
        )
    if not answer.hits:
        return SearchHits(is_degraded=answer.is_degraded)
    snippets = Snippets(parsed)
    hits = [hit_of(snippets, hit) for hit in answer.hits]
    return SearchHits(hits, is_degraded=answer.is_degraded)


def hit_of(snippets: "Snippets", hit: "WordHit") -> SearchHit:
    """Return a message that was found by its words, as it is shown."""
    message, field = hit.message, hit.field
    text = field_text(message, field)
    if hit.rank is None:
        from chatledger.domain.search.snippets import literal_snippet

        return SearchHit(message=message, rank=0.0, snippet=literal_snippet(text), within=field)
    try:
        snippet = snippets.of(text, hit.known)
    except IndexError as error:  # the index knows of words that the text has not
        from chatledger.projections.search.blocks import damaged

        raise damaged() from error
    return SearchHit(message=message, rank=hit.rank, snippet=snippet, within=field)
