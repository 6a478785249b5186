"""State that the routes of all contracts share: the ledger, authentication, and whether the server stops."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from inspect import isawaitable
from typing import Final
from urllib.parse import unquote

import anyio
import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from chatledger.domain.chat.members import ROLES
from chatledger.domain.errors import ConfigurationError
from chatledger.domain.values import MemberRole

from ...ledger.aio.async_ledger import AsyncLedger
from .access import EVERYBODY, PRINCIPAL, Authenticate, Authorize, Principal, Scope
from .kept_views import KeptViews
from .live_writers import MOST, LiveWriters
from .problems import RequestError, answer_problem

Refuse = Callable[[Request, Exception], Response]
"""Answers a request with an error."""
CHAT_NAMES: Final = ("chat_id", "thread_id", "conversation_id")
"""The names of ids of chats in paths and queries; the id of a thread is that of its chat."""
RUN_STREAM: Final = "run"
"""The role of the live streams that have the events of runs; all others are messages that are being written."""


class Service:
    """
    State that the routes share.

    Attributes:
        ledger: The whole ledger.
        stopping: Set when the server stops: streams end then, so that their readers come back to another server.
        writers: The writers of live streams between the requests that write.
        views: Views of earlier moments, between the requests that read them.
        anchor_key: The PEM of the key that signs anchors, if there is one.
        running: Contexts that are open while the application runs; contracts add theirs.
        error_forms: How errors are answered on paths whose first part is this; as problems on others.
        error_form_of_strays: How errors are answered on paths that no route has; None as problems.
        open_prefixes: How paths begin that strangers may ask for.
        by_session: Returns the caller by the session of a browser, where the explorer is served.
    """

    def __init__(
        self,
        ledger: AsyncLedger,
        authenticate: Authenticate | None,
        *,
        authorize: Authorize | None = None,
        anchor_key: bytes | None = None,
        streams_per_user: int = MOST,
    ) -> None:
        self.ledger, self._authenticate, self._authorize = ledger, authenticate, authorize
        self.stopping = anyio.Event()
        self.writers = LiveWriters(most_of_user=streams_per_user)
        self.views = KeptViews()
        self.anchor_key = anchor_key
        self.running: list[Callable[[], AbstractAsyncContextManager[None]]] = []
        self.error_forms: dict[str, Refuse] = {}
        self.error_form_of_strays: Refuse | None = None
        self.open_prefixes: tuple[str, ...] = ()
        self.by_session: Callable[[Request], Awaitable[Principal | None]] | None = None

    @property
    def has_access(self) -> bool:
        """Whether callers have to authenticate."""
        return self._authenticate is not None

    def answer_error(self, request: Request, error: Exception) -> Response:
        """Answer a request with an error, in the form that clients of the path read."""
        first = request.url.path.lstrip("/").partition("/")[0]
        form = self.error_forms.get(first)  # by the path, as a request may fail before its route is found
        if form is None and isinstance(error, HTTPException) and "endpoint" not in request.scope:
            form = self.error_form_of_strays
        return (form or answer_problem)(request, error)

    async def permitted(self, request: Request, scope: Scope) -> Principal:
        """
        Return the caller, with the roles that the application grants in the chats that the request names.

        Raises:
            RequestError: The caller is not known, or has not the scope that this needs.
        """
        admitted: Principal | None = request.scope.get(PRINCIPAL)
        principal = await self.identify(request) if admitted is None else admitted
        if not principal.may(scope):
            msg = f"this needs the scope {scope!r}"
            raise RequestError(403, msg, name="AccessDeniedError")
        if self._authorize is None or principal.user_id is None:
            return principal  # without a user there are no roles: all chats are open
        grants: list[tuple[str, MemberRole]] = []
        in_path = [unquote(request.path_params[name]) for name in CHAT_NAMES if name in request.path_params]
        in_query = [chat_id for name in CHAT_NAMES for chat_id in request.query_params.getlist(name)]
        for chat_id in dict.fromkeys(in_path + in_query):
            answer = self._authorize(principal, chat_id)
            role = await answer if isawaitable(answer) else answer
            if role is None:
                continue
            if role not in ROLES:
                msg = f"authorize returns 'reader', 'writer' or None for chat {chat_id!r}, not {role!r}"
                raise ConfigurationError(msg)
            grants.append((chat_id, role))
        return msgspec.structs.replace(principal, grants=(*principal.grants, *grants))

    async def identify(self, request: Request) -> Principal:
        """
        Authenticate the caller.

        Raises:
            RequestError: The caller is not known.
        """
        principal = None if self.by_session is None else await self.by_session(request)
        if principal is not None:
            return principal
        principal = await self.identify_by({name.lower(): value for name, value in request.headers.items()})
        if principal is None:
            msg = "send a key as X-Api-Key, or as Authorization: Bearer"
            raise RequestError(401, msg, name="Unauthenticated", headers={"WWW-Authenticate": "Bearer"})
        return principal

    async def identify_by(self, headers: Mapping[str, str]) -> Principal | None:
        """Return the caller from headers, whose names are in lower case; None for a stranger."""
        if self._authenticate is None:
            return EVERYBODY
        answer = self._authenticate(headers)
        return await answer if isawaitable(answer) else answer
