"""Excerpts: who gets one can check it alone, nobody can change it, and the ledger says whether it is still so."""

import base64
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.proof_world import KEY, OTHER, pem_of, public_pem_of

import chatledger
from chatledger import InvalidValueError, Ledger, NewMessage, user
from chatledger.admin import ExcerptStanding, check_excerpt
from chatledger.domain.proof.excerpt import token_of
from chatledger.errors import ChatNotFoundError, ConfigurationError, MessageNotFoundError, WrongChatError

PEM, PUBLIC = pem_of(KEY), public_pem_of(KEY)


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    """Three chats of five messages each."""
    with chatledger.open("memory:") as ledger:
        fill(ledger)
        yield ledger


def fill(ledger: Ledger) -> None:
    for chat_id in ("other", "trip", "more"):
        ledger.create_chat(chat_id, "ada")
        for number in range(5):
            ledger.append(chat_id, [user(f"{chat_id} {number}", id=f"{chat_id}-{number}")])


def test_text_is_enough(ledger: Ledger) -> None:
    """What comes out of it are the messages, and no other message can be read in it; five minutes are its time."""
    excerpt = ledger.prove(["trip-3", "trip-1"], key=PEM, audience="bob")
    read = check_excerpt(excerpt, PUBLIC, audience="bob")

    assert [(message.id, message.chat_id, message.text) for message in read.messages] == [
        ("trip-1", "trip", "trip 1"),
        ("trip-3", "trip", "trip 3"),
    ]
    assert (read.chat_id, read.size, read.audience, read.anchor) == ("trip", 6, "bob", None)
    assert read.issued_at is not None
    assert read.expires_at == read.issued_at + 300_000
    assert b"trip 2" not in base64.urlsafe_b64decode(excerpt + "==")
    assert excerpt != ledger.prove(["trip-3", "trip-1"], key=PEM, audience="bob")


def test_its_end(ledger: Ledger) -> None:
    """A moment, seconds from now, or never."""
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    for given_end, seconds in (({"expires_at": tomorrow}, 86_400), ({"ttl_seconds": 60}, 60)):
        read = check_excerpt(ledger.prove("trip-1", key=PEM, **given_end))
        assert read.expires_at is not None
        assert read.issued_at is not None
        assert abs(read.expires_at - read.issued_at - 1000 * seconds) < 10_000
    assert check_excerpt(ledger.prove("trip-1", key=PEM, expires_at=None)).expires_at is None


def test_who_accepts_it(ledger: Ledger) -> None:
    """Neither another audience, nor whoever trusts another key."""
    excerpt = ledger.prove("trip-1", key=PEM, audience="bob")
    with pytest.raises(InvalidValueError, match="another key"):
        check_excerpt(excerpt, public_pem_of(OTHER), audience="bob")
    for audience in ("eve", None):
        with pytest.raises(InvalidValueError, match="is for 'bob'"):
            check_excerpt(excerpt, PUBLIC, audience=audience)


def test_a_forged_one(ledger: Ledger) -> None:
    """Its values signed by somebody else, in the name of the signer or not, and its signature under other values."""
    excerpt = ledger.prove("trip-1", key=PEM)
    read = check_excerpt(excerpt)
    values = msgspec.msgpack.decode(read.payload)
    values[6][2] = "eve"
    for signature, why in ((read.signature, "is wrong"), (OTHER.sign(msgspec.msgpack.encode(values)), "is wrong")):
        with pytest.raises(InvalidValueError, match=why):
            check_excerpt(token_of(msgspec.msgpack.encode(values), signature), audience="eve")
    values[7] = OTHER.public_key().public_bytes_raw()
    forged = msgspec.msgpack.encode(values)
    signed = token_of(forged, OTHER.sign(forged))
    assert check_excerpt(signed, audience="eve").audience == "eve"
    with pytest.raises(InvalidValueError, match="another key"):
        check_excerpt(signed, PUBLIC, audience="eve")


def test_it_rests_on_an_anchor(ledger: Ledger) -> None:
    """Alone, or with a signature; each may have been signed by somebody else."""
    anchor = ledger.anchor(pem_of(OTHER))
    alone = check_excerpt(ledger.prove("trip-1", anchor=anchor), public_pem_of(OTHER))
    assert (alone.anchor, alone.public_key, alone.expires_at) == (anchor.without_leaves(), None, None)
    both = ledger.prove("trip-1", anchor=anchor, key=PEM)
    assert check_excerpt(both, PUBLIC, anchor_key=public_pem_of(OTHER)).anchor == anchor.without_leaves()
    wrong: list[dict[str, Any]] = [{"public_key": PUBLIC}, {"public_key": public_pem_of(OTHER)}, {"anchor_key": PUBLIC}]
    for keys in wrong:
        with pytest.raises(InvalidValueError, match="another key"):
            check_excerpt(both, **keys)
    other_anchor = msgspec.structs.replace(anchor, created_at=1)
    with pytest.raises(InvalidValueError, match="signature of the anchor"):
        check_excerpt(ledger.prove("trip-1", anchor=other_anchor))


def test_what_cannot_be_proven(ledger: Ledger) -> None:
    """Nothing that is not there, nothing of several chats, nothing by an anchor of before or elsewhere, and nothing unsigned."""
    anchor = ledger.anchor(PEM)
    ledger.append("trip", [user("later", id="later")])
    with pytest.raises(InvalidValueError, match="does not have message 'later'"):
        ledger.prove("later", anchor=anchor)
    for ids in ("none", ["trip-1", "none"], ["none", "trip-1"], "\0"):
        with pytest.raises(MessageNotFoundError):
            ledger.prove(ids, key=PEM)
    with pytest.raises(WrongChatError):
        ledger.prove(["trip-1", "more-1"], key=PEM)
    with pytest.raises(InvalidValueError, match="name messages"):
        ledger.prove([], key=PEM)
    with pytest.raises(InvalidValueError, match="a key to sign with"):
        ledger.prove("trip-1")
    for terms in ({"audience": "bob"}, {"ttl_seconds": 5}):
        with pytest.raises(InvalidValueError, match="by a signature alone"):
            ledger.prove("trip-1", anchor=anchor, **terms)
    with pytest.raises(InvalidValueError, match="over before"):
        ledger.prove("trip-1", key=PEM, expires_at=5)
    with pytest.raises(ConfigurationError):
        ledger.prove("trip-1", key=PUBLIC)
    with chatledger.open("memory:") as other:
        fill(other)
        with pytest.raises(InvalidValueError, match="not one of this ledger"):
            other.prove("trip-1", anchor=anchor)


def test_another_user_proves_nothing(ledger: Ledger) -> None:
    """A user cannot prove what is not there for them, nor ask about it."""
    anchor = ledger.anchor(PEM)
    excerpt = ledger.for_user("ada").prove("trip-1", key=PEM)
    assert check_excerpt(excerpt).messages[0].text == "trip 1"
    assert ledger.for_user("ada").still_valid(excerpt)
    assert ledger.for_user("bob").still_valid(excerpt).gone == ("trip-1",)
    with pytest.raises(MessageNotFoundError):
        ledger.for_user("bob").prove("trip-1", key=PEM)
    ledger.for_user("ada").prove_growth("trip", anchor, anchor).check(anchor, anchor)
    with pytest.raises(ChatNotFoundError):
        ledger.for_user("bob").prove_growth("trip", anchor, anchor)


def test_life_before_a_deletion(ledger: Ledger) -> None:
    """A chat that was deleted and made again is proven from its deletion on; what was there before is gone."""
    before = ledger.prove("trip-1", key=PEM)
    ledger.delete_chat("trip")
    assert ledger.still_valid(before) == ExcerptStanding(gone=("trip-1",))
    ledger.create_chat("trip", "ada")
    ledger.append("trip", [user("trip 1", id="trip-1")])
    assert ledger.still_valid(before).gone == ("trip-1",)
    after = ledger.prove("trip-1", key=PEM)
    assert ledger.still_valid(after)
    assert check_excerpt(after).messages[0].text == "trip 1"


def standing(ledger: Ledger, excerpt: str) -> dict[str, tuple[str, ...]]:
    """Return what became of the messages of an excerpt, where anything did."""
    found = ledger.still_valid(excerpt)
    said = {name: getattr(found, name) for name in found.__struct_fields__ if getattr(found, name)}
    assert bool(found) == found.is_valid == (not said)
    return said


def test_what_became_of_it(ledger: Ledger) -> None:
    """Redacted, annotated as hidden, stale or replaced, each for its messages; annotations can be taken back."""
    excerpt = ledger.prove(["trip-1", "trip-2"], key=PEM)
    assert standing(ledger, excerpt) == {}
    for changes, what in (
        ({"hidden": True}, "revoked"),
        ({"stale": True}, "superseded"),
        ({"replaced_by": "trip-4"}, "superseded"),
    ):
        ledger.annotate("trip", "trip-2", **changes)
        assert standing(ledger, excerpt) == {what: ("trip-2",)}
        ledger.annotate("trip", "trip-2", hidden=False, stale=False, replaced_by=None)
    assert standing(ledger, excerpt) == {}
    ledger.redact("trip-1")
    ledger.annotate("trip", "trip-1", hidden=True)
    assert standing(ledger, excerpt) == {"redacted": ("trip-1",), "revoked": ("trip-1",)}
    assert check_excerpt(excerpt).messages[0].text == "trip 1"
    assert check_excerpt(ledger.prove("trip-1", key=PEM)).messages[0].data is None


def test_what_its_branch_left_behind(ledger: Ledger) -> None:
    """An edit is another version on the active branch; a head that moved back leaves it behind; other branches do not concern it."""
    excerpt = ledger.prove("trip-3", key=PEM)
    ledger.create_branch("trip", "aside", "trip-1", activate=True)
    assert standing(ledger, excerpt) == {}
    ledger.append("trip", [user("aside", id="aside")])
    ledger.append("trip", [user("aside", id="aside-2")])
    assert standing(ledger, excerpt) == {}
    edited = ledger.prove("trip-2", key=PEM)
    assert standing(ledger, edited) == {"superseded": ("trip-2",)}
    ledger.set_active_branch("trip", "main")
    assert standing(ledger, edited) == {}
    on_aside = ledger.prove("aside-2", key=PEM)
    assert standing(ledger, on_aside) == {}
    ledger.delete_branch("trip", "aside")
    assert standing(ledger, on_aside) == {"superseded": ("aside-2",)}
    ledger.move_head("trip", "main", "trip-2", expected="trip-4")
    assert standing(ledger, excerpt) == {"superseded": ("trip-3",)}
    ledger.add_messages("trip", [NewMessage("user", "beside", id="beside", parent_id="trip-2")])
    assert standing(ledger, ledger.prove("beside", key=PEM)) == {}


def test_a_ledger_that_took_the_chat_in_tells(ledger: Ledger, tmp_path: Path) -> None:
    """Its hashes are the same, whatever its positions are; a chat that looks alike is another one."""
    excerpt = ledger.prove("trip-1", key=PEM)
    with chatledger.open("memory:") as other, chatledger.open("memory:") as alike:
        ledger.bundle("trip", tmp_path / "trip.clb")
        other.import_bundle(tmp_path / "trip.clb")
        assert other.still_valid(excerpt)
        fill(alike)
        assert alike.still_valid(excerpt).gone == ("trip-1",)


@pytest.fixture(scope="module")
def samples() -> list[tuple[bytes, list[tuple[str, str | None, str]]]]:
    """The bytes of excerpts, and what they say."""
    with chatledger.open("memory:") as ledger:
        fill(ledger)
        ledger.append("trip", [user("together", id="a"), user("at once", id="b")])
        anchor = ledger.anchor(PEM)
        chosen = [ledger.prove(["trip-2", "b"], key=PEM, expires_at=None), ledger.prove("b", anchor=anchor)]
    return [(base64.urlsafe_b64decode(text + "=="), said(text)) for text in chosen]


def said(text: str) -> list[tuple[str, str | None, str]]:
    return [(message.id, message.parent_id, message.text) for message in check_excerpt(text, PUBLIC).messages]


@given(data=st.data())
def test_nothing_can_be_changed(
    samples: list[tuple[bytes, list[tuple[str, str | None, str]]]], data: st.DataObject
) -> None:
    """Whatever byte is altered, dropped or put in, it is refused in words, or it still says the same."""
    whole, messages = data.draw(st.sampled_from(samples))
    at = data.draw(st.integers(0, len(whole) - 1))
    put = data.draw(st.binary(max_size=2))
    text = base64.urlsafe_b64encode(whole[:at] + put + whole[at + data.draw(st.integers(0, 2)) :]).decode().rstrip("=")
    try:
        found = said(text)
    except InvalidValueError:
        return
    assert found == messages
