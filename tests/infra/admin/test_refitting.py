"""Events on branches that stand behind a hole, fitted to a chat that lacks what was in it."""

import pytest
from tests.support.stories import Story

from chatledger.domain.chat.decide_branches import decide_create_branch
from chatledger.domain.chat.events import Body, BranchCreated, BranchDeleted, BranchRenamed
from chatledger.infra.admin.doctor.refitting import refit_chat

TIME = 1_700_000_000_003


@pytest.mark.parametrize(
    ("body", "fitted"),
    [
        (BranchRenamed("lost", "idea", "Riga"), [BranchRenamed("b2", "idea", "Riga")]),
        (BranchRenamed("lost", "none", "Riga"), [BranchCreated("new", "Riga", None, TIME)]),
        (BranchRenamed("lost", "none", "idea"), []),
        (BranchRenamed("lost", "idea", "main"), []),
        (BranchDeleted("lost", "idea"), [BranchDeleted("b2", "idea")]),
        (BranchDeleted("lost", "none"), []),
        (BranchDeleted("lost", "main"), []),  # it is the active one: what made another one active is lost
    ],
)
def test_renamed_and_deleted_branches(body: Body, fitted: list[Body]) -> None:
    """What the chat has is renamed or deleted, what it lost begins anew under its last name."""
    story = Story().chain("m1")
    story.write(decide_create_branch(story.chat(), "idea", "m1", activate=False, branch_id="b2", created_at=1))
    [recorded] = story.encode([body])
    made = refit_chat(recorded, story.chat(), gap="Two are missing.", new_id=lambda: "new")

    assert fitted == made
    story.write(made)  # it follows
