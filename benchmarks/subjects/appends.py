"""Appending one message: one commit for each, durable or nearly so, to a short chat and to a long one."""

from collections.abc import Callable, Iterator, Sequence

from chatledger import NewMessage

from ..data import as_rows
from ..measure import Row, check_equal, take_turns
from ..prose import Prose
from ..world import SYNCHRONOUS, Durability, Pair, World, fill

_CHECKED = 20


def appends(world: World) -> Iterator[Row]:
    """Single appends for each durability, with an empty chat and a long one in turns."""
    for durability in SYNCHRONOUS:
        yield from _appends(world, durability)


def _appends(world: World, durability: Durability) -> Iterator[Row]:
    sizes = world.sizes
    filled, chat_id = world.chain(sizes.long, durability)
    with world.fresh(durability) as empty:
        fill(empty, chat_id, 0)
        world.report(f"append, durability {durability}")
        count = sizes.appends_per_sample
        samples = take_turns(
            {
                "ours": _ours(empty, chat_id, 2, count),
                "theirs": _theirs(empty, chat_id, 2, count),
                "ours, long": _ours(filled, chat_id, 3, count),
                "theirs, long": _theirs(filled, chat_id, 3, count),
            },
            repeats=sizes.repeats,
        )
        for one in (empty, filled):
            ours, theirs = (
                one.ledger.get_messages(chat_id, limit=_CHECKED),
                one.peer.get_messages(chat_id, limit=_CHECKED),
            )
            check_equal(f"append, durability {durability}", as_rows(ours), theirs)
    each = {name: [seconds / count for seconds in values] for name, values in samples.items()}
    note = f"one message per commit; durability={durability!r} and synchronous={SYNCHRONOUS[durability]}; no FTS5"
    name = f"append, {durability}, to an empty chat"
    yield Row(subject="appends", name=name, peer="SQLite", ours=each["ours"], theirs=each["theirs"], note=note)
    name = f"append, {durability}, to a chat of {sizes.long:,}"
    long = each["ours, long"]
    yield Row(subject="appends", name=name, peer="SQLite", ours=long, theirs=each["theirs, long"], note=note)
    note = "1 means that the length of the chat does not matter"
    yield Row(subject="appends", name=name, peer="ours, empty chat", ours=long, theirs=each["ours"], note=note)


def _ours(pair: Pair, chat_id: str, seed: int, count: int) -> Callable[[], None]:
    talk = Prose(seed)

    def run() -> None:
        for message in _batch(talk, count):
            pair.ledger.append(chat_id, [message])

    return run


def _theirs(pair: Pair, chat_id: str, seed: int, count: int) -> Callable[[], None]:
    talk = Prose(seed)

    def run() -> None:
        for message in _batch(talk, count):
            pair.peer.append(chat_id, [message])

    return run


def _batch(talk: Prose, count: int) -> Sequence[NewMessage]:
    return list(talk.messages(count))
