"""
What runs say to a chat: the messages that set them off, their questions, and their answers.

The input of a run is made of the message that sets it off, and what it says becomes that message's answer. A run that an
interrupt stops waits. As clients expect it, the answer to it comes in a run of its own, which has the stream and the checkpoints;
what that produces is the answer of the run that asked. A run that fails to bring the answer leaves the other waiting, so that it
may be brought again.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, cast

import msgspec
from langchain_core.messages import AIMessage, BaseMessage
from langgraph.checkpoint.base import CheckpointTuple

from chatledger.domain.chat.runs import MessageRun
from chatledger.domain.context.fragments import Fragment
from chatledger.domain.errors import InvalidValueError, RunStatusError

from ....ledger.aio.async_ledger import AsyncLedger
from ....ledger.drafts import adopted, assistant_text
from ....ledger.langchain import to_langchain
from ....ledger.ledger import Ledger
from ....ledger.threads import Threads
from .run_records import FAILURE, RESUMES, namespace_of
from .run_requests import NewRun

_MESSAGES = "messages"


async def with_messages(ledger: AsyncLedger, run: MessageRun, request: NewRun) -> NewRun:
    """Return the request with the references and the trigger of the run as its messages, unless it has messages or a command."""
    asked_input: Any = request.input
    trigger_id = run.trigger_message_id
    if trigger_id is None or request.command is not None or not isinstance(asked_input, dict | None):
        return request
    fields = cast("dict[str, Any]", asked_input or {})
    if _MESSAGES in fields:
        return request

    def read(blocking: Ledger) -> list[BaseMessage]:
        # The trigger comes last: a model answers the last message that it gets.
        sources = [blocking.get_message(message_id) for message_id in (*run.references, trigger_id)]
        return to_langchain([message for message in sources if message is not None])

    return msgspec.structs.replace(request, input={**fields, _MESSAGES: await ledger.run(read)})


class Answering:
    """The answer of a run that begins at a checkpoint: the last message of an assistant that it added to `messages`, or what a function yielded."""

    def __init__(self, before: CheckpointTuple | None, run_input: Any, run: MessageRun) -> None:
        # Messages of the state, the input, or the chat are no answer, wherever the graph puts them in its state again.
        earlier = _messages_of(before)
        self._count = len(earlier)
        own: Any = cast("dict[str, Any]", run_input).get(_MESSAGES) if isinstance(run_input, dict) else None
        self._known = {identified.id for identified in (*earlier, *_messages(own)) if identified.id is not None}
        self._known |= {
            identified for identified in (run.trigger_message_id, *run.references) if identified is not None
        }
        self._texts: list[str] = []

    def take(self, name: str, data: Any) -> None:
        if name == "data" and isinstance(data, dict):
            self._texts.append(str(cast("dict[str, Any]", data).get("content", "")))

    def answer(self, spare_id: str, after: CheckpointTuple | None) -> Fragment | None:
        """Return the answer as a message of the chat, under `spare_id` where it has none, as a state has ids once; None where there is none."""
        if after is None:
            return assistant_text("".join(self._texts), spare_id) if any(self._texts) else None
        messages = _messages_of(after)
        if not messages or not isinstance(messages[-1], AIMessage):
            return None
        own_id = messages[-1].id
        is_new = len(messages) > self._count if own_id is None else own_id not in self._known
        try:
            if not is_new:
                return None
            fragment: Fragment = adopted(messages[-1])
            return fragment if own_id is not None else fragment.with_id(spare_id)
        except InvalidValueError:
            return assistant_text(str(messages[-1].text), spare_id)  # it has something that JSON has no form for


def _messages_of(checkpoint: CheckpointTuple | None) -> list[BaseMessage]:
    return [] if checkpoint is None else _messages(checkpoint.checkpoint["channel_values"].get(_MESSAGES))


def _messages(value: Any) -> list[BaseMessage]:
    items: Sequence[Any] = cast("Sequence[Any]", value) if isinstance(value, list | tuple) else ()
    return [item for item in items if isinstance(item, BaseMessage)]


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
