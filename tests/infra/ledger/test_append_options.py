"""Options of `append` and of the makers of chats, branches and checkpoints, beside the plain case."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.soak import examples

import chatledger
from chatledger import AsyncLedger, HeadConflictError, InvalidValueError, Ledger, NewMessage, user
from chatledger.errors import (
    BranchExistsError,
    ChatNotFoundError,
    ConfigurationError,
    LedgerClosedError,
    MessageConflictError,
    ParentNotFoundError,
    WrongChatError,
)


def said(*ids: str) -> list[NewMessage]:
    return [NewMessage("user", f"text of {one}", id=one) for one in ids]


def chain(ledger: Ledger, branch: str | None = None) -> list[str]:
    return [message.id for message in ledger.get_messages("trip", branch=branch)]


@pytest.fixture
def trip(ledger: Ledger) -> Ledger:
    """A ledger with a chat of three messages."""
    ledger.create_chat("trip", "ada", metadata={"kept": 1, "changed": 1})
    ledger.append("trip", said("m1", "m2", "m3"))
    return ledger


# on_existing


def test_stored_messages_are_skipped(trip: Ledger) -> None:
    """Wherever they stand on the chain; the answer has them all."""
    stored = trip.append("trip", said("m1", "m3", "m4"), on_existing="skip")
    assert [message.id for message in stored] == ["m1", "m3", "m4"]
    assert chain(trip) == ["m1", "m2", "m3", "m4"]
    with pytest.raises(MessageConflictError):
        trip.append("trip", said("m4", "m5"))


def test_other_content_is_never_skipped(trip: Ledger) -> None:
    """Nor a message that stands on another branch only."""
    with pytest.raises(MessageConflictError):
        trip.append("trip", [NewMessage("user", "other", id="m2")], on_existing="skip")
    trip.fork("trip", "m1")
    with pytest.raises(MessageConflictError):
        trip.append("trip", said("m2"), on_existing="skip")
    with pytest.raises(InvalidValueError, match="on_existing must be"):
        trip.append("trip", [], on_existing="ignore")  # type: ignore[arg-type]


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.integers(0, 9), unique=True).map(sorted), st.integers(0, 9))
def test_a_whole_conversation_can_be_given_again(known: list[int], end: int) -> None:
    """Whatever part of it is stored, what is not is there afterwards, and once."""
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("trip", "ada")
        ledger.append("trip", said(*(str(n) for n in known)))
        whole = [str(n) for n in range(end + 1)]
        for _ in range(2):
            ledger.append("trip", said(*whole), on_existing="skip")
            assert chain(ledger) == [str(n) for n in known] + [one for one in whole if int(one) not in known]


# chat_metadata


def test_messages_and_metadata_are_one_commit(trip: Ledger) -> None:
    """The keys are merged, and given again with the same messages nothing is written."""
    position = trip.position
    trip.append("trip", said("m4"), chat_metadata={"changed": 2, "new": None})
    chat = trip.get_chat("trip")
    assert chat is not None
    assert chat.metadata == {"kept": 1, "changed": 2, "new": None}
    assert [event.type for event in trip.history("trip", after=position)] == ["message_appended", "chat_updated"]

    trip.update_chat("trip", metadata={"changed": 3})
    position = trip.position
    trip.append("trip", said("m4"), chat_metadata={"changed": 2})
    assert trip.position == position
    trip.append("trip", [], chat_metadata={"changed": 4})
    assert [event.type for event in trip.history("trip", after=position)] == ["chat_updated"]
    with pytest.raises(InvalidValueError):
        trip.append("trip", said("m5"), chat_metadata={"changed": {1}})
    assert chain(trip)[-1] == "m4"


def test_a_repeated_command_changes_metadata_once(trip: Ledger) -> None:
    with trip.context(command_id="turn"):
        first = trip.append("trip", [user("hello")], chat_metadata={"changed": 2})
    trip.update_chat("trip", metadata={"changed": 3})
    with trip.context(command_id="turn"):
        assert trip.append("trip", [user("hello")], chat_metadata={"changed": 2}) == first
    assert [chat.metadata for chat in trip.list_chats()] == [{"kept": 1, "changed": 3}]


@pytest.mark.anyio
async def test_asynchronously(async_ledger: AsyncLedger) -> None:
    """The quick path of `AsyncLedger.append` takes the same arguments, also where nothing is left to write."""
    chat = await async_ledger.for_user("ada").create_chat()
    for _ in range(2):
        stored = await async_ledger.append(chat.id, said("m1"), on_existing="skip", chat_metadata={"k": 1})
        assert [message.id for message in stored] == ["m1"]
    assert [chat.metadata for chat in await async_ledger.list_chats()] == [{"k": 1}]
    with pytest.raises(InvalidValueError):
        await async_ledger.append(chat.id, [], expected_head=stored[0])  # type: ignore[arg-type]


# Ids


def test_ids_are_made_where_they_are_left_out(ledger: Ledger) -> None:
    """Of the chat, and on a user's ledger that user."""
    made = [ledger.create_chat(user_id="ada"), ledger.for_user("ada").create_chat(title="Riga")]
    assert len({chat.id for chat in made}) == 2
    assert {chat.user_id for chat in made} == {"ada"}
    assert ledger.for_user("bob").upsert_chat("trip").user_id == "bob"
    with pytest.raises(InvalidValueError, match="owner"):
        ledger.create_chat("nobody's")


def test_the_id_of_a_branch_is_enough_to_find_it(trip: Ledger) -> None:
    """Under its present name, for those who may see its chat, until it is deleted; of the oldest chat where several have it."""
    trip.create_chat("oslo", "bob")
    trip.create_branch("trip", "side", "m2", id="b-7")
    trip.create_branch("oslo", "other", None, id="b-7")

    def found(ledger: Ledger) -> tuple[str, str] | None:
        branch = ledger.get_branch(id="b-7")
        return None if branch is None else (branch.chat_id, branch.name)

    assert found(trip) == ("trip", "side")
    assert found(trip.for_user("bob")) == ("oslo", "other")
    assert found(trip.for_user("eve")) is None
    trip.rename_branch("trip", "side", "plan")
    assert found(trip) == ("trip", "plan")
    trip.rebuild()
    assert found(trip) == ("trip", "plan")
    trip.delete_branch("trip", "plan")
    assert found(trip) == ("oslo", "other")
    trip.delete_chat("oslo")
    assert found(trip) is None
    trip.verify()
    with pytest.raises(InvalidValueError, match="give the chat too"):
        trip.get_branch(name="main")
    for absent in ("", "\0", "x" * 3000, "b-9"):
        assert trip.get_branch(id=absent) is None
    with trip.as_of(trip.position) as view, pytest.raises(InvalidValueError, match="give the chat too"):
        view.get_branch(id="b-7")


def test_branches_and_checkpoints_keep_given_ids(trip: Ledger) -> None:
    """Those of branches find them, in their chat."""
    made = trip.create_branch("trip", "side", "m2", id="b-7")
    assert made.id == "b-7"
    assert trip.get_branch("trip", id="b-7") == trip.get_branch("trip", "side")
    assert trip.get_branch("trip", id="b-8") is trip.get_branch("other", id="b-7") is None
    assert trip.get_branch(id="b-7") == made
    with pytest.raises(BranchExistsError):
        trip.create_branch("trip", "another", None, id="b-7")
    assert trip.set_checkpoint("trip", "here", "m1", id="c-7").id == "c-7"
    assert trip.set_checkpoint("trip", "here", "m2", id="c-8").id == "c-7"
    for wrong in ({}, {"name": "main", "id": "b-7"}):
        with pytest.raises(InvalidValueError, match="name of a branch or its id"):
            trip.get_branch("trip", **wrong)


def test_a_graph_is_oldest_first(trip: Ledger) -> None:
    for at, name in ((5, "b"), (3, "z"), (5, "a")):
        trip.set_checkpoint("trip", name, "m1", created_at=at)
    assert [one.name for one in trip.graph("trip").checkpoints] == ["z", "a", "b"]


# What is told


def test_a_parent_that_is_not_the_head(trip: Ledger) -> None:
    """Older, in another chat, nowhere: each with what to do."""
    trip.create_chat("other", "ada")
    trip.append("other", said("o1"))
    with pytest.raises(HeadConflictError, match=r"appending goes on from the head.*fork, or add"):
        trip.append("trip", [NewMessage("user", "x", parent_id="m1")])
    with pytest.raises(WrongChatError):
        trip.append("trip", [NewMessage("user", "x", parent_id="o1")])
    with pytest.raises(ParentNotFoundError):
        trip.append("trip", [NewMessage("user", "x", parent_id="nowhere")])


@pytest.mark.parametrize("wrong", [5, b"m3", ["m3"]])
def test_a_head_is_an_id(trip: Ledger, wrong: Any) -> None:
    """Not a message, whose id is meant."""
    (head,) = trip.get_messages("trip", limit=1)
    cases: list[tuple[Any, str]] = [(wrong, "must be the id"), (head, "give its id")]
    for given_head, hint in cases:
        with pytest.raises(InvalidValueError, match=hint):
            trip.append("trip", said("m4"), expected_head=given_head)
        with pytest.raises(InvalidValueError, match=hint):
            trip.move_head("trip", "main", "m1", expected=given_head)


@pytest.mark.parametrize("timeout", ["5", 0, -1, None, True, float("nan")])
def test_a_timeout_is_a_number_of_seconds(timeout: Any) -> None:
    with pytest.raises(ConfigurationError, match="timeout_s must be"):
        chatledger.open("memory:", timeout_s=timeout)


def test_what_is_closed_is_not_entered() -> None:
    """A ledger, a user's, and a view."""
    ledger = chatledger.open("memory:")
    limited, view = ledger.for_user("ada"), ledger.as_of(0)
    view.close()
    with pytest.raises(LedgerClosedError), view:
        pass
    ledger.close()
    for closed in (ledger, limited):
        with pytest.raises(LedgerClosedError), closed:
            pass


def test_an_engine_takes_messages_as_append_does(ledger: Ledger) -> None:
    engine = chatledger.ContextEngine(ledger, "trip", "ada")
    engine.set({"role": "user", "content": "hello giraffe"}, {"name": "hint", "data": "be kind"}).save()
    assert [message.text for message in ledger.get_messages("trip")] == ["hello giraffe"]
    assert "be kind" in engine.resolve().system_prompt
    with pytest.raises(InvalidValueError):
        engine.set({"content": "no role"})


def test_an_unknown_chat_is_still_unknown(ledger: Ledger) -> None:
    with pytest.raises(ChatNotFoundError):
        ledger.append("nope", [], chat_metadata={"k": 1})
