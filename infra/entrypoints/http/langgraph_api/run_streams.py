"""The events of runs, read from where a client was: while they run, after they ended, and on another server."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Collection
from contextlib import suppress
from typing import Any, Final, cast

from chatledger.domain.chat.runs import MessageRun, RunMetadata
from chatledger.domain.errors import InvalidValueError, LiveStreamNotFoundError, NotFoundError
from chatledger.domain.limits import check_id

from ....clock import clock_ms
from ..server_sent_events import EventStream, ServerSentEvent
from .contract import AgentCall
from .encoding import encode, interrupt_of
from .known_threads import find_thread
from .run_events import ALWAYS, END, ERROR, METADATA, Assembling, RunEvent
from .run_records import checkpoint_of, end_of, is_over, is_served, reason, status_of_run, visible
from .states import place_of, read_snapshot

HEARTBEAT_S: Final = 5.0
_LOOK_S: Final = 0.5
FROM_START: Final = frozenset({"", "-", "-1"})
_NUMBER: Final = re.compile(r"\d{1,15}")


async def find_run(call: AgentCall, thread_id: str, run_id: str) -> MessageRun:
    """
    Look for a run; one whose server is gone has failed.

    Raises:
        NotFoundError: There is none, or it is another user's, or it was deleted.
    """
    run = visible(await call.async_ledger.get_run(check_id(thread_id, "thread_id"), check_id(run_id, "run_id")))
    if run is None:
        msg = f"Run {run_id} not found"
        raise NotFoundError(msg)
    return await call.runs.settle(call.async_ledger, run)


def position_after(last_event_id: str | None) -> int:
    """
    Return the number of the last event that a client has, from the header; 0 for none.

    Raises:
        InvalidValueError: It is none of ours.
    """
    if last_event_id is None or last_event_id in FROM_START:
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

    Args:
        call: The request.
        run: The run.
        after: The number of the last event that the reader has.
    """
    has_read = False
    while True:
        async for event in _stored(call, run, after):
            has_read, after = True, event.number
            yield event
            if event.base == END:
                return
        record = visible(await call.async_ledger.get_run(run.thread_id, run.run_id))
        if record is None:
            return
        was_over = is_over(record)  # before `settle`, which may end it: then its stream has its end now, and is read on
        record = await call.runs.settle(call.async_ledger, record)
        if was_over:
            async for event in _from_record(call, record, is_whole=after == 0 and not has_read):
                yield event
            return
        if not is_served(record):
            await asyncio.sleep(_LOOK_S)


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
    place = await call.run(
        lambda ledger: place_of(call, find_thread(ledger, call.assistants, run.thread_id), checkpoint, run.assistant_id)
    )
    snapshot = await read_snapshot(call, place, checkpoint)
    if snapshot is None:
        return None
    values: Any = snapshot.values
    if not isinstance(values, dict):
        return values
    interrupts = [interrupt_of(interrupt) for interrupt in snapshot.interrupts]
    return cast("dict[str, Any]", values) | ({"__interrupt__": interrupts} if interrupts else {})


def is_wanted(event: RunEvent, modes: Collection[str] | None) -> bool:
    """Whether a client gets an event that asked for these modes; for all when None."""
    if modes is None or event.base in ALWAYS or event.mode in modes:
        return True
    return event.base == "data" and "events" in modes


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
        is_endless=is_endless,
    )


async def shown_events(
    events: AsyncGenerator[RunEvent], modes: Collection[str] | None = None
) -> AsyncGenerator[ServerSentEvent]:
    """Yield the events as they are sent: those of some modes, or all."""
    try:
        async for event in events:
            if is_wanted(event, modes):
                yield ServerSentEvent(event.data, event.name, str(event.number) if event.number else None)
    finally:
        await events.aclose()
