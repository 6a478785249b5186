"""The context of a model: system prompt and chain, as a context engine resolves them."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from chatledger import ContextEngine, Fragment, user
from chatledger.fragments import fragment, hint, role
from chatledger.reminders import after_turn, elapsed_exceeds, last_assistant_length, not_, once, or_, reminder

from ..measure import Row, check_equal, take_turns
from ..world import Pair, World, fill

_SHORT: Final = 100
_QUESTION: Final = "And if it rains?"
_REMINDERS: Final = (
    reminder("Be brief.", when=or_(after_turn(1), once("brief"))),
    reminder("Sum up.", when=elapsed_exceeds(7 * 86_400_000)),
    reminder("Say more.", when=not_(last_assistant_length({"gte": 0}))),
)
_TAGGED: Final = "<system-reminder>Be brief.</system-reminder>"


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
    yield from _saves_with_reminders(world)


def _saves_with_reminders(world: World) -> Iterator[Row]:
    """Saves that ask four conditions, in a short chat and in a long one, against saves that ask none."""
    sizes = world.sizes
    count, lengths = sizes.appends_per_sample, (_SHORT, sizes.chains[1])
    with world.fresh("fast") as pair:
        runs: dict[str, Callable[[], None]] = {}
        for length in lengths:
            fill(pair, f"chat-{length}", length, seed=length)
            runs[f"{length}"] = _saves(pair, f"chat-{length}", count)
            runs[f"{length}, reminders"] = _saves(pair, f"chat-{length}", count, *_REMINDERS)
        world.report("save with reminders")
        samples = take_turns(runs, repeats=sizes.repeats)
        for length in lengths:
            runs[f"{length}, reminders"]()
            last = pair.ledger.get_messages(f"chat-{length}", limit=1)[-1]
            check_equal("save with reminders", last.text, f"{_QUESTION}{_TAGGED}")
    each = {name: [seconds / count for seconds in values] for name, values in samples.items()}
    for length in lengths:
        yield Row(
            subject="engine",
            name=f"save with reminders, to a chat of {length:,}",
            peer="ours, no reminders",
            ours=each[f"{length}, reminders"],
            theirs=each[f"{length}"],
            note="one message per commit, durability='fast'; conditions about turns, time, the last answer and what fired",
        )


def _saves(pair: Pair, chat_id: str, count: int, *reminders: Fragment) -> Callable[[], None]:
    engine = ContextEngine(pair.ledger, chat_id, "ada").set(*reminders)

    def run() -> None:
        for _ in range(count):
            engine.set(user(_QUESTION)).save()

    return run
