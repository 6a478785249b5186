"""Feeds with names: they go on where they were, on every kind of log, whatever happened in between."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contracts.store_world import together
from tests.support.jetstream_world import eventually
from tests.support.ledger_world import ROOT, internals, text
from tests.support.soak import examples

import chatledger
from chatledger import (
    AsyncLedger,
    ChainIntegrityError,
    ConflictError,
    FeedInfo,
    InvalidValueError,
    Ledger,
    LedgerClosedError,
    LogUnavailableError,
    NotFoundError,
)
from chatledger.infra.ledger.feed.feed import SAVE_EVENTS
from chatledger.infra.log.bookmarks import Bookmark
from chatledger.infra.log.port import LostRaceError

KINDS = ["memory", "sqlite", "embedded", "postgres"]


@pytest.fixture(params=KINDS)
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    """A ledger with one chat and ten messages, on every kind of log."""
    options: dict[str, Any] = {}
    location = {"memory": "memory:", "sqlite": f"sqlite:///{tmp_path}/log.db"}.get(
        request.param, str(tmp_path / "data")
    )
    if request.param == "postgres":
        location = request.getfixturevalue("new_postgres_database")()
        options["index"] = tmp_path / "index"
    if request.param == "embedded":
        options["durability"] = "fast"
    with chatledger.open(location, **options) as ledger:
        ledger.create_chat("c", "u")
        write(ledger, 10)
        yield ledger


@pytest.fixture
def memory() -> Iterator[Ledger]:
    """A ledger with one chat and ten messages in memory."""
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("c", "u")
        write(ledger, 10)
        yield ledger


def write(ledger: Ledger, count: int, chat_id: str = "c") -> None:
    for number in range(count):
        ledger.append(chat_id, [text(str(number))])


def positions(ledger: Ledger, after: int = 0) -> list[int]:
    return [recorded.position for recorded in ledger.history(after=after)]


@pytest.mark.matrix
def test_a_name_goes_on_where_it_was(ledger: Ledger) -> None:
    """A new name begins with the first event; a known one after what was handled, also by another handle."""
    with ledger.feed(name="n", follow=False) as feed:
        first = [recorded.position for recorded in feed]
    write(ledger, 5)
    with ledger.feed(name="n", follow=False) as feed:
        second = [recorded.position for recorded in feed]

    assert positions(ledger) == first + second
    assert [] == list(ledger.feed(name="n", follow=False))
    assert positions(ledger) == [recorded.position for recorded in ledger.feed(name="other", follow=False)]


@pytest.mark.matrix
def test_what_was_given_last_is_not_handled_yet(ledger: Ledger) -> None:
    """Leaving the loop in the middle gives the last event again; after `ack` it does not."""
    everything = positions(ledger)
    with ledger.feed(name="n") as feed:
        given = [next(feed).position for _ in range(3)]
        assert everything[1] == feed.position
    with ledger.feed(name="n") as feed:
        again = next(feed).position
        feed.ack()
        assert again == feed.position
    with ledger.feed(name="n") as feed:
        assert everything[3] == next(feed).position

    assert everything[:3] == given
    assert everything[2] == again


def test_without_a_close_only_what_was_kept_counts(ledger: Ledger) -> None:
    """A feed that is dropped, as by a crash, is begun again where it was kept last: nothing is lost."""
    feed = ledger.feed(name="n")
    given = [next(feed).position for _ in range(2)]
    feed.ack()
    given += [next(feed).position for _ in range(3)]
    del feed

    assert given[2] == next(ledger.feed(name="n")).position


def test_an_explicit_ack_is_there_when_it_returns(ledger: Ledger) -> None:
    """Whoever asks then finds the position, with how far the log is ahead."""
    feed = ledger.feed(name="n")
    for number in range(4):
        recorded = next(feed)
        feed.ack()
        (info,) = ledger.feeds()

        assert ("n", None, recorded.position) == (info.name, info.share, info.position)
        assert ledger.last_position() - recorded.position == info.lag
        assert number + 1 == len(positions(ledger)) - len(positions(ledger, after=info.position))


@pytest.mark.matrix
def test_a_name_is_taken_over(ledger: Ledger) -> None:
    """Who comes later goes on; who was there before can keep nothing any more, and is told why."""
    everything = positions(ledger)
    first = ledger.feed(name="n")
    next(first)
    first.ack()
    next(first)
    second = ledger.feed(name="n")

    assert everything[1] == next(second).position
    with pytest.raises(ConflictError, match="'n' was taken by another reader"):
        first.ack()
    second.ack()
    with pytest.raises(ConflictError, match="taken"):
        first.close()
    first.close()
    assert everything[1] == ledger.feeds()[0].position
    assert everything[2] == next(second).position


def test_the_one_who_lost_the_name_learns_it_while_reading(memory: Ledger) -> None:
    """Without `ack` too, after at most so many events as are handled between two keeps."""
    write(memory, 3 * SAVE_EVENTS)
    first = memory.feed(name="n")
    next(first)
    memory.feed(name="n")
    given = 1
    conflict: ConflictError | None = None
    try:
        for _ in first:
            given += 1
    except ConflictError as error:
        conflict = error

    assert conflict is not None
    assert given <= SAVE_EVENTS + 1
    with pytest.raises(ConflictError):
        next(first)


def test_acknowledging_from_elsewhere(ledger: Ledger) -> None:
    """The reader keeps its name and goes on; what it acknowledges itself later counts, and nothing earlier does."""
    feed = ledger.feed(name="n", auto_ack=False)
    given = [next(feed).position for _ in range(5)]

    assert given[2] == ledger.ack_feed("n", given[2]).position
    assert given[2] == ledger.ack_feed("n", given[0]).position
    feed.ack(given[1])
    assert [given[2]] == [info.position for info in ledger.feeds()]
    feed.ack(given[3])
    assert [given[3]] == [info.position for info in ledger.feeds()]
    assert given[4] + 1 == next(feed).position
    feed.close()
    assert given[4] == next(ledger.feed(name="n")).position


def test_what_cannot_be_acknowledged_from_elsewhere(ledger: Ledger) -> None:
    """A position that is not there, and a name or a share that nobody reads."""
    next(ledger.feed(name="n", share=(0, 1)))
    next(ledger.feed(name="shared", share=(0, 1)))

    with pytest.raises(InvalidValueError, match="the last position on the log is 11"):
        ledger.ack_feed("n", 12)
    for position in (-1, True, None):
        with pytest.raises(InvalidValueError):
            ledger.ack_feed("n", position)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    for name, share in (("m", None), ("shared", (0, 2)), ("shared", (1, 2))):
        with pytest.raises(NotFoundError):
            ledger.ack_feed(name, 1, share=share)
    with pytest.raises(InvalidValueError, match="share"):
        ledger.ack_feed("n", 1, share=(2, 2))
    assert [0, 0] == [info.position for info in ledger.feeds()]


def test_forgetting_a_name(ledger: Ledger) -> None:
    """It begins anew; who still reads under it is told, and forgetting again says that there is none."""
    feed = ledger.feed(name="n")
    next(feed)
    feed.ack()
    next(feed)

    assert ledger.forget_feed("n") is True
    assert ledger.forget_feed("n") is False
    assert [] == ledger.feeds()
    with pytest.raises(ConflictError, match="was forgotten"):
        feed.ack()
    assert positions(ledger)[0] == next(ledger.feed(name="n")).position
    with pytest.raises(ConflictError, match="taken"):
        feed.ack()


def test_where_a_new_name_begins(ledger: Ledger) -> None:
    """After `after`, which is kept at once and means nothing to a known name."""
    everything = positions(ledger)
    ledger.feed(after=everything[4], name="n")

    assert everything[4] == ledger.feeds()[0].position
    assert everything[5] == next(ledger.feed(after=0, name="n")).position
    assert everything[5] == next(ledger.feed(name="n")).position


@pytest.mark.matrix
@pytest.mark.parametrize(
    "name", ["a b/c.d*>", "ж" * 1000, "1/2/n", "'; DROP TABLE x; --", "{}?%s"], ids=lambda n: ascii(n)[:12]
)
def test_any_text_is_a_name(ledger: Ledger, name: str) -> None:
    """Names are texts like ids, and do not get in each other's way."""
    ledger.feed(after=3, name=name)
    ledger.feed(after=2, name="n")

    assert {name: 3, "n": 2} == {info.name: info.position for info in ledger.feeds()}
    assert ledger.forget_feed(name)
    assert ["n"] == [info.name for info in ledger.feeds()]


def test_compare_and_set(ledger: Ledger) -> None:
    """A bookmark replaces only the one with its revision; one that was dropped and made anew is another one."""
    log = internals(ledger).log
    mark = Bookmark(name="n", index=0, count=1, position=1, holder="h", log_id="l", saved_at=1)

    def are_lost(*bookmarks: Bookmark) -> None:
        for bookmark in bookmarks:
            with pytest.raises(LostRaceError):
                log.save_bookmark(bookmark)

    first = log.save_bookmark(mark)
    are_lost(mark)
    second = log.save_bookmark(first)
    are_lost(first)

    assert second == log.load_bookmark(mark.key)
    log.drop_bookmark(mark.key)
    log.drop_bookmark(mark.key)
    assert log.load_bookmark(mark.key) is None
    are_lost(second)
    log.save_bookmark(mark)
    are_lost(second, first)


def test_concurrent_claims_have_one_winner(ledger: Ledger) -> None:
    """However many take a name at the same time, one of them keeps positions."""
    barrier = threading.Barrier(6)

    def take(_: int) -> bool:
        feed = ledger.feed(name="n")
        barrier.wait(30)
        next(feed)
        try:
            feed.ack()
        except ConflictError:
            return False
        return True

    assert 1 == sum(together(6, take))


def test_manual_mode_handles_nothing_by_itself(ledger: Ledger) -> None:
    """For those who handle several events at once: only `ack` counts, and also a part of what was given."""
    everything = positions(ledger)
    with ledger.feed(name="n", auto_ack=False) as feed:
        given = [next(feed).position for _ in range(6)]
        assert 0 == feed.position
        feed.ack(given[3])
        feed.ack(given[1])
        assert given[3] == feed.position
        with pytest.raises(InvalidValueError, match="cannot be acknowledged"):
            feed.ack(everything[6])

    assert everything[4] == next(ledger.feed(name="n")).position


def test_events_that_do_not_match_are_passed_over(ledger: Ledger) -> None:
    """What a filter leaves out counts as handled once all before it is, also with manual acknowledgement."""
    for is_auto in (True, False):
        name = f"auto {is_auto}"
        with ledger.feed(name=name, topics={"chat_created"}, follow=False, auto_ack=is_auto) as feed:
            for _ in feed:
                feed.ack()

    assert [ledger.last_position()] * 2 == [info.position for info in ledger.feeds()]
    assert [0, 0] == [info.lag for info in ledger.feeds()]


@pytest.mark.matrix
def test_what_waits_is_kept_soon(ledger: Ledger) -> None:
    """A reader that waits at the end keeps its position without being closed."""
    feed = ledger.feed(name="n")
    reader = threading.Thread(target=lambda: list(feed), daemon=True)
    reader.start()

    eventually(lambda: ledger.feeds()[0].lag == 0)
    feed.close()
    reader.join(20)
    assert not reader.is_alive()


def test_closing_the_ledger_keeps_what_was_handled(tmp_path: Path) -> None:
    """Also without closing the feed."""
    location = f"sqlite:///{tmp_path}/log.db"
    with chatledger.open(location) as ledger:
        ledger.create_chat("c", "u")
        write(ledger, 3)
        feed = ledger.feed(name="n")
        given = [next(feed).position for _ in range(3)]
    with chatledger.open(location) as ledger:
        assert given[1] == ledger.feeds()[0].position
    with pytest.raises(LedgerClosedError):
        feed.ack()
    assert [] == list(feed)


def test_a_failing_reader_is_not_hidden(memory: Ledger) -> None:
    """An error inside `with` is raised as it is, although the name was lost too (PS-39)."""

    def fail() -> None:
        with memory.feed(name="n") as feed:
            next(feed)
            next(feed)
            memory.forget_feed("n")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()


def test_a_log_that_lost_what_was_handled_is_noticed(memory: Ledger) -> None:
    """A position beyond the end, or of another log, would skip events; it is refused."""
    log = internals(memory).log
    mark = Bookmark(name="n", index=0, count=1, position=50, holder="h", log_id=log.identity, saved_at=1)
    log.save_bookmark(mark)
    with pytest.raises(ChainIntegrityError, match=r"position 50, which is beyond its end, 11.*forget the feed"):
        memory.feed(name="n")
    memory.forget_feed("n")
    log.save_bookmark(Bookmark(name="n", index=0, count=1, position=5, holder="h", log_id="other", saved_at=1))
    with pytest.raises(ChainIntegrityError, match="another log"):
        memory.feed(name="n")


class _Silent:
    """A log that carries out what it is told to keep, but does not say so."""

    def __init__(self, save: Callable[[Bookmark], Bookmark]) -> None:
        self.save, self.is_silent = save, True

    def __call__(self, bookmark: Bookmark) -> Bookmark:
        saved = self.save(bookmark)
        if self.is_silent:
            msg = "no answer"
            raise LogUnavailableError(msg)
        return saved


def test_a_lost_answer_is_no_conflict(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """A position that was kept without an answer is recognized as our own."""
    feed = ledger.feed(name="n")
    next(feed)
    log = internals(ledger).log
    silent = _Silent(log.save_bookmark)
    monkeypatch.setattr(log, "save_bookmark", silent)
    with pytest.raises(LogUnavailableError):
        feed.ack()
    silent.is_silent = False
    second = next(feed).position
    feed.ack()

    assert second == ledger.feeds()[0].position


# Any pattern of stops and crashes

STEPS = st.lists(
    st.tuples(st.sampled_from(["write", "read", "close", "drop", "finish", "forget nothing"]), st.integers(1, 7)),
    min_size=1,
    max_size=25,
)


@settings(max_examples=examples(60))
@given(steps=STEPS, is_acked=st.booleans())
def test_stops_and_crashes_lose_nothing(steps: list[tuple[str, int]], is_acked: bool) -> None:  # noqa: FBT001 - drawn
    """Each event at least once and in order; exactly once where each is acknowledged."""
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("c", "u")
        handled: list[int] = []
        feed = ledger.feed(name="n", follow=False)
        for step, count in steps:
            if step == "write":
                write(ledger, count)
            elif step == "read":
                for _ in range(count):
                    recorded = next(feed, None)
                    if recorded is None:
                        feed = ledger.feed(name="n", follow=False)
                        break
                    handled.append(recorded.position)
                    if is_acked:
                        feed.ack()
            else:
                if step == "close":
                    feed.close()
                feed = ledger.feed(name="n", follow=step != "finish")
                if step == "finish":
                    handled.extend(_rest(feed, is_acked=is_acked))
                    feed = ledger.feed(name="n", follow=False)
                else:
                    feed = ledger.feed(name="n", follow=False)
        handled.extend(_rest(feed, is_acked=is_acked))

        everything = positions(ledger)
        seen = list(dict.fromkeys(handled))
        assert everything == seen  # first times come in order, without holes
        if is_acked:
            assert everything == handled


def _rest(feed: chatledger.Feed, *, is_acked: bool) -> Iterator[int]:
    for recorded in feed:
        yield recorded.position
        if is_acked:
            feed.ack()


KILLED = """
import json, os, signal, sys
import chatledger

path, name, is_acked, count = sys.argv[1], sys.argv[2], sys.argv[3] == "ack", int(sys.argv[4])
ledger = chatledger.open(path, durability="fast")
feed = ledger.feed(name=name)
for number in range(count):
    print(next(feed).position, flush=True)
    if is_acked:
        feed.ack()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.soak
@pytest.mark.parametrize("way", ["ack", "none"])
def test_a_reader_that_is_killed_loses_nothing(tmp_path: Path, way: str) -> None:
    """By kill -9 between two events: with `ack` each comes once, without it those since the last keep come again."""
    path = tmp_path / "data"
    with chatledger.open(path, durability="fast") as ledger:
        ledger.create_chat("c", "u")
        write(ledger, 50)
        handled: list[int] = []
        for count in (7, 1, 20):
            killed = subprocess.run(
                [sys.executable, "-c", KILLED, str(path), "n", way, str(count)],
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert -9 == killed.returncode, killed.stderr
            handled += map(int, killed.stdout.split())
        handled += [recorded.position for recorded in ledger.feed(name="n", follow=False)]

        assert positions(ledger) == sorted(set(handled))
        if way == "ack":
            assert positions(ledger) == handled


# Asynchronous


@pytest.mark.anyio
async def test_the_asynchronous_feed_does_the_same(async_ledger: AsyncLedger) -> None:
    """Names, `ack`, positions, `async with`, and a cancelled wait that loses nothing."""
    await async_ledger.create_chat("c", "u")
    for number in range(5):
        await async_ledger.append("c", [text(str(number))])
    async with async_ledger.feed(name="n") as feed:
        assert 0 == feed.position
        assert [1, 2, 3] == [(await anext(feed)).position for _ in range(3)]
        await feed.ack(1)
        await feed.ack()
        assert 3 == feed.position
    assert [("n", 3, 3)] == [(info.name, info.position, info.lag) for info in await async_ledger.feeds()]

    feed = async_ledger.feed(name="n")
    assert feed.position is None
    assert [4, 5, 6] == [(await anext(feed)).position for _ in range(3)]
    with anyio.move_on_after(0.1) as scope:
        await anext(feed)
    assert scope.cancelled_caught
    await async_ledger.append("c", [text("more")])
    assert 7 == (await anext(feed)).position
    await feed.close()
    await feed.close()

    assert [7] == [recorded.position async for recorded in async_ledger.feed(name="n", follow=False)]
    assert [3, 4] == [r.position async for r in async_ledger.feed(2, follow=False) if r.position < 5]
    first = async_ledger.feed(name="n")
    await async_ledger.append("c", [text("last")])
    assert 8 == (await anext(first)).position
    assert 8 == (await async_ledger.ack_feed("n", 8)).position
    assert await async_ledger.forget_feed("n")
    with pytest.raises(ConflictError):
        await first.ack()


def test_infos_are_values(memory: Ledger) -> None:
    """They can be stored and compared."""
    memory.feed(name="n", share=(1, 3))
    (info,) = memory.feeds()

    assert (1, 3) == info.share
    assert {"name": "n", "share": [1, 3], "position": 0, "lag": 11, "saved_at": info.saved_at} == msgspec.to_builtins(
        info, builtin_types=()
    ) | {"share": [1, 3]}
    assert info == msgspec.json.decode(msgspec.json.encode(info), type=FeedInfo)
