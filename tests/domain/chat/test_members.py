"""Members of a chat: who they are, and what their roles allow."""

from typing import Any

import pytest
from tests.support.cases import case
from tests.support.stories import CHAT, Story, user

from chatledger.domain.chat.decide_chats import decide_delete_chat, decide_upsert_chat
from chatledger.domain.chat.events import (
    Body,
    ChatDeleted,
    ChatUpdated,
    MemberRemoved,
    MemberSet,
    MessagesAppended,
)
from chatledger.domain.chat.members import (
    ROLES,
    check_permitted,
    check_roles,
    decide_remove_member,
    decide_replace_members,
    decide_set_member,
    members_of_new,
    stronger,
)
from chatledger.domain.chat.replay import ReplayedChat
from chatledger.domain.errors import AccessDeniedError, ChatNotFoundError, InvalidValueError, OwnerMismatchError
from chatledger.domain.limits import MAX_MEMBERS
from chatledger.domain.log.tombstones import is_member_of_deleted, is_owner_of_deleted
from chatledger.domain.versioned.events import VersionsDeleted


def joined(**roles: Any) -> Story:
    """A chat of ada's with these members."""
    story = Story().chain("m1")
    for name, role in roles.items():
        story.write(decide_set_member(story.chat(), name, role))
    return story


def test_members_come_get_other_roles_and_go() -> None:
    """Another role keeps the time of joining; the owner is no member, and a stranger has no role."""
    story = joined(bob="reader", cy="writer")
    first = story.chat().member("bob")
    story.write(decide_set_member(story.chat(), "bob", "writer"))
    chat = story.chat()
    second = chat.member("bob")

    assert first is not None
    assert second is not None
    assert ("reader", "writer", first.added_at) == (first.role, second.role, second.added_at)
    assert ["bob", "cy"] == [member.user_id for member in chat.members()]
    assert ["owner", "writer", "writer", None] == list(map(chat.role_of, ("ada", "bob", "cy", "eve")))

    story.write(decide_remove_member(chat, "bob"))

    assert (None, None) == (chat.member("bob"), chat.role_of("bob"))
    assert [] == decide_remove_member(chat, "bob") == decide_set_member(chat, "cy", "writer")


def test_a_deleted_chat_has_no_members() -> None:
    """Its tombstone tells its members by digests, and no name stays; a new chat of the id begins without members."""
    story = joined(bob="reader", cy="writer")
    story.write(decide_remove_member(story.chat(), "cy"))
    [tombstone] = decide_delete_chat(story.chat(), user_id=None)
    assert isinstance(tombstone, ChatDeleted)
    story.write([tombstone])
    story.create(user_id="cy")

    assert [False, True, False] == [is_member_of_deleted(tombstone, CHAT, name) for name in ("ada", "bob", "cy")]
    assert [True, False, False] == [is_owner_of_deleted(tombstone, CHAT, name) for name in ("ada", "bob", "cy")]
    assert "bob" not in repr(tombstone)
    assert ([], None) == (story.chat().members(), story.chat().role_of("bob"))


OWNS = "the owner of chat 'chat-1' may do everything with it; members are others"
TOO_MANY = "chat 'chat-1' has too many members, at most 500 are allowed"


def test_who_can_become_a_member() -> None:
    """A user other than the owner, in one of two roles, of a chat that is there; 500 at the most."""
    story = joined()
    refused: list[tuple[ReplayedChat, Any, Any, type[Exception], str]] = [
        (ReplayedChat("none"), "bob", "reader", ChatNotFoundError, "no chat 'none'; check the id, or create it first"),
        (story.chat(), "ada", "reader", InvalidValueError, OWNS),
        (story.chat(), "", "reader", InvalidValueError, "user_id must not be empty"),
        (story.chat(), 1, "reader", InvalidValueError, "user_id must be text, not int"),
        (story.chat(), "bob", "owner", InvalidValueError, "role must be one of reader, writer, not 'owner'"),
        (story.chat(), "bob", None, InvalidValueError, "role must be one of reader, writer, not None"),
    ]
    for state, name, role, error, words in refused:
        with case(f"{name!r} {role!r}"), pytest.raises(error) as caught:
            decide_set_member(state, name, role)
        assert words == str(caught.value)
    assert [] == decide_remove_member(ReplayedChat("none"), "bob")
    with pytest.raises(InvalidValueError, match=r"^user_id must be text, not int$"):
        decide_remove_member(story.chat(), 1)  # type: ignore[arg-type]

    story.write([MemberSet(f"u{n}", "reader") for n in range(MAX_MEMBERS)])

    with pytest.raises(InvalidValueError, match=f"^{TOO_MANY}$"):
        decide_set_member(story.chat(), "bob", "reader")
    assert [MemberSet("u1", "writer")] == decide_set_member(story.chat(), "u1", "writer")


def test_members_that_a_chat_begins_with() -> None:
    """As many as it may have, and not its owner."""
    full: Any = {f"u{n}": "reader" for n in range(MAX_MEMBERS)}

    assert MAX_MEMBERS == len(members_of_new(CHAT, "ada", full))
    assert [MemberSet("bob", "writer")] == members_of_new(CHAT, "ada", {"bob": "writer"})
    refused: list[tuple[Any, str]] = [({**full, "bob": "reader"}, TOO_MANY), ({"ada": "reader"}, OWNS)]
    for members, words in refused:
        with case(words), pytest.raises(InvalidValueError, match=f"^{words}$"):
            members_of_new(CHAT, "ada", members)


def test_all_members_in_the_place_of_others() -> None:
    """What differs is changed, in one commit; the owner may be named among them."""
    chat = joined(bob="reader", cy="writer").chat()
    wanted: Any = {"ada": "reader", "cy": "writer", "bob": "writer", "eve": "reader"}

    assert [MemberSet("bob", "writer"), MemberSet("eve", "reader")] == decide_replace_members(chat, wanted)
    assert [MemberRemoved("bob"), MemberRemoved("cy")] == decide_replace_members(chat, {})
    with pytest.raises(ChatNotFoundError):
        decide_replace_members(ReplayedChat("none"), {})
    full: Any = {f"u{n}": "reader" for n in range(MAX_MEMBERS)}
    assert MAX_MEMBERS == sum(isinstance(body, MemberSet) for body in decide_replace_members(chat, full))
    with pytest.raises(InvalidValueError, match=f"^{TOO_MANY}$"):
        decide_replace_members(chat, {**full, "bob": "reader"})


def test_what_roles_allow() -> None:
    """An owner everything, a writer all that is not the owner's, a reader nothing but to leave."""
    said = MessagesAppended(())
    owners: list[Body] = [
        ChatDeleted(1, 1, 1, 1, 1),
        VersionsDeleted(1, 1, 1, "deleted"),
        ChatUpdated({"expires_at": None}),
        MemberSet("eve", "reader"),
        MemberRemoved("eve"),
    ]
    for body in owners:
        check_permitted("chat 'c'", "owner", "bob", [said, body])
        check_permitted("chat 'c'", None, "bob", [said, body])
        for role in ROLES:
            with case(f"{role} {body}"), pytest.raises(AccessDeniedError, match="only the owner of chat 'c'"):
                check_permitted("chat 'c'", role, "bob", [body, said])
    for bodies in ([said], [ChatUpdated({"title": "x"})], None):
        check_permitted("chat 'c'", "writer", "bob", bodies)
        with case(repr(bodies)), pytest.raises(AccessDeniedError, match="a reader of chat 'c' may not write"):
            check_permitted("chat 'c'", "reader", "bob", bodies)
    for role in ROLES:
        check_permitted("chat 'c'", role, "bob", [MemberRemoved("bob")])
        with case("leaving and more"), pytest.raises(AccessDeniedError):
            check_permitted("chat 'c'", role, "bob", [MemberRemoved("bob"), MemberRemoved("eve")])
        check_permitted("chat 'c'", role, "bob", [])


def test_who_opens_a_chat_to_write() -> None:
    """The owner and writers find it as it is; to a reader it is another user's, for whoever upserts is about to write."""
    chat = joined(bob="reader", cy="writer").chat()

    def upsert(name: str) -> list[Body]:
        return decide_upsert_chat(chat, user_id=name, title="ignored", metadata=None, branch_id="b")

    assert [] == upsert("ada") == upsert("cy")
    for name in ("bob", "eve"):
        with case(name), pytest.raises(OwnerMismatchError):
            upsert(name)


def test_grants_are_roles_by_chats() -> None:
    """A grant adds to what a chat says, and never takes away."""
    assert {"t": "reader"} == check_roles({"t": "reader"}, "grants", "chat_id")
    assert {} == check_roles(None, "grants", "chat_id")
    for wrong in ([("t", "reader")], {"t": "owner"}, {"": "reader"}, {1: "reader"}):
        with case(repr(wrong)), pytest.raises(InvalidValueError, match=r"^(grants|chat_id|a role) must "):
            check_roles(wrong, "grants", "chat_id")
    assert ["writer", "reader", "owner", "reader", None] == [
        stronger("writer", "reader"),
        stronger(None, "reader"),
        stronger("owner", "reader"),
        stronger("reader", None),
        stronger(None, None),
    ]


def test_a_role_says_nothing_of_messages() -> None:
    """What a member wrote stays when the member goes."""
    story = joined(bob="writer")
    story.append(user("m2", sender_id="bob"))
    story.write(decide_remove_member(story.chat(), "bob"))

    assert ["m1", "m2"] == [message.id for message in story.chat().messages]
