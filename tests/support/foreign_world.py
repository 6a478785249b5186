"""The world of tests of foreign messages: a server, and somebody who publishes what chatledger never wrote."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self, cast

import nats
from tests.support.jetstream_world import TOKEN, Server

import chatledger
from chatledger import Ledger
from chatledger.infra.log.nats.subjects import token
from chatledger.infra.log.nats_server.directory import DataDirectory
from chatledger.infra.log.nats_server.server import EmbeddedServer
from chatledger.infra.store import opening

STREAM = "support"


class World:
    """A server with a ledger on it."""

    def __init__(self, base: Path, **options: Any) -> None:
        self.base, self.options = base, options
        self.server = Server(base / "server").start()
        self._indexes = 0

    @property
    def location(self) -> str:
        """Where the ledger is."""
        return f"nats://{TOKEN}@127.0.0.1:{self.server.port}/{STREAM}"

    def open(self, *, index: str = "index", **options: Any) -> Ledger:
        """The ledger, with an index of its own."""
        return chatledger.open(self.location, create=True, index=self.base / index, **{**self.options, **options})

    def fresh(self) -> Ledger:
        """The ledger with a new index."""
        self._indexes += 1
        return self.open(index=f"index-{self._indexes}")

    def by_hand(self, work: Callable[[Any], Any]) -> Any:
        """Act as a raw client."""
        return _by_hand(work, servers=self.server.url, token=TOKEN)

    def publish(self, subject: str, payload: bytes = b"x", headers: dict[str, str] | None = None) -> int:
        """Publish a message, and return its position."""

        async def publish(js: Any) -> int:
            return cast("int", (await js.publish(subject, payload, headers=headers)).seq)

        return cast("int", self.by_hand(publish))

    def copy(self, position: int, subject: str, **changed: str) -> int:
        """Publish a message of the log once more, maybe on another subject."""

        async def copy(js: Any) -> int:
            message = await js.get_msg(STREAM, position)
            headers = {name: value for name, value in message.headers.items() if not name.startswith("Nats-")}
            headers.update(changed)
            return cast("int", (await js.publish(subject, message.data, headers=headers)).seq)

        return cast("int", self.by_hand(copy))

    def delete(self, position: int) -> None:
        """Delete a message."""

        async def delete(js: Any) -> None:
            assert await js.delete_msg(STREAM, position)

        self.by_hand(delete)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop()


def by_hand(path: Path, work: Callable[[Any], Any]) -> Any:
    """Act on a directory's server as a raw client."""
    with EmbeddedServer.acquire(DataDirectory(path), durability="always", stream=opening.STREAM) as server:
        return _by_hand(work, **server.endpoint.connect_options())


def _by_hand(work: Callable[[Any], Any], **options: Any) -> Any:
    async def run() -> Any:
        client = await cast("Any", nats).connect(**options)
        try:
            return await work(client.jetstream())
        finally:
            await client.close()

    return asyncio.run(run())


def of(chat_id: str) -> str:
    """The subject of a chat."""
    return f"{STREAM}.e.{token(chat_id)}"


def worlds(base: Path, **options: Any) -> Iterator[World]:
    """For fixtures."""
    with World(base, **options) as world:
        yield world
