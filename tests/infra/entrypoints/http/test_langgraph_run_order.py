"""The order of the runs of a thread, and events in chunks: pure, for any input."""

from itertools import accumulate, pairwise
from secrets import token_bytes, token_hex
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatledger.domain.chat.live import LiveChunk
from chatledger.domain.chat.runs import MessageRun
from chatledger.domain.errors import CorruptStateError
from chatledger.infra.entrypoints.http.langgraph_api import run_events
from chatledger.infra.entrypoints.http.langgraph_api.run_events import PART_BYTES, Assembling, Packing, RunEvent
from chatledger.infra.entrypoints.http.langgraph_api.run_records import DUE_AT, ahead_of


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


events = st.lists(st.tuples(st.text("ab|/: ", min_size=1), st.text("abc", max_size=40).map(str.encode)), max_size=30)


@given(events, st.integers(1, 64), st.integers(0, 20))
def test_events_are_put_together_again(events: list[tuple[str, bytes]], part_bytes: int, difference_bytes: int) -> None:
    """In whatever parts, and whatever is stored of them; each has the number of its last chunk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_events, "PART_BYTES", part_bytes)
        patch.setattr(run_events, "DIFFERENCE_BYTES", difference_bytes)
        packing, assembling = Packing(), Assembling()
        packed = [packing.pack(name, data, 1) for name, data in events]
        chunks = [chunk for parts in packed for chunk in parts]
        read = [assembling.add(LiveChunk(number, chunk)) for number, chunk in enumerate(chunks, 1)]
    whole = [event for event in read if event is not None]
    assert [(event.name, event.data) for event in whole] == events
    assert [event.number for event in whole] == list(accumulate(map(len, packed)))


def test_a_state_that_grows_is_stored_once() -> None:
    """The values of a hundred steps take what the last of them takes, and a little for each step."""
    packing = Packing()
    messages: list[str] = []
    size = 0
    for step in range(100):
        messages.append(token_hex(2000))
        data = msgspec.json.encode({"messages": messages, "step": step})
        size += sum(map(len, packing.pack("values", data, 1)))
    assert size < 1.05 * len(data)


def test_what_was_written_in_part_is_dropped() -> None:
    """The stream was full, or the server died: what follows is read."""
    large = Packing().pack("values", token_bytes(3 * PART_BYTES), 1)
    for count in range(1, len(large)):
        assembling = Assembling()
        chunks = [*large[:count], *Packing().pack("end", b"{}", 2)]
        read = [assembling.add(LiveChunk(number, chunk)) for number, chunk in enumerate(chunks, 1)]
        assert [event for event in read if event is not None] == [RunEvent("end", b"{}", 2, count + 1)]


def test_other_chunks_are_no_events() -> None:
    for data in ("text", b"", b"?x", [1], b"+x", b")x"):
        with pytest.raises(CorruptStateError):
            Assembling().add(LiveChunk(1, data))
