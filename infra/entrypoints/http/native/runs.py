"""Runs: what triggered an assistant, what it produced, and the context that it gets."""

from typing import Annotated, Final

import msgspec

from chatledger.domain.chat.runs import PYTHON, MessageRun, RunStatus
from chatledger.domain.errors import (
    BranchNotFoundError,
    ChatNotFoundError,
    ContextTooLargeError,
    MessageConflictError,
    MessageNotFoundError,
    PayloadTooLargeError,
    RunConflictError,
    RunNotFoundError,
    RunStatusError,
    WrongChatError,
)
from chatledger.domain.values import Message

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
    return call.ledger.record_run(
        chat_id,
        body.run_id,
        thread_id=body.thread_id,
        assistant_id=body.assistant_id,
        trigger_message_id=body.trigger_message_id,
        references=body.references,
        runtime=body.runtime,
        status=body.status,
        message_id=body.message_id,
        answer=None if body.answer is None else body.answer.new(),
        branch=body.branch,
        checkpoint_id=body.checkpoint_id,
    )


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
    completion = body or Completion()
    return call.ledger.complete_run(
        chat_id,
        run_id,
        message_id=completion.message_id,
        answer=None if completion.answer is None else completion.answer.new(),
        branch=completion.branch,
        checkpoint_id=completion.checkpoint_id,
    )


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


_NOT_FOUND: Final = (ChatNotFoundError, RunNotFoundError)
_ANSWER: Final = (MessageNotFoundError, BranchNotFoundError, WrongChatError, MessageConflictError, PayloadTooLargeError)

ROUTES: Final = [
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
        "POST", "/chats/{chat_id}/runs/{run_id}/complete", complete_run, raises=[*_NOT_FOUND, *_ANSWER, RunStatusError]
    ),
    Route("POST", "/chats/{chat_id}/runs/{run_id}/fail", fail_run, raises=[*_NOT_FOUND, RunStatusError]),
    Route(
        "GET",
        "/chats/{chat_id}/context",
        get_context,
        raises=[ChatNotFoundError, MessageNotFoundError, WrongChatError, ContextTooLargeError],
    ),
]
