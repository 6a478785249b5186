from typing import Any

import pytest
from tests.support.stories import CHAT, Story, user

from chatledger.domain.chat.decide_import import decide_import, import_result, rest_of
from chatledger.domain.chat.events import Body, HeadMoved, MessagesAppended
from chatledger.domain.chat.interchange import ImportedBranch, ImportedChat, ImportedCheckpoint, ImportedMessage
from chatledger.domain.chat.replay import ReplayedChat
from chatledger.domain.errors import (
    ChatNotFoundError,
    InvalidValueError,
    MessageConflictError,
    MessageNotFoundError,
    ParentNotFoundError,
    SelfParentError,
)


def message(message_id: str, parent_id: str | None, data: Any = "hello", **rest: Any) -> ImportedMessage:
    return ImportedMessage(id=message_id, parent_id=parent_id, name="user", data=data, created_at=5, **rest)


def conversation(**given: Any) -> ImportedChat:
    """m1 <- m2 <- m3 on `main`, m1 <- a on `idea`, which is active."""
    values: dict[str, Any] = {
        "id": CHAT,
        "user_id": "ada",
        "title": "Trip",
        "metadata": {"a": 1},
        "messages": (message("m1", None), message("m2", "m1"), message("m3", "m2"), message("a", "m1")),
        "branches": (
            ImportedBranch(name="main", head_message_id="m3", id="b-main"),
            ImportedBranch(name="idea", head_message_id="a", is_active=True, created_at=9),
        ),
        "checkpoints": (ImportedCheckpoint(name="cp", message_id="m2", created_at=7),),
        **given,
    }
    return ImportedChat(**values)


def decide(state: ReplayedChat, chat: ImportedChat, limit: int | None = None) -> list[Body]:
    ids = [f"new{number}" for number in range(20)]
    return decide_import(state, chat, ids=ids, now=1_000, limit=limit)


def test_a_new_chat_is_as_it_was_imported() -> None:
    """Messages, heads, the active branch and checkpoints; times and ids as given (PS-34)."""
    story = Story()
    bodies = decide(story.chat(), conversation())
    story.write(bodies)
    replayed = story.chat()

    assert {"main": ("m3", False, 3), "idea": ("a", True, 2)} == {
        branch.name: (branch.head_message_id, branch.is_active, branch.message_count) for branch in replayed.branches
    }
    assert [("m1", None), ("m2", "m1"), ("m3", "m2"), ("a", "m1")] == [(m.id, m.parent_id) for m in replayed.messages]
    assert [("cp", "m2", 7)] == [(mark.name, mark.message_id, mark.created_at) for mark in replayed.checkpoints]
    result = import_result(CHAT, bodies)
    assert (True, 4, 2, 0, 1) == (
        result.is_new,
        result.messages_added,
        result.branches_added,
        result.heads_moved,
        result.checkpoints_set,
    )


def test_a_repeated_import_has_nothing_to_do() -> None:
    """What is there stays, and is not written again."""
    story = Story()
    story.write(decide(story.chat(), conversation()))

    assert [] == decide(story.chat(), conversation(title="Other", metadata=None, user_id="eve"))


@pytest.mark.parametrize("limit", range(3, 7))
def test_an_import_in_parts_comes_to_the_same(limit: int) -> None:
    """However many events one commit may have, the result is that of one."""
    whole, parts = Story(), Story()
    whole.write(decide(whole.chat(), conversation()))
    while bodies := decide(parts.chat(), conversation(), limit):
        parts.write(bodies)

    assert [(b.name, b.head_message_id, b.is_active) for b in whole.chat().branches] == [
        (b.name, b.head_message_id, b.is_active) for b in parts.chat().branches
    ]
    assert [m.id for m in whole.chat().messages] == [m.id for m in parts.chat().messages]
    assert [c.name for c in whole.chat().checkpoints] == [c.name for c in parts.chat().checkpoints]


def test_a_longer_import_moves_branches_forward() -> None:
    """A branch moves to a descendant of its head; one that went another way stays where it is."""
    story = Story()
    story.write(decide(story.chat(), conversation()))
    longer = conversation(
        messages=(*conversation().messages, message("m4", "m3")),
        branches=(
            ImportedBranch(name="main", head_message_id="m4", is_active=True),
            ImportedBranch(name="idea", head_message_id="m2"),
        ),
    )
    bodies = decide(story.chat(), longer)
    story.write(bodies)

    assert [("main", "m3", "m4")] == [(b.branch, b.from_head, b.to_head) for b in bodies if isinstance(b, HeadMoved)]
    assert [["m4"]] == [[m.id for m in b.messages] for b in bodies if isinstance(b, MessagesAppended)]
    assert {"main": False, "idea": True} == {branch.name: branch.is_active for branch in story.chat().branches}


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"messages": (message("m1", "m1"),)}, SelfParentError),
        ({"messages": (message("m1", "none"),)}, ParentNotFoundError),
        ({"messages": (message("m2", "m1"), message("m1", None))}, ParentNotFoundError),
        ({"messages": (message("m1", None), message("m1", None, "other"))}, MessageConflictError),
        ({"messages": (message("m1", None, float("nan")),)}, InvalidValueError),
        ({"branches": (ImportedBranch(name="main", head_message_id="none"),)}, MessageNotFoundError),
        ({"branches": (ImportedBranch(name="idea", head_message_id="none"),)}, MessageNotFoundError),
        ({"branches": (ImportedBranch(name="", head_message_id="m1"),)}, InvalidValueError),
        ({"checkpoints": (ImportedCheckpoint(name="cp", message_id="none"),)}, MessageNotFoundError),
        ({"checkpoints": (ImportedCheckpoint(name="", message_id="m1"),)}, InvalidValueError),
        ({"user_id": "\0"}, InvalidValueError),
        ({"title": 5}, InvalidValueError),
        ({"metadata": []}, InvalidValueError),
        ({"created_at": "now"}, InvalidValueError),
    ],
)
def test_a_bad_import_is_refused(given: dict[str, Any], error: type[Exception]) -> None:
    """Dangling parents, cycles, unknown heads and bad values raise before anything is decided (SM-11)."""
    with pytest.raises(error):
        decide(ReplayedChat(CHAT), conversation(**given))


def test_an_import_does_not_overwrite_a_message() -> None:
    """An id that is stored with other content is refused (SM-6)."""
    story = Story().chain()
    story.append(user("m1", "other"))
    with pytest.raises(MessageConflictError):
        decide(story.chat(), conversation())


def test_a_rest_is_decided_without_the_messages() -> None:
    """The events of all parts are those of one: no message is compared again, and no new id is used twice."""
    many = conversation(
        branches=(
            ImportedBranch(name="main", head_message_id="m3"),
            *(ImportedBranch(name=f"side {number}", head_message_id="a") for number in range(9)),
            ImportedBranch(name="idea", head_message_id="a", is_active=True),
        ),
        checkpoints=tuple(ImportedCheckpoint(name=f"cp {number}", message_id="m2") for number in range(5)),
    )
    whole = Story()
    whole.write(decide(whole.chat(), many))
    story, rest = Story(), many
    ids = iter(f"id{number}" for number in range(1_000))
    parts = 0
    while True:
        new_ids = [next(ids) for _ in range(20)]
        before = len(many.branches) - len(rest.branches) if parts else None
        bodies = decide_import(story.chat(), rest, ids=new_ids, now=1_000, limit=4, branches_before=before)
        if not bodies:
            break
        story.write(bodies)
        rest, parts = rest_of(rest, bodies), parts + 1

    assert parts == 5
    assert [b.name for b in story.chat().branches] == [b.name for b in whole.chat().branches]
    assert [c.name for c in story.chat().checkpoints] == [c.name for c in whole.chat().checkpoints]
    made = [branch.id for branch in story.chat().branches]
    assert len(set(made)) == len(made)
    assert rest.branches == ()


def test_a_rest_of_a_chat_that_is_gone() -> None:
    """It was deleted, or begun anew by somebody else, between two parts: nothing of it is written."""
    with pytest.raises(ChatNotFoundError):
        decide_import(Story().chat(), conversation(), ids=["x"] * 9, now=1, branches_before=0)

    story = Story()
    story.write(decide(story.chat(), conversation(messages=(message("z", None),), branches=(), checkpoints=())))
    with pytest.raises(MessageNotFoundError):
        decide_import(story.chat(), conversation(), ids=["x"] * 9, now=1, branches_before=0)
