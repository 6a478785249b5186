"""Conditions of reminders (CE-34)."""

import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from itertools import permutations, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.cases import case

from chatledger.domain.context.content_predicates import (
    Topics,
    content_includes,
    content_matches,
    content_pattern,
    last_assistant_length,
    words,
)
from chatledger.domain.context.predicates import (
    Predicate,
    ReminderContext,
    Verdict,
    after_turn,
    and_,
    day_changed,
    elapsed_exceeds,
    every_n_turns,
    every_of_last_n,
    first,
    first_n,
    hour_changed,
    judge,
    month_changed,
    name_of,
    not_,
    once,
    or_,
    season_changed,
    usage_exceeds,
    week_changed,
    within_last_n,
    year_changed,
)
from chatledger.domain.context.summary import ChainSummary
from chatledger.domain.errors import InvalidValueError

HOUR_MS = 3_600_000


def ui(text: str, role: str = "user") -> dict[str, Any]:
    return {"id": "m", "role": role, "parts": [{"type": "text", "text": text}]}


def in_turn(turn: int, *fired: str) -> ReminderContext:
    return ReminderContext(now_ms=0, chain=ChainSummary(turn=turn - 1, once_ids=frozenset(fired)))


def saying(text: str) -> ReminderContext:
    return ReminderContext(now_ms=0, message=ui(text))


def after_replies(*texts: str) -> ReminderContext:
    replies = tuple(ui(text, "assistant") for text in texts)
    last = replies[-1] if replies else None
    return ReminderContext(now_ms=0, chain=ChainSummary(assistant_replies=replies, last_assistant_message=last))


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def between(last: str | None, now: str, **locale: str) -> ReminderContext:
    """A message at one time after one at another, both ISO with their offset."""
    chain = ChainSummary() if last is None else ChainSummary(turn=1, last_message_at=ms(last))
    message = {**ui("x"), "metadata": {"locale": locale}} if locale else ui("x")
    return ReminderContext(now_ms=ms(now), chain=chain, message=message)


def no_errors(part: str, error: Exception) -> None:
    msg = f"{part}: {error}"
    raise AssertionError(msg)


def turns(predicate: Predicate) -> list[int]:
    """In which of the first ten turns it holds."""
    return [turn for turn in range(1, 11) if predicate(in_turn(turn))]


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (every_n_turns(1), list(range(1, 11))),
        (every_n_turns(4), [4, 8]),
        (every_n_turns(11), []),
        (first(), [1]),
        (first_n(1), [1]),
        (first_n(3), [1, 2, 3]),
        (after_turn(0), list(range(1, 11))),
        (after_turn(8), [9, 10]),
        (and_(every_n_turns(3), after_turn(5)), [6, 9]),
        (or_(first(), every_n_turns(5)), [1, 5, 10]),
        (not_(first_n(8)), [9, 10]),
        (and_(or_(first(), after_turn(8)), not_(every_n_turns(10))), [1, 9]),
    ],
    ids=repr,
)
def test_turns(predicate: Predicate, expected: list[int]) -> None:
    assert expected == turns(predicate)


@pytest.mark.parametrize(
    ("elapsed", "holds"), [(None, False), (-5, False), (0, False), (999, False), (1000, False), (1001, True)]
)
def test_elapsed(elapsed: int | None, *, holds: bool) -> None:
    """More than the given time, since the last real user message; without one nothing has elapsed."""
    chain = ChainSummary(last_message_at=None if elapsed is None else 50_000 - elapsed)

    assert holds == elapsed_exceeds(1000)(ReminderContext(now_ms=50_000, chain=chain))


@pytest.mark.parametrize(
    ("usage", "holds"),
    [
        (None, False),
        ({}, False),
        ({"total_tokens": 99}, False),
        ({"total_tokens": 100}, True),
        ({"total_tokens": 100.5}, True),
        ({"totalTokens": 100}, True),  # as the AI SDK says
        ({"total_tokens": "100"}, False),
        ({"total_tokens": True}, False),
        ({"input_tokens": 500}, False),
    ],
)
def test_usage(usage: dict[str, Any] | None, *, holds: bool) -> None:
    """At least so many, of the total of the chat."""
    assert holds == usage_exceeds(100)(ReminderContext(now_ms=0, usage=usage))


def test_usage_of_zero_always_holds() -> None:
    assert usage_exceeds(0)(ReminderContext(now_ms=0))


@pytest.mark.parametrize(
    ("listed", "text", "holds"),
    [
        (["refund"], "My REFUND?", True),
        (["REFUND"], "my refund", True),
        (["a", "refund"], "refund", True),
        (["fund"], "refund", True),
        (["refund"], "re fund", False),
        (["refund"], "", False),
        (["STRASSE"], "Brīvības straße", True),
        ({"visa"}, "a visa for Latvia", True),
    ],
)
def test_content_includes(listed: Any, text: str, *, holds: bool) -> None:
    assert holds == content_includes(listed)(saying(text))


@pytest.mark.parametrize(
    ("pattern", "text", "holds"),
    [
        (r"\d{4}", "in 2026", True),
        (r"^\d{4}", "in 2026", False),
        ("visa", "VISA", False),
        ("(?i)visa", "VISA", True),
        (re.compile("visa", re.IGNORECASE), "VISA", True),
        ("", "", True),
    ],
)
def test_content_pattern(pattern: Any, text: str, *, holds: bool) -> None:
    """It may match anywhere; asking again gives the same."""
    predicate = content_pattern(pattern)

    assert [holds, holds] == [predicate(saying(text)), predicate(saying(text))]


REFUNDS = ["refund, money back", "delivery, parcel, shipping"]


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("I want my money BACK", True),
        ("where's the parcel?", True),
        ("the weather in Riga", False),
        ("refunded", False),  # words, not pieces of them
        ("", False),
    ],
)
def test_content_matches(text: str, *, holds: bool) -> None:
    assert holds == content_matches(REFUNDS)(saying(text))


def test_threshold_must_be_exceeded() -> None:
    """The score of the best topic counts, and equal is not enough."""
    score = Topics(REFUNDS).best_score("refund my money")

    assert content_matches(REFUNDS, score - 0.001)(saying("refund my money"))
    assert not content_matches(REFUNDS, score)(saying("refund my money"))
    assert Topics(REFUNDS).best_score("refund the parcel") < score, "two topics with a word each are not one with two"


def test_bm25_by_hand() -> None:
    """ln(1 + (2 - 1 + .5) / (1 + .5)) * f * 2.2 / (f + 1.2 * (.25 + .75 * length / mean length))."""
    topics = Topics(["tax tax", "riga old town walk"])

    assert 0.693147 * 2 * 2.2 / (2 + 1.2 * (0.25 + 0.75 * 2 / 3)) == pytest.approx(topics.best_score("TAX!"), rel=1e-5)
    assert topics.best_score("tax") == topics.best_score("tax tax tax"), "repeating a word does not help"
    assert 0 == topics.best_score("sea")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It's snake_case, e-mail", ["it", "s", "snake", "case", "e", "mail"]),
        ("Cafe\u0301 CAFÉ", ["café", "café"]),
        ("Straße STRASSE", ["strasse", "strasse"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("ﬁne №5", ["fine", "no5"]),
        (" \n", []),
    ],
)
def test_words(text: str, found: list[str]) -> None:
    """Of any script, marks included, without case and compatibility forms."""
    assert found == words(text)


@given(st.text(max_size=30), st.lists(st.text("ab c", min_size=1).filter(words), min_size=1, max_size=4))
def test_scores_are_never_negative(text: str, topics: list[str]) -> None:
    score = Topics(topics).best_score(text)

    shared = {word for topic in topics for word in words(topic)} & set(words(text))
    assert (score > 0) == bool(shared)
    assert score >= 0


@pytest.mark.parametrize(
    ("count", "lengths"),
    [
        ({"gte": 3}, [3, 4, 5]),
        ({"lte": 1}, [0, 1]),
        ({"gte": 2, "lte": 3}, [2, 3]),
        ({"gte": 3, "lte": 2}, []),
        ({"eq": 0}, [0]),
        ({"eq": 4}, [4]),
    ],
)
def test_last_assistant_length(count: Any, lengths: list[int]) -> None:
    """In code points."""
    predicate = last_assistant_length(count)

    assert lengths == [length for length in range(6) if predicate(after_replies("🦜" * length))]


def test_no_assistant_message_has_no_length() -> None:
    """Not even a short one."""
    assert not last_assistant_length({"lte": 1000})(after_replies())


LONG = last_assistant_length({"gte": 4})


@pytest.mark.parametrize(
    ("n", "replies", "any_holds", "all_hold"),
    [
        (1, [], False, False),
        (1, ["long"], True, True),
        (1, ["long", "no"], False, False),
        (2, ["long", "no"], True, False),
        (2, ["no", "long", "long"], True, True),
        (3, ["long", "long"], True, False),  # a streak of three needs three
        (3, ["no", "no"], False, False),
    ],
)
def test_windows(n: int, replies: list[str], *, any_holds: bool, all_hold: bool) -> None:
    context = after_replies(*replies)

    assert any_holds == within_last_n(n, LONG)(context)
    assert all_hold == every_of_last_n(n, LONG)(context)


def test_a_window_shows_whole_replies_and_leaves_the_rest_alone() -> None:
    """Where the last message is only a segment of the last reply."""
    chain = ChainSummary(
        turn=4, assistant_replies=(ui("ab", "assistant"),), last_assistant_message=ui("b", "assistant")
    )
    context = ReminderContext(now_ms=0, chain=chain, message=ui("hello"))

    assert last_assistant_length({"eq": 1})(context)
    assert within_last_n(1, last_assistant_length({"eq": 2}))(context)
    assert within_last_n(1, and_(every_n_turns(5), content_includes(["hello"])))(context)


REFUSED: list[tuple[Any, list[Any], str]] = [
    (every_n_turns, [0], "n of every_n_turns must be at least 1"),
    (every_n_turns, [-1], "n of every_n_turns must be a whole number"),
    (every_n_turns, [1.0], "whole number"),
    (every_n_turns, [True], "whole number"),
    (every_n_turns, ["3"], "whole number"),
    (first_n, [0], "n of first_n must be at least 1"),
    (first_n, [-3], "n of first_n"),
    (after_turn, [-1], "n of after_turn"),
    (elapsed_exceeds, [-1], "ms of elapsed_exceeds"),
    (usage_exceeds, [-1], "total_tokens of usage_exceeds"),
    (within_last_n, [0, first()], "n of within_last_n must be at least 1"),
    (within_last_n, [-1, first()], "n of within_last_n"),
    (within_last_n, [1, None], "a predicate in within_last_n must be a function"),
    (every_of_last_n, [0, first()], "n of every_of_last_n must be at least 1"),
    (every_of_last_n, [-1, first()], "n of every_of_last_n"),
    (every_of_last_n, [1, True], "a predicate in every_of_last_n must be a function"),
    (once, [""], "id of once must not be empty"),
    (once, [" \n"], "id of once must not be blank"),
    (once, [None], "id of once must be text"),
    (content_includes, [[]], "at least one text"),
    (content_includes, [[""]], "none of them empty"),
    (content_includes, ["refund"], "must be a list of texts, not str"),
    (content_includes, [5], "must be a list of texts, not int"),
    (content_includes, [[5]], "must be a list of at least one text"),
    (content_pattern, ["("], "no regular expression"),
    (content_pattern, [5], "no regular expression"),
    (content_pattern, [b"x"], "give it as text"),
    (content_matches, [[]], "at least one text"),
    (content_matches, [["tax", "--"]], "must have words"),
    (content_matches, [["tax"], -0.1], "threshold"),
    (content_matches, [["tax"], float("nan")], "threshold"),
    (content_matches, [["tax"], "0.5"], "threshold"),
    (last_assistant_length, [{}], "count must be an object"),
    (last_assistant_length, [5], "count must be an object"),
    (last_assistant_length, [{"gt": 1}], "count must be an object"),
    (last_assistant_length, [{"eq": 1, "gte": 1}], "eq of a count stands alone"),
    (last_assistant_length, [{"eq": 1, "lte": 1}], "eq of a count stands alone"),
    (last_assistant_length, [{"gte": -1}], "gte of a count"),
    (last_assistant_length, [{"lte": None}], "lte of a count"),
    (and_, [], "and_ needs at least one"),
    (and_, [first(), 1], "a predicate in and_ must be a function"),
    (or_, [], "or_ needs at least one"),
    (not_, ["first"], "a predicate in not_ must be a function"),
    (hour_changed, ["Mars/Olympus"], "tz of hour_changed is no time zone"),
    (day_changed, ["Mars/Olympus"], "tz of day_changed is no time zone"),
    (week_changed, ["Mars/Olympus"], "tz of week_changed is no time zone"),
    (month_changed, ["Mars/Olympus"], "tz of month_changed is no time zone"),
    (season_changed, ["Mars/Olympus"], "tz of season_changed is no time zone"),
    (year_changed, ["Mars/Olympus"], "tz of year_changed is no time zone"),
    (day_changed, [""], "no time zone"),
    (day_changed, ["Europe"], "no time zone"),
    (day_changed, ["../../etc/passwd"], "no time zone"),
    (day_changed, ["Europe/\0"], "no time zone"),
    (day_changed, [5], "no time zone"),
]


def test_values_that_break_a_rule_are_refused() -> None:
    """At construction, not at the first save."""
    for make, arguments, message in REFUSED:
        with case(make, arguments), pytest.raises(InvalidValueError, match=message):
            make(*arguments)


def test_asynchronous_predicates_are_refused() -> None:
    """A coroutine would count as true."""

    async def later(_context: ReminderContext) -> bool:
        return False

    with pytest.raises(InvalidValueError, match="must not be asynchronous"):
        and_(later)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - that is the case


@pytest.mark.parametrize(
    ("predicate", "shown"),
    [
        (every_n_turns(3), "every_n_turns(3)"),
        (first(), "first()"),
        (day_changed("Europe/Riga"), "day_changed('Europe/Riga')"),
        (day_changed(), "day_changed()"),
        (last_assistant_length({"gte": 5, "lte": 9}), "last_assistant_length({'gte': 5, 'lte': 9})"),
        (content_pattern("a+"), "content_pattern(re.compile('a+'))"),
        (content_matches(["tax"], 0.5), "content_matches(('tax',), 0.5)"),
        (and_(after_turn(5), not_(once("w"))), "and_(after_turn(5), not_(once('w')))"),
        (within_last_n(2, or_(first(), turns)), "within_last_n(2, or_(first(), turns))"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - any function will do
    ],
    ids=repr,
)
def test_predicates_are_shown_as_the_calls_that_make_them(predicate: Predicate, shown: str) -> None:
    assert shown == repr(predicate)


def test_predicates_made_of_the_same_are_equal() -> None:
    assert and_(once("w"), content_includes(["a"])) == and_(once("w"), content_includes(["a"]))
    assert once("w") != once("v")
    assert and_(first(), once("w")) != or_(first(), once("w"))
    assert 2 == len({first(), first(), last_assistant_length({"eq": 1}), last_assistant_length({"eq": 1})})


def broken(_context: ReminderContext) -> bool:
    msg = "secret content"
    raise LookupError(msg)


@pytest.mark.parametrize(
    ("predicate", "holds"),
    [
        (broken, None),
        (not_(broken), None),
        (and_(first(), broken), None),
        (and_(not_(first()), broken), False),
        (or_(first(), broken), True),
        (or_(not_(first()), broken), None),
        (not_(and_(not_(first()), broken)), True),
        (within_last_n(1, broken), None),
        (every_of_last_n(2, broken), False),
    ],
)
def test_a_part_that_raises_has_no_answer(predicate: Predicate, *, holds: bool | None) -> None:
    """It makes nothing hold, under `not_` either; it is reported by name; and what does not depend on it holds."""
    reported: list[tuple[str, str]] = []

    verdict = judge(predicate, after_replies("x"), lambda part, error: reported.append((part, type(error).__name__)))

    assert holds == verdict.holds
    assert ([] if holds is False and "every" in repr(predicate) else [("broken", "LookupError")]) == reported


def test_a_predicate_that_is_called_raises() -> None:
    """Outside of a save, errors are the caller's."""
    with pytest.raises(LookupError):
        and_(first(), broken)(in_turn(1))


def test_a_hidden_coroutine_is_no_answer() -> None:
    async def later() -> bool:
        return True

    reported: list[Exception] = []

    def predicate(_context: ReminderContext) -> Any:
        return later()

    assert judge(predicate, in_turn(1), lambda _part, error: reported.append(error)).holds is None
    assert ["TypeError"] == [type(error).__name__ for error in reported]


def test_whatever_is_true_holds() -> None:
    """Plain functions may return any object, such as a match."""
    assert judge(lambda context: re.search("a", context.content), saying("cat"), no_errors).holds  # type: ignore[arg-type, return-value]  # pyright: ignore[reportArgumentType] - that is the case


W, V = frozenset({"w"}), frozenset({"v"})
NONE: frozenset[str] = frozenset()
YES, NO = first_n(9), after_turn(9)


@pytest.mark.parametrize(
    ("predicate", "unfired", "fired"),
    [
        (once("w"), Verdict(holds=True, once_ids=W), Verdict(holds=False)),
        (not_(once("w")), Verdict(holds=False, once_ids=W), Verdict(holds=True)),
        (not_(not_(once("w"))), Verdict(holds=True, once_ids=W), Verdict(holds=False)),
        (and_(once("w"), YES), Verdict(holds=True, once_ids=W), Verdict(holds=False)),
        (and_(NO, once("w")), Verdict(holds=False), Verdict(holds=False)),
        (or_(YES, once("w")), Verdict(holds=True, once_ids=W), Verdict(holds=True)),
        (or_(YES, and_(NO, once("w"))), Verdict(holds=True), Verdict(holds=True)),
        (or_(YES, not_(once("w"))), Verdict(holds=True), Verdict(holds=True)),
        (and_(once("w"), once("v")), Verdict(holds=True, once_ids=W | V), Verdict(holds=False)),
        (or_(once("w"), once("v")), Verdict(holds=True, once_ids=W | V), Verdict(holds=True, once_ids=V)),
        (not_(and_(not_(once("w")), YES)), Verdict(holds=True, once_ids=W), Verdict(holds=False)),
        (not_(or_(once("w"), NO)), Verdict(holds=False, once_ids=W), Verdict(holds=True)),
        (within_last_n(1, once("w")), Verdict(holds=True, once_ids=W), Verdict(holds=False)),
        (every_of_last_n(1, once("w")), Verdict(holds=True, once_ids=W), Verdict(holds=False)),
    ],
    ids=lambda value: "" if isinstance(value, Verdict) else name_of(value),
)
def test_once_fires_where_the_answer_rests_on_it(predicate: Predicate, unfired: Verdict, fired: Verdict) -> None:
    """Before and after `w` has fired: whether the condition holds, and which ids fire if it does."""
    chain = ChainSummary(assistant_replies=(ui("x", "assistant"),))
    before = ReminderContext(now_ms=0, chain=chain)
    after = ReminderContext(now_ms=0, chain=ChainSummary(assistant_replies=chain.assistant_replies, once_ids=W))

    assert unfired == judge(predicate, before, no_errors)
    assert fired == judge(predicate, after, no_errors)


PARTS: tuple[Predicate, ...] = (YES, NO, once("w"), once("fired"), not_(once("w")), not_(once("fired")), broken)


def test_order_does_not_matter_and_de_morgan_holds() -> None:
    """Not even for what fires."""

    def answer(predicate: Predicate) -> Verdict:
        return judge(predicate, in_turn(1, "fired"), lambda _part, _error: None)

    for parts in product(PARTS, repeat=2):
        with case(*map(name_of, parts)):
            for combine in (and_, or_):
                assert 1 == len({answer(combine(*order, YES)) for order in permutations(parts)})
            assert answer(or_(*parts)) == answer(not_(and_(*map(not_, parts))))


@pytest.mark.parametrize(
    ("change", "last", "now", "holds"),
    [
        (hour_changed, "2026-03-01T10:00:00Z", "2026-03-01T10:59:59.999Z", False),
        (hour_changed, "2026-03-01T10:59:59.999Z", "2026-03-01T11:00:00Z", True),
        (hour_changed, "2026-03-01T10:00:00Z", "2026-03-02T10:00:00Z", True),
        (day_changed, "2026-03-01T00:00:00Z", "2026-03-01T23:59:59Z", False),
        (day_changed, "2026-03-01T23:59:59Z", "2026-03-02T00:00:00Z", True),
        (day_changed, "2026-03-01T00:00:00Z", "2026-04-01T00:00:00Z", True),
        (week_changed, "2026-01-04T12:00:00Z", "2026-01-05T00:00:00Z", True),  # Sunday, Monday
        (week_changed, "2025-12-29T00:00:00Z", "2026-01-04T23:59:59Z", False),  # one ISO week across the year
        (week_changed, "2026-01-08T00:00:00Z", "2027-01-07T00:00:00Z", True),  # week 2 and week 1
        (week_changed, "2026-03-04T00:00:00Z", "2025-03-05T00:00:00Z", True),  # both week 10
        (month_changed, "2026-03-01T00:00:00Z", "2026-03-31T23:59:59Z", False),
        (month_changed, "2026-03-31T23:59:59Z", "2026-04-01T00:00:00Z", True),
        (month_changed, "2025-03-01T00:00:00Z", "2026-03-01T00:00:00Z", True),
        (season_changed, "2026-02-28T23:59:59Z", "2026-03-01T00:00:00Z", True),
        (season_changed, "2026-03-01T00:00:00Z", "2026-05-31T23:59:59Z", False),
        (season_changed, "2026-05-31T00:00:00Z", "2026-06-01T00:00:00Z", True),
        (season_changed, "2026-08-31T00:00:00Z", "2026-09-01T00:00:00Z", True),
        (season_changed, "2025-11-30T00:00:00Z", "2025-12-01T00:00:00Z", True),
        (season_changed, "2025-12-01T00:00:00Z", "2026-02-28T23:59:59Z", False),  # one winter across the year
        (season_changed, "2025-07-01T00:00:00Z", "2026-07-01T00:00:00Z", True),  # another summer
        (season_changed, "2026-01-15T00:00:00Z", "2026-12-15T00:00:00Z", True),  # winters of one year
        (year_changed, "2025-12-31T23:59:59Z", "2026-01-01T00:00:00Z", True),
        (year_changed, "2026-01-01T00:00:00Z", "2026-12-31T23:59:59Z", False),
        (year_changed, "1969-12-31T23:59:59Z", "1970-01-01T00:00:00Z", True),
    ],
)
def test_calendar(change: Callable[[], Predicate], last: str, now: str, *, holds: bool) -> None:
    """In UTC, when neither the option nor the message says otherwise; times may run backwards."""
    assert holds == change()(between(last, now))


CHANGES = (hour_changed, day_changed, week_changed, month_changed, season_changed, year_changed)


@pytest.mark.parametrize("change", CHANGES)
def test_calendar_holds_without_an_earlier_message(change: Callable[..., Predicate]) -> None:
    """Whatever the zone."""
    context = between(None, "2026-03-01T10:00:00Z", time_zone="Mars/Olympus")

    assert change()(context)
    assert change("Asia/Tokyo")(context)
    assert not change()(between("2026-03-01T10:00:00Z", "2026-03-01T10:00:00Z"))


@pytest.mark.parametrize(
    ("tz", "locale", "holds"),
    [
        (None, {}, False),
        (None, {"time_zone": "Europe/Riga"}, True),
        (None, {"timeZone": "Europe/Riga", "language": "lv"}, True),  # as browsers say
        (None, {"time_zone": "UTC"}, False),
        ("UTC", {"time_zone": "Europe/Riga"}, False),
        ("Europe/Riga", {"time_zone": "UTC"}, True),
        ("Europe/Riga", {"time_zone": "Mars/Olympus"}, True),
        (None, {"language": "lv"}, False),
    ],
)
def test_the_zone_is_of_the_option_else_of_the_message_else_utc(
    tz: str | None, locale: dict[str, str], *, holds: bool
) -> None:
    """Midnight in Riga is 22:00 UTC in winter."""
    assert holds == day_changed(tz)(between("2026-01-10T21:00:00Z", "2026-01-10T23:00:00Z", **locale))


def test_an_unknown_zone_in_metadata_is_an_error_that_does_not_quote_it() -> None:
    reported: list[tuple[str, Exception]] = []
    context = between("2026-01-10T21:00:00Z", "2026-01-10T23:00:00Z", time_zone="Mars/Olympus")

    verdict = judge(day_changed(), context, lambda part, error: reported.append((part, error)))

    assert verdict.holds is None
    [(part, error)] = reported
    assert "day_changed()" == part
    assert isinstance(error, InvalidValueError)
    assert "Mars" not in str(error)


def test_the_hour_that_comes_twice_changes() -> None:
    """When clocks are set back, 03:30 follows 03:30."""
    context = between("2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z")

    assert hour_changed("Europe/Riga")(context)
    assert not day_changed("Europe/Riga")(context)


@given(
    st.integers(ms("1990-01-01T00:00:00Z"), ms("2090-01-01T00:00:00Z")),
    st.integers(0, 400 * 24),
    st.integers(-12, 12),
)
def test_calendar_agrees_with_dates(start_ms: int, elapsed_hours: int, hours: int) -> None:
    """Longer periods change only with shorter ones, and each as the dates of the zone say."""
    zone = timezone(timedelta(hours=hours))
    tz = f"Etc/GMT{-hours:+d}"  # POSIX counts westwards
    last = datetime.fromtimestamp(start_ms / 1000, zone)
    now = last + timedelta(hours=elapsed_hours)
    context = between(last.isoformat(), now.isoformat())
    hour, day, week, month, season, year = (change(tz)(context) for change in CHANGES)

    assert (last.replace(minute=0, second=0, microsecond=0) != now.replace(minute=0, second=0, microsecond=0)) == hour
    assert (last.date() != now.date()) == day
    assert ((last.date() - timedelta(last.weekday())) != (now.date() - timedelta(now.weekday()))) == week
    assert (last.date().replace(day=1) != now.date().replace(day=1)) == month
    assert (last.year != now.year) == year
    assert hour >= day >= month >= max(season, year)
    assert day >= week
