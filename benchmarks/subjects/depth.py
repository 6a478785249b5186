"""Long chains and chats with many forks, next to the limits: one decode of the same bytes, one look-up in LMDB."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import repeat
from pathlib import Path

import lmdb
import msgspec

import chatledger
from chatledger import Ledger, Message, NewMessage
from chatledger.infra.ledger.port import store_of
from chatledger.projections.chat.chains import Chains, Place

from ..measure import Row, check_equal, take_turns
from ..prose import Prose
from ..sqlite_peer import SqlitePeer
from ..world import BATCH, Pair, World, make_chain
from .chains import LAZY_NOTE

TAIL = 50
_SHORT = 100
_EVERY = 10
_DECODE_NOTE = "warm; the limit: all messages as one msgpack array in memory, decoded by one call into the same objects"
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Message]).decode


def long_chains(world: World) -> Iterator[Row]:
    """The longest chain: whole, its end, its ancestors; and the cost per message next to shorter ones."""
    longest, middle = world.sizes.longest, world.sizes.chains[1]
    chat_id, path = "chat", world.folder() / "peer.db"
    with world.storing(longest), SqlitePeer(path) as peer:
        peer.import_chat(chat_id, "ada", Prose(longest, length=longest).messages(longest))
    with (
        chatledger.open(world.stored(longest), durability="fast") as ledger,
        chatledger.open(world.stored(middle), durability="fast") as shorter,
        SqlitePeer(path) as peer,
    ):
        yield from _whole(world, Pair(ledger, peer), shorter, chat_id)
        yield from _limits(world, shorter, chat_id, middle)
        yield from _at_depth(world, ledger, chat_id, longest)


def _at_depth(world: World, ledger: Ledger, chat_id: str, longest: int) -> Iterator[Row]:
    make_chain(ledger, "short", _SHORT, seed=2)
    yield world.compare(
        partial(ledger.get_messages, chat_id, limit=TAIL),
        partial(ledger.get_messages, "short", limit=TAIL),
        subject="long_chains",
        name=f"last {TAIL} of {longest:,} messages",
        peer=f"ours, of {_SHORT}",
        note="1 means that the length of the chat does not matter",
    )
    yield from _ancestors(world, ledger, chat_id, longest)
    yield _appended(world, ledger, chat_id, longest)


def _whole(world: World, pair: Pair, shorter: Ledger, chat_id: str) -> Iterator[Row]:
    """
    The longest chain, all of it: next to the peer, to one decode of the same bytes, and, message by message, to a shorter one.

    Each of these calls takes seconds, so their rows share samples.
    """
    longest, middle = world.sizes.longest, world.sizes.chains[1]
    name = f"chain of {longest:,} messages"
    runs = {length: _ways(ledger, chat_id, length) for length, ledger in ((longest, pair.ledger), (middle, shorter))}
    theirs = partial(pair.peer.get_messages, chat_id)
    ids = [row["id"] for row in theirs()]
    for how, call in runs[longest].items():
        check_equal(f"{name}{how}", [message.id for message in call()], ids)
    del ids
    world.report(name)
    samples = take_turns(
        {
            "SQLite": theirs,
            **{f"{length}{how}": call for length, ways in runs.items() for how, call in ways.items()},
        },
        repeats=world.sizes.import_repeats,
        is_warm=False,
    )
    row = partial(Row, subject="long_chains")
    ours, lazy, decode = (samples[f"{longest}{how}"] for how in runs[longest])
    peer = samples["SQLite"]
    yield row(
        name=name,
        peer="SQLite",
        ours=ours,
        theirs=peer,
        note="warm; every message decoded; recursive query, json.loads",
    )
    yield row(name=f"{name}, lazy data", peer="SQLite", ours=lazy, theirs=peer, note=LAZY_NOTE)
    yield row(name=name, peer="one msgpack decode", ours=ours, theirs=decode, note=_DECODE_NOTE)
    for how in runs[longest]:
        yield row(
            name=f"{name}{how}, for each message",
            peer=f"the same, {middle:,}",
            ours=[seconds / longest for seconds in samples[f"{longest}{how}"]],
            theirs=[seconds / middle for seconds in samples[f"{middle}{how}"]],
            note="warm; below 1 where a message of the long chain costs more than one of the short chain",
        )


def _ways(ledger: Ledger, chat_id: str, length: int) -> dict[str, Callable[[], list[Message]]]:
    """How a chain is read: decoded, with lazy data, and the limit, by one decode of the same bytes."""
    ours = partial(ledger.get_messages, chat_id)
    decode = partial(_decode, _encode([msgspec.structs.replace(one, chat_id="", parent_id=None) for one in ours()]))
    check_equal("decoding", len(decode()), length)
    return {"": ours, ", lazy data": partial(ours, lazy_data=True), ", one msgpack decode": decode}


def _limits(world: World, ledger: Ledger, chat_id: str, length: int) -> Iterator[Row]:
    """A chain that is read in milliseconds next to the limits."""
    ours, _, decode = _ways(ledger, chat_id, length).values()
    yield world.compare(
        ours,
        decode,
        subject="long_chains",
        name=f"chain of {length:,} messages",
        peer="one msgpack decode",
        note=_DECODE_NOTE,
    )
    yield _scanned(world, ledger, chat_id, length)


def _scanned(world: World, ledger: Ledger, chat_id: str, length: int) -> Row:
    ours = partial(ledger.get_messages, chat_id)
    bodies = [_encode(message) for message in ours()]
    with _raw(world.folder(), bodies) as env:

        def scan() -> list[Message]:
            with env.begin() as txn:
                values = [value for _, value in txn.cursor()]
            return _decode(b"\xdd" + len(values).to_bytes(4, "big") + b"".join(values))

        check_equal("scanning", scan(), ours())
        return world.compare(
            ours,
            scan,
            subject="long_chains",
            name=f"chain of {length:,} messages",
            peer="bare LMDB",
            note="warm; a message in each row, one cursor over all rows, one msgpack decode of all",
        )


def _raw(folder: Path, values: Iterable[bytes]) -> "lmdb.Environment":
    env = lmdb.open(str(folder), map_size=1 << 34, sync=False)
    with env.begin(write=True) as txn, txn.cursor() as cursor:
        cursor.putmulti(((number.to_bytes(8, "big"), value) for number, value in enumerate(values)), append=True)
    return env


def _ancestors(world: World, ledger: Ledger, chat_id: str, length: int) -> Iterator[Row]:
    """Questions at depth, each against one look-up of a row of the size of a message."""
    ids = [message.id for message in ledger.get_messages(chat_id)]
    forked = list(Prose(77).messages(2))
    low, high = ids[length // 4], ids[3 * length // 4]
    stored = ledger.add_messages(
        chat_id,
        [msgspec.structs.replace(one, parent_id=parent) for one, parent in zip(forked, (low, high), strict=True)],
    )
    a, b, end = stored[0].id, stored[1].id, ids[-1]
    found = ledger.common_ancestor(a, b)
    check_equal("common ancestor", None if found is None else found.id, low)
    # As many rows as the chain has, and as large.
    with _raw(world.folder(), repeat(b"x" * 300, length)) as env, env.begin() as txn:
        get = partial(txn.get, (length // 2).to_bytes(8, "big"))
        note = "the limit: `get` of one row of 300 bytes, among as many, in a transaction that is open already"
        row = partial(world.compare, subject="long_chains", peer="one LMDB get", note=note)
        yield row(partial(ledger.common_ancestor, a, b), get, name=f"common ancestor at depth {length:,}")
        with store_of(ledger).snapshot() as snapshot:  # below the public methods, as the title says
            chat = snapshot.chat(chat_id)
            chains, place = chat.chains, chat.place(end)
            assert place is not None, "it was stored"
            check_equal("ancestor", chains.message(chains.ancestor(place, length // 2)).id, ids[length // 2])
            yield row(
                partial(_ancestor, chains, place, length // 2),
                get,
                name=f"ancestor at depth of {length:,}, with its id",
            )
            check_equal("is ancestor", [chat.is_ancestor(low, b), chat.is_ancestor(a, b)], [True, False])
            yield row(partial(chat.is_ancestor, low, b), get, name=f"is-ancestor at depth {length:,}, by ids")


def _appended(world: World, ledger: Ledger, chat_id: str, length: int) -> Row:
    """One more message after so many; the last row of the chain, as it changes it."""
    talk = Prose(78)
    with chatledger.open(world.folder() / "ledger", durability="fast") as empty:
        empty.create_chat("chat", "ada")
        return world.compare(
            lambda: ledger.append(chat_id, [talk.message()]),
            lambda: empty.append("chat", [talk.message()]),
            subject="long_chains",
            name=f"append, fast, to a chat of {length:,}",
            peer="ours, empty ledger",
            note="1 means that it does not matter how much is stored; one message per commit",
        )


def _ancestor(chains: Chains, place: Place, depth: int) -> str:
    return chains.message(chains.ancestor(place, depth)).id


def forking(world: World) -> Iterator[Row]:
    """The same chain, with a fork at every so many messages, so that each run between two forks is a segment of its own."""
    length = world.sizes.forked
    with chatledger.open(world.folder() / "ledger", durability="fast") as ledger:
        make_chain(ledger, "straight", length, seed=3)
        straight = partial(ledger.get_messages, "straight")
        for every in (_EVERY, 1):
            chat_id = f"every-{every}"
            world.report(f"storing a chain of {length:,} with a fork at every {every}")
            head = make_forks(ledger, chat_id, length, every)
            forked: Callable[[], list[Message]] = partial(ledger.get_chain, head)
            name = f"chain of {length:,} messages with a fork at every {'message' if every == 1 else f'{every}th'}"
            check_equal(name, [m.data["parts"] for m in forked()], [m.data["parts"] for m in straight()])
            yield world.compare(
                forked,
                straight,
                subject="forking",
                name=name,
                peer="ours, straight",
                note="warm; each run of messages between two forks is a segment of its own, which is found by a look-up",
            )
            if every == 1:
                yield _lookups(world, ledger, forked, name)


def _lookups(world: World, ledger: Ledger, forked: Callable[[], list[Message]], name: str) -> Row:
    get, ids = ledger.get_message, [message.id for message in forked()]
    return world.compare(
        forked,
        lambda: [get(message_id) for message_id in ids],
        subject="forking",
        name=name,
        peer="ours, a look-up each",
        note="warm; each of its messages asked for by id, one after the other",
    )


def make_forks(ledger: Ledger, chat_id: str, length: int, every: int) -> str:
    """
    A chain that goes on with the second child at every so many messages; returns the id of its last message.

    Its messages have the content of those of `make_chain` with seed 3.
    """
    talk, others = Prose(3), Prose(4)
    ledger.create_chat(chat_id, "ada")
    parent: str | None = None
    pending: list[NewMessage] = []
    for number, message in enumerate(talk.messages(length)):
        if parent is not None and number % every == 0:
            pending.append(msgspec.structs.replace(next(others.messages(1)), id=None, parent_id=parent))
        message_id = f"{chat_id}-{number}"
        pending.append(msgspec.structs.replace(message, id=message_id, parent_id=parent))
        parent = message_id
        if len(pending) >= BATCH:
            ledger.add_messages(chat_id, pending)
            pending = []
    ledger.add_messages(chat_id, pending)
    assert parent is not None, "a chain has messages"
    return parent
