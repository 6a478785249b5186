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
        for chat_id in chat_ids:
            world.report(f"deleting {chat_id}")
            first = bare.publish(count + 1)
            begun = time.perf_counter()
            ledger.delete_chat(chat_id)
            deleted = time.perf_counter()
            bare.erase(first, count + 1)
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
            "durability='always'; the limit: as many messages of 500 bytes on a stream with the same settings, deleted by their "
            "positions, 16 requests at a time; ours also takes the chat out of the index and overwrites what it left there"
        ),
    )
