"""A new chat that begins with the messages of another one, and the names of branches."""

from typing import Any

import msgspec
import pytest
from tests.support.stories import Story, user

from chatledger.domain.chat.events import ChatCreated, MessagesAnnotated
from chatledger.domain.chat.fork import PlannedFork, bases_of, decide_fork_chat, next_name
from chatledger.domain.chat.replay import ReplayedChat
from chatledger.domain.errors import ChatExistsError, InvalidValueError
from chatledger.domain.limits import MAX_ID_BYTES
from chatledger.domain.values import Annotation, NewMessage

NEW_IDS = {"m1": "n1", "m2": "n2", "m3": "n3"}


@pytest.fixture
def source() -> Story:
    """A chat whose messages have everything that a message can have."""
    story = Story().chain("m1")
    story.append(NewMessage("assistant", {"a": 1}, id="m2", agent_id="bot", reply_to="m1", type="answer", created_at=5))
    story.append(user("m3", sender_id="ada", reply_to="m2"))
    story.append(user("m4"))
    for message_id, changes in (
        ("m1", {"replaced_by": "m3", "hidden": True}),
        ("m2", {"replaced_by": "m4", "stale": True}),
        ("m3", {"replaced_by": "m4"}),
    ):
        story.write([MessagesAnnotated((message_id,), changes)])
    return story


def fork_of(source: Story, head: str = "m3", **given: Any) -> PlannedFork:
    chain = source.chat().get_chain(head)
    return PlannedFork(source_id="chat-1", chain=chain, user_id="ada", **{"title": "T", "metadata": {"k": 1}, **given})


def forked(source: Story, fork: PlannedFork) -> ReplayedChat:
    target = Story()
    bodies = decide_fork_chat(target.chat("new"), fork, new_ids=NEW_IDS, branch_id="b", now=target.time)
    target.write(bodies, "new")
    return target.chat("new")


def test_a_fork_has_the_messages(source: Story) -> None:
    """Under their new ids, with all that they are; what is said of messages that were not copied is left out."""
    chat = forked(source, fork_of(source))
    originals = source.chat().get_chain("m3")

    assert chat.chat is not None
    assert ("ada", "T", {"k": 1, "branched_from": "m3", "branched_from_chat": "chat-1"}) == (
        chat.chat.user_id,
        chat.chat.title,
        chat.chat.metadata,
    )
    assert ["n1", "n2", "n3"] == [message.id for message in chat.get_chain("n3")]
    for message, original in zip(chat.messages, originals, strict=True):
        expected = msgspec.structs.replace(
            original,
            id=NEW_IDS[original.id],
            chat_id="new",
            parent_id=None if original.parent_id is None else NEW_IDS[original.parent_id],
            reply_to=None if original.reply_to is None else NEW_IDS[original.reply_to],
            annotation=message.annotation,
            copied_from=message.copied_from,
        )
        assert expected == message
    assert [Annotation(replaced_by="n3", hidden=True), Annotation(stale=True), None] == [
        message.annotation for message in chat.messages
    ]
    branch = chat.branch("main")
    assert branch is not None
    assert ("b", "n3", True) == (branch.id, branch.head_message_id, branch.is_active)


def test_a_reply_to_what_is_not_copied_is_left_out(source: Story) -> None:
    chain = [msgspec.structs.replace(source.chat().messages[2], parent_id=None)]
    fork = msgspec.structs.replace(fork_of(source), chain=chain)
    target = Story()
    target.write(decide_fork_chat(target.chat("new"), fork, new_ids={"m3": "n3"}, branch_id="b", now=9), "new")
    assert [("n3", None)] == [(message.id, message.reply_to) for message in target.chat("new").messages]


def test_a_fork_is_made_once(source: Story) -> None:
    """The same fork of the same owner is there already; any other chat of that id is in the way."""
    fork = fork_of(source)
    chat = forked(source, fork)

    def again(**changes: Any) -> list[Any]:
        other = msgspec.structs.replace(fork, **changes)
        return decide_fork_chat(chat, other, new_ids=NEW_IDS, branch_id="b2", now=9)

    assert [] == again() == again(title="other", metadata=None)
    for changes in ({"user_id": "eve"}, {"source_id": "another"}, {"chain": fork.chain[:-1]}):
        with pytest.raises(ChatExistsError) as caught:
            again(**changes)
        assert "new" == caught.value.chat_id
    plain = Story()
    plain.create("new")
    with pytest.raises(ChatExistsError):
        decide_fork_chat(plain.chat("new"), fork, new_ids=NEW_IDS, branch_id="b", now=9)


def test_metadata_of_a_fork(source: Story) -> None:
    """Its origin is in them, whatever else they say, and they are checked."""
    (first, *_) = decide_fork_chat(
        ReplayedChat("new"),
        fork_of(source, metadata={"branched_from": "a lie"}),
        new_ids=NEW_IDS,
        branch_id="b",
        now=9,
    )
    assert isinstance(first, ChatCreated)
    assert {"branched_from": "m3", "branched_from_chat": "chat-1"} == first.metadata
    empty: list[dict[str, Any] | None] = [None, {}]
    for metadata in empty:
        chat = forked(source, fork_of(source, metadata=metadata)).chat
        assert chat is not None
        assert {"branched_from": "m3", "branched_from_chat": "chat-1"} == chat.metadata
    with pytest.raises(InvalidValueError, match="metadata"):
        forked(source, fork_of(source, metadata=[]))


def test_the_names_that_a_name_counts_for() -> None:
    """Itself, and each part before `-v`, but for an empty one."""
    for name, bases in (
        ("main", ["main"]),
        ("main-v2", ["main-v2", "main"]),
        ("a-v2-v3", ["a-v2-v3", "a", "a-v2"]),
        ("-v2", ["-v2"]),
        ("a-v", ["a-v", "a"]),
        ("a-v1-v2-v3", ["a-v1-v2-v3", "a", "a-v1", "a-v1-v2"]),
        ("--v-v", ["--v-v", "-", "--v"]),
        ("-v-v", ["-v-v", "-v"]),
    ):
        assert bases == bases_of(name)


def test_a_base_of_just_the_length_is_not_cut() -> None:
    """One that is longer is cut between characters, without its generated ending."""
    room = MAX_ID_BYTES - 24

    def name_of(base: str) -> str:
        return next_name(base, named_after=lambda _: 1, is_taken=lambda name: name.endswith("-v2"))

    assert "x" * room + "-v3" == name_of("x" * room)
    assert "x" * (room - 3) + "-v7-v3" == name_of("x" * (room - 3) + "-v7")
    assert "x" * room + "-v3" == name_of("x" * (room + 1))
    assert "x" * (room - 1) + "-v3" == name_of("x" * (room - 1) + "é")
    assert "x" * (room - 2) + "-v3" == name_of("x" * (room - 2) + "-v7")
