"""Events on branches that stand behind a hole, fitted to a chat that lacks what was in it."""

import pytest
from tests.support.stories import Story

from chatledger.domain.chat.decide_branches import decide_create_branch
from chatledger.domain.chat.events import (
    Body,
    BranchActivated,
    BranchCreated,
    BranchDeleted,
    BranchRenamed,
    CheckpointSet,
    HeadMoved,
    LinkCreated,
    LinkRevoked,
    MessagesAppended,
)
from chatledger.domain.values import Message
from chatledger.infra.admin.doctor.refitting import refit_chat

TIME = 1_700_000_000_003


@pytest.mark.parametrize(
    ("body", "fitted"),
    [
        (BranchRenamed(1, "idea", "Riga"), [BranchRenamed(1, "idea", "Riga")]),
        (BranchRenamed(2, "none", "Riga"), [BranchCreated(2, "new", "Riga", None, TIME)]),
        (BranchRenamed(2, "none", "idea"), [BranchCreated(2, "new", "lost-2", None, TIME)]),
        (BranchRenamed(1, "idea", "main"), []),
        (BranchDeleted(1, "idea"), [BranchDeleted(1, "idea")]),
        (BranchDeleted(2, "none"), []),
        (BranchDeleted(0, "main"), []),  # it is the active one: what made another one active is lost
        (
            BranchActivated(3, "Riga"),
            [
                BranchCreated(2, "new", "lost-2", None, TIME),
                BranchCreated(3, "new", "Riga", None, TIME),
                BranchActivated(3, "Riga"),
            ],
        ),
        (
            BranchCreated(3, "b9", "Riga", "m1", 7),
            [BranchCreated(2, "new", "lost-2", None, TIME), BranchCreated(3, "b9", "Riga", "m1", 7)],
        ),
        (BranchCreated(2, "b9", "idea", "m1", 7), [BranchCreated(2, "b9", "lost-2", "m1", 7)]),
        (
            BranchCreated(1, "b2", "idea", None, 1, is_active=True),
            [HeadMoved(1, "idea", "m1", None), BranchActivated(1, "idea")],
        ),
        (
            MessagesAppended((Message(id="m2", name="user", data=1, created_at=1),), 2, None, "m2"),
            [
                BranchCreated(2, "new", "lost-2", None, TIME),
                MessagesAppended((Message(id="m2", name="user", data=1, created_at=1),), 2, None, "m2"),
            ],
        ),
    ],
)
def test_branches_keep_their_numbers(body: Body, fitted: list[Body]) -> None:
    """What the chat has is changed; what it lost begins anew under its number, so that later events name the right one."""
    story = Story().chain("m1")
    story.write(decide_create_branch(story.chat(), "idea", "m1", activate=False, branch_id="b2", created_at=1))
    [recorded] = story.encode([body])
    made = refit_chat(recorded, story.chat(), gap="Two are missing.", new_id=lambda: "new")

    assert fitted == made
    story.write(made)  # it follows


@pytest.mark.parametrize("body", [LinkCreated("l2", "0" * 64), LinkRevoked("l1"), CheckpointSet("c", "n", "m1", 7)])
def test_links_end_with_a_repair(body: Body) -> None:
    """What is lost may have revoked one, and what comes behind makes none anew."""
    story = Story().chain("m1")
    story.write([LinkCreated("l1", "0" * 64)])
    [recorded] = story.encode([body])
    fitted = refit_chat(recorded, story.chat(), gap="3 to 4", new_id=lambda: "new")
    assert fitted == [LinkRevoked("l1"), *([body] if isinstance(body, CheckpointSet) else [])]


def test_what_a_merge_names_has_a_placeholder() -> None:
    """Else the index would refuse the event that names a message which was lost."""
    story = Story().chain("m1")
    merge = Message(id="s", parent_id="m1", name="user", data=1, created_at=1, merged_from=("lost",))
    [recorded] = story.encode([MessagesAppended((merge,), 0, "m1", "s")])
    [fitted] = refit_chat(recorded, story.chat(), gap="3 to 4", new_id=lambda: "new")

    assert isinstance(fitted, MessagesAppended)
    assert [message.id for message in fitted.messages] == ["lost", "s"]
    story.write([fitted])
