"""Search over all messages."""

from typing import Annotated, Final, Literal

import msgspec

from chatledger.domain.errors import ChatNotFoundError, ConfigurationError
from chatledger.domain.values import SearchHit
from chatledger.domain.wire import Value

from ....ledger.searching import Where
from ..problems import RequestError
from ..routing import HttpCall, Limit, Route, moment_of


class Hits(Value, frozen=True):
    """
    Results of a search, best first; `is_degraded` while the search index is being built, or the query could not be embedded.

    `pending` says in a search by meaning how many messages have no vectors yet.
    """

    hits: list[SearchHit]
    is_degraded: bool
    pending: int = 0


Part = Literal["text", "tools", "reasoning"]
Time = Annotated[
    str,
    msgspec.Meta(description="A time in ISO 8601, `yesterday`, `tuesday` or `7d` (ago), or milliseconds since 1970."),
]

Mode = Annotated[
    Literal["words", "meaning", "both"],
    msgspec.Meta(
        description="By words, by meaning, or by both; for meaning the server needs an embedding (serve --embed)."
    ),
]


def search(
    call: HttpCall,
    *,
    q: Annotated[str, msgspec.Meta(description='Words, "phrases", prefixes*, AND, OR, NOT, parentheses.')],
    chat_id: str | None = None,
    thread_id: str | None = None,
    user_id: str | None = None,
    where: Annotated[
        Where,
        msgspec.Meta(
            description="Only in chats, or what agents said in threads, states and items, or in one of these."
        ),
    ] = "all",
    role: list[str] | None = None,
    branch: str | None = None,
    within: list[Part] | None = None,
    since: Time | None = None,
    until: Time | None = None,
    limit: Limit = 20,
    mode: Mode = "words",
) -> Hits:
    """Search messages of chats, and those in threads, states and items of agents: the hits of these have a `place`."""
    parts: tuple[Part, ...] = ("text",) if within is None else tuple(within)
    try:
        hits = call.reader.search(
            q,
            chat_id=chat_id,
            thread_id=thread_id,
            user_id=user_id,
            where=where,
            roles=role,
            branch=branch,
            within=parts,
            since=None if since is None else moment_of(since, "since"),
            until=None if until is None else moment_of(until, "until"),
            limit=limit,
            mode=mode,
        )
    except ConfigurationError as error:
        msg = f"this server cannot search by {mode}: {error}; it is started with --embed"
        raise RequestError(422, msg, name="ConfigurationError") from error
    return Hits(list(hits), hits.is_degraded, hits.pending)


ROUTES: Final = {
    "search": [Route("GET", "/search", search, raises=[ChatNotFoundError])],
}
