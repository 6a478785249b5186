"""Writes of many tasks are one event, and come with the checkpoint after them where they wait for it."""

from typing import Any

import pytest
from tests.support.agent_threads import put, tree_of, value_of

import chatledger
from chatledger.domain.chat.events import Body
from chatledger.domain.errors import UnsupportedFormatError
from chatledger.domain.log.codec import decode_event, is_outdated
from chatledger.domain.versioned.decide import decide_put, decide_writes
from chatledger.domain.versioned.events import VersionContentPut, VersionPut, VersionWritesPut
from chatledger.domain.versioned.record import PutVersion, TaskPut
from chatledger.infra.ledger.ledger import Ledger
from chatledger.infra.ledger.port import store_of
from chatledger.infra.ledger.threads import Threads
from chatledger.projections.log.kinds import THREADS
from chatledger.projections.versioned.reader import IndexedVersioned


@pytest.fixture
def ledger() -> Any:
    """A ledger in memory, whose thread `t` has the checkpoint `1`."""
    with chatledger.open("memory:") as opened:
        put(Threads(opened), "t", "1", {"c": "before"})
        yield opened


def task(task_id: str, value: str, *, index: int = 0, at: int = 7) -> TaskPut:
    return TaskPut(task_id, "path", at, [(index, "c", tree_of(value))])


def write(ledger: Ledger, *tasks: TaskPut, below: str = "1") -> list[Body]:
    def decide(state: IndexedVersioned, now: int) -> list[Body]:
        return decide_writes(state, "", below, tasks, now)

    return [one.body for one in store_of(ledger).execute(THREADS, "t", decide)]


def put_with(ledger: Ledger, *tasks: TaskPut) -> list[Body]:
    """Checkpoint 2, below 1, with writes of that."""
    given = PutVersion(
        id="2",
        parent="1",
        frames=(("text", b""), ("text", b"")),
        values={"c": tree_of("after")},
    )

    def decide(state: IndexedVersioned, now: int) -> list[Body]:
        return decide_put(state, given, now, tasks=tasks)

    return [one.body for one in store_of(ledger).execute(THREADS, "t", decide)]


def writes_of(ledger: Ledger, checkpoint_id: str = "1") -> list[tuple[str, int, str, int]]:
    found = Threads(ledger).get("t", "", checkpoint_id)
    assert found is not None
    return [(one.task_id, one.index, value_of(found, one.digest), one.written_at) for one in found.writes]


def test_writes_of_many_tasks_are_one_event_with_the_time_of_each(ledger: Ledger) -> None:
    """Also in the index after a rebuild, in an export, and in a copy that outlives its source."""
    bodies = write(ledger, task("a", "x", at=7), task("b", "y", at=9), task("a", "z", index=-3, at=8))
    expected = [("a", -3, "z", 8), ("a", 0, "x", 7), ("b", 0, "y", 9)]

    assert [VersionWritesPut] == list(map(type, bodies))
    assert expected == writes_of(ledger)
    ledger.rebuild()
    assert expected == writes_of(ledger)
    with chatledger.open("memory:") as other:
        other.import_value(ledger.export_thread("t"))
        assert expected == writes_of(other)
        assert ledger.export_thread("t") == other.export_thread("t")
    threads = Threads(ledger)
    threads.copy("t", "u")
    threads.delete("t")
    threads.copy("u", "t")
    assert expected == writes_of(ledger)


def test_a_checkpoint_brings_the_writes_of_its_parent(ledger: Ledger) -> None:
    """In one event, which a repeated put does not write again; writes that it lacked come alone then."""
    bodies = put_with(ledger, task("a", "after"), task("b", "y"))

    assert [VersionPut] == list(map(type, bodies))
    assert [("a", 0, "after", 7), ("b", 0, "y", 7)] == writes_of(ledger)
    assert [] == put_with(ledger, task("a", "after"), task("b", "y"))
    assert [VersionWritesPut] == list(map(type, put_with(ledger, task("c", "z"))))
    ledger.rebuild()
    assert 3 == len(writes_of(ledger))
    assert [] == writes_of(ledger, "2")


def test_what_a_replaced_write_held_stays_where_it_is_used_again_by_another_task(ledger: Ledger) -> None:
    """The event does not bring it, since the thread has it when the event is decided: also as the value of the checkpoint."""
    write(ledger, task("a", "one", index=-1), task("b", "two", index=-1), task("c", "after", index=-1))
    write(ledger, task("a", "two", index=-1), task("b", "one", index=-1))
    put_with(ledger, task("c", "other", index=-1))

    assert [("a", -1, "two", 7), ("b", -1, "one", 7), ("c", -1, "other", 7)] == writes_of(ledger)
    found = Threads(ledger).get("t", "", "2")
    assert found is not None
    assert "after" == value_of(found, found.record.fields["c"].digest)
    ledger.rebuild()
    assert [("a", -1, "two", 7), ("b", -1, "one", 7), ("c", -1, "other", 7)] == writes_of(ledger)


def test_writes_that_one_event_cannot_hold_are_several_of_one_commit(ledger: Ledger) -> None:
    """With a checkpoint too, and with more content than an event holds."""
    many = [task(f"task {number} {'x' * 900}", "same") for number in range(400)]
    large = TaskPut("large", "", 1, [(0, "c", tree_of(" ".join(map(str, range(120_000)))))])
    bodies = put_with(ledger, *many, large)

    assert {VersionContentPut, VersionWritesPut, VersionPut} == set(map(type, bodies))
    assert 401 == len(writes_of(ledger))
    copied = Threads(ledger)
    copied.copy("t", "u")
    copied.delete("t")
    copied.copy("u", "t")
    assert 401 == len(writes_of(ledger))


def test_events_of_the_format_before_are_refused() -> None:
    """In words that name the version before 0.1, and not as those of a newer one."""
    for topic in ("chatledger.agent_writes_put/3", "chatledger.state_put/2", "chatledger.chat_created/1"):
        assert is_outdated(topic)
        with pytest.raises(UnsupportedFormatError, match=r"before 0\.1.*chatledger export"):
            decode_event(topic, b"")
    for topic in ("chatledger.version_put/2", "chatledger.version_put/3", "chatledger.new/2", "other.x/1"):
        assert not is_outdated(topic)
