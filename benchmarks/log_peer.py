"""Bare nats-py on the log of a ledger: what the server and the library give by themselves."""

import asyncio
import json
from pathlib import Path
from typing import Any, cast

import nats
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

_FETCHED = 1000
_TIMEOUT_S = 60.0


async def connect(folder: str) -> Any:
    """A connection of nats-py to the server of a ledger that is open."""
    endpoint = json.loads((Path(folder) / "endpoint.json").read_bytes())
    untyped = cast("Any", nats)
    return await untyped.connect(endpoint["url"], token=endpoint["token"], pending_size=1 << 26)


async def read_by_pull(folder: str, count: int) -> int:
    """Fetch so many events, 1,000 at a time, without acknowledging; returns their bytes."""
    connection = await connect(folder)
    try:
        config = ConsumerConfig(ack_policy=AckPolicy.NONE, deliver_policy=DeliverPolicy.ALL, mem_storage=True)
        subscription = await connection.jetstream().pull_subscribe(
            "chatledger.e.>",
            stream="chatledger",
            config=config,
            pending_msgs_limit=-1,
            pending_bytes_limit=-1,
        )
        size, left = 0, count
        while left:
            page = await subscription.fetch(min(left, _FETCHED), timeout=_TIMEOUT_S)
            size += sum(len(message.data) for message in page)
            left -= len(page)
        return size
    finally:
        await connection.close()


async def read_by_push(folder: str, count: int) -> int:
    """Have so many events pushed, in order and without acknowledgement; returns their bytes."""
    connection = await connect(folder)
    done = asyncio.get_running_loop().create_future()
    seen = [0, 0]

    async def arrived(message: Any) -> None:
        seen[0] += 1
        seen[1] += len(message.data)
        if seen[0] == count:
            done.set_result(None)

    try:
        await connection.jetstream().subscribe(
            "chatledger.e.>",
            cb=arrived,
            config=ConsumerConfig(ack_policy=AckPolicy.NONE, deliver_policy=DeliverPolicy.ALL, mem_storage=True),
            pending_msgs_limit=-1,
            pending_bytes_limit=-1,
        )
        async with asyncio.timeout(_TIMEOUT_S):
            await done
        return seen[1]
    finally:
        await connection.close()
