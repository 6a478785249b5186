"""The judge of a cluster finds what it should: a sound ledger, and journals that tell another story."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.cluster_client import COUNTERS, REGISTERS, SHARED
from tests.faults.cluster_judge import ClusterJudge
from tests.faults.cluster_network import CLIENTS
from tests.faults.journal import Journal

import chatledger
from chatledger import NewMessage

pytestmark = pytest.mark.guard

REGISTER, CHAT, COUNTER = REGISTERS[0], SHARED[0], COUNTERS[0]


class Story:
    """A ledger and the journal of the one client that wrote to it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.place = folder, str(folder / "data")
        for name in CLIENTS:
            Journal(folder / f"{name}.journal").close()
        self.journal = Journal(folder / f"{CLIENTS[0]}.journal")
        self._count = 0

    def tell(self, op: str, chat: str, outcome: str, *ids: str, answer: int | None = None) -> None:
        """Note a call that is over."""
        self._count += 1
        self.journal.write("call", number=self._count, op=op, chat=chat, ids=ids)
        self.journal.write(outcome, number=self._count, answer=answer, error="")

    def kinds(self) -> set[str]:
        """The kinds of what the judge finds."""
        findings = ClusterJudge(self.place, self.folder).judge().findings
        return {finding.partition(":")[0] for finding in findings} - {"REPLICAS cannot be compared"}


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    """Two writes to a register, one to a chat that others share, and one to a counter, as they happened."""
    told = Story(tmp_path)
    for index in ("first", *(f"index-{name}" for name in CLIENTS)):
        chatledger.open(told.place, durability="fast", index=tmp_path / index).close()
    with chatledger.open(told.place, durability="fast", index=tmp_path / "first") as ledger:
        for chat in (*REGISTERS, *SHARED, *COUNTERS):
            ledger.create_chat(chat, "u")
        for message_id in ("a", "b"):
            ledger.append(REGISTER, [NewMessage("user", message_id, id=message_id)])
            told.tell("register", REGISTER, "acknowledged", message_id)
        ledger.append(CHAT, [NewMessage("user", "c", id="c")])
        told.tell("append", CHAT, "acknowledged", "c")
        ledger.update_chat(COUNTER, metadata={"count": 1})
        told.tell("count", COUNTER, "acknowledged")
        rows = [f"{one.position} {one.hash.hex()[:16]} {one.chat_id}\n" for one in ledger.history()]
    (tmp_path / "ann.1.0.feed").write_text("".join(rows))
    yield told
    told.journal.close()


def test_what_happened(story: Story) -> None:
    """Nothing is found."""
    story.tell("read", REGISTER, "acknowledged", answer=2)
    assert story.kinds() == set()


def test_what_did_not(story: Story) -> None:
    """A write that is lost, one in half, one that was refused, a read that misses one, and an update that is lost."""
    story.tell("append", CHAT, "acknowledged", "lost")
    story.tell("append", CHAT, "unknown", "c", "missing")
    story.tell("append", CHAT, "refused", "c")
    story.tell("read", REGISTER, "acknowledged", answer=1)
    story.tell("count", COUNTER, "acknowledged")
    story.tell("own", "own-ann-0", "acknowledged", "gone")
    story.tell("append", CHAT, "alien", "other")
    assert story.kinds() == {
        "LOST",
        "HALF",
        "REFUSED, and there",
        "STALE",
        "COUNTER",
        "an error that is not chatledger's",
    }


def test_an_order_of_its_own(story: Story) -> None:
    """What began after an acknowledgement stands before it; two followed one head; a branch was switched in one index."""
    with chatledger.open(story.place, durability="fast", index=story.folder / "first") as ledger:
        ledger.add_messages(REGISTER, [NewMessage("user", "d", id="d", parent_id="a")])
    story.tell("register", REGISTER, "acknowledged", "d")
    story.tell("register", REGISTER, "acknowledged", "a")
    assert {"OUT OF ORDER", "TWO WINNERS"} <= story.kinds()


def test_feeds(story: Story) -> None:
    """A hole, a step back, and an event that is another one."""
    feed = story.folder / "ann.1.0.feed"
    rows = feed.read_text().splitlines()
    feed.write_text("\n".join([*rows[:3], *rows[4:], rows[5], f"{rows[2].split(' ')[0]} {'0' * 16} {CHAT}"]) + "\n")
    assert story.kinds() == {"FEED back or double", "FEED holes", "FEED other events"}
