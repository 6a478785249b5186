"""The proof of a message: who gets the file can check it alone, and nobody can change it."""

import json
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.proof_world import KEY, OTHER, pem_of, public_pem_of

import chatledger
from chatledger import InvalidValueError, user
from chatledger.admin import Anchor, MessageProof, check_message_proof
from chatledger.errors import ChatNotFoundError, MessageNotFoundError


@pytest.fixture(scope="module")
def proven() -> tuple[MessageProof, Anchor]:
    """The proof of a message in the middle of one of several chats."""
    with chatledger.open("memory:") as ledger:
        for chat_id in ("other", "trip", "more"):
            ledger.create_chat(chat_id, "ada")
            for number in range(5):
                ledger.append(chat_id, [user(f"{chat_id} {number}", id=f"{chat_id}-{number}")])
        anchor = ledger.anchor(pem_of(KEY))
        ledger.append("trip", [user("later", id="later")])
        return ledger.prove("trip-2", anchor), anchor


def test_file_is_enough(proven: tuple[MessageProof, Anchor]) -> None:
    """What comes out of the file is the message, and no other message can be read in it."""
    text = proven[0].to_json()
    found = check_message_proof(MessageProof.from_json(text), public_pem_of(KEY))

    assert (found.id, found.chat_id, found.text) == ("trip-2", "trip", "trip 2")
    assert MessageProof.from_json(text) == proven[0]
    assert "trip-3" not in str(proven[0].event)


def test_signer_counts(proven: tuple[MessageProof, Anchor]) -> None:
    """A proof by an anchor that somebody else signed is refused."""
    with pytest.raises(InvalidValueError, match="another key"):
        check_message_proof(proven[0], public_pem_of(OTHER))


def test_later_and_unknown_messages() -> None:
    """An anchor proves nothing that came after it, and nothing of other ledgers."""
    with chatledger.open("memory:") as ledger, chatledger.open("memory:") as other:
        for one in (ledger, other):
            one.create_chat("trip", "ada")
            one.append("trip", [user("same words", id="first")])
        anchor = ledger.anchor(pem_of(KEY))
        ledger.append("trip", [user("later", id="later")])
        ledger.create_chat("new", "ada")
        ledger.append("new", [user("new", id="new")])

        with pytest.raises(InvalidValueError, match="does not have message 'later'"):
            ledger.prove("later", anchor)
        with pytest.raises(InvalidValueError, match="does not have chat 'new'"):
            ledger.prove("new", anchor)
        with pytest.raises(MessageNotFoundError):
            ledger.prove("none", anchor)
        with pytest.raises(InvalidValueError, match="does not hold"):
            other.prove("first", anchor).check()


def test_life_before_a_deletion() -> None:
    """A chat that was deleted and made again is proven from its deletion on."""
    with chatledger.open("memory:") as ledger:
        for words in ("first life", "second life"):
            ledger.create_chat("trip", "ada")
            ledger.append("trip", [user(words, id=words)])
            if words == "first life":
                ledger.delete_chat("trip")
        found = ledger.prove("second life", ledger.anchor(pem_of(KEY))).check()

    assert found.text == "second life"


def test_another_user_proves_nothing() -> None:
    """A user cannot prove what is not there for them."""
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("trip", "ada")
        ledger.append("trip", [user("secret", id="secret")])
        anchor = ledger.anchor(pem_of(KEY))

        assert ledger.for_user("ada").prove("secret", anchor).check().text == "secret"
        with pytest.raises(MessageNotFoundError):
            ledger.for_user("bob").prove("secret", anchor)
        ledger.for_user("ada").prove_growth("trip", anchor, anchor).check(anchor, anchor)
        with pytest.raises(ChatNotFoundError):
            ledger.for_user("bob").prove_growth("trip", anchor, anchor)


@given(data=st.data())
def test_nothing_can_be_changed(proven: tuple[MessageProof, Anchor], data: st.DataObject) -> None:
    """Whatever is altered in the file, it is refused, or what it says of the message is the same."""
    values = json.loads(proven[0].to_json())
    _alter(values, data)
    try:
        found = check_message_proof(MessageProof.from_json(json.dumps(values)))
    except InvalidValueError:
        return

    assert found == proven[0].check()


def _alter(values: Any, data: st.DataObject) -> None:
    """Change one value somewhere in a tree of JSON."""
    keys: list[Any] = sorted(cast("dict[str, Any]", values)) if isinstance(values, dict) else list(range(len(values)))
    key = data.draw(st.sampled_from(keys))
    value = cast("Any", values)[key]
    if value and isinstance(value, dict | list):
        _alter(value, data)
    elif value and isinstance(value, str):
        at = data.draw(st.integers(0, len(value) - 1))
        values[key] = value[:at] + data.draw(st.sampled_from("0afZ=é")) + value[at + 1 :]
    else:
        values[key] = data.draw(st.none() | st.integers() | st.text(max_size=3))


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"format": "chatledger-message-proof/2"}', '{"format": 1}'])
def test_other_files(text: str) -> None:
    """What is no proof is said to be none."""
    with pytest.raises(InvalidValueError):
        MessageProof.from_json(text)


def test_short_anchor(proven: tuple[MessageProof, Anchor]) -> None:
    """The size of a proof does not depend on other chats."""
    assert proven[0].anchor == msgspec.structs.replace(proven[1], leaves=())
    assert len(proven[0].inclusion.path) == 2
