"""Reading a whole chain, and its end."""

from collections.abc import Iterator
from functools import partial

import msgspec

from ..data import as_rows
from ..measure import Row, check_equal
from ..sqlite_peer import SqlitePeer
from ..world import World

TAIL = 50
LAZY_NOTE = (
    "warm; data are decoded when they are asked for, `lazy_data=True`, which they are not here; the peer as above"
)


def chains(world: World) -> Iterator[Row]:
    """Chains of several lengths, whole and the last 50, every message decoded."""
    for length in world.sizes.chains:
        pair, chat_id = world.chain(length)
        ours, theirs = partial(pair.ledger.get_messages, chat_id), partial(pair.peer.get_messages, chat_id)
        name = f"chain of {length:,} messages"
        lazy = partial(pair.ledger.get_messages, chat_id, lazy_data=True)
        rows = theirs()
        check_equal(name, as_rows(ours()), rows)
        check_equal(f"{name}, lazy", as_rows(lazy()), rows)
        del rows
        yield world.compare(
            ours, theirs, subject="chains", name=name, note="warm; every message decoded; recursive query, json.loads"
        )
        yield world.compare(lazy, theirs, subject="chains", name=f"{name}, lazy data", note=LAZY_NOTE)
        if length == world.sizes.chains[1]:
            with SqlitePeer(pair.peer.path, loads=msgspec.json.decode) as faster:
                yield world.compare(
                    ours,
                    partial(faster.get_messages, chat_id),
                    subject="chains",
                    name=name,
                    peer="SQLite, msgspec",
                    note="warm; every message decoded; the peer with msgspec's JSON decoder, not the standard library's",
                )
    for length in world.sizes.chains:
        pair, chat_id = world.chain(length)
        ours = partial(pair.ledger.get_messages, chat_id, limit=TAIL)
        theirs = partial(pair.peer.get_messages, chat_id, limit=TAIL)
        name = f"last {TAIL} of {length:,} messages"
        check_equal(name, as_rows(ours()), theirs())
        yield world.compare(
            ours, theirs, subject="chains", name=name, note="warm; the peer's recursion ends after 50 steps"
        )
