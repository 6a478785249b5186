"""Subscriptions: the real client is told of changes of what its user may see, and of nothing else."""

import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from tests.support.http_world import serving
from tests.support.mcp_world import authenticate, call, over_http, over_stdio

import chatledger
from chatledger import user
from chatledger.server import create_app

if TYPE_CHECKING:
    from mcp.client.subscriptions import Subscription

pytestmark = [pytest.mark.anyio, pytest.mark.xdist_group("mcp")]  # one worker imports the SDK
TRIP = "chatledger://chats/trip"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@contextmanager
def served() -> Generator[tuple[str, chatledger.Ledger]]:
    """A server, and its ledger, which writes as other clients would."""
    app = create_app(chatledger.open_async("memory:"), authenticate=authenticate, enable=["mcp"])
    with serving(app) as url:
        ledger = app.state.service.ledger.opened
        for chat_id, owner in (("trip", "ann"), ("bobs", "bob")):
            ledger.create_chat(chat_id, owner)
            ledger.append(chat_id, [user("hello")])
        yield url, ledger


async def next_event(events: "Subscription") -> Any:
    with anyio.fail_after(20):
        return await anext(aiter(events))


async def test_a_client_hears_of_its_own_chats() -> None:
    """Of the resources that it named, and only when they changed; what others do does not reach it."""
    from mcp.client.subscriptions import ResourcesListChanged, ResourceUpdated

    uris = ["chatledger://chats/bobs", "chatledger://chats/trip/branches/main", "chatledger://chats/trip/checkpoints/x"]
    with served() as (url, ledger):
        async with (
            over_http(url, "ann") as client,
            client.listen(resource_subscriptions=uris, resources_list_changed=True) as events,
        ):
            ledger.append("bobs", [user("not for ann")])
            (message,) = ledger.append("trip", [user("for ann")])
            first = await next_event(events)
            ledger.create_chat("bobs-other", "bob")
            ledger.set_checkpoint("trip", "x", message.id)
            second = await next_event(events)
            ledger.create_chat("anns-other", "ann")
            third = await next_event(events)

    assert first == ResourceUpdated(uri=uris[1])
    assert second == ResourceUpdated(uri=uris[2])
    assert third == ResourcesListChanged()


@pytest.mark.parametrize("uris", [["chatledger://elsewhere"], [f"{TRIP}/branches/{n}" for n in range(101)]])
async def test_subscriptions_have_limits(uris: list[str]) -> None:
    from mcp.shared.exceptions import MCPError

    with served() as (url, _):
        async with over_http(url, "ann") as client:
            with pytest.raises(MCPError):
                async with client.listen(resource_subscriptions=uris):
                    pass


async def test_streams_end_when_the_server_stops() -> None:
    """A client that listens is told, and does not hold the server up."""
    server = served()
    url, _ = server.__enter__()
    async with over_http(url, "ann") as client, client.listen(resource_subscriptions=[TRIP]) as events:
        began = time.monotonic()
        with anyio.fail_after(30):
            await anyio.to_thread.run_sync(server.__exit__, None, None, None)
            assert [event async for event in events] == []

    assert time.monotonic() - began < 5, "it waited for the client"


@pytest.mark.soak
async def test_an_older_client_hears_over_stdio(tmp_path: Path) -> None:
    """By `resources/subscribe`, of what another process writes too."""
    import mcp_types as types

    location = str(tmp_path / "ledger")
    tell, told = anyio.create_memory_object_stream[str](10)

    async def hear(message: Any) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            await tell.send(message.params.uri)

    with chatledger.open(location) as ledger:
        ledger.create_chat("trip", "ann")
        async with over_stdio(location, mode="legacy", handler=hear) as client:
            wanted = types.SubscribeRequest(params=types.SubscribeRequestParams(uri=TRIP))
            await client.session.send_request(wanted, types.EmptyResult)
            ledger.append("trip", [user("from another process")])
            with anyio.fail_after(20):
                assert await told.receive() == TRIP
            over = types.UnsubscribeRequest(params=types.UnsubscribeRequestParams(uri=TRIP))
            await client.session.send_request(over, types.EmptyResult)
            ledger.append("trip", [user("nobody listens")])
            read = await call(client, "read_conversation", conversation="trip")
            assert len(read["messages"]) >= 1
    assert told.statistics().current_buffer_used == 0
    told.close()
    tell.close()
