"""Serving MCP to the process that started this one, over stdin and stdout."""

import anyio
from mcp.server.stdio import stdio_server

from ...ledger.open import open_async
from ..http.access import Principal
from .server import LedgerServer


def serve_stdio(location: str, *, user_id: str | None = None, can_write: bool = False) -> None:
    """
    Serve a ledger until stdin ends.

    Args:
        location: Of the ledger.
        user_id: Whose conversations are there; everybody's when None.
        can_write: Whether the tools that write are there.

    Raises:
        ConfigurationError, LogUnavailableError: The ledger does not open.
    """
    anyio.run(_serve, location, user_id, can_write)


async def _serve(location: str, user_id: str | None, can_write: bool) -> None:  # noqa: FBT001 - anyio.run gives positions
    principal = Principal(user_id, name="mcp")
    async with open_async(location) as ledger:
        served = LedgerServer(ledger, lambda _: principal, can_write=can_write, connected=principal)
        async with stdio_server() as (reading, writing), served.following():
            await served.server.run(reading, writing, served.server.create_initialization_options())
