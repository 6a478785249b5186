"""Legal holds: what is held is neither deleted nor erased, and does not expire, whoever asks and however it is asked."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint

import chatledger
from chatledger import (
    AccessDeniedError,
    Chat,
    ChatledgerError,
    InvalidValueError,
    Ledger,
    LedgerView,
    NotFoundError,
    user,
)
from chatledger.domain.chat.decide_chats import decide_delete_chat
from chatledger.domain.chat.events import ChatDeleted
from chatledger.domain.holds import HOLD_KINDS, hold_key
from chatledger.errors import ChatNotFoundError, HeldError, MessageNotFoundError
from chatledger.graph_state import StateStore
from chatledger.infra.ledger.items.item_store import ItemStore
from chatledger.infra.ledger.port import store_of
from chatledger.infra.ledger.threads import Threads
from chatledger.langgraph import LedgerSaver
from chatledger.projections.log.kinds import CHATS

ITEM = "item:ada:memories:card"
STATE = "chat:ada:trip"


def chat_of(ledger: Ledger | LedgerView, chat_id: str) -> Chat:
    chat = ledger.get_chat(chat_id)
    assert chat is not None
    return chat


def put_thread(ledger: Ledger, thread_id: str, *, step: int = 0) -> Any:
    config: Any = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
    checkpoint: Any = {**empty_checkpoint(), "channel_values": {"messages": [HumanMessage("Lyon")]}}
    return LedgerSaver(ledger).put(config, checkpoint, {"source": "loop", "step": step, "parents": {}}, {"messages": 1})


def fill(ledger: Ledger) -> None:
    """Ada has a chat with its thread and state, another thread, and an item."""
    own = ledger.for_user("ada")
    own.create_chat("trip", "ada", expires_at=1)
    own.append("trip", [user("To Lyon")])
    put_thread(own, "trip")
    put_thread(own, "alone")
    StateStore(own).put(STATE, {"to": "Lyon"})
    ItemStore(own).put(("memories",), "card", {"text": "4929"})


@pytest.fixture
def ledger(tmp_path: Path) -> Any:
    with chatledger.open(tmp_path / "ledger") as ledger:
        fill(ledger)
        yield ledger


DELETIONS: dict[str, Callable[[Ledger], object]] = {
    "trip": lambda ledger: ledger.delete_chat("trip"),
    "thread trip": lambda ledger: Threads(ledger).delete("trip"),
    "thread alone": lambda ledger: Threads(ledger).delete("alone"),
    "state": lambda ledger: StateStore(ledger.for_user("ada")).delete(STATE),
    "item": lambda ledger: ItemStore(ledger.for_user("ada")).delete(("memories",), "card"),
}
HELD: dict[tuple[Any, str], set[str]] = {
    ("chat", "trip"): {"trip", "thread trip", "state"},
    ("thread", "alone"): {"thread alone"},
    ("thread", "trip"): {"trip", "thread trip"},  # with the chat its thread would go
    ("state", STATE): {"trip", "state"},
    ("item", ITEM): {"item"},
    ("user", "ada"): {*DELETIONS},
}


@pytest.mark.parametrize("target", HELD)
@pytest.mark.parametrize("name", DELETIONS)
def test_a_hold_refuses_exactly_the_deletions_of_what_it_covers(ledger: Ledger, target: Any, name: str) -> None:
    with ledger.context(actor="mara"):
        hold = ledger.hold(*target, reason="case 12")
    assert (hold.kind, hold.id, hold.held_by, hold.reason) == (*target, "mara", "case 12")
    if name not in HELD[target]:
        DELETIONS[name](ledger)
        return
    with pytest.raises(HeldError) as refused:
        DELETIONS[name](ledger)
    assert refused.value.hold == hold
    ledger.release(*target)
    DELETIONS[name](ledger)
    assert ledger.verify().broken_holds == ()


def test_what_is_held_says_so_in_each_answer(ledger: Ledger) -> None:
    hold = ledger.hold("user", "ada", reason="case 12")
    own = ledger.for_user("ada")
    assert [chat.hold for chat in (chat_of(ledger, "trip"), *ledger.list_chats(), *own.list_chats())] == [hold] * 3
    assert [info.hold for info in ledger.list_threads().threads] == [hold, hold]
    assert [info.hold for info in StateStore(own).list()] == [hold]
    assert [item.hold for item in ItemStore(own).list()] == [hold]
    assert ledger.holds() == [hold]
    assert ledger.holds("chat") == []
    ledger.release("user", "ada")
    assert ledger.holds() == []
    assert [chat.hold for chat in ledger.list_chats()] == [None]
    assert [info.hold for info in ledger.list_threads().threads] == [None, None]


def test_a_hold_moves_a_chat_in_no_list_and_comes_back_from_the_log(ledger: Ledger) -> None:
    before = chat_of(ledger, "trip")
    hold = ledger.hold("chat", "trip")
    after = chat_of(ledger, "trip")
    assert after.updated_at == before.updated_at
    ledger.rebuild()
    assert chat_of(ledger, "trip") == after
    assert chat_of(ledger.as_of(ledger.get_position()), "trip").hold == hold
    ledger.release("chat", "trip")
    assert chat_of(ledger, "trip") == before


def test_a_hold_stops_expiry_and_a_release_lets_it_go_on(ledger: Ledger) -> None:
    own = ledger.for_user("ada")
    ItemStore(own).put(("memories",), "brief", {"text": "gone soon"}, ttl_seconds=0.05)
    ledger.hold("user", "ada")
    swept = ledger.sweep(now=2**40)
    assert (swept.chats, swept.versioned) == ([], 0)
    assert ledger.due_chats() == []
    assert ItemStore(own).get(("memories",), "brief") is not None  # it is not absent, either: what follows would end it
    ledger.release("user", "ada")
    swept = ledger.sweep(now=2**42)
    assert (swept.chats, swept.versioned) == (["trip"], 1)


def test_what_begins_under_a_hold_is_held(ledger: Ledger) -> None:
    ledger.hold("user", "ada")
    ledger.hold("chat", "trip")
    own = ledger.for_user("ada")
    own.create_chat("later", "ada")
    assert chat_of(own, "later").hold is not None
    with pytest.raises(HeldError):
        own.delete_chat("later")
    ItemStore(own).put(("memories",), "later", {})
    with pytest.raises(HeldError):
        ItemStore(own).delete(("memories",), "later")
    ledger.create_chat("of-bob", "bob")
    assert ledger.delete_chat("of-bob")
    ledger.release("user", "ada")
    assert ledger.delete_chat("later")
    StateStore(ledger.for_user("bob")).put("chat:bob:trip", {})  # of the conversation that is held
    with pytest.raises(HeldError):
        StateStore(ledger.for_user("bob")).delete("chat:bob:trip")


def test_a_release_of_one_of_two_holds_leaves_the_other(ledger: Ledger) -> None:
    ledger.hold("user", "ada")
    own = ledger.hold("chat", "trip", reason="case 12")
    assert chat_of(ledger, "trip").hold == own
    ledger.release("chat", "trip")
    with pytest.raises(HeldError) as refused:
        ledger.delete_chat("trip")
    assert refused.value.hold.kind == "user"


def test_holding_again_changes_the_reason_only(ledger: Ledger) -> None:
    hold = ledger.hold("chat", "trip", reason="case 12")
    position = ledger.get_position()
    assert ledger.hold("chat", "trip", reason="case 12") == hold
    assert ledger.get_position() == position
    assert ledger.hold("chat", "trip", reason="case 13").reason == "case 13"
    assert [each.reason for each in ledger.holds()] == ["case 13"]
    assert ledger.release("chat", "trip")
    assert not ledger.release("chat", "trip")


def test_checkpoints_of_a_held_thread_are_not_pruned(ledger: Ledger) -> None:
    own = ledger.for_user("ada")
    put_thread(own, "alone", step=1)
    ledger.hold("thread", "alone")
    with pytest.raises(HeldError):
        LedgerSaver(own).prune(["alone"])
    put_thread(own, "alone", step=2)
    ledger.release("thread", "alone")
    LedgerSaver(own).prune(["alone"])


def test_erasing_a_user_leaves_what_is_held_and_names_it(ledger: Ledger) -> None:
    ledger.hold("chat", "trip")
    dry = ledger.erase_user("ada", dry_run=True)
    report = ledger.erase_user("ada")
    assert sorted(each.kind for each in report.held) == ["chat", "state", "thread"]
    assert {each.digest for each in dry.held} == {each.digest for each in report.held}
    assert report.counts == {"item": 1, "thread": 1}
    assert chat_of(ledger, "trip").hold is not None
    ledger.release("chat", "trip")
    report = ledger.erase_user("ada")
    assert (report.held, report.counts) == ((), {"chat": 1, "state": 1, "thread": 1})


def test_a_deletion_on_its_way_loses_against_a_hold_before_it_on_the_log(ledger: Ledger) -> None:
    store, asked = store_of(ledger), 0

    def decide(state: Any, _now: int) -> Any:
        nonlocal asked
        asked += 1
        bodies = decide_delete_chat(state, user_id=None)
        if asked == 1:  # decided, and not yet written: another process holds it meanwhile
            with chatledger.open(ledger.location) as other:
                other.hold("chat", "trip")
        return bodies

    with pytest.raises(HeldError):
        store.execute(CHATS, "trip", decide, kind=ChatDeleted)
    assert asked == 2
    assert chat_of(ledger, "trip").hold is not None
    assert ledger.verify().broken_holds == ()


def test_a_deletion_behind_a_hold_is_found_by_verify(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    for target in (("chat", "trip"), ("thread", "alone"), ("user", "ada")):
        ledger.hold(*target)
    before = ledger.last_position()
    # Another program, which knows nothing of holds.
    monkeypatch.setattr(
        "chatledger.infra.store.group_commit.under_holds", lambda _snapshot, _state, _key, bodies: bodies
    )
    ledger.delete_chat("trip")
    Threads(ledger).delete("alone")
    ItemStore(ledger.for_user("ada")).delete(("memories",), "card")
    ledger.wait_erased()
    broken = ledger.verify().broken_holds
    assert len(broken) == 5  # with the chat went its thread and its state
    assert min(broken) > before


def test_a_stranger_learns_nothing_of_a_hold(ledger: Ledger) -> None:
    ledger.hold("chat", "trip", reason="case 12")
    bob = ledger.for_user("bob")
    assert not bob.delete_chat("trip")
    with pytest.raises(ChatNotFoundError):
        bob.get_messages("trip")
    for call in (lambda: bob.hold("chat", "trip"), lambda: bob.release("chat", "trip"), bob.holds):
        with pytest.raises(AccessDeniedError):
            call()


def test_a_hold_on_nothing_is_refused(ledger: Ledger) -> None:
    with pytest.raises(ChatNotFoundError):
        ledger.hold("chat", "no")
    for kind, some_id in (
        ("thread", "no"),
        ("state", "chat:ada:no"),
        ("item", "item:ada:memories:no"),
        ("state", "trip"),
    ):
        with pytest.raises(NotFoundError):
            ledger.hold(kind, some_id)  # type: ignore[arg-type]
    for kind, some_id in (("planet", "x"), ("chat", ""), ("user", ":" * 1000)):
        with pytest.raises(InvalidValueError):
            ledger.hold(kind, some_id)  # type: ignore[arg-type]
    with pytest.raises(InvalidValueError):
        ledger.for_user("chatledger:ledger")
    assert ledger.hold("user", "nobody-yet").kind in HOLD_KINDS


def test_a_hold_that_was_interrupted_is_completed_by_the_next_call(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_args: Any, **_kwargs: Any) -> None:
        raise ChatledgerError

    with monkeypatch.context() as patched:
        patched.setattr("chatledger.infra.ledger.holds._mark", broken)
        with pytest.raises(ChatledgerError):
            ledger.hold("chat", "trip")
    with pytest.raises(HeldError):  # it is refused from the first event on
        ledger.delete_chat("trip")
    ledger.hold("chat", "trip")
    assert chat_of(ledger, "trip").hold is not None
    with monkeypatch.context() as patched:
        patched.setattr("chatledger.infra.ledger.holds._mark", broken)
        with pytest.raises(ChatledgerError):
            ledger.release("chat", "trip")
    assert not ledger.release("chat", "trip")
    assert chat_of(ledger, "trip").hold is None


def test_holds_and_rules_themselves_are_not_deleted(ledger: Ledger) -> None:
    ledger.hold("chat", "trip")
    ledger.set_retention("default", keep_days=90)
    with pytest.raises(InvalidValueError):
        ledger.erase_user("chatledger:ledger")
    with pytest.raises(InvalidValueError):
        StateStore(ledger).delete(hold_key("chat", "trip"))
    assert len(ledger.holds()) == len(ledger.retention()) == 1


@pytest.mark.parametrize("target", [("chat", "trip"), ("user", "ada")])
def test_a_message_under_a_hold_is_not_redacted(ledger: Ledger, target: Any) -> None:
    (message,) = ledger.get_messages("trip")
    hold = ledger.hold(*target)
    with pytest.raises(HeldError) as refused:
        ledger.redact(message.id)
    assert refused.value.hold == hold
    assert ledger.get_messages("trip") == [message]
    with pytest.raises(MessageNotFoundError):
        ledger.for_user("bob").redact(message.id)
    ledger.release(*target)
    ledger.hold("thread", "trip")  # with which the chat is not deleted; its messages are its own
    assert ledger.redact(message.id).message_ids == [message.id]
    ledger.wait_erased()
    assert ledger.verify().broken_holds == ()
