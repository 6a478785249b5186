"""Repeating runs after an edit: the steps of a regeneration that are ready are executed by the graphs registered here."""

import logging
from typing import Any, Final, cast

from chatledger.domain.chat.runs import MessageRun, Regeneration, RegenerationStep
from chatledger.domain.errors import ChatledgerError, RegenerationNotFoundError, RunConflictError, RunStatusError
from chatledger.domain.limits import check_id

from ....ledger.aio.async_ledger import AsyncLedger
from ..access import Principal
from ..problems import RequestError
from .contract import AgentCall, route
from .known_threads import find_thread
from .run_records import KWARGS, NAMESPACE, is_served, shown_run
from .run_requests import REFERENCES, TRIGGER, NewRun
from .runs import Runs

_KEPT: Final = ("config", "context", "stream_mode", "interrupt_before", "interrupt_after", "durability")
_log: Final = logging.getLogger("chatledger.server")


async def repeat(call: AgentCall, thread_id: str, regeneration_id: str) -> list[dict[str, Any]]:
    """
    Execute the steps of a regeneration that are ready, and those that failed; and whatever becomes ready when these are done.

    Only runs that were begun over this API are repeated here. Answers with the runs that were begun now.
    """
    await call.run(find_thread, call, check_id(thread_id, "thread_id"))
    begun = await repeat_ready(
        call.runs, call.principal, call.async_ledger, thread_id, regeneration_id, with_failed=True
    )
    return [shown_run(run) for run in begun]


async def repeat_ready(
    runs: Runs,
    principal: Principal,
    ledger: AsyncLedger,
    chat_id: str,
    regeneration_id: str,
    *,
    with_failed: bool = False,
) -> list[MessageRun]:
    """Begin the runs of the steps that are ready, and return them."""
    regeneration = await ledger.get_regeneration(chat_id, regeneration_id)
    if regeneration is None:
        raise RegenerationNotFoundError(chat_id, regeneration_id)
    wanted = {"ready", "error"} if with_failed else {"ready"}
    begun = [
        await _repeated(runs, principal, ledger, regeneration, step)
        for step in regeneration.steps
        if step.status in wanted
    ]
    return [run for run in begun if run is not None]


async def carry_on(runs: Runs, principal: Principal, ledger: AsyncLedger, run: MessageRun) -> None:
    """Begin the steps of a regeneration that are ready now that one of its runs has ended."""
    if run.regeneration_id is None:
        return
    try:
        await repeat_ready(runs, principal, ledger, run.chat_id, run.regeneration_id)
    except (ChatledgerError, RequestError):
        # The run that has ended is not to fail for it; `repeat` begins the steps again.
        _log.exception("regeneration %s of chat %s does not go on by itself", run.regeneration_id, run.chat_id)


async def _repeated(
    runs: Runs, principal: Principal, ledger: AsyncLedger, regeneration: Regeneration, step: RegenerationStep
) -> MessageRun | None:
    """Begin the run of a step; None where it is an application's, or another request has just begun it."""
    chat_id, repeats = regeneration.chat_id, step.repeats.run_id
    old = await ledger.get_run(chat_id, repeats)
    if old is None or not is_served(old) or old.thread_id != chat_id:
        return None
    assistant = await runs.graphs.assistant(principal, old.assistant_id)
    request = _request(old, step)

    async def record(run_id: str) -> MessageRun:
        return await ledger.repeat_run(
            chat_id,
            regeneration.id,
            repeats,
            run_id=run_id,
            status="pending",
            metadata=request.recorded(old.metadata),
        )

    try:
        return await runs.begin_recorded(principal, ledger, chat_id, assistant, request, record)
    except (RunConflictError, RunStatusError):
        return None


def _request(old: MessageRun, step: RegenerationStep) -> NewRun:
    """Return the request for a repeated run: that of the old one, with the new messages."""
    kwargs = cast("dict[str, Any]", old.metadata[KWARGS])
    config: dict[str, Any] = dict(kwargs.get("config") or {})
    messages = {TRIGGER: step.trigger_message_id, REFERENCES: list(step.references)}
    namespace = {"checkpoint_ns": old.metadata[NAMESPACE]} if NAMESPACE in old.metadata else {}
    config["configurable"] = {**NewRun(assistant_id="", config=config).configurable, **messages, **namespace}
    old_input: Any = kwargs.get("input")
    rest = cast("dict[str, Any]", old_input).items() if isinstance(old_input, dict) else ()
    kept: dict[str, Any] = {name: kwargs.get(name) for name in _KEPT} | {"config": config}
    return NewRun(
        assistant_id=old.assistant_id,
        input={name: value for name, value in rest if name != "messages"},
        stream_subgraphs=kwargs.get("subgraphs"),
        **kept,
    )


ROUTES: Final = [route("POST", "/threads/{thread_id}/regenerations/{regeneration_id}/runs", repeat)]
