"""The ASGI application of `chatledger serve`, for any server."""

import os
import re
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, Final, Literal

import anyio
import anyio.to_thread
import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.routing import Route as PathRoute
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as ASGIScope

from chatledger.domain.errors import ChatledgerError, ConfigurationError, ConflictError

from ...ledger.aio.async_ledger import AsyncLedger
from ...ledger.open import DEFAULT_LOCATION, open_async
from ...ledger.proof import PemSource, read_signing_key
from ..explorer.links import EntryLinks
from .access import Authenticate, Authorize
from .contract import Contract
from .guard import Guard, Limits
from .health import Health, Metrics
from .native import AREAS, PREFIX, ROUTES
from .observing import Observed
from .openai import OPENAI
from .openapi import document
from .problems import RequestError
from .routing import ROOT
from .service import Service

__all__ = ["RawPath", "Service", "create_app", "describe"]

CONTRACTS: Final = ("api", "openai", "langgraph", "ai", "mcp", "explorer")
"""Names of what can be served: the native API, those of others' clients, and the explorer's pages."""

_ROOT_PATH: Final = re.compile(r"(?:/[\w.~-]+)+", re.ASCII)
_OF_EXPLORER: Final = ("cryptography", "jinja2", "markdown_it", "nh3", "pygments")
_SHOWN: Final = (
    *("Chatledger-Position", "Chatledger-Erasure", "ETag", "Location", "Content-Location", "Retry-After"),
    *("X-Request-Id",),
    *("X-Pagination-Total", "X-Pagination-Next"),
)
"""Headers of answers that pages of other servers may read, where they may use this one."""
_ALLOWED: Final[dict[str, Any]] = {
    "allow_methods": ["*"],
    "allow_headers": ["*"],
    "allow_private_network": True,  # Chrome asks before a page of the internet may call a server on this machine
    "expose_headers": _SHOWN,
}


def create_app(
    ledger: AsyncLedger | str | os.PathLike[str] = DEFAULT_LOCATION,
    *,
    closes_ledger: bool | None = None,
    authenticate: Authenticate | None = None,
    authorize: Authorize | None = None,
    enable: Collection[str] | None = None,
    graphs: Mapping[str, Any] | None = None,
    anchor_key: PemSource | None = None,
    mcp_can_write: bool = False,
    limits: Limits | None = None,
    cors: Collection[str] = (),
    hosts: Collection[str] | None = None,
    metrics: Metrics | None = None,
    session_key: bytes | None = None,
    links: EntryLinks | None = None,
    root_path: str = "",
) -> Starlette:
    """
    Return an ASGI application that serves a ledger.

    Args:
        ledger: The ledger, or its location. The application opens it when it starts, if it is not open yet.
        closes_ledger: Whether the application closes the ledger when it stops. By default only where it was given a location.
        authenticate: Returns the caller from the headers; without it, everybody may do everything.
        authorize: Returns the role of a caller in a chat, for an application that keeps elsewhere who belongs to a chat. Asked
            for each request that names one in its path or query; lists, searches and feeds over all chats go by members alone.
        enable: What to serve, of `api`, `openai`, `langgraph`, `ai`, `mcp` and `explorer`; all that is installed when None.
        graphs: The graphs that LangGraph's clients find here, by name: graphs, compiled or not, or functions that make them.
        anchor_key: The Ed25519 private key that signs anchors: the path of a PEM file, or its bytes. Without it none are made.
        mcp_can_write: Whether assistants may append, fork, merge, set checkpoints, annotate, and choose members over MCP.
        limits: Limits of one user.
        cors: The origins whose pages may use this server, such as `https://chat.example.org`; `*` for all.
        hosts: The names by which the server may be called where nobody has to authenticate; any when None.
        metrics: Counts of requests; with a folder where several processes serve one address.
        session_key: Seals the cookies of the explorer, 32 random bytes in URL-safe Base64. With the same key, browsers stay
            signed in across restarts and in all processes of one address.
        links: The links that let browsers see the explorer, where nobody has to authenticate; everybody sees it when None.
        root_path: Where a proxy shows all of it, such as `/ledger`. Requests may come with it or without.

    Raises:
        ConfigurationError: `ledger` is none of these. Something is to be served that is not known or not installed, or a graph is none; or the key cannot
            be read, or `cryptography` is missing; or the root path is none.
    """
    if root_path and not _ROOT_PATH.fullmatch(root_path):
        msg = f"the root path must be like /ledger, of letters, digits, '-', '_', '.' and '~', without a '/' at its end, not {root_path!r}"
        raise ConfigurationError(msg)
    if not isinstance(ledger, AsyncLedger | str | os.PathLike):  # pyright: ignore[reportUnnecessaryIsInstance] - users'
        msg = (
            f"a server takes the location of a ledger, or chatledger.open_async(location), not {type(ledger).__name__}"
        )
        raise ConfigurationError(msg)
    limits, metrics = limits or Limits(), metrics or Metrics()
    is_ours = not isinstance(ledger, AsyncLedger) if closes_ledger is None else closes_ledger
    service = Service(
        ledger if isinstance(ledger, AsyncLedger) else open_async(ledger),
        authenticate,
        authorize=authorize,
        anchor_key=None if anchor_key is None else read_signing_key(anchor_key),
        streams_per_user=limits.streams_per_user,
    )
    contracts = _contracts(service, enable, graphs, mcp_can_write=mcp_can_write, session_key=session_key, links=links)
    app = Starlette(
        routes=[*Health(service, limits, metrics).paths(), *contracts],
        lifespan=_lifespan(service, metrics, is_ours=is_ours),
        exception_handlers=dict.fromkeys((HTTPException, ChatledgerError, RequestError), _problem),
    )
    app.state.service, app.state.metrics = service, metrics
    # The last one is the first that a request passes.
    app.add_middleware(Guard, service=service, limits=limits, origins=cors, hosts=hosts)
    if cors:
        app.add_middleware(CORSMiddleware, allow_origins=cors, **_ALLOWED)
    # Before the guard, so that what is refused is counted and logged too.
    app.add_middleware(Observed, service=service, metrics=metrics)
    app.add_middleware(RawPath, root_path=root_path)
    return app


def _lifespan(
    service: Service, metrics: Metrics, *, is_ours: bool
) -> Callable[[Starlette], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        await service.ledger
        async with AsyncExitStack() as stack:
            for context in service.running:
                await stack.enter_async_context(context())
            group = await stack.enter_async_context(anyio.create_task_group())
            group.start_soon(service.views.sweep_often)
            if metrics.folder is not None:
                group.start_soon(metrics.write_often)
            yield
            service.stopping.set()
            group.cancel_scope.cancel()
        # Streams have ended by now. The ledger goes last: views and writers are closed with it.
        await anyio.to_thread.run_sync(service.views.close)
        await anyio.to_thread.run_sync(service.writers.close)
        if is_ours:
            await service.ledger.close()

    return lifespan


def _contracts(
    service: Service,
    enable: Collection[str] | None,
    graphs: Mapping[str, Any] | None,
    *,
    mcp_can_write: bool,
    session_key: bytes | None,
    links: EntryLinks | None,
) -> list[BaseRoute]:
    unknown = set(enable or ()) - set(CONTRACTS)
    if unknown:
        msg = f"cannot serve {', '.join(sorted(unknown))}: choose of {', '.join(CONTRACTS)}"
        raise ConfigurationError(msg)
    wanted = CONTRACTS if enable is None else enable
    paths: list[BaseRoute] = []
    if "api" in wanted:
        # Once, as it takes a tenth of a second to make, and strangers may ask for it.
        described = msgspec.json.encode(describe())

        async def openapi(_: Request) -> Response:
            return Response(described, media_type="application/json")

        paths += [PathRoute("/openapi.json", openapi), *Contract(PREFIX, ROUTES).paths(service)]
    if "openai" in wanted:
        paths += OPENAI.paths(service)
    if "ai" in wanted:
        from .ai_sdk import AI_SDK

        paths += AI_SDK.paths(service)
    if "langgraph" in wanted and _is_installed(
        "langgraph", extra="langgraph", is_named=enable is not None or bool(graphs)
    ):
        from .langgraph_api import langgraph_paths

        paths += langgraph_paths(service, graphs)
    if "mcp" in wanted and _is_installed("mcp", extra="mcp", is_named=enable is not None or mcp_can_write):
        from ..mcp.server import mcp_paths

        paths += mcp_paths(service, can_write=mcp_can_write)
    if is_served("explorer", enable):
        from ..explorer.explorer import explorer_paths

        paths += explorer_paths(service, session_key, links)
    return paths


def is_served(contract: Literal["explorer"], enable: Collection[str] | None) -> bool:
    """Whether a contract is served, where `enable` is what `create_app` is given; one that is named has to be installed."""
    if enable is not None and contract not in enable:
        return False
    return _is_installed(*_OF_EXPLORER, extra="server", is_named=enable is not None)


def _is_installed(*modules: str, extra: str, is_named: bool) -> bool:
    """Whether the libraries that an API needs are installed; they have to be, if somebody named the API."""
    is_there = all(find_spec(module) is not None for module in modules)
    if is_named and not is_there:
        msg = f"this needs the extra `{extra}`: pip install 'chatledger[{extra}]'"
        raise ConfigurationError(msg)
    return is_there


def describe() -> dict[str, Any]:
    """Return the OpenAPI document of the native API."""
    return document(AREAS, title="chatledger", version=version("chatledger"), prefix=PREFIX)


class RawPath:
    """Match paths as they were sent, so that an encoded `/` in an id does not end it; routes decode their parts."""

    def __init__(self, app: ASGIApp, root_path: str = "") -> None:
        self._app, self._root_path = app, root_path

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope.get("raw_path") is not None:
            path = scope["raw_path"].decode("latin-1").partition("?")[0]
            if path == self._root_path or path.startswith(f"{self._root_path}/"):
                path = path.removeprefix(self._root_path) or "/"
            scope = dict(scope, path=path) | {ROOT: self._root_path}
        await self._app(scope, receive, send)


async def _problem(request: Request, error: Exception) -> Response:
    if isinstance(error, ConflictError):
        request.app.state.metrics.conflict(type(error).__name__)
    service: Service = request.app.state.service
    return service.answer_error(request, error)
