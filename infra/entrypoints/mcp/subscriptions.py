"""Subscriptions: the feed of the ledger notifies clients of resources that changed."""

import hashlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import anyio

from chatledger.domain.chat.recorded import Recorded
from chatledger.domain.errors import ChatledgerError, LogUnavailableError

from ...ledger.aio.async_ledger import AsyncLedger
from ...ledger.feed import AsyncFeed
from ...ledger.ledger import Ledger
from ..http.access import Principal
from .answers import ResourceName, parse_uri
from .resources import read_resource

_log: Final = logging.getLogger("chatledger.mcp")
MAX_URIS: Final = 100
_AGAIN_S: Final = 1.0
_LISTED: Final = frozenset({"chat_created", "chat_deleted", "chat_updated"})
"""Kinds of events that change the list of resources."""


class Watch:
    """
    The resources that a client subscribed to, each with a digest of its state.

    Args:
        run: Calls a function with the client's ledger, in a worker thread.
        tell: Called with the URI of a resource that changed.
    """

    def __init__(
        self,
        run: Callable[[Callable[[Ledger], bytes | None]], Awaitable[bytes | None]],
        tell: Callable[[str], Awaitable[None]],
    ) -> None:
        self._run, self._tell = run, tell
        self._watched: dict[str, tuple[ResourceName, bytes | None]] = {}

    def __len__(self) -> int:
        return len(self._watched)

    async def add(self, uri: str) -> None:
        """
        Watch a resource, from its present state on.

        Raises:
            InvalidValueError: The URI has none of the forms that are served.
        """
        named = parse_uri(uri)
        self._watched[uri] = (named, await self._state(named))

    def remove(self, uri: str) -> None:
        """Do not watch a resource any longer."""
        self._watched.pop(uri, None)

    async def take(self, recorded: Recorded) -> None:
        """Look at the resources that an event may have changed, and notify the client of those that did change."""
        # The state is compared, as the events of a chat say little of what is in a page: most change one branch of many.
        for uri, (named, before) in list(self._watched.items()):
            if named.chat_id != recorded.chat_id:
                continue
            now = await self._state(named)
            # The client may have unsubscribed while the state was read.
            if now != before and uri in self._watched:
                self._watched[uri] = (named, now)
                await self._tell(uri)

    async def _state(self, named: ResourceName) -> bytes | None:
        return await self._run(partial(_state, named))


def _state(named: ResourceName, ledger: Ledger) -> bytes | None:
    try:
        return hashlib.blake2b(read_resource(ledger, named), digest_size=16).digest()
    except ChatledgerError:
        return None


async def _tell_all(feed: AsyncFeed, watch: Watch, tell_of_list: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            async for recorded in feed:
                await watch.take(recorded)
                if recorded.type in _LISTED:
                    await tell_of_list()
        except LogUnavailableError:
            await anyio.sleep(_AGAIN_S)
        else:
            return


@asynccontextmanager
async def follow(
    ledger: AsyncLedger, principal: Principal, watch: Watch, tell_of_list: Callable[[], Awaitable[None]]
) -> AsyncGenerator[None]:
    """
    Follow the feed of a user while the context is open: what is watched is looked at after each event.

    A log that does not answer is asked again. After any other error there are no more notifications: reads say what is wrong.
    """
    own = principal.limited(ledger)
    position = await ledger.run(lambda whole: whole.get_position())

    async def pump() -> None:
        feed = own.feed(position)
        try:
            await _tell_all(feed, watch, tell_of_list)
        except ChatledgerError:
            _log.exception("subscribers no longer hear of changes")
        finally:
            with anyio.CancelScope(shield=True):
                await feed.close()

    async with anyio.create_task_group() as group:
        group.start_soon(pump)
        try:
            yield
        finally:
            group.cancel_scope.cancel()
