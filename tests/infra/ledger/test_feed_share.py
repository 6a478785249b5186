"""Shares: several readers of one name, each with some of the chats."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.jetstream_world import eventually
from tests.support.ledger_world import text
from tests.support.soak import examples

import chatledger
from chatledger import InvalidValueError, Ledger
from chatledger.infra.ledger.feed.filter import share_of


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with chatledger.open("memory:") as ledger:
        for number in range(20):
            ledger.create_chat(f"c{number}", "u")
            ledger.append(f"c{number}", [text("x")])
        yield ledger


def test_shares_are_always_the_same() -> None:
    """These values must never change: members of old and new versions would leave chats out, or handle them twice."""
    assert [0, 4, 4, 2] == [share_of(chat_id, 5) for chat_id in ("trip", "c1", "ж", "x" * 2048)]
    assert [0, 3, 1, 3, 0, 0] == [share_of(f"chat-{number}", 4) for number in range(6)]


@settings(max_examples=examples(50))
@given(chat_ids=st.lists(st.text(min_size=1).filter(lambda t: t.isprintable()), max_size=20), count=st.integers(1, 9))
def test_every_chat_is_in_one_share(chat_ids: list[str], count: int) -> None:
    for chat_id in chat_ids:
        assert 0 <= share_of(chat_id, count) < count


def test_shares_are_about_equal() -> None:
    """Of 4,000 chats, each of four members gets about a thousand."""
    sizes = [0] * 4
    for number in range(4000):
        sizes[share_of(f"chat-{number}", 4)] += 1

    assert all(800 < size < 1200 for size in sizes)


@pytest.mark.parametrize("name", ["n", None])
def test_all_shares_together_are_everything(ledger: Ledger, name: str | None) -> None:
    """Each chat's events come to one member, in order; with a name or without."""
    given_to = [
        [recorded.position for recorded in ledger.feed(0, name=name, share=(index, 3), follow=False)]
        for index in range(3)
    ]

    assert all(one == sorted(one) and one for one in given_to)
    assert [recorded.position for recorded in ledger.history()] == sorted(chain.from_iterable(given_to))
    chats = [{recorded.chat_id for recorded in ledger.feed(0, share=(index, 3), follow=False)} for index in range(3)]
    assert not chats[0] & chats[1]
    assert not chats[2] & (chats[0] | chats[1])


def test_each_member_has_its_own_position(ledger: Ledger) -> None:
    """One that stops holds up no other, and goes on where it was."""
    fast = [recorded.position for recorded in ledger.feed(name="n", share=(0, 2), follow=False)]
    with ledger.feed(name="n", share=(1, 2)) as slow:
        first = next(slow).position
        slow.ack()
    ledger.append("c0", [text("y")])

    infos = {info.share: info for info in ledger.feeds()}
    assert (41, 40) == (ledger.last_position(), infos[0, 2].position)
    assert (1, first) == (infos[0, 2].lag, infos[1, 2].position)
    rest = [recorded.position for recorded in ledger.feed(name="n", share=(1, 2), follow=False)]
    more = [recorded.position for recorded in ledger.feed(name="n", share=(0, 2), follow=False)]
    assert list(range(1, 42)) == sorted([*fast, first, *rest, *more])


@pytest.mark.parametrize("share", [(0, 2), None, (1, 4)], ids=str)
def test_the_count_can_not_be_changed(ledger: Ledger, share: tuple[int, int] | None) -> None:
    """What a member has handled says nothing about shares cut otherwise; the refusal says what to do, and doing it works."""
    handled: list[int] = []
    for index in range(3):
        with ledger.feed(name="n", share=(index, 3)) as feed:
            handled.append([next(feed).position for _ in range(index + 1)][-1])
            feed.ack()
    lowest = min(info.position for info in ledger.feeds())
    with pytest.raises(InvalidValueError, match=rf"shares of 3.*forget the feed.*after={lowest}"):
        ledger.feed(name="n", share=share)

    assert 3 == len(ledger.feeds())
    assert min(handled) == lowest
    ledger.forget_feed("n")
    begun = ledger.feed(lowest, name="n", share=share)
    assert next(begun).position > lowest
    with pytest.raises(InvalidValueError, match="no shares" if share is None else f"shares of {share[1]}"):
        ledger.feed(name="n", share=(0, 3))


def test_members_work_side_by_side(ledger: Ledger) -> None:
    """Four members in threads handle everything once while it is written."""
    handled: list[list[tuple[str, int]]] = [[], [], [], []]
    feeds = [ledger.feed(name="n", share=(index, 4)) for index in range(4)]

    def handle(index: int) -> None:
        for recorded in feeds[index]:
            handled[index].append((recorded.chat_id, recorded.version))

    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(handle, index) for index in range(4)]
        for number in range(200):
            ledger.append(f"c{number % 20}", [text(str(number))])
        eventually(lambda: sum(map(len, handled)) >= 240)
        for feed in feeds:
            feed.close()
        for future in futures:
            future.result(20)

    everything = [(recorded.chat_id, recorded.version) for recorded in ledger.history()]
    assert sorted(everything) == sorted(chain.from_iterable(handled))
    for one in handled:
        for chat_id in {chat_id for chat_id, _ in one}:
            assert list(range(1, 13)) == [version for found, version in one if found == chat_id]
