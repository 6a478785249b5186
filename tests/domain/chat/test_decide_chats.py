from typing import Any

import pytest
from msgspec import UNSET
from tests.support.stories import CHAT, Story, user

from chatledger.domain.chat.decide_chats import (
    decide_create_chat,
    decide_delete_chat,
    decide_update_chat,
    decide_upsert_chat,
    require_chat,
)
from chatledger.domain.chat.events import ChatCreated, ChatDeleted, ChatUpdated
from chatledger.domain.chat.replay import ReplayedChat
from chatledger.domain.errors import ChatExistsError, ChatNotFoundError, InvalidValueError, OwnerMismatchError
from chatledger.domain.log.tombstones import is_owner_of_deleted, owner_digest
from chatledger.domain.values import Branch, Chat

OF_ADA = owner_digest(CHAT, "ada")

BAD_IDS = ["", "\0", "a\0b", "\ud800", "x" * 2049, "é" * 1025, 5, None, b"bytes"]


def create(state: ReplayedChat, **given: Any) -> list[Any]:
    values: dict[str, Any] = {"user_id": "ada", "title": None, "metadata": None, "branch_id": "b1", **given}
    return list(decide_create_chat(state, **values))


def test_create_chat_says_all_it_was_given() -> None:
    """One event carries owner, title, metadata and the id of `main` (PS-3)."""
    bodies = create(ReplayedChat(CHAT), title="Trip", metadata={"a": [1, {"b": None}]})

    assert [ChatCreated("ada", "Trip", {"a": [1, {"b": None}]}, "b1")] == bodies


def test_a_new_chat_has_main_empty_and_active() -> None:
    """`main` comes in the same event as the chat; both times are that of the event (SM-18, PS-3)."""
    story = Story()
    time = story.time
    story.create(title="Trip")
    main = Branch(
        id="b1", chat_id=CHAT, name="main", head_message_id=None, is_active=True, message_count=0, created_at=time
    )

    assert len(story.events) == 1
    assert [main] == story.chat().branches
    assert Chat(id=CHAT, user_id="ada", title="Trip", created_at=time, updated_at=time) == story.chat().chat


def test_create_chat_again_is_refused() -> None:
    """A duplicate id raises, whatever else the call says (PS-3)."""
    story = Story().chain()
    before = story.chat().chat
    with pytest.raises(ChatExistsError) as caught:
        create(story.chat(), user_id="eve")

    assert caught.value.chat_id == CHAT
    assert before == story.chat().chat


def test_create_chat_keeps_a_copy_of_the_metadata() -> None:
    """What the caller changes afterwards has no effect."""
    metadata: dict[str, Any] = {"tags": ["a"]}
    bodies = create(ReplayedChat(CHAT), metadata=metadata)
    metadata["tags"].append("b")

    assert [{"tags": ["a"]}] == [body.metadata for body in bodies]


@pytest.mark.parametrize("bad", BAD_IDS)
def test_a_bad_chat_id_is_refused(bad: Any) -> None:
    """Ids are 1 to 2,048 bytes of text without NUL and lone surrogates (PS-16)."""
    with pytest.raises(InvalidValueError):
        create(ReplayedChat(bad))


@pytest.mark.parametrize("bad", [bad for bad in BAD_IDS if bad])
def test_a_bad_user_id_is_refused(bad: Any) -> None:
    """User ids follow the rules of ids, but may be empty (PS-16)."""
    with pytest.raises(InvalidValueError):
        create(ReplayedChat(CHAT), user_id=bad)


@pytest.mark.parametrize("good", ["/ . @ # $ * > :", "🦜", "a" * 2048, "é" * 1024, "漢" * 500, "a b", "\n"])
def test_any_other_character_is_allowed_in_ids(good: str) -> None:
    """500 characters of any script fit, and no other character is special (PS-16)."""
    [body] = create(ReplayedChat(good), user_id=good)

    assert good == body.user_id


@pytest.mark.parametrize(
    "given",
    [
        {"title": 5},
        {"title": "\ud800"},
        {"metadata": []},
        {"metadata": "text"},
        {"metadata": {1: "a"}},
        {"metadata": {"a": float("nan")}},
        {"metadata": {"\udc00": 1}},
    ],
)
def test_a_bad_title_or_metadata_is_refused(given: dict[str, Any]) -> None:
    """Titles are text, metadata JSON objects (PS-17)."""
    with pytest.raises(InvalidValueError):
        create(ReplayedChat(CHAT), **given)


def test_an_empty_user_id_and_title_are_values() -> None:
    """Empty is not absent (PS-6, PS-9)."""
    [body] = create(ReplayedChat(CHAT), user_id="", title="")

    assert ("", "") == (body.user_id, body.title)


def test_upsert_creates_once() -> None:
    """The second upsert has nothing to do, and its other arguments are ignored (PS-4)."""
    story = Story()
    first = decide_upsert_chat(story.chat(), user_id="ada", title="Trip", metadata=None, branch_id="b1")
    story.write(first)
    second = decide_upsert_chat(story.chat(), user_id="ada", title="Other", metadata={"a": 1}, branch_id="b2")

    assert [ChatCreated("ada", "Trip", None, "b1")] == first
    assert [] == second
    with pytest.raises(OwnerMismatchError):
        decide_upsert_chat(story.chat(), user_id="eve", title=None, metadata=None, branch_id="b3")


@pytest.mark.parametrize(
    ("given", "changes"),
    [
        ({"title": "New"}, {"title": "New"}),
        ({"title": None}, {"title": None}),
        ({"title": ""}, {"title": ""}),
        ({"metadata": {"b": 2}}, {"metadata": {"b": 2}}),
        ({"metadata": None}, {"metadata": None}),
        ({"metadata": {}}, {"metadata": {}}),
        ({"metadata": {"a": True}}, {"metadata": {"a": True}}),
        ({"title": "New", "metadata": None}, {"title": "New", "metadata": None}),
        ({"title": "Old", "metadata": {"b": 2}}, {"metadata": {"b": 2}}),
        ({"metadata": {"a": 1.0}}, {"metadata": {"a": 1.0}}),
    ],
)
def test_update_says_what_changed(given: dict[str, Any], changes: dict[str, Any]) -> None:
    """None clears, absent leaves, an empty text is a title, metadata replace the whole (PS-5, PS-6)."""
    story = Story()
    story.create(title="Old", metadata={"a": 1})

    assert [ChatUpdated(changes)] == decide_update_chat(story.chat(), **given)


@pytest.mark.parametrize(
    "given",
    [{}, {"title": UNSET, "metadata": UNSET}, {"title": "Old"}, {"metadata": {"a": 1, "b": 2}}],
)
def test_an_update_without_a_change_writes_nothing(given: dict[str, Any]) -> None:
    """An empty update has no event (PS-5)."""
    story = Story()
    story.create(title="Old", metadata={"a": 1, "b": 2})

    assert [] == decide_update_chat(story.chat(), **given)


def test_update_changes_only_what_it_names() -> None:
    """The fold keeps owner and creation time, and moves `updated_at` (PS-6, PS-7)."""
    story = Story()
    story.create(title="Old", metadata={"a": 1})
    before = story.chat().chat
    story.time += 1000
    story.write(decide_update_chat(story.chat(), title=None))
    after = story.chat().chat

    assert before is not None
    assert after is not None
    assert (None, {"a": 1}, "ada", before.created_at) == (after.title, after.metadata, after.user_id, after.created_at)
    assert before.updated_at + 1001 == after.updated_at


def test_updated_at_never_decreases() -> None:
    """A clock that went back has no effect (PS-7)."""
    story = Story().chain("m1")
    before = story.chat().chat
    story.time -= 1_000_000
    story.append(user("m2"))
    story.write(decide_update_chat(story.chat(), title="New"))
    after = story.chat().chat

    assert before is not None
    assert after is not None
    assert before.updated_at == after.updated_at


@pytest.mark.parametrize("given", [{"title": 5}, {"metadata": [1]}, {"metadata": {"a": (1,)}}, {"title": "\udfff"}])
def test_a_bad_update_is_refused(given: dict[str, Any]) -> None:
    """Updates obey the same rules as new chats."""
    story = Story().chain()
    with pytest.raises(InvalidValueError):
        decide_update_chat(story.chat(), **given)


def test_an_unknown_chat_is_not_found() -> None:
    """Also an update that says nothing needs a chat (PS-5)."""
    with pytest.raises(ChatNotFoundError) as caught:
        decide_update_chat(ReplayedChat(CHAT))
    with pytest.raises(ChatNotFoundError):
        require_chat(ReplayedChat(CHAT))

    assert caught.value.chat_id == CHAT


@pytest.mark.parametrize(("user_id", "is_deleted"), [(None, True), ("ada", True), ("", False), ("Ada", False)])
def test_only_the_owner_deletes(user_id: str | None, is_deleted: bool) -> None:  # noqa: FBT001 (a column of the table)
    """A given user id has to be that of the owner, also when it is empty (PS-12)."""
    story = Story().chain("m1")

    assert is_deleted == bool(decide_delete_chat(story.chat(), user_id=user_id))


def test_an_empty_owner_is_an_owner() -> None:
    """A chat of the user `""` is deleted by the user `""` (PS-9)."""
    story = Story()
    story.create(user_id="")

    assert decide_delete_chat(story.chat(), user_id="")


def test_the_tombstone_counts() -> None:
    """It says since when there were how many events, messages, branches and checkpoints (PS-13)."""
    story = Story()
    story.create("other")
    story.chain("m1", "m2")
    bodies = decide_delete_chat(story.chat(), user_id=None)

    assert [ChatDeleted(2, 3, message_count=2, branch_count=1, checkpoint_count=0, owner_digest=OF_ADA)] == bodies


def test_a_chat_is_deleted_once() -> None:
    """No chat, or one that is deleted already: nothing to do (PS-12)."""
    story = Story().chain("m1")
    story.delete()

    assert [] == decide_delete_chat(story.chat(), user_id=None)
    assert [] == decide_delete_chat(ReplayedChat("never"), user_id=None)
    assert story.chat().chat is None


def test_a_deleted_id_can_be_used_again() -> None:
    """The new chat starts empty and continues the stream (PS-14)."""
    story = Story().chain("m1", "m2")
    story.delete()
    story.create(user_id="eve")
    chat = story.chat().chat
    second = decide_delete_chat(story.chat(), user_id=None)

    assert chat is not None
    assert ("eve", 0, 1) == (chat.user_id, chat.message_count, chat.branch_count)
    assert [] == story.chat().messages
    assert [1, 2, 3, 4, 5] == [event.version for event in story.events]
    assert [ChatDeleted(5, 1, 0, 1, 0, owner_digest(CHAT, "eve"))] == second


def test_the_tombstone_knows_its_owner_without_a_name() -> None:
    """The owner is told from everybody else, of each chat by another digest; no user id is in it."""
    story = Story().chain("m1")
    (body,) = decide_delete_chat(story.chat(), user_id=None)
    assert isinstance(body, ChatDeleted)

    assert is_owner_of_deleted(body, CHAT, "ada")
    assert not is_owner_of_deleted(body, CHAT, "bob")
    assert not is_owner_of_deleted(body, "another chat", "ada")
    assert not is_owner_of_deleted(ChatDeleted(1, 1, 0, 1, 0), CHAT, "ada")
    assert owner_digest("a", "b:c") != owner_digest("ab:", "c")
    assert owner_digest("", "1:a") != owner_digest("1:a", "")
