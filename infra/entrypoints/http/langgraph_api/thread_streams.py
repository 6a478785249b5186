"""The events of all runs of a thread, one run after another, and on to those that are still to come."""

import re
from collections.abc import AsyncGenerator
from typing import Final, NamedTuple

import anyio

from chatledger.domain.chat.runs import MessageRun
from chatledger.domain.errors import InvalidValueError, NotFoundError

from ....ledger.ledger import Ledger
from .contract import AgentCall
from .known_threads import find_thread
from .run_events import RunEvent
from .run_records import is_deleted, is_over
from .run_streams import FROM_START, read_run

_PLACE: Final = re.compile(r"(\d{1,9})(?:-(\d{1,12}|\*))?")
_LOOK_S: Final = 0.2


class ThreadEventPlace(NamedTuple):
    """
    A place in the events of a thread.

    Args:
        run: The place of the run among all that the thread ever had, from 0.
        number: The number of the last event of it that was read.
    """

    run: int
    number: int = 0

    @property
    def text(self) -> str:
        """The id of an event there."""
        return f"{self.run}-{self.number}"


START: Final = ThreadEventPlace(0)


async def place_after(call: AgentCall, thread_id: str, last_event_id: str | None) -> ThreadEventPlace:
    """
    Return where a client goes on: after the event of that id; without one, at the first run that is not over.

    Raises:
        NotFoundError: There is no such thread.
        InvalidValueError: It is no id of an event of a thread.
    """
    if last_event_id is None:
        runs = await list_all(call, thread_id)
        return ThreadEventPlace(next((place for place, run in enumerate(runs) if not is_over(run)), len(runs)))
    if last_event_id in FROM_START:
        await list_all(call, thread_id)
        return START
    named = _PLACE.fullmatch(last_event_id)
    if named is None:
        msg = "Last-Event-ID is that of an event of this thread, or - for its beginning"
        raise InvalidValueError(msg)
    run, number = int(named[1]), named[2]
    return ThreadEventPlace(run + 1) if number == "*" else ThreadEventPlace(run, int(number or 0))


async def list_all(call: AgentCall, thread_id: str) -> list[MessageRun]:
    """
    List all runs that a thread ever had, in the order of their records.

    Raises:
        NotFoundError: There is no such thread.
    """

    def listed(ledger: Ledger) -> list[MessageRun]:
        find_thread(ledger, call.assistants, thread_id)
        return ledger.runs(thread_id)

    return await call.run(listed)


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
            await anyio.sleep(_LOOK_S)
