"""Runs: what triggered an assistant, what it produced, and its context; and which of them an edit makes stale, to be repeated step by step."""

from typing import Annotated, Any, Final, Literal

import msgspec

from chatledger.domain.chat.runs import MAX_CASCADE, PYTHON, MessageRun, Regeneration, RegenerationPlan, RunStatus
from chatledger.domain.errors import (
    BranchNotFoundError,
    ChatNotFoundError,
    ContextTooLargeError,
    InvalidValueError,
    MessageConflictError,
    MessageNotFoundError,
    PayloadTooLargeError,
    PlanOutdatedError,
    RegenerationNotFoundError,
    RunConflictError,
    RunNotFoundError,
    RunStatusError,
    WrongChatError,
)
from chatledger.domain.values import Message
from chatledger.domain.wire import Value

from ..routing import HttpCall, Route, existing
from .chats import get_chat
from .messages import MessageBody

Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class RunBody(msgspec.Struct, forbid_unknown_fields=True):
    """
    A run of an assistant on an agent thread, set off by a message; an edit of one of `references` makes it stale too.

    `message_id` names the stored message that it produced; `answer` is that message itself, to be appended to `branch`.
    """

    run_id: str
    thread_id: str
    assistant_id: str
    trigger_message_id: str | None = None
    references: list[str] = []
    runtime: str = PYTHON
    status: RunStatus | None = None
    message_id: str | None = None
    answer: MessageBody | None = None
    branch: str | None = None
    checkpoint_id: str | None = None


class Completion(msgspec.Struct, forbid_unknown_fields=True):
    """
    What a run produced: a stored message by `message_id`, or `answer`, which is appended to `branch`; or nothing to show.

    `checkpoint_id` is the checkpoint of its thread after the answer.
    """

    message_id: str | None = None
    answer: MessageBody | None = None
    branch: str | None = None
    checkpoint_id: str | None = None


class Suspension(msgspec.Struct, forbid_unknown_fields=True):
    """The checkpoint of its thread at which a run waits."""

    checkpoint_id: str | None = None


class Failure(msgspec.Struct, forbid_unknown_fields=True):
    """The checkpoint of its thread at which a run failed."""

    checkpoint_id: str | None = None


def _with_answer(body: RunBody | Completion) -> dict[str, Any]:
    """Return the fields of a body, which are arguments of the ledger, with the answer as the ledger takes it."""
    return msgspec.structs.asdict(body) | {"answer": None if body.answer is None else body.answer.new()}


def list_runs(
    call: HttpCall,
    chat_id: str,
    *,
    thread_id: str | None = None,
    assistant_id: str | None = None,
    trigger_message_id: str | None = None,
    message_id: str | None = None,
    status: RunStatus | None = None,
) -> list[MessageRun]:
    """List the runs of a chat in the order in which they were recorded. Filters combine."""
    get_chat(call, chat_id)
    return call.reader.runs(
        chat_id,
        thread_id=thread_id,
        assistant_id=assistant_id,
        trigger_message_id=trigger_message_id,
        message_id=message_id,
        status=status,
    )


def record_run(call: HttpCall, chat_id: str, body: RunBody) -> MessageRun:
    """Record that an assistant runs, or ran. Recording it again with the same values changes nothing."""
    return call.ledger.record_run(chat_id, **_with_answer(body))


def get_run(call: HttpCall, chat_id: str, run_id: str) -> MessageRun:
    """Read a run."""
    return existing(call.reader.get_run(chat_id, run_id), RunNotFoundError, chat_id, run_id)


def start_run(call: HttpCall, chat_id: str, run_id: str) -> MessageRun:
    """Mark a pending run as running, or a waiting run whose question was answered."""
    return call.ledger.start_run(chat_id, run_id)


def suspend_run(call: HttpCall, chat_id: str, run_id: str, body: Suspension | None = None) -> MessageRun:
    """Mark a running run as waiting for an answer to what it asked."""
    return call.ledger.suspend_run(chat_id, run_id, checkpoint_id=(body or Suspension()).checkpoint_id)


def complete_run(call: HttpCall, chat_id: str, run_id: str, body: Completion | None = None) -> MessageRun:
    """End a run with its answer, in one commit. Repeating it with the same values changes nothing."""
    return call.ledger.complete_run(chat_id, run_id, **_with_answer(body or Completion()))


def fail_run(call: HttpCall, chat_id: str, run_id: str, body: Failure | None = None) -> MessageRun:
    """End a run without an answer."""
    return call.ledger.fail_run(chat_id, run_id, checkpoint_id=(body or Failure()).checkpoint_id)


def get_context(
    call: HttpCall, chat_id: str, message_id: str, last_n: Count | None = None, max_tokens: Count | None = None
) -> list[Message]:
    """
    Read the chain up to a message, as context for a run that it triggers: root first, that message last.

    Hidden messages are left out, and in place of a replaced one stands its replacement. `last_n` limits the messages,
    `max_tokens` their tokens by an estimate, in whole turns.
    """
    return call.reader.get_context(chat_id, message_id, last_n, max_tokens=max_tokens)


Cascade = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1, description="So many runs may be repeated without approval.")]


class NewRegeneration(msgspec.Struct, forbid_unknown_fields=True):
    """
    A plan to be carried out, as `GET .../regeneration-plan` answers it, and the message that takes the place of the edited message.

    `branch` is the one to build, which contains the new message; the one that ends with it by default.
    """

    plan: RegenerationPlan
    new_message_id: str
    id: str | None = None
    branch: str | None = None


class Approval(msgspec.Struct, forbid_unknown_fields=True):
    """The runs that may be repeated; all by default."""

    run_ids: list[str] | None = None


class Repetition(msgspec.Struct, forbid_unknown_fields=True):
    """The old run that is repeated, by `repeats`, and the id of the new one."""

    repeats: str
    run_id: str | None = None
    status: Literal["pending", "running"] = "running"


class Stale(Value, frozen=True):
    """The ids of the messages that are stale now."""

    message_ids: list[str]


def plan_regeneration(
    call: HttpCall, chat_id: str, message_id: str, max_cascade: Cascade = MAX_CASCADE
) -> RegenerationPlan:
    """Plan what an edit of a message makes stale, in the order to repeat it. Nothing is started or written."""
    return call.reader.plan_regeneration(chat_id, message_id, max_cascade)


def mark_stale(call: HttpCall, chat_id: str, body: RegenerationPlan) -> Stale:
    """Annotate what the planned runs produced as stale."""
    return Stale(call.ledger.mark_stale(_plan(chat_id, body)))


def begin_regeneration(call: HttpCall, chat_id: str, body: NewRegeneration) -> Regeneration:
    """
    Write a plan down, mark its messages stale, and begin to build the branch, in one commit.

    Then, until `is_done`: repeat each run in `ready`, execute it, and complete it.
    """
    return call.ledger.begin_regeneration(
        _plan(chat_id, body.plan), new_message_id=body.new_message_id, regeneration_id=body.id, branch=body.branch
    )


def list_regenerations(call: HttpCall, chat_id: str) -> list[Regeneration]:
    """List the regenerations of a chat, the oldest first."""
    get_chat(call, chat_id)
    return call.reader.regenerations(chat_id)


def get_regeneration(call: HttpCall, chat_id: str, regeneration_id: str) -> Regeneration:
    """Read a regeneration: which steps are done, which are next."""
    regeneration = call.reader.get_regeneration(chat_id, regeneration_id)
    return existing(regeneration, RegenerationNotFoundError, chat_id, regeneration_id)


def approve_regeneration(
    call: HttpCall, chat_id: str, regeneration_id: str, body: Approval | None = None
) -> Regeneration:
    """Allow runs that await approval to be repeated."""
    return call.ledger.approve_regeneration(chat_id, regeneration_id, (body or Approval()).run_ids)


def repeat_run(call: HttpCall, chat_id: str, regeneration_id: str, body: Repetition) -> MessageRun:
    """Record the run that repeats another one; executing it is yours. Repeating the call changes nothing."""
    return call.ledger.repeat_run(chat_id, regeneration_id, body.repeats, run_id=body.run_id, status=body.status)


def _plan(chat_id: str, plan: RegenerationPlan) -> RegenerationPlan:
    # The ledger goes by the plan, which a client sends; an application's `authorize` was asked about the chat of the path.
    if plan.chat_id != chat_id:
        msg = f"the plan is of chat {plan.chat_id!r}, and the path of chat {chat_id!r}"
        raise InvalidValueError(msg)
    return plan


_MESSAGE: Final = (ChatNotFoundError, MessageNotFoundError, WrongChatError)
_REGENERATION: Final = (ChatNotFoundError, RegenerationNotFoundError)
_PATH: Final = "/chats/{chat_id}/regenerations"
_NOT_FOUND: Final = (ChatNotFoundError, RunNotFoundError)
_ANSWER: Final = (MessageNotFoundError, BranchNotFoundError, WrongChatError, MessageConflictError, PayloadTooLargeError)

ROUTES: Final = {
    "runs": [
        Route("GET", "/chats/{chat_id}/runs", list_runs, raises=[ChatNotFoundError]),
        Route(
            "POST",
            "/chats/{chat_id}/runs",
            record_run,
            status=201,
            raises=[ChatNotFoundError, *_ANSWER, RunConflictError],
        ),
        Route("GET", "/chats/{chat_id}/runs/{run_id}", get_run, raises=_NOT_FOUND),
        Route("POST", "/chats/{chat_id}/runs/{run_id}/start", start_run, raises=[*_NOT_FOUND, RunStatusError]),
        Route("POST", "/chats/{chat_id}/runs/{run_id}/suspend", suspend_run, raises=[*_NOT_FOUND, RunStatusError]),
        Route(
            "POST",
            "/chats/{chat_id}/runs/{run_id}/complete",
            complete_run,
            raises=[*_NOT_FOUND, *_ANSWER, RunStatusError],
        ),
        Route("POST", "/chats/{chat_id}/runs/{run_id}/fail", fail_run, raises=[*_NOT_FOUND, RunStatusError]),
        Route(
            "GET",
            "/chats/{chat_id}/context",
            get_context,
            raises=[ChatNotFoundError, MessageNotFoundError, WrongChatError, ContextTooLargeError],
        ),
    ],
    "regenerations": [
        Route("GET", "/chats/{chat_id}/regeneration-plan", plan_regeneration, raises=_MESSAGE),
        Route("POST", "/chats/{chat_id}/stale", mark_stale, raises=_MESSAGE),
        Route("GET", _PATH, list_regenerations, raises=[ChatNotFoundError]),
        Route(
            "POST",
            _PATH,
            begin_regeneration,
            status=201,
            raises=[*_MESSAGE, BranchNotFoundError, PlanOutdatedError, RunConflictError],
        ),
        Route("GET", _PATH + "/{regeneration_id}", get_regeneration, raises=_REGENERATION),
        Route(
            "POST",
            _PATH + "/{regeneration_id}/approve",
            approve_regeneration,
            raises=[*_REGENERATION, RunNotFoundError],
        ),
        Route(
            "POST",
            _PATH + "/{regeneration_id}/repeat",
            repeat_run,
            status=201,
            raises=[*_REGENERATION, RunNotFoundError, RunStatusError, RunConflictError],
        ),
    ],
}
