"""What the routes of all contracts share: the ledger, who asks, and when the server stops."""

from inspect import isawaitable

import anyio
from starlette.requests import Request

from ...ledger.aio.async_ledger import AsyncLedger
from .access import EVERYBODY, PRINCIPAL, Authenticate, Principal
from .problems import RequestError


class Service:
    """
    What the routes share.

    Attributes:
        ledger: The whole ledger.
        stopping: Set when the server stops: streams end then, so that their readers come back to another server.
    """

    def __init__(self, ledger: AsyncLedger, authenticate: Authenticate | None) -> None:
        self.ledger, self._authenticate = ledger, authenticate
        self.stopping = anyio.Event()

    @property
    def has_access(self) -> bool:
        """Whether somebody is asked who they are."""
        return self._authenticate is not None

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
