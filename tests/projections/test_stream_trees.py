"""The Merkle trees of streams in the index: their subtrees, where a message came, and where all streams end."""

from pathlib import Path
from typing import Any

import pytest
from tests.support.agent_threads import put
from tests.support.naive_index import live, opened, reader
from tests.support.proof_world import KEY, fill, pem_of
from tests.support.stories import CHAT, Story, user

import chatledger
from chatledger.admin import check_excerpt
from chatledger.domain.chat.events import Recorded
from chatledger.domain.chat.state import StreamHead
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.log.merkle import consistency_path, event_leaf, multi_path, root_of_peaks, subtree_of
from chatledger.domain.proof.anchors import stream_digest
from chatledger.infra.ledger.port import store_of
from chatledger.infra.ledger.threads import Threads
from chatledger.projections.chat.reader import IndexedChat
from chatledger.projections.index import Index
from chatledger.projections.log.stream_trees import TILE, StreamTree, stream_heads


@pytest.fixture(scope="module")
def story() -> Story:
    """A chat with 699 events in its second life, among those of another."""
    story = Story()
    story.chain("o1", chat_id="other")
    story.chain("m")
    story.delete()
    story.create()
    for number in range(697):
        story.append(*(user(f"m{number}-{at}", at) for at in range(1 + number % 3)))
        if number % 50 == 0:
            story.append(user(f"o-{number}"), chat_id="other")
    return story


def life_of(story: Story) -> list[Recorded]:
    """The events since the last deletion, with the tombstone."""
    events = [event for event in story.events if event.chat_id == CHAT]
    return events[next(at for at, event in enumerate(events) if event.type == "chat_deleted") :]


def check_tree(index: Index, events: list[Recorded]) -> None:
    """The index answers as a tree over all leaves does."""
    leaves = [event_leaf(event.position, event.hash) for event in events]
    plain, size = subtree_of(leaves), len(leaves)
    generation = live(index)
    with generation.reading() as txn:
        chat = IndexedChat(generation.tables, txn, CHAT, generation.tables.chat_no(txn, CHAT))
        assert chat.record is not None
        assert chat.stream_no is not None
        assert root_of_peaks(chat.record.head.peaks) == plain(0, size)
        for number in (0, 1, 254, 255, 256, 257, 511, 512, size - 1):
            tree = StreamTree(txn, generation.tables, chat.stream_no, chat.record.head)
            assert tree.entry(number).hash == events[number].hash
            assert multi_path(tree.subtree, size, [number]) == multi_path(plain, size, [number])
        for earlier in (1, 2, 255, 256, 257, 512, 600, size):
            assert consistency_path(tree.subtree, earlier, size) == consistency_path(plain, earlier, size)
        ordinal = 0
        for number, event in enumerate(events):
            for _ in getattr(event.body, "messages", ()):
                assert tree.place_of_message(ordinal)[0] == number
                ordinal += 1
        assert len(list(txn.cursor(generation.tables.tiles))) == size // TILE


def test_trees_are_those_of_all_events(story: Story, tmp_path: Path) -> None:
    """Applied one by one, many at once, and built anew; those of a deleted life are gone."""
    events = life_of(story)
    with opened(tmp_path / "one", story.events) as index:
        check_tree(index, events)
    with opened(tmp_path / "two", story.events[:3]) as index:
        for at in range(3, len(story.events), 7):
            index.apply(story.events[at : at + 7])
        check_tree(index, events)
        index.rebuild(reader(story.events, 100))
        check_tree(index, events)


def test_the_tiles_of_a_deleted_chat_go(tmp_path: Path) -> None:
    """They are counted from the tombstone on, so they would be wrong, and they would tell how long the chat was."""
    story = Story().chain(*(f"m{number}" for number in range(TILE + 10)))
    with opened(tmp_path, story.events) as index:
        generation = live(index)
        with generation.reading() as txn:
            assert len(list(txn.cursor(generation.tables.tiles))) == 1
        index.apply(story.delete())
        with generation.reading() as txn:
            assert list(txn.cursor(generation.tables.tiles)) == []


def heads_of(ledger: chatledger.Ledger) -> dict[bytes, StreamHead]:
    with store_of(ledger).snapshot() as snapshot:
        return dict(stream_heads(snapshot.txn, snapshot.tables))


def test_the_ends_of_all_streams(tmp_path: Path) -> None:
    """Of chats with any ids, threads, states, and what was deleted; each is the last event of its stream on the log."""
    with chatledger.open(tmp_path / "data") as ledger:
        fill(ledger)
        for chat_id in (
            "x" * 2000,
            "Grüße",
            "0B0E3D3C-8B1F-4D3B-9C57-0A9C1D5B6E7F",
            "0b0e3d3c-8b1f-4d3b-9c57-0a9c1d5b6e7f",
        ):
            ledger.create_chat(chat_id, "ada")
        ledger.delete_chat("x" * 2000)
        ledger.create_chat("y" * 2000, "ada")
        put(Threads(ledger), "a thread", "1", {"a": ["x"]})
        put(Threads(ledger), "t" * 1500, "1", {"a": ["x"]})
        last: dict[bytes, Any] = {stream_digest(one.chat_id): one for one in ledger.history()}
        last |= {stream_digest(one.chat_id): one for one in ledger.feed(0, follow=False)}
        heads = heads_of(ledger)

        assert {digest: (one.position, one.hash) for digest, one in last.items()} == {
            digest: (head.position, head.hash) for digest, head in heads.items()
        }
        anchor = ledger.anchor(pem_of(KEY))
        assert len(heads) == anchor.count == len(anchor.leaves)
        anchor.check_leaves()
        assert ledger.verify(anchor=anchor).position == ledger.position


def test_a_chat_grew_between_two_anchors() -> None:
    """A third party checks it with the anchors alone; a chat that was made anew did not grow."""
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("trip", "ada")
        anchors = [ledger.anchor(pem_of(KEY))]
        for number in range(300):
            ledger.append("trip", [chatledger.user(f"{number}", id=f"m{number}")])
            if number in {0, 1, 100, 254, 255, 299}:
                anchors.append(ledger.anchor(pem_of(KEY)))
        for at, earlier in enumerate(anchors):
            for later in anchors[at:]:
                proof = ledger.prove_growth("trip", earlier, later)
                proof.check(earlier.without_leaves(), later.without_leaves())
        for number in (0, 1, 100, 255, 299):
            assert check_excerpt(ledger.prove(f"m{number}", anchor=anchors[-1])).messages[0].text == f"{number}"
        ledger.delete_chat("trip")
        ledger.create_chat("trip", "ada")
        with pytest.raises(InvalidValueError, match="deleted"):
            ledger.prove_growth("trip", anchors[0], ledger.anchor(pem_of(KEY)))
