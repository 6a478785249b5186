from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.naive_index import answers, opened, story_answers
from tests.support.soak import examples
from tests.support.stories import CHAT, Story, user

from chatledger.domain.chat.events import ChatDeleted, ChatUpdated, Recorded
from chatledger.domain.errors import ChainIntegrityError
from chatledger.projections.index import Index
from chatledger.projections.lmdb.keys import to_number
from chatledger.projections.projector import Projector


class Log:
    """A log in memory, of which events can be taken away."""

    def __init__(self, story: Story, *, is_dense: bool = True) -> None:
        self.story, self.is_dense = story, is_dense
        self.lost: set[int] = set()
        self.page = 1000

    def read(self, after: int, limit: int) -> Sequence[Recorded]:
        return self._left(after)[: min(limit, self.page)]

    def read_stream(self, stream_id: str, *, after: int) -> Sequence[Recorded]:
        return [event for event in self._left(after) if event.chat_id == stream_id]

    def event_at(self, position: int) -> Recorded | None:
        return next((event for event in self._left(position - 1) if event.position == position), None)

    def _left(self, after: int) -> Sequence[Recorded]:
        return [event for event in self.story.events[after:] if event.position not in self.lost]


def test_catching_up(tmp_path: Path) -> None:
    """Everything on the log is applied; again there is nothing to do."""
    story = Story().chain("m1", "m2")
    with opened(tmp_path) as index:
        projector = Projector(index, Log(story))

        assert 3 == projector.catch_up() == projector.catch_up()
        assert story_answers(story, [CHAT]) == answers(index, [CHAT])


def test_commits_are_read_whole(tmp_path: Path) -> None:
    """A page that ends inside a commit is read on to its end (PS-21)."""
    story = Story().chain("m1")
    story.write([ChatUpdated({"title": str(number)}) for number in range(5)])
    story.append(user("m2"))
    with opened(tmp_path) as index:
        projector = Projector(index, Log(story))

        assert [1, 2, 3, 4, 5, 6, 7] == [event.position for event in projector.read_commits(0, 3)]
        assert [8] == [event.position for event in projector.read_commits(7, 3)]
        assert [] == projector.read_commits(8, 3)


@pytest.mark.parametrize("is_dense", [True, False])
def test_taking_what_was_just_written(tmp_path: Path, is_dense: bool) -> None:  # noqa: FBT001 (both kinds of log)
    """Where others wrote in between, their events are read from the log first."""
    story = Story()
    with opened(tmp_path) as index:
        projector = Projector(index, Log(story, is_dense=is_dense))
        projector.take(story.create())
        story.append(user("theirs"))
        projector.take(story.append(user("mine")))
        projector.take(story.events[:2])

        assert 3 == index.state.position
        assert story_answers(story, [CHAT]) == answers(index, [CHAT])


@pytest.mark.parametrize(
    ("lost", "why"), [({1}, None), ({2}, None), ({3}, None), ({1, 2, 3}, "3 positions")], ids=["1", "2", "3", "all"]
)
def test_a_lost_event_is_noticed(tmp_path: Path, lost: set[int], why: str | None) -> None:
    """A hole inside a chat raises, and so does one that hides the end or the whole of a chat (PS-24)."""
    story = Story().chain("m1", "m2")
    story.chain(chat_id="other")
    log = Log(story)
    log.lost = lost
    with opened(tmp_path) as index, pytest.raises(ChainIntegrityError, match=why):
        Projector(index, log).catch_up()


def test_erased_events_are_no_loss(tmp_path: Path) -> None:
    """The tombstone accounts for them."""
    story = Story().chain("m1", "m2")
    story.chain("x1", chat_id="other")
    story.delete()
    log = Log(story)
    log.lost = {1, 2, 3}
    with opened(tmp_path) as index:
        assert 6 == Projector(index, log).catch_up()
        assert story_answers(story, [CHAT, "other"]) == answers(index, [CHAT, "other"])


def test_events_seen_before_their_erasure_excuse_no_loss(tmp_path: Path) -> None:
    """A deletion that this index saw whole leaves no positions over to explain the loss of another chat's events."""
    story = Story().chain("m1", "m2")
    story.delete()
    log = Log(story)
    with opened(tmp_path) as index:
        projector = Projector(index, log)
        projector.catch_up()
        story.chain("x1", chat_id="lost")
        story.chain(chat_id="other")
        log.lost = {5, 6}
        with pytest.raises(ChainIntegrityError):
            projector.catch_up()


@pytest.mark.parametrize("left", range(1, 2**4 - 1))
def test_a_partly_erased_chat_does_not_stop_a_rebuild(tmp_path: Path, left: int) -> None:
    """Whatever an interrupted erasure left of a deleted chat, the rest is indexed and the erasure is to be finished."""
    story = Story().chain("m1", "m2", "m3")
    story.chain("x1", chat_id="other")
    [tombstone] = story.delete()
    log = Log(story)
    log.lost = {position for position in range(1, 5) if not left & 1 << (position - 1)}
    with opened(tmp_path) as index:
        Projector(index, log).catch_up()
        with index.snapshot() as snapshot:
            doomed = [erasure.stream_id for erasure in snapshot.erasures()]

        assert isinstance(tombstone.body, ChatDeleted)
        assert [CHAT] == doomed
        assert story_answers(story, [CHAT, "other"]) == answers(index, [CHAT, "other"])


def test_a_chat_created_anew_after_a_half_erasure(tmp_path: Path) -> None:
    """The second life of an id is complete, whatever is left of the first."""
    story = Story().chain("m1", "m2")
    story.delete()
    story.chain("n1")
    log = Log(story)
    log.lost = {2}
    with opened(tmp_path) as index:
        Projector(index, log).catch_up()

        assert story_answers(story, [CHAT]) == answers(index, [CHAT])


def test_the_ends_of_earlier_lives_stay_when_a_later_one_is_half_erased(tmp_path: Path) -> None:
    """Of a chat that was deleted twice, only what each erasure left is left out: the entries are those of who followed."""
    story = Story().chain("m1", "m2")
    story.delete()
    story.chain("n1", "n2")
    story.delete()
    log = Log(story)
    with opened(tmp_path / "followed") as followed:
        Projector(followed, log).catch_up()
        log.lost = {2, 6}
        with opened(tmp_path / "late") as late:
            Projector(late, log).catch_up()

            assert entries(followed) == entries(late)
            assert [4, 8] == [position for position, _ in entries(late)]


@given(st.data())
@settings(max_examples=examples(30))
def test_whoever_reads_the_log_during_erasures_indexes_the_same(data: st.DataObject) -> None:
    """Events of deleted chats vanish in any order, and at any moment of the life of the index."""
    story = Story()
    log = Log(story)
    log.page = data.draw(st.sampled_from([1, 2, 5, 1000]))
    doomed: list[int] = []
    with TemporaryDirectory() as root, opened(Path(root, "a")) as early, opened(Path(root, "b")) as late:
        for number in range(data.draw(st.integers(1, 40))):
            chat_id = data.draw(st.sampled_from(["c0", "c1"]))
            kind = data.draw(st.sampled_from(["write", "write", "delete", "erase", "follow"]))
            if kind == "erase" and doomed:
                log.lost |= set(data.draw(st.lists(st.sampled_from(doomed))))
            elif kind == "follow":
                Projector(early, log).catch_up()
            elif story.chat(chat_id).record is None:
                story.create(chat_id)
            elif kind == "write":
                story.append(user(f"m{number}"), chat_id=chat_id)
            elif kind == "delete":
                [tombstone] = story.delete(chat_id)
                assert isinstance(tombstone.body, ChatDeleted)
                life = story.events[tombstone.body.first_position - 1 : tombstone.position - 1]
                doomed += [event.position for event in life if event.chat_id == chat_id]
        for index in (early, late):
            Projector(index, log).catch_up()

        assert entries(early) == entries(late)
        assert story_answers(story, ["c0", "c1"]) == answers(early, ["c0", "c1"]) == answers(late, ["c0", "c1"])


def entries(index: Index) -> list[tuple[int, bytes]]:
    """The entries of the index, one for each position of the log."""
    with index.snapshot() as snapshot:
        return [(to_number(key), bytes(raw)) for key, raw in snapshot.txn.cursor(snapshot.tables.log_entries)]
