"""The application: what `chatledger serve` serves, for any ASGI server."""

import logging
import os
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from typing import Any, Final

import anyio
import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as PathRoute
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as ASGIScope

from chatledger.domain.errors import ChatledgerError, ConflictError

from ...ledger.aio.async_ledger import AsyncLedger
from ...ledger.open import open_async
from ...store.opening.names import DEFAULT_LOCATION
from .access import Authenticate, Principal
from .guard import Guard
from .health import Health
from .limits import Limits
from .metrics import WRITE_EVERY_S, Metrics
from .native import PREFIX, ROUTES
from .observing import Observed
from .openapi import document
from .problems import RequestError, answer_problem
from .routing import Route
from .service import Service

__all__ = ["RawPath", "Service", "create_app", "describe"]

_log: Final = logging.getLogger("chatledger.server")
_SHOWN: Final = ("Chatledger-Position", "ETag", "Location", "Content-Location", "Retry-After", "X-Request-Id")
"""Headers of answers that pages of other servers may read, where they may use this one."""


def create_app(
    ledger: AsyncLedger | str | os.PathLike[str] = DEFAULT_LOCATION,
    *,
    authenticate: Authenticate | None = None,
    limits: Limits | None = None,
    cors: Collection[str] = (),
    hosts: Collection[str] | None = None,
    metrics: Metrics | None = None,
) -> Starlette:
    """
    Return an ASGI application that serves a ledger.

    Args:
        ledger: The ledger, which the application opens, if it is not open yet, and leaves open. Or its location: then the
            application opens it when it starts, and closes it when it stops.
        authenticate: Says who asks, from the headers; without it, everybody may do everything.
        limits: What one user may ask for.
        cors: The origins whose pages may use this server, such as `https://chat.example.org`; `*` for all.
        hosts: The names by which the server may be called where nobody is asked who they are; any when None.
        metrics: Where requests are counted; it names a folder where several processes serve one address.
    """
    limits, metrics = limits or Limits(), metrics or Metrics()
    is_ours = not isinstance(ledger, AsyncLedger)
    service = Service(ledger if isinstance(ledger, AsyncLedger) else open_async(ledger), authenticate)
    described = msgspec.json.encode(describe())

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        await service.ledger
        async with anyio.create_task_group() as group:
            if metrics.folder is not None:
                group.start_soon(_write_often, metrics)
            yield
            service.stopping.set()
            group.cancel_scope.cancel()
        if is_ours:
            await service.ledger.close()

    async def openapi(_: Request) -> Response:
        return Response(described, media_type="application/json")

    paths = [
        *Health(service, limits, metrics).paths(),
        PathRoute("/openapi.json", openapi),
        *_paths(ROUTES, service),
    ]
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
    app.state.service, app.state.metrics = service, metrics
    _guard(app, service, limits, metrics, cors, hosts)
    return app


def _guard(
    app: Starlette,
    service: Service,
    limits: Limits,
    metrics: Metrics,
    cors: Collection[str],
    hosts: Collection[str] | None,
) -> None:
    # The last one is the first that a request passes.
    app.add_middleware(Guard, service=service, limits=limits, origins=cors, hosts=hosts)
    if cors:
        app.add_middleware(
            CORSMiddleware, allow_origins=cors, allow_methods=["*"], allow_headers=["*"], expose_headers=_SHOWN
        )
    app.add_middleware(Observed, metrics=metrics)
    app.add_middleware(RawPath)


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


async def _write_often(metrics: Metrics) -> None:
    while True:
        metrics.write()
        await anyio.sleep(WRITE_EVERY_S)


async def _problem(request: Request, error: Exception) -> Response:
    if isinstance(error, ConflictError):
        request.app.state.metrics.conflict(type(error).__name__)
    return answer_problem(request, error)


async def _fault(request: Request, error: Exception) -> Response:
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return answer_problem(request, error)
