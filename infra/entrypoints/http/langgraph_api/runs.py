"""The runs that a server executes: begun, waited for, ended, and looked after when their server died."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final
from uuid import UUID

import anyio
from langchain_core.utils.uuid import uuid7

from chatledger.domain.chat.live import MAX_LIVE_AGE_S
from chatledger.domain.chat.runs import MessageRun, RunMetadata
from chatledger.domain.errors import (
    ChatledgerError,
    ConflictError,
    LiveConflictError,
    LiveLimitError,
    LiveStreamNotFoundError,
    NotFoundError,
    RunStatusError,
)

from ....ledger.aio.async_ledger import AsyncLedger
from ....ledger.aio.live import AsyncLiveAnswer
from ....ledger.ledger import Ledger
from ..access import Principal
from ..problems import RequestError
from ..service import Service
from .assistants import Assistant
from .encoding import encode
from .graph_events import events_of, events_of_runner
from .graphs import Graphs
from .run_events import END, ERROR, METADATA, RunEvent, pack
from .run_order import Action, Strategy, ahead_of, decide_turn
from .run_records import (
    CANCEL,
    DELETED,
    DUE_AT,
    FAILURE,
    KWARGS,
    OUTCOME,
    STRATEGY,
    due_at,
    end_of,
    failure,
    failure_of,
    is_deleted,
    own_metadata,
    recorded_kwargs,
)
from .run_requests import NewRun

MAX_RUNS: Final = 1000
"""How many runs a server has at a time, executing and waiting."""
LINGER_S: Final = 30.0
"""How long the thread of a run without one stays when the run has ended, so that its readers see the end."""

_STREAM: Final = "run"
_LOOK_S: Final = 0.5
_CLOSE_S: Final = 5.0
_log: Final = logging.getLogger("chatledger.server")


class _Job:
    """A run that this server has."""

    def __init__(self, principal: Principal, ledger: AsyncLedger, run: MessageRun, request: NewRun) -> None:
        self.principal, self.ledger, self.run, self.request = principal, ledger, run, request
        self.assistant: Assistant | None = None
        self.live: AsyncLiveAnswer | None = None
        self.task: asyncio.Task[None] | None = None
        self.ended = asyncio.Event()
        self.action: Action | None = None
        self.is_stopped = False
        self.is_temporary = False


class Runs:
    """
    The runs of a server. Each is executed in a task of its own, whatever becomes of the request that began it.

    A run is recorded on the chat of its thread, and what it yields is a live stream of that chat under the run's id. The
    stream says whether its server lives: of a run that has not ended, and whose stream is left, nobody looks after any more.

    Args:
        service: The whole ledger, and when the server stops.
        graphs: The graphs that are executed.
    """

    def __init__(self, service: Service, graphs: Graphs) -> None:
        self._service, self.graphs = service, graphs
        self._jobs: dict[tuple[str, str], _Job] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._watching: asyncio.Task[None] | None = None
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
        """
        Record a run, and execute it when it is its turn.

        Args:
            principal: Who asks.
            ledger: The ledger, limited to who asks.
            thread_id: The thread, which has a chat.
            assistant: Whose graph is executed.
            request: What it is to do.
            metadata: Those of the run, for who asks.
            is_temporary: Whether the thread is deleted when the run has ended.

        Raises:
            ConflictError: Another run is on the thread, and the request does not want to wait.
            InvalidValueError: The request is none that the server can do.
            RequestError: The server has too many runs.
        """
        request.check()
        request.place(assistant.namespace)
        if len(self._jobs) >= MAX_RUNS:
            raise RequestError(429, f"this server has {MAX_RUNS:,} runs already", headers={"Retry-After": "5"})
        run_id = str(uuid7())
        live = await ledger.live(thread_id, name=_STREAM, id=run_id, keep_s=MAX_LIVE_AGE_S)
        try:
            run = await ledger.record_run(
                thread_id,
                run_id,
                thread_id=thread_id,
                assistant_id=assistant.assistant_id,
                checkpoint_id=request.place(assistant.namespace).get("checkpoint_id"),
                status="pending",
                metadata=_recorded(request, metadata),
            )
            job = _Job(principal, ledger, run, request)
            job.assistant, job.live, job.is_temporary = assistant, live, is_temporary
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

    async def cancel(self, ledger: AsyncLedger, run: MessageRun, action: Action) -> None:
        """End a run before its time, also one of another server; nothing when it has ended. Returns before it has."""
        job = self._jobs.get((run.thread_id, run.run_id))
        if job is not None:
            job.action = action
            if job.task is not None:
                job.task.cancel()
            return
        settled = await self.settle(ledger, run)
        if not settled.is_ended:
            await ledger.update_run(run.thread_id, run.run_id, {CANCEL: action})

    async def wait(self, ledger: AsyncLedger, run: MessageRun) -> MessageRun:
        """
        Wait until a run has ended, also one of another server; return its last record.

        Raises:
            NotFoundError: Its thread was deleted meanwhile.
        """
        while True:
            job = self._jobs.get((run.thread_id, run.run_id))
            if job is not None:
                await job.ended.wait()
            found = await ledger.get_run(run.thread_id, run.run_id)
            if found is None:
                msg = f"Run {run.run_id} was deleted with its thread"
                raise NotFoundError(msg)
            found = await self.settle(ledger, found)
            if found.is_ended:
                return found
            await asyncio.sleep(_LOOK_S)

    async def settle(self, ledger: AsyncLedger, run: MessageRun) -> MessageRun:
        """Return a run as it is: where nobody looks after it any more, it has failed from now on."""
        if run.is_ended or (run.thread_id, run.run_id) in self._jobs:
            return run
        stream = await ledger.get_live(run.thread_id, run.run_id)
        if stream is not None and stream.status not in {"interrupted", "dropped"}:
            return run
        what = {"error": "RunLost", "message": "the server that executed the run has gone; start another run"}
        try:
            run = await ledger.fail_run(run.thread_id, run.run_id, metadata={OUTCOME: "error", FAILURE: what})
        except RunStatusError:
            found = await ledger.get_run(run.thread_id, run.run_id)
            return run if found is None else found
        if stream is not None:
            with suppress(LiveConflictError, LiveStreamNotFoundError):
                async with ledger.take_over_live(stream) as live:
                    await _write(live, ERROR, encode(what))
                    await _write(live, END, end_of(run))
        return run

    @asynccontextmanager
    async def _running(self) -> AsyncGenerator[None]:
        """Let runs be executed; they are ended as the server stops."""
        try:
            yield
        finally:
            await self._close()

    async def _close(self) -> None:
        for job in list(self._jobs.values()):
            job.is_stopped = True
            if job.task is not None:
                job.task.cancel()
        if self._watching is not None:
            self._watching.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLOSE_S)

    def _spawn(self, doing: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(doing)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _take_turn(self, job: _Job, strategy: Strategy) -> None:
        turn = decide_turn(strategy, await self._ahead(job))
        if turn.is_refused:
            await job.ledger.fail_run(
                job.run.thread_id, job.run.run_id, metadata={OUTCOME: "interrupted", DELETED: True}
            )
            msg = "Thread is already running a task. Wait for it to finish or choose a different multitask strategy."
            raise ConflictError(msg)
        for run_id, action in turn.cancels:
            found = await job.ledger.get_run(job.run.thread_id, run_id)
            if found is not None:
                await self.cancel(job.ledger, found, action)

    async def _ahead(self, job: _Job) -> list[MessageRun]:
        """Return the runs before this one, without those that nobody looks after."""
        thread_id, ledger = job.run.thread_id, job.ledger

        def listed(blocking: Ledger) -> Sequence[MessageRun]:
            return [one for one in blocking.runs(thread_id, thread_id=thread_id) if not one.is_ended]

        runs = await ledger.run(listed)
        if not any(one.run_id == job.run.run_id for one in runs):
            msg = f"Thread {thread_id} was deleted"
            raise NotFoundError(msg)
        settled = [await self.settle(ledger, one) for one in ahead_of(job.run, runs)]
        return [one for one in settled if not one.is_ended]

    async def _wait_for_turn(self, job: _Job) -> None:
        left_s = due_at(job.run) / 1000 - time.time()
        if left_s > 0:
            await asyncio.sleep(left_s)
        while ahead := await self._ahead(job):
            await self.wait(job.ledger, ahead[0])

    async def _execute(self, job: _Job) -> None:
        error: BaseException | None = None
        try:
            await self._wait_for_turn(job)
            await job.ledger.start_run(job.run.thread_id, job.run.run_id)
            await self._go(job)
        except asyncio.CancelledError as cancelled:
            error = cancelled
        except Exception as raised:  # noqa: BLE001 - whatever the graph raises is the outcome of the run
            error = raised
        try:
            await self._finish(job, error)
        except NotFoundError:
            pass  # the thread was deleted, and the run with it
        except ChatledgerError:
            _log.exception("the end of run %s of thread %s could not be recorded", job.run.run_id, job.run.thread_id)
        finally:
            self._jobs.pop((job.run.thread_id, job.run.run_id), None)
            job.ended.set()
            if job.is_temporary:
                await self._forget(job)

    async def _go(self, job: _Job) -> None:
        """Execute the graph of a run."""
        assert job.live is not None
        assert job.assistant is not None
        run, request = job.run, job.request
        first = RunMetadata.of(run).to_dict()
        del first["event"]
        await _write(job.live, METADATA, encode({**first, "attempt": 1}))
        config = _config(run, request, job.assistant)
        async with self.graphs.open(job.principal, job.assistant, config) as opened:
            whole = opened.config(run.thread_id, config)
            wanted = request.execution(job.assistant.context)
            if opened.graph is None:
                assert opened.runner is not None
                events = events_of_runner(opened.runner, wanted, whole)
            else:
                events = events_of(opened.graph, wanted, whole)
            is_full = False
            async for name, data in events:
                if not is_full:
                    is_full = not await _written(job.live, name, encode(data))

    async def _finish(self, job: _Job, error: BaseException | None) -> None:
        assert job.live is not None
        thread_id, run_id = job.run.thread_id, job.run.run_id
        what: dict[str, str] | None = None
        if job.action == "rollback":
            await self.graphs.saver(job.principal).adelete_for_runs([run_id])
        checkpoint_id = await self._last_checkpoint(job)
        if error is None:
            run = await job.ledger.complete_run(
                thread_id, run_id, checkpoint_id=checkpoint_id, metadata={OUTCOME: "success"}
            )
        else:
            outcome = "interrupted" if isinstance(error, asyncio.CancelledError) else "error"
            if job.is_stopped:
                outcome, error = "error", RunStoppedError("the server stopped; start another run")
            what = None if outcome == "interrupted" else failure(error)
            noted = {OUTCOME: outcome} | ({} if what is None else {FAILURE: what})
            run = await job.ledger.fail_run(thread_id, run_id, checkpoint_id=checkpoint_id, metadata=noted)
        if what is not None:
            await _written(job.live, ERROR, encode(what))
        await _written(job.live, END, end_of(run))
        await job.live.close()
        if job.action == "rollback":
            await self.delete(job.ledger, job.run)

    async def _last_checkpoint(self, job: _Job) -> str | None:
        """Return the id of the last checkpoint of a run; None where it wrote none."""
        saver = self.graphs.saver(job.principal).for_assistant(job.run.assistant_id)
        found = await saver.aget_tuple({"configurable": {"thread_id": job.run.thread_id, "checkpoint_ns": ""}})
        if found is None or found.metadata.get("run_id") != job.run.run_id:
            return None
        return found.checkpoint["id"]

    async def delete(self, ledger: AsyncLedger, run: MessageRun) -> None:
        """Hide a run that has ended, and drop its stream. What it did stays."""
        await ledger.update_run(run.thread_id, run.run_id, {DELETED: True})
        stream = await ledger.get_live(run.thread_id, run.run_id)
        if stream is not None:
            with suppress(LiveConflictError, LiveStreamNotFoundError):
                async with ledger.take_over_live(stream) as live:
                    await live.discard()

    async def _forget(self, job: _Job) -> None:
        with anyio.move_on_after(LINGER_S):
            await self._service.stopping.wait()
        thread_id = job.run.thread_id
        with suppress(ChatledgerError):
            await self.graphs.saver(job.principal).adelete_thread(thread_id)
            await job.ledger.delete_chat(thread_id)

    async def _watch(self) -> None:
        """End the runs that another server was asked to end, and those whose thread was deleted."""
        while self._jobs:
            await asyncio.sleep(_LOOK_S)
            for job in list(self._jobs.values()):
                with suppress(ChatledgerError):
                    run = await job.ledger.get_run(job.run.thread_id, job.run.run_id)
                    wanted = "interrupt" if run is None else run.metadata.get(CANCEL)
                    if wanted is not None and job.action is None and job.task is not None:
                        job.action = "rollback" if wanted == "rollback" else "interrupt"
                        job.task.cancel()


class RunStoppedError(Exception):
    """What a run failed with that was not over when its server stopped."""


def _recorded(request: NewRun, metadata: dict[str, Any]) -> dict[str, Any]:
    found = {**own_metadata(metadata), KWARGS: recorded_kwargs(request.kwargs()), STRATEGY: request.strategy}
    if request.after_seconds:
        found[DUE_AT] = int((time.time() + request.after_seconds) * 1000)
    return found


def _config(run: MessageRun, request: NewRun, assistant: Assistant) -> Any:
    given = {name: value for name, value in (request.config or {}).items() if name in _CONFIG}
    configurable = {**request.configurable, **(request.context or {}), **request.place(assistant.namespace)}
    metadata: dict[str, Any] = {**(given.get("metadata") or {}), **own_metadata(run.metadata), "run_id": run.run_id}
    return {
        **given,
        "configurable": {**configurable, "run_id": run.run_id},
        "metadata": metadata,
        "run_id": UUID(run.run_id),
    }


_CONFIG: Final = frozenset({"tags", "metadata", "recursion_limit", "max_concurrency", "run_name"})


async def _write(live: AsyncLiveAnswer, name: str, data: bytes) -> None:
    for chunk in pack(RunEvent(name, data, int(time.time() * 1000))):
        await live.write(chunk)


async def _written(live: AsyncLiveAnswer, name: str, data: bytes) -> bool:
    """Write an event; return whether the stream took it. A run goes on without a stream that takes no more."""
    try:
        await _write(live, name, data)
    except (LiveLimitError, LiveConflictError, LiveStreamNotFoundError) as error:
        _log.warning("the stream of run %s takes no more: %s", live.id, error)
        return False
    return True


def visible(run: MessageRun | None) -> MessageRun | None:
    """Return a run that clients may see; None for one that was deleted."""
    return None if run is None or is_deleted(run) else run


def reason(run: MessageRun) -> dict[str, str] | None:
    """Return what a run failed with; None for one that did not, or was ended."""
    return failure_of(run) if run.metadata.get(OUTCOME) in {None, "error"} and run.status == "error" else None
