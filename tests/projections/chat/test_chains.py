import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.naive_index import NaiveTree, indexed, live, opened, place_of, reader, rows
from tests.support.soak import examples
from tests.support.stories import CHAT, Story, user

from chatledger.domain.errors import ChainIntegrityError, CorruptStateError
from chatledger.domain.values import Message, NewMessage
from chatledger.projections.chat.pages import PAGE_BYTES, PAGE_MESSAGES
from chatledger.projections.chat.reader import IndexedChat
from chatledger.projections.index import Index
from chatledger.projections.lmdb.environment import Transaction
from chatledger.projections.lmdb.keys import Tag

Plan = Sequence[tuple[int, int]]
"""For each message how far before it its parent is (0: a root), and the length of its data."""

plans = st.lists(
    st.tuples(st.integers(0, 6), st.sampled_from([0, 1, 1, 1, 300, 9_000, 40_000])), min_size=1, max_size=60
)


def tree(plan: Plan) -> list[NewMessage]:
    return [
        user(f"m{at}", "x" * size, parent_id=f"m{at - back}" if 0 < back <= at else None)
        for at, (back, size) in enumerate(plan)
    ]


def straight(count: int, *, size: int = 5) -> list[NewMessage]:
    return tree([(1, size)] * count)


def written(drafts: Sequence[NewMessage], per_event: Sequence[int]) -> Story:
    """The messages with explicit parents, so many in each event; the last number goes for the rest."""
    story = Story()
    story.create()
    at = number = 0
    while at < len(drafts):
        count = per_event[min(number, len(per_event) - 1)]
        story.add(*drafts[at : at + count])
        at, number = at + count, number + 1
    return story


def apply_in(index: Index, story: Story, page: int) -> None:
    read, position = reader(story.events, page), 0
    while events := read(position):
        index.apply(events)
        position = events[-1].position


def check_against(chat: IndexedChat, messages: list[Message], pairs: Sequence[tuple[str, str]]) -> None:
    """Every question on every message, and on pairs of messages, is answered as by walking."""
    naive, chains = NaiveTree(messages), chat.chains
    places = {message.id: place_of(chat, message.id) for message in messages}
    names = {place: message_id for message_id, place in places.items()}

    assert len(names) == len(places)
    assert messages == [message for _, message in sorted(chains.all_messages(), key=lambda item: item[0])]
    assert list(range(len(messages))) == sorted(ordinal for ordinal, _ in chains.all_messages())
    assert {place: message.id for place, message in chains.all_places()} == names
    assert naive.children(None) == [names[place] for place in chains.roots()]
    for message in messages:
        place, chain = places[message.id], naive.chain(message.id)
        children = [names[child] for child in chains.children(place)]
        parent = chains.parent(place)

        assert message == chains.message(place)
        assert chain == chains.chain(place)
        assert len(chain) - 1 == chains.depth(place)
        assert message.parent_id == (None if parent is None else names[parent])
        assert naive.children(message.id) == children
        assert bool(children) == chains.has_children(place)
        assert [found.id for found in chain] == [names[chains.ancestor(place, depth)] for depth in range(len(chain))]
        for limit in {0, 1, 2, len(chain) // 2, len(chain) - 1, len(chain), len(chain) + 5}:
            assert (chain[-limit:] if limit else []) == chains.chain(place, limit)
    for a, b in pairs:
        common = chains.common_ancestor(places[a], places[b])

        assert naive.common(a, b) == (None if common is None else names[common])
        assert (messages and naive.messages[a] in naive.chain(b)) == chains.is_ancestor(places[a], places[b])
        assert chat.is_ancestor(a, b) == chains.is_ancestor(places[a], places[b])


def some_pairs(messages: Sequence[Message], count: int, seed: int = 1) -> list[tuple[str, str]]:
    print(f"seed {seed}")
    chosen = random.Random(seed)
    message_ids = [message.id for message in messages]
    return [(chosen.choice(message_ids), chosen.choice(message_ids)) for _ in range(count)]


@given(plans, st.lists(st.integers(1, 30), min_size=1, max_size=5), st.integers(1, 20))
@settings(max_examples=examples(80), deadline=None)
@example([(1, 1)] * 5, [1], 1)
@example([(0, 1), (0, 1), (2, 1), (2, 1)], [1], 1)
def test_any_tree_reads_as_by_walking(plan: Plan, per_event: list[int], page: int) -> None:
    """Chains, limits, ancestors, children and order agree with a dictionary of parents, however they were written."""
    story = written(tree(plan), per_event)
    messages = story.chat().messages
    message_ids = [message.id for message in messages]
    with TemporaryDirectory() as folder, opened(Path(folder)) as index:
        apply_in(index, story, page)
        with indexed(index, CHAT) as chat:
            pairs = [(a, b) for a in message_ids[-12:] for b in message_ids[:: max(1, len(message_ids) // 12)]]
            check_against(chat, messages, pairs)


@given(plans, st.integers(1, 7))
@settings(max_examples=examples(25), deadline=None)
def test_flushes_do_not_show(plan: Plan, page: int) -> None:
    """One event per transaction, some, or all at once: the same answers and the same segments."""
    story = written(tree(plan), [1])
    found: list[object] = []
    for size in (1, page, 10_000):
        with TemporaryDirectory() as folder, opened(Path(folder)) as index:
            apply_in(index, story, size)
            with indexed(index, CHAT) as chat:
                found.append(
                    [
                        (chat.chains.message(place), chat.chains.chain(place), place)
                        for place, _ in sorted(chat.chains.all_places())
                    ]
                )

    assert found[0] == found[1] == found[2]


@pytest.mark.matrix
@pytest.mark.parametrize("page", [1, 7, PAGE_MESSAGES, PAGE_MESSAGES + 1, 10_000])
@pytest.mark.parametrize("count", [1, 2, PAGE_MESSAGES - 1, PAGE_MESSAGES, PAGE_MESSAGES + 1, 3 * PAGE_MESSAGES + 5])
def test_pages_end_anywhere(tmp_path: Path, page: int, count: int) -> None:
    """Runs of all lengths about that of a page are complete, with every limit."""
    story = written(straight(count), [1])
    with opened(tmp_path) as index:
        apply_in(index, story, page)
        with indexed(index, CHAT) as chat:
            chain = story.chat().messages
            head = place_of(chat, chain[-1].id)

            assert all(chain[-limit:] == chat.chains.chain(head, limit) for limit in range(1, count + 1))
            assert all([message] == chat.chains.chain((0, at), 1) for at, message in enumerate(chain))


def test_a_long_straight_chain(tmp_path: Path) -> None:
    """5,000 messages in single events are one segment in full pages."""
    story = written(straight(5000), [1])
    messages = story.chat().messages
    with opened(tmp_path, story.events) as index, indexed(index, CHAT) as chat:
        head = place_of(chat, "m4999")
        pages = [key for key, _ in rows(index)["rows"] if key[8:9] == b"\x0a"]

        assert (0, 4999) == head
        assert messages == chat.chains.chain(head)
        assert messages[-7:] == chat.chains.chain(head, 7)
        assert messages[2493:2500] == chat.chains.chain((0, 2499), 7)
        assert messages[2500] == chat.chains.message((0, 2500))
        assert len(pages) <= 5000 // PAGE_MESSAGES + PAGE_MESSAGES


@pytest.mark.soak
@pytest.mark.parametrize("every", [1, 10])
@pytest.mark.parametrize("page", [1, 1000])
def test_forks_at_every_nth_message(tmp_path: Path, every: int, page: int) -> None:
    """A fork at every message, or at every tenth, each with a chain of its own."""
    drafts = straight(200)
    for at in range(0, 200, every):
        drafts += [user(f"f{at}", at, parent_id=f"m{at}"), user(f"g{at}", None, parent_id=f"f{at}")]
    story = written(drafts, [3])
    messages = story.chat().messages
    with opened(tmp_path) as index:
        apply_in(index, story, page)
        with indexed(index, CHAT) as chat:
            check_against(chat, messages, some_pairs(messages, 400))


@pytest.mark.soak
@pytest.mark.parametrize("depth", [200])
def test_forks_of_forks(tmp_path: Path, depth: int) -> None:
    """Each fork hangs on the fork before: 200 segments above one another, found by skip pointers."""
    drafts = [user("m0")]
    for at in range(depth):
        last = drafts[-1].id
        drafts += [user(f"first{at}", parent_id=last), user(f"second{at}", parent_id=last)]
    story = written(drafts, [1000])
    messages = story.chat().messages
    with opened(tmp_path, story.events) as index, indexed(index, CHAT) as chat:
        check_against(chat, messages, some_pairs(messages, 400))


@pytest.mark.parametrize("size", [PAGE_BYTES - 100, PAGE_BYTES, PAGE_BYTES + 1, 5 * PAGE_BYTES, 1_000_000])
def test_messages_larger_than_a_page(tmp_path: Path, size: int) -> None:
    """Large messages stand among small ones, alone in their pages."""
    plan = [(1, size if at % 3 == 1 else 10) for at in range(12)]
    story = written(tree(plan), [1])
    messages = story.chat().messages
    with opened(tmp_path) as index:
        apply_in(index, story, 1)
        with indexed(index, CHAT) as chat:
            check_against(chat, messages, some_pairs(messages, 20))


@pytest.mark.parametrize("page", [1, 5, 1000])
def test_interleaved_branches(tmp_path: Path, page: int) -> None:
    """Three branches and two chats that grow in turn do not get in each other's way."""
    story = Story()
    for chat_id in (CHAT, "other"):
        story.create(chat_id)
        story.add(user(f"{chat_id} root"), chat_id=chat_id)
    for at in range(90):
        for chat_id in (CHAT, "other"):
            lane = f"{chat_id} {at % 3}"
            parent_id = f"{lane} {at - 3}" if at >= 3 else f"{chat_id} root"
            story.add(user(f"{lane} {at}", at, parent_id=parent_id), chat_id=chat_id)
    with opened(tmp_path) as index:
        apply_in(index, story, page)
        for chat_id in (CHAT, "other"):
            messages = story.chat(chat_id).messages
            with indexed(index, chat_id) as chat:
                check_against(chat, messages, some_pairs(messages, 100))


def test_a_missing_page_is_not_a_shorter_chain(tmp_path: Path) -> None:
    """A hole in the index raises, it never cuts a chain silently (SM-11, SM-14)."""
    story = written(straight(300), [300])
    with opened(tmp_path, story.events) as index:
        env, table = live(index), live(index).tables.rows
        pages = [(key, value) for key, value in rows(index)["rows"] if key[8:9] == b"\x0a"]
        for key, value in (pages[0], pages[2], pages[-1]):

            def take(txn: Transaction, key: bytes = key) -> None:
                txn.delete(key, db=table)

            def put_back(txn: Transaction, key: bytes = key, value: bytes = value) -> None:
                txn.put(key, value, db=table)

            env.update(take)
            first = int.from_bytes(key[-4:], "big")
            with indexed(index, CHAT) as chat:
                with pytest.raises(ChainIntegrityError, match="rebuild"):
                    chat.chains.chain((0, 299))
                with pytest.raises(ChainIntegrityError, match="rebuild"):
                    chat.chains.message((0, first))  # nor is anything read from behind the page before it
            env.update(put_back)
        with indexed(index, CHAT) as chat:
            assert 300 == len(chat.chains.chain((0, 299)))


def test_a_missing_segment_is_noticed(tmp_path: Path) -> None:
    """A row that is named but not there raises."""
    story = written(straight(3), [3])
    with opened(tmp_path, story.events) as index, indexed(index, CHAT) as chat, pytest.raises(ChainIntegrityError):
        chat.chains.segment(7)


@pytest.mark.parametrize("tag", [Tag.SEGMENT, Tag.PAGE], ids=["segment", "page"])
def test_a_forked_chain_needs_its_own_rows_and_no_others(tmp_path: Path, tag: bytes) -> None:
    """Segments and pages that are fetched many at a time: each that the chain has is missed and checked, the others are not."""
    drafts = [user("m0")]
    for at in range(1, 40):
        drafts += [user(f"{kind}{at}", "x", parent_id=f"m{at - 1}") for kind in ("a", "b", "m")]
    story = written(drafts, [50])
    with opened(tmp_path, story.events) as index:
        env, table = live(index), live(index).tables.rows
        with indexed(index, CHAT) as chat:
            head = place_of(chat, "m39")
            expected = chat.chains.chain(head)
            own = {place_of(chat, message.id)[0] for message in expected}
        assert [f"m{at}" for at in range(40)] == [message.id for message in expected]
        for key, value in rows(index)["rows"]:
            if key[8:9] != tag:
                continue
            is_own = int.from_bytes(key[9:13], "big") in own
            for damaged in (None, bytes([value[0] ^ 1]) + value[1:]):
                env.update(partial(set_row, table, key, damaged))
                with indexed(index, CHAT) as chat:
                    if is_own:
                        with pytest.raises((ChainIntegrityError, CorruptStateError), match="rebuild"):
                            chat.chains.chain(head)
                    elif damaged is not None:
                        assert expected == chat.chains.chain(head)
                env.update(partial(set_row, table, key, value))


def set_row(table: Any, key: bytes, value: bytes | None, txn: Transaction) -> None:
    if value is None:
        txn.delete(key, db=table)
    else:
        txn.put(key, value, db=table)


def test_an_index_of_many_chats_keeps_chains_apart(tmp_path: Path) -> None:
    """The page before the first of a chat, and after its last, belongs to another chat and is never read."""
    story = Story()
    for number in range(5):
        story.chain(*(f"c{number} m{at}" for at in range(70)), chat_id=f"c{number}")
    with opened(tmp_path) as index:
        index.rebuild(reader(story.events, 13))
        for number in range(5):
            with indexed(index, f"c{number}") as chat:
                chain = chat.chains.chain(place_of(chat, f"c{number} m69"))

                assert story.chat(f"c{number}").messages == chain
                assert [chain[0]] == chat.chains.chain((0, 0))
