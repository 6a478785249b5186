"""
Questions of runs: a run that an interrupt stops waits, and the run that brings the answer goes on with its record.

As clients expect it, the answer comes in a run of its own, which has the stream and the checkpoints; what it produces is the
answer of the run that asked. A run that fails to bring the answer leaves the other waiting, so that it may be brought again.
"""

from collections.abc import Sequence
from contextlib import suppress

from chatledger.domain.chat.runs import MessageRun
from chatledger.domain.errors import RunStatusError

from ....ledger.aio.async_ledger import AsyncLedger
from ....ledger.threads import Threads
from .run_records import FAILURE, RESUMES, namespace_of


async def list_asking(ledger: AsyncLedger, thread_id: str, namespace: str) -> list[MessageRun]:
    """List the runs of a thread that wait for an answer, of those with a namespace, in the order of their records."""
    waiting = await ledger.run(
        lambda blocking: blocking.runs(thread_id, thread_id=thread_id, status="waiting", is_ended=False)
    )
    return [run for run in waiting if namespace_of(run) == namespace]


async def resume(ledger: AsyncLedger, run: MessageRun, checkpoint_id: str | None) -> MessageRun | None:
    """
    Let the run of the same assistant go on that waits for an answer, which this run brings; return it.

    None where none waits, or this run begins before the question.

    Args:
        ledger: The ledger.
        run: The run that brings the answer.
        checkpoint_id: The checkpoint that it begins at; None for the newest.
    """
    for asking in reversed(await list_asking(ledger, run.thread_id, namespace_of(run))):
        # An update of the state may stand between the question and the answer. Ids of checkpoints are in the order of time.
        if checkpoint_id is None or checkpoint_id >= (asking.checkpoint_id or ""):
            with suppress(RunStatusError):  # it has just been ended
                # First, so that the server that finds this run lost knows which one it leaves waiting.
                await ledger.update_run(run.thread_id, run.run_id, {RESUMES: asking.run_id})
                return await ledger.start_run(run.thread_id, asking.run_id)
    return None


async def let_go(ledger: AsyncLedger, run: MessageRun) -> None:
    """
    Leave the run waiting to which a run that ends was to bring the answer; nothing where it has ended.

    A run that brings none ends the questions of its assistant where it wrote to the state: nobody can answer them any more.
    """
    own = await ledger.get_run(run.thread_id, run.run_id)
    if own is not None and RESUMES in own.metadata:
        with suppress(RunStatusError):
            await ledger.suspend_run(run.thread_id, own.metadata[RESUMES])
        return
    asking = await list_asking(ledger, run.thread_id, namespace_of(run))
    if not asking:
        return
    written = await ledger.run(lambda blocking: Threads(blocking).of_run(run.run_id))
    if written:
        await give_up(ledger, asking, f"run {run.run_id} went on without an answer")


async def give_up(ledger: AsyncLedger, asking: Sequence[MessageRun], why: str) -> None:
    """End runs that wait for an answer which cannot come any more."""
    for run in asking:
        with suppress(RunStatusError):
            what = {"error": "QuestionAbandoned", "message": why}
            await ledger.fail_run(run.thread_id, run.run_id, metadata={FAILURE: what})
