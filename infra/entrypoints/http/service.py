"""What the routes of all contracts share: the ledger, who asks, and when the server stops."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from inspect import isawaitable
from typing import Final

import anyio
from starlette.requests import Request
from starlette.responses import Response

from ...ledger.aio.async_ledger import AsyncLedger
from .access import EVERYBODY, PRINCIPAL, Authenticate, Principal
from .live_writers import LiveWriters
from .problems import RequestError, answer_problem

RUN_STREAM: Final = "run"
"""The role of the live streams that have the events of runs; all others are messages that are being written."""


class Service:
    """
    What the routes share.

    Attributes:
        ledger: The whole ledger.
        stopping: Set when the server stops: streams end then, so that their readers come back to another server.
        writers: The writers of live streams between the requests that write.
        anchor_key: The PEM of the key that signs anchors, if there is one.
        running: Contexts that are open while the application runs; contracts add theirs.
        error_forms: How errors are answered on paths whose first part is this; as problems on others.
    """

    def __init__(
        self, ledger: AsyncLedger, authenticate: Authenticate | None, *, anchor_key: bytes | None = None
    ) -> None:
        self.ledger, self._authenticate = ledger, authenticate
        self.stopping = anyio.Event()
        self.writers = LiveWriters()
        self.anchor_key = anchor_key
        self.running: list[Callable[[], AbstractAsyncContextManager[None]]] = []
        self.error_forms: dict[str, Callable[[Request, Exception], Response]] = {}

    @property
    def has_access(self) -> bool:
        """Whether somebody is asked who they are."""
        return self._authenticate is not None

    def answer_error(self, request: Request, error: Exception) -> Response:
        """Answer a request with an error, in the form that clients of the path read."""
        first = request.url.path.lstrip("/").partition("/")[0]
        return self.error_forms.get(first, answer_problem)(request, error)

    async def principal(self, request: Request) -> Principal:
        """
        Say who asks.

        Raises:
            RequestError: Nobody who is known.
        """
        found: Principal | None = request.scope.get(PRINCIPAL)
        return await self.identify(request) if found is None else found

    async def identify(self, request: Request) -> Principal:
        """
        Find out who asks.

        Raises:
            RequestError: Nobody who is known.
        """
        if self._authenticate is None:
            return EVERYBODY
        found = self._authenticate({name.lower(): value for name, value in request.headers.items()})
        principal = await found if isawaitable(found) else found
        if principal is None:
            msg = "send a key as X-Api-Key, or as Authorization: Bearer"
            raise RequestError(401, msg, name="Unauthenticated", headers={"WWW-Authenticate": "Bearer"})
        return principal
