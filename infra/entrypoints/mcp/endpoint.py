"""MCP at `/mcp`: streamable HTTP without sessions, so that any worker answers any request."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread
from starlette.requests import Request
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from ..http.access import Principal

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from ..http.service import Service
    from .server import LedgerServer

PATH: Final = "/mcp"
MAX_BODY_BYTES: Final = 4 << 20
_PRINCIPAL: Final = "chatledger.principal"


class McpEndpoint:
    """
    The ASGI application at `/mcp`. What it needs is imported, and started, with the first request.

    Args:
        service: State that the routes share.
        can_write: Whether the tools that write are there, for callers with the scope `write`.
    """

    def __init__(self, service: "Service", *, can_write: bool) -> None:
        self._service, self._can_write = service, can_write
        self._wanted, self._ready = anyio.Event(), anyio.Event()
        self._manager: StreamableHTTPSessionManager | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """
        Answer a request.

        Raises:
            RequestError: The caller is not known, or may not read.
        """
        request = Request(scope, receive)
        principal = await self._service.permitted(request, "read")
        # The SDK takes a second to import, and its manager wants a task that outlives the request: `running` has both.
        self._wanted.set()
        await self._ready.wait()
        assert self._manager is not None
        await self._manager.handle_request({**scope, _PRINCIPAL: principal}, receive, send)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Answer requests while the context is open."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._run)
            try:
                yield
            finally:
                group.cancel_scope.cancel()

    async def _run(self) -> None:
        await self._wanted.wait()
        served, manager = await anyio.to_thread.run_sync(self._make)
        async with manager.run():
            self._manager = manager
            self._ready.set()
            await self._service.stopping.wait()
            served.close()
            await anyio.sleep_forever()

    def _make(self) -> "tuple[LedgerServer, StreamableHTTPSessionManager]":
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        from .server import LedgerServer

        served = LedgerServer(self._service.ledger, _principal_of, can_write=self._can_write)
        # Calls are answered in JSON: the SDK's streams are cut when a server stops, with the answers that are under way.
        # Subscriptions are streams nevertheless.
        return served, StreamableHTTPSessionManager(
            served.server, json_response=True, stateless=True, max_request_body_size=MAX_BODY_BYTES
        )


def mcp_paths(service: "Service", *, can_write: bool) -> list[BaseRoute]:
    """Return the route of MCP."""
    endpoint = McpEndpoint(service, can_write=can_write)
    service.running.append(endpoint.running)
    return [Route(PATH, endpoint, methods=["POST"])]


def _principal_of(ctx: Any) -> Principal:
    principal: Principal = ctx.request.scope[_PRINCIPAL]
    return principal
