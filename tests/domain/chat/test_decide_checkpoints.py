from typing import Any

import pytest
from tests.support.stories import Story, neighboured

from chatledger.domain.chat.decide_branches import decide_delete_checkpoint, decide_set_checkpoint
from chatledger.domain.chat.events import Body, CheckpointDeleted, CheckpointSet
from chatledger.domain.chat.replay import ReplayedChat
from chatledger.domain.errors import ChatNotFoundError, InvalidValueError, MessageNotFoundError, WrongChatError


def told() -> Story:
    """A chat with three messages on `main`; the message `x` is in another chat."""
    return neighboured("x").chain("m1", "m2", "m3")


def mark(
    state: ReplayedChat, name: Any, message_id: Any, checkpoint_id: str = "cp1", created_at: int = 7
) -> list[Body]:
    return decide_set_checkpoint(state, name, message_id, checkpoint_id=checkpoint_id, created_at=created_at)


def test_set_checkpoint() -> None:
    """A checkpoint names any message of the chat (SM-31)."""
    assert [CheckpointSet("cp1", "start", "m2", 7)] == mark(told().chat(), "start", "m2")


def test_setting_again_keeps_the_id() -> None:
    """Target and time change, the id stays, and both settings are events (SM-32)."""
    story = told()
    story.write(mark(story.chat(), "cp", "m2"))
    story.write(mark(story.chat(), "cp", "m3", "other", 9))
    found = story.chat().checkpoint("cp")

    assert found is not None
    assert ("cp1", "m3", 9) == (found.id, found.message_id, found.created_at)
    assert [found] == story.chat().checkpoints
    assert ["m2", "m3"] == [event.body.message_id for event in story.events if isinstance(event.body, CheckpointSet)]


@pytest.mark.parametrize(
    ("name", "message_id", "error"),
    [
        ("", "m1", InvalidValueError),
        (None, "m1", InvalidValueError),
        ("a\0", "m1", InvalidValueError),
        ("cp", None, InvalidValueError),
        ("cp", "", InvalidValueError),
        ("cp", "none", MessageNotFoundError),
        ("cp", "x", WrongChatError),
    ],
)
def test_a_bad_checkpoint_is_refused(name: Any, message_id: Any, error: type[Exception]) -> None:
    """Names are not empty, and the message belongs to the chat (SM-32, SM-33)."""
    story = told()
    with pytest.raises(error):
        mark(story.chat(), name, message_id)

    assert [] == story.chat().checkpoints


def test_delete_checkpoint() -> None:
    """Its message stays; a second deletion has nothing to do (SM-34)."""
    story = told()
    story.write(mark(story.chat(), "cp", "m2"))
    bodies = decide_delete_checkpoint(story.chat(), "cp")
    story.write(bodies)

    assert [CheckpointDeleted("cp1", "cp")] == bodies
    assert story.chat().checkpoint("cp") is None
    assert story.chat().has_message("m2")
    assert [] == decide_delete_checkpoint(story.chat(), "cp")


def test_a_deleted_name_gets_a_new_id() -> None:
    """Set after its deletion, a checkpoint is another one."""
    story = told()
    story.write(mark(story.chat(), "cp", "m2"))
    story.write(decide_delete_checkpoint(story.chat(), "cp"))

    assert [CheckpointSet("cp2", "cp", "m1", 7)] == mark(story.chat(), "cp", "m1", "cp2")


def test_checkpoints_are_listed_newest_first() -> None:
    """By `created_at` descending, ties by name (SM-34)."""
    story = told()
    for name, created_at in (("b", 5), ("c", 9), ("a", 5)):
        story.write(mark(story.chat(), name, "m1", name, created_at))

    assert ["c", "a", "b"] == [found.name for found in story.chat().checkpoints]


def test_checkpoints_need_a_chat() -> None:
    with pytest.raises(ChatNotFoundError):
        mark(ReplayedChat("none"), "cp", "m1")
    assert [] == decide_delete_checkpoint(ReplayedChat("none"), "cp")
    with pytest.raises(InvalidValueError):
        decide_delete_checkpoint(told().chat(), "")
