"""Costs of an append beside a bare acknowledged publish to the same server, and the gain of many writers at once."""

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Final, Self

import chatledger

from ..log_peer import connect
from ..measure import Row, take_turns
from ..prose import Prose
from ..world import SYNCHRONOUS, Durability, World

_SUBJECT: Final = "bench.publish"
_STREAM: Final = "bench"
_AT_ONCE: Final = 16
_EVENT_BYTES: Final = 500
"""About what an event with one message of 200 bytes takes with its headers."""
_RECORD_BYTES: Final = 30
"""Bytes that the server adds to a message without headers, besides its subject."""


class BarePublisher(AbstractContextManager["BarePublisher"]):
    """
    nats-py, connected to the server of a ledger, with a stream of its own that has the settings of the ledger's.

    Args:
        folder: The ledger, open in this process.
    """

    def __init__(self, folder: str) -> None:
        self._runner = asyncio.Runner()
        self._connection = self._runner.run(connect(folder))
        self._stream: Any = self._connection.jetstream()
        self._runner.run(self._make())

    async def _make(self) -> None:
        info = await self._stream.stream_info("chatledger")
        await self._stream.add_stream(info.config.evolve(name=_STREAM, subjects=[_SUBJECT], sources=None, mirror=None))

    def publish(self, count: int, *, size: int = _EVENT_BYTES) -> int:
        """So many messages of so many bytes, each acknowledged before the next; returns the position of the first."""
        return self._runner.run(self._publish(count, size))

    async def _publish(self, count: int, size: int) -> int:
        payload = bytes(size)
        positions = [(await self._stream.publish(_SUBJECT, payload)).seq for _ in range(count)]
        return int(positions[0])

    def event_bytes(self) -> int:
        """Bytes of a message that takes as much room as an event of the ledger does on average."""
        state = self._runner.run(self._stream.stream_info("chatledger")).state
        return max(1, int(state.bytes) // int(state.messages) - _RECORD_BYTES - len(_SUBJECT))

    def erase(self, positions: Sequence[int]) -> None:
        """Delete messages, overwritten by the server, some requests at a time."""
        self._runner.run(self._erase(positions))

    async def _erase(self, positions: Sequence[int]) -> None:
        for start in range(0, len(positions), _AT_ONCE):
            window = positions[start : start + _AT_ONCE]
            await asyncio.gather(*(self._stream.delete_msg(_STREAM, position) for position in window))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.run(self._connection.close())
        self._runner.close()


def publishing(world: World) -> Iterator[Row]:
    """One append after the other against one publish after the other, for each durability."""
    for durability in SYNCHRONOUS:
        yield _publishing(world, durability)


def _publishing(world: World, durability: Durability) -> Row:
    count, folder = world.sizes.appends_per_sample, world.folder() / "ledger"
    talk = Prose(8)
    with chatledger.open(folder, durability=durability) as ledger, BarePublisher(str(folder)) as bare:
        ledger.create_chat("chat", "ada")
        world.report(f"append and publish, durability {durability}")

        def append() -> None:
            for message in list(talk.messages(count)):
                ledger.append("chat", [message])

        samples = take_turns({"ours": append, "theirs": lambda: bare.publish(count)}, repeats=world.sizes.repeats)
    return Row(
        subject="publishing",
        name=f"append, {durability}",
        peer="nats-py, publish",
        ours=[seconds / count for seconds in samples["ours"]],
        theirs=[seconds / count for seconds in samples["theirs"]],
        note=(
            f"the limit: {_EVENT_BYTES} bytes published to a stream with the same settings on the same server, each acknowledged "
            "before the next; nothing is decided, checked, hashed or indexed"
        ),
    )


def writers(world: World) -> Iterator[Row]:
    """Many chats that are written at the same time through `AsyncLedger`, against one after the other."""
    for durability in SYNCHRONOUS:
        yield _writers(world, durability)


def _writers(world: World, durability: Durability) -> Row:
    chats, count = world.sizes.writers, world.sizes.writers * max(1, world.sizes.appends_per_sample // 8)
    folder = world.folder() / "ledger"
    with asyncio.Runner() as runner:
        ledger = chatledger.open_async(folder, durability=durability)
        try:
            runner.run(_make_chats(ledger, chats))
            world.report(f"{chats} writers at once, durability {durability}")
            talk = Prose(9)
            samples = take_turns(
                {
                    "ours": lambda: runner.run(_append_at_once(ledger, talk, chats, count)),
                    "theirs": lambda: runner.run(_append_in_turn(ledger, talk, chats, count)),
                },
                repeats=world.sizes.repeats,
            )
        finally:
            runner.run(ledger.close())
    return Row(
        subject="writers",
        name=f"append, {durability}, by {chats} writers at once",
        peer="ours, one writer",
        show="rate",
        ours=[seconds / count for seconds in samples["ours"]],
        theirs=[seconds / count for seconds in samples["theirs"]],
        note="`AsyncLedger`; each writer has a chat of its own; one message per commit",
    )


async def _make_chats(ledger: chatledger.AsyncLedger, chats: int) -> None:
    for number in range(chats):
        await ledger.create_chat(f"chat-{number}", "ada")


async def _append_at_once(ledger: chatledger.AsyncLedger, talk: Prose, chats: int, count: int) -> None:
    async def write(number: int) -> None:
        for message in list(talk.messages(count // chats)):
            await ledger.append(f"chat-{number}", [message])

    await asyncio.gather(*(write(number) for number in range(chats)))


async def _append_in_turn(ledger: chatledger.AsyncLedger, talk: Prose, chats: int, count: int) -> None:
    for number, message in zip(itertools.cycle(range(chats)), list(talk.messages(count)), strict=False):
        await ledger.append(f"chat-{number}", [message])
