"""The proof that a chat only grew between two anchors, which were made by hand."""

import msgspec
import pytest
from tests.domain.proof.test_excerpts import anchor_of, chat_among_others, life_of
from tests.support.stories import CHAT, Story, user

from chatledger.domain.errors import InvalidValueError
from chatledger.domain.log.merkle import event_leaf, subtree_of
from chatledger.domain.proof.anchors import Anchor, key_id_of
from chatledger.domain.proof.growth import GrowthProof, prove_growth


@pytest.fixture
def story() -> Story:
    return chat_among_others()


def test_a_chat_only_grew(story: Story) -> None:
    """Between any two anchors, which are needed without their leaves to check it."""
    anchors = [anchor_of(story)]
    for number in range(9):
        story.append(user(f"n{number}"))
        anchors.append(anchor_of(story))
    leaves = [event_leaf(event.position, event.hash) for event in life_of(story)]
    first = life_of(story)[0].position
    for at, earlier in enumerate(anchors):
        for later in anchors[at:]:
            proof = growth_of(earlier, later, leaves, first)
            proof.check(earlier.without_leaves(), later.without_leaves())
            if later is not earlier:
                with pytest.raises(InvalidValueError, match="does not hold"):
                    proof.check(later, earlier)
                with pytest.raises(InvalidValueError, match="wrong way round"):
                    growth_of(later, earlier, leaves, first)


def growth_of(earlier: Anchor, later: Anchor, leaves: list[bytes], first: int) -> GrowthProof:
    return prove_growth(CHAT, earlier, later, events=subtree_of(leaves), first_position=first, size=len(leaves))


def test_a_chat_that_did_not_only_grow(story: Story) -> None:
    """One event that is another one, and a chat that was deleted in between."""
    earlier = anchor_of(story)
    story.append(user("n1"))
    later = anchor_of(story)
    events = life_of(story)
    leaves = [event_leaf(event.position, event.hash) for event in events]
    proof = growth_of(earlier, later, leaves, events[0].position)
    changed = msgspec.structs.replace(proof, path=(bytes(32), *proof.path[1:]))
    with pytest.raises(InvalidValueError, match="does not begin with"):
        changed.check(earlier, later)
    other = Story().chain("m1", "m2", "m3", "m4", "m5", "m6")
    with pytest.raises(InvalidValueError, match="does not"):
        proof.check(earlier, anchor_of(other))
    story.delete()
    story.chain("m1")
    leaves = [event_leaf(event.position, event.hash) for event in life_of(story)]
    with pytest.raises(InvalidValueError, match="was deleted"):
        growth_of(earlier, anchor_of(story), leaves, life_of(story)[0].position)


def test_the_name_of_a_key() -> None:
    """32 hexadecimal digits of its SHA-256, as in the file of an anchor."""
    assert "2d711642b726b04401627ca9fbac32f5" == key_id_of(b"x")[:32]
    assert 32 == len(key_id_of(b"k" * 32))
