"""Damage to what a log has stored, done by hand."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import nats

from chatledger.infra.log.nats_server import DataDirectory, EmbeddedServer
from chatledger.infra.store.opening.locations import STREAM


def by_hand(path: Path, work: Callable[[Any], Any]) -> Any:
    """What a raw client of the directory's server does."""
    server = EmbeddedServer.acquire(DataDirectory(path), durability="always", stream=STREAM)

    async def run() -> Any:
        client = await cast("Any", nats).connect(**server.endpoint.connect_options())
        try:
            return await work(client.jetstream())
        finally:
            await client.close()

    with server:
        return asyncio.run(run())
