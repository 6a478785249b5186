"""`lazy_data` of `get_messages` and `get_chain`: the same chains from every kind of ledger, usable after it is closed."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.ledger_world import text

import chatledger
from chatledger import InvalidValueError, Ledger, Message
from chatledger.errors import MessageNotFoundError

COUNT = 150


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("c", "ada")
        ledger.append("c", [text(f"message {number}", id=f"m{number}") for number in range(COUNT)])
        ledger.fork("c", "m70", activate=False)
        ledger.append("c", [text("other", id="other")], branch="main-v2")
        ledger.annotate("c", "m70", stale=True)
        yield ledger


def is_decoded(message: Message) -> bool:
    return type(message) is Message


READS: dict[str, dict[str, Any]] = {
    "all": {},
    "the last": {"limit": 50},
    "none": {"limit": 0},
    "before": {"before": "m66", "limit": 3},
    "from the root": {"before": "m2"},
}


@pytest.mark.parametrize("arguments", READS.values(), ids=READS)
def test_lazy_chains_are_chains(ledger: Ledger, arguments: dict[str, Any]) -> None:
    """Of a branch and of a message; now, as of a position, limited to a user, and awaited."""
    eager = ledger.get_messages("c", **arguments)
    position = ledger.position
    ledger.append("c", [text("later")])
    with ledger.as_of(position) as view:
        then = view.get_messages("c", lazy_data=True, **arguments)
    owned = ledger.for_user("ada").get_chain(f"m{COUNT - 1}", lazy_data=True, **arguments)
    reads = [then, owned, ledger.get_chain(f"m{COUNT - 1}", lazy_data=True, **arguments)]

    assert not any(is_decoded(message) for read in reads for message in read)
    assert [eager, eager, eager] == reads
    assert [] == ledger.for_user("bob").get_chain("m3", lazy_data=True)
    branch = ledger.get_messages("c", branch="main-v2", lazy_data=True, limit=2)
    assert ["m70", "other"] == [message.id for message in branch]
    assert [True, False] == [message.is_stale for message in branch]


def test_lazy_chains_are_awaited() -> None:
    """The asynchronous ledger takes the same argument; data are decoded where they are asked for, also after it is closed."""

    async def read() -> tuple[list[Message], list[Message]]:
        async with chatledger.open_async("memory:") as ledger:
            await ledger.create_chat("c", "ada")
            await ledger.append("c", [text("one"), text("two")])
            lazy = await ledger.get_messages("c", lazy_data=True)
            assert lazy == await ledger.get_chain(lazy[-1].id, lazy_data=True)
            found = await ledger.get_messages("c", lazy_data=True)
            assert not any(map(is_decoded, found))  # here, as asyncio shows what a task returns while it debugs
            return found, await ledger.get_messages("c")

    lazy, eager = asyncio.run(read())
    assert eager == lazy


def test_arguments_are_looked_at_all_the_same(ledger: Ledger) -> None:
    with pytest.raises(MessageNotFoundError):
        ledger.get_messages("c", before="unknown", lazy_data=True)
    with pytest.raises(InvalidValueError, match="not on the chain"):
        ledger.get_messages("c", before="other", lazy_data=True)
    with pytest.raises(InvalidValueError, match="limit"):
        ledger.get_chain("m3", limit=-1, lazy_data=True)
