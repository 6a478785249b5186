"""Sessions of the OpenAI Agents SDK, what its users would have instead: plain, and the one that can branch."""

import asyncio
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any

from chatledger import Ledger, NewMessage

from ..measure import Row, check_equal, take_turns
from ..prose import Prose
from ..world import BATCH, World, fill

TAIL = 50
_NOTE = "warm; its methods are awaited on one event loop; synchronous=FULL is its setting, ours is durability='always'"


def sessions(world: World) -> Iterator[Row]:
    """Appending, reading all and the end, branching; nothing where the package is not installed."""
    if find_spec("agents") is None:
        world.report("no rows of sessions: the package openai-agents is not installed")
        return
    from agents.extensions.memory import AdvancedSQLiteSession
    from agents.memory import SQLiteSession

    length, folder = world.sizes.branched, world.folder()
    plain = partial(SQLiteSession, "chat", folder / "plain.db")
    advanced = partial(AdvancedSQLiteSession, session_id="chat", db_path=folder / "advanced.db", create_tables=True)
    with asyncio.Runner() as runner:
        for peer, make in (("SQLiteSession", plain), ("AdvancedSQLiteSession", advanced)):
            session: Any = make()
            try:
                yield from _session(world, runner, peer, session, length)
            finally:
                session.close()


def _session(world: World, runner: asyncio.Runner, peer: str, session: Any, length: int) -> Iterator[Row]:
    def wait(awaitable: Any) -> Any:
        return runner.run(_awaited(awaitable))

    with world.fresh("always") as pair:
        ledger = pair.ledger
        world.report(f"storing {length:,} messages, {peer}")
        fill(pair, "chat", length, seed=21)
        messages = list(Prose(21).messages(length))
        for start in range(0, length, BATCH):
            wait(session.add_items([_item(message) for message in messages[start : start + BATCH]]))
        row = partial(world.compare, subject="sessions", peer=peer, note=_NOTE)
        for limit, name in ((None, f"all {length:,} messages"), (TAIL, f"last {TAIL} of {length:,} messages")):
            ours = partial(ledger.get_messages, "chat", limit=limit)

            def theirs(limit: int | None = limit) -> Any:
                return wait(session.get_items(limit=limit))

            texts = [message.data["parts"][0]["text"] for message in ours()]
            check_equal(name, texts, [item["content"] for item in theirs()])
            yield row(ours, theirs, name=name)
        yield _append(world, ledger, session, wait, peer)
        if peer == "AdvancedSQLiteSession":
            yield _branch(world, ledger, session, wait, length)


def _append(world: World, ledger: Ledger, session: Any, wait: Any, peer: str) -> Row:
    count, talk, others = world.sizes.appends_per_sample, Prose(22), Prose(22)

    def ours() -> None:
        for message in list(talk.messages(count)):
            ledger.append("chat", [message])

    async def add() -> None:
        for message in list(others.messages(count)):
            await session.add_items([_item(message)])

    world.report(f"append, {peer}")
    samples = take_turns({"ours": ours, "theirs": lambda: wait(add())}, repeats=world.sizes.repeats)
    return Row(
        subject="sessions",
        name="append of one message",
        peer=peer,
        ours=[seconds / count for seconds in samples["ours"]],
        theirs=[seconds / count for seconds in samples["theirs"]],
        note=_NOTE,
    )


def _branch(world: World, ledger: Ledger, session: Any, wait: Any, length: int) -> Row:
    """A branch from the middle: ours names a message, theirs copies what is before it."""
    middle = ledger.get_messages("chat")[length // 2]
    turn = length // 4 + 1  # two messages in a turn

    def theirs() -> None:
        wait(session.create_branch_from_turn(turn))
        wait(session.switch_to_branch("main"))

    return world.compare(
        partial(ledger.fork, "chat", middle.id, activate=False),
        theirs,
        subject="sessions",
        name=f"branch from the middle of {length:,} messages",
        peer="AdvancedSQLiteSession",
        note="ours names the message that the branch begins at; theirs copies a row for each message before it",
        few=True,
    )


async def _awaited(awaitable: Any) -> Any:
    return await awaitable


def _item(message: NewMessage) -> dict[str, Any]:
    return {"role": message.name, "content": message.data["parts"][0]["text"]}
