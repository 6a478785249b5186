"""The order of the runs of a thread, and events in chunks: pure, for any input."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatledger.domain.chat.live import LiveChunk
from chatledger.domain.chat.runs import MessageRun
from chatledger.domain.errors import CorruptStateError
from chatledger.infra.entrypoints.http.langgraph_api import run_events
from chatledger.infra.entrypoints.http.langgraph_api.run_events import Assembling, RunEvent, pack
from chatledger.infra.entrypoints.http.langgraph_api.run_records import DUE_AT, Strategy, Turn, ahead_of, decide_turn


def a_run(run_id: str, created_at: int, due_at: int | None, status: Any) -> MessageRun:
    return MessageRun(
        id=run_id,
        run_id=run_id,
        thread_id="t",
        assistant_id="a",
        status=status,
        created_at=created_at,
        updated_at=created_at,
        metadata={} if due_at is None else {DUE_AT: due_at},
    )


waiting = st.lists(st.tuples(st.integers(0, 9), st.none() | st.integers(0, 30)), min_size=1, max_size=8)


@given(waiting)
def test_runs_go_one_after_another(times: list[tuple[int, int | None]]) -> None:
    """Of those that wait, one goes first, and each of the others has another number before it: none waits for itself."""
    moments = sorted(times, key=lambda one: one[0])
    runs = [a_run(str(n), at, None if late is None else at + late, "pending") for n, (at, late) in enumerate(moments)]
    counts = [len(ahead_of(run, runs)) for run in runs]
    assert sorted(counts) == list(range(len(runs)))
    plain = [count for run, count in zip(runs, counts, strict=True) if not run.metadata]
    assert all(one < other for one, other in pairwise(plain))


@given(waiting, st.data())
def test_nothing_goes_beside_a_running_run(times: list[tuple[int, int | None]], data: st.DataObject) -> None:
    runs = [a_run(str(n), at, late, "pending") for n, (at, late) in enumerate(times)]
    place = data.draw(st.integers(0, len(runs) - 1))
    runs[place] = a_run(str(place), times[place][0], times[place][1], "running")
    assert all(runs[place] in ahead_of(run, runs) for run in runs if run is not runs[place])


@pytest.mark.parametrize(
    ("strategy", "turn"),
    [
        ("enqueue", Turn(waits_for=("1", "2"))),
        ("reject", Turn(is_refused=True)),
        ("interrupt", Turn(cancels=(("1", "interrupt"), ("2", "interrupt")), waits_for=("1", "2"))),
        ("rollback", Turn(cancels=(("1", "rollback"), ("2", "rollback")), waits_for=("1", "2"))),
    ],
)
def test_what_becomes_of_a_new_run(strategy: Strategy, turn: Turn) -> None:
    assert decide_turn(strategy, [a_run("1", 1, None, "running"), a_run("2", 2, None, "pending")]) == turn
    assert decide_turn(strategy, []) == Turn()


@given(st.lists(st.tuples(st.text("ab|/:", min_size=1), st.binary(max_size=200))), st.integers(1, 64))
def test_events_are_put_together_again(events: list[tuple[str, bytes]], part_bytes: int) -> None:
    """In whatever parts; each has the number of its last chunk."""
    before, run_events.PART_BYTES = run_events.PART_BYTES, part_bytes  # type: ignore[misc]
    try:
        packed = [pack(RunEvent(name, data, 1)) for name, data in events]
    finally:
        run_events.PART_BYTES = before  # type: ignore[misc]
    chunks = [chunk for parts in packed for chunk in parts]
    assembling = Assembling()
    found = [assembling.add(LiveChunk(number, chunk)) for number, chunk in enumerate(chunks, 1)]
    whole = [one for one in found if one is not None]
    assert [(one.name, one.data) for one in whole] == events
    ends = [sum(map(len, packed[: place + 1])) for place in range(len(packed))]
    assert [one.number for one in whole] == ends


def test_other_chunks_are_no_events() -> None:
    for data in ("text", b"", b"?x", [1]):
        with pytest.raises(CorruptStateError):
            Assembling().add(LiveChunk(1, data))
