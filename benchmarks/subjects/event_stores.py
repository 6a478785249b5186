"""
The two workloads of pyeventsourcing/eventstore-benchmarks: unconditional appends, and reads of streams, each by four clients.

Sizes are those that its `workloads/concurrent_writers.yaml` and `concurrent_readers.yaml` had at commit 1275c87: events of 256 bytes,
evenly over 10,000 streams, of which the reader's have 10 events each. They are `configs/scaling/writers.yaml` and `readers.yaml` now, and
the reader's streams are 5,000 there. A stream is a chat here, and an event a message; a client is a process with the library.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from multiprocessing.synchronize import Barrier
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import chatledger
from chatledger import NewMessage

from ..measure import Row, check_equal, run_together
from ..sqlite_peer import SqlitePeer
from ..world import World

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

CLIENTS: Final = 4
_EVENT: Final = "x" * 256
_PER_STREAM: Final = 10
_STREAMS_SHARE: Final = 10
"""Of `many_chats` this part are streams: 10,000 in a full run."""
_ROUNDS: Final = 25
_REPEATS: Final = 3
_OPENERS: Final[dict[str, Callable[[Path], AbstractContextManager[Any]]]] = {
    "ours": lambda folder: chatledger.open(folder / "ledger"),
    "theirs": lambda folder: SqlitePeer(folder / "peer.db", synchronous="FULL"),
}


def event_stores(world: World) -> Iterator[Row]:
    """Four writers, and four readers, of many short streams."""
    streams, total = world.sizes.many_chats // _STREAMS_SHARE, world.sizes.appends_per_sample * _ROUNDS * CLIENTS
    folder = world.folder()
    world.report(f"{streams:,} streams of {_PER_STREAM} events")
    _store(folder, streams)
    for name, work in {"appends by 4 writers": _write, "reads of a stream by 4 readers": _read}.items():
        world.report(f"event stores: {name}")
        took: dict[str, list[float]] = {who: [] for who in _OPENERS}
        for turn in range(min(_REPEATS, world.sizes.repeats)):
            answers: dict[str, list[int]] = {}
            for who, opened in _OPENERS.items():
                # SQLite lets in one writer at a time: four would mostly wait for each other, and some give up.
                number = 1 if work is _write and who == "theirs" else CLIENTS
                with opened(folder):  # as long as it is open here, no client starts a server, or ends it
                    clients = [
                        (who, folder, turn * CLIENTS + client, streams, total // number) for client in range(number)
                    ]
                    took_s, answers[who] = run_together(work, clients)
                took[who].append(took_s / total)
            check_equal(name, *map(sum, answers.values()))
        yield Row(
            subject="event_stores",
            name=f"{name}, {streams:,} streams",
            peer="SQLite table",
            show="rate",
            ours=took["ours"],
            theirs=took["theirs"],
            note=(
                "the workload of eventstore-benchmarks, events of 256 bytes; each client is a process, and the writer of SQLite is one; of all "
                f"together; each append is a commit that is synced; a stream that is read has about {_PER_STREAM} events or more"
            ),
        )


def _event() -> NewMessage:
    return NewMessage("user", _EVENT, id=str(uuid4()), created_at=0)


def _store(folder: Path, streams: int) -> None:
    with (
        chatledger.open(folder / "ledger", durability="fast") as ledger,
        SqlitePeer(folder / "peer.db", synchronous="NORMAL") as peer,
    ):
        for number in range(streams):
            for store in (ledger, peer):
                store.create_chat(f"stream-{number}", "ada")
                store.append(f"stream-{number}", [_event() for _ in range(_PER_STREAM)])
        ledger.sync()


def _write(who: str, folder: Path, seed: int, streams: int, count: int, start: Barrier, ended: "Queue[int]") -> None:
    with _OPENERS[who](folder) as store:
        chance = Random(seed)
        store.get_messages("stream-0")
        start.wait()
        for _ in range(count):
            store.append(f"stream-{chance.randrange(streams)}", [_event()])
        ended.put(count)


def _read(who: str, folder: Path, seed: int, streams: int, count: int, start: Barrier, ended: "Queue[int]") -> None:
    with _OPENERS[who](folder) as store:
        chance = Random(seed)
        store.get_messages("stream-0")
        start.wait()
        ended.put(
            sum(len(store.get_messages(f"stream-{chance.randrange(streams)}")) >= _PER_STREAM for _ in range(count))
        )
