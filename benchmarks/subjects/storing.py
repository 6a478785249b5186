"""Much at once: taking conversations in, building the index anew, opening, and what all that takes on the disk."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import islice
from pathlib import Path

import msgspec

import chatledger
from chatledger import Ledger, NewMessage
from chatledger.importers import ImportedChat, import_chats
from chatledger.infra.exchange.chat_groups import ChatGroups

from ..data import as_rows
from ..measure import Row, bytes_on_disk, check_equal, take_turns
from ..prose import Prose
from ..sqlite_peer import SqlitePeer
from ..world import Durability, World, fill, one_chain

Plan = tuple[ImportedChat, list[NewMessage]]

_PER_CHAT = 100
_PEERS = {"SQLite": False, "SQLite with FTS5": True}
"""Peers of an import, and whether they have a full-text index."""
_ATTACH = """
import sys
from benchmarks.subjects import storing

storing.print_attach(sys.argv[1], sys.argv[2])
"""


def imports(world: World) -> Iterator[Row]:
    """Imports of whole conversations, one commit each, with and without the peer's full-text index; and the bytes they take."""
    count = world.sizes.imported
    plans = _conversations(count)
    samples, sizes = _import(world, plans)
    name = f"import {count:,} messages in {len(plans):,} chats"
    for peer in _PEERS:
        yield Row(
            subject="imports",
            name=name,
            peer=peer,
            show="rate",
            ours=[seconds / count for seconds in samples["ours"]],
            theirs=[seconds / count for seconds in samples[peer]],
            note=f"{_PER_CHAT} messages per commit, into an empty store; durability='always' and synchronous=FULL",
        )
        yield Row(
            subject="imports",
            name=f"bytes on disk for {count:,} messages",
            peer=peer,
            show="bytes",
            ours=[float(sizes["log"] + sizes["index"])],
            theirs=[float(sizes[peer])],
            note=f"of the same import, closed: log {_megabytes(sizes['log'])} and index {_megabytes(sizes['index'])}",
        )
    groups = _groups(plans)
    yield Row(
        subject="imports",
        name=f"{name}, up to {len(groups[0])} chats in a commit",
        peer="SQLite with FTS5",
        show="rate",
        ours=[seconds / count for seconds in samples["ours, groups"]],
        theirs=[seconds / count for seconds in samples["peer, groups"]],
        note="`import_chats`, as 'chatledger import' does, against the same chats in each transaction; otherwise the same",
    )
    yield Row(
        subject="imports",
        name=f"bytes of the log for {count:,} messages",
        peer="payloads as JSON",
        show="bytes",
        ours=[float(sizes["log"])],
        theirs=[float(sum(len(msgspec.json.encode(message)) for chat, _ in plans for message in chat.messages))],
        note="of the same import; the limit: each message with its id and time as compact JSON, nothing around it",
    )


def _import(world: World, plans: Sequence[Plan]) -> tuple[dict[str, list[float]], dict[str, int]]:
    """Seconds of each, in turns, and the bytes on the disk after the last of them, by what they are of."""
    repeats, chat_id = world.sizes.import_repeats, plans[-1][0].id
    samples: dict[str, list[float]] = {name: [] for name in ("ours", *_PEERS, "ours, groups", "peer, groups")}
    sizes: dict[str, int] = {}
    for turn in range(repeats):
        world.report(f"import, {turn + 1} of {repeats}")
        folder = world.folder()
        with ExitStack() as stack:
            ledger = stack.enter_context(chatledger.open(folder / "ledger", durability="always"))
            grouped = stack.enter_context(chatledger.open(folder / "grouped", durability="always"))
            peer_of_groups = stack.enter_context(SqlitePeer(folder / "grouped.db", synchronous="FULL", search=True))
            peers = {
                name: stack.enter_context(SqlitePeer(folder / f"{search}.db", synchronous="FULL", search=search))
                for name, search in _PEERS.items()
            }
            runs: dict[str, Callable[[], object]] = {
                "ours": partial(_import_ours, ledger, plans),
                **{name: partial(_import_theirs, peer, plans) for name, peer in peers.items()},
                "ours, groups": partial(_import_groups, grouped, plans),
                "peer, groups": partial(_import_their_groups, peer_of_groups, _groups(plans)),
            }
            order = list(runs) if turn % 2 == 0 else list(reversed(runs))
            for who, values in take_turns({who: runs[who] for who in order}, repeats=1, is_warm=False).items():
                samples[who].extend(values)
            for peer in (*peers.values(), peer_of_groups):
                for mine in (ledger, grouped):
                    check_equal("import", as_rows(mine.get_messages(chat_id)), peer.get_messages(chat_id))
                peer.checkpoint()
        sizes = {what: bytes_on_disk(folder / "ledger" / what) for what in ("log", "index")}
        sizes |= {name: bytes_on_disk(peer.path) for name, peer in peers.items()}
    return samples, sizes


def _import_ours(ledger: Ledger, plans: Sequence[Plan]) -> None:
    for chat, _ in plans:
        ledger.import_chat(chat)


def _import_theirs(peer: SqlitePeer, plans: Sequence[Plan]) -> None:
    for chat, messages in plans:
        peer.import_chat(chat.id, chat.user_id, messages)


def _import_groups(ledger: Ledger, plans: Sequence[Plan]) -> None:
    for one in import_chats(ledger, (chat for chat, _ in plans)):
        one.get_result()


def _import_their_groups(peer: SqlitePeer, groups: Sequence[Sequence[Plan]]) -> None:
    for group in groups:
        peer.import_chats((chat.id, chat.user_id, messages) for chat, messages in group)


def _groups(plans: Sequence[Plan]) -> list[list[Plan]]:
    """The chats of each commit of `import_chats`."""
    groups, left = ChatGroups(chat for chat, _ in plans), iter(plans)
    return [list(islice(left, len(group))) for group in iter(groups.read, [])]


def _conversations(count: int) -> list[Plan]:
    plans: list[Plan] = []
    for number in range(max(1, count // _PER_CHAT)):
        messages = list(Prose(100_000 + number).messages(min(count, _PER_CHAT)))
        plans.append((one_chain(f"chat-{number:06}", "ada", messages), messages))
    return plans


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"


def rebuilds(world: World) -> Iterator[Row]:
    """The index from the log, against all rows of the peer's file put into a new one."""
    for per_event in (1, _PER_CHAT):
        yield _rebuild(world, per_event)


def _rebuild(world: World, per_event: int) -> Row:
    count, pair = world.sizes.rebuilt, world.events(per_event)
    world.report("rebuild")
    copies: list[SqlitePeer] = []
    samples = take_turns(
        {"ours": pair.ledger.rebuild, "theirs": lambda: copies.append(_copy(world, pair.peer))},
        repeats=world.sizes.import_repeats,
    )
    check_equal("rebuild", as_rows(pair.ledger.get_messages("chat")), copies[-1].get_messages("chat"))
    for copy in copies:
        copy.close()
    return Row(
        subject="rebuilds",
        name=f"rebuild of {count:,} messages, {per_event} in an event",
        peer="SQLite",
        show="rate",
        ours=[seconds / count for seconds in samples["ours"]],
        theirs=[seconds / count for seconds in samples["theirs"]],
        note=(
            "warm; ours reads the log, checks the hash chain and builds a new index; the peer has no log: all rows, as "
            "they are, are inserted into a new file in transactions of 1,000; no FTS5"
        ),
    )


def _copy(world: World, peer: SqlitePeer) -> SqlitePeer:
    copy = SqlitePeer(world.folder() / "copy.db")
    peer.copy_to(copy)
    return copy


def opening(world: World) -> Iterator[Row]:
    """Opening a store that was closed properly, reading the last 50 messages, closing it."""
    length = world.sizes.branched
    with world.fresh("always") as pair:
        world.report(f"storing {length:,} messages to open")
        fill(pair, "chat", length, seed=6)
        path = pair.peer.path
        check_equal("opening", as_rows(_last(pair.ledger)), pair.peer.get_messages("chat", limit=50))
    yield world.compare(
        lambda: _open_ours(path.with_name("ledger"), "always"),
        lambda: _open_theirs(path),
        subject="opening",
        name=f"open {length:,} messages, read 50, close",
        note="the system's file cache is warm; ours starts and stops a server",
    )


def long_opening(world: World) -> Iterator[Row]:
    """Opening a long ledger next to an empty one, and going to one that another process has open."""
    length = world.sizes.longest
    paths = {count: world.stored(count) for count in (0, length)}
    yield world.compare(
        lambda: _open_ours(paths[length], "fast"),
        lambda: _open_ours(paths[0], "fast"),
        subject="long_opening",
        name=f"open {length:,} messages, read 50, close",
        peer="ours, empty",
        note="closed properly before; the system's file cache is warm; a server is started and stopped",
    )
    with (
        chatledger.open(paths[length], durability="fast"),
        SqlitePeer(world.folder() / "peer.db") as peer,
    ):
        peer.create_chat("chat", "ada")
        runs = {"ours": partial(_attach, "ours", paths[length]), "theirs": partial(_attach, "theirs", peer.path)}
        world.report("attach")
        samples: dict[str, list[float]] = {"ours": [], "theirs": []}
        for turn in range(world.sizes.repeats):
            for who in runs if turn % 2 == 0 else reversed(list(runs)):
                samples[who].append(runs[who]())
    yield Row(
        subject="long_opening",
        name=f"attach to {length:,} messages that another process has open, read 50",
        peer="SQLite",
        ours=samples["ours"],
        theirs=samples["theirs"],
        note="in a new process, once Python has imported everything; the peer's file is empty",
    )


def _attach(who: str, path: Path) -> float:
    """How long a new process takes until it has read."""
    answer = subprocess.run(
        [sys.executable, "-c", _ATTACH, who, str(path)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return float(answer.stdout)


def print_attach(who: str, path: str) -> None:
    """Print the seconds that opening and reading take, on stdout."""
    begun = time.perf_counter()
    if who == "ours":
        with chatledger.open(path, durability="fast") as ledger:
            _last(ledger)
            took = time.perf_counter() - begun
    else:
        with SqlitePeer(Path(path)) as peer:
            peer.get_messages("chat", limit=50)
            took = time.perf_counter() - begun
    print(took)


def _open_ours(path: Path, durability: Durability) -> None:
    with chatledger.open(path, durability=durability) as ledger:
        _last(ledger)


def _open_theirs(path: Path) -> None:
    with SqlitePeer(path) as peer:
        peer.get_messages("chat", limit=50)


def _last(ledger: Ledger) -> list[chatledger.Message]:
    return ledger.get_messages("chat", limit=50)
