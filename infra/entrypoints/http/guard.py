"""The guard before all routes: who asks, where from, how often and how much."""

from collections.abc import Collection
from contextlib import ExitStack
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .access import PRINCIPAL, Principal
from .limits import Allowances, Limits
from .observing import is_event_stream
from .problems import RequestError
from .service import Service

OPEN_PATHS: Final = frozenset({"/livez", "/readyz", "/healthz", "/ok", "/openapi.json"})
"""What strangers may ask for: load balancers and clients that look whether the server is there."""

_STRANGER: Final = Principal(user_id="", scopes=frozenset({"read"}))
"""Who asks for an open path; none of these reads a chat."""
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class Guard:
    """
    Lets a request pass when its headers are no larger than allowed, somebody known asks, and not too often.

    Where nobody is asked who they are, web pages are kept out: a browser sends what any page tells it to a server on its own
    machine. So a request that changes something comes from no page, from one of the server's own or of `origins`, and the
    server is called by one of `hosts`.

    Args:
        app: What is guarded.
        service: What all routes share.
        limits: What one user may ask.
        origins: The pages of other servers that may use this one; `*` for all.
        hosts: What the server may be called, where nobody is asked who they are; anything when None.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        service: Service,
        limits: Limits,
        origins: Collection[str] = (),
        hosts: Collection[str] | None = None,
    ) -> None:
        self._app, self._service = app, service
        self._allowances = Allowances(limits)
        self._origins, self._hosts = frozenset(origins), None if hosts is None else frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            who = await self._admit(request)
        except RequestError as error:
            await self._service.answer_error(request, error)(scope, receive, send)
            return
        with ExitStack() as stack:

            async def counted(message: Message) -> None:
                if is_event_stream(message):
                    try:
                        stack.enter_context(self._allowances.stream(who))
                    except RequestError as error:
                        raise _StreamRefused(error) from error
                await send(message)

            try:
                await self._app(scope, receive, counted)
            except _StreamRefused as refused:
                await self._service.answer_error(request, refused.error)(scope, receive, send)

    async def _admit(self, request: Request) -> tuple[str | None, str]:
        size = sum(len(name) + len(value) for name, value in request.scope["headers"])
        most = self._allowances.limits.header_bytes
        if size > most:
            msg = f"the headers have {size:,} bytes; {most:,} are allowed"
            raise RequestError(431, msg, name="HeadersTooLarge", headers={"Connection": "close"})
        if not self._service.has_access:
            self._check_page(request)
        principal = _STRANGER
        if not self._is_open(request.scope["path"]):
            principal = await self._service.identify(request)
            self._allowances.take_request((principal.user_id, principal.name))
        request.scope[PRINCIPAL] = principal
        return principal.user_id, principal.name

    def _is_open(self, path: str) -> bool:
        return path in OPEN_PATHS or path.startswith(self._service.open_prefixes)

    def _check_page(self, request: Request) -> None:
        called = request.headers.get("host", "")
        if self._hosts is not None and _host_of(called) not in self._hosts:
            msg = f"this server is not called {called!r}; start it with --insecure, or with keys, to use other names"
            raise RequestError(421, msg, name="UnknownHost")
        origin = request.headers.get("origin")
        if origin is None or request.method in _SAFE or "*" in self._origins or origin in self._origins:
            return
        if origin.partition("://")[2] != called:
            msg = f"pages of {origin} may not change anything here; --cors {origin} lets them"
            raise RequestError(403, msg, name="UnknownOrigin")


class _StreamRefused(Exception):  # noqa: N818 - no error: it takes a refusal out of an answer that was about to begin
    def __init__(self, error: RequestError) -> None:
        super().__init__(error)
        self.error = error


def _host_of(header: str) -> str:
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""
