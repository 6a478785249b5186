"""
Conditions of reminders: what they are made of, and those about turns, time, the calendar and use.

A predicate is a function of a `ReminderContext` that says yes or no. Those made here can be combined, compared and read:

    >>> and_(after_turn(5), not_(once("recap")))
    and_(after_turn(5), not_(once('recap')))

Every part of a combination is asked, so that their order does not matter. A part that raises has no answer, and neither
has what depends on it: `or_(first(), broken)` holds in the first turn, `not_(broken)` never does.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final, NamedTuple, cast

import msgspec

from ..errors import InvalidValueError
from ..forms.plain import object_at
from ..forms.reading import text_of
from ..limits import check_count, check_id
from ..values import UI
from .messages import UIMessage
from .summary import ChainSummary, Summary


class ReminderContext(msgspec.Struct, frozen=True, kw_only=True):
    """
    The message that is about to be saved, and the conversation that it is added to.

    Args:
        now_ms: The time of the save, in ms since the epoch.
        chain: The conversation before the message; an engine reads of it what is asked for.
        usage: The token counts of the chat, from its metadata.
        message: The user message, without reminders.
        reply: The reply that a window such as `within_last_n` looks at, in place of the last assistant message.
    """

    now_ms: int
    chain: Summary = ChainSummary()
    usage: Mapping[str, Any] | None = None
    message: UIMessage = {}
    reply: UIMessage | None = None

    @property
    def turn(self) -> int:
        """The number of the message among the real user messages; 1 is the first."""
        return self.chain.turn + 1

    @property
    def content(self) -> str:
        """The plain text of the message."""
        return text_of(UI, self.message) if self.message else ""

    @property
    def elapsed_ms(self) -> int | None:
        """The time since the last real user message; None without one."""
        last = self.chain.last_message_at
        return None if last is None else self.now_ms - last

    @property
    def last_message(self) -> UIMessage | None:
        """The real user message before this one, as it is stored."""
        return self.chain.last_message

    @property
    def last_assistant_message(self) -> UIMessage | None:
        """The last message of the assistant; inside a window, the whole reply that it looks at."""
        return self.chain.last_assistant_message if self.reply is None else self.reply

    @property
    def total_tokens(self) -> int | float:
        """The tokens that the chat has used: `total_tokens` of its usage, or `totalTokens` as the AI SDK says; else 0."""
        usage = self.usage or {}
        count = usage.get("total_tokens", usage.get("totalTokens"))
        return count if isinstance(count, int | float) and not isinstance(count, bool) else 0

    @property
    def locale(self) -> Mapping[str, Any]:
        """The `locale` in the metadata of the message, or an empty object."""
        return object_at(self.message, "metadata", "locale")

    @property
    def time_zone(self) -> str | None:
        """The `time_zone` of the locale, or `timeZone` as browsers say; None if it has none."""
        name = self.locale.get("time_zone", self.locale.get("timeZone"))
        return name if isinstance(name, str) else None


def check_function(function: Any, what: str) -> Callable[[ReminderContext], Any]:
    """
    A function of a `ReminderContext`.

    Raises:
        InvalidValueError: It cannot be called, or it is asynchronous: what is decided at a save waits for nothing.
    """
    if not callable(function):
        msg = f"{what} must be a function of a ReminderContext, not {type(function).__name__}"
        raise InvalidValueError(msg)
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004 - it is looked at, not asked for
        msg = f"{what} must not be asynchronous; ask what it needs before, and pass a plain function"
        raise InvalidValueError(msg)
    return cast("Callable[[ReminderContext], Any]", function)


def ask(function: Callable[[ReminderContext], Any], context: ReminderContext) -> Any:
    """Call a function that users wrote. A coroutine is no answer: being an object, it would count as true."""
    answer = function(context)
    if inspect.iscoroutine(answer):
        answer.close()
        msg = "the function is asynchronous; it returned a coroutine"
        raise TypeError(msg)
    return answer


Predicate = Callable[[ReminderContext], bool]
OnError = Callable[[str, Exception], None]
"""Told which part raised what. Log the type of the error, not its text: that may quote the conversation."""


class Verdict(NamedTuple):
    """
    The answer of a predicate.

    `holds` is None if it has none, because a part raised. `once_ids` are the ids of `once` that have not fired before and
    that the answer rests on. If the reminder fires, they have fired.
    """

    holds: bool | None
    once_ids: frozenset[str] = frozenset()


@dataclass(frozen=True, repr=False)
class Condition:
    """A predicate that knows what it was made of: equal if made of the same, and shown as the call that makes it."""

    name: str
    arguments: tuple[Any, ...]
    decide: Callable[[ReminderContext, OnError], Verdict] = field(compare=False)

    def __call__(self, context: ReminderContext) -> bool:
        """Whether it holds. Raises what one of its parts raises; nothing counts as fired."""
        return bool(self.decide(context, _raise).holds)

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(map(name_of, self.arguments))})"


def judge(predicate: Predicate, context: ReminderContext, on_error: OnError) -> Verdict:
    """The answer of a predicate. Never raises: errors go to `on_error`."""
    try:
        if isinstance(predicate, Condition):
            return predicate.decide(context, on_error)
        return Verdict(bool(ask(predicate, context)))
    except Exception as error:  # noqa: BLE001 - users write predicates; no error of theirs may prevent a save
        on_error(name_of(predicate), error)
        return Verdict(None)


def condition(name: str, arguments: tuple[Any, ...], test: Callable[[ReminderContext], bool]) -> Condition:
    return Condition(name, arguments, lambda context, _on_error: Verdict(test(context)))


def name_of(value: Any) -> str:
    """A function by its name, anything else as Python shows it."""
    if callable(value) and not isinstance(value, Condition):
        return str(getattr(value, "__qualname__", type(value).__qualname__))
    return repr(value)


def check_positive(value: Any, what: str) -> int:
    """A whole number of at least 1."""
    if check_count(value, what) == 0:
        msg = f"{what} must be at least 1"
        raise InvalidValueError(msg)
    return int(value)


def every_n_turns(n: int) -> Predicate:
    """Return a predicate that holds in the turns n, 2n, 3n, ... (n >= 1)."""
    check_positive(n, "n of every_n_turns")
    return condition("every_n_turns", (n,), lambda context: context.turn % n == 0)


def first() -> Predicate:
    """Return a predicate that holds in the first turn of the conversation."""
    return condition("first", (), lambda context: context.turn == 1)


def first_n(n: int) -> Predicate:
    """Return a predicate that holds in the turns 1 to n (n >= 1)."""
    check_positive(n, "n of first_n")
    return condition("first_n", (n,), lambda context: context.turn <= n)


def after_turn(n: int) -> Predicate:
    """Return a predicate that holds in the turns after turn n (n >= 0)."""
    check_count(n, "n of after_turn")
    return condition("after_turn", (n,), lambda context: context.turn > n)


def once(once_id: str) -> Predicate:
    """
    Return a predicate that holds until it has fired in this conversation.

    It fires when its reminder is folded into a message and it is a reason for that. So it does not fire if the rest of a
    condition does not hold, if the reminder's text is blank, or if it stands in a part of an `or_` that does not hold. The
    ids that fired are stored with the message, `metadata.once_ids`, and hold for the messages after it. A branch that
    leaves the message out has not heard of them.

    `not_(once(id))` holds after it has fired. Asking that fires nothing.

    Args:
        once_id: Names what is to happen once. Reminders that share it fire together, in the same message.

    Raises:
        InvalidValueError: The id is empty or blank.
    """
    if not check_id(once_id, "id of once").strip():
        msg = "id of once must not be blank"
        raise InvalidValueError(msg)

    def decide(context: ReminderContext, _on_error: OnError) -> Verdict:
        has_fired = once_id in context.chain.once_ids
        return Verdict(not has_fired, frozenset() if has_fired else frozenset({once_id}))

    return Condition("once", (once_id,), decide)


def elapsed_exceeds(ms: int) -> Predicate:
    """Return a predicate that holds if more than this many milliseconds passed since the last real user message."""
    check_count(ms, "ms of elapsed_exceeds")
    return condition(
        "elapsed_exceeds", (ms,), lambda context: context.elapsed_ms is not None and context.elapsed_ms > ms
    )


def usage_exceeds(total_tokens: int) -> Predicate:
    """Return a predicate that holds if the chat has used at least this many tokens, by `metadata["usage"]` of the chat."""
    check_count(total_tokens, "total_tokens of usage_exceeds")
    return condition("usage_exceeds", (total_tokens,), lambda context: context.total_tokens >= total_tokens)


def and_(*predicates: Predicate) -> Predicate:
    """Return a predicate that holds if all of these do."""
    _check_parts(predicates, "and_")
    return Condition(
        "and_",
        predicates,
        lambda context, on_error: _all(judge(predicate, context, on_error) for predicate in predicates),
    )


def or_(*predicates: Predicate) -> Predicate:
    """Return a predicate that holds if any of these does."""
    _check_parts(predicates, "or_")
    return Condition(
        "or_",
        predicates,
        lambda context, on_error: _any(judge(predicate, context, on_error) for predicate in predicates),
    )


def not_(predicate: Predicate) -> Predicate:
    """Return a predicate that holds if this one does not. Nothing holds if it raises."""
    _check_parts((predicate,), "not_")
    return Condition("not_", (predicate,), lambda context, on_error: _not(judge(predicate, context, on_error)))


def within_last_n(n: int, predicate: Predicate) -> Predicate:
    """
    Return a predicate that holds if another does for any of the last n replies of the assistant.

    The other one sees each of these replies as the last assistant message; all else is as it is now.

    Args:
        n: How many replies, at least 1. Fewer are looked at when there are not as many.
        predicate: What to ask of each, such as `last_assistant_length({"gte": 2000})`.
    """
    check_positive(n, "n of within_last_n")
    _check_parts((predicate,), "within_last_n")
    return Condition(
        "within_last_n",
        (n, predicate),
        lambda context, on_error: _any(judge(predicate, reply, on_error) for reply in _window(n, context)),
    )


def every_of_last_n(n: int, predicate: Predicate) -> Predicate:
    """Return a predicate as `within_last_n`, that holds if another does for all of them, and there are n replies."""
    check_positive(n, "n of every_of_last_n")
    _check_parts((predicate,), "every_of_last_n")

    def decide(context: ReminderContext, on_error: OnError) -> Verdict:
        window = _window(n, context)
        if len(window) < n:
            return Verdict(holds=False)
        return _all(judge(predicate, reply, on_error) for reply in window)

    return Condition("every_of_last_n", (n, predicate), decide)


def _window(n: int, context: ReminderContext) -> list[ReminderContext]:
    return [msgspec.structs.replace(context, reply=reply) for reply in context.chain.assistant_replies[-n:]]


def _all(verdicts: Iterable[Verdict]) -> Verdict:
    """Combine verdicts: no if one is no, else none if one is none. It rests on those that decide it."""
    asked_all = list(verdicts)
    against = [verdict for verdict in asked_all if verdict.holds is False]
    if not against and any(verdict.holds is None for verdict in asked_all):
        return Verdict(None)
    return Verdict(not against, frozenset[str]().union(*(verdict.once_ids for verdict in against or asked_all)))


def _any(verdicts: Iterable[Verdict]) -> Verdict:
    # By De Morgan: so `or_` fires an id of `once` exactly where the same condition written with `and_` and `not_` does.
    return _not(_all(_not(verdict) for verdict in verdicts))


def _not(verdict: Verdict) -> Verdict:
    return Verdict(None if verdict.holds is None else not verdict.holds, verdict.once_ids)


def _check_parts(predicates: tuple[Predicate, ...], name: str) -> None:
    if not predicates:
        msg = f"{name} needs at least one predicate"
        raise InvalidValueError(msg)
    for predicate in predicates:
        check_function(predicate, f"a predicate in {name}")


def _raise(_part: str, error: Exception) -> None:
    raise error


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def hour_changed(tz: str | None = None) -> Predicate:
    """Return a predicate that holds if an hour has begun since; see `day_changed`."""
    # `fold` tells the two hours of the same name apart when clocks are set back.
    return _changed("hour_changed", tz, lambda time: (time.date(), time.hour, time.fold))


def day_changed(tz: str | None = None) -> Predicate:
    """
    Return a predicate that holds if the last real user message is of another day, or there is none.

    Args:
        tz: The time zone, as `Europe/Riga`. Else that of the message is taken, `metadata.locale.time_zone`, else UTC.

    Raises:
        InvalidValueError: There is no such time zone.
    """
    return _changed("day_changed", tz, lambda time: time.date())


def week_changed(tz: str | None = None) -> Predicate:
    """Return a predicate that holds if a week (ISO, from Monday) has begun since; see `day_changed`."""
    return _changed("week_changed", tz, lambda time: time.isocalendar()[:2])


def month_changed(tz: str | None = None) -> Predicate:
    """Return a predicate that holds if a month has begun since; see `day_changed`."""
    return _changed("month_changed", tz, lambda time: (time.year, time.month))


def season_changed(tz: str | None = None) -> Predicate:
    """
    Return a predicate that holds if a season has begun since; see `day_changed`.

    Seasons are the meteorological ones, which begin with March, June, September and December. They change on the same days
    in both hemispheres. A whole year later is another season.
    """
    # Months since December, by threes: winter belongs to the year of its January.
    return _changed("season_changed", tz, lambda time: (time.year * 12 + time.month) // 3)


def year_changed(tz: str | None = None) -> Predicate:
    """Return a predicate that holds if a year has begun since; see `day_changed`."""
    return _changed("year_changed", tz, lambda time: time.year)


def _changed(name: str, tz: str | None, period: Callable[[datetime], Any]) -> Predicate:
    """Return a predicate that holds if the message is of another period, in local time, than the last one."""
    fixed = None if tz is None else _zone(tz, f"tz of {name}")

    def test(context: ReminderContext) -> bool:
        if context.chain.last_message_at is None:
            return True
        zone = fixed or _zone(context.time_zone or "UTC", "the time zone in the metadata of the message")
        return bool(period(_local(context.now_ms, zone)) != period(_local(context.chain.last_message_at, zone)))

    return condition(name, () if tz is None else (tz,), test)


def _local(time_ms: int, zone: tzinfo) -> datetime:
    return (_EPOCH + timedelta(milliseconds=time_ms)).astimezone(zone)


def _zone(name: Any, what: str) -> tzinfo:
    if name == "UTC":
        return UTC  # there is one even where the system has no table of time zones
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, TypeError, AttributeError, OSError) as error:
        msg = (
            f"{what} is no time zone that this system knows; names are as Europe/Riga, see "
            "zoneinfo.available_timezones(), and the package tzdata brings them where the system has none"
        )
        raise InvalidValueError(msg) from error
