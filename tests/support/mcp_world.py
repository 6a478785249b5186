"""Clients of MCP: over streamable HTTP with a key, and over stdio with a process."""

import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2

from chatledger.server import Principal

if TYPE_CHECKING:
    from mcp.client.client import Client  # takes a second, in each worker that collects tests of it

ROOT = Path(__file__).resolve().parents[2]
KEYS: Mapping[str, Principal] = {
    "ann": Principal("ann"),
    "bob": Principal("bob"),
    "reader": Principal("ann", frozenset({"read"})),
    "writer": Principal("ann", frozenset({"write"})),
    "nobody": Principal("ann", frozenset()),
}


def authenticate(headers: Mapping[str, str]) -> Principal | None:
    """Know some users by their keys."""
    return KEYS.get(headers.get("x-api-key", ""))


@asynccontextmanager
async def over_http(url: str, key: str = "", mode: str = "auto") -> AsyncGenerator["Client"]:
    """A client over streamable HTTP."""
    from mcp.client.client import Client
    from mcp.client.streamable_http import streamable_http_client

    async with (
        httpx2.AsyncClient(headers={"X-Api-Key": key}, timeout=30) as http,
        Client(streamable_http_client(url + "/mcp", http_client=http), mode=mode) as client,
    ):
        yield client


@asynccontextmanager
async def over_stdio(
    location: str,
    *options: str,
    mode: str = "auto",
    handler: Any = None,
    environment: Mapping[str, str] | None = None,
    before: Sequence[str] = (),
) -> AsyncGenerator["Client"]:
    """A client of a process of its own; `before` are options before the verb."""
    from mcp.client.client import Client
    from mcp.client.stdio import StdioServerParameters

    arguments = ["-m", "chatledger", "--location", location, *before, "mcp", *options]
    server = StdioServerParameters(
        command=sys.executable,
        args=arguments,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT / "src"), **(environment or {})},
    )
    async with Client(server, mode=mode, message_handler=handler) as client:
        yield client


async def call(client: "Client", tool: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool that answers."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result
    found: dict[str, Any] = result.structured_content
    return found


async def refusal(client: "Client", tool: str, **arguments: Any) -> str:
    """Call a tool that refuses; what it says."""
    from mcp_types import TextContent

    result = await client.call_tool(tool, arguments)
    assert result.is_error
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text
