"""Excerpts by anchors that were made by hand, and excerpts that were changed."""

import base64
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.support.cases import case
from tests.support.stories import CHAT, Story, user

from chatledger.domain.chat.events import Recorded, StreamDeleted
from chatledger.domain.chat.state import stream_head
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.log.large_data import take_out
from chatledger.domain.log.merkle import event_leaf, root_of_peaks, subtree_of
from chatledger.domain.log.parts import committed, take_apart
from chatledger.domain.proof.anchors import Anchor, AnchorLeaf, root_of, stream_digest
from chatledger.domain.proof.excerpt import ChosenEvent, Excerpt, Terms, payload_of, read_excerpt, token_of


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
    return chat_among_others()


def chat_among_others(last: str = "THIRD") -> Story:
    """A chat with three messages, among others; the last two came together."""
    story = Story()
    for other in ("another", "third"):
        story.chain("o1", chat_id=other)
    story.chain("m1")
    story.append(user("m2", "SECOND"), user("m3", last))
    return story


def life_of(story: Story) -> list[Recorded]:
    """The events of the chat since its last deletion, with the tombstone."""
    events = [event for event in story.events if event.chat_id == CHAT]
    deletions = [number for number, event in enumerate(events) if isinstance(event.body, StreamDeleted)]
    return events[deletions[-1] if deletions else 0 :]


def chosen_of(story: Story, *message_ids: str) -> tuple[dict[int, ChosenEvent], list[bytes]]:
    """The events that brought messages, by number, and the leaves of all events of the chat."""
    events = life_of(story)
    chosen: dict[int, ChosenEvent] = {}
    for number, event in enumerate(events):
        messages = [message for message in getattr(event.body, "messages", ()) if message.id in message_ids]
        if messages:
            (state,) = (one.state for one in story.encoded if one.event.event_id == event.event_id)
            large = {part.digest: part.data for message in messages for part in take_out(message.data).large}
            chosen[number] = ChosenEvent(event.position, state, [message.id for message in messages], large)
    return chosen, [event_leaf(event.position, event.hash) for event in events]


def payload(story: Story, *message_ids: str, anchor: Anchor | None = None, **signed: Any) -> bytes:
    chosen, leaves = chosen_of(story, *message_ids)
    return payload_of(chosen, tree=subtree_of(leaves), size=len(leaves), anchor=anchor, **signed)


def anchored(story: Story, *message_ids: str, anchor: Anchor | None = None) -> str:
    """An excerpt that nobody signed, and that leads to an anchor."""
    return token_of(payload(story, *message_ids, anchor=anchor or anchor_of(story)))


def signed(story: Story, *message_ids: str, ends: int | None = None, audience: str | None = None) -> Excerpt:
    """An excerpt that was signed at 1,000,000 ms."""
    terms = Terms(b"n" * 16, ends, audience)
    made = payload(story, *message_ids, issued_at=1_000_000, terms=terms, public_key=b"k" * 32)
    return read_excerpt(token_of(made, b"s" * 64))


def test_it_gives_the_messages(story: Story) -> None:
    """It has the parts of the events that are the messages, and hashes, and names the anchor that these lead to."""
    anchor = anchor_of(story)
    messages = story.chat().messages
    ids = [message.id for message in messages]
    for chosen in (ids[:1], ids[1:2], ids[2:], ids[1:], ids):
        read = read_excerpt(anchored(story, *chosen, anchor=anchor))
        assert read.messages == tuple(message for message in messages if message.id in chosen)
        assert (read.chat_id, read.anchor, read.size) == (CHAT, anchor.without_leaves(), len(life_of(story)))
        assert (read.issued_at, read.expires_at, read.audience, read.nonce, read.key_id) == (None, None, None, "", None)
    assert [(event.number, event.branch) for event in read.events] == [(1, 0), (2, 0)]
    assert {event.hash for event in read.events} <= {event.hash for event in story.events}


def test_what_a_signer_says(story: Story) -> None:
    read = signed(story, "m1", ends=1_300_000, audience="bob")
    assert list(read.messages) == list(story.chat().messages[:1])
    assert (read.anchor, read.issued_at, read.expires_at, read.audience) == (None, 1_000_000, 1_300_000, "bob")
    assert (read.nonce, read.public_key, read.signature) == ((b"n" * 16).hex(), b"k" * 32, b"s" * 64)


def test_times_and_audience(story: Story) -> None:
    """It is good from a minute before it was issued on, as clocks differ, until its end, and for the one it names."""
    read = signed(story, "m1", ends=1_300_000, audience="bob")
    for now in (940_000, 1_000_000, 1_299_999):
        read.check_terms("bob", now)
    for audience, now, why in (
        ("bob", 939_999, "issued in the future"),
        ("bob", 1_300_000, "expired"),
        ("eve", 1_000_000, "is for 'bob', not for 'eve'"),
        (None, 1_000_000, "is for 'bob', not for anybody"),
    ):
        with pytest.raises(InvalidValueError, match=why):
            read.check_terms(audience, now)
    signed(story, "m1").check_terms(None, 2**53)
    with pytest.raises(InvalidValueError, match="is for anybody, not for 'bob'"):
        signed(story, "m1").check_terms("bob", 1_000_000)


def test_large_data_come_with_it(story: Story) -> None:
    """The event has nothing but their digest, so they stand beside it, and no others pass for them."""
    story.append(user("m4", "x" * 300_000), user("m5", ["y"] * 300_000))
    whole = anchored(story, "m4", "m5")
    assert list(map(len, changed_values(whole)[1][0][7])) == [300_000, 600_005]
    assert read_excerpt(whole).messages == tuple(story.chat().messages[-2:])
    for large in ([], [b"x" * 300_001]):
        with pytest.raises(InvalidValueError, match="large data"):
            read_excerpt(changed(anchored(story, "m4"), at(1, 0, 7, to=large)))


def test_other_content_is_not_in_it(story: Story) -> None:
    """Neither of messages of the same event, nor who wrote it: only what the messages themselves say."""
    for message_id, shown, hidden in (("m2", b"SECOND", b"THIRD"), ("m3", b"THIRD", b"SECOND")):
        made = payload(story, message_id, anchor=anchor_of(story))
        assert shown in made
        assert hidden not in made
        assert b"ada" not in made  # the actor


def test_its_form(story: Story) -> None:
    """It never changes, for others check it: worked out by hand."""
    anchor = anchor_of(story)
    text = anchored(story, "m3", anchor=anchor)
    chosen, leaves = chosen_of(story, "m3")
    leaf = anchor.proof(CHAT).leaf
    format_, (event,), size, path, anchor_values, *rest = changed_values(text)
    _, parts = take_apart(chosen[2].state)
    assert (format_, size, rest) == ("cl-excerpt/1", 3, [None, None, None])
    assert path == [subtree_of(leaves)(0, 2)]
    assert event[:2] + event[3:4] + event[5:] == [2, chosen[2].position, 2, [], [1], []]
    assert [number for number, _ in event[4]] == [0, 1]
    assert [value if isinstance(value, bytes) else None for value in event[4][0][1]] == [
        None,
        None,
        committed(parts[0][2])[2:],
    ]
    assert anchor_values[:4] == [
        leaf.version,
        leaf.position,
        leaf.hash,
        [list(step) for step in anchor.proof(CHAT).path],
    ]
    assert anchor_values[4:] == [99, 7, anchor.count, b"k" * 32, b"s" * 64]
    assert base64.urlsafe_b64decode(text + "==")[-64:] == bytes(64)


def changed_values(text: str) -> list[Any]:
    """The values of an excerpt, without its signature."""
    values: list[Any] = msgspec.msgpack.decode(base64.urlsafe_b64decode(text + "==")[:-64])
    return values


def changed(text: str, change: Callable[[list[Any]], object], signature: bytes = bytes(64)) -> str:
    """An excerpt with other values."""
    values = changed_values(text)
    change(values)
    return token_of(msgspec.msgpack.encode(values), signature)


def at(*path: int, to: Any) -> Callable[[list[Any]], object]:
    """Return what puts another value in a place, or what a function makes of the one there."""

    def change(values: list[Any]) -> None:
        for step in path[:-1]:
            values = values[step]
        values[path[-1]] = to(values[path[-1]]) if callable(to) else to

    return change


def test_events_after_the_anchor_are_left_out(story: Story) -> None:
    """The anchor speaks of what was there; of a chat that began anew it speaks of the new life."""
    anchor = anchor_of(story)
    story.append(user("m4"))
    assert [message.id for message in read_excerpt(anchored(story, "m3", anchor=anchor)).messages] == ["m3"]
    with pytest.raises(InvalidValueError, match="'m4'"):
        payload(story, "m3", "m4", anchor=anchor)

    story.delete()
    story.create()
    story.append(user("m1", "again"))
    assert read_excerpt(anchored(story, "m1")).messages[0].data == "again"
    with pytest.raises(InvalidValueError, match="'m1'"):
        payload(story, "m1", anchor=anchor)


def test_what_cannot_be_proven(story: Story) -> None:
    """A chat that the anchor does not have, an anchor without leaves, or with leaves of its own, and one of another log."""
    for anchor in (anchor_of(Story().chain(chat_id="alone")), anchor_of(story).without_leaves()):
        with pytest.raises(InvalidValueError, match=CHAT):
            payload(story, "m1", anchor=anchor)
    longer = Story().chain("m1", "m2", "m3", "m4", "m5", "m6", "m7", "m8", "m9")
    forged = msgspec.structs.replace(anchor_of(story), root=bytes(32))
    for anchor in (anchor_of(longer), anchor_of(chat_among_others("third")), forged):
        with pytest.raises(InvalidValueError, match="not one of this ledger"):
            payload(story, "m1", anchor=anchor)


def test_an_excerpt_that_was_changed_does_not_hold(story: Story) -> None:
    """Whatever part of it is another one, also one that is sound by itself."""
    text = anchored(story, "m1", "m3")
    other = changed_values(anchored(Story().chain("m1", "m2", "m4"), "m1"))

    message, events = "not those of an event", "not those of a chat of that size"
    for why, change in (
        ("format 'cl-excerpt/2'", at(0, to="cl-excerpt/2")),
        ("not those of one chat", at(1, to=lambda values: values[::-1])),
        ("not those of one chat", at(1, to=lambda values: [values[0], values[0]])),
        ("not those of one chat", at(1, to=[])),
        (events, at(1, to=lambda values: values[:1])),
        (events, at(1, 1, 0, to=3)),
        ("no event", at(1, 0, 2, to=None)),
        ("cannot be decoded", at(1, 0, 2, 0, 0, to="chat_updated/2")),
        (message, at(1, 1, 3, to=3)),
        ("cannot be decoded", at(1, 1, 4, to=lambda parts: parts[1:])),
        ("cannot be decoded", at(1, 1, 4, to=lambda parts: parts[:1])),
        (message, at(1, 1, 4, to=lambda parts: parts[::-1])),
        (message, at(1, 1, 4, to=lambda parts: [*parts, [1, parts[1][1]]])),
        (message, at(1, 1, 5, to=[bytes(32)])),
        ("cannot be decoded", at(1, 1, 6, to=[2])),
        (message, at(1, 1, 6, to=[])),
        (message, at(1, 1, 6, to=[1, 1])),
        (events, at(2, to=4)),
        (events, at(3, to=[])),
        ("path to its anchor", at(4, 3, to=[[256, bytes(32)]])),
        ("nobody vouches", at(4, to=None)),
        ("signed in part", at(5, to=7)),
        ("signed in part", at(6, to=[b"n", None, None])),
        ("signed in part", at(7, to=b"k" * 32)),
        ("no excerpt", at(1, 0, 1, to=-1)),
        ("no excerpt", at(1, 0, 3, to=2**32)),
        ("no excerpt", at(3, to=[b"short"])),
        ("no excerpt", lambda values: values.append(None)),
    ):
        with case(why), pytest.raises(InvalidValueError, match=why):
            read_excerpt(changed(text, change))
    with pytest.raises(InvalidValueError, match="signed in part"):
        read_excerpt(changed(text, lambda _: None, b"s" * 64))
    # What is sound by itself leads to another anchor, whose signature does not fit.
    anchor = read_excerpt(text).anchor
    for change in (
        at(1, 0, 0, to=0),
        at(1, 0, 1, to=77),
        at(1, 0, 2, 0, 4, to=5),
        at(1, 1, 4, 1, 1, 2, 1, to="third"),
        at(3, 0, to=bytes(32)),
        at(4, 0, to=9),
        at(4, 2, to=bytes(32)),
        at(4, 3, 0, 1, to=bytes(32)),
        at(4, 4, to=98),
        lambda values: values[1].__setitem__(0, other[1][0]),
    ):
        assert read_excerpt(changed(text, change)).anchor != anchor


def test_a_parent_is_not_another_one(story: Story) -> None:
    """A message whose parent is the one before it in its event is shown with that, and with no other."""
    story.append(user("m4"), user("m5"), user("m6"))
    text = anchored(story, "m6")
    anchor = read_excerpt(text).anchor
    first = changed_values(anchored(story, "m4"))[1][0][4][0][1]

    def forge(values: list[Any]) -> None:
        values[1][0][4][0][1] = first

    forged = read_excerpt(changed(text, forge))
    assert forged.messages[0].parent_id == "m4"
    assert forged.anchor != anchor

    def forge_number(values: list[Any]) -> None:
        values[1][0][4][0] = [0, first]

    with pytest.raises(InvalidValueError, match="no parent"):
        read_excerpt(changed(text, forge_number))


@pytest.mark.parametrize("text", ["", "[]", "AAAA", "é", "A" * 1000, "k" * 100_001, "="])
def test_what_is_no_excerpt(text: str) -> None:
    with pytest.raises(InvalidValueError, match="no excerpt"):
        read_excerpt(text)


def test_one_way_to_write_it(story: Story) -> None:
    """Base64 has several texts for the same bytes: one of them is taken."""
    text = anchored(story, "m1")
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    others = [text + "=", text[:9] + "\n" + text[9:], " " + text, text.replace("-", "+").replace("_", "/") + "+"]
    if len(text) % 4:
        others.append(text[:-1] + alphabet[alphabet.index(text[-1]) + 1])
    for other in others:
        with case(other[-9:]), pytest.raises(InvalidValueError, match="no excerpt"):
            read_excerpt(other)
