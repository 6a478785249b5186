"""Runs of agents, and their repetition after an edit: what the methods of `Ledger` take and return."""

from chatledger.domain.chat.runs import (
    MessageRun,
    PlannedRun,
    Regeneration,
    RegenerationPlan,
    RegenerationStep,
    RunData,
    RunEnd,
    RunMetadata,
)

__all__ = [
    "MessageRun",
    "PlannedRun",
    "Regeneration",
    "RegenerationPlan",
    "RegenerationStep",
    "RunData",
    "RunEnd",
    "RunMetadata",
]
