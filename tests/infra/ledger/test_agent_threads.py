"""Threads of agents on a ledger, against a model in dictionaries."""

import copy
import io
import time
from collections.abc import Generator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.support.agent_threads import check_reached, put, tree_of, value_of, values_of
from tests.support.operation_counting import counting
from tests.support.soak import examples

import chatledger
from chatledger.domain.chat.import_tree import Reporter
from chatledger.domain.errors import (
    AlreadyExistsError,
    CheckpointConflictError,
    CheckpointExistsError,
    InvalidValueError,
    NotFoundError,
)
from chatledger.domain.versioned.content import DIGEST_BYTES, Tree
from chatledger.domain.versioned.events import Skeleton
from chatledger.domain.versioned.keys import MAX_CHECKPOINT_ID_BYTES
from chatledger.domain.versioned.pruning import Removal
from chatledger.domain.versioned.record import VersionRecord
from chatledger.importers import ImportedValue, write_all
from chatledger.infra.exchange.jsonl import read_export
from chatledger.infra.ledger.threads import Threads


@pytest.fixture
def threads() -> Any:
    """Threads on a ledger in memory."""
    with chatledger.open("memory:") as ledger:
        yield Threads(ledger)


THREADS = ("one", "two", "three")
NAMESPACES = ("", "assistant:a", "assistant:a|sub:1", "assistant:ab")
Value = str | list["Value"] | dict[str, "Value"]


LEAVES: st.SearchStrategy[Any] = st.sampled_from(["a", "b", "c" * 50, "d"])


def _grouped(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return LEAVES | st.lists(inner, max_size=6) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3)


LONG = "".join(sha256(str(number).encode()).hexdigest() for number in range(400))
TEXTS = st.builds(lambda at: LONG[:at] + "changed" + LONG[at:], st.integers(0, len(LONG)))
"""Of 25 kB, which are cut and stored as edits of the text before."""
VALUES = _grouped(_grouped(LEAVES)) | TEXTS


class ThreadsMachine(RuleBasedStateMachine):
    """Random operations on a few threads; everything that should be there is, and nothing else takes room."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = chatledger.open("memory:")
        self.threads = Threads(self.ledger)
        self.checkpoints: dict[tuple[str, str, str], tuple[str | None, dict[str, Any]]] = {}
        self.writes: dict[tuple[str, str, str], dict[tuple[str, int], Any]] = {}
        self.lists: dict[tuple[str, str], list[Any]] = {}
        self.bare: set[tuple[str, str, str]] = set()

    @rule(
        thread_id=st.sampled_from(THREADS),
        namespace=st.sampled_from(NAMESPACES),
        number=st.integers(0, 12),
        grown=st.lists(VALUES, max_size=3),
        other=VALUES,
    )
    def put(self, thread_id: str, namespace: str, number: int, grown: list[Any], other: Any) -> None:
        """A list that grows, and another value; under an id that is taken they are refused, or there already."""
        messages = [*self.lists.get((thread_id, namespace), []), *grown]
        key = thread_id, namespace, f"{number:02}"
        parent = f"{number - 1:02}" if number else None
        values = {"messages": messages, "other": other}
        try:
            put(self.threads, thread_id, key[2], values, parent_id=parent, namespace=namespace)
        except CheckpointExistsError:
            assert key in self.bare or self.checkpoints[key] != (parent, values)
            return
        assert self.checkpoints.get(key) in (None, (parent, values))
        self.bare.discard(key)
        self.lists[thread_id, namespace] = messages
        self.checkpoints[key] = parent, values

    @precondition(lambda self: self.checkpoints)
    @rule(data=st.data(), steps=st.lists(st.tuples(st.lists(VALUES, max_size=3), TEXTS), min_size=1, max_size=5))
    def go_on(self, data: st.DataObject, steps: list[tuple[list[Any], str]]) -> None:
        """From a checkpoint that is there: its values are what the next ones come out of."""
        thread_id, namespace, checkpoint_id = data.draw(st.sampled_from(sorted(self.checkpoints)))
        for number, (grown, other) in enumerate(steps, int(checkpoint_id) + 1):
            self.put(thread_id, namespace, number, grown, other)

    @precondition(lambda self: self.checkpoints)
    @rule(data=st.data())
    def prune_one(self, data: st.DataObject) -> None:
        thread_id, namespace, checkpoint_id = data.draw(st.sampled_from(sorted(self.checkpoints)))
        self.prune(thread_id, namespace, [int(checkpoint_id)], bare=-1)

    @rule(
        thread_id=st.sampled_from(THREADS),
        namespace=st.sampled_from(NAMESPACES),
        number=st.integers(0, 12),
        task_id=st.sampled_from("tu"),
        indexes=st.lists(st.sampled_from([-3, -1, 0, 1]), min_size=1, max_size=3, unique=True),
        value=VALUES,
    )
    def put_writes(
        self, thread_id: str, namespace: str, number: int, task_id: str, indexes: list[int], value: Any
    ) -> None:
        """Writes, also of checkpoints that are not there."""
        self.threads.put_writes(
            thread_id,
            namespace,
            f"{number:02}",
            task_id=task_id,
            task_path="path",
            writes=[(index, "channel", tree_of(value)) for index in indexes],
        )
        slots = self.writes.setdefault((thread_id, namespace, f"{number:02}"), {})
        for index in indexes:
            if index < 0 or (task_id, index) not in slots:
                slots[task_id, index] = value

    @rule(thread_id=st.sampled_from(THREADS), namespace=st.sampled_from([None, *NAMESPACES]))
    def delete(self, thread_id: str, namespace: str | None) -> None:
        """A thread, or a namespace with those below it."""
        with self.removing(thread_id):
            self.threads.delete(thread_id, within=namespace)
        for kept in (self.checkpoints, self.writes):
            for key in list(kept):
                is_within = namespace is None or key[1] == namespace or key[1].startswith(f"{namespace}|")
                if key[0] == thread_id and is_within:
                    del kept[key]
        self.bare = {
            key
            for key in self.bare
            if key[0] != thread_id
            or not (namespace is None or key[1] == namespace or key[1].startswith(f"{namespace}|"))
        }

    @rule(
        thread_id=st.sampled_from(THREADS),
        namespace=st.sampled_from(NAMESPACES),
        numbers=st.lists(st.integers(0, 12), min_size=1, max_size=4, unique=True),
        bare=st.integers(0, 12),
    )
    def prune(self, thread_id: str, namespace: str, numbers: list[int], bare: int) -> None:
        """Some checkpoints with their writes; one leaves a skeleton."""
        keys = [(namespace, f"{number:02}") for number in numbers if number != bare]
        is_there = (thread_id, namespace, f"{bare:02}") in self.checkpoints
        skeletons = [Skeleton(namespace, f"{bare:02}", ("messages",))] if is_there else []
        with self.removing(thread_id):
            self.threads.remove(thread_id, lambda _thread: Removal(keys, skeletons), reason="pruned")
        for key in [*keys, *((one.line, one.id) for one in skeletons)]:
            self.checkpoints.pop((thread_id, *key), None)
            self.writes.pop((thread_id, *key), None)
        self.bare -= {(thread_id, *key) for key in keys}
        self.bare |= {(thread_id, one.line, one.id) for one in skeletons}

    @rule(source=st.sampled_from(THREADS), to=st.sampled_from(THREADS))
    def copy(self, source: str, to: str) -> None:
        """To a thread that is empty; others are refused."""
        known = {*self.checkpoints, *self.writes}
        try:
            self.threads.copy(source, to)
        except (AlreadyExistsError, NotFoundError):
            return
        assert not any(key[0] == to for key in known)
        for kept in (self.checkpoints, self.writes):
            held: dict[tuple[str, str, str], Any] = kept
            for key in [key for key in held if key[0] == source]:
                value = held[key]
                held[to, key[1], key[2]] = copy.copy(value)
        self.bare |= {(to, *key[1:]) for key in self.bare if key[0] == source}

    @contextmanager
    def removing(self, thread_id: str) -> Generator[None]:
        """Check that no piece stays of what is removed."""
        position = self.ledger.last_position()
        yield
        if self.ledger.last_position() != position:
            with self.threads.reading(thread_id) as thread:
                check_reached(thread)

    @rule(thread_id=st.sampled_from(THREADS[1:]), is_swept=st.booleans())
    def expire(self, thread_id: str, *, is_swept: bool) -> None:
        """An expired thread is as absent as a deleted one, swept or not: what is put then begins anew."""
        put(self.threads, thread_id, "99", {"other": "short"}, ttl_ms=1)
        time.sleep(0.002)
        if is_swept:
            assert self.ledger.sweep().versioned
            assert not self.ledger.sweep().versioned
        for kept in (self.checkpoints, self.writes):
            for key in [key for key in kept if key[0] == thread_id]:
                del kept[key]
        self.bare = {key for key in self.bare if key[0] != thread_id}

    @precondition(lambda self: self.checkpoints)
    @rule()
    def rebuild(self) -> None:
        """The log alone says it all."""
        self.ledger.rebuild()

    @precondition(lambda self: self.checkpoints)
    @rule()
    def verify(self) -> None:
        """The index is what the log folds to, at any time: a fault of one step may be hidden by the next ones."""
        self.ledger.verify()

    @precondition(lambda self: self.checkpoints)
    @rule()
    def export_and_import(self) -> None:
        """Another ledger has all of it, also when it is given twice."""
        stream = io.BytesIO()
        write_all(stream, self.ledger.export_all())
        with chatledger.open("memory:") as other:
            for _ in range(2):
                stream.seek(0)
                for record in read_export(
                    stream, Reporter("export", strict=True, on_problem=lambda problem: pytest.fail(repr(problem)))
                ):
                    assert isinstance(record, ImportedValue)
                    other.import_value(record)
                self.check_is_all_in(Threads(other))

    @invariant()
    def everything_is_there(self) -> None:
        """Check that what was put is read as it was put, and listed in order."""
        self.check_is_all_in(self.threads)

    def check_is_all_in(self, threads: Threads) -> None:
        listed = [(one.thread_id, one.record.line, one.record.id) for one in threads.checkpoints()]
        assert sorted(listed) == sorted(self.checkpoints)
        assert [key[2] for key in listed] == sorted((key[2] for key in listed), reverse=True)
        for (thread_id, namespace, checkpoint_id), (parent_id, values) in self.checkpoints.items():
            stored = threads.get(thread_id, namespace, checkpoint_id)
            assert values_of(stored) == values
            assert stored is not None
            assert stored.record.parent == parent_id
            expected = self.writes.get((thread_id, namespace, checkpoint_id), {})
            found = {(write.task_id, write.index): value_of(stored, write.digest) for write in stored.writes}
            assert found == expected

    @invariant()
    def nothing_is_left(self) -> None:
        """Content that nothing uses takes no room."""
        if not self.checkpoints and not self.writes:
            for thread_id in THREADS:
                self.threads.delete(thread_id)  # skeletons are nobody's business here
            self.ledger.wait_erased()  # until then it is known which copies a deleted thread has
            with self.ledger._store.snapshot() as snapshot:  # pyright: ignore[reportPrivateUsage]
                tables = snapshot.tables
                for table in (tables.versioned, tables.version_rows, tables.version_writes, tables.version_lists):
                    assert snapshot.txn.stat(table)["entries"] == 0

    def teardown(self) -> None:
        self.ledger.verify()
        self.ledger.close()


TestThreads = ThreadsMachine.TestCase
TestThreads.settings = settings(
    max_examples=examples(20), stateful_step_count=30, deadline=None, phases=[Phase.generate]
)


def test_a_step_is_stored_as_what_is_new(threads: Threads) -> None:
    """The same messages are not written again: neither those before, nor an equal one elsewhere."""
    messages = [f"message {number} " + "x" * 500 for number in range(50)]
    put(threads, "t", "1", {"messages": messages, "files": {"a": "y" * 5_000}})
    before = threads.ledger.last_position()
    put(
        threads,
        "t",
        "2",
        {"messages": [*messages, "new" * 100, messages[3]], "files": {"a": "y" * 5_000}},
        parent_id="1",
    )
    (event,) = [recorded for recorded in threads.ledger.history() if recorded.position > before]
    assert sum(len(getattr(piece.content, "data", b"")) for piece in event.event.body.pieces) == 300
    assert sum(len(getattr(piece.content, "children", b"")) for piece in event.event.body.pieces) == 2 * DIGEST_BYTES
    assert len(values_of(threads.get("t", ""))["messages"]) == 52


def test_a_value_larger_than_an_event_is_stored_in_parts(threads: Threads) -> None:
    huge = "z" * 3_000_000
    put(threads, "t", "1", {"huge": [huge, "small"]})
    assert values_of(threads.get("t", "")) == {"huge": [huge, "small"]}


def test_inherited_channels_have_the_value_of_the_parent(threads: Threads) -> None:
    def unchanged(_parent: VersionRecord | None) -> dict[str, Tree | None]:
        return {"a": None}

    put(threads, "t", "1", {"a": "one", "b": "two"})
    put(
        threads,
        "t",
        "2",
        {"b": "three"},
        parent_id="1",
        not_given=["a", "absent"],
        unchanged=unchanged,
    )
    put(threads, "t", "3", {"b": "four"}, parent_id="1", not_given=["a"])
    assert values_of(threads.get("t", "")) == {"b": "four"}
    assert values_of(threads.get("t", "", "2")) == {"a": "one", "b": "three"}


def test_unchanged_channels_have_the_value_of_the_parent_or_are_stored(threads: Threads) -> None:
    """The parent is asked about as it is stored; there may be none."""

    def unchanged(parent: VersionRecord | None) -> dict[str, Tree | None]:
        if parent is None:
            return {"a": tree_of("three")}
        assert {"a", "b"} == parent.fields.keys()
        return {"a": None, "b": tree_of("two"), "c": tree_of("new")}

    put(threads, "t", "1", {"a": "one", "b": "old"})
    put(threads, "t", "2", {}, parent_id="1", unchanged=unchanged)
    put(threads, "t", "3", {}, parent_id="gone", unchanged=unchanged)
    assert values_of(threads.get("t", "", "2")) == {"a": "one", "b": "two", "c": "new"}
    assert values_of(threads.get("t", "", "3")) == {"a": "three"}


def test_two_writers_do_not_both_continue_a_checkpoint(threads: Threads) -> None:
    put(threads, "t", "1", {}, expected_latest=None)
    put(threads, "t", "2", {"by": "first"}, parent_id="1", expected_latest="1")
    with pytest.raises(CheckpointConflictError, match="'2'"):
        put(threads, "t", "3", {"by": "second"}, parent_id="1", expected_latest="1")
    put(threads, "t", "2", {"by": "first"}, parent_id="1", expected_latest="1")  # a retry
    put(threads, "t", "3", {"by": "a fork"}, parent_id="1")
    assert values_of(threads.get("t", "", "3")) == {"by": "a fork"}


def test_what_is_repeated_writes_no_event(threads: Threads) -> None:
    for _ in range(2):
        put(threads, "t", "1", {"a": ["x"]})
        threads.put_writes("t", "", "1", task_id="k", task_path="", writes=[(0, "c", tree_of("w"))])
        threads.put_writes("t", "", "1", task_id="k", task_path="", writes=[])
    assert len(list(threads.ledger.history())) == 2


def test_the_writes_of_a_task_cost_the_same_beside_those_of_many(threads: Threads) -> None:
    """A step with many parallel tasks does not read the writes of the others for each."""
    put(threads, "t", "1", {})

    def write(number: int) -> None:
        tree = tree_of(f"written by {number}")
        threads.put_writes("t", "", "1", task_id=f"task {number}", task_path="", writes=[(0, "c", tree)])

    totals: list[int] = []
    for start in (0, 200):
        for number in range(start, start + 190):
            write(number)
        with counting() as counts:
            for number in range(start + 190, start + 200):
                write(number)
        totals.append(counts.total())
    assert totals[1] <= totals[0] * 1.1


def test_a_copy_outlives_its_source(threads: Threads) -> None:
    """Deleting the source erases its events; the copy has what it had, also after a rebuild, and can go on."""
    for number in range(40):
        put(threads, "source", f"{number:02}", {"messages": [f"m{at}" * 20 for at in range(number)]})
    writes = [(index, "c", tree_of("written")) for index in (1, -1, 0)]
    threads.put_writes("source", "", "39", task_id="k", task_path="", writes=writes)
    position = threads.ledger.last_position()
    threads.copy("source", "copy")
    assert threads.ledger.last_position() == position + 1
    put(threads, "copy", "50", {"messages": [f"m{at}" * 20 for at in range(41)]}, parent_id="39")
    threads.delete("source")
    for _ in range(2):
        assert threads.thread_ids() == ["copy"]
        assert len(values_of(threads.get("copy", "", "39"))["messages"]) == 39
        assert len(values_of(threads.get("copy", ""))["messages"]) == 41
        threads.ledger.verify()
        threads.ledger.rebuild()


def test_ids_of_runs_and_checkpoints_may_differ_late(threads: Threads) -> None:
    run_ids, checkpoint_ids = ["r" * 2_000 + end for end in "ab"], ["c" * 199 + end for end in "123"]
    for run_id, checkpoint_id in zip((*run_ids, run_ids[0]), checkpoint_ids, strict=True):
        put(threads, "t", checkpoint_id, {}, run_id=run_id)
    for _ in range(2):
        assert threads.of_run(run_ids[0]) == [("t", "", checkpoint_ids[0]), ("t", "", checkpoint_ids[2])]
        assert threads.of_run(run_ids[1]) == [("t", "", checkpoint_ids[1])]
        threads.ledger.verify()
        threads.ledger.rebuild()
    threads.remove("t", lambda _thread: Removal([("", checkpoint_ids[0])], []), reason="pruned")
    assert threads.of_run(run_ids[0]) == [("t", "", checkpoint_ids[2])]


def test_ids_that_can_not_be(threads: Threads) -> None:
    for thread_id, checkpoint_id in (("", "1"), ("t", ""), ("t", "x" * (MAX_CHECKPOINT_ID_BYTES + 1)), ("t", "a\0b")):
        with pytest.raises(InvalidValueError):
            put(threads, thread_id, checkpoint_id, {})
    assert threads.ledger.last_position() == 0


def test_a_thread_and_a_chat_of_one_id_are_apart(threads: Threads) -> None:
    ledger = threads.ledger
    ledger.create_chat("same", "ada")
    put(threads, "same", "1", {"a": "b"})
    assert ledger.get_messages("same") == []
    assert [chat.id for chat in ledger.list_chats()] == ["same"]
    threads.delete("same")
    assert ledger.get_chat("same") is not None


def edited(number: int) -> str:
    return LONG[: 7 * number] + "changed" + LONG[7 * number :]


def put_steps(threads: Threads, thread_id: str, numbers: range) -> None:
    """Steps that are stored as edits of the step before, and as lists that grow out of the list before."""
    for number in numbers:
        values = {"text": edited(number), "messages": [f"m{at}" for at in range(number)]}
        parent = f"{number - 1:02}" if number else None
        put(threads, thread_id, f"{number:02}", values, parent_id=parent)


def erase_at_once(threads: Threads, thread_id: str) -> None:
    """Delete a thread, and wait until its events are erased."""
    threads.delete(thread_id)
    threads.ledger._store.whole("verify")._eraser.close()  # pyright: ignore[reportPrivateUsage]


def check_steps(threads: Threads, thread_id: str, count: int) -> None:
    """Check all steps, as they are and as the log alone says them."""
    for _ in range(2):
        for number in range(count):
            values = {"text": edited(number), "messages": [f"m{at}" for at in range(number)]}
            assert values == values_of(threads.get(thread_id, "", f"{number:02}"))
        threads.ledger.verify()
        threads.ledger.rebuild()


@pytest.mark.guard
@pytest.mark.parametrize("count", [3, 90])
def test_what_a_copy_added_to_an_erased_source_is_read_from_its_log(threads: Threads, count: int) -> None:
    """Its own steps are edits of what only the erased source had; so many that they would have to be stored whole in between."""
    put_steps(threads, "source", range(2))
    threads.copy("source", "copy")
    put_steps(threads, "copy", range(2, count))
    erase_at_once(threads, "source")
    check_steps(threads, "copy", count)


def test_a_copy_is_sound_while_its_source_is_being_erased(threads: Threads, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index knows no more that it is a copy, and the log has the source still."""
    put_steps(threads, "source", range(2))
    threads.copy("source", "copy")
    log = threads.ledger._store.whole("verify").log  # pyright: ignore[reportPrivateUsage]
    erase, verified = log.erase, list[int]()

    def verify_first(*args: Any, **kwargs: Any) -> None:
        verified.append(threads.ledger.verify().position)
        erase(*args, **kwargs)

    monkeypatch.setattr(log, "erase", verify_first)
    erase_at_once(threads, "source")
    assert verified
    check_steps(threads, "copy", 2)


def test_what_is_put_and_copied_while_a_copy_is_released_outlives_the_source(
    threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step that edits the source's text comes before the copy has written that anew; so does a copy of the copy."""
    put_steps(threads, "source", range(2))
    threads.copy("source", "copy")
    cascades = threads.ledger._store.whole("verify")._eraser._cascades  # pyright: ignore[reportPrivateUsage]
    execute, released = cascades._execute, list[str]()  # pyright: ignore[reportPrivateUsage]

    def put_first(kind: Any, key: str, decide: Any) -> object:
        if not released:
            put_steps(threads, "copy", range(2, 4))
            threads.copy("copy", "copy of it")
            put_steps(threads, "copy of it", range(4, 6))
            # Nothing of the source's own steps is left but what these edit.
            threads.remove("copy", lambda _thread: Removal([("", "00"), ("", "01")], []), reason="pruned")
        released.append(key)
        return execute(kind, key, decide)

    monkeypatch.setattr(cascades, "_execute", put_first)
    erase_at_once(threads, "source")
    assert {"copy", "copy of it"} == set(released)
    check_steps(threads, "copy of it", 6)
    assert edited(3) == values_of(threads.get("copy", ""))["text"]


@pytest.mark.parametrize("others", [0, 1])
def test_of_a_copy_nobody_awaits_what_only_removed_checkpoints_named(threads: Threads, others: int) -> None:
    """A rebuild, for which the events of the source are gone, has no note of it; the live index kept it."""
    put(threads, "source", "02", {"other": "b"}, parent_id="01")
    for number in range(others):
        put(threads, "source", f"03-{number}", {"other": "c"}, parent_id="01")
    threads.copy("source", "copy")
    threads.remove("copy", lambda _: Removal([("", "02")], []), reason="pruned")
    threads.delete("source")
    threads.ledger.wait_erased()
    threads.ledger.verify()
    with threads.reading("copy") as thread:
        assert thread.is_awaited("", "01") is bool(others)
