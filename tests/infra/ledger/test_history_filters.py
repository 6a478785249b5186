"""Filters of a history."""

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.ledger_world import internals
from tests.support.soak import examples

import chatledger
from chatledger import AsyncLedger, InvalidValueError, Ledger, Recorded, user

START = datetime(2026, 3, 2, 12, tzinfo=UTC)
OWNERS = {"trip": "ada", "talk": "bob", "gone": "ada"}


@pytest.fixture(scope="module")
def ledger() -> Iterator[Ledger]:
    """Chats of two owners, written in several names, one event a second."""
    now = iter(range(1_000))

    def clock_ms() -> int:
        return int(START.timestamp()) * 1000 + next(now) * 1000

    with pytest.MonkeyPatch.context() as patch, chatledger.open("memory:") as opened:
        patch.setattr("chatledger.infra.store.group_commit.clock_ms", clock_ms)
        for chat, owner in OWNERS.items():
            with opened.context(actor=owner):
                opened.create_chat(chat, owner)
            for actor in ("agent", None, "ada"):
                with opened.context(actor=actor):
                    (message,) = opened.append(chat, [user("hello")])
            opened.fork(chat, message.id)
        with opened.context(actor="admin"):
            opened.delete_chat("gone")
        yield opened


def expected(ledger: Ledger, keep: Callable[[Recorded], bool]) -> list[Recorded]:
    return [recorded for recorded in ledger.history() if keep(recorded)]


def test_of_an_owner(ledger: Ledger) -> None:
    """With the tombstones of chats that were deleted."""
    of_ada = expected(ledger, lambda recorded: OWNERS[recorded.chat_id] == "ada")

    assert of_ada == list(ledger.history(user_id="ada"))
    assert "chat_deleted" == of_ada[-1].type
    assert expected(ledger, lambda recorded: recorded.chat_id == "talk") == list(ledger.history(user_id="bob"))
    assert [] == list(ledger.history(user_id="eve")) == list(ledger.history("trip", user_id="bob"))


def test_of_an_actor(ledger: Ledger) -> None:
    """Only what was done in that name."""
    assert expected(ledger, lambda recorded: recorded.actor == "agent") == list(ledger.history(actor="agent"))
    assert ["chat_deleted"] == [recorded.type for recorded in ledger.history(actor="admin")]
    assert [] == list(ledger.history(actor="nobody"))


def test_since_a_time(ledger: Ledger) -> None:
    """The event at that very millisecond is in; one microsecond later it is not."""
    third = list(ledger.history())[2]
    at = START + timedelta(milliseconds=third.occurred_at - int(START.timestamp()) * 1000)

    assert expected(ledger, lambda recorded: recorded.position >= third.position) == list(ledger.history(since=at))
    after = list(ledger.history(since=at + timedelta(microseconds=1)))
    assert expected(ledger, lambda recorded: recorded.position > third.position) == after
    assert [third] == list(ledger.history(since=at, until=at))


@settings(max_examples=examples(60), deadline=None)
@given(
    chat=st.none() | st.sampled_from(sorted(OWNERS)),
    owner=st.none() | st.sampled_from(["ada", "bob"]),
    topics=st.none() | st.sets(st.sampled_from(["chat_created", "message_appended", "chat_deleted"])),
    actor=st.none() | st.sampled_from(["ada", "bob", "agent", "admin"]),
    after=st.integers(0, 20),
    since=st.none() | st.integers(0, 20),
    until=st.none() | st.integers(0, 20),
    is_time=st.booleans(),
    is_ms=st.booleans(),
    moment=st.integers(1, 20),
)
def test_filters_combine(
    ledger: Ledger,
    *,
    chat: str | None,
    owner: str | None,
    topics: set[str] | None,
    actor: str | None,
    after: int,
    since: int | None,
    until: int | None,
    is_time: bool,
    is_ms: bool,
    moment: int,
) -> None:
    """An event is shown if every filter lets it through; by a view, if it had happened then."""

    def at(second: int) -> datetime:
        return START + timedelta(seconds=second)

    def keep(recorded: Recorded) -> bool:
        time = datetime.fromtimestamp(recorded.occurred_at / 1000, UTC)
        is_early = until is None or (time <= at(until) if is_time else recorded.position <= until)
        return (
            recorded.position > after
            and is_early
            and (since is None or time >= at(since))
            and chat in {None, recorded.chat_id}
            and owner in {None, OWNERS[recorded.chat_id]}
            and (topics is None or recorded.type in topics)
            and actor in {None, recorded.actor}
        )

    given: dict[str, Any] = {
        "after": after,
        "up_to": None if is_time else until,
        "until": at(until) if is_time and until is not None else None,
        "since": None if since is None else int(at(since).timestamp() * 1000) if is_ms else at(since),
        "user_id": owner,
        "topics": topics,
        "actor": actor,
    }
    found = expected(ledger, keep)
    assert found == list(ledger.history(chat, **given))
    with ledger.as_of(min(moment, ledger.position)) as view:
        assert [recorded for recorded in found if recorded.position <= moment] == list(view.history(chat, **given))


@pytest.mark.parametrize(
    "given",
    [
        {"since": 2.5},
        {"since": datetime(2026, 3, 2)},  # noqa: DTZ001 - that is the point
        {"until": datetime(2026, 3, 2)},  # noqa: DTZ001 - as above
        {"up_to": -1},
        {"topics": "chat_created"},
        {"topics": {"chat_invented"}},
        {"topics": [["chat_created"]]},
        {"actor": 5},
        {"user_id": 5},
    ],
    ids=["no time", "no zone", "until no zone", "negative", "text", "unknown", "list", "no text", "no text either"],
)
def test_a_wrong_filter_is_refused_at_once(ledger: Ledger, given: dict[str, Any]) -> None:
    """Before the first event is asked for."""
    with pytest.raises(InvalidValueError):
        ledger.history(**given)


def pages_read(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Of each page of the log that this thread reads from now on, how many events were asked for, and how many came."""
    log, here, pages = internals(ledger).log, threading.current_thread(), list[tuple[int, int]]()
    read = log.read

    def spy(after: int, limit: int) -> list[Recorded]:
        events = cast("list[Recorded]", read(after, limit))
        if threading.current_thread() is here:
            pages.append((limit, len(events)))
        return events

    monkeypatch.setattr(log, "read", spy)
    return pages


@pytest.mark.parametrize(
    "view", [lambda whole: whole, lambda whole: whole.as_of(9), lambda whole: whole.for_user("ada")]
)
def test_no_more_is_read_than_may_be_between_two_positions(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, view: Callable[[Ledger], Any]
) -> None:
    """What was written afterwards costs nothing: the explorer asks for the event of one position at each step into the past."""
    reader = view(ledger)
    pages = pages_read(ledger, monkeypatch)

    assert [4, 5] == [recorded.position for recorded in reader.history(after=3, up_to=5)]
    assert [(2, 2)] == pages
    assert [] == list(reader.history(after=5, up_to=5)) == list(reader.history(after=6, up_to=5))
    assert [(2, 2)] == pages


def test_who_wants_a_few_events_is_not_kept_waiting_for_a_thousand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages begin small, and grow for those who read on."""
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("c", "ada")
        for number in range(1, 600):
            ledger.append("c", [user(str(number))])
        pages = pages_read(ledger, monkeypatch)
        assert [1, 2, 3] == [recorded.position for recorded in islice(ledger.history(), 3)]
        assert sum(count for _, count in pages) <= 100
        pages.clear()
        assert list(range(1, 601)) == [recorded.position for recorded in ledger.history()]
        assert len(pages) <= 5


@pytest.mark.anyio
async def test_asynchronously(async_ledger: AsyncLedger) -> None:
    """`AsyncLedger` and its views take the same filters."""
    for number, owner in enumerate(["ada", "bob"]):
        with async_ledger.context(actor=f"for {owner}"):
            await async_ledger.create_chat(f"c{number}", owner)

    found = [event.chat_id async for event in async_ledger.history(user_id="bob", actor="for bob", since=START)]
    assert ["c1"] == found
    assert [] == [event async for event in async_ledger.history(topics={"chat_deleted"})]
    async with async_ledger.as_of(1) as view:
        assert ["c0"] == [event.chat_id async for event in view.history(topics={"chat_created"}, since=START)]
        assert [] == [event async for event in view.history(user_id="bob")]


@pytest.mark.parametrize("argument", ["since", "until"])
def test_a_time_is_a_text_too(ledger: Ledger, argument: str) -> None:
    """One that names none is refused with what does; a number with another unit is refused likewise."""
    long_ago: dict[str, Any] = {argument: "2020-01-01"}
    assert bool(list(ledger.history(**long_ago))) == (argument == "since")
    for wrong, words in (("soon", ": 'soon' is no time: .*"), (1.5, " must be .*, not 1.5")):
        refused: dict[str, Any] = {argument: wrong}
        with pytest.raises(InvalidValueError, match=f"^{argument}{words}$"):
            ledger.history(**refused)
        with pytest.raises(InvalidValueError, match=f"^{argument}{words}$"):
            ledger.search("hello", **refused)
