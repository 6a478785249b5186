"""Deleting a chat, whose events are overwritten on the disk, beside the server's own secure deletes."""

import time
from collections.abc import Iterator

import chatledger

from ..measure import Row, check_equal
from ..prose import Prose
from ..world import World, append_singly
from .publishing import BarePublisher


def erasing(world: World) -> Iterator[Row]:
    """Chats of a thousand messages, one in an event."""
    count, folder = world.sizes.chains[0], world.folder() / "ledger"
    chat_ids = [f"chat-{number}" for number in range(world.sizes.import_repeats)]
    world.report(f"storing {len(chat_ids)} chats of {count:,} messages to delete")
    append_singly(folder, chat_ids, count, Prose(13))
    ours: list[float] = []
    theirs: list[float] = []
    with chatledger.open(folder) as ledger, BarePublisher(str(folder)) as bare:
        # The server writes a block of up to 8 MB anew for each: its size decides what a deletion costs.
        total = len(chat_ids) * (count + 1)
        first = bare.publish(total, size=bare.event_bytes())
        for number, chat_id in enumerate(chat_ids):
            world.report(f"deleting {chat_id}")
            begun = time.perf_counter()
            ledger.delete_chat(chat_id)
            ledger.wait_erased()
            deleted = time.perf_counter()
            bare.erase(range(first + number, first + total, len(chat_ids)))
            ended = time.perf_counter()
            ours.append(deleted - begun)
            theirs.append(ended - deleted)
        check_equal("deleting", ledger.list_chats(), [])
    yield Row(
        subject="erasing",
        name=f"delete a chat of {count:,} messages",
        peer="the server's secure deletes",
        ours=ours,
        theirs=theirs,
        note=(
            "durability='always'; the limit: as many messages of as many bytes as the events, on a stream with the same settings, "
            "which take turns as the chats do, deleted by their positions, 16 requests at a time; ours also takes the chat out of "
            "the index and overwrites what it left there"
        ),
    )
