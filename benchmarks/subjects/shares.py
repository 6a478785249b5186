"""Nodes that hold a third of the chats each, next to nodes that hold all: rebuilds, bytes, and writes of three together."""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import TYPE_CHECKING, Final

import chatledger
from chatledger import user
from chatledger.domain.log.shares import bucket_of

from ..measure import Row, bytes_on_disk, check_equal, run_together, take_turns
from ..prose import Prose
from ..world import World, one_chain

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

SHARES: Final = 3
_PER_CHAT: Final = 50
_THREADS: Final = 4
Share = tuple[int, int]


def shares(world: World) -> Iterator[Row]:
    """A third of the chats against all of them, on one server."""
    folder = world.folder()
    with chatledger.open(folder / "server", durability="fast"):
        endpoint = json.loads((folder / "server" / "endpoint.json").read_bytes())
        location = endpoint["url"].replace("://", f"://{endpoint['token']}@") + "/shares"
        yield from _holding(world, folder, location)
        yield _writing(world, folder, location.replace("/shares", "/writing"))


def _holding(world: World, folder: Path, location: str) -> Iterator[Row]:
    count = max(2 * SHARES, world.sizes.rebuilt // _PER_CHAT)
    world.report("chats in shares")
    with ExitStack() as opened:
        whole = opened.enter_context(
            chatledger.open(location, create=True, share=(0, 1), index=folder / "whole", timeout_s=60)
        )
        for number in range(count):
            whole.import_chat(
                one_chain(f"chat-{number:06}", f"user-{number % 999}", list(Prose(number).messages(_PER_CHAT)))
            )
        held = [
            opened.enter_context(chatledger.open(location, share=share, index=folder / f"share-{share[0]}"))
            for share in _all_shares()
        ]
        parts = [part.count_chats() for part in held]
        check_equal("chats of all shares", sum(parts), whole.count_chats())
        samples = take_turns(
            {"ours": held[0].rebuild, "theirs": whole.rebuild}, repeats=world.sizes.import_repeats, is_warm=False
        )
        yield Row(
            subject="shares",
            name=f"rebuild of a third of {count * _PER_CHAT:,} messages",
            peer="ours, all of them",
            ours=samples["ours"],
            theirs=samples["theirs"],
            note=f"one of three shares, {parts[0]:,} of {count:,} chats; the server filters what it follows",
        )
    sizes = {name: bytes_on_disk(folder / name) for name in ("whole", "share-0")}
    yield Row(
        subject="shares",
        name=f"bytes of the index of a third of {count * _PER_CHAT:,} messages",
        peer="ours, all of them",
        show="bytes",
        ours=[float(sizes["share-0"])],
        theirs=[float(sizes["whole"])],
        note="of the same ledgers, after the rebuilds, closed",
    )


def _writing(world: World, folder: Path, location: str) -> Row:
    count = world.sizes.appends_per_sample
    chatledger.open(location, create=True, share=(0, 1), index=folder / "made").close()
    ours, theirs = list[float](), list[float]()
    for turn in range(2):
        world.report("writes of three nodes")
        place = folder / f"writing-{turn}"
        ours.append(_together(location, place / "shares", count, _all_shares()))
        theirs.append(_together(location, place / "whole", count, [(0, 1)] * SHARES))
    return Row(
        subject="shares",
        name=f"appends by three nodes with a share each, {_THREADS} threads each",
        peer="ours, three nodes that hold all",
        show="rate",
        ours=ours,
        theirs=theirs,
        note="one message per commit, each node to the chats of users of its own; of all together, one server, 'fast'",
    )


def _together(location: str, folder: Path, count: int, held: Sequence[Share]) -> float:
    """Seconds for one append, of processes that hold these shares."""
    given = [(location, folder, number, share, count) for number, share in enumerate(held)]
    took_s, written = run_together(_write, given)
    check_equal("appends by three nodes", sum(written), len(held) * _THREADS * count)
    return took_s / (len(held) * _THREADS * count)


def _write(
    location: str, folder: Path, number: int, share: Share, count: int, start: Barrier, ended: "Queue[int]"
) -> None:
    owner = next(f"user-{name}" for name in range(999) if bucket_of(f"user-{name}") % SHARES == number)
    with chatledger.open(location, share=share, index=folder / str(number), timeout_s=60) as ledger:
        chats = [ledger.create_chat(user_id=owner).id for _ in range(_THREADS)]

        def append(chat_id: str) -> None:
            for _ in range(count):
                ledger.append(chat_id, [user("a few words about something")])

        threads = [threading.Thread(target=append, args=(chat_id,)) for chat_id in chats]
        start.wait()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        ended.put(sum(len(ledger.get_messages(chat_id)) for chat_id in chats))


def _all_shares() -> list[Share]:
    return [(number, SHARES) for number in range(SHARES)]
