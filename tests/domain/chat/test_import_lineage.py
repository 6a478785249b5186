"""Ancestors among messages of which some are stored and the others are about to be."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.soak import examples
from tests.support.stories import CHAT, Story, user

from chatledger.domain.chat.decide_import import Lineage, decide_import
from chatledger.domain.chat.events import HeadMoved
from chatledger.domain.chat.interchange import ImportedBranch, ImportedChat, ImportedMessage
from chatledger.domain.chat.replay import ReplayedChat

trees = st.integers(1, 12).flatmap(
    lambda size: st.tuples(*(st.none() if at == 0 else st.none() | st.integers(0, at - 1) for at in range(size)))
)


@settings(max_examples=examples(100))
@given(tree=trees, is_merged=st.booleans(), data=st.data())
def test_answers_are_those_of_a_walk(tree: tuple[int | None, ...], data: st.DataObject, *, is_merged: bool) -> None:
    """
    Whichever messages are stored already: a message descends from those that one meets on the way to its roots, by all parents.

    Those that are stored may be missing in the import, and what is nowhere is above nothing.
    """
    above: dict[str, tuple[str, ...]] = {}
    for at, parent in enumerate(tree):
        others = data.draw(st.sets(st.integers(0, at - 1), max_size=2)) - {parent} if at and is_merged else ()
        above[f"m{at}"] = ("" if parent is None else f"m{parent}", *(f"m{other}" for other in others))
    stored: set[str] = set()
    known = list(above)
    for message_id, parents in above.items():
        if stored.issuperset(filter(None, parents)) and data.draw(st.booleans()):
            stored.add(message_id)
            if data.draw(st.booleans()):
                known.remove(message_id)
    story = Story().chain()
    imported = [
        ImportedMessage(id=one, parent_id=above[one][0] or None, merged_from=above[one][1:], name="user", data=1)
        for one in above
    ]
    story.add(
        *(user(one.id, parent_id=one.parent_id, merged_from=one.merged_from) for one in imported if one.id in stored)
    )
    lineage = Lineage(story.chat(), [one for one in imported if one.id in known])

    for message_id in known:
        before: set[str] = set()
        ways = [message_id]
        while ways:
            before.add(one := ways.pop())
            ways += filter(None, above[one])
        assert [one in before for one in above] == [lineage.descends(message_id, one) for one in above]
        assert not lineage.descends(message_id, "nowhere")


class _Counted(ReplayedChat):
    """A chat that counts what it is asked."""

    def __init__(self) -> None:
        super().__init__(CHAT)
        self.asked: Counter[str] = Counter()

    def has_message(self, message_id: str) -> bool:
        self.asked[message_id] += 1
        return super().has_message(message_id)


def _questions(size: int) -> int:
    """Count the questions that it takes to move so many branches from the root onto a chain that all of them share."""

    def conversation(length: int) -> ImportedChat:
        ids = ["root", *(f"m{at}" for at in range(length))]
        return ImportedChat(
            id=CHAT,
            user_id="ada",
            title=None,
            metadata=None,
            messages=tuple(
                ImportedMessage(id=one, parent_id=parent, name="user", data=1)
                for one, parent in zip(ids, [None, *ids], strict=False)
            ),
            branches=tuple(
                ImportedBranch(name=f"b{at}", head_message_id=f"m{at}" if length else "root", is_active=not at)
                for at in range(size)
            ),
        )

    story = Story()
    story.chats[CHAT] = chat = _Counted()
    ids = [f"new{number}" for number in range(size + 1)]
    story.write(decide_import(chat, conversation(0), ids=ids, now=1))
    chat.asked.clear()
    moved = decide_import(chat, conversation(size), ids=ids, now=2)

    assert size == sum(isinstance(body, HeadMoved) for body in moved)
    return chat.asked.total()


@pytest.mark.parametrize("size", [50, 200])
def test_branches_that_share_a_chain_do_not_walk_it_again_each(size: int) -> None:
    """Twice the branches on twice the chain take twice the questions."""
    assert _questions(2 * size) <= 2.1 * _questions(size)
