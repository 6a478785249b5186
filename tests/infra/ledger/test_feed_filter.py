"""Feeds of one owner's chats."""

import threading
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest
from tests.support.ledger_world import internals

from chatledger import AsyncLedger, InvalidValueError, Ledger, Recorded, user


def _fill(ledger: Ledger) -> None:
    for number, owner in enumerate(["ada", "bob", "ada", ""]):
        ledger.create_chat(f"c{number}", owner)
        ledger.append(f"c{number}", [user("hello")])


def _seen(events: list[Recorded]) -> list[tuple[str, str]]:
    return [(recorded.chat_id, recorded.type) for recorded in events]


@pytest.mark.parametrize("after", [0, 1, 4])
def test_an_owner_sees_their_own_chats(ledger: Ledger, after: int) -> None:
    """From wherever the feed begins, it gives the events of that owner's chats, in order (PS-32)."""
    _fill(ledger)
    everything = list(ledger.feed(after, follow=False))
    of_ada = list(ledger.feed(after, user_id="ada", follow=False))

    assert [recorded for recorded in everything if recorded.chat_id in {"c0", "c2"}] == of_ada


def test_filters_combine(ledger: Ledger) -> None:
    """Owner, chat and type have to fit all; an empty owner is one like any other."""
    _fill(ledger)
    feed = ledger.feed(0, user_id="ada", chat_id="c2", topics={"message_appended"}, follow=False)

    assert [("c2", "message_appended")] == _seen(list(feed))
    assert [] == list(ledger.feed(0, user_id="ada", chat_id="c1", follow=False))
    assert {"c3"} == {recorded.chat_id for recorded in ledger.feed(0, user_id="", follow=False)}


def test_the_tombstone_comes_to_the_owner(ledger: Ledger) -> None:
    """Whether or not the feed saw the chat, its owner gets the tombstone and no content; the id may find another owner (PS-32)."""
    _fill(ledger)
    feed = ledger.feed(0, user_id="ada", follow=False)
    assert ("c0", "chat_created") == _seen([next(feed)])[0]
    ledger.delete_chat("c0")
    ledger.create_chat("c0", "bob")

    assert [("c2", "chat_created"), ("c2", "message_appended"), ("c0", "chat_deleted")] == _seen(list(feed))
    assert [("c2", "chat_created"), ("c2", "message_appended"), ("c0", "chat_deleted")] == _seen(
        list(ledger.feed(0, user_id="ada", follow=False))
    )
    assert [("c1", "chat_created"), ("c1", "message_appended"), ("c0", "chat_created")] == _seen(
        list(ledger.feed(0, user_id="bob", follow=False))
    )


def test_content_that_was_read_ahead_is_not_given_after_its_erasure(ledger: Ledger) -> None:
    """Erased content does not appear, not even what the feed had read before; the tombstone does (PS-32)."""
    _fill(ledger)
    feed = ledger.feed(0, follow=False)
    next(feed)
    ledger.delete_chat("c1")

    assert "c1" not in {recorded.chat_id for recorded in feed if recorded.type != "chat_deleted"}
    assert ("c1", "chat_deleted") in _seen(list(ledger.feed(0, follow=False)))


def test_a_feed_of_one_chat_reads_only_that_chat(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Filtering by chat asks the log for that chat's events; what happens elsewhere is passed over without reading it."""
    _fill(ledger)
    log, here, asked = internals(ledger).log, threading.current_thread(), list[int]()
    read = log.read

    def spy(after: int, limit: int) -> list[Recorded]:
        if threading.current_thread() is here:
            asked.append(after)
        return cast("list[Recorded]", read(after, limit))

    monkeypatch.setattr(log, "read", spy)
    feed = ledger.feed(0, chat_id="c2", follow=False)

    assert [("c2", "chat_created"), ("c2", "message_appended")] == _seen(list(feed))
    assert [] == asked
    assert ledger.last_position() == feed.position


@pytest.mark.parametrize("chat_id", ["c0", None])
def test_a_limited_ledger_follows_past_the_events_of_others(ledger: Ledger, chat_id: str | None) -> None:
    """A feed of `for_user` waits at the end of the log although others write on, and gives what comes for its user."""
    _fill(ledger)
    feed = ledger.for_user("ada").feed(after=None, chat_id=chat_id)
    for number in range(50):
        ledger.append("c1", [user(str(number))])
    ledger.append("c0", [user("mine")])

    assert ("c0", "message_appended") == _seen([next(feed)])[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topics": {"nothing"}}, "unknown topics nothing"),
        ({"topics": "chat_created"}, "not one text"),
        ({"topics": {5}}, "unknown topics 5"),
        ({"chat_id": ""}, "chat_id must not be empty"),
        ({"user_id": "x" * 2049}, "user_id"),
        ({"name": ""}, "name must not be empty"),
        ({"name": 5}, "name must be text"),
        ({"after": -1}, "after must be"),
        ({"name": "n", "after": True}, "after must be"),
        ({"name": "n", "after": 10_000}, "cannot begin after 10000"),
        ({"share": (4, 4)}, "no share 4 of 4"),
        ({"share": (-1, 4)}, "no share -1"),
        ({"share": (0, 0)}, "no share 0 of 0"),
        ({"share": (0, 5000)}, "at most 4,096"),
        ({"share": "0/4"}, "pair of numbers"),
        ({"share": (0, True)}, "pair of numbers"),
        ({"share": (0, 1, 2)}, "pair of numbers"),
    ],
    ids=str,
)
def test_wrong_options_are_refused(ledger: Ledger, options: dict[str, Any], message: str) -> None:
    """Before anything is read or kept."""
    _fill(ledger)
    with pytest.raises(InvalidValueError, match=message):
        ledger.feed(**options)

    assert [] == ledger.feeds()


@pytest.mark.anyio
async def test_the_asynchronous_feed_filters_too(async_ledger: AsyncLedger) -> None:
    """The same arguments give the same events, also across a deletion."""
    seen: list[Recorded] = []
    await async_ledger.run(_fill)
    done = anyio.Event()

    async def watch() -> None:
        async for recorded in async_ledger.feed(0, user_id="ada"):
            seen.append(recorded)
            if recorded.type == "chat_deleted":
                done.set()

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            while len(seen) < 4:
                await anyio.lowlevel.checkpoint()
            await async_ledger.delete_chat("c0")
            await done.wait()
            tasks.cancel_scope.cancel()

    assert [("c0", "chat_created"), ("c0", "message_appended"), ("c2", "chat_created")] == _seen(seen)[:3]
    assert ("c0", "chat_deleted") == _seen(seen)[-1]
