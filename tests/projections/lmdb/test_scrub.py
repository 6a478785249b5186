"""Scrubbing: deleted bytes leave the file of the index, whatever else goes on, and nothing else does."""

# White-box: a scrub is interrupted, and the format of the file altered.
# pyright: reportPrivateUsage=false

import os
import threading
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.naive_index import ask, dump, process
from tests.support.scrubbed_index import opened, sizes
from tests.support.soak import examples

from chatledger.projections.lmdb.environment import Transaction
from chatledger.projections.lmdb.scrub import scrub

value_tables = st.sampled_from(["rows", "search", "order"])
steps = st.lists(
    st.tuples(st.just("put"), value_tables, sizes, st.integers(0, 4))
    | st.tuples(st.just("ids"), st.integers(1, 150))
    | st.tuples(st.just("delete"), st.integers(0, 1000), st.integers(1, 30))
    | st.tuples(st.just("scrub")),
    max_size=14,
)


@given(steps)
@settings(max_examples=examples(60), deadline=None)
def test_what_was_deleted_is_gone_and_the_rest_stays(story: list[tuple[object, ...]]) -> None:
    """Any mixture of rows of any size, replaced, deleted and scrubbed: the file has what the tables have, and no more."""
    with TemporaryDirectory() as folder, opened(Path(folder), 256 * 1024) as world:
        for step in [*story, ("scrub",)]:
            match step:
                case ("put", str(table), list(), int(over)):
                    world.put(table, cast("list[int]", step[2]), over=over)
                case ("ids", int(count)):
                    world.put("message_ids", [16] * count)
                case ("delete", int(seed), int(count)):
                    known = list(world.rows)
                    world.delete(Random(seed).sample(known, min(count, len(known))))
                case _:
                    assert scrub(world.generation, is_last=True)
                    assert world.found() == world.wanted()
                    assert not world.is_due()
            world.check_rows()


def test_later_writes_bring_nothing_back(tmp_path: Path) -> None:
    """LMDB's memory of pages from before the deletion does not get into the unused parts of later pages."""
    with opened(tmp_path) as world:
        world.put("rows", [1000] * 500)
        doomed = list(world.rows)[:400]
        world.delete(doomed)
        assert scrub(world.generation, is_last=True)
        for _ in range(30):
            world.put("search", [30])
            world.put("order", [2100])

            assert world.found() == world.wanted()


def test_writes_between_a_deletion_and_its_scrub_bring_nothing_back(tmp_path: Path) -> None:
    """They copy branches with keys of rows that are no more, and memory has these copies longer than the file."""
    with opened(tmp_path) as world:
        generation = world.generation

        def fill(txn: Transaction) -> None:
            for at in range(1000):
                txn.put(b"%04d" % at + (b"kept" if at % 3 else b"<999999>") * 40, b"", db=generation.tables.rows)

        def empty(txn: Transaction) -> None:
            for at in range(1000):
                txn.delete(b"%04d" % at + b"<999999>" * 40, db=generation.tables.rows)
            generation.note_dirty(txn)

        def change(txn: Transaction) -> None:
            for at in range(1000):
                if at % 3:
                    txn.put(b"%04d" % at + b"kept" * 40, b"changed", db=generation.tables.rows)

        generation.update(fill)
        generation.update(empty)
        generation.update(change)
        assert world.found() == {b"<999999>"}
        assert scrub(generation, is_last=True)
        assert world.found() == set()
        world.put("search", [1500] * 1000)
        assert world.found() == world.wanted()


WRITER = """
generation = Generation(1, root, map_bytes=64 * 1024 * 1024)
tables = generation.tables
def fill(txn):
    for at in range(300):
        txn.put(b"%04d" % at, b"<999999>" * 125, db=tables.rows)
generation.update(fill)
say("filled")
while key := hear():
    generation.update(lambda txn: txn.put(key.encode(), b"x" * 2100, db=tables.search))
    say("written")
"""


@pytest.mark.soak
def test_other_processes_bring_nothing_back(tmp_path: Path) -> None:
    """Each process forgets what stood in its pages, before its next write."""
    with process(WRITER, tmp_path) as child:
        assert ask(child) == "filled"
        with opened(tmp_path) as world:
            generation = world.generation

            def empty(txn: Transaction) -> None:
                for at in range(300):
                    txn.delete(b"%04d" % at, db=generation.tables.rows)
                generation.note_dirty(txn)

            assert b"<999999>" in world.found()
            generation.update(empty)
            assert scrub(generation, is_last=True)
            left = world.generation.file.read_bytes().count(b"<999999>")
            for key in range(20):
                assert ask(child, f"{key}") == "written"

            assert left == 0
            assert world.found() == set()


def test_a_reader_keeps_what_it_sees(tmp_path: Path) -> None:
    """Who began before the deletion reads on; the scrub says that it is not done, and is when the reader has ended."""
    with opened(tmp_path) as world:
        world.put("rows", [1000] * 200)
        before = dict(world.rows)
        rows = world.generation.tables.rows
        with world.generation.reading() as txn:
            world.delete(list(world.rows)[50:150])

            assert not scrub(world.generation, is_last=True)
            assert {("rows", key): value for key, value in dump(txn, rows)} == before
            assert world.is_due()
        world.check_rows()
        assert scrub(world.generation, is_last=True)
        assert world.found() == world.wanted()


READER = """
generation = Generation(1, root, map_bytes=64 * 1024 * 1024)
with generation.reading() as txn:
    say("begun")
    hear()
    say(str(sum(bytes(value).startswith(b"<") for _, value in txn.cursor(generation.tables.rows))))
say("over")
hear()
"""


@pytest.mark.soak
def test_readers_of_other_processes_keep_what_they_see(tmp_path: Path) -> None:
    """As above; a reader that was killed is in nobody's way."""
    with opened(tmp_path) as world:
        world.put("rows", [1000] * 200)
        with process(READER, tmp_path) as child, process(READER, tmp_path) as killed:
            assert [ask(child), ask(killed)] == ["begun", "begun"]
            world.delete(list(world.rows)[50:150])
            killed.kill()
            killed.wait()

            assert not scrub(world.generation, is_last=True)
            assert ask(child, "count") == "200"
            assert ask(child) == "over"
            assert scrub(world.generation, is_last=True)
        assert world.found() == world.wanted()


def test_writing_with_old_memory_makes_it_due_again(tmp_path: Path) -> None:
    """Who cannot forget, as a transaction of the same process does not end, writes nevertheless, and notes it."""
    with opened(tmp_path) as world:
        world.put("rows", [1000] * 200)
        world.delete(list(world.rows)[:150])
        assert scrub(world.generation, is_last=True)
        with world.generation.reading():
            world.delete(list(world.rows)[:5])
            world.put("search", [30] * 20)
        world.put("search", [30] * 20)

        assert world.is_due()
        assert scrub(world.generation, is_last=True)
        assert world.found() == world.wanted()


def test_it_is_not_over_while_other_files_may_have_it(tmp_path: Path) -> None:
    """`is_last` False, because another generation is still in use: the file is clean, but it stays due."""
    with opened(tmp_path) as world:
        world.put("rows", [1000] * 20)
        world.delete(list(world.rows)[:10])

        assert not scrub(world.generation, is_last=False)
        assert world.found() == world.wanted()
        assert world.is_due()


SCRUBBER = """
import os
from chatledger.projections.lmdb.scrub import scrub
from chatledger.projections.lmdb.scrub import PageFile
generation = Generation(1, root, map_bytes=64 * 1024 * 1024)
left = int(hear())
overwrite = PageFile._overwrite
def counted(self, at, found, wanted):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), 9)
    overwrite(self, at, found, wanted)
PageFile._overwrite = counted
scrub(generation, is_last=True)
say("done")
"""


@pytest.mark.soak
@pytest.mark.parametrize("at", [1, 7, 40, 90])
def test_killed_in_the_middle(tmp_path: Path, at: int) -> None:
    """Killed at any write, it is still due, the rows are whole, and the next scrub finishes it."""
    with opened(tmp_path) as world:
        world.put("rows", [1000] * 200)
        world.put("search", [3000] * 50)
        world.delete(list(world.rows)[::2])
        with process(SCRUBBER, tmp_path) as child:
            assert ask(child, str(at)) == ""
            child.wait()

        assert world.is_due()
        world.check_rows()
        assert scrub(world.generation, is_last=True)
        assert world.found() == world.wanted()
        world.check_rows()


def test_unfinished_transactions_leave_nothing(tmp_path: Path) -> None:
    """What stands behind the last page, and in pages that a killed writer took, goes too."""
    with opened(tmp_path) as world:
        world.put("rows", [1000] * 20)
        with world.generation.file.open("ab") as file:
            file.write(b"<777777>" * 5000)
        world.delete(list(world.rows)[:1])

        assert scrub(world.generation, is_last=True)
        assert world.found() == world.wanted()
        world.put("rows", [1000] * 100)
        world.check_rows()


@pytest.mark.soak
def test_a_small_deletion_reads_a_small_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first time, only pages written since are looked at, not the whole index."""
    with opened(tmp_path) as world:
        for _ in range(20):
            world.put("rows", [900] * 500)
        world.delete(list(world.rows)[:1])
        looks = list[int]()
        read = os.pread

        def counted(fd: int, size: int, at: int) -> bytes:
            looks.append(at)
            return read(fd, size, at)

        monkeypatch.setattr(os, "pread", counted)
        scrub(world.generation, is_last=True)
        first = len(looks)
        world.delete(list(world.rows)[5000:5003])
        scrub(world.generation, is_last=True)

        assert first > 2500
        assert len(looks) - first < first / 3
        assert world.found() == world.wanted()


def test_others_work_meanwhile(tmp_path: Path) -> None:
    """Threads that write, delete and read while scrubs go on find exactly what they wrote."""
    with opened(tmp_path) as world:
        world.put("rows", [1000] * 100)
        fixed = dict(world.rows)
        generation, stop, wrong = world.generation, threading.Event(), list[str]()
        written = threading.Event()
        reads, scrubs, tokens = list[int](), list[bool](), list[bytes]()

        def write() -> None:
            while min(len(tokens), len(reads), len(scrubs)) < 200:
                tokens.append(b"<%06d>" % (500_000 + len(tokens)))

                def change(txn: Transaction) -> None:
                    for at in range(10):
                        txn.put(b"w%d" % at, tokens[-1] * (50 * at + 1), db=generation.tables.search)
                    if len(tokens) % 4 == 0:
                        generation.note_dirty(txn)

                generation.update(change)
                written.set()
            stop.set()

        def read() -> None:
            # A pause, or the interpreter would have little time for who writes.
            while not stop.wait(0.001):
                with generation.reading() as txn:
                    heads = {value[:8] for _, value in dump(txn, generation.tables.search)}
                    rows = {("rows", key): value for key, value in dump(txn, generation.tables.rows)}
                if len(heads) > 1 or rows != fixed:
                    wrong.append(f"{heads}")
                reads.append(len(rows))

        threads = [threading.Thread(target=write), threading.Thread(target=read), threading.Thread(target=read)]
        for thread in threads:
            thread.start()
        while not stop.is_set():
            written.wait(1)
            written.clear()
            scrubs.append(scrub(generation, is_last=True))
        for thread in threads:
            thread.join()
        generation.update(generation.note_dirty)

        assert not wrong
        assert scrub(generation, is_last=True)
        assert world.found() - world.wanted() == {tokens[-1]}
        world.check_rows()
