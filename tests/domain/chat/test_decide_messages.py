from typing import Any

import pytest
from msgspec import UNSET
from tests.support.stories import CHAT, Story, neighboured, user

from chatledger.domain.chat.decide_messages import check_message, decide_add_messages, decide_append
from chatledger.domain.chat.events import Body, MessagesAppended
from chatledger.domain.chat.replay import ReplayedChat
from chatledger.domain.errors import (
    BranchNotFoundError,
    ChatNotFoundError,
    HeadConflictError,
    InvalidValueError,
    MessageConflictError,
    MessageNotFoundError,
    ParentNotFoundError,
    SelfParentError,
)
from chatledger.domain.values import Message, NewMessage

NOW = 1_700_000_000_999


def append(state: ReplayedChat, *drafts: NewMessage, branch: str | None = None, expected: Any = UNSET) -> list[Body]:
    return decide_append(state, NOW, drafts=drafts, branch=branch, expected_head=expected)


def add(state: ReplayedChat, *drafts: NewMessage) -> list[Body]:
    return decide_add_messages(state, drafts, now=NOW)


def message(message_id: str, parent_id: str | None, **rest: Any) -> Message:
    values: dict[str, Any] = {"name": "user", "type": "message", "data": "hello", "created_at": NOW, **rest}
    return Message(id=message_id, parent_id=parent_id, **values)


def with_elsewhere(*message_ids: str) -> Story:
    return neighboured(*message_ids).chain("m1", "m2")


def test_append_chains_onto_the_head() -> None:
    """The first message hangs on the head, which an empty branch lacks, each other on the one before (SM-17)."""
    story = Story().chain("m1", "m2")
    expected = MessagesAppended((message("m3", "m2"), message("m4", "m3")), 0, "m2", "m4")

    assert [expected] == append(story.chat(), user("m3"), user("m4"))
    assert [MessagesAppended((message("m1", None),), 0, None, "m1")] == append(Story().chain().chat(), user("m1"))


def test_append_of_nothing_is_nothing() -> None:
    """An empty list has no event, but the branch must exist."""
    story = Story().chain("m1")

    assert [] == append(story.chat())
    with pytest.raises(BranchNotFoundError):
        append(story.chat(), branch="none")


def test_append_keeps_what_the_draft_says() -> None:
    """Time, type, attribution and data of a draft are stored as given."""
    story = Story().chain("m1")
    draft = NewMessage(
        "tool", {"b": 1, "a": [None]}, id="m2", type=None, created_at=-5, agent_id="agent-1", reply_to="m1"
    )
    [body] = append(story.chat(), draft)

    assert isinstance(body, MessagesAppended)
    assert (
        Message(
            id="m2",
            parent_id="m1",
            name="tool",
            type=None,
            data={"b": 1, "a": [None]},
            created_at=-5,
            agent_id="agent-1",
            reply_to="m1",
        ),
    ) == body.messages


def test_append_repeated_is_nothing() -> None:
    """Messages that stand on the chain already, one after the other, are not written again, whatever is expected."""
    story = Story().chain("m1", "m2", "m3")

    assert [] == append(story.chat(), user("m2"), user("m3"), expected="m1")
    assert [] == append(story.chat(), user("m1"))


@pytest.mark.parametrize(
    "drafts",
    [
        [user("m1", "other")],
        [user("m1", sender_id="bob")],
        [NewMessage("assistant", "hello", id="m1")],
        [NewMessage("user", "hello", id="m1", type=None)],
        [user("m1"), user("m3")],
        [user("m9"), user("m9")],
        [user("m9"), user("m1")],
        [user("x")],
    ],
)
def test_append_of_a_stored_id_is_refused(drafts: list[NewMessage]) -> None:
    """Another name, type, data, attribution or place is another message; messages never change (SM-4, SM-6)."""
    story = Story().chain("m1", "m2", "m3")
    story.add(user("x", parent_id="m1"))
    before = story.chat().messages
    with pytest.raises(MessageConflictError):
        append(story.chat(), *drafts)

    assert before == story.chat().messages


def test_append_with_another_parent_than_the_stored_one_is_refused() -> None:
    """A repeated message that names a parent which it does not have is another message (SM-6)."""
    story = Story().chain("m1", "m2", "m3")

    assert [] == append(story.chat(), user("m3", parent_id="m2"))
    with pytest.raises((MessageConflictError, InvalidValueError)):
        append(story.chat(), user("m3", parent_id="m1"))


def test_append_expects_a_head() -> None:
    """Another head raises and says both; None expects an empty branch (SM-48)."""
    story = Story().chain("m1", "m2")
    with pytest.raises(HeadConflictError) as caught:
        append(story.chat(), user("m3"), expected="m1")
    with pytest.raises(HeadConflictError):
        append(story.chat(), user("m3"), expected=None)

    assert (CHAT, "main", "m1", "m2") == (
        caught.value.chat_id,
        caught.value.branch,
        caught.value.expected,
        caught.value.actual,
    )
    assert append(story.chat(), user("m3"), expected="m2")


@pytest.mark.parametrize("act", [append, add])
def test_an_id_of_another_chat_is_refused(act: Any) -> None:
    """The other chat's message stays what it is (SM-7)."""
    story = with_elsewhere("x")
    with pytest.raises(MessageConflictError) as caught:
        act(story.chat(), user("x"))

    assert caught.value.other_chat


def test_append_checks_a_parent_that_is_named() -> None:
    """It has to be the one that the message gets."""
    story = Story().chain("m1", "m2")

    assert append(story.chat(), user("m3", parent_id="m2"), user("m4", parent_id="m3"))
    with pytest.raises(HeadConflictError):
        append(story.chat(), user("m3", parent_id="m1"))
    with pytest.raises(InvalidValueError):
        append(story.chat(), user("m3"), user("m4", parent_id="m2"))


@pytest.mark.parametrize("act", [append, add])
def test_a_message_is_not_its_own_parent(act: Any) -> None:
    """`parent_id == id` raises `SelfParentError`, however the message is added (SM-9)."""
    story = Story().chain("m1")
    with pytest.raises(SelfParentError) as caught:
        act(story.chat(), user("m2", parent_id="m2"))

    assert caught.value.message_id == "m2"


@pytest.mark.parametrize("act", [append, add])
def test_a_reply_names_a_message_of_the_chat(act: Any) -> None:
    """`reply_to` is stored, or stands earlier in the same call."""
    story = with_elsewhere("x")

    assert act(story.chat(), user("m3", reply_to="m1"), user("m4", reply_to="m3"))
    for target in ("none", "x", "m3"):
        with pytest.raises(MessageNotFoundError):
            act(story.chat(), user("m3", reply_to=target))


@pytest.mark.parametrize("act", [append, add])
def test_messages_need_a_chat(act: Any) -> None:
    with pytest.raises(ChatNotFoundError):
        act(ReplayedChat("none"), user("m1"))


def test_add_takes_parents_from_the_same_call() -> None:
    """A parent is stored, or stands earlier in the list; no head moves (SM-8)."""
    story = Story().chain("m1")
    bodies = add(story.chat(), user("a", parent_id="m1"), user("b", parent_id="a"), user("r"))

    assert [MessagesAppended((message("a", "m1"), message("b", "a"), message("r", None)))] == bodies


@pytest.mark.parametrize(
    "drafts",
    [[user("a", parent_id="none")], [user("b", parent_id="a"), user("a")], [user("a", parent_id="x")]],
    ids=["unknown", "later", "elsewhere"],
)
def test_add_refuses_an_unknown_parent(drafts: list[NewMessage]) -> None:
    """Neither a later message nor one of another chat can be a parent, so no cycle can be written (SM-8)."""
    story = with_elsewhere("x")
    with pytest.raises(ParentNotFoundError) as caught:
        add(story.chat(), *drafts)

    assert (drafts[0].id, drafts[0].parent_id) == (caught.value.message_id, caught.value.parent_id)


def test_add_leaves_out_what_is_stored() -> None:
    """Equal messages are not written again, also twice in one call; the time does not count (SM-6, PS-15)."""
    story = Story().chain("m1", "m2")
    first = message("m3", "m2", data={"a": 1, "b": 1.0})
    bodies = add(
        story.chat(),
        user("m2", parent_id="m1", created_at=5),
        user("m3", {"a": 1, "b": 1.0}, parent_id="m2"),
        user("m3", {"b": 1, "a": 1.0}, parent_id="m2"),
    )

    assert [MessagesAppended((first,))] == bodies
    assert [] == add(story.chat(), user("m2", parent_id="m1"))
    assert [] == add(story.chat())


@pytest.mark.parametrize(
    "draft",
    [
        user("m2"),
        user("m2", parent_id="m3"),
        user("m2", "other", parent_id="m1"),
        user("m2", parent_id="m1", agent_id="a"),
        user("m2", parent_id="m1", reply_to="m1"),
        NewMessage("assistant", "hello", id="m2", parent_id="m1"),
        NewMessage("user", "hello", id="m2", type="fragment", parent_id="m1"),
        user("true", 1),
    ],
)
def test_add_of_a_stored_id_with_other_content_is_refused(draft: NewMessage) -> None:
    """There is no re-parenting and no editing in place; content is compared as JSON values (SM-4, SM-6)."""
    story = Story().chain("m1", "m2", "m3")
    story.add(user("true", data=True))
    with pytest.raises(MessageConflictError) as caught:
        add(story.chat(), draft)

    assert (draft.id, CHAT, False) == (caught.value.message_id, caught.value.chat_id, caught.value.other_chat)


@pytest.mark.parametrize(
    "bad",
    [
        {"id": None},
        {"id": ""},
        {"id": "\ud800"},
        {"id": "a\0"},
        {"id": "x" * 2049},
        {"name": ""},
        {"name": None},
        {"name": 5},
        {"type": ""},
        {"type": 5},
        {"parent_id": ""},
        {"data": [frozenset()]},
        {"data": (1, 2)},
        {"data": {1: 2}},
        {"data": {"a": b""}},
        {"data": object},
        {"created_at": 1.5},
        {"created_at": True},
        {"created_at": "now"},
        {"created_at": 2**63},
        {"sender_id": ""},
        {"agent_id": "\0"},
        {"reply_to": 7},
        {"sender_id": "a", "agent_id": "b"},
    ],
    ids=str,
)
def test_a_bad_draft_is_refused(bad: dict[str, Any]) -> None:
    """Each field has its rule; the error comes before anything is decided (PS-16, PS-17)."""
    story = Story().chain("m1")
    values: dict[str, Any] = {"name": "user", "data": "hello", "id": "m9", **bad}
    draft = NewMessage(**values)
    for act in (append, add):
        with pytest.raises(InvalidValueError):
            act(story.chat(), user("m8"), draft)

    assert ["m1"] == [found.id for found in story.chat().messages]


@pytest.mark.parametrize("bad", ["hello", {"role": "user"}, None])
def test_what_is_no_draft_is_refused(bad: Any) -> None:
    """The error says how to make one."""
    with pytest.raises(InvalidValueError, match=r"chatledger\.user"):
        check_message(bad, NOW)


def test_ten_thousand_messages_are_one_event() -> None:
    """One call holds at least 10,000 messages (PS-25)."""
    story = Story().chain("m1")
    [body] = append(story.chat(), *(user(f"n{number}") for number in range(10_000)))

    assert isinstance(body, MessagesAppended)
    assert 10_000 == len(body.messages)
