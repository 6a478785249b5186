"""Serving MCP to the process that started this one, over stdin and stdout."""

import os
import signal

import anyio
from mcp.server.stdio import stdio_server

from ...ledger.aio.async_ledger import AsyncLedger
from ...ledger.environment import open_given_async
from ..http.access import Principal
from .server import LedgerServer


def serve_stdio(location: str, *, user_id: str | None = None, can_write: bool = False) -> None:
    """
    Serve a ledger until stdin ends. A signal (SIGINT, SIGTERM) closes the ledger and ends the process.

    Args:
        location: Of the ledger; its keys and login are in the environment.
        user_id: The user whose conversations are there; everybody's when None.
        can_write: Whether the tools that write are there.

    Raises:
        ConfigurationError, LogUnavailableError: The ledger does not open.
    """
    anyio.run(_serve, location, user_id, can_write)


async def _serve(location: str, user_id: str | None, can_write: bool) -> None:  # noqa: FBT001 - anyio.run gives positions
    principal = Principal(user_id, name="mcp")
    async with open_given_async(location) as ledger:
        served = LedgerServer(ledger, lambda _: principal, can_write=can_write, connected=principal)
        async with anyio.create_task_group() as group:
            group.start_soon(_end_by_signal, ledger)
            async with stdio_server() as (reading, writing), served.following():
                await served.server.run(reading, writing, served.server.create_initialization_options())
            group.cancel_scope.cancel()  # stdin has ended: nothing else waits for the signal


async def _end_by_signal(ledger: AsyncLedger) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for number in signals:
            await ledger.close()
            os._exit(128 + number)  # the thread that reads stdin cannot be ended otherwise
