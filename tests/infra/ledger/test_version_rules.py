"""Rules about versions: earlier versions of threads, states and items lose their content, what is newest stays, and so do all places."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from tests.support.operation_counting import counting
from tests.support.soak import examples

import chatledger
from chatledger import InvalidValueError, Ledger, Swept, admin
from chatledger.graph_state import StateStore
from chatledger.infra.ledger.items.item_store import ItemStore
from chatledger.infra.ledger.threads import Threads
from chatledger.langgraph import LedgerSaver
from chatledger.projections.log.stream_trees import TILE

DAY, BEGIN = 86_400_000, 1_700_000_000_000
STATE = "chat:ada:trip"


class Days:
    """The time on the log, in days since it began."""

    def __init__(self) -> None:
        self.today = 0.0

    def ms(self, day: float | None = None) -> int:
        return BEGIN + round((self.today if day is None else day) * DAY)


@pytest.fixture
def days(monkeypatch: pytest.MonkeyPatch) -> Days:
    days = Days()
    for module in ("store.group_commit", "ledger.graph.stored", "ledger.items.item_store", "ledger.threads"):
        monkeypatch.setattr(f"chatledger.infra.{module}.clock_ms", days.ms)
    return days


@pytest.fixture
def ledger(tmp_path: Path, days: Days) -> Iterator[Ledger]:
    del days
    with chatledger.open(tmp_path / "ledger") as ledger:
        yield ledger


def put_state(ledger: Ledger, number: int, state_id: str = STATE) -> None:
    StateStore(ledger).put(state_id, {"step": number, "text": f"secret {number} " * 20})


def steps(ledger: Ledger, state_id: str = STATE) -> list[int | None]:
    """Return what each version of a state has, the newest first; None where that is gone."""
    store = StateStore(ledger)
    versions = store.history(state_id, limit=1000)
    read = [store.get(state_id, version.version) for version in versions]
    assert [version.is_pruned for version in versions] == [state is None for state in read]
    return [None if state is None else state["step"] for state in read]


def put_checkpoint(saver: LedgerSaver, config: Any, number: int) -> Any:
    checkpoint: Any = empty_checkpoint()
    checkpoint["channel_values"] = {"messages": [HumanMessage(f"Lyon {at}") for at in range(number + 1)]}
    checkpoint["channel_versions"] = {"messages": number + 1}
    metadata: Any = {"source": "loop", "step": number, "parents": {}}
    return saver.put(config, checkpoint, metadata, {"messages": number + 1})


def fill_thread(ledger: Ledger, days: Days, count: int, thread_id: str = "trip") -> list[str]:
    config: Any = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
    ids: list[str] = []
    for number in range(count):
        days.today = number
        config = put_checkpoint(LedgerSaver(ledger), config, number)
        ids.append(config["configurable"]["checkpoint_id"])
    return ids


def test_content_goes_so_long_after_newer_versions_came(ledger: Ledger, days: Days) -> None:
    for number in range(4):
        days.today = number * 10
        put_state(ledger, number)
    ledger.set_retention("steps", kind="state", keep_days=7, erases="versions")
    assert ledger.sweep(now=days.ms(16)) == Swept(chats=[])
    assert ledger.sweep(now=days.ms(17), dry_run=True) == Swept(chats=[], versions=1)
    assert steps(ledger) == [3, 2, 1, 0]
    assert ledger.sweep(now=days.ms(17)) == Swept(chats=[], versions=1)
    assert steps(ledger) == [3, 2, 1, None]
    assert ledger.sweep(now=days.ms(17)) == Swept(chats=[])
    assert ledger.sweep(now=days.ms(1000)) == Swept(chats=[], versions=2)
    assert steps(ledger) == [3, None, None, None]
    days.today = 1000
    put_state(ledger, 4)
    assert ledger.sweep(now=days.ms(1006)) == Swept(chats=[])
    assert ledger.sweep(now=days.ms(1007)) == Swept(chats=[], versions=1)
    assert steps(ledger) == [4, None, None, None, None]


def test_the_last_versions_stay_whatever_their_age(ledger: Ledger, days: Days) -> None:
    items = ItemStore(ledger.for_user("ada"))
    for number in range(5):
        items.put(("memories",), "card", {"number": number})
    items.end(("memories",), "card")
    ledger.set_retention("cards", kind="item", keep_days=1, erases="versions", keep_last=3)
    assert ledger.sweep(now=days.ms(2)) == Swept(chats=[], versions=3)
    history = items.history(("memories",), "card")
    assert [version.value for version in history] == [None, {"number": 4}, {"number": 3}, None, None, None]
    assert [version.is_pruned for version in history] == [False] * 3 + [True] * 3
    assert ledger.retention()[0].keep_last == 3


def test_a_thread_reads_on_from_its_newest_checkpoint_and_shows_the_places_of_the_others(
    ledger: Ledger, days: Days
) -> None:
    ids = fill_thread(ledger, days, 6)
    Threads(ledger).copy("trip", "copy")
    saver = LedgerSaver(ledger)
    config: Any = {"configurable": {"thread_id": "trip"}}
    newest = saver.get_tuple(config)
    ledger.set_retention("steps", kind="thread", keep_days=2, keep_last=2, erases="versions")
    assert ledger.sweep(now=days.ms(5)) == Swept(chats=[], versions=2)
    assert [each.checkpoint["id"] for each in saver.list(config)] == ids[:1:-1]
    assert newest == saver.get_tuple(config)
    with Threads(ledger).reading("trip") as thread:
        places = [(version.id, version.parent, version.skeleton) for version in thread.versions("")]
    assert places == [*zip(ids[::-1], [*ids[-2::-1], None], [None] * 4 + [()] * 2, strict=True)]
    assert [each.checkpoint["id"] for each in saver.list({"configurable": {"thread_id": "copy"}})] == ids[::-1]
    assert ledger.sweep(now=days.ms(7)) == Swept(chats=[], versions=2 + 4)  # the copy came with the last checkpoint


def test_a_hold_keeps_them_and_its_release_lets_them_go(ledger: Ledger, days: Days) -> None:
    fill_thread(ledger, days, 3)
    for number in range(3):
        put_state(ledger, number)
    ledger.set_retention("steps", kind="thread", keep_days=1, erases="versions")
    ledger.set_retention("states", kind="state", keep_days=1, erases="versions")
    ledger.hold("thread", "trip")
    ledger.hold("user", "ada", reason="case 12")
    assert ledger.sweep(now=days.ms(30), dry_run=True) == Swept(chats=[])
    assert ledger.sweep(now=days.ms(30)) == Swept(chats=[])
    assert ledger.verify().broken_holds == ()
    ledger.release("user", "ada")
    assert ledger.sweep(now=days.ms(30)) == Swept(chats=[], versions=2)
    ledger.release("thread", "trip")
    assert ledger.sweep(now=days.ms(30)) == Swept(chats=[], versions=2)
    ledger.set_retention("items", kind="item", keep_days=1, erases="versions")
    assert ledger.sweep(now=days.ms(60)) == Swept(chats=[])  # what holds and rules were is the ledger's own


def test_it_reads_the_same_after_rebuild_backup_and_import(ledger: Ledger, days: Days, tmp_path: Path) -> None:
    fill_thread(ledger, days, 5)
    for number in range(5):
        days.today = number
        put_state(ledger, number)
    ledger.set_retention("steps", kind="thread", keep_days=1, erases="versions")
    ledger.set_retention("states", kind="state", keep_days=1, keep_last=2, erases="versions")
    assert ledger.verify().overdue_count == 4 + 3
    ledger.sweep()
    assert ledger.verify().overdue_count == 0
    before = steps(ledger), ledger.export_thread("trip"), ledger.export_state(STATE)
    assert before[0] == [4, 3, None, None, None]
    ledger.rebuild()
    assert before == (steps(ledger), ledger.export_thread("trip"), ledger.export_state(STATE))
    ledger.backup(tmp_path / "backup")
    admin.restore(tmp_path / "backup", tmp_path / "restored")
    with chatledger.open(tmp_path / "restored") as restored, chatledger.open("memory:") as other:
        assert before == (steps(restored), restored.export_thread("trip"), restored.export_state(STATE))
        for value in before[1:]:
            other.import_value(value)
        assert before == (steps(other), other.export_thread("trip"), other.export_state(STATE))


def test_the_most_specific_rule_decides(ledger: Ledger, days: Days) -> None:
    for number in range(3):
        put_state(ledger, number)
        put_state(ledger, number, "chat:bob:trip")
    ledger.set_retention("states", kind="state", keep_days=1, erases="versions")
    ledger.set_retention("of ada", kind="state", keep_days=None, user_id="ada", erases="versions")
    assert ledger.sweep(now=days.ms(9)) == Swept(chats=[], versions=2)
    assert (steps(ledger), steps(ledger, "chat:bob:trip")) == ([2, 1, 0], [2, None, None])
    ledger.remove_retention("of ada")
    assert ledger.sweep(now=days.ms(9), dry_run=True) == Swept(chats=[], versions=2)
    # A rule about wholes decides beside it.
    ledger.set_retention("old", kind="state", keep_days=20)
    assert ledger.sweep(now=days.ms(21)) == Swept(chats=[], versioned=2)


def test_a_pruned_version_is_nothing_to_go_on_from(ledger: Ledger, days: Days) -> None:
    for number in range(3):
        put_state(ledger, number)
    ledger.set_retention("states", kind="state", keep_days=1, erases="versions")
    ledger.sweep(now=days.ms(2))
    store = StateStore(ledger)
    assert store.resume(STATE, 1) is None
    with pytest.raises(chatledger.NotFoundError):
        store.update(STATE, {"step": 9}, node="agent", base_version=1)
    assert store.update(STATE, {"step": 9}, node="agent").version == 4


@pytest.mark.guard
def test_a_sweep_costs_what_the_value_still_has(ledger: Ledger, days: Days) -> None:
    """And not what it had: the places of versions whose content is gone are not read again."""
    ledger.set_retention("states", kind="state", keep_days=1, erases="versions")
    ledger.set_retention("threads", kind="thread", keep_days=1, erases="versions")
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    work: list[int] = []
    step = 0
    for number in (20, 300):
        for _ in range(number):
            step += 1
            put_state(ledger, step)
            config = put_checkpoint(LedgerSaver(ledger), config, step % 7)
        days.today += 2
        ledger.sweep(now=days.ms())
        ledger.wait_erased()
        put_state(ledger, step)
        config = put_checkpoint(LedgerSaver(ledger), config, 3)
        days.today += 2
        with counting() as counts:
            assert ledger.sweep(now=days.ms()).versions == 2
        work.append(counts.total())
    assert (
        work[1] <= work[0] + 2 * TILE
    )  # where the events are that are left is told by walking a tile of the stream's tree


def test_a_version_that_comes_late_is_seen_among_pruned_ones(ledger: Ledger, days: Days) -> None:
    """As one of a machine whose clock is behind: its id is less than those of versions whose content is gone."""
    ids = fill_thread(ledger, days, 4)
    ledger.set_retention("steps", kind="thread", keep_days=1, erases="versions")
    assert ledger.sweep(now=days.ms(9)).versions == 3
    with Threads(ledger).reading("trip") as thread:
        assert ([each.id for each in thread.unpruned("")], thread.bare_until("")) == (ids[3:], ids[2])
    late = f"0{ids[0][1:]}"
    checkpoint: Any = {**empty_checkpoint(), "id": late, "channel_values": {"step": 1}, "channel_versions": {"step": 1}}
    config: Any = {"configurable": {"thread_id": "trip", "checkpoint_ns": ""}}
    metadata: Any = {"source": "loop", "step": 0, "parents": {}}
    LedgerSaver(ledger).put(config, checkpoint, metadata, {"step": 1})
    for _ in range(2):
        with Threads(ledger).reading("trip") as thread:
            assert [each.id for each in thread.unpruned("")] == [*ids[::-1], late]
        ledger.rebuild()
    ledger.verify()
    assert ledger.sweep(now=days.ms(19)).versions == 1
    with Threads(ledger).reading("trip") as thread:
        assert ([each.id for each in thread.unpruned("")], thread.bare_until("")) == (ids[3:], ids[2])
    ledger.verify()


@pytest.mark.parametrize(
    "rule",
    [
        {"erases": "versions"},
        {"kind": "thread", "keep_last": 2},
        {"kind": "thread", "erases": "versions", "keep_last": 0},
        {"kind": "thread", "erases": "versions", "keep_last": "2"},
        {"kind": "thread", "erases": "versions", "roles": ["tool"]},
    ],
)
def test_a_rule_that_cannot_be_kept_is_refused(ledger: Ledger, rule: Any) -> None:
    with pytest.raises(InvalidValueError):
        ledger.set_retention("rule", keep_days=7, **rule)


gaps = st.lists(st.sampled_from([0, 1, 3]), min_size=1, max_size=8)


@settings(max_examples=examples(30), deadline=None)
@given(gaps, st.lists(st.integers(0, 30), min_size=1, max_size=4), st.integers(1, 3), st.sampled_from([1, 4]))
def test_what_was_newest_so_many_days_ago_and_all_since_stay(
    gaps: list[int], sweeps: list[int], keep_last: int, keep_days: int
) -> None:
    """Whatever was swept before, in whatever steps."""
    with pytest.MonkeyPatch.context() as patch, chatledger.open("memory:") as ledger:
        days = Days()
        patch.setattr("chatledger.infra.store.group_commit.clock_ms", days.ms)
        patch.setattr("chatledger.infra.ledger.graph.stored.clock_ms", days.ms)
        stored: list[float] = []
        for number, gap in enumerate(gaps):
            days.today += gap
            stored.append(days.today)
            put_state(ledger, number)
        days.today += 40
        ledger.set_retention("states", kind="state", keep_days=keep_days, keep_last=keep_last, erases="versions")
        for day in sweeps:
            due = ledger.sweep(now=days.ms(day), dry_run=True).versions
            assert due == ledger.sweep(now=days.ms(day)).versions
        bound = max(sweeps) - keep_days
        old = [number for number, day in enumerate(stored) if day <= bound]
        gone = old[: max(len(old) - keep_last, 0)]
        expected = [None if number in gone else number for number in range(len(gaps))]
        assert expected[::-1] == steps(ledger)
