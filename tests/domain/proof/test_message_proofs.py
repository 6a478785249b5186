"""Proofs of messages and of growth by anchors that were made by hand, and files of proofs that were changed."""

import base64
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.support.cases import case
from tests.support.stories import CHAT, Story, user

from chatledger.domain.chat.events import ChatUpdated, Recorded, StreamDeleted
from chatledger.domain.chat.state import stream_head
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.log.merkle import event_leaf, root_of_peaks, subtree_of
from chatledger.domain.log.parts import join, take_apart
from chatledger.domain.proof.anchors import Anchor, AnchorLeaf, key_id_of, path_to_rows, root_of, stream_digest
from chatledger.domain.proof.message_proof import FORMAT, GrowthProof, MessageProof, prove_growth, prove_message


def anchor_of(*stories: Story, **rest: Any) -> Anchor:
    """The anchor at the end of stories of a chat each, which names the events as the fold knows them."""
    leaves: list[AnchorLeaf] = []
    for story in stories:
        for chat_id, chat in story.chats.items():
            head = stream_head(chat)
            root = root_of_peaks(head.peaks)
            leaves.append(AnchorLeaf(stream_digest(chat_id), head.version, head.position, head.hash, head.size, root))
    leaves.sort()
    known: dict[str, Any] = {"position": 99, "created_at": 7, "public_key": b"k" * 32, "signature": b"s" * 64, **rest}
    return Anchor(count=len(leaves), root=root_of(leaves), leaves=tuple(leaves), **known)


@pytest.fixture
def story() -> Story:
    """A chat with three messages, among others; the last two came together."""
    story = Story()
    for other in ("another", "third"):
        story.chain("o1", chat_id=other)
    story.chain("m1")
    story.append(user("m2", "SECOND"), user("m3", "THIRD"))
    return story


def life_of(story: Story) -> list[Recorded]:
    """The events of the chat since its last deletion, with the tombstone."""
    events = [event for event in story.events if event.chat_id == CHAT]
    deletions = [number for number, event in enumerate(events) if isinstance(event.body, StreamDeleted)]
    return events[deletions[-1] if deletions else 0 :]


def proven(story: Story, message_id: str, anchor: Anchor) -> MessageProof:
    events = life_of(story)
    number, brought = next(
        (number, event)
        for number, event in enumerate(events)
        if message_id in {message.id for message in getattr(event.body, "messages", ())}
    )
    leaves = [event_leaf(event.position, event.hash) for event in events]
    (state,) = (one.state for one in story.encoded if one.event.event_id == brought.event_id)
    message = next(message for message in brought.body.messages if message.id == message_id)  # type: ignore[attr-defined] # it has them
    return prove_message(
        message,
        state,
        position=brought.position,
        number=number,
        events=subtree_of(leaves),
        size=len(leaves),
        anchor=anchor,
    )


def proof_of(story: Story, message_id: str = "m3") -> MessageProof:
    return proven(story, message_id, anchor_of(story))


def test_a_proof_gives_the_message(story: Story) -> None:
    """It has the part of the event that is the message, and hashes; as a file it is the same."""
    anchor = anchor_of(story)
    for message in story.chat().messages:
        proof = proven(story, message.id, anchor)
        assert message == proof.check()
        assert proof == MessageProof.from_json(proof.to_json())
        assert message == MessageProof.from_json(proof.to_json().encode()).check()
        assert (CHAT, message.id, anchor.without_leaves(), anchor.proof(CHAT)) == (
            proof.chat_id,
            proof.message_id,
            proof.anchor,
            proof.inclusion,
        )
    assert [(0,), (0,), (0, 1)] == [proof_of(story, one).part_numbers for one in ("m1", "m2", "m3")]


def test_large_data_come_with_it(story: Story) -> None:
    """The event has nothing but their digest, so they stand beside it, and no others pass for them."""
    story.append(user("m4", "x" * 300_000), user("m5", ["y"] * 300_000))
    for message_id in ("m4", "m5"):
        proof = proof_of(story, message_id)
        checked = MessageProof.from_json(proof.to_json()).check()
        is_whole = checked == next(one for one in story.chat().messages if one.id == message_id)
        assert is_whole
        assert len(proof.event) < 1000
        assert len(proof.large) == 1
        for large in ((), (proof.large[0] + b"x",)):
            with pytest.raises(InvalidValueError, match="large data"):
                msgspec.structs.replace(proof, large=large).check()


def test_other_content_is_not_in_it(story: Story) -> None:
    """Neither of messages of the same event, nor who wrote it: only what the message itself says."""
    for message_id, shown, hidden in (("m2", b"SECOND", b"THIRD"), ("m3", b"THIRD", b"SECOND")):
        proof = proof_of(story, message_id)
        assert shown in proof.event
        assert hidden not in proof.event
        assert b"ada" not in proof.event  # the actor


def test_the_file_of_a_proof(story: Story) -> None:
    """Its form never changes, for it is checked by others: worked out by hand."""
    proof = proof_of(story)
    found = msgspec.json.decode(proof.to_json())

    assert {
        "format": "chatledger-message-proof/2",
        "chat_id": CHAT,
        "message_id": "m3",
        "position": proof.position,
        "number": 2,
        "event": base64.b64encode(proof.event).decode(),
        "part_numbers": [0, 1],
        "part_count": 2,
        "part_path": [],
        "path": [hash_.hex() for hash_ in proof.path],
        "leaf": proof.inclusion.leaf.to_row(),
        "anchor_path": path_to_rows(proof.inclusion.path),
        "anchor": msgspec.json.decode(proof.anchor.to_json()),
        "large": [],
    } == found
    assert FORMAT == found["format"]
    assert proof.to_json().startswith('{\n  "format"')
    assert proof.to_json().endswith("}\n")


def test_events_after_the_anchor_are_left_out(story: Story) -> None:
    """The anchor speaks of what was there; of a chat that began anew it speaks of the new life."""
    anchor = anchor_of(story)
    story.append(user("m4"))
    assert proven(story, "m3", anchor).check().id == "m3"
    with pytest.raises(InvalidValueError, match="'m4'"):
        proven(story, "m4", anchor)

    story.delete()
    story.create()
    story.append(user("m1", "again"))
    assert proof_of(story, "m1").check().data == "again"
    with pytest.raises(InvalidValueError, match="'m1'"):
        proven(story, "m1", anchor)


def test_what_cannot_be_proven(story: Story) -> None:
    """A chat that the anchor does not have, an anchor without leaves, and one of another log."""
    for anchor in (anchor_of(Story().chain(chat_id="alone")), anchor_of(story).without_leaves()):
        with pytest.raises(InvalidValueError, match=CHAT):
            proven(story, "m1", anchor)
    other = Story().chain("m1", "m2", "m3", "m4", "m5", "m6", "m7", "m8", "m9")
    with pytest.raises(InvalidValueError, match="not one of this ledger"):
        proven(story, "m1", anchor_of(other))


def test_a_proof_that_was_changed_does_not_hold(story: Story) -> None:
    """Whatever part of it is another one, also one that is sound by itself."""
    proof = proof_of(story)
    other = Story().chain("m1", "m2", "m4")
    leaf = proof.inclusion.leaf
    story.write([ChatUpdated({"title": "x"})])
    updated = story.encoded[-1].state
    head, parts = take_apart(proof.event)

    def changed(**values: Any) -> MessageProof:
        return msgspec.structs.replace(proof, **values)

    def in_inclusion(**values: Any) -> MessageProof:
        return changed(inclusion=msgspec.structs.replace(proof.inclusion, **values))

    def with_leaf(**values: Any) -> MessageProof:
        return in_inclusion(leaf=msgspec.structs.replace(leaf, **values))

    its_event, its_parts = "its event is not one", "its parts are not those"
    not_like_this = "the anchor does not have the chat"
    for bad, why in (
        (changed(chat_id="another"), its_parts),
        (changed(message_id="m2"), "did not bring"),
        (changed(event=b"\x90"), "no event"),
        (changed(event=proof.event.replace(b"THIRD", b"third")), its_event),
        (changed(event=other.encoded[3].state), its_parts),
        (changed(event=updated, part_numbers=(), part_count=0), "cannot be decoded"),
        (changed(event=join(head, parts[1:])), "no parent"),
        (changed(event=join(head, parts[::-1])), its_event),
        (changed(event=join(head, [*parts, parts[1]]), part_numbers=(0, 1, 2), part_count=3), its_event),
        (changed(part_numbers=(0, 0)), its_parts),
        (changed(part_numbers=(1, 0)), its_event),
        (changed(part_numbers=(0, 2), part_count=3), its_parts),
        (changed(part_count=3), its_parts),
        (changed(part_path=(bytes(32),)), its_parts),
        (changed(position=proof.position + 1), its_event),
        (changed(number=proof.number - 1), its_event),
        (changed(number=leaf.size), its_event),
        (changed(path=proof.path[:-1]), its_event),
        (changed(path=(bytes(32), *proof.path[1:])), its_event),
        (with_leaf(root=bytes(32)), its_event),
        (with_leaf(size=leaf.size + 1), its_event),
        (with_leaf(position=leaf.position + 1), not_like_this),
        (with_leaf(hash=b"h" * 32), not_like_this),
        (with_leaf(version=leaf.version + 1), not_like_this),
        (in_inclusion(path=proof.inclusion.path[:-1]), not_like_this),
        (changed(anchor=anchor_of(other)), not_like_this),
    ):
        with case(why, bad), pytest.raises(InvalidValueError, match=f"'{bad.message_id}' does not hold: .*{why}"):
            bad.check()


def test_a_parent_is_not_another_one(story: Story) -> None:
    """A message whose parent is the one before it in its event is shown with that, and with no other."""
    story.append(user("m4"), user("m5"), user("m6"))
    proof = proof_of(story, "m6")
    state = next(one.state for one in story.encoded if b"m6" in one.state)
    head, parts = take_apart(state)
    assert (1, 2) == proof.part_numbers
    shown, kept = take_apart(proof.event)
    forged = msgspec.structs.replace(
        proof, event=join(shown, [parts[0], kept[1]]), part_numbers=(0, 2), part_path=proof.part_path
    )
    assert head[0] == shown[0]
    with pytest.raises(InvalidValueError, match="does not hold"):
        forged.check()


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "format": lambda found: found.update(format="chatledger-message-proof/1"),
    "chat": lambda found: found.update(chat_id=5),
    "message": lambda found: found.update(message_id=None),
    "event": lambda found: found.update(event=found["event"] + "!"),
    "no event": lambda found: found.pop("event"),
    "position": lambda found: found.update(position=-1),
    "beyond": lambda found: found.update(position=2**63),
    "fraction": lambda found: found.update(number=1.0),
    "parts": lambda found: found.update(part_numbers=["0"]),
    "count": lambda found: found.update(part_count=True),
    "hash": lambda found: found.update(part_path=["no hash"]),
    "path": lambda found: found.update(path=[5]),
    "leaf": lambda found: found.update(leaf=found["leaf"][:-1]),
    "bit": lambda found: found.update(anchor_path=[["1", "00" * 32]]),
    "short": lambda found: found.update(anchor_path=[[1, "00" * 31]]),
    "anchor": lambda found: found.update(anchor={}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_no_proof(story: Story, change: str) -> None:
    """A file that was changed is refused in words; so is one that is none at all."""
    found = msgspec.json.decode(proof_of(story).to_json())
    CHANGES[change](found)
    with pytest.raises(InvalidValueError, match=r"format|proof of a message|anchor"):
        MessageProof.from_json(msgspec.json.encode(found))


@pytest.mark.parametrize("text", ["", "[]", "5", "{}", "null", "[" * 100_000])
def test_what_is_no_file_of_a_proof(text: str) -> None:
    with pytest.raises(InvalidValueError, match="proof of a message"):
        MessageProof.from_json(text)


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
