"""Rebuilds whose search index is built by several processes: the same index as live, whatever happens to them."""

import contextlib
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.ledger_world import internals
from tests.support.naive_index import reader
from tests.support.search_actions import Action, Append, Delete, World, actions, queries
from tests.support.soak import examples

import chatledger
from chatledger import Ledger, Message
from chatledger.domain.chat.events import Recorded
from chatledger.domain.errors import InvalidValueError
from chatledger.infra.store.inverting import ProcessInverter, check_processes, usable_processes
from chatledger.projections.search.intake import Inverter
from chatledger.projections.search.inversion import HEAD, decode_inverted
from chatledger.projections.search.manifest import manifest_of

MESSAGE = Message(id="m", chat_id="", parent_id=None, name="user", data="run a b", created_at=1)
QUERIES = ["run", '"a b"', "the OR ab*", "中文"]


def at_once(processes: int) -> ProcessInverter:
    """One that takes whatever little there is."""
    return ProcessInverter(processes, share=lambda: 1.0, worth_messages=0, batch_messages=2)


@pytest.fixture(scope="module")
def inverter() -> Iterator[ProcessInverter]:
    """One other process, which serves many rebuilds."""
    with at_once(2) as found:
        yield found


def answer(future: Future[bytes] | None) -> bytes:
    """Wait for a batch that was taken."""
    assert future is not None
    return future.result()


def told(ledger: Ledger, script: list[Action]) -> tuple[World, list[Recorded]]:
    """Carry actions out; returns all events, also those that were erased since."""
    world, events = World(ledger), dict[int, Recorded]()
    for action in script:
        world.carry_out(action)
        events |= {recorded.position: recorded for recorded in ledger.history()}
    return world, [events[position] for position in sorted(events)]


@pytest.mark.guard
@settings(max_examples=examples(12), deadline=None)
@given(
    actions,
    st.lists(queries, min_size=1, max_size=3),
    st.integers(1, 5),
    st.integers(1, 3),
    st.sampled_from([1, 32]),
)
def test_a_rebuild_by_processes_equals_live(
    inverter: ProcessInverter, script: list[Action], queries: list[str], batch: int, page: int, left: int
) -> None:
    """With one process or two, merged in the end or left, and chats that are deleted while their messages are being inverted."""
    inverter.batch_messages = batch
    alone = Inverter()
    alone.batch_messages = batch
    with pytest.MonkeyPatch.context() as patch, chatledger.open("memory:") as ledger:
        patch.setattr("chatledger.projections.search.intake._LEFT_SEGMENTS", left)
        world, events = told(ledger, script)
        expected = [world.answers(query) for query in queries]
        for one in (alone, inverter):
            internals(ledger).index.rebuild(reader(events, page), inverter=one)
            with internals(ledger).index.snapshot() as snapshot:
                assert len(manifest_of(snapshot.txn, snapshot.tables).segments) <= left

            assert expected == [world.answers(query) for query in queries]
        internals(ledger).index.rebuild(reader(list(ledger.history()), page), inverter=inverter)
        assert len(list(ledger.history())) == ledger.verify().event_count


def test_a_chat_that_is_deleted_meanwhile_is_left_out(inverter: ProcessInverter) -> None:
    """Its messages were given to another process before the log said that it was deleted."""
    inverter.batch_messages = 4
    script: list[Action] = [
        Append("c0", ["run a b"] * 3),
        Append("c1", ["run the"] * 5),
        Delete("c0"),
        Append("c1", ["runs"]),
    ]
    with chatledger.open("memory:") as ledger:
        world, events = told(ledger, script)
        expected = [world.answers(query) for query in QUERIES]
        internals(ledger).index.rebuild(reader(events, 1), inverter=inverter)

        assert expected == [world.answers(query) for query in QUERIES]
        assert 6 == len(ledger.search("run", limit=None))


def test_a_killed_process_is_replaced_by_this_one(caplog: pytest.LogCaptureFixture) -> None:
    """What it was to do is done here, with the same result and a warning, and it is given nothing more."""
    batch = msgspec.msgpack.encode((HEAD.pack(7, 0, 0, 0), [msgspec.msgpack.encode(MESSAGE)]))
    with at_once(2) as inverter:
        first = answer(inverter.submit(batch, 1))
        (worker,) = inverter.workers
        os.kill(worker.pid, signal.SIGKILL)
        with caplog.at_level(logging.WARNING):
            second = answer(inverter.submit(batch, 1))
        third = inverter.submit(batch, 1)

    assert first == second
    assert 1 == decode_inverted(first)[0].segment.documents
    assert 1 == sum("goes on without it" in record.getMessage() for record in caplog.records)
    assert third is None


def test_what_a_process_refuses_is_done_over_here() -> None:
    """A batch that is none ends the process; this one meets the error itself, and raises it."""
    with at_once(2) as inverter, pytest.raises(msgspec.DecodeError):
        answer(inverter.submit(b"\xc1", 1))


@pytest.mark.soak
def test_processes_end_with_the_one_that_started_them() -> None:
    """A script without a main guard starts one and is killed; the other ends too."""
    script = """
import time
from tests.infra.store.test_inverting import at_once
with at_once(2) as inverter:
    future = inverter.submit(b"\\x92\\xc4\\x00\\x90", 0)
    future.result()
    print(inverter.workers[0].pid, flush=True)
    time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    watched = os.pidfd_open(pid) if _is_there(pid) else None

    if watched is not None:
        import select

        assert select.select([watched], [], [], 30)[0]
        os.close(watched)


def _is_there(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def test_few_messages_start_no_process() -> None:
    """A store that expects less than is worth it is rebuilt by this process alone, as is one that is to use one."""
    with ProcessInverter(4, share=lambda: 0.5) as inverter:
        assert inverter.submit(b"", 24_000) is None
        assert not inverter.workers
    with at_once(1) as inverter:
        assert inverter.submit(b"", 10**9) is None


def test_the_number_of_processes_is_checked() -> None:
    """At least one; by default as many as there are processors, at most eight."""
    assert 1 <= usable_processes() <= 8
    assert usable_processes() == check_processes(None)
    assert 20 == check_processes(20)
    with chatledger.open("memory:") as ledger:
        ledger.rebuild(processes=2)
        for wrong in (0, -1, True, 1.5, "2"):
            with pytest.raises(InvalidValueError, match="processes"):
                ledger.rebuild(processes=wrong)  # type: ignore[arg-type]
