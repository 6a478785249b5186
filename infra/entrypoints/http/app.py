"""The application: what `chatledger serve` serves, for any ASGI server."""

import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from inspect import isawaitable
from typing import Any, Final

import anyio
import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.routing import Route as PathRoute
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as ASGIScope

from chatledger.domain.errors import ChatledgerError, ConfigurationError

from ...ledger.aio.async_ledger import AsyncLedger
from ...ledger.open import open_async
from ...store.opening.names import DEFAULT_LOCATION
from .access import EVERYBODY, Authenticate, Principal
from .native import PREFIX, ROUTES
from .openapi import document
from .problems import RequestError, answer_problem
from .routing import Route

CONTRACTS: Final = ("api", "openai", "langgraph", "ai", "mcp")
"""What can be served: the native API, and those that others' clients speak."""

_log: Final = logging.getLogger("chatledger.server")


class Service:
    """
    What the routes share.

    Attributes:
        ledger: The whole ledger.
        stopping: Set when the server stops: streams end then, so that their readers come back to another server.
        closing: Called when the server has stopped, before the ledger is closed.
    """

    def __init__(self, ledger: AsyncLedger, authenticate: Authenticate | None) -> None:
        self.ledger, self._authenticate = ledger, authenticate
        self.stopping = anyio.Event()
        self.closing: list[Callable[[], Awaitable[None]]] = []

    async def principal(self, request: Request) -> Principal:
        """
        Say who asks.

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


def create_app(
    ledger: AsyncLedger | str | os.PathLike[str] = DEFAULT_LOCATION,
    *,
    authenticate: Authenticate | None = None,
    enable: Collection[str] | None = None,
    graphs: Mapping[str, Any] | None = None,
) -> Starlette:
    """
    Return an ASGI application that serves a ledger.

    Args:
        ledger: The ledger, which the application opens, if it is not open yet, and leaves open. Or its location: then the
            application opens it when it starts, and closes it when it stops.
        authenticate: Says who asks, from the headers; without it, everybody may do everything.
        enable: What to serve, of `api`, `openai`, `langgraph`, `ai` and `mcp`; all that is installed when None.
        graphs: The graphs that LangGraph's clients find here, by name: graphs, compiled or not, or functions that make them.

    Raises:
        ConfigurationError: Something is to be served that is not known or not installed, or a graph is none.
    """
    is_ours = not isinstance(ledger, AsyncLedger)
    service = Service(ledger if isinstance(ledger, AsyncLedger) else open_async(ledger), authenticate)
    paths = _contracts(service, enable, graphs)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        await service.ledger
        yield
        service.stopping.set()
        for close in service.closing:
            await close()
        if is_ours:
            await service.ledger.close()

    app = Starlette(
        routes=paths,
        lifespan=lifespan,
        exception_handlers={
            HTTPException: _problem,
            ChatledgerError: _problem,
            RequestError: _problem,
            Exception: _fault,
        },
    )
    app.state.service = service
    app.add_middleware(RawPath)
    return app


def _contracts(service: Service, enable: Collection[str] | None, graphs: Mapping[str, Any] | None) -> list[BaseRoute]:
    unknown = set(enable or ()) - set(CONTRACTS)
    if unknown:
        msg = f"cannot serve {', '.join(sorted(unknown))}: choose of {', '.join(CONTRACTS)}"
        raise ConfigurationError(msg)
    wanted = CONTRACTS if enable is None else enable
    paths: list[BaseRoute] = []
    if "api" in wanted:
        paths += _native(service)
    if "langgraph" in wanted and _is_installed("langgraph", "langgraph", is_named=enable is not None or bool(graphs)):
        from .langgraph_api.routes import langgraph_paths

        paths += langgraph_paths(service, graphs)
    return paths


def _is_installed(module: str, extra: str, *, is_named: bool) -> bool:
    """Whether what a contract needs is installed; it has to be, if somebody named the contract."""
    is_there = find_spec(module) is not None
    if is_named and not is_there:
        msg = f"this needs the extra `{extra}`: pip install 'chatledger[{extra}]'"
        raise ConfigurationError(msg)
    return is_there


def _native(service: Service) -> list[BaseRoute]:
    described = msgspec.json.encode(describe())

    async def openapi(_: Request) -> Response:
        return Response(described, media_type="application/json")

    return [PathRoute("/openapi.json", openapi), *_paths(ROUTES, service)]


def describe() -> dict[str, Any]:
    """Return the OpenAPI document of the native API."""
    return document(ROUTES, title="chatledger", version=version("chatledger"), prefix=PREFIX)


class RawPath:
    """Matches paths as they were sent, so that an encoded `/` in an id does not end it; routes decode their parts."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] == "http" and scope.get("raw_path") is not None:
            scope = dict(scope, path=scope["raw_path"].decode("latin-1").partition("?")[0])
        await self._app(scope, receive, send)


def _paths(routes: Sequence[Route], service: Service) -> list[PathRoute]:
    by_path: dict[str, dict[str, Route]] = {}
    for route in routes:
        by_path.setdefault(PREFIX + route.path, {})[route.method] = route
    return [
        PathRoute(path, partial(_answer, service, methods), methods=list(methods)) for path, methods in by_path.items()
    ]


async def _answer(service: Service, methods: dict[str, Route], request: Request) -> Response:
    route = methods["GET" if request.method == "HEAD" else request.method]
    principal = await service.principal(request)
    if not principal.may(route.scope):
        msg = f"this needs the scope {route.scope!r}"
        raise RequestError(403, msg, name="AccessDeniedError")
    arguments = await route.arguments(request)
    if route.is_streamed:
        opened: Response = await route.handler(service, principal, request, **arguments)
        return opened
    return await service.ledger.run(partial(_answer_now, route, request, principal, arguments))


def _answer_now(
    route: Route, request: Request, principal: Principal, arguments: dict[str, Any], ledger: Any
) -> Response:
    return route.answer(request, principal, ledger, arguments)


async def _problem(request: Request, error: Exception) -> Response:
    return answer_problem(request, error)


async def _fault(request: Request, error: Exception) -> Response:
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return answer_problem(request, error)
