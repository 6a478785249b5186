"""The context of a model: system prompt and chain, as a context engine resolves them."""

from collections.abc import Iterator
from functools import partial

from chatledger import ContextEngine
from chatledger.fragments import fragment, hint, role

from ..measure import Row, check_equal
from ..world import World


def engine(world: World) -> Iterator[Row]:
    """`resolve` on chains of several lengths, against the peer's reading of the chain alone."""
    for length in world.sizes.chains:
        pair, chat_id = world.chain(length)
        resolving = ContextEngine(pair.ledger, chat_id, "ada")
        resolving.set(role("You plan trips."), fragment("rules", *(hint(f"Rule {n}") for n in range(10))))
        theirs = partial(pair.peer.get_messages, chat_id)
        name = f"resolve on {length:,} messages"
        check_equal(name, resolving.resolve().messages, [row["data"] for row in theirs()])
        yield world.compare(
            resolving.resolve,
            theirs,
            subject="engine",
            name=name,
            note="warm; ours renders a prompt of eleven fragments too, the peer reads its chain and decodes it",
        )
