"""The runs that a server executes: begun, waited for, ended, and looked after when their server died."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final, cast
from weakref import WeakValueDictionary

import anyio
from langchain_core.utils.uuid import uuid7

from chatledger.domain.chat.live import MAX_LIVE_AGE_S
from chatledger.domain.chat.runs import MessageRun
from chatledger.domain.errors import (
    AccessDeniedError,
    ChatledgerError,
    ConflictError,
    LiveConflictError,
    LiveStreamNotFoundError,
    NotFoundError,
    RunStatusError,
)

from ....clock import clock_ms
from ....ledger.aio.async_ledger import AsyncLedger
from ....ledger.ledger import Ledger
from ..access import Principal
from ..problems import RequestError
from ..service import RUN_STREAM, Service
from .answers import let_go, list_asking
from .assistants import Assistant
from .encoding import encode
from .graphs import Graphs
from .jobs import Job
from .run_events import END, ERROR, Packing
from .run_records import (
    CANCEL,
    DELETED,
    FAILURE,
    OUTCOME,
    Action,
    Strategy,
    ahead_of,
    due_at,
    end_of,
    is_over,
    is_served,
    namespace_of,
)
from .run_requests import NewRun

MAX_RUNS: Final = 1000
"""The most runs that a server has at a time, executing and waiting."""
MAX_USER_RUNS: Final = 250
"""The most of them that are one user's."""
LINGER_S: Final = 30.0
"""Seconds that the thread of a run without one stays when the run has ended, so that its readers see the end."""

_LATER: Final = {"Retry-After": "5"}
_LOOK_S: Final = 0.5
_CLOSE_S: Final = 5.0
_log: Final = logging.getLogger("chatledger.server")


class Runs:
    """
    The runs of a server. Each is executed in a task of its own, whatever becomes of the request that began it.

    A run is recorded on the chat of its thread, and what it yields is a live stream of that chat under the run's id. The
    stream shows whether its server lives: a run that has not ended, but whose stream is interrupted, is lost.

    Attributes:
        after: Called with each run that has come to its own end, with its caller and that caller's ledger.
    """

    def __init__(self, service: Service, graphs: Graphs) -> None:
        self._service, self.graphs = service, graphs
        self._jobs: dict[tuple[str, str], Job] = {}
        self._starting: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[None]] = set()
        self._watching: asyncio.Task[None] | None = None
        self.after: list[Callable[[Principal, AsyncLedger, MessageRun], Awaitable[None]]] = []
        service.running.append(self._running)

    async def begin(
        self,
        principal: Principal,
        ledger: AsyncLedger,
        thread_id: str,
        assistant: Assistant,
        request: NewRun,
        metadata: dict[str, Any],
        *,
        is_temporary: bool = False,
    ) -> MessageRun:
        """Record a run for the caller on a thread that has a chat, and execute it when it is its turn."""
        request.check()
        namespace = request.namespace_for(assistant.assistant_id)
        place = request.place(namespace)
        trigger_id, references = request.trigger_message_id, request.references
        if request.is_answer and trigger_id is not None:
            asking = await list_asking(ledger, thread_id, namespace)
            if any(run.trigger_message_id == trigger_id for run in asking):
                trigger_id, references = None, []  # they are those of the run that asked, which goes on

        async def record(run_id: str) -> MessageRun:
            return await ledger.record_run(
                thread_id,
                run_id,
                thread_id=thread_id,
                assistant_id=assistant.assistant_id,
                trigger_message_id=trigger_id,
                references=references,
                checkpoint_id=place.get("checkpoint_id"),
                status="pending",
                metadata=request.recorded(metadata),
            )

        return await self.begin_recorded(
            principal, ledger, thread_id, assistant, request, record, is_temporary=is_temporary
        )

    async def begin_recorded(
        self,
        principal: Principal,
        ledger: AsyncLedger,
        thread_id: str,
        assistant: Assistant,
        request: NewRun,
        record: Callable[[str], Awaitable[MessageRun]],
        *,
        is_temporary: bool = False,
    ) -> MessageRun:
        """Execute a run that `record` writes down under the id that it gets; see `begin`."""
        self.check_room(principal)
        if self._service.stopping.is_set():
            raise RequestError(503, "the server is stopping; try again", headers=_LATER)
        run_id = str(uuid7())
        # First the stream, then the record: a run without a stream would be taken for one whose server is gone.
        live = await ledger.live(thread_id, name=RUN_STREAM, id=run_id, keep_s=MAX_LIVE_AGE_S)
        try:
            run = await record(run_id)
            job = Job(principal, ledger, run, request, assistant, live)
            job.is_temporary = is_temporary
            self._jobs[thread_id, run_id] = job
            await self._take_turn(job, request.strategy)
        except BaseException:
            self._jobs.pop((thread_id, run_id), None)
            with suppress(ChatledgerError):
                await live.discard()
            raise
        job.task = self._spawn(self._execute(job))
        if self._watching is None or self._watching.done():
            self._watching = self._spawn(self._watch())
        return run

    def check_room(self, principal: Principal, count: int = 1) -> None:
        """Refuse so many more runs than there is room for, on the server and of this user."""
        if len(self._jobs) + count > MAX_RUNS:
            raise RequestError(429, f"this server has {len(self._jobs):,} runs already", headers=_LATER)
        own = sum(job.principal.user_id == principal.user_id for job in self._jobs.values())
        if principal.user_id is not None and own + count > MAX_USER_RUNS:
            raise RequestError(429, f"{own:,} of your runs have not ended; {MAX_USER_RUNS:,} may", headers=_LATER)

    def starting(self, thread_id: str) -> asyncio.Lock:
        """Return the lock under which the runs of a thread start here: a state that is written under it is under no run."""
        return self._starting.setdefault(thread_id, asyncio.Lock())

    async def check_idle(self, ledger: AsyncLedger, thread_id: str, namespace: str) -> None:
        """Refuse where a run with a namespace is at work on a thread, or about to start, here or at another server."""
        for run in await self._open(ledger, thread_id, namespace):
            is_due = run.status == "running" or due_at(run) <= time.time() * 1000
            if is_due and not is_over(await self.settle(ledger, run)):
                msg = (
                    f"Thread is busy with a running job. Cannot update state. Nothing was written; wait for run {run.run_id} "
                    f"of thread {thread_id} to finish, or cancel it."
                )
                raise ConflictError(msg)

    async def cancel(self, ledger: AsyncLedger, run: MessageRun, action: Action) -> None:
        """End a run before its time, also one of another server; nothing when it is over. Returns before it has ended."""
        await ledger.check_may_write(run.thread_id)
        if not (is_over(run) or is_served(run)):
            msg = f"run {run.run_id} was not begun over this API; whoever executes it has to end it"
            raise ConflictError(msg)
        job = self._jobs.get((run.thread_id, run.run_id))
        if job is not None:
            job.end(action)
            return
        if not is_over(await self.settle(ledger, run)):
            await ledger.update_run(
                run.thread_id, run.run_id, {CANCEL: action}
            )  # its server looks for it, see `_watch`

    async def wait(self, ledger: AsyncLedger, run: MessageRun) -> MessageRun:
        """Wait until a run is over, also one of another server; return its last record."""
        while True:
            job = self._jobs.get((run.thread_id, run.run_id))
            if job is not None:
                await job.ended.wait()
            record = await ledger.get_run(run.thread_id, run.run_id)
            if record is None:
                msg = f"Run {run.run_id} was deleted with its thread"
                raise NotFoundError(msg)
            record = await self.settle(ledger, record)
            if is_over(record):
                return record
            await asyncio.sleep(_LOOK_S)

    async def settle(self, ledger: AsyncLedger, run: MessageRun) -> MessageRun:
        """
        Return a run as it is; one whose server is gone has failed from now on.

        One that was not begun over this API is left alone: an application may still execute it.
        """
        if is_over(run) or not is_served(run) or (run.thread_id, run.run_id) in self._jobs:
            return run
        stream = await ledger.get_live(run.thread_id, run.run_id)
        if stream is not None and stream.status not in {"interrupted", "dropped"}:
            return run
        what = {"error": "RunLost", "message": "the server that executed the run has gone; start another run"}
        whole = self._service.ledger  # the caller may only read, and this is no act of theirs
        await let_go(whole, run)
        try:
            run = await whole.fail_run(run.thread_id, run.run_id, metadata={OUTCOME: "error", FAILURE: what})
        except RunStatusError:  # another request settled it
            record = await ledger.get_run(run.thread_id, run.run_id)
            return run if record is None else record
        if stream is not None:
            with suppress(LiveConflictError, LiveStreamNotFoundError):
                async with whole.take_over_live(stream) as live:
                    for name, data in ((ERROR, encode(what)), (END, end_of(run))):
                        for chunk in Packing().pack(name, data, clock_ms()):
                            await live.write(chunk)
        return run

    @asynccontextmanager
    async def _running(self) -> AsyncGenerator[None]:
        """Let runs be executed; they are ended as the server stops."""

        def end_all() -> None:
            for job in list(self._jobs.values()):
                job.is_stopped = True
                job.end(None)

        async def stop() -> None:
            # As soon as the server is to stop, so that readers of runs get the end before the connection does.
            await self._service.stopping.wait()
            end_all()

        stopping = asyncio.create_task(stop())
        try:
            yield
        finally:
            end_all()
            if self._watching is not None:
                self._watching.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=_CLOSE_S)
            stopping.cancel()

    def _spawn(self, doing: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(doing)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _take_turn(self, job: Job, strategy: Strategy) -> None:
        ahead = await self._ahead(job)
        if ahead and strategy == "reject":
            await job.ledger.fail_run(
                job.run.thread_id, job.run.run_id, metadata={OUTCOME: "interrupted", DELETED: True}
            )
            msg = "Thread is already running a task. Wait for it to finish or choose a different multitask strategy."
            raise ConflictError(msg)
        for run in ahead if strategy in {"interrupt", "rollback"} else ():
            other = await job.ledger.get_run(job.run.thread_id, run.run_id)
            if other is not None:
                await self.cancel(job.ledger, other, cast("Action", strategy))

    async def _ahead(self, job: Job) -> list[MessageRun]:
        """Return the runs of the assistant before this one, without lost ones and those of applications."""
        thread_id, ledger = job.run.thread_id, job.ledger
        runs = await self._open(ledger, thread_id, namespace_of(job.run))
        if not any(other.run_id == job.run.run_id for other in runs):
            msg = f"Thread {thread_id} was deleted"
            raise NotFoundError(msg)
        settled = [await self.settle(ledger, other) for other in ahead_of(job.run, runs)]
        return [other for other in settled if not is_over(other)]

    async def _open(self, ledger: AsyncLedger, thread_id: str, namespace: str) -> list[MessageRun]:
        """Return the runs of a thread with a namespace that are not over by their records, without those of applications."""
        runs = await ledger.run(lambda blocking: blocking.runs(thread_id, thread_id=thread_id, is_ended=False))
        return [run for run in runs if is_served(run) and not is_over(run) and namespace_of(run) == namespace]

    async def _execute(self, job: Job) -> None:
        error: BaseException | None = None
        try:
            job.is_going = job.action is None and not job.is_stopped
            if job.is_going:
                left_s = due_at(job.run) / 1000 - time.time()
                if left_s > 0:
                    await asyncio.sleep(left_s)
                # Anew each time: others come, end, or are lost with their server, and of those elsewhere there are only records.
                while ahead := await self._ahead(job):
                    await self.wait(job.ledger, ahead[0])
                async with self.starting(job.run.thread_id):
                    await job.start()
                await job.go(self.graphs)
            else:  # it was ended before it began
                error = asyncio.CancelledError()
        except asyncio.CancelledError as cancelled:
            error = cancelled
        except Exception as raised:  # noqa: BLE001 - whatever the graph raises is the outcome of the run
            error = raised
        job.is_going = False
        try:
            await job.finish(self.graphs, error)
            if job.action == "rollback":
                await self.delete(job.ledger, job.run)
        except (NotFoundError, AccessDeniedError) as refused:
            # Its thread was deleted, and the run with it; or its caller may not write there any more.
            error = refused
            whole = self._service.ledger
            with suppress(ChatledgerError):
                await let_go(whole, job.run)
                await whole.fail_run(job.run.thread_id, job.run.run_id, metadata={OUTCOME: "interrupted"})
        except ChatledgerError:
            _log.exception("the end of run %s of thread %s could not be recorded", job.run.run_id, job.run.thread_id)
        finally:
            self._jobs.pop((job.run.thread_id, job.run.run_id), None)
            job.ended.set()
            if error is None:
                for follow in self.after:
                    await follow(job.principal, job.ledger, job.resumed or job.run)
            if job.is_temporary:
                with anyio.move_on_after(LINGER_S):  # no longer: nothing else than the server that stops knows of it
                    await self._service.stopping.wait()
                thread_id = job.run.thread_id
                with suppress(ChatledgerError):
                    await self.graphs.saver(job.principal).adelete_thread(thread_id)
                    await job.ledger.delete_chat(thread_id)

    async def delete(self, ledger: AsyncLedger, run: MessageRun) -> None:
        """Hide a run that has ended, and drop its stream. What it did stays."""
        await ledger.update_run(run.thread_id, run.run_id, {DELETED: True})
        stream = await ledger.get_live(run.thread_id, run.run_id)
        if stream is not None:
            with suppress(LiveConflictError, LiveStreamNotFoundError):
                async with ledger.take_over_live(stream) as live:
                    await live.discard()

    async def _watch(self) -> None:
        """End the runs that were cancelled at another server, and those whose thread was deleted, or closed to their callers."""
        while self._jobs:
            await asyncio.sleep(_LOOK_S)
            jobs = list(self._jobs.values())
            with suppress(ChatledgerError):
                for job, action in zip(jobs, await self._service.ledger.run(partial(_actions, jobs)), strict=True):
                    if action is not None:
                        job.end(action)


def _actions(jobs: Sequence[Job], ledger: Ledger) -> list[Action | None]:
    """Return how each run is to end by its record; `interrupt` where its caller may not write any more."""
    actions: list[Action | None] = []
    for job in jobs:
        own, run = job.principal.limited(ledger), None
        with suppress(NotFoundError, AccessDeniedError):
            own.check_may_write(job.run.thread_id)
            run = own.get_run(job.run.thread_id, job.run.run_id)
        wanted = "interrupt" if run is None else run.metadata.get(CANCEL)
        actions.append(None if wanted is None else "rollback" if wanted == "rollback" else "interrupt")
    return actions
