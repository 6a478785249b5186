"""Merging segments and removing deleted chats, step by step, between anything else: answers stay those of reading every message."""

import random
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.ledger_world import internals
from tests.support.search_actions import Action, Append, Delete, World, actions, queries
from tests.support.search_world import generation, search_rows, small_blocks
from tests.support.soak import examples

import chatledger
from chatledger import Ledger, NewMessage, user
from chatledger.projections.lmdb.environment import Transaction
from chatledger.projections.search import manifest as manifest_module
from chatledger.projections.search import merging
from chatledger.projections.search.documents import DocumentDirectory
from chatledger.projections.search.manifest import (
    SearchManifest,
    SearchSegment,
    SegmentMerge,
    manifest_of,
    put_manifest,
)

Step = Action | int
"""An action, or so many steps of merging."""
steps = st.lists(st.one_of(actions.map(lambda some: some[0]), st.integers(1, 4)), min_size=1, max_size=25)


def carry_out(world: World, step: Step) -> None:
    if isinstance(step, int):
        for _ in range(step):
            internals(world.ledger).index.merge_search()
    else:
        world.carry_out(step)


def manifest(ledger: Ledger) -> SearchManifest:
    live = generation(ledger)
    with live.reading() as txn:
        return manifest_of(txn, live.tables)


@settings(max_examples=examples(25), deadline=None)
@given(steps, st.lists(queries, min_size=1, max_size=3), st.sampled_from([1, 2, 3]), st.sampled_from([2, 9]))
def test_answers_stay_while_segments_are_merged(
    steps: Sequence[Step], asked: list[str], waiting: int, chunk: int
) -> None:
    """Whatever was written and deleted before, between the steps of merges, and after; and `verify` finds nothing wrong."""
    with small_blocks(waiting, chunk=chunk), chatledger.open("memory:") as ledger:
        world = World(ledger)
        for step in steps:
            carry_out(world, step)
        for query in asked:
            world.check(query)
        ledger.verify()
        while internals(ledger).index.merge_search():
            pass
        for query in asked:
            world.check(query)
            world.check_filters(query)
        ledger.verify()

        found = manifest(ledger)
        assert [] == found.merges
        assert [] == found.trash
        assert [] == found.deleted
        rows = {key[1:5] for key in search_rows(ledger) if key[:1] == b"T"}
        assert {segment.id.to_bytes(4, "big") for segment in found.segments} == rows


@settings(max_examples=examples(10), deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 12), st.sampled_from([1, 3]))
def test_a_deletion_leaves_no_trace_whatever_is_merged(seed: int, merged: int, waiting: int) -> None:
    """In rows and keys, those of merges that go on included; what the others have stays."""
    rng = random.Random(seed)
    with small_blocks(waiting), chatledger.open("memory:") as ledger:
        world = World(ledger)
        for number in range(12):
            world.carry_out(Append("c1", [f"secret{rng.randrange(6)} b|secret tool{number}|secret thought"] * 2))
            ledger.append("c1", [NewMessage(f"secret role {number}", "said")])
            world.carry_out(Append("c0", [f"a w{rng.randrange(6)} b"]))
        for _ in range(merged):
            internals(ledger).index.merge_search()
        world.carry_out(Delete("c1"))

        assert not [key for key, row in search_rows(ledger).items() if b"secret" in key + row]
        ledger.verify()
        for query in ("b", "w1 OR w2", "secret1", '"a w3"'):
            world.check(query)
        while internals(ledger).index.merge_search():
            pass
        world.check("b OR secret*")


class AbortedError(Exception):
    """Ends a transaction."""


@settings(max_examples=examples(10), deadline=None)
@given(steps, st.integers(1, 9), st.lists(queries, min_size=1, max_size=2))
def test_an_aborted_step_leaves_nothing_behind(steps: Sequence[Step], every: int, asked: list[str]) -> None:
    """Neither in the index nor in the memory of the process: the next step begins where the last whole one ended."""
    with small_blocks(), chatledger.open("memory:") as ledger:
        world, live = World(ledger), generation(ledger)

        def abort(txn: Transaction) -> None:
            merging.step(txn, live.tables, is_idle=True)
            raise AbortedError

        for number, step in enumerate(steps):
            carry_out(world, step)
            if number % every == 0:
                with pytest.raises(AbortedError):
                    live.update(abort)
        for query in asked:
            world.check(query)
        ledger.verify()


def test_many_segments_are_merged_at_once() -> None:
    """Also more of them than a step takes postings: each step takes one at least from each."""
    with small_blocks(waiting=1), pytest.MonkeyPatch.context() as patch, chatledger.open("memory:") as ledger:
        patch.setattr(merging, "FANOUT", 30)
        patch.setattr(manifest_module, "OVERDUE", 1000)
        patch.setattr(merging, "STEP_POSTINGS", 12)
        patch.setattr(internals(ledger).index, "merge_search", lambda: False)  # of the thread that follows the log
        world = World(ledger)
        for number in range(30):
            world.carry_out(Append(f"c{number % 3}", [f"a w{number % 4} b"]))
        live = generation(ledger)

        def step(txn: Transaction) -> bool:
            return merging.step(txn, live.tables)

        while live.update(step):
            pass

        assert [30] == [segment.documents for segment in manifest(ledger).segments]
        world.check("a OR w1")
        ledger.verify()


def test_segments_are_few_when_all_is_merged() -> None:
    """Each is larger than all smaller ones together, so a search looks into some ten, whatever the number of messages."""
    with small_blocks(waiting=1), chatledger.open("memory:") as ledger:
        world = World(ledger)
        for number in range(100):
            world.carry_out(Append(f"c{number % 3}", ["a b"]))
        while internals(ledger).index.merge_search():
            pass
        sizes = sorted(segment.documents for segment in manifest(ledger).segments)

        assert 100 == sum(sizes)
        assert all(size > sum(sizes[:at]) for at, size in enumerate(sizes))


def test_writers_merge_when_nobody_is_idle() -> None:
    """One that writes without a pause leaves no more segments than a few on each level."""
    with small_blocks(waiting=5), pytest.MonkeyPatch.context() as patch, chatledger.open("memory:") as ledger:
        patch.setattr(merging, "STEP_POSTINGS", 1000)
        patch.setattr(merging, "STEP_DOCUMENTS", 1000)
        world = World(ledger)
        most = 0
        for number in range(60):
            world.carry_out(Append(f"c{number % 3}", ["a b"] * (20 if number % 10 == 0 else 3)))
            most = max(most, len(manifest(ledger).segments))

        assert most < 30


def test_a_merge_that_misses_a_posting_is_refused() -> None:
    """Its inputs say how many postings there are; an output with fewer would leave messages out of answers for ever."""
    with small_blocks(), chatledger.open("memory:") as ledger:
        World(ledger).carry_out(Append("c0", ["salt"] * 12))
        live = generation(ledger)

        def miscount(txn: Transaction) -> None:
            counted = manifest_of(txn, live.tables)
            counted.segments[0].postings += 1
            merging.begin(counted, counted.segments)
            put_manifest(txn, live.tables, counted)

        def merge(txn: Transaction) -> None:
            while merging.step(txn, live.tables):
                pass

        live.update(miscount)
        with pytest.raises(chatledger.CorruptStateError, match="a merge of the search index has"):
            live.update(merge)


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3)), min_size=1, max_size=6), min_size=1, max_size=3),
    st.lists(st.integers(0, 3), max_size=2, unique=True),
)
def test_an_input_is_known_up_to_the_last_document_before(
    inputs: list[list[tuple[int, int]]], left_out: list[int]
) -> None:
    """Where the last document that was read belongs to a deleted chat, the next one of the output is not known yet."""
    number = 0
    directories: list[DocumentDirectory] = []
    for runs in inputs:
        messages: list[tuple[int, int]] = []
        for chat, count in runs:
            messages += [(chat, number + at) for at in range(count)]
            number += count
        chats, numbers = zip(*sorted(messages), strict=True)
        directories.append(DocumentDirectory.of_messages(np.array(chats, np.uint64), np.array(numbers, np.uint32)))
    sizes = [int(one.counts.sum()) for one in directories]

    for mapping, size in zip(merging.layout(directories, sizes, left_out).mappings, sizes, strict=True):
        kept = [at for at in range(size) if mapping.is_kept is None or mapping.is_kept[at]]
        for document in range(size):
            limit = mapping.limit(document)
            assert [at <= document for at in kept] == [mapping.numbers[at] <= limit for at in kept]


def test_a_damaged_row_is_reported() -> None:
    """A search says what can be done."""
    with small_blocks(), chatledger.open("memory:") as ledger:
        World(ledger).carry_out(Append("c0", ["salt"] * 12))
        live = generation(ledger)
        blocks = [key for key in search_rows(ledger) if re.match(rb"T....\x04", key, re.DOTALL)]

        def cut_off(txn: Transaction) -> None:
            for key in blocks:
                row = txn.get(key, db=live.tables.search)
                assert row is not None
                txn.put(key, row[:-1], db=live.tables.search)

        live.update(cut_off)
        with pytest.raises(chatledger.CorruptStateError, match="rebuild --only search"):
            ledger.search("salt")
        internals(ledger).rebuild_search()
        assert 12 == len(ledger.search("salt"))


@pytest.mark.parametrize("key", [b"M", b"S"], ids=["manifest", "totals"])
def test_a_damaged_head_is_reported_and_built_anew(key: bytes) -> None:
    """The manifest and the counts have checksums: nothing is searched by what they do not say."""
    with small_blocks(), chatledger.open("memory:") as ledger:
        World(ledger).carry_out(Append("c0", ["salt"] * 12))
        live = generation(ledger)

        def flip(txn: Transaction) -> None:
            row = txn.get(key, db=live.tables.search)
            assert row is not None
            txn.put(key, bytes([row[0] ^ 1]) + row[1:], db=live.tables.search)

        live.update(flip)
        with pytest.raises(chatledger.CorruptStateError, match="rebuild"):
            ledger.search("salt")
        internals(ledger).rebuild_search()
        assert 12 == len(ledger.search("salt"))


def test_a_manifest_says_what_is_worth_merging() -> None:
    """All small segments up to one that is much larger; nothing while a merge goes on."""

    def segments(*sizes: int) -> list[SearchSegment]:
        return [SearchSegment(at, 0, 0, size, 0) for at, size in enumerate(sizes, 1)]

    assert [] == SearchManifest(segments=segments(100)).small_segments
    assert [] == SearchManifest(segments=segments(100, 1000)).small_segments
    assert [1, 1] == [one.documents for one in SearchManifest(segments=segments(100, 1, 1)).small_segments]
    assert [1, 1, 4] == [one.documents for one in SearchManifest(segments=segments(100, 4, 1, 1)).small_segments]
    assert [] == SearchManifest(segments=segments(1, 1), merges=[SegmentMerge([1, 2], 3, [])]).small_segments


PROCESS: Final = """
import sys
from tests.support.search_world import small_blocks
from tests.support.ledger_world import internals
import chatledger
from chatledger import user

location, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with small_blocks(), chatledger.open(location, durability="fast") as ledger:
    ledger.create_chat(name, "ada")
    print("ready", flush=True)
    for number in range(count):
        ledger.append(name, [user(f"common {name} w{number % 7}")])
        internals(ledger).index.merge_search()
"""


@pytest.mark.soak
@pytest.mark.parametrize("is_killed", [False, True])
def test_processes_merge_one_index(is_killed: bool, tmp_path: Path) -> None:  # noqa: FBT001  # a case
    """Each goes on where another ended, also one that was killed."""
    location = f"sqlite:///{tmp_path}/log.db"
    with small_blocks(), chatledger.open(location, durability="fast") as ledger:
        count = 10_000 if is_killed else 25
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", PROCESS, location, f"p{number}", str(count)], stdout=subprocess.PIPE
            )
            for number in range(2)
        ]
        for process in processes:
            assert process.stdout is not None
            assert b"ready\n" == process.stdout.readline()
        ledger.create_chat("here", "ada")
        for number in range(25):
            ledger.append("here", [user(f"common here w{number % 7}")])
            internals(ledger).index.merge_search()
        for process in processes:
            if is_killed:
                process.kill()
            process.communicate(timeout=60)
        ledger.sync()

        for chat in ledger.list_chats():
            assert chat.message_count == len(ledger.search("common", chat_id=chat.id, limit=None))
            assert chat.message_count == len(ledger.search(f"common {chat.id}", limit=None))
        ledger.verify()
        while internals(ledger).index.merge_search():
            pass
        ledger.verify()
