"""Finding messages by their words: the checked arguments of a search, and what it looks at."""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

from chatledger.domain.errors import AccessDeniedError, BranchNotFoundError, InvalidValueError
from chatledger.domain.limits import sought_id
from chatledger.domain.search.fields import TEXT, SearchField, field_text
from chatledger.domain.values import HitCounts, SearchHit, SearchHits
from chatledger.domain.versioned.keys import ITEM, STATE, THREAD, Family
from chatledger.projections.chat.reader import IndexedChat
from chatledger.projections.log.kinds import THREADS
from chatledger.projections.versioned.messages import OF_AGENTS, count_all, kind_of, segments_of

from ..log.envelope import clock_ms
from ..store.commands import NO_CHATS, ChatsToRead
from .port import LedgerSnapshot, StorePort

if TYPE_CHECKING:
    from chatledger.domain.search.query import Query
    from chatledger.projections.search.search import Scope, SearchQuestion, WordHit, WordHits


Where = Literal["all", "chats", "agents", "threads", "states", "items"]
WHERE: Final[tuple[Where, ...]] = ("all", "chats", "agents", "threads", "states", "items")
"""The parts that a search may look at: everything, only chats, what agents said in threads, states and items, or in one of these."""
SearchOrder = Literal["best", "newest", "oldest"]
ORDERS: Final[tuple[SearchOrder, ...]] = ("best", "newest", "oldest")
_FAMILIES: Final[dict[Where, Family]] = {"threads": THREAD, "states": STATE, "items": ITEM}


class SearchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of a search, checked; see `SearchMethods.search`. With a chat or a thread, `where` says so."""

    text: str
    chat_id: str | None = None
    thread_id: str | None = None
    user_id: str | None = None
    where: Where = "all"
    roles: frozenset[str] | None = None
    branch: str | None = None
    fields: Sequence[SearchField] = (TEXT,)
    since: int | None = None
    until: int | None = None
    limit: int | None = None
    offset: int = 0
    include_hidden: bool = False
    is_active_only: bool = False
    order: SearchOrder = "best"

    @property
    def is_of_agents(self) -> bool:
        return self.where not in {"all", "chats"}

    @property
    def chats(self) -> ChatsToRead:
        if self.is_of_agents:
            return NO_CHATS
        if self.chat_id is None:
            return ChatsToRead(are_searched=True, user_id=self.user_id)
        return ChatsToRead(self.chat_id)


class Searched(NamedTuple):
    """
    What a search looks at, in one snapshot.

    Args:
        chat: The only chat, when it was named.
        chats: The numbers of chats; None for all messages that there are.
        values: Those of the messages of threads, states and items, as far as they are listed.
        runs: The runs of the branch that was named, if it was.
    """

    chat: IndexedChat | None
    chats: list[int] | None
    values: list[int]
    runs: dict[int, int] | None = None

    @property
    def numbers(self) -> list[int] | None:
        return None if self.chats is None else self.chats + self.values


def searched_by(snapshot: LedgerSnapshot, request: SearchRequest) -> Searched:
    """Return what a search looks at. Raises `BranchNotFoundError`."""
    if request.thread_id is not None:
        with suppress(InvalidValueError):  # no thread has an id that breaks a rule
            thread = snapshot.live.stream(THREADS, request.thread_id)
            if thread.record is not None and request.user_id in {None, thread.owner}:
                return Searched(None, [], [thread.record.messages_no])
        return Searched(None, [], [])
    if request.chat_id is None:
        chats = [] if request.is_of_agents else snapshot.searched_chats(user_id=request.user_id)
        if request.user_id is None and snapshot.user_id is None and snapshot.until is None:
            return Searched(None, None, [])
        return Searched(
            None, chats, [] if request.where == "chats" else snapshot.searched_values(user_id=request.user_id)
        )
    chat = snapshot.chat(request.chat_id)
    is_meant = request.user_id is None or (chat.profile is not None and chat.profile.user_id == request.user_id)
    if chat.chat_no is None or not is_meant:
        return Searched(chat, [], [])
    if request.branch is None:
        return Searched(chat, [chat.chat_no], [])
    row = chat.branch_record(sought_id(request.branch, "branch"))
    if row is None:
        raise BranchNotFoundError(chat.chat_id, request.branch)
    return Searched(chat, [chat.chat_no], [], {} if row.place is None else chat.chains.runs(row.place))


def search_words(store: StorePort, request: SearchRequest) -> SearchHits:
    # NumPy and the patterns of words take a tenth of a second to import: only programs that search pay for it.
    from chatledger.domain.search.query import parse

    parsed = parse(request.text)
    _settle(store, request)
    with store.snapshot(request.chats) as snapshot:
        searched = searched_by(snapshot, request)
        if parsed is None or request.limit == 0 or searched.numbers == []:
            return SearchHits()
        answer = answer_of(snapshot, searched, request, parsed)
    if not answer.hits:
        return SearchHits(is_degraded=answer.is_degraded)
    return SearchHits(list(map(hit_of, answer.hits)), is_degraded=answer.is_degraded)


def answer_of(snapshot: LedgerSnapshot, searched: Searched, request: SearchRequest, query: "Query") -> "WordHits":
    """Return the best messages with the words of a query, without their snippets."""
    from chatledger.projections.search import search

    scopes = _scopes_of(snapshot, searched, request)
    if len(scopes) == 1:
        return search.ask(scopes[0], _question_of(snapshot, searched, request, query))
    end = None if request.limit is None else request.offset + request.limit
    question = msgspec.structs.replace(_question_of(snapshot, searched, request, query), limit=end, offset=0)
    answers = [search.ask(scope, question) for scope in scopes]
    hits = (hit for answer in answers for hit in answer.hits)
    if request.order != "best":
        merged = sorted(hits, key=lambda hit: hit.message.created_at, reverse=request.order == "newest")
    else:
        merged = sorted(hits, key=lambda hit: hit.rank or 0.0)
    return search.WordHits(merged[request.offset : end], any(answer.is_degraded for answer in answers))


def _scopes_of(snapshot: LedgerSnapshot, searched: Searched, request: SearchRequest) -> "list[Scope]":
    """Return what is searched; chats as they were may lie in another index than the versions of threads, states and items."""
    from chatledger.projections.search.search import Moment, Scope

    position, time = snapshot.until or (None, None)
    moment = Moment(clock_ms(), position, time, snapshot.live.refuse)

    def scope(index: LedgerSnapshot, numbers: list[int] | None) -> Scope:
        return Scope(index.txn, index.tables, numbers, request.fields, searched.chat, moment)

    if snapshot.until is None or not searched.values:
        return [scope(snapshot, searched.numbers)]
    of_chats = [scope(snapshot, searched.chats)] if searched.chats else []
    return [scope(snapshot.live, searched.values), *of_chats]


def _question_of(
    snapshot: LedgerSnapshot, searched: Searched, request: SearchRequest, query: "Query"
) -> "SearchQuestion":
    from chatledger.projections.search.evaluation import Filter
    from chatledger.projections.search.search import SearchQuestion

    segments: tuple[int, int] | None = None
    if request.where in _FAMILIES or (request.where == "agents" and searched.chats is None):
        segments = segments_of(_FAMILIES.get(request.where))
    elif request.where == "chats" and searched.chats is None and count_all(snapshot.txn, snapshot.tables):
        segments = 0, OF_AGENTS  # chats are told from the rest only where there is anything else
    return SearchQuestion(
        query=query,
        text=request.text,
        only=Filter(
            roles=request.roles, since=request.since, until=request.until, runs=searched.runs, segments=segments
        ),
        limit=request.limit,
        offset=request.offset,
        include_hidden=request.include_hidden,
        is_active_only=request.is_active_only,
        time_order={"best": 0, "newest": 1, "oldest": -1}[request.order],
    )


def count_hits(store: StorePort, request: SearchRequest) -> HitCounts:
    """Count the best messages with the words of a query, at most as many as the request's limit."""
    from chatledger.domain.search.query import parse
    from chatledger.projections.search import search
    from chatledger.projections.search.search import nearest_query

    parsed = parse(request.text)
    _settle(store, request)
    with store.snapshot(request.chats) as snapshot:
        searched = searched_by(snapshot, request)
        if parsed is None or searched.numbers == []:
            return HitCounts()
        question = _question_of(snapshot, searched, request, parsed)
        owners: Counter[str] = Counter()
        facts: list[search.HitFacts] = []
        nearest: str | None = None
        for scope in _scopes_of(snapshot, searched, request):
            of_scope = search.facts(scope, question)
            for number, count in Counter(fact.number for fact in of_scope).items():
                owners[scope.owner(number) or ""] += count
            facts += of_scope
            nearest = nearest or (None if of_scope else nearest_query(scope, request.text))
    days = Counter(datetime.fromtimestamp(fact.created_at / 1000, UTC).date().isoformat() for fact in facts)
    return HitCounts(
        total=len(facts),
        where=dict(Counter(kind_of(fact.segment) for fact in facts)),
        roles=dict(Counter(fact.role for fact in facts)),
        owners=dict(owners),
        days=dict(days),
        streams=len({fact.number for fact in facts}),
        active=sum(fact.is_active for fact in facts),
        nearest=None if facts else nearest,
    )


def _settle(store: StorePort, request: SearchRequest) -> None:
    """Have the writes of tasks stored that wait to be."""
    if request.where != "chats":
        with suppress(AccessDeniedError):  # of a store of an earlier moment, in which nothing waits
            store.task_writes.settle(request.thread_id)


def hit_of(hit: "WordHit") -> SearchHit:
    """Return a message that was found by its words, as it is shown."""
    from chatledger.domain.search.snippets import literal_snippet, snippet_of

    message, field = hit.message, hit.field
    text = field_text(message, field)
    if hit.rank is None or hit.known is None:
        return SearchHit(message=message, rank=0.0, snippet=literal_snippet(text), within=field, place=hit.place)
    try:
        snippet, matches = snippet_of(text, hit.known)
    except IndexError as error:  # the index knows of words that the text has not
        from chatledger.projections.search.blocks import damaged

        raise damaged() from error
    return SearchHit(message=message, rank=hit.rank, snippet=snippet, matches=matches, within=field, place=hit.place)
