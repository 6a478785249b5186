"""Retention rules: what is over by them goes with a sweep, what a more specific rule or a hold keeps stays, and a dry run says so."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.operation_counting import counting
from tests.support.soak import examples

import chatledger
from chatledger import AccessDeniedError, InvalidValueError, Ledger, NewMessage, Swept, assistant, user
from chatledger.domain.chat.events import Recorded
from chatledger.domain.chat.interchange import ImportedBranch
from chatledger.domain.retention import RetentionRule, deciding
from chatledger.graph_state import StateStore
from chatledger.importers import ImportedChat
from chatledger.infra.ledger.items.item_store import ItemStore
from chatledger.infra.log.envelope import clock_ms
from chatledger.infra.store.store import Store

from .test_holds import put_thread

DAY = 86_400_000


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with chatledger.open("memory:") as ledger:
        yield ledger


def in_days(days: float) -> int:
    return clock_ms() + round(days * DAY)


def test_chats_go_so_many_days_after_their_last_message(ledger: Ledger) -> None:
    ledger.create_chat("trip", "ada")
    ledger.append("trip", [user("To Lyon")])
    rule = ledger.set_retention("default", keep_days=90)
    assert ledger.retention() == [rule]
    assert ledger.sweep(now=in_days(89)) == Swept(chats=[])
    assert ledger.due_chats(now=in_days(91)) == ["trip"]
    assert ledger.sweep(now=in_days(91), dry_run=True) == Swept(chats=["trip"])
    assert ledger.get_chat("trip") is not None
    assert ledger.sweep(now=in_days(91)) == Swept(chats=["trip"])
    assert ledger.get_chat("trip") is None


def test_since_the_creation_a_message_gives_no_more_time(ledger: Ledger) -> None:
    ledger.import_chat(old_chat("old", created_at=1, updated_at=in_days(0)))
    ledger.set_retention("default", keep_days=30)
    assert ledger.due_chats() == []
    ledger.set_retention("default", keep_days=30, since="created")
    assert ledger.due_chats() == ["old"]


def old_chat(chat_id: str, *, created_at: int, updated_at: int, user_id: str = "ada") -> Any:
    return ImportedChat(
        id=chat_id,
        user_id=user_id,
        title=None,
        metadata=None,
        messages=(),
        branches=(ImportedBranch(name="main", head_message_id=None, is_active=True),),
        created_at=created_at,
        updated_at=updated_at,
    )


def test_the_most_specific_rule_decides(ledger: Ledger) -> None:
    for name, owner, metadata in (
        ("plain", "ada", None),
        ("of-bob", "bob", None),
        ("support", "ada", {"class": "support"}),
        ("kept", "bob", {"class": "contract"}),
    ):
        ledger.create_chat(name, owner, metadata=metadata)
    ledger.set_retention("default", keep_days=10)
    ledger.set_retention("bob", keep_days=30, user_id="bob")
    ledger.set_retention("support", keep_days=1, metadata={"class": "support"})
    ledger.set_retention("contracts", keep_days=None, metadata={"class": "contract"})
    assert ledger.due_chats(now=in_days(2)) == ["support"]
    assert sorted(ledger.due_chats(now=in_days(11))) == ["plain", "support"]
    assert sorted(ledger.sweep(now=in_days(4000)).chats) == ["of-bob", "plain", "support"]
    assert ledger.remove_retention("contracts")
    assert not ledger.remove_retention("contracts")
    assert ledger.sweep(now=in_days(4000)).chats == ["kept"]


def test_threads_states_and_items_have_rules_of_their_own(ledger: Ledger) -> None:
    own = ledger.for_user("ada")
    own.create_chat("trip", "ada")
    put_thread(own, "alone")
    StateStore(own).put("chat:ada:trip", {"to": "Lyon"})
    ItemStore(own).put(("memories",), "card", {"text": "4929"})
    ItemStore(ledger.for_user("bob")).put(("memories",), "card", {"text": "4929"})
    for kind in ("thread", "state", "item"):
        ledger.set_retention(f"{kind}s", kind=kind, keep_days=5, user_id="ada")
    assert ledger.sweep(now=in_days(4)) == Swept(chats=[])
    assert ledger.sweep(now=in_days(6), dry_run=True) == Swept(chats=[], versioned=3)
    assert ledger.sweep(now=in_days(6)) == Swept(chats=[], versioned=3)
    left = [own.list_threads().threads, StateStore(own).list(), ItemStore(own).list()]
    assert left == [[], [], []]
    assert len(ItemStore(ledger.for_user("bob")).list()) == 1
    assert len(ledger.retention()) == 3  # rules are items, which no rule ends
    ledger.set_retention("items", kind="item", keep_days=5)
    assert ledger.sweep(now=in_days(6)) == Swept(chats=[], versioned=1)
    assert len(ledger.retention("item")) == 1


def test_a_hold_and_a_change_meanwhile_keep_what_is_over(ledger: Ledger) -> None:
    for name in ("held", "old"):
        ledger.create_chat(name, "ada")
    ledger.set_retention("default", keep_days=10)
    ledger.hold("chat", "held")
    assert ledger.sweep(now=in_days(11)).chats == ["old"]
    ledger.release("chat", "held")
    assert ledger.sweep(now=in_days(11)).chats == ["held"]


def test_the_end_of_a_chat_comes_before_a_rule_that_keeps_it_longer(ledger: Ledger) -> None:
    ledger.create_chat("brief", "ada", ttl_seconds=60)
    ledger.set_retention("default", keep_days=None)
    assert ledger.sweep(now=in_days(1)).chats == ["brief"]


def test_verify_counts_what_is_overdue(tmp_path: Path) -> None:
    with chatledger.open(tmp_path / "ledger") as ledger:
        ledger.import_chat(old_chat("old", created_at=1, updated_at=2))
        assert ledger.verify().overdue_count == 0
        ledger.set_retention("default", keep_days=10)
        assert ledger.verify().overdue_count == 1
        ledger.sweep()
        assert ledger.verify().overdue_count == 0
        ledger.rebuild()
        assert [rule.name for rule in ledger.retention()] == ["default"]


def test_a_limit_and_pages_leave_nothing_behind(ledger: Ledger) -> None:
    for number in range(230):
        ledger.create_chat(f"c-{number}", "ada" if number % 3 else "bob")
    ledger.set_retention("default", keep_days=1)
    ledger.set_retention("bob", keep_days=None, user_id="bob")
    assert len(ledger.sweep(now=in_days(2), limit=20).chats) == 20
    assert len(ledger.sweep(now=in_days(2)).chats) == 133
    assert {chat.user_id for chat in ledger.list_chats()} == {"bob"}


def test_a_sweep_costs_what_is_over(ledger: Ledger) -> None:
    """And not what there is: the list of a rule is gone through from its oldest end."""
    ledger.set_retention("default", keep_days=10)
    work: list[int] = []
    for number in (10, 300):
        for at in range(number):
            ledger.create_chat(f"{number}-{at}", "ada")
        ledger.import_chat(old_chat(f"old-{number}", created_at=1, updated_at=2))
        with counting() as counts:
            assert ledger.sweep().chats == [f"old-{number}"]
        work.append(counts.total())
    assert work[0] == work[1]


def contents(ledger: Ledger, chat_id: str) -> list[str | None]:
    return [message.text if message.redacted is None else None for message in ledger.get_messages(chat_id)]


def test_content_goes_and_the_structure_stays(ledger: Ledger) -> None:
    for chat_id in ("trip", "held"):
        ledger.create_chat(chat_id, "ada")
        ledger.append(chat_id, [user("To Lyon"), NewMessage("tool", {"rows": 3}), assistant("By train.")])
    ledger.hold("chat", "held")
    ledger.set_retention("tools", keep_days=7, erases="content", roles=["tool"])
    ledger.set_retention("words", keep_days=30, erases="content")
    assert ledger.sweep(now=in_days(6)) == Swept(chats=[])
    assert ledger.sweep(now=in_days(8), dry_run=True) == Swept(chats=[], messages=1)
    assert ledger.sweep(now=in_days(8)) == Swept(chats=[], messages=1)
    _, result, _ = ledger.get_messages("trip")
    assert result.data is None
    assert result.redacted is not None
    assert (result.redacted.cause, result.redacted.reason) == ("retention", "retention rule 'tools'")
    assert contents(ledger, "trip") == ["To Lyon", None, "By train."]
    assert ledger.sweep(now=in_days(31)) == Swept(chats=[], messages=2)
    assert ledger.sweep(now=in_days(31)) == Swept(chats=[])
    assert contents(ledger, "trip") == [None] * 3
    assert None not in contents(ledger, "held")
    ledger.release("chat", "held")
    assert ledger.sweep(now=in_days(31)) == Swept(chats=[], messages=3)
    assert ledger.get_chat("trip") is not None
    ledger.append("trip", [user("And back?")])
    assert ledger.sweep(now=in_days(31)) == Swept(chats=[], messages=1)


def test_a_rule_about_content_that_is_set_anew_counts_for_what_is_there(ledger: Ledger) -> None:
    ledger.create_chat("trip", "ada", metadata={"class": "support"})
    ledger.append("trip", [user(f"{number}") for number in range(5)])
    ledger.set_retention("kept", keep_days=None, erases="content", metadata={"class": "support"})
    ledger.set_retention("words", keep_days=30, erases="content")
    assert ledger.sweep(now=in_days(31)) == Swept(chats=[])
    ledger.set_retention("kept", keep_days=10, erases="content", metadata={"class": "support"})
    assert ledger.sweep(now=in_days(31), limit=2).messages >= 2
    ledger.sweep(now=in_days(31))
    assert contents(ledger, "trip") == [None] * 5
    ledger.append("trip", [user("one more")])
    ledger.set_retention("kept", keep_days=None, erases="content", metadata={"class": "support"})
    assert ledger.sweep(now=in_days(31)).messages == 0
    ledger.remove_retention("kept")
    assert ledger.sweep(now=in_days(31)).messages == 1
    assert ledger.feeds() == []  # how far a rule has come is no feed


def test_the_log_is_read_once_for_all_rules(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever each of them stands: what none of them needs is passed over."""
    positions: list[int] = []
    events = Store.events

    def noted(*args: Any, **options: Any) -> Iterator[Recorded]:
        for recorded in events(*args, **options):
            positions.append(recorded.position)
            yield recorded

    monkeypatch.setattr(Store, "events", noted)
    ledger.create_chat("trip", "ada")
    ledger.append("trip", [user("To Lyon"), NewMessage("tool", {"rows": 3}), assistant("By train.")])
    for name, roles in {"tools": ["tool"], "words": ["user"]}.items():
        ledger.set_retention(name, keep_days=7, erases="content", roles=roles)
    ledger.set_retention("steps", kind="state", keep_days=7, erases="versions")
    assert ledger.sweep(now=in_days(8)).messages == 2
    assert positions == sorted(set(positions))
    end = ledger.last_position()
    ledger.set_retention("answers", keep_days=2, erases="content", roles=["assistant"])
    ledger.append("trip", [user("And back?")])
    positions.clear()
    assert ledger.sweep(now=in_days(8)).messages == 2
    assert positions == sorted(set(positions))
    assert {1, 2, end + 1} <= set(positions)
    positions.clear()
    assert ledger.sweep(now=in_days(8)).messages == 0
    assert len(positions) <= 1


@pytest.mark.parametrize(
    "rule",
    [
        {"keep_days": 7, "roles": ["tool"]},
        {"keep_days": 7, "erases": "words"},
        {"keep_days": 7, "erases": "content", "kind": "thread"},
        {"keep_days": 7, "erases": "content", "since": "created"},
        {"keep_days": 7, "erases": "content", "roles": [""]},
        {"keep_days": 0},
        {"keep_days": -1},
        {"keep_days": True},
        {"keep_days": "90"},
        {"keep_days": 90, "kind": "planet"},
        {"keep_days": 90, "since": "read"},
        {"keep_days": 90, "kind": "thread", "since": "created"},
        {"keep_days": 90, "kind": "item", "metadata": {"a": 1}},
        {"keep_days": 90, "metadata": {"a": [1]}},
        {"keep_days": 90, "metadata": {"a": 1}, "since": "created"},
        {"keep_days": float("nan")},
    ],
)
def test_a_rule_that_cannot_be_kept_is_refused(ledger: Ledger, rule: Any) -> None:
    with pytest.raises(InvalidValueError):
        ledger.set_retention("rule", **rule)
    assert ledger.retention() == []


def test_a_user_sets_no_rules(ledger: Ledger) -> None:
    ada = ledger.for_user("ada")
    for call in (lambda: ada.set_retention("r", keep_days=1), lambda: ada.remove_retention("r"), ada.retention):
        with pytest.raises(AccessDeniedError):
            call()


OWNERS, CLASSES = ("ada", "bob"), (None, {"class": "a"}, {"class": "b"})
rules = st.lists(
    st.builds(
        RetentionRule,
        name=st.sampled_from(["r1", "r2", "r3", "r4"]),
        keep_days=st.sampled_from([None, 1, 5, 20]),
        user_id=st.sampled_from([None, *OWNERS]),
        metadata=st.sampled_from(CLASSES),
    ),
    unique_by=lambda rule: rule.name,
)
chats = st.lists(st.tuples(st.sampled_from(OWNERS), st.sampled_from(CLASSES), st.booleans()), max_size=8)


@settings(max_examples=examples(40), deadline=None)
@given(rules, chats, st.sampled_from([2, 10, 30]))
def test_a_sweep_deletes_exactly_what_the_rules_say(rules: list[RetentionRule], made: Any, days: int) -> None:
    with chatledger.open("memory:") as ledger:
        for rule in rules:
            ledger.set_retention(rule.name, keep_days=rule.keep_days, user_id=rule.user_id, metadata=rule.metadata)
        expected: set[str] = set()
        for number, (owner, metadata, is_held) in enumerate(made):
            ledger.create_chat(f"c-{number}", owner, metadata=metadata)
            if is_held:
                ledger.hold("chat", f"c-{number}")
            decisive = deciding(rules, "chat", owner, metadata)
            if decisive and decisive.keep_days and decisive.keep_days < days and not is_held:
                expected.add(f"c-{number}")
        assert {*ledger.sweep(now=in_days(days), dry_run=True).chats} == expected
        assert {*ledger.sweep(now=in_days(days)).chats} == expected
        assert {chat.id for chat in ledger.list_chats()} == {f"c-{number}" for number in range(len(made))} - expected
