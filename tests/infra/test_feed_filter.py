"""Feeds of one owner's chats."""

import anyio
import anyio.lowlevel
import pytest

import chatledger
from chatledger import InvalidValueError, Ledger, Recorded, user


def _fill(ledger: Ledger) -> None:
    for number, owner in enumerate(["ada", "bob", "ada", ""]):
        ledger.create_chat(f"c{number}", owner)
        ledger.append(f"c{number}", [user("hello")])


def _seen(events: list[Recorded]) -> list[tuple[str, str]]:
    return [(recorded.chat_id, recorded.type) for recorded in events]


@pytest.mark.parametrize("after", [0, 1, 4])
def test_an_owner_sees_their_own_chats(after: int) -> None:
    """From wherever the feed begins, it gives the events of that owner's chats, in order (PS-32)."""
    with chatledger.open("memory:") as ledger:
        _fill(ledger)
        everything = list(ledger.feed(after, follow=False))
        of_ada = list(ledger.feed(after, user_id="ada", follow=False))

        assert [recorded for recorded in everything if recorded.chat_id in {"c0", "c2"}] == of_ada


def test_an_empty_owner_is_an_owner() -> None:
    """An empty text filters like any other."""
    with chatledger.open("memory:") as ledger:
        _fill(ledger)

        assert {"c3"} == {recorded.chat_id for recorded in ledger.feed(0, user_id="", follow=False)}


def test_filters_combine() -> None:
    """Owner, chat and type have to fit all."""
    with chatledger.open("memory:") as ledger:
        _fill(ledger)
        feed = ledger.feed(0, user_id="ada", chat_id="c2", topics={"message_appended"}, follow=False)

        assert [("c2", "message_appended")] == _seen(list(feed))
        assert [] == list(ledger.feed(0, user_id="ada", chat_id="c1", follow=False))


def test_the_tombstone_comes_to_who_saw_the_chat() -> None:
    """Who follows a chat sees its deletion; who comes later can not tell whose it was. The id may find another owner."""
    with chatledger.open("memory:") as ledger:
        _fill(ledger)
        feed = ledger.feed(0, user_id="ada", follow=False)
        assert ("c0", "chat_created") == _seen([next(feed)])[0]
        ledger.delete_chat("c0")
        ledger.create_chat("c0", "bob")

        assert ("c0", "chat_deleted") in _seen(list(feed))
        assert [("c2", "chat_created"), ("c2", "message_appended")] == _seen(
            list(ledger.feed(0, user_id="ada", follow=False))
        )
        assert ("c0", "chat_created") in _seen(list(ledger.feed(0, user_id="bob", follow=False)))


def test_the_asynchronous_feed_filters_too() -> None:
    """The same arguments give the same events, also across a deletion."""
    seen: list[Recorded] = []

    async def main() -> None:
        async with chatledger.open_async("memory:") as ledger:
            await ledger.run(_fill)
            done = anyio.Event()

            async def watch() -> None:
                async for recorded in ledger.feed(0, user_id="ada"):
                    seen.append(recorded)
                    if recorded.type == "chat_deleted":
                        done.set()

            with anyio.fail_after(30):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(watch)
                    while len(seen) < 4:
                        await anyio.lowlevel.checkpoint()
                    await ledger.delete_chat("c0")
                    await done.wait()
                    tasks.cancel_scope.cancel()

    anyio.run(main)

    assert [("c0", "chat_created"), ("c0", "message_appended"), ("c2", "chat_created")] == _seen(seen)[:3]
    assert ("c0", "chat_deleted") == _seen(seen)[-1]


def test_a_wrong_owner_is_refused() -> None:
    """An owner is text."""
    with chatledger.open("memory:") as ledger, pytest.raises(InvalidValueError, match="user_id"):
        ledger.feed(0, user_id="x" * 2049)
