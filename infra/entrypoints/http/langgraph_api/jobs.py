"""Runs that a server has: executed, and ended with their records, their streams and their answers."""

import asyncio
import logging
from functools import partial
from typing import Any, Final
from uuid import UUID

from langgraph.checkpoint.base import CheckpointTuple

from chatledger.domain.chat.live import MAX_LIVE_BYTES
from chatledger.domain.chat.runs import MessageRun, RunMetadata
from chatledger.domain.errors import (
    ChatledgerError,
    LiveConflictError,
    LiveLimitError,
    LiveStreamNotFoundError,
    MessageConflictError,
)

from ....clock import clock_ms
from ....ledger.aio.async_ledger import AsyncLedger
from ....ledger.aio.live import AsyncLiveAnswer
from ....ledger.threads import Threads
from ...langgraph.saver import LedgerSaver
from ..access import Principal
from .answers import Answering, let_go, resume, with_messages
from .assistants import Assistant
from .encoding import encode
from .graph_events import events_of, events_of_runner
from .graphs import Graphs
from .run_events import CUT, END, ERROR, METADATA, Packing
from .run_records import BEGAN, CHECKPOINT, FAILURE, OUTCOME, Action, end_of, failure, namespace_of, own_metadata
from .run_requests import NewRun

END_BYTES: Final = 2 * 1024 * 1024
"""Bytes of a stream that are left for how the run ends."""
_log: Final = logging.getLogger("chatledger.server")


class Job:
    """A run that this server has: it is executed, and ended."""

    def __init__(
        self,
        principal: Principal,
        ledger: AsyncLedger,
        run: MessageRun,
        request: NewRun,
        assistant: Assistant,
        live: AsyncLiveAnswer,
    ) -> None:
        self.principal, self.ledger, self.run, self.request = principal, ledger, run, request
        self.assistant, self.live = assistant, live
        self.task: asyncio.Task[None] | None = None
        self._answering: Answering | None = None
        self.resumed: MessageRun | None = None
        self._began: str | None = None
        self._is_asking = False
        self._packing = Packing()
        self._written_bytes = 0
        self._is_full = False
        self.ended = asyncio.Event()
        self.action: Action | None = None
        self.is_stopped = self.is_temporary = False
        self.is_going = False

    def end(self, action: Action | None) -> None:
        """End the run before its time, unless it is about to end: what it ends with is written whole."""
        self.action = self.action or action
        if self.is_going and self.task is not None:
            self.is_going = False
            self.task.cancel()

    async def start(self) -> None:
        """Record that the run is at work; where it brings an answer, so is the run that waited for it."""
        self.is_going = False  # `end` waits until both are recorded: else one of the two would be left at work
        # First the run that asked: this run names it from then on, so that it is let go where this one is lost.
        if self.request.is_answer:
            checkpoint_id = self.request.place(namespace_of(self.run)).get("checkpoint_id")
            self.resumed = await resume(self.ledger, self.run, checkpoint_id)
        await self.ledger.start_run(self.run.thread_id, self.run.run_id)
        if self.action is not None or self.is_stopped:
            raise asyncio.CancelledError
        self.is_going = True

    async def go(self, graphs: Graphs) -> None:
        """Execute the graph of the run. Raises what the graph raises."""
        run, request = self.run, self.request
        first = RunMetadata.of(run, checkpoint_ns=namespace_of(run)).to_dict()
        del first["event"]
        await self._tell(METADATA, encode({**first, "attempt": 1}))
        request = await with_messages(self.ledger, run, request)
        config = _config(run, request, await self._beginning())
        async with graphs.open(self.principal, self.assistant, config, namespace=namespace_of(run)) as opened:
            whole = opened.config(run.thread_id, config)
            wanted = request.execution(self.assistant.context)
            if opened.graph is None:
                assert opened.runner is not None
                events = events_of_runner(opened.runner, wanted, whole)
            else:
                events = events_of(opened.graph, wanted, whole)
            if (self.resumed or run).trigger_message_id is not None:
                begins = whole.get("configurable", {})
                place: dict[str, Any] = {
                    name: begins[name] for name in ("thread_id", "checkpoint_id") if name in begins
                }
                before = await opened.saver.aget_tuple({"configurable": {"checkpoint_ns": "", **place}})
                self._began = None if before is None else before.checkpoint["id"]
                if self.resumed is not None:
                    before = await self._before_question(opened.saver, before)
                self._answering = Answering(before, request.input, self.resumed or run)
            async for name, data in events:
                if self._answering is not None and opened.graph is None:
                    self._answering.take(name, data)
                if not self._is_full:
                    await self._tell(name, encode(data))
            if opened.graph is not None:
                state = await opened.graph.aget_state(
                    {"configurable": {"thread_id": run.thread_id, "checkpoint_ns": ""}}
                )
                self._is_asking = bool(state.next)  # a graph that comes to its own end has no nodes left to run

    async def _beginning(self) -> dict[str, Any]:
        """Return where the run begins, for `configurable`: where its request says, else where the branch of its trigger stands."""
        run, namespace = self.run, namespace_of(self.run)
        place = self.request.place(namespace)
        message_id = run.trigger_message_id
        if message_id is None and run.regeneration_id is not None and run.references:
            message_id = run.references[-1]
        if message_id is None or "checkpoint_id" in place or self.request.is_answer:
            return place
        checkpoint_id = await self.ledger.run(
            lambda ledger: Threads(ledger).beginning_of(
                run.thread_id, namespace, chat_id=run.chat_id, message_id=message_id
            )
        )
        return place if checkpoint_id is None else {"checkpoint_ns": "", **place, "checkpoint_id": checkpoint_id}

    async def _before_question(self, saver: LedgerSaver, before: CheckpointTuple | None) -> CheckpointTuple | None:
        """Return the checkpoint at which the run that asked began; where that was pruned, the one before this run."""
        assert self.resumed is not None
        if BEGAN not in self.resumed.metadata:
            return before  # the run of an application
        checkpoint_id = self.resumed.metadata[BEGAN]
        if checkpoint_id is None:
            return None
        config = {"thread_id": self.run.thread_id, "checkpoint_ns": "", "checkpoint_id": checkpoint_id}
        return await saver.aget_tuple({"configurable": config}) or before

    async def finish(self, graphs: Graphs, error: BaseException | None) -> None:
        """Record how the run ended, with an error or None, and end its stream."""
        thread_id, run_id = self.run.thread_id, self.run.run_id
        what: dict[str, str] | None = None
        # Before the last checkpoint is looked for: those of the run are gone then.
        if self.action == "rollback":
            await graphs.saver(self.principal).adelete_for_runs([run_id])
        saver = graphs.saver(self.principal).for_namespace(namespace_of(self.run))
        newest = await saver.aget_tuple({"configurable": {"thread_id": self.run.thread_id, "checkpoint_ns": ""}})
        is_own = newest is not None and newest.metadata.get("run_id") == self.run.run_id
        # A run that brings an answer may end without one of its own: where the node asks again, the state has not moved.
        last = newest if is_own or self.resumed is not None else None
        checkpoint_id = None if last is None else last.checkpoint["id"]
        run: MessageRun | None = None
        if error is None:
            try:
                run = await self._complete(last)
            except ChatledgerError as refused:
                error = refused
        if run is None:
            assert error is not None
            outcome = "interrupted" if isinstance(error, asyncio.CancelledError) else "error"
            if self.is_stopped:  # the cancellation was ours: for clients it is no interrupt of theirs
                outcome, error = "error", RunStoppedError("the server stopped; start another run")
            what = None if outcome == "interrupted" else failure(error)
            noted: dict[str, Any] = {OUTCOME: outcome} | ({} if what is None else {FAILURE: what})
            await let_go(self.ledger, self.run)
            if self.resumed is not None:
                checkpoint_id, noted = None, noted | {CHECKPOINT: checkpoint_id}
            run = await self.ledger.fail_run(thread_id, run_id, checkpoint_id=checkpoint_id, metadata=noted)
        if what is not None:
            await self._tell(ERROR, encode(what))
        await self._tell(END, end_of(run, "waiting" if self._is_asking and run.status == "completed" else None))
        await self.live.close()

    async def _tell(self, name: str, data: bytes) -> None:
        """
        Write an event to the stream, whole or not at all: a reader cannot read a part of one.

        The run goes on without a stream that takes no more; how it ends still has room.
        """
        chunks = self._packing.pack(name, data, clock_ms())
        size = self._written_bytes + sum(map(len, chunks))
        # Not cut within an event: clients threw on half of one, although the run had succeeded.
        if name not in {ERROR, END} and size > MAX_LIVE_BYTES - END_BYTES:
            _log.warning("the stream of run %s takes no more: it has %d bytes", self.live.id, self._written_bytes)
            chunks, size, self._is_full = [CUT], self._written_bytes + len(CUT), True
        self._written_bytes = size
        try:
            for chunk in chunks:
                await self.live.write(chunk)
        except (LiveLimitError, LiveConflictError, LiveStreamNotFoundError) as error:
            _log.warning("the stream of run %s takes no more: %s", self.live.id, error)
            self._is_full = True

    async def _complete(self, last: CheckpointTuple | None) -> MessageRun:
        """Record that the run has ended, or asks; first of the run that asked, where this one brought the answer."""
        run, ledger = self.resumed or self.run, self.ledger
        place = (run.thread_id, run.run_id)
        checkpoint_id = None if last is None else last.checkpoint["id"]
        if self.resumed is None:
            await let_go(ledger, run)
        if self._is_asking:
            noted: dict[str, Any] = {OUTCOME: "success"} | ({} if self.resumed else {BEGAN: self._began})
            run = await ledger.suspend_run(*place, checkpoint_id=checkpoint_id, metadata=noted)
        else:
            answer = None if self._answering is None else self._answering.answer(run.run_id, last)
            complete = partial(ledger.complete_run, *place, checkpoint_id=checkpoint_id, metadata={OUTCOME: "success"})
            try:
                run = await complete(answer=answer)
            except MessageConflictError:  # its id is taken: the state of a copied thread has messages of another chat
                assert answer is not None
                run = await complete(answer=answer.with_id(run.run_id))
        if self.resumed is None:
            return run
        own = (self.run.thread_id, self.run.run_id)
        return await ledger.complete_run(*own, metadata={OUTCOME: "success", CHECKPOINT: checkpoint_id})


class RunStoppedError(Exception):
    """The failure of a run that was not over when its server stopped."""


def _config(run: MessageRun, request: NewRun, place: dict[str, Any]) -> Any:
    run_id = run.run_id
    own: dict[str, Any] = {name: value for name, value in (request.config or {}).items() if name in _CONFIG}
    metadata: dict[str, Any] = own.get("metadata") or {}
    return {
        **own,
        "configurable": {**request.configurable, **request.own_context, **place, "run_id": run_id},
        "metadata": {**metadata, **own_metadata(run.metadata), "run_id": run_id},
        "run_id": UUID(run_id),
    }


_CONFIG: Final = frozenset({"tags", "metadata", "recursion_limit", "max_concurrency", "run_name"})
