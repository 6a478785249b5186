"""Proof: verifying a ledger, next to merely reading its log."""

from collections.abc import Iterator

import chatledger
from chatledger import Ledger

from ..measure import Row, check_equal, take_turns
from ..prose import Prose
from ..world import World, append_singly

_PER_CHAT = 100


def proof(world: World) -> Iterator[Row]:
    """Every event checked and the index compared with it, against reading and decoding the same events."""
    count = world.sizes.rebuilt
    talk = Prose(9)
    folder = world.folder() / "ledger"
    world.report(f"storing {count:,} messages, one in an event, to verify")
    chat_ids = [f"chat-{number}" for number in range(max(1, count // _PER_CHAT))]
    append_singly(folder, chat_ids, min(count, _PER_CHAT), talk)
    with chatledger.open(folder, durability="fast") as ledger:
        events = _read(ledger)
        check_equal("verify", ledger.verify().event_count, events)
        world.report("verify")
        samples = take_turns(
            {"ours": ledger.verify, "theirs": lambda: _read(ledger)},
            repeats=world.sizes.import_repeats,
            is_warm=False,  # they were called just now
        )
    yield Row(
        subject="proof",
        name=f"verify {events:,} events in {len(chat_ids):,} chats",
        peer="reading the log",
        show="rate",
        ours=[seconds / events for seconds in samples["ours"]],
        theirs=[seconds / events for seconds in samples["theirs"]],
        note=(
            "events per second; warm; ours checks each event, folds it, and compares the index and its words with the fold; "
            "the peer is `history()`, which reads and decodes the same events"
        ),
    )


def _read(ledger: Ledger) -> int:
    return sum(1 for _ in ledger.history())
