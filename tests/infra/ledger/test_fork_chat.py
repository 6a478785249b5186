"""Forks of whole chats: the messages up to one, in a new chat that says where it comes from."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.support.ledger_world import check_chat, text

import chatledger
from chatledger import AccessDeniedError, Annotation, InvalidValueError, Ledger, NewMessage, user
from chatledger.errors import ChatExistsError, ChatNotFoundError, MessageNotFoundError, WrongChatError


@pytest.fixture
def ledger() -> Any:
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("c", "ada", title="Trip", metadata={"mood": 1})
        ledger.append("c", [user("first", id="m1"), text("second", id="m2")])
        ledger.add_messages("c", [text("elsewhere on the tree", id="side", parent_id="m1")])
        ledger.append(
            "c",
            [
                NewMessage("assistant", "third", id="m3", agent_id="bot", reply_to="m1", created_at=5),
                NewMessage("user", "fourth", id="m4", sender_id="ada", reply_to="side", type=None),
                text("fifth", id="m5"),
            ],
        )
        yield ledger


def test_a_fork_has_copies_up_to_the_message(ledger: Ledger) -> None:
    """NS-47: one commit, new ids, the same content, times and attribution; replies follow the copies."""
    position = ledger.position
    before = ledger.export_chat("c")
    fork = ledger.fork_chat("c", "m4", new_chat_id="f")

    assert ("f", "ada", "Trip", {"branched_from": "m4", "branched_from_chat": "c"}, 4) == (
        fork.id, fork.user_id, fork.title, fork.metadata, fork.message_count,
    )  # fmt: skip
    events = list(ledger.history(after=position))
    assert [("chat_created", 1), ("message_appended", 0)] == [(one.type, one.event.rest) for one in events]
    copies, originals = ledger.get_messages("f"), ledger.get_chain("m4")
    new_ids = {original.id: copy.id for original, copy in zip(originals, copies, strict=True)}
    assert new_ids.keys().isdisjoint(new_ids.values())
    for original, copy in zip(originals, copies, strict=True):
        assert copy == msgspec.structs.replace(
            original, id=copy.id, chat_id="f", parent_id=new_ids.get(original.parent_id or ""),
            reply_to=new_ids.get(original.reply_to or ""), copied_from=original.id,
        )  # fmt: skip
    assert before == ledger.export_chat("c")
    check_chat(ledger, "f")


def test_annotations_are_copied(ledger: Ledger) -> None:
    """What was hidden stays hidden; what replaces a message only where it is copied too."""
    ledger.annotate("c", "m2", hidden=True, replaced_by="m3")
    ledger.annotate("c", "m3", stale=True, replaced_by="side", metadata={"why": "edit"})
    ledger.annotate("c", "m1", replaced_by="m5")
    ledger.annotate("c", "m5", stale=True)
    ledger.fork_chat("c", "m4", new_chat_id="f")

    copies = ledger.get_messages("f")
    assert [
        None,
        Annotation(hidden=True, replaced_by=copies[2].id),
        Annotation(stale=True, metadata={"why": "edit"}),
        None,
    ] == [message.annotation for message in copies]
    check_chat(ledger, "f")


def test_annotations_that_say_the_same_are_one_event(ledger: Ledger) -> None:
    """So that a fork of any number of hidden messages fits into a commit."""
    for message in ledger.get_messages("c"):
        ledger.annotate("c", message.id, hidden=True)
    ledger.fork_chat("c", "m5", new_chat_id="f")

    kinds = [recorded.type for recorded in ledger.history("f")]
    assert ["chat_created", "message_appended", "message_annotated"] == kinds
    assert all(message.is_hidden for message in ledger.get_messages("f"))


def test_forks_are_found_from_both_sides(ledger: Ledger) -> None:
    first, second = (
        ledger.fork_chat("c", "m2"),
        ledger.fork_chat("c", "m4", title="Other", user_id="bob", metadata={"a": 1}),
    )
    again = ledger.fork_chat(first.id, ledger.get_messages(first.id)[0].id)

    assert ("Other", "bob", {"a": 1, "branched_from": "m4", "branched_from_chat": "c"}) == (
        second.title, second.user_id, second.metadata,
    )  # fmt: skip
    assert {first.id, second.id} == {chat.id for chat in ledger.forks("c")}
    assert [first] == ledger.forks("c", message_id="m2")
    assert [again] == ledger.forks(first.id)
    assert [] == ledger.forks("c", message_id="m5") == ledger.forks("none")
    ledger.delete_chat("c")
    assert {first.id, second.id} == {chat.id for chat in ledger.forks("c")}


def test_the_same_fork_again_changes_nothing(ledger: Ledger) -> None:
    fork = ledger.fork_chat("c", "m4", new_chat_id="f")
    ledger.append("f", [text("more")])
    position = ledger.position

    assert fork.id == ledger.fork_chat("c", "m4", new_chat_id="f").id
    assert position == ledger.position
    calls: list[Callable[[], object]] = [
        lambda: ledger.fork_chat("c", "m2", new_chat_id="f"),
        lambda: ledger.fork_chat("c", "m4", new_chat_id="f", user_id="bob"),
        lambda: ledger.fork_chat("c", "m4", new_chat_id="c"),
    ]
    for call in calls:
        with pytest.raises(ChatExistsError):
            call()
    assert position == ledger.position


REFUSED: dict[str, tuple[Callable[[Any], Any], type[Exception]]] = {
    "no chat": (lambda ledger: ledger.fork_chat("none", "m1"), ChatNotFoundError),
    "no message": (lambda ledger: ledger.fork_chat("c", "none"), MessageNotFoundError),
    "another chat's": (lambda ledger: ledger.fork_chat("c", "there"), WrongChatError),
    "empty id": (lambda ledger: ledger.fork_chat("c", "m1", new_chat_id=""), InvalidValueError),
    "metadata are a list": (lambda ledger: ledger.fork_chat("c", "m1", metadata=[1]), InvalidValueError),
}


@pytest.mark.parametrize(("call", "error"), REFUSED.values(), ids=REFUSED)
def test_what_can_not_be_forked(ledger: Ledger, call: Callable[[Ledger], Any], error: type[Exception]) -> None:
    ledger.create_chat("elsewhere", "ada")
    ledger.append("elsewhere", [text("there", id="there")])
    position = ledger.position
    with pytest.raises(error):
        call(ledger)

    assert position == ledger.position


def test_runs_and_agents_start_afresh(ledger: Ledger) -> None:
    ledger.record_run("c", "r", thread_id="c", assistant_id="bot", trigger_message_id="m2", message_id="m3")
    ledger.fork_chat("c", "m5", new_chat_id="f")

    assert [] == ledger.runs("f")


def test_a_user_forks_what_is_theirs(ledger: Ledger) -> None:
    ada, bob = ledger.for_user("ada"), ledger.for_user("bob")
    with pytest.raises(ChatNotFoundError):
        bob.fork_chat("c", "m1")
    with pytest.raises(AccessDeniedError):
        ada.fork_chat("c", "m1", user_id="bob")
    fork = ada.fork_chat("c", "m1", new_chat_id="f")

    assert [fork] == ada.forks("c") == ledger.forks("c")
    assert [] == bob.forks("c")
    bob.create_chat("b", "bob")
    bob.append("b", [text("x", id="b1")])
    with pytest.raises(ChatExistsError):
        bob.fork_chat("b", "b1", new_chat_id="f")


def test_a_long_chat_is_forked_in_one_commit(ledger: Ledger) -> None:
    """More than one event's worth of content becomes visible at once."""
    ledger.create_chat("long", "ada")
    for part in range(5):
        ledger.append("long", [text("x" * 50_000, id=f"l{part} {n}") for n in range(10)])
    position = ledger.position
    fork = ledger.fork_chat("long", "l4 9")

    events = list(ledger.history(after=position))
    assert len(events) > 2
    assert list(range(len(events)))[::-1] == [one.event.rest for one in events]
    assert [one.data for one in ledger.get_messages("long")] == [one.data for one in ledger.get_messages(fork.id)]
