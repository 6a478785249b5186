"""The ids that imported messages get next to what is stored: of a chat that shares them with another, and of changed messages."""

from collections.abc import Iterable
from typing import Any

import pytest
from tests.support.stories import CHAT, Neighboured, Story, user

from chatledger.domain.chat.events import MessagesAppended
from chatledger.domain.chat.import_versions import Settled, id_in_chat, original_id, settle_changes, settle_ids
from chatledger.domain.chat.interchange import ImportedChat, ImportedMessage
from chatledger.domain.chat.replay import ReplayedChat
from chatledger.domain.limits import MAX_ID_BYTES
from chatledger.domain.values import Message


def message(message_id: str, parent_id: str | None = None, **rest: Any) -> ImportedMessage:
    return ImportedMessage(**{"id": message_id, "parent_id": parent_id, "name": "user", "data": "hello", **rest})


def conversation(*messages: ImportedMessage) -> ImportedChat:
    return ImportedChat(id=CHAT, user_id="ada", title=None, metadata=None, messages=messages, branches=())


def links(chat: ImportedChat) -> list[tuple[str, str | None]]:
    return [(one.id, one.parent_id) for one in chat.messages]


SHARED = conversation(message("m1"), message("m2", "m1"), message("m3", "m2"))


@pytest.mark.parametrize(
    ("message_id", "expected"),
    [
        ("m", "c:m"),
        ("m" * (MAX_ID_BYTES - 2), "c:" + "m" * (MAX_ID_BYTES - 2)),
        ("m" * (MAX_ID_BYTES - 1), "d71fda3898d6037996c1e99c30453ab6"),
        ("é" * (MAX_ID_BYTES // 2), "c815c8305cb333a0cf30f075d07fd415"),
    ],
    ids=["short", "just fits", "too long", "too many bytes"],
)
def test_the_id_that_a_message_has_in_a_chat(message_id: str, expected: str) -> None:
    """It is stored, and looked for by every later import: so it is the same for ever."""
    assert expected == id_in_chat("c", message_id)


def test_a_message_that_another_chat_has() -> None:
    """It gets the id of its chat and its own, there as in what follows it; also when the other chat is gone since."""
    expected = [("m1", None), ("chat-1:m2", "m1"), ("m3", "chat-1:m2")]
    assert expected == links(settle_ids(Neighboured(CHAT, ["m2"]), SHARED))

    story = Story().chain("m1", "chat-1:m2")
    assert expected == links(settle_ids(story.chat(), SHARED))


def test_a_message_that_the_chat_has_keeps_its_id() -> None:
    """And so do those that no chat has: nothing is changed then."""
    for state in (Story().chain("m1", "chat-1:m1").chat(), Story().chain().chat(), Story().chat()):
        assert SHARED is settle_ids(state, SHARED)


def test_messages_are_looked_up_together() -> None:
    """An index reads them in one go then."""

    class Asked(ReplayedChat):
        def look_up(self, message_ids: Iterable[str]) -> None:
            looked_up.append(list(message_ids))

    looked_up: list[list[str]] = []
    story = Story()
    story.chats[CHAT] = Asked(CHAT)
    state = story.chain("m1").chat()
    looked_up.clear()
    settle_ids(state, SHARED)
    settle_changes(state, SHARED, "version")
    assert [["m1", "m2", "m3"]] * 2 == looked_up


# Changed messages


def version_of(stored: dict[str, Any], changed: dict[str, Any]) -> str:
    """The id of the version that a message becomes which was stored with one content and comes with another."""
    story = Story().chain("other")
    story.add(user("another"), user("m", **stored))
    (version,) = settle_changes(story.chat(), conversation(message("m", **changed)), "version").new_ids.values()
    return version


def test_the_id_of_a_version_follows_from_its_content() -> None:
    """It is stored, and made anew by every later import: so it is the same for ever, whatever was stored before."""
    assert "m~94471d5fdb67" == version_of({}, {"data": "b"}) == version_of({"sender_id": "eve"}, {"data": "b"})
    contents: list[dict[str, Any]] = [
        {"parent_id": "other"}, {"name": "assistant"}, {"type": None}, {"sender_id": "ada"}, {"agent_id": "ada"},
        {"reply_to": "other"}, {"data": "ada"}, {"data": ["ada"]},
    ]  # fmt: skip
    assert len(contents) == len({version_of({}, content) for content in contents})


@pytest.mark.parametrize(("size", "expected"), [(MAX_ID_BYTES - 13, MAX_ID_BYTES), (MAX_ID_BYTES - 12, 32)])
def test_the_id_of_a_version_fits(size: int, expected: int) -> None:
    """A digest stands alone where the id of the message leaves no room for its mark and twelve digits."""
    original = "é" + "m" * (size - 2)
    story = Story().chain(original)
    (version,) = settle_changes(story.chat(), conversation(message(original, data=1)), "version").new_ids.values()

    assert expected == len(version.encode())
    assert original.startswith(version.rpartition("~")[0])


def imported(story: Story, chat: ImportedChat) -> Settled:
    """Store what a chat with its versions has beyond what is stored."""
    settled = settle_changes(story.chat(), chat, "version")
    story.write(
        [
            MessagesAppended(
                tuple(
                    Message(
                        id=one.id, parent_id=one.parent_id, name=one.name, data=one.data, created_at=1, type=one.type
                    )
                    for one in settled.chat.messages
                    if not story.chat().has_message(one.id)
                )
            )
        ]
    )
    return settled


@pytest.mark.parametrize("original", ["m", "a~b", "~m", "m~"])
def test_a_version_knows_its_original(original: str) -> None:
    """Also where its data carry its id, and where ids have the mark of versions in them."""
    story = Story().chain("first", original)
    for named in (original, "x"):
        settled = imported(story, conversation(message(original, "first", data={"id": named})))
        (version,) = settled.new_ids.values()

        assert original == original_id(story.chat(), version) == original_id(story.chat(), original)


@pytest.mark.parametrize("message_id", ["m", "m~0123456789ab", "~0123456789ab", "nowhere~0123456789ab"])
def test_what_is_no_version_is_its_own_original(message_id: str) -> None:
    """Whatever its id looks like, and whether or not it is there."""
    assert message_id == original_id(Story().chain("m", "m~0123456789ab", "~0123456789ab").chat(), message_id)


def test_what_answers_a_changed_message_answers_its_version() -> None:
    """And is a version itself by that; what comes new or stayed as it was is none."""
    story = Story().chain("m1", "m2")
    story.add(user("m3", reply_to="m1"), user("m4"))
    chat = conversation(
        message("new"), message("m1", data="changed"), message("m2", "m1"), message("m3", reply_to="m1"), message("m4")
    )
    settled = imported(story, chat)
    version = settled.new_ids["m1"]

    assert ["m1", "m2", "m3"] == list(settled.new_ids)
    assert [None, None, version, None, None] == [one.parent_id for one in settled.chat.messages]
    assert [None, None, None, version, None] == [one.reply_to for one in settled.chat.messages]
    assert ["new", version, settled.new_ids["m2"], settled.new_ids["m3"], "m4"] == [
        one.id for one in settled.chat.messages
    ]


def test_what_is_as_it_was_is_left_alone() -> None:
    """Times do not count, as sources change them; nor does anything for a chat that is not there."""
    story = Story().chain("m1", "m2", "m3")

    assert SHARED is settle_changes(story.chat(), SHARED, "version").chat
    assert SHARED is settle_changes(story.chat(), SHARED, "skip").chat
    assert Settled(SHARED) == settle_changes(Story().chat(), SHARED, "version")
