"""The events of runs and threads, read from where a client was: while they run, after they ended, and on another server."""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Collection
from contextlib import aclosing, suppress
from typing import Any, Final, NamedTuple, cast

import anyio

from chatledger.domain.chat.runs import MessageRun, RunMetadata
from chatledger.domain.errors import InvalidValueError, LiveStreamNotFoundError, NotFoundError
from chatledger.domain.limits import check_id

from ....clock import clock_ms
from ..server_sent_events import STOPPING_S, EventStream, ServerSentEvent
from .contract import AgentCall
from .encoding import encode, interrupt_of
from .known_threads import find_thread
from .run_events import ALWAYS, END, ERROR, METADATA, Assembling, RunEvent
from .run_records import checkpoint_of, end_of, is_deleted, is_over, is_served, reason, status_of_run
from .states import find_place, read_snapshot

HEARTBEAT_S: Final = 5.0
_LOOK_S: Final = 0.5
_LOOK_AT_THREAD_S: Final = 0.2
_FROM_START: Final = frozenset({"", "-", "-1"})
_NUMBER: Final = re.compile(r"\d{1,15}")
_PLACE: Final = re.compile(r"(\d{1,9})(?:-(\d{1,12}|\*))?")


async def find_run(call: AgentCall, thread_id: str, run_id: str) -> MessageRun:
    """Look for a run; one whose server is gone has failed, and one that was deleted is not there."""
    run = await call.async_ledger.get_run(check_id(thread_id, "thread_id"), check_id(run_id, "run_id"))
    if run is None or is_deleted(run):
        msg = f"Run {run_id} not found"
        raise NotFoundError(msg)
    return await call.runs.settle(call.async_ledger, run)


def position_after(last_event_id: str | None) -> int:
    """Return the number of the last event that a client has, from the header; 0 for none."""
    if last_event_id is None or last_event_id in _FROM_START:
        return 0
    if not _NUMBER.fullmatch(last_event_id):
        msg = "Last-Event-ID is that of an event of this stream, or - for its beginning"
        raise InvalidValueError(msg)
    return int(last_event_id)


async def read_run(call: AgentCall, run: MessageRun, after: int = 0) -> AsyncGenerator[RunEvent]:
    """
    Yield the events of a run in order, and wait for more until its end, which is the last one.

    Where the stream is gone, there are the beginning, the final values and the end; the final values also where the stream was
    full before.
    """
    has_read = False
    while True:
        async for event in _stored(call, run, after):
            has_read, after = True, event.number
            yield event
            if event.base == END:
                return
        record = await call.async_ledger.get_run(run.thread_id, run.run_id)
        if record is None or is_deleted(record):
            return
        was_over = is_over(record)  # before `settle`, which may end it: then its stream has its end now, and is read on
        record = await call.runs.settle(call.async_ledger, record)
        if was_over:
            async for event in _from_record(call, record, is_whole=after == 0 and not has_read):
                yield event
            return
        if not is_served(record):
            await anyio.sleep(_LOOK_S)


async def _stored(call: AgentCall, run: MessageRun, after: int) -> AsyncGenerator[RunEvent]:
    assembling = Assembling()
    with suppress(LiveStreamNotFoundError):
        async with call.async_ledger.read_live(run.thread_id, run.run_id) as reader:
            async for chunk in reader:
                event = assembling.add(chunk)
                if event is None or event.number <= after:
                    continue
                if event.base == END and assembling.is_cut:  # in the place of all that the full stream left out
                    ended = await call.async_ledger.get_run(run.thread_id, run.run_id)
                    values = None if ended is None else await values_of(call, ended)
                    if values is not None:
                        yield RunEvent("values", encode(values), event.time_ms)
                yield event


async def _from_record(call: AgentCall, run: MessageRun, *, is_whole: bool) -> AsyncIterator[RunEvent]:
    """Yield what the record says of a run whose stream has no end, or is gone."""
    now = clock_ms()
    if is_whole:
        first = RunMetadata.of(run).to_dict()
        del first["event"]
        yield RunEvent(METADATA, encode({**first, "attempt": 1}), now)
        values = await values_of(call, run)
        if values is not None:
            yield RunEvent("values", encode(values), now)
    failed = reason(run)
    if failed is not None:
        yield RunEvent(ERROR, encode(failed), now)
    yield RunEvent(END, end_of(run), now)


async def values_of(call: AgentCall, run: MessageRun) -> Any:
    """Return the values that a run ended with, `__interrupt__` with them where it waits; None where it left none."""
    checkpoint = {"checkpoint_id": checkpoint_of(run)}
    if checkpoint["checkpoint_id"] is None or status_of_run(run) != "success":
        return None
    place = await find_place(call, run.thread_id, checkpoint, run.assistant_id)
    snapshot = await read_snapshot(call, place, checkpoint)
    if snapshot is None:
        return None
    values: Any = snapshot.values
    if not isinstance(values, dict):
        return values
    interrupts = [interrupt_of(interrupt) for interrupt in snapshot.interrupts]
    return cast("dict[str, Any]", values) | ({"__interrupt__": interrupts} if interrupts else {})


def sent(
    call: AgentCall,
    events: AsyncIterator[ServerSentEvent],
    headers: dict[str, str] | None = None,
    *,
    is_endless: bool = True,
) -> EventStream:
    """Answer with events: of a run, which has an end, or of a thread, to which others come."""
    return EventStream(
        events,
        stopping=call.service.stopping,
        headers=headers,
        heartbeat_s=HEARTBEAT_S,
        retry_ms=None,  # langgraph-sdk takes a block with `retry` alone for an event without a name
        end_s=None if is_endless else STOPPING_S,
    )


async def shown_events(
    events: AsyncGenerator[RunEvent], modes: Collection[str] | None = None
) -> AsyncGenerator[ServerSentEvent]:
    """Yield the events as they are sent: those of some modes, or all."""
    async with aclosing(events):
        async for event in events:
            is_text = modes is not None and event.base == "data" and "events" in modes
            if modes is None or event.base in ALWAYS or event.mode in modes or is_text:
                yield ServerSentEvent(event.data, event.name, str(event.number) if event.number else None)


class ThreadEventPlace(NamedTuple):
    """A place in the events of a thread: the run by its number among all that there ever were, and its last event that was read."""

    run: int
    number: int = 0

    @property
    def text(self) -> str:
        """The id of an event there."""
        return f"{self.run}-{self.number}"


async def place_after(call: AgentCall, thread_id: str, last_event_id: str | None) -> ThreadEventPlace:
    """Return where a client goes on: after the event of that id; without one, at the first run that is not over."""
    if last_event_id is None:
        runs = await list_all(call, thread_id)
        return ThreadEventPlace(next((place for place, run in enumerate(runs) if not is_over(run)), len(runs)))
    if last_event_id in _FROM_START:
        await list_all(call, thread_id)
        return ThreadEventPlace(0)
    named = _PLACE.fullmatch(last_event_id)
    if named is None:
        msg = "Last-Event-ID is that of an event of this thread, or - for its beginning"
        raise InvalidValueError(msg)
    run, number = int(named[1]), named[2]
    return ThreadEventPlace(run + 1) if number == "*" else ThreadEventPlace(run, int(number or 0))


async def list_all(call: AgentCall, thread_id: str) -> list[MessageRun]:
    """List all runs that a thread ever had, in the order of their records."""
    await call.run(find_thread, call, thread_id)
    return await call.async_ledger.runs(thread_id)


async def read_thread(
    call: AgentCall, thread_id: str, place: ThreadEventPlace
) -> AsyncGenerator[tuple[MessageRun, ThreadEventPlace, RunEvent]]:
    """Yield the events of the runs of a thread, each with its run and its place, and wait for more; until the thread is deleted."""
    at = place
    while True:
        position = await call.async_ledger.get_position()
        try:
            runs = await list_all(call, thread_id)
        except NotFoundError:
            return
        for number, run in enumerate(runs[at.run :], at.run):
            after = at.number if number == at.run else 0
            if not is_deleted(run):
                async for event in read_run(call, run, after):
                    yield run, ThreadEventPlace(number, event.number), event
            at = ThreadEventPlace(number + 1)
        # `AsyncLedger.wait` would hold a worker thread for each reader, and there are few.
        while await call.async_ledger.get_position() == position:  # noqa: ASYNC110 - another process may write
            await anyio.sleep(_LOOK_AT_THREAD_S)
