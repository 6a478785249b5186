"""Reminders: texts that are added to a user message when a condition holds; see `reminder`."""

from chatledger.domain.context.calendar_predicates import (
    day_changed,
    hour_changed,
    month_changed,
    season_changed,
    week_changed,
    year_changed,
)
from chatledger.domain.context.content_predicates import (
    Count,
    content_includes,
    content_matches,
    content_pattern,
    last_assistant_length,
)
from chatledger.domain.context.predicates import (
    Predicate,
    ReminderContext,
    after_turn,
    and_,
    elapsed_exceeds,
    every_n_turns,
    every_of_last_n,
    first,
    first_n,
    not_,
    once,
    or_,
    usage_exceeds,
    within_last_n,
)
from chatledger.domain.context.reminders import is_reminder, reminder
from chatledger.domain.context.reminders_in_messages import strip_reminders
from chatledger.domain.context.summary import ChainSummary, summarise

__all__ = [
    "ChainSummary",
    "Count",
    "Predicate",
    "ReminderContext",
    "after_turn",
    "and_",
    "content_includes",
    "content_matches",
    "content_pattern",
    "day_changed",
    "elapsed_exceeds",
    "every_n_turns",
    "every_of_last_n",
    "first",
    "first_n",
    "hour_changed",
    "is_reminder",
    "last_assistant_length",
    "month_changed",
    "not_",
    "once",
    "or_",
    "reminder",
    "season_changed",
    "strip_reminders",
    "summarise",
    "usage_exceeds",
    "week_changed",
    "within_last_n",
    "year_changed",
]
