"""Proof: verifying a ledger, next to merely reading its log."""

from collections.abc import Iterator

from chatledger import Ledger

from ..data import Conversations
from ..measure import Row, check_equal, take_turns
from ..world import World

_PER_CHAT = 100


def proof(world: World) -> Iterator[Row]:
    """Every event checked and the index compared with it, against reading and decoding the same events."""
    count = world.sizes.rebuilt
    talk = Conversations(9)
    with world.fresh("fast") as pair:
        ledger = pair.ledger
        world.report(f"storing {count:,} messages, one in an event, to verify")
        for number in range(max(1, count // _PER_CHAT)):
            ledger.create_chat(f"chat-{number}", "ada")
            for message in talk.messages(min(count, _PER_CHAT)):
                ledger.append(f"chat-{number}", [message])
        events = _read(ledger)
        check_equal("verify", ledger.verify().event_count, events)
        world.report("verify")
        samples = take_turns(
            {"ours": ledger.verify, "theirs": lambda: _read(ledger)}, repeats=world.sizes.import_repeats
        )
    yield Row(
        subject="proof",
        name=f"verify {events:,} events in {max(1, count // _PER_CHAT):,} chats",
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
