"""Refusals of decisions on chats, branches and messages: each with the error that says what, where and which argument."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from msgspec import UNSET
from tests.support.cases import case
from tests.support.stories import CHAT, Neighboured, Story, neighboured, user

from chatledger.domain.chat.decide_branches import (
    decide_activate,
    decide_create_branch,
    decide_delete_branch,
    decide_delete_checkpoint,
    decide_fork,
    decide_move_head,
    decide_rename_branch,
    decide_set_checkpoint,
    decide_show,
)
from chatledger.domain.chat.decide_chats import (
    decide_create_chat,
    decide_expire_chat,
    decide_update_chat,
    decide_upsert_chat,
)
from chatledger.domain.chat.decide_messages import decide_add_messages, decide_append
from chatledger.domain.chat.events import BranchActivated, BranchDeleted, ChatCreated, ChatUpdated, MessagesAppended
from chatledger.domain.chat.replay import ReplayedChat
from chatledger.domain.errors import (
    BranchExistsError,
    BranchNotFoundError,
    ChatExistsError,
    ChatledgerError,
    ChatNotFoundError,
    HeadConflictError,
    InvalidValueError,
    MessageConflictError,
    MessageNotFoundError,
    OwnerMismatchError,
    ParentNotFoundError,
    SelfParentError,
    WrongChatError,
)
from chatledger.domain.limits import MAX_TITLE_BYTES
from chatledger.domain.values import ANY

Refusal = tuple[Callable[[], object], ChatledgerError | str]
"""A call, and the error that it raises, or how the text of its `InvalidValueError` begins."""


@pytest.fixture
def chat() -> ReplayedChat:
    """A chat with three messages on `main` and a branch `idea`; another chat has a message `x`."""
    story = neighboured("x").chain("m1", "m2", "m3")
    story.write(
        decide_create_branch(story.chat(), "idea", "m1", activate=False, branch_id="of idea", created_at=story.time)
    )
    return story.chat()


def check(refusals: Iterable[Refusal]) -> None:
    for number, (call, expected) in enumerate(refusals):
        with case(number, expected), pytest.raises(ChatledgerError) as caught:
            call()
        with case(number, expected):
            if isinstance(expected, str):
                assert type(caught.value) is InvalidValueError
                assert str(caught.value).startswith(expected)
            else:
                assert (type(expected), vars(expected)) == (type(caught.value), vars(caught.value))


def test_branches(chat: ReplayedChat) -> None:
    nowhere, elsewhere = MessageNotFoundError("none", chat_id=CHAT), WrongChatError("x", chat_id=CHAT)
    taken, unknown = BranchExistsError(CHAT, "idea"), BranchNotFoundError(CHAT, "none")
    bad: Any = 5

    def create(name: Any, head: Any = None, *, activate: Any = False) -> object:
        return decide_create_branch(chat, name, head, activate=activate, branch_id="b", created_at=1)

    def fork(at: Any, *, activate: Any = False, base: Any = None) -> object:
        return decide_fork(chat, at, activate=activate, branch_id="b", created_at=1, base=base)

    def show(at: Any) -> object:
        return decide_show(chat, at, branch_id="b", created_at=1)

    def move(name: Any, to: Any, *, expected: Any = ANY) -> object:
        return decide_move_head(chat, name, to, expected=expected)

    def mark(name: Any, at: Any) -> object:
        return decide_set_checkpoint(chat, name, at, checkpoint_id="cp", created_at=1)

    check(
        [
            (lambda: create(bad), "branch name must"),
            (lambda: create("new", bad), "message_id must"),
            (lambda: create("new", activate=1), "activate must"),
            (lambda: create("idea"), taken),
            (lambda: fork(bad), "message_id must"),
            (lambda: fork(None), "message_id must"),
            (lambda: fork("m1", activate=1), "activate must"),
            (lambda: fork("m1", base=bad), "base must"),
            (lambda: decide_activate(chat, bad), "branch must"),
            (lambda: decide_activate(chat, "none"), unknown),
            (lambda: decide_rename_branch(chat, bad, "new"), "branch must"),
            (lambda: decide_rename_branch(chat, "main", bad), "branch name must"),
            (lambda: decide_rename_branch(chat, "main", "idea"), taken),
            (lambda: decide_delete_branch(chat, bad), "branch must"),
            (lambda: show(bad), "message_id must"),
            (lambda: show(None), "message_id must"),
            (lambda: move(bad, "m1"), "branch must"),
            (lambda: move("main", "m1", expected=bad), "expected must"),
            (lambda: move("main", bad), "message_id must"),
            (lambda: move("idea", "m2", expected="m3"), HeadConflictError(CHAT, "idea", expected="m3", actual="m1")),
            (lambda: mark(bad, "m1"), "checkpoint name must"),
            (lambda: mark("cp", bad), "message_id must"),
            (lambda: mark("cp", None), "message_id must"),
            (lambda: decide_delete_checkpoint(chat, bad), "checkpoint name must"),
            *(
                (lambda decide=decide, at=at: decide(at), error)
                for decide in (
                    lambda at: create("new", at),
                    fork,
                    show,
                    lambda at: move("main", at),
                    lambda at: mark("cp", at),
                )
                for at, error in (("none", nowhere), ("x", elsewhere))
            ),
        ]
    )


def test_the_branch_that_takes_the_place_of_a_deleted_one(chat: ReplayedChat) -> None:
    """It is activated by its own id."""
    main = chat.branch("main")
    assert main is not None
    assert [BranchActivated(1, "idea"), BranchDeleted(0, "main")] == decide_delete_branch(chat, "main")


def test_chats(chat: ReplayedChat) -> None:
    def create(state: ReplayedChat | None = None, **given: Any) -> object:
        known: dict[str, Any] = {"user_id": "ada", "title": None, "metadata": None, "branch_id": "b", **given}
        return decide_create_chat(state or ReplayedChat("new"), **known)

    def upsert(user_id: Any) -> object:
        return decide_upsert_chat(chat, user_id=user_id, title=None, metadata=None, branch_id="b")

    long = "x" * (MAX_TITLE_BYTES + 1)
    check(
        [
            (lambda: create(user_id=5), "user_id must"),
            (lambda: create(title=5), "title must be text or None, not int"),
            (lambda: create(title=long), f"title takes {MAX_TITLE_BYTES + 1:,} bytes"),
            (lambda: create(created_at="x"), "created_at must"),
            (lambda: create(expires_at="x"), "expires_at must"),
            (lambda: create(chat), ChatExistsError(CHAT)),
            (lambda: upsert(5), "user_id must"),
            (lambda: upsert("eve"), OwnerMismatchError(CHAT)),
            (lambda: decide_update_chat(chat, expires_at="x"), "expires_at must"),  # type: ignore[arg-type]
            (lambda: decide_update_chat(chat, metadata={}, merged_metadata={}), "give metadata to merge"),
            (lambda: decide_update_chat(chat, merged_metadata=[]), "metadata must"),  # type: ignore[arg-type]
            (lambda: decide_update_chat(chat, title=long), "title takes"),
            (lambda: decide_update_chat(ReplayedChat("none")), ChatNotFoundError("none")),
        ]
    )
    assert create(title=long[1:])


def test_all_that_is_said_of_a_chat() -> None:
    """Times and metadata of a new one; an owner may have an empty name."""
    bodies = decide_create_chat(
        ReplayedChat("c"),
        user_id="ada",
        title="T",
        metadata={"a": 1},
        branch_id="b",
        created_at=1,
        expires_at=2,
        updated_at=3,
        branch_created_at=4,
    )
    assert [ChatCreated("ada", "T", {"a": 1}, "b", 1, 2, 3, 4)] == bodies
    story = Story()
    story.write(decide_upsert_chat(story.chat(), user_id="", title="T", metadata={"a": 1}, branch_id="b", expires_at=7))
    assert ChatCreated("", "T", {"a": 1}, "b", None, 7) == story.events[0].body
    assert [] == decide_upsert_chat(story.chat(), user_id="", title=None, metadata=None, branch_id="b")


@pytest.mark.parametrize(
    ("before", "given", "changes"),
    [
        ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
        ({"a": 1}, {"a": 2}, {"a": 2}),
        ({"a": 1}, {"a": None}, {"a": None}),
        ({"a": 1}, {"a": 1}, None),
        ({"a": 1}, {}, None),
        (None, {"b": 2}, {"b": 2}),
        (None, {}, None),
        ({}, {}, None),
    ],
)
def test_metadata_are_merged(before: Any, given: Any, changes: Any) -> None:
    """Keys that are not named stay; nothing to merge changes nothing, and makes no empty metadata either."""
    story = Story()
    story.create(metadata=before)
    expected = [] if changes is None else [ChatUpdated({"metadata": changes})]

    assert expected == decide_update_chat(story.chat(), merged_metadata=given)


def test_the_end_of_a_chat() -> None:
    """It is set, left, moved and taken away; a chat that is due leaves its tombstone, and no other one."""
    story = Story()
    story.create(expires_at=50)
    chat = story.chat()

    assert [] == decide_update_chat(chat, expires_at=50) == decide_update_chat(chat, expires_at=UNSET)
    assert [ChatUpdated({"expires_at": 60})] == decide_update_chat(chat, expires_at=60)
    assert [ChatUpdated({"expires_at": None})] == decide_update_chat(chat, expires_at=None)
    assert [0, 1, 1] == [len(decide_expire_chat(chat, until=until)) for until in (49, 50, 51)]
    story.write(decide_update_chat(chat, expires_at=None))
    assert [] == decide_expire_chat(chat, until=99) == decide_expire_chat(ReplayedChat("none"), until=99)


def test_messages(chat: ReplayedChat) -> None:
    def append(*drafts: Any, expected_head: Any = UNSET, branch: Any = None, state: ReplayedChat = chat) -> object:
        return decide_append(state, 1, drafts=drafts, branch=branch, expected_head=expected_head)

    def add(*drafts: Any) -> object:
        return decide_add_messages(chat, drafts, now=1)

    parent = ParentNotFoundError("m4", parent_id="none", chat_id=CHAT)
    used, other = MessageConflictError("m1", chat_id=CHAT), MessageConflictError("x", chat_id=CHAT, other_chat=True)
    reply = MessageNotFoundError("none", chat_id=CHAT)
    what = "expected_head must be the id of a message, or None for an empty branch, not "
    check(
        [
            (lambda: append(expected_head=5), what + "int"),
            (lambda: append(expected_head=chat.messages[0]), what + "Message; give its id"),
            (lambda: append(5), "expected a NewMessage, not int"),
            (lambda: append(branch=5), "branch must"),
            (lambda: append(branch="none"), BranchNotFoundError(CHAT, "none")),
            (lambda: append(state=ReplayedChat("none")), ChatNotFoundError("none")),
            (
                lambda: append(user("m4"), expected_head="m1"),
                HeadConflictError(CHAT, "main", expected="m1", actual="m3"),
            ),
            (lambda: append(user("m4", parent_id="m4")), SelfParentError("m4")),
            (lambda: append(user("m1", "other")), used),
            (lambda: append(user("x")), other),
            (lambda: append(user("m4", parent_id="none")), parent),
            (lambda: append(user("m4", parent_id="x")), WrongChatError("x", chat_id=CHAT)),
            (lambda: append(user("m4", parent_id="m1")), HeadConflictError(CHAT, "main", expected="m1", actual="m3")),
            (lambda: append(user("m4"), user("m5", parent_id="m3")), "message 'm5' names the parent 'm3'"),
            (lambda: append(user("m4", reply_to="none")), reply),
            (lambda: add(user("m4", parent_id="m4")), SelfParentError("m4")),
            (lambda: add(user("m1", "other")), used),
            (lambda: add(user("x")), other),
            (lambda: add(user("m4", parent_id="none")), parent),
            (lambda: add(user("m4", reply_to="none")), reply),
        ]
    )


def appended(chat: ReplayedChat, *drafts: Any, **rest: Any) -> list[Any]:
    return list(decide_append(chat, 1, drafts=drafts, branch=None, expected_head=UNSET, **rest))


def test_what_is_stored_is_left_out(chat: ReplayedChat) -> None:
    """Of messages that a caller repeats those that are on the branch; all others are appended."""
    [body] = appended(chat, user("m2"), user("m4", copied_from="y"), user("m3"), skips_stored=True)

    assert isinstance(body, MessagesAppended)
    assert [("m4", "m3", "y")] == [(message.id, message.parent_id, message.copied_from) for message in body.messages]
    assert (0, "m3", "m4") == (body.branch, body.from_head, body.to_head)
    assert [] == appended(chat, user("m2"), user("m3"), skips_stored=True)


def test_messages_and_what_is_said_of_the_chat(chat: ReplayedChat) -> None:
    """In one commit; nothing of it when the messages are stored already, for then the call is a repeated one."""
    said = ChatUpdated({"metadata": {"a": 1}})
    messages, described = appended(chat, user("m4"), chat_metadata={"a": 1})

    assert (["m4"], said) == ([message.id for message in messages.messages], described)
    assert [said] == appended(chat, chat_metadata={"a": 1})
    assert [] == appended(chat, user("m2"), user("m3"), chat_metadata={"a": 1})
    assert [] == appended(chat)


class Watched(Neighboured):
    """A chat that notes which messages are looked up together."""

    def __init__(self) -> None:
        super().__init__(CHAT)
        self.together: list[list[str]] = []

    def look_up(self, message_ids: Iterable[str]) -> None:
        self.together.append(list(message_ids))


def test_messages_are_looked_up_together() -> None:
    """An index finds many at once faster than each by itself."""
    story = Story()
    watched = story.chats[CHAT] = Watched()
    story.create()
    story.append(user("m1"))
    assert [] == watched.together
    story.append(user("m2"), user("m3"))
    decide_add_messages(watched, [user("m4")], now=1)
    assert [["m2", "m3"], ["m4"]] == watched.together
