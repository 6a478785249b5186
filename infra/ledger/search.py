"""Search: finding messages by their words; by their meaning see `meaning`."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import msgspec

from chatledger.domain.errors import BranchNotFoundError, InvalidValueError
from chatledger.domain.limits import check_count, sought_id
from chatledger.domain.search.embedding import MODES, Embedding, SearchMode, check_embedding
from chatledger.domain.search.fields import FIELDS, TEXT, SearchField, field_text
from chatledger.domain.values import SearchHit, SearchHits
from chatledger.projections.chat.reader import IndexedChat
from chatledger.projections.lmdb.system_errors import system_errors

from ..store.commands import ChatsToRead
from .expiry import bound_ms
from .port import LedgerPart, LedgerSnapshot, LedgerStore

if TYPE_CHECKING:
    from chatledger.domain.search.snippets import Snippets
    from chatledger.projections.search.search import Found

DEFAULT_LIMIT = 20
_DEFAULT_FIELDS: Final[tuple[SearchField, ...]] = (TEXT,)


class SearchMethods(LedgerPart):
    """The part of a ledger that searches."""

    @system_errors("searching")
    def search(
        self,
        query: str,
        *,
        chat_id: str | None = None,
        user_id: str | None = None,
        roles: Collection[str] | None = None,
        branch: str | None = None,
        within: Collection[SearchField] = (TEXT,),
        since: int | datetime | None = None,
        until: int | datetime | None = None,
        limit: int | None = DEFAULT_LIMIT,
        offset: int = 0,
        include_hidden: bool = False,
        mode: SearchMode = "words",
        embed: Embedding | None = None,
    ) -> SearchHits:
        """
        Find messages by their words, their meaning or both, best first; of equally good ones the newest first.

        A message that was written a moment ago is found by its words. What is searched by default is its text (`Message.text`): no
        keys, ids or JSON, and of a UIMessage no tools and no reasoning.

        Args:
            query: Words, of which all must occur; `AND`, `OR`, `NOT`, `"phrases"`, `prefix*` and parentheses. Everything else is
                read as words, so any text is a query; see docs/reference/search.md. Without a letter or digit it
                finds nothing.
            chat_id: Only in this chat; an unknown one has no messages.
            user_id: Only in the chats of this owner. Other chats have no influence on what is found, nor on ranks.
            roles: Only messages of these names; all when None or empty.
            branch: Only messages on the chain of this branch of `chat_id`.
            within: What is searched of each message, one or more of `"text"`, `"tools"` (strings and numbers in the inputs and
                outputs of tool parts, and their errors) and `"reasoning"`. A phrase matches inside one of them; words may
                be spread over those that are given.
            since: Only messages created at or after this time: ms since the epoch, or an aware datetime.
            until: Only messages created before this time; ms or an aware datetime, too.
            limit: At most this many; all when None.
            offset: How many of the best to leave out, for paging.
            include_hidden: Also messages that are hidden or replaced; see docs/reference/annotations.md.
            mode: With `"meaning"` the messages whose text is nearest to the query by an embedding, whatever words they have; messages
                without vectors yet are not found, see `SearchHits.pending`. With `"both"` those and the ones with
                the words, merged by reciprocal rank fusion.
            embed: The embedding for a search by meaning; that with which the ledger was opened when None. Only messages are
                found that a ledger that was opened with it has embedded.

        Returns:
            The hits, each with its message, rank (BM25 over the searched chats; lower is better) and snippet. `is_degraded`
            when the search index was being built.

        Raises:
            BranchNotFoundError: The chat has no such branch.
            ConfigurationError: A search by meaning, and there is no embedding.
            EmbeddingError: A search by meaning, and the function of the embedding failed on the query.
            InvalidValueError: An argument breaks a rule.

        Source: the LMDB index at `position`; the log is not read.
        """
        text = _check_query(query)
        chat_id, user_id = _sought_scope(chat_id, user_id, branch)
        if limit is not None:
            check_count(limit, "limit")
        check_count(offset, "offset")
        names, fields = _check_roles(roles), _check_within(within)
        times = [
            None if given is None else bound_ms(given, what, up=True)
            for given, what in ((since, "since"), (until, "until"))
        ]
        asked = Asked(
            text=text,
            chat_id=chat_id,
            user_id=user_id,
            roles=names,
            branch=branch,
            fields=fields,
            since=times[0],
            until=times[1],
            limit=limit,
            offset=offset,
            include_hidden=include_hidden,
        )
        if _check_mode(mode) == "words":
            return search_words(self._store, asked)
        from .meaning import search_meaning

        return search_meaning(self._store, asked, mode, check_embedding(embed))

    def embed_pending(self, *, timeout_s: float = 60.0) -> int:
        """
        Wait until the messages that there are now have vectors, so that searches by meaning find them.

        Returns:
            How many of them have none when the time is over; 0 when all are embedded. Those are counted, too, whose text the
            function refuses.

        Raises:
            ConfigurationError: The ledger was opened without an embedding.
        """
        from .meaning import await_vectors

        return await_vectors(self._store, timeout_s)


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of a search, checked; see `SearchMethods.search`."""

    text: str
    chat_id: str | None
    user_id: str | None
    roles: frozenset[str] | None
    branch: str | None
    fields: Sequence[SearchField]
    since: int | None
    until: int | None
    limit: int | None
    offset: int
    include_hidden: bool

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


def searched_by(snapshot: LedgerSnapshot, asked: Asked) -> Searched:
    """Return the chats that a search looks at. Raises `BranchNotFoundError`."""
    chat = None if asked.chat_id is None else snapshot.chat(asked.chat_id)
    chat_nos = _chat_nos(snapshot, chat, asked.user_id)
    runs = None
    if asked.branch is not None and chat is not None and chat_nos:
        runs = _runs_of(chat, asked.branch)
    return Searched(chat, chat_nos, runs)


def search_words(store: LedgerStore, asked: Asked) -> SearchHits:
    """Find messages by their words."""
    # NumPy and the patterns of words take a tenth of a second to import: only for those who search.
    from chatledger.domain.search.query import parse
    from chatledger.domain.search.snippets import Snippets
    from chatledger.projections.search import search
    from chatledger.projections.search.ranking import Filter

    parsed = parse(asked.text)
    with store.snapshot(asked.chats) as snapshot:
        searched = searched_by(snapshot, asked)
        only = Filter(roles=asked.roles, since=asked.since, until=asked.until, runs=searched.runs)
        if parsed is None or asked.limit == 0 or searched.chat_nos == []:
            return SearchHits()
        scope = search.Scope(snapshot.txn, snapshot.tables, searched.chat_nos, asked.fields, searched.chat)
        answer = search.ask(
            scope,
            parsed,
            asked.text,
            only=only,
            limit=asked.limit,
            offset=asked.offset,
            include_hidden=asked.include_hidden,
        )
    if not answer.found:
        return SearchHits(is_degraded=answer.is_degraded)
    snippets = Snippets(parsed)
    hits = [hit_of(snippets, one) for one in answer.found]
    return SearchHits(hits, is_degraded=answer.is_degraded)


def hit_of(snippets: "Snippets", found: "Found") -> SearchHit:
    """Return a message that was found by its words, as it is shown."""
    message, field = found.message, found.field
    text = field_text(message, field)
    if found.rank is None:
        from chatledger.domain.search.snippets import literal_snippet

        return SearchHit(message=message, rank=0.0, snippet=literal_snippet(text), within=field)
    try:
        snippet = snippets.of(text, found.known)
    except IndexError as error:  # the index knows of words that the text has not
        from chatledger.projections.search.blocks import damaged

        raise damaged() from error
    return SearchHit(message=message, rank=found.rank, snippet=snippet, within=field)


def _chat_nos(snapshot: LedgerSnapshot, chat: IndexedChat | None, user_id: str | None) -> list[int] | None:
    """The numbers of the chats to search; None: all that the index has."""
    if chat is None:
        return snapshot.searched_chats(user_id=user_id)
    if chat.chat_no is None:
        return []
    is_meant = user_id is None or (chat.profile is not None and chat.profile.user_id == user_id)
    return [chat.chat_no] if is_meant else []


def _runs_of(chat: IndexedChat, name: str) -> dict[int, int]:
    row = chat.branch_row(sought_id(name, "branch"))
    if row is None:
        raise BranchNotFoundError(chat.chat_id, name)
    return {} if row.place is None else chat.chains.runs(row.place)


def _sought_scope(chat_id: str | None, user_id: str | None, branch: str | None) -> tuple[str | None, str | None]:
    if branch is not None and chat_id is None:
        msg = "a branch is one of a chat: give chat_id too"
        raise InvalidValueError(msg)
    return (
        None if chat_id is None else sought_id(chat_id, "chat_id"),
        None if user_id is None else sought_id(user_id, "user_id", empty=True),
    )


def _check_query(query: object) -> str:
    if not isinstance(query, str):
        msg = f"a query must be text, not {type(query).__name__}"
        raise InvalidValueError(msg)
    return query


def _check_roles(roles: object) -> frozenset[str] | None:
    if roles is None:
        return None
    if isinstance(roles, str) or not isinstance(roles, Collection):
        msg = f"roles must be a list of names, not {type(roles).__name__}"
        raise InvalidValueError(msg)
    return frozenset(sought_id(role, "a role") for role in cast("Collection[object]", roles)) or None


def _check_within(within: object) -> Sequence[SearchField]:
    if within == _DEFAULT_FIELDS:
        return _DEFAULT_FIELDS
    if isinstance(within, str) or not isinstance(within, Collection):
        msg = f"within must be a list of fields, such as ['text', 'tools'], not {type(within).__name__}"
        raise InvalidValueError(msg)
    wanted = list(cast("Collection[object]", within))
    if not wanted or any(one not in FIELDS for one in wanted):
        msg = f"within must name one or more of {', '.join(map(repr, FIELDS))}, not {wanted!r}"
        raise InvalidValueError(msg)
    return [field for field in FIELDS if field in wanted]


def _check_mode(mode: object) -> SearchMode:
    if mode not in MODES:
        msg = f"mode must be one of {', '.join(map(repr, MODES))}, not {mode!r}"
        raise InvalidValueError(msg)
    return mode
