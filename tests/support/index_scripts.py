"""Random scripts of events for tests of the index."""

from collections.abc import Sequence

from hypothesis import strategies as st
from tests.support.naive_index import reader
from tests.support.stories import Story, commands

from chatledger.domain.chat.events import ChatDeleted, Recorded
from chatledger.projections.index import Index

CHATS = ("c0", "c1", "0f8fad5b-d9cb-469f-a165-70867728950e", "x" * 2048)
scripts = st.lists(commands, min_size=1, max_size=3).map(lambda parts: [command for part in parts for command in part])


def apply_paged(index: Index, events: Sequence[Recorded], page: int) -> None:
    read, position = reader(events, page), 0
    while found := read(position):
        index.apply(found)
        position = found[-1].position


def erased(story: Story) -> list[Recorded]:
    """The log after the erasure of all deleted chats."""
    gone: set[int] = set()
    for event in story.events:
        if isinstance(event.body, ChatDeleted):
            first = event.body.first_position
            gone |= {e.position for e in story.events[first - 1 : event.position - 1] if e.chat_id == event.chat_id}
    return [event for event in story.events if event.position not in gone]
