"""The faults that a verification notices in an event whose hashes are right: times, heads, ids, counts and commits that cannot be."""

from typing import Any

import msgspec
import pytest
from tests.support.cases import case
from tests.support.stories import CHAT, Story

from chatledger.domain.chat.events import (
    Body,
    BranchActivated,
    BranchCreated,
    BranchDeleted,
    BranchRenamed,
    ChatDeleted,
    ChatUpdated,
    CheckpointSet,
    HeadMoved,
    MessagesAppended,
    Recorded,
)
from chatledger.domain.chat.replay import ReplayedChat
from chatledger.domain.errors import ChainIntegrityError
from chatledger.domain.proof.verification import broken, broken_off, check_commit, check_event


@pytest.fixture
def story() -> Story:
    """A chat with two messages, two branches and a checkpoint; it is the second life of its id."""
    story = Story().chain("m0")
    story.delete()
    story.chain("m1", "m2")
    story.write([BranchCreated(1, "b8", "idea", "m1", 3), CheckpointSet("cp", "cp", "m1", 1)])
    return story


def only(story: Story, body: Body, **event: Any) -> Recorded:
    (recorded,) = story.encode([body])
    return msgspec.structs.replace(recorded, event=msgspec.structs.replace(recorded.event, **event))


COUNTS: dict[str, Any] = {
    "first_position": 4,
    "event_count": 5,
    "message_count": 2,
    "branch_count": 2,
    "checkpoint_count": 1,
}


def test_sound_events(story: Story) -> None:
    """All that a decision makes of this state, and what is about branches that are not there, which the fold refuses."""
    for body in (
        ChatUpdated({}),
        MessagesAppended(()),
        MessagesAppended((), 0, "m2", "m2"),
        MessagesAppended((), 9, "m1", "m2"),
        HeadMoved(1, "idea", "m1", None),
        HeadMoved(9, "none", None, None),
        BranchActivated(1, "idea"),
        BranchRenamed(0, "main", "first"),
        BranchDeleted(1, "idea"),
        ChatDeleted(**COUNTS),
    ):
        with case(body):
            check_event(story.chat(), only(story, body))
    head = story.events[-1]
    check_event(story.chat(), only(story, ChatUpdated({}), occurred_at=head.occurred_at))


def test_events_that_say_what_was_not_so(story: Story) -> None:
    """Each is named by its chat and position, with what it says."""
    for body, why in (
        (MessagesAppended((), 0, "m1", "m1"), "moves branch 'main' from 'm1', which is at 'm2'"),
        (HeadMoved(1, "idea", "m2", "m1"), "moves branch 'idea' from 'm2', which is at 'm1'"),
        (HeadMoved(0, "idea", "m2", "m1"), "names branch 0 'idea', which has the name 'main'"),
        (BranchActivated(0, "idea"), "branch 0 'idea'"),
        (BranchRenamed(1, "main", "first"), "branch 1 'main', which has the name 'idea'"),
        (BranchDeleted(0, "idea"), "branch 0 'idea'"),
        *((ChatDeleted(**{**COUNTS, name: COUNTS[name] + 1}), "were deleted") for name in COUNTS),
    ):
        with case(body), pytest.raises(ChainIntegrityError, match=why) as caught:
            check_event(story.chat(), only(story, body))
        assert (CHAT, len(story.events) + 1) == (caught.value.chat_id, caught.value.position)


def test_the_time_of_an_event_that_follows(story: Story) -> None:
    """It does not lie before that of the one before; of what does not follow it nothing is said here."""
    last = story.events[-1]
    early = only(story, ChatUpdated({}), occurred_at=last.occurred_at - 1)
    with pytest.raises(ChainIntegrityError, match="lies before"):
        check_event(story.chat(), early)
    for step in (0, 2):
        check_event(
            story.chat(),
            only(story, ChatUpdated({}), occurred_at=last.occurred_at - 1, originator_version=last.version + step),
        )


def test_a_tombstone_after_a_hole_counts_what_was_there(story: Story) -> None:
    """What was erased cannot be counted; nor is there anything to count where no chat is."""
    check_event(story.chat(), only(story, ChatDeleted(1, 1, 1, 1, 1), originator_version=story.events[-1].version + 2))
    check_event(ReplayedChat(CHAT), only(Story(), ChatDeleted(1, 1, 1, 1, 1)))


def test_a_commit_goes_on_or_has_ended(story: Story) -> None:
    """Its events follow each other, one less to come each time; a tombstone may stand in the place of erased ones."""

    def of(version: int, rest: int, chat_id: str = CHAT, body: Body | None = None) -> Recorded:
        return only(story, body or ChatUpdated({}), originator_version=version, rest=rest, originator_id=chat_id)

    tombstone = ChatDeleted(**COUNTS)
    before = of(5, 2)
    for first, then in (
        (None, of(1, 0)),
        (None, of(1, 3)),
        (of(5, 0), of(9, 3, "another")),
        (before, of(6, 1)),
        (before, of(7, 0, body=tombstone)),
    ):
        with case(first, then):
            check_commit(first, then)
    for then in (of(6, 0), of(6, 2), of(7, 1), of(5, 1), of(6, 1, "another"), of(7, 0, "another", tombstone)):
        with case(then), pytest.raises(ChainIntegrityError, match="2 more events") as caught:
            check_commit(before, then)
        assert (CHAT, before.position) == (caught.value.chat_id, caught.value.position)


def test_errors_name_the_event(story: Story) -> None:
    recorded = story.events[-1]
    for error in (broken(recorded, "it is"), broken_off(recorded)):
        assert (CHAT, recorded.position) == (error.chat_id, error.position)
        assert f"event {recorded.version} of chat {CHAT!r} at position {recorded.position}" in str(error)
