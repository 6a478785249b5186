"""The search index against reading every message: the same messages, ranks and order, however the index came to be."""

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.ledger_world import internals
from tests.support.naive_index import live, opened
from tests.support.search_actions import OWNERS, Action, Append, Delete, Fork, World, actions, queries
from tests.support.search_world import (
    build_search,
    drop_search,
    generation,
    messages_in_log_order,
    search_rows,
    small_blocks,
)
from tests.support.soak import examples
from tests.support.stories import Story, user

import chatledger
from chatledger import Ledger, NewMessage
from chatledger.projections.search import indexer
from chatledger.projections.search.indexer import count_indexed
from chatledger.projections.search.manifest import SearchManifest, Totals, manifest_of, totals_of

EVERYTHING = "everything"


@pytest.mark.soak
@settings(max_examples=examples(100))
@given(actions, st.lists(queries, min_size=1, max_size=6), st.sampled_from([1, 3, 50]), st.integers(0, 9))
@example([Append("c0", ["b a b"])], ['"a b"', '"b a b"'], 50, 0)  # a phrase whose second term is the first of all
@example([Append("c0", ["b a b"] * 4)], ['"a b"', '"a b*"'], 3, 0)
def test_the_index_finds_what_reading_finds(actions: list[Action], queries: list[str], waiting: int, seed: int) -> None:
    """In every scope, with the same ranks, in the order of rank and time; whatever of it waits, or is in which segment."""
    with small_blocks(waiting), chatledger.open("memory:") as ledger:
        world = World(ledger, seed)
        for action in actions:
            world.carry_out(action)
        for query in queries:
            world.check(query)
            world.check_filters(query)


@pytest.mark.soak
@settings(max_examples=examples(40))
@given(actions, st.lists(queries, min_size=1, max_size=4), st.integers(1, 5), st.integers(0, 12), actions)
def test_answers_stay_when_the_index_is_built_anew(
    before: list[Action], queries: list[str], chunk: int, steps: int, after: list[Action]
) -> None:
    """From the log, from the messages, and in steps, interrupted and gone on with, while messages are written."""
    with small_blocks(), chatledger.open("memory:") as ledger:
        world = World(ledger)
        for action in before:
            world.carry_out(action)
        expected = [world.answers(query) for query in queries]

        ledger.rebuild()
        assert expected == [world.answers(query) for query in queries]
        internals(ledger).rebuild_search()
        assert expected == [world.answers(query) for query in queries]

        build_search(ledger, anew=True, chunk_messages=chunk, stop_after=steps)
        for action in after:
            world.carry_out(action)
        assert build_search(ledger, anew=False, chunk_messages=chunk)
        for query in queries:
            world.check(query)
        expected = [world.answers(query) for query in queries]
        internals(ledger).rebuild_search()
        assert expected == [world.answers(query) for query in queries]


def search_state(ledger: Ledger) -> tuple[Totals, SearchManifest]:
    live = generation(ledger)
    with live.reading() as txn:
        return totals_of(txn, live.tables), manifest_of(txn, live.tables)


def indexed(ledger: Ledger) -> list[int]:
    """Number of messages of each chat that are in the index."""
    live = generation(ledger)
    with live.reading() as txn:
        return count_indexed(txn, live.tables, [live.tables.chat_no(txn, chat) or 0 for chat in OWNERS])


@pytest.mark.soak
def test_many_messages_in_batches_of_all_sizes() -> None:
    """With segments as large as they are: some messages still wait, and some terms fill several blocks."""
    world_random = random.Random(1)
    vocabulary = [f"w{number}" for number in range(400)]
    with chatledger.open("memory:") as ledger:
        world = World(ledger, 1)
        while world.count < 1500:
            size = world_random.choice([1, 1, 2, 30, 63, 64, 65, world_random.randint(1, 300)])
            lines = [
                " ".join(vocabulary[int(400 * world_random.random() ** 4)] for _ in range(world_random.randint(0, 40)))
                for _ in range(size)
            ]
            chat = world_random.choice(["c0", "c0", "c0", "c2"])
            parent = world_random.randrange(1500)
            world.carry_out(Append(chat, lines) if world_random.random() < 0.7 else Fork(chat, parent, lines))
        world.carry_out(Append("c0", ["w0 w1"]))
        if not search_state(ledger)[0].pending:
            world.carry_out(Append("c0", ["w0 w1"]))  # that was the last of 192
        asked = ["w0", "w399", "w1 w2", '"w0 w0"', '"w1 w0 w2"', "w3*", "w0 NOT w1", "(w5 OR w250) NOT w2*", '"w0 w1*"']
        for query in asked:
            world.check(query)
            world.check_filters(query)
        expected = [world.answers(query) for query in asked]

        totals, manifest = search_state(ledger)
        assert 0 < totals.pending < totals.documents
        assert totals.documents == totals.pending + sum(segment.documents for segment in manifest.segments)
        assert len(messages_in_log_order(ledger, "c0")) == indexed(ledger)[0]

        assert build_search(ledger, anew=True, chunk_messages=100)
        assert expected == [world.answers(query) for query in asked]


@pytest.mark.parametrize("waiting", [1, 3, 50])
def test_nothing_of_a_deleted_chat_is_kept(waiting: int) -> None:
    """Neither in a row nor in a key: neither postings and texts that wait, nor names; and the counts are those of the rest."""
    with small_blocks(waiting), chatledger.open("memory:") as ledger:
        world = World(ledger)
        world.carry_out(Append("c0", ["a b c"] * 7))
        alone = search_state(ledger)[0]
        for round_no in range(4):
            world.carry_out(Append("c1", ["secret b|secret tool|secret thought"] * 8))
            ledger.append("c1", [NewMessage("secret role", f"late secret{round_no}")])
            world.carry_out(Append("c0", ["a b c"]))
        assert any(b"secret" in key + row for key, row in search_rows(ledger).items())
        world.carry_out(Delete("c1"))

        assert not [key for key, row in search_rows(ledger).items() if b"secret" in key + row]
        after, manifest = search_state(ledger)
        assert (alone.documents + 4, alone.text + 12, 0, 0) == after[1:5]
        assert not manifest.deleted
        assert 11 == len(ledger.search("b", limit=None))
        world.check("b OR secret")


def test_a_building_that_was_stopped_goes_on() -> None:
    """What was taken in stays: each run begins where the one before it ended, in whatever chat that was."""
    with small_blocks(), chatledger.open("memory:") as ledger:
        world = World(ledger)
        for chat in OWNERS:
            world.carry_out(Append(chat, ["a b"] * 10))
        drop_search(ledger)
        live = generation(ledger)
        taken: list[int] = []
        while not indexer.is_complete(live, live.tables):
            build_search(ledger, anew=False, chunk_messages=4, stop_after=1)
            taken.append(sum(indexed(ledger)))

        assert [4, 8, 12, 16, 20, 24, 28, 30] == taken[:8]
        world.check("a b")


def test_another_version_is_built_anew_at_open(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that another version wrote are not read; until they are replaced, answers are compared word for word."""
    index = tmp_path / "index"
    with chatledger.open(tmp_path / "log", index=index, durability="fast") as ledger:
        world = World(ledger)
        world.carry_out(Append("c0", ["Running a", "b"]))
        (hit,) = ledger.search("run")
        assert not ledger.search("run").is_degraded

        with monkeypatch.context() as patch:
            patch.setattr(indexer, "VERSION", b"another")
            degraded = ledger.search("unn")
            assert degraded.is_degraded
            assert ["Running a"] == [hit.message.text for hit in degraded]
            world.carry_out(Append("c0", ["running late"]))
            assert ["running late", "Running a"] == sorted(hit.message.text for hit in ledger.search("running"))[::-1]

        # What the other version left out is missing, and the index says so.
        assert ledger.search("run").is_degraded
        assert indexer.is_complete(generation(ledger), generation(ledger).tables) is False

    with chatledger.open(tmp_path / "log", index=index, durability="fast") as ledger:
        assert {"Running a", "running late"} == {hit.message.text for hit in ledger.search("run")}
        assert not ledger.search("run").is_degraded
        assert hit.message in [found.message for found in ledger.search("run")]

    monkeypatch.setattr(indexer, "VERSION", b"another")
    with chatledger.open(tmp_path / "log", index=index, durability="fast") as ledger:
        assert indexer.is_complete(generation(ledger), generation(ledger).tables)
        assert not ledger.search("run").is_degraded
        assert 2 == len(ledger.search("run"))


def test_a_chat_whose_index_is_complete_is_ranked_while_others_are_not() -> None:
    """Chats are built one after the other; those that are done answer from the index at once."""
    with chatledger.open("memory:") as ledger:
        world = World(ledger)
        for chat in OWNERS:
            world.carry_out(Append(chat, ["Running"] * 3))
        drop_search(ledger)
        assert all(ledger.search("running", chat_id=chat).is_degraded for chat in OWNERS)
        assert not build_search(ledger, anew=False, chunk_messages=3, stop_after=1)

        done = [chat for chat in OWNERS if not ledger.search("runs", chat_id=chat).is_degraded]
        assert 1 <= len(done) < 3
        assert all(3 == len(ledger.search("runs", chat_id=chat)) for chat in done)
        found = ledger.search("running", limit=None)
        assert found.is_degraded
        assert 9 == len(found)
        assert {3 * len(done)} == {sum(hit.rank < 0 for hit in found)}
        assert all(hit.rank < 0 for hit in found[: 3 * len(done)])
        pages = [ledger.search("running", limit=2, offset=start) for start in range(0, 10, 2)]
        assert found == [hit for page in pages for hit in page]


def test_what_a_transaction_writes_is_one_segment(tmp_path: Path) -> None:
    """Of however many chats: as when many transcripts are kept at once. Each chat by itself would make one, or wait."""
    story = Story()
    for number in range(5):
        story.create(f"c{number}")
        story.append(*[user(f"m{number}.{at}", f"word {at}") for at in range(60)], chat_id=f"c{number}")
    with opened(tmp_path) as index:
        index.apply(story.events)
        with live(index).reading() as txn:
            totals, manifest = totals_of(txn, live(index).tables), manifest_of(txn, live(index).tables)

    assert (300, 0) == (totals.documents, totals.pending)
    assert [300] == [segment.documents for segment in manifest.segments]
