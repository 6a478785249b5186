"""Regenerations: which runs an edit makes stale, and repeating them step by step."""

from typing import Annotated, Final, Literal

import msgspec

from chatledger.domain.chat.runs import MAX_CASCADE, MessageRun, Regeneration, RegenerationPlan
from chatledger.domain.errors import (
    BranchNotFoundError,
    ChatNotFoundError,
    InvalidValueError,
    MessageNotFoundError,
    PlanOutdatedError,
    RegenerationNotFoundError,
    RunConflictError,
    RunNotFoundError,
    RunStatusError,
    WrongChatError,
)
from chatledger.domain.wire import Value

from ..routing import HttpCall, Route, existing
from .chats import get_chat

Cascade = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1, description="So many runs may be repeated without approval.")]


class NewRegeneration(msgspec.Struct, forbid_unknown_fields=True):
    """
    A plan to be carried out, as `GET .../regeneration-plan` answers it, and the message that takes the place of the edited one.

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

ROUTES: Final = [
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
        "POST", _PATH + "/{regeneration_id}/approve", approve_regeneration, raises=[*_REGENERATION, RunNotFoundError]
    ),
    Route(
        "POST",
        _PATH + "/{regeneration_id}/repeat",
        repeat_run,
        status=201,
        raises=[*_REGENERATION, RunNotFoundError, RunStatusError, RunConflictError],
    ),
]
