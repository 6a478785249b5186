"""Search: the methods of a ledger. `searching` finds messages by their words, `meaning` by their meaning."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Final, cast

from chatledger.domain.errors import InvalidValueError
from chatledger.domain.limits import check_count, sought_id
from chatledger.domain.search.embedding import MODES, Embedding, SearchMode, check_embedding
from chatledger.domain.search.fields import FIELDS, TEXT, SearchField
from chatledger.domain.values import SearchHits
from chatledger.projections.lmdb.system_errors import system_errors

from .expiry import bound_ms
from .port import LedgerPart
from .searching import SearchRequest, search_words

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
            query: Words, which must all occur; `AND`, `OR`, `NOT`, `"phrases"`, `prefix*` and parentheses. Everything else is
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
        if not isinstance(query, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # users'
            msg = f"a query must be text, not {type(query).__name__}"
            raise InvalidValueError(msg)
        if branch is not None and chat_id is None:
            msg = "a branch is one of a chat: give chat_id too"
            raise InvalidValueError(msg)
        if limit is not None:
            check_count(limit, "limit")
        check_count(offset, "offset")
        request = SearchRequest(
            text=query,
            chat_id=None if chat_id is None else sought_id(chat_id, "chat_id"),
            user_id=None if user_id is None else sought_id(user_id, "user_id", empty=True),
            roles=_check_roles(roles),
            branch=branch,
            fields=_check_within(within),
            since=None if since is None else bound_ms(since, "since", up=True),
            until=None if until is None else bound_ms(until, "until", up=True),
            limit=limit,
            offset=offset,
            include_hidden=include_hidden,
        )
        if mode not in MODES:
            msg = f"mode must be one of {', '.join(map(repr, MODES))}, not {mode!r}"
            raise InvalidValueError(msg)
        if mode == "words":
            return search_words(self._store, request)
        from .meaning import search_meaning

        return search_meaning(self._store, request, mode, check_embedding(embed))

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
