"""Differences between two states of a chat."""

from chatledger.domain.chat.interchange import ImportedBranch, ImportedChat, ImportedCheckpoint, ImportedMessage
from chatledger.domain.proof.verification import ChatDifference, compare_chats


def chat(
    title: str, heads: dict[str, str | None], marks: dict[str, str] | None = None, *, active: str = "main"
) -> ImportedChat:
    """A chat whose messages are those that its branches point at."""
    messages = [ImportedMessage(id=head, parent_id=None, name="user", data=head) for head in heads.values() if head]
    return ImportedChat(
        id="c",
        user_id="ada",
        title=title,
        metadata=None,
        messages=tuple(messages),
        branches=tuple(
            ImportedBranch(name=name, head_message_id=head, is_active=name == active) for name, head in heads.items()
        ),
        checkpoints=tuple(ImportedCheckpoint(name=name, message_id=at) for name, at in (marks or {}).items()),
    )


def test_equal_states() -> None:
    """Nothing differs, whether there is a chat or not; when it was changed is no difference."""
    assert compare_chats(None, None).is_equal
    for active in ("main", "no branch"):
        one, other = (chat("T", {"main": "a"}, active=active) for _ in range(2))
        assert compare_chats(one, other).is_equal


def test_every_kind_of_difference() -> None:
    a = chat("T", {"main": "a", "old": None}, {"gone": "a", "moved": "a"})
    b = chat("U", {"main": "b", "new": "c"}, {"moved": "b", "made": "b"}, active="new")

    found = compare_chats(a, b)

    assert not found.is_equal
    assert [
        ChatDifference(name="title", a="T", b="U"),
        ChatDifference(name="active_branch", a="main", b="new"),
    ] == found.chat
    assert [
        ChatDifference(name="main", a="a", b="b"),
        ChatDifference(name="old", a=None, b=None, in_b=False),
        ChatDifference(name="new", a=None, b="c", in_a=False),
    ] == found.branches
    assert [
        ChatDifference(name="gone", a="a", b=None, in_b=False),
        ChatDifference(name="moved", a="a", b="b"),
        ChatDifference(name="made", a=None, b="b", in_a=False),
    ] == found.checkpoints
    assert (["a"], ["b", "c"]) == ([one.id for one in found.only_a], [one.id for one in found.only_b])


def test_chat_that_is_not_there() -> None:
    """Everything of the other one is a difference."""
    one = chat("T", {"main": "a"})
    found, back = compare_chats(None, one), compare_chats(one, None)

    assert {"user_id", "title", "metadata", "active_branch"} == {difference.name for difference in found.chat}
    assert not any(difference.in_a for difference in [*found.chat, *found.branches])
    assert not any(difference.in_b for difference in [*back.chat, *back.branches])
    assert (["a"], []) == ([message.id for message in found.only_b], found.only_a)
