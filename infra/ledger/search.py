"""Search: the methods of a ledger. `searching` finds messages by their words, `meaning` by their meaning."""

from collections.abc import Collection, Sequence
from typing import Final, cast

from chatledger.domain.errors import InvalidValueError
from chatledger.domain.limits import check_count, sought_id
from chatledger.domain.moments import Moment
from chatledger.domain.search.embedding import MODES, Embedding, SearchMode, check_embedding
from chatledger.domain.search.fields import FIELDS, TEXT, SearchField
from chatledger.domain.values import HitCounts, SearchHits
from chatledger.projections.lmdb.system_errors import system_errors

from .expiry import bound_ms
from .port import LedgerPart
from .searching import ORDERS, WHERE, SearchOrder, SearchRequest, Where, count_hits, search_words

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
        thread_id: str | None = None,
        user_id: str | None = None,
        where: Where = "all",
        roles: Collection[str] | None = None,
        branch: str | None = None,
        within: Collection[SearchField] = (TEXT,),
        since: Moment | None = None,
        until: Moment | None = None,
        limit: int | None = DEFAULT_LIMIT,
        offset: int = 0,
        include_hidden: bool = False,
        active_only: bool = False,
        order: SearchOrder = "best",
        mode: SearchMode = "words",
        embed: Embedding | None = None,
    ) -> SearchHits:
        """
        Find messages by their words, their meaning or both, best first; of equally good ones the newest first.

        A message that was written a moment ago is found by its words. What is searched by default is its text (`Message.text`): no
        keys, ids or JSON, and of a UIMessage no tools and no reasoning.

        Messages of threads, states and items are found too, each once, in the version that had it first: those of LangChain and
        objects with `role` and `content`, in the values as the default serializers write them. `SearchHit.place` says where.

        Args:
            query: Words, which must all occur; `AND`, `OR`, `NOT`, `"phrases"`, `prefix*` and parentheses. Everything else is
                read as words, so any text is a query; see docs/reference/search.md. Without a letter or digit it
                finds nothing.
            chat_id: Only in this chat; an unknown one has no messages.
            thread_id: Only in this thread of agents; an unknown one has no messages.
            user_id: Only in the chats, threads, states and items of this owner. Others have no influence on what is found, nor on
                ranks.
            where: Only in `"chats"`, or only in what `"agents"` said; in their `"threads"`, `"states"` or `"items"` alone.
            roles: Only messages of these names; all when None or empty.
            branch: Only messages on the chain of this branch of `chat_id`.
            within: What is searched of each message, one or more of `"text"`, `"tools"` (strings and numbers in the inputs and
                outputs of tool parts, and their errors) and `"reasoning"`. A phrase matches inside one of them; words may
                be spread over those that are given.
            since: Only messages created at or after this time: ms since the epoch, an aware datetime, or a text such as `yesterday`, `7d` or ISO 8601.
            until: Only messages created before this time, given likewise.
            limit: At most this many; all when None.
            offset: How many of the best to leave out, for paging.
            include_hidden: Also messages that are hidden or replaced; see docs/reference/annotations.md.
            active_only: Of chats only messages on the active branch.
            order: With `"newest"` or `"oldest"` those that match are given in the order of time, from that end: who said it first.
            mode: With `"meaning"` the messages of chats whose text is nearest to the query by an embedding, whatever words they have; messages
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
        _check_query(query)
        if branch is not None and chat_id is None:
            msg = "a branch is one of a chat: give chat_id too"
            raise InvalidValueError(msg)
        where = _check_where(where, chat_id, thread_id, mode)
        _check_order(order, mode, active_only=active_only)
        check_count(offset, "offset")
        request = SearchRequest(
            text=query,
            chat_id=None if chat_id is None else sought_id(chat_id, "chat_id"),
            thread_id=None if thread_id is None else sought_id(thread_id, "thread_id"),
            user_id=None if user_id is None else sought_id(user_id, "user_id", empty=True),
            where=where,
            roles=_check_roles(roles),
            branch=branch,
            fields=_check_within(within),
            since=None if since is None else bound_ms(since, "since", up=True),
            until=None if until is None else bound_ms(until, "until", up=True),
            limit=None if limit is None else check_count(limit, "limit"),
            offset=offset,
            include_hidden=include_hidden,
            is_active_only=active_only,
            order=order,
        )
        if mode == "words":
            return search_words(self._store, request)
        from .meaning import search_meaning

        return search_meaning(self._store, request, mode, check_embedding(embed))

    @system_errors("searching")
    def count_hits(
        self, query: str, *, user_id: str | None = None, within: Collection[SearchField] = (TEXT,), limit: int = 2_000
    ) -> HitCounts:
        """
        Count what a search by words finds: where it is, by whom and when, for those who want to narrow it down.

        No message is read for it. A message that the search index does not have yet is not counted.

        Args:
            query: As for `search`.
            user_id: Only in what belongs to this owner.
            within: What is searched of each message.
            limit: So many of the best hits are looked at. A `total` of as many says that there may be more.

        Raises:
            InvalidValueError: An argument breaks a rule.
        """
        _check_query(query)
        check_count(limit, "limit")
        user_id = None if user_id is None else sought_id(user_id, "user_id", empty=True)
        request = SearchRequest(text=query, user_id=user_id, fields=_check_within(within), limit=limit)
        return count_hits(self._store, request)

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


def _check_where(where: Where, chat_id: object, thread_id: object, mode: SearchMode) -> Where:
    """Return what is looked at; only chats are, where one is named, or the search is not by words."""
    if mode not in MODES:
        msg = f"mode must be one of {', '.join(map(repr, MODES))}, not {mode!r}"
        raise InvalidValueError(msg)
    if where not in WHERE:
        msg = f"where must be one of {', '.join(map(repr, WHERE))}, not {where!r}"
        raise InvalidValueError(msg)
    is_of_chats = chat_id is not None or mode != "words"
    if thread_id is None and where in {"all", "chats"}:
        return "chats" if is_of_chats else where
    if is_of_chats or (thread_id is not None and where not in {"all", "agents", "threads"}):
        msg = "threads, states and items are searched by words, and not in a chat: give no chat_id and no other mode or where"
        raise InvalidValueError(msg)
    return where if thread_id is None else "agents"


def _check_query(query: object) -> None:
    if not isinstance(query, str):
        msg = f"a query must be text, not {type(query).__name__}"
        raise InvalidValueError(msg)


def _check_order(order: object, mode: SearchMode, *, active_only: bool) -> None:
    if order not in ORDERS or (mode != "words" and (active_only or order != "best")):
        msg = f"order must be 'best', 'newest' or 'oldest', not {order!r}; by meaning there is neither another order nor active_only"
        raise InvalidValueError(msg)


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
    if not wanted or any(field not in FIELDS for field in wanted):
        msg = f"within must name one or more of {', '.join(map(repr, FIELDS))}, not {wanted!r}"
        raise InvalidValueError(msg)
    return [field for field in FIELDS if field in wanted]
