"""Proofs of messages by an anchor that was made by hand, and files of proofs that were changed."""

import base64
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.support.cases import case
from tests.support.stories import CHAT, Story, user

from chatledger.domain.chat.events import ChatUpdated
from chatledger.domain.chat.state import stream_head
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.log.codec import encode_event, event_hash
from chatledger.domain.proof.anchors import Anchor, AnchorLeaf, key_id_of, root_of, stream_digest
from chatledger.domain.proof.message_proof import FORMAT, MessageProof, prove_message


def anchor_of(*stories: Story, **rest: Any) -> Anchor:
    """The anchor at the end of stories of a chat each, which names the events as the fold knows them."""
    leaves: list[AnchorLeaf] = []
    for story in stories:
        for chat_id, chat in story.chats.items():
            head = stream_head(chat)
            digest = stream_digest(chat_id)
            leaves.append(AnchorLeaf(digest, head.version, head.position, head.hash, head.position_hash))
    leaves.sort()
    known: dict[str, Any] = {"position": 99, "created_at": 7, "public_key": b"k" * 32, "signature": b"s" * 64, **rest}
    return Anchor(count=len(leaves), root=root_of(leaves), leaves=tuple(leaves), **known)


@pytest.fixture
def story() -> Story:
    """A chat with three messages, among others."""
    story = Story()
    for other in ("another", "third"):
        story.chain("o1", chat_id=other)
    return story.chain("m1", "m2", "m3")


def events_of(story: Story) -> list[Any]:
    return [event for event in story.events if event.chat_id == CHAT]


def proof_of(story: Story, message_id: str = "m2") -> MessageProof:
    return prove_message(message_id, events_of(story), anchor_of(story))


def test_a_proof_gives_the_message(story: Story) -> None:
    """It has the event that brought it, the trail up to the anchor and nothing else; as a file it is the same."""
    anchor = anchor_of(story)
    for message in story.chat().messages:
        proof = prove_message(message.id, events_of(story), anchor)
        assert message == proof.check()
        assert proof == MessageProof.from_json(proof.to_json())
        assert message == MessageProof.from_json(proof.to_json().encode()).check()
        assert (CHAT, message.id, anchor.without_leaves(), anchor.proof(CHAT)) == (
            proof.chat_id,
            proof.message_id,
            proof.anchor,
            proof.inclusion,
        )
        (brought,) = (event for event in events_of(story) if event.hash == event_hash(proof.topic, proof.event))
        assert (brought.topic, encode_event(brought.event)) == (proof.topic, proof.event)
        assert [(event.position, event.hash) for event in events_of(story)] == list(proof.trail)


def test_the_file_of_a_proof(story: Story) -> None:
    """Its form never changes, for it is checked by others: worked out by hand."""
    proof = proof_of(story)
    found = msgspec.json.decode(proof.to_json())

    assert {
        "format": "chatledger-message-proof/1",
        "chat_id": CHAT,
        "message_id": "m2",
        "topic": "chatledger.message_appended/2",
        "event": base64.b64encode(proof.event).decode(),
        "trail": [[position, hash_.hex()] for position, hash_ in proof.trail],
        "leaf": proof.inclusion.leaf.to_row(),
        "index": proof.inclusion.index,
        "path": [hash_.hex() for hash_ in proof.inclusion.path],
        "anchor": msgspec.json.decode(proof.anchor.to_json()),
    } == found
    assert FORMAT == found["format"]
    assert proof.to_json().startswith('{\n  "format"')
    assert proof.to_json().endswith("}\n")
    assert "m3" not in proof.to_json()


def test_events_after_the_anchor_are_left_out(story: Story) -> None:
    """The anchor speaks of what was there; of a chat that began anew it speaks of the new life."""
    anchor = anchor_of(story)
    story.append(user("m4"))
    proof = prove_message("m3", events_of(story), anchor)
    assert proof.check().id == "m3"
    with pytest.raises(InvalidValueError, match="'m4'"):
        prove_message("m4", events_of(story), anchor)

    story.delete()
    story.create()
    story.append(user("m1", "again"))
    proof = proof_of(story, "m1")
    assert proof.check().data == "again"
    assert 3 == len(proof.trail)
    for message_id in ("m2", "none"):
        with pytest.raises(InvalidValueError, match=message_id):
            proof_of(story, message_id)
    story.delete()
    story.chain("m1")
    assert 3 == len(proof_of(story, "m1").trail)


def test_what_cannot_be_proven(story: Story) -> None:
    """A chat that the anchor does not have, and an event whose bytes were others."""
    for anchor in (anchor_of(Story().chain(chat_id="alone")), anchor_of(story).without_leaves()):
        with pytest.raises(InvalidValueError, match=CHAT):
            prove_message("m1", events_of(story), anchor)
    events = events_of(story)
    events[1] = msgspec.structs.replace(events[1], hash=b"h" * 32)
    with pytest.raises(InvalidValueError, match="older version"):
        prove_message("m1", events, anchor_of(story))


def test_a_proof_that_was_changed_does_not_hold(story: Story) -> None:
    """Whatever part of it is another one, also one that is sound by itself."""
    proof = proof_of(story)
    other = Story().chain("m1", "m2", "m4")
    leaf = proof.inclusion.leaf
    empty_leaf = AnchorLeaf(leaf.digest, leaf.version, leaf.position, leaf.hash, b"")
    [updated] = story.write([ChatUpdated({"title": "x"})])
    with_update = proof_of(story)

    def changed(**parts: Any) -> MessageProof:
        return msgspec.structs.replace(proof, **parts)

    def in_inclusion(**parts: Any) -> MessageProof:
        return changed(inclusion=msgspec.structs.replace(proof.inclusion, **parts))

    def with_leaf(**parts: Any) -> MessageProof:
        return in_inclusion(leaf=msgspec.structs.replace(leaf, **parts))

    its_events, not_like_this = "its events are not those", "the anchor does not have the chat"
    for bad, why in (
        (changed(chat_id="another"), not_like_this),
        (changed(message_id="m3"), "did not bring"),
        (changed(topic="chatledger.chat_updated/1"), "its event is not one"),
        (changed(event=encode_event(other.events[3].event)), "its event is not one"),
        (changed(trail=proof.trail[:-1]), its_events),
        (changed(trail=(*proof.trail[:-1], (1, proof.trail[-1][1]))), its_events),
        (changed(trail=()), its_events),
        (msgspec.structs.replace(in_inclusion(leaf=empty_leaf), trail=()), its_events),
        (with_leaf(position=leaf.position + 1), its_events),
        (with_leaf(hash=b"h" * 32), its_events),
        (with_leaf(version=leaf.version + 1), not_like_this),
        (in_inclusion(index=proof.inclusion.index ^ 1), not_like_this),
        (in_inclusion(path=proof.inclusion.path[:-1]), not_like_this),
        (changed(anchor=anchor_of(other)), not_like_this),
        (
            msgspec.structs.replace(with_update, topic=updated.topic, event=encode_event(updated.event)),
            "did not bring",
        ),
    ):
        with case(why), pytest.raises(InvalidValueError, match=f"'{bad.message_id}' does not hold: .*{why}"):
            bad.check()


def test_an_event_that_cannot_be_read() -> None:
    """A chat whose anchor names bytes that are no event proves nothing."""
    state = b"\x90"
    for topic, why in (("chatledger.message_appended/2", "damaged"), ("chatledger.unknown/1", "newer")):
        story = Story().chain("m1")
        (last,) = story.encode([ChatUpdated({})])
        story.chat().apply(msgspec.structs.replace(last, hash=event_hash(topic, state)))
        story.events.append(msgspec.structs.replace(last, hash=event_hash(topic, state)))
        proof = msgspec.structs.replace(proof_of(story, "m1"), topic=topic, event=state)
        with pytest.raises(InvalidValueError, match=f"'m1' does not hold: .*{why}"):
            proof.check()


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "format": lambda found: found.update(format="chatledger-message-proof/2"),
    "chat": lambda found: found.update(chat_id=5),
    "message": lambda found: found.update(message_id=None),
    "topic": lambda found: found.update(topic=[]),
    "event": lambda found: found.update(event=found["event"] + "!"),
    "no event": lambda found: found.pop("event"),
    "position": lambda found: found["trail"][0].__setitem__(0, -1),
    "beyond": lambda found: found["trail"][0].__setitem__(0, 2**63),
    "fraction": lambda found: found["trail"][0].__setitem__(0, 1.0),
    "hash": lambda found: found["trail"][0].__setitem__(1, "no hash"),
    "trail": lambda found: found.update(trail=[[1]]),
    "leaf": lambda found: found.update(leaf=found["leaf"][:-1]),
    "index": lambda found: found.update(index=True),
    "path": lambda found: found.update(path=[5]),
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


def test_positions_at_the_ends(story: Story) -> None:
    """From 0 to the last one of 63 bits."""
    found = msgspec.json.decode(proof_of(story).to_json())
    for position in (0, 2**63 - 1):
        found["trail"][0][0] = position
        assert position == MessageProof.from_json(msgspec.json.encode(found)).trail[0][0]


def test_the_name_of_a_key() -> None:
    """32 hexadecimal digits of its SHA-256, as in the file of an anchor."""
    assert "2d711642b726b04401627ca9fbac32f5" == key_id_of(b"x")[:32]
    assert 32 == len(key_id_of(b"k" * 32))
