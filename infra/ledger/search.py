"""Search: finding messages by their words."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final, cast

import msgspec

from chatledger.domain.errors import BranchNotFoundError, InvalidValueError
from chatledger.domain.limits import check_count, sought_id
from chatledger.domain.search.fields import FIELDS, TEXT, SearchField, field_text
from chatledger.domain.values import SearchHit, SearchHits
from chatledger.projections.chat.reader import IndexedChat
from chatledger.projections.lmdb.system_errors import system_errors

from ..store.commands import ChatsToRead
from .expiry import bound_ms
from .port import LedgerPart, LedgerSnapshot

if TYPE_CHECKING:
    from chatledger.domain.search.snippets import Snippets
    from chatledger.projections.search.ranking import Filter
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
    ) -> SearchHits:
        """
        Find messages by their words, best first; of equally good ones the newest first.

        A message that was written a moment ago is found. What is searched by default is its text (`Message.text`): no keys, ids
        or JSON, and of a UIMessage no tools and no reasoning.

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

        Returns:
            The hits, each with its message, rank (BM25 over the searched chats; lower is better) and snippet. `is_degraded`
            when the search index was being built.

        Raises:
            BranchNotFoundError: The chat has no such branch.
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
        # NumPy and the patterns of words take a tenth of a second to import: only for those who search.
        from chatledger.domain.search.query import parse
        from chatledger.domain.search.snippets import Snippets
        from chatledger.projections.search import search
        from chatledger.projections.search.ranking import Filter

        parsed = parse(text)
        chats = ChatsToRead(are_searched=True, user_id=user_id) if chat_id is None else ChatsToRead(chat_id)
        with self._store.snapshot(chats) as snapshot:
            chat = None if chat_id is None else snapshot.chat(chat_id)
            chat_nos = _chat_nos(snapshot, chat, user_id)
            only = Filter(roles=names, since=times[0], until=times[1])
            if branch is not None and chat is not None and chat_nos:
                only = _on_branch(only, chat, branch)
            if parsed is None or limit == 0 or chat_nos == []:
                return SearchHits()
            scope = search.Scope(snapshot.txn, snapshot.tables, chat_nos, fields, chat)
            answer = search.ask(
                scope, parsed, text, only=only, limit=limit, offset=offset, include_hidden=include_hidden
            )
        if not answer.found:
            return SearchHits(is_degraded=answer.is_degraded)
        snippets = Snippets(parsed)
        hits = [_hit(snippets, one) for one in answer.found]
        return SearchHits(hits, is_degraded=answer.is_degraded)


def _hit(snippets: "Snippets", found: "Found") -> SearchHit:
    message, field = found.message, found.field
    text = message.text if field == TEXT else field_text(message.data, field)
    if found.rank is None:
        from chatledger.domain.search.snippets import literal_snippet

        return SearchHit(message=message, rank=0.0, snippet=literal_snippet(text), within=field)
    return SearchHit(message=message, rank=found.rank, snippet=snippets.of(text, found.known), within=field)


def _chat_nos(snapshot: LedgerSnapshot, chat: IndexedChat | None, user_id: str | None) -> list[int] | None:
    """The numbers of the chats to search; None: all that the index has."""
    if chat is None:
        return snapshot.searched_chats(user_id=user_id)
    if chat.chat_no is None:
        return []
    is_meant = user_id is None or (chat.profile is not None and chat.profile.user_id == user_id)
    return [chat.chat_no] if is_meant else []


def _on_branch(only: "Filter", chat: IndexedChat, name: str) -> "Filter":
    row = chat.branch_row(sought_id(name, "branch"))
    if row is None:
        raise BranchNotFoundError(chat.chat_id, name)
    return msgspec.structs.replace(only, runs={} if row.place is None else chat.chains.runs(row.place))


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
