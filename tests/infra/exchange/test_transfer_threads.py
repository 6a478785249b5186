"""Threads of agents and states of graphs, out of one ledger and into another."""

import io
import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.base import empty_checkpoint
from tests.support.agent_threads import put, tree_of, values_of
from tests.support.soak import examples

import chatledger
from chatledger import AlreadyExistsError, InvalidValueError, Ledger, NotFoundError
from chatledger.domain.chat.import_tree import Reporter
from chatledger.domain.versioned.content import DictNode, Leaf, ListNode, Parts
from chatledger.domain.versioned.decide_import import decide_import_value
from chatledger.domain.versioned.interchange import check_value
from chatledger.domain.versioned.record import VersionRecord
from chatledger.graph_state import StateStore, state_id
from chatledger.importers import (
    ExportCounts,
    ImportedChat,
    ImportedValue,
    Problem,
    read_all,
    read_chats,
    write_all,
)
from chatledger.infra.exchange.jsonl import read_export
from chatledger.infra.ledger.threads import Threads
from chatledger.items import ItemStore
from chatledger.langgraph import LedgerSaver

Made = tuple[Ledger, Ledger]
texts = st.text("ab", max_size=2)


@pytest.fixture
def pair() -> Iterator[Made]:
    with two_ledgers() as made:
        yield made


@contextmanager
def two_ledgers() -> Generator[Made]:
    with chatledger.open("memory:") as one, chatledger.open("memory:") as other:
        yield one, other


def export(ledger: Ledger) -> bytes:
    stream = io.BytesIO()
    write_all(stream, ledger.export_all())
    return stream.getvalue()


def parse(data: bytes) -> tuple[list[Any], list[Problem]]:
    problems: list[Problem] = []
    report = Reporter("export.jsonl", strict=False, on_problem=problems.append)
    return list(read_export(io.BytesIO(data), report)), problems


def take(ledger: Ledger, data: bytes) -> None:
    found, problems = parse(data)
    assert not problems
    for one in found:
        if isinstance(one, ImportedChat):
            ledger.import_chat(one)
        else:
            ledger.import_value(one)


def run_agent(saver: Any, thread_id: str, steps: int, *, namespace: str = "") -> None:
    """A thread as a graph of LangGraph writes it: growing messages, pending writes, metadata."""
    config: Any = {"configurable": {"thread_id": thread_id, "checkpoint_ns": namespace}}
    messages: list[Any] = []
    for step in range(steps):
        messages = [*messages, {"role": "user", "content": f"message {step} " + "x" * 200}]
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"messages": messages, "raw": b"\0\xff", "n": step}
        version = f"{step + 1:032}.0000000000000001"
        checkpoint["channel_versions"] = dict.fromkeys(checkpoint["channel_values"], version)
        metadata: Any = {"source": "loop", "step": step, "parents": {}}
        config = saver.put(config, checkpoint, metadata, checkpoint["channel_versions"])
        saver.put_writes(config, [("messages", {"n": step}), ("__interrupt__", ["stop"])], f"task{step}")


def reads(saver: Any) -> list[Any]:
    listed = list(saver.list(None))
    single = [saver.get_tuple(one.config) for one in listed]
    assert listed == single
    return listed


def test_a_thread_reads_the_same_in_a_copy(pair: Made) -> None:
    one, other = pair
    run_agent(LedgerSaver(one), "trip", 12)
    run_agent(LedgerSaver(one).for_assistant("team:a"), "trip", 3)
    run_agent(LedgerSaver(one), "sub", 2, namespace="child:1")
    before = reads(LedgerSaver(one))
    data = export(one)
    take(other, data)

    assert len(before) == 17
    assert before == reads(LedgerSaver(other))
    assert data == export(other)
    assert [info.namespaces for info in Threads(one).infos()] == [info.namespaces for info in Threads(other).infos()]
    other.verify()


def test_importing_a_thread_again_changes_nothing(pair: Made) -> None:
    one, other = pair
    run_agent(LedgerSaver(one), "trip", 5)
    thread = one.export_thread("trip")
    first = other.import_value(thread)
    position = other.last_position()
    again = other.import_value(thread)

    assert (first.is_new, first.versions_added, first.writes_added) == (True, 5, 10)
    assert (again.is_new, again.versions_added, again.writes_added) == (False, 0, 0)
    assert position == other.last_position()


def test_a_thread_goes_on_where_it_ends_here(pair: Made) -> None:
    one, other = pair
    run_agent(LedgerSaver(one), "trip", 3)
    early = one.export_thread("trip")
    other.import_value(early)
    put(Threads(one), "trip", "zz", {"c": "new"})
    result = other.import_value(one.export_thread("trip"))

    assert (result.is_new, result.versions_added) == (False, 1)
    assert one.export_thread("trip") == other.export_thread("trip")
    assert other.import_value(early).versions_added == 0


def interrupt(ledger: Ledger, checkpoint_id: str, value: str) -> None:
    """Write as LangGraph writes an interrupt: below slot 0, in the place of an earlier one."""
    writes = [(-3, "__interrupt__", tree_of(value))]
    Threads(ledger).put_writes("trip", "", checkpoint_id, task_id="t", task_path="", writes=writes)


def test_a_later_stage_brings_the_writes_that_it_replaced(pair: Made) -> None:
    """An agent that was resumed has another interrupt in the place of the one that was exported; an earlier stage has older ones."""
    one, other = pair
    put(Threads(one), "trip", "1", {"c": "one"})
    interrupt(one, "1", "first question")
    early = one.export_thread("trip")
    other.import_value(early)
    interrupt(one, "1", "second question")
    put(Threads(one), "trip", "2", {"c": "two"}, parent_id="1")
    late = one.export_thread("trip")
    result = other.import_value(late)
    position = other.last_position()

    assert (result.versions_added, result.writes_added) == (1, 1)
    assert other.export_thread("trip") == late
    assert other.import_value(early) == other.import_value(late)
    assert other.last_position() == position
    other.verify()


def test_replaced_writes_of_one_stage_are_refused(pair: Made) -> None:
    """Where neither goes on, nothing says which write is newer."""
    one, other = pair
    for ledger, value in ((one, "here"), (other, "there")):
        put(Threads(ledger), "trip", "1", {"c": "one"})
        interrupt(ledger, "1", value)
    position = other.last_position()

    with pytest.raises(AlreadyExistsError, match="both end at checkpoint '1' with other writes"):
        other.import_value(one.export_thread("trip"))
    assert position == other.last_position()


def test_what_a_replaced_write_held_is_used_again(pair: Made) -> None:
    """It goes with the write, if nothing else has it; what comes after it brings it again."""
    one, other = pair
    threads = Threads(one)
    put(threads, "trip", "1", {"c": "x"})
    interrupt(one, "1", "a")
    early = one.export_thread("trip")
    interrupt(one, "1", "b")
    for task_id, value in (("u", "a"), ("v", "c")):
        threads.put_writes("trip", "", "1", task_id=task_id, task_path="", writes=[(-3, "c", tree_of(value))])
    put(threads, "trip", "2", {"c": "a"}, parent_id="1")
    late = one.export_thread("trip")

    other.import_value(early)
    other.import_value(late)
    assert other.export_thread("trip") == late
    assert other.import_value(late).writes_added == 0


def test_writes_that_change_places_keep_what_they_hold(pair: Made) -> None:
    one, _ = pair
    threads = Threads(one)
    put(threads, "trip", "1", {"c": "x"})
    for values in ({-1: "a", -3: "b"}, {-1: "b", -3: "a"}):
        writes = [(index, "c", tree_of(value)) for index, value in values.items()]
        threads.put_writes("trip", "", "1", task_id="t", task_path="", writes=writes)
    assert 3 == len(one.export_thread("trip").pieces)


@given(st.lists(st.tuples(st.sampled_from("pw"), st.integers(-2, 1), texts), min_size=1, max_size=12), st.data())
@settings(max_examples=examples(8), deadline=None)
def test_any_stage_of_a_thread_is_taken_or_refused_whole(done: list[tuple[str, int, str]], data: st.DataObject) -> None:
    """After a later stage was imported over an earlier one both are equal, or it was refused and nothing changed."""
    with two_ledgers() as (one, other):
        stages: list[ImportedValue] = []
        for number, (kind, index, value) in enumerate(done):
            if kind == "p" or not stages:
                parent = stages[-1].versions[-1].id if stages else None
                put(Threads(one), "trip", f"{number:03}", {"c": value}, parent_id=parent)
            else:
                at = stages[-1].versions[-1].id
                writes = [(index, "c", tree_of(value))]
                Threads(one).put_writes("trip", "", at, task_id="t", task_path="", writes=writes)
            stages.append(one.export_thread("trip"))
        other.import_value(data.draw(st.sampled_from(stages)))
        before = other.export_thread("trip")
        try:
            other.import_value(stages[-1])
        except AlreadyExistsError:
            assert other.export_thread("trip") == before
            assert len(before.versions) == len(stages[-1].versions)
        else:
            assert other.export_thread("trip") == stages[-1]


def test_ids_that_nothing_has(pair: Made) -> None:
    """An id that cannot be is as unknown as any other."""
    one, _ = pair
    for absent in ("nothing", "", "\0", "x" * 3000):
        for export_one in (one.export_thread, one.export_state, one.for_user("ada").export_thread):
            with pytest.raises(NotFoundError):
                export_one(absent)
    with pytest.raises(InvalidValueError):
        one.export_thread(b"trip")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_a_thread_with_other_content_is_refused_and_stays(pair: Made) -> None:
    one, other = pair
    put(Threads(one), "t", "1", {"c": "one"})
    put(Threads(other), "t", "1", {"c": "other"})
    put(Threads(one), "u", "1", {"c": "same"})
    put(Threads(other), "u", "1", {"c": "same"})
    put(Threads(one), "u", "2", {"c": "here"}, parent_id="1")
    put(Threads(other), "u", "3", {"c": "there"}, parent_id="1")
    position = other.last_position()

    with pytest.raises(AlreadyExistsError, match=r"thread 't' is here with other content: checkpoint '1'"):
        other.import_value(one.export_thread("t"))
    with pytest.raises(AlreadyExistsError, match="thread 'u' is here with other content: it has checkpoint '3', and"):
        other.import_value(one.export_thread("u"))
    assert position == other.last_position()


def test_pruned_removed_and_awaited_parts_of_a_thread_come_along(pair: Made) -> None:
    one, other = pair
    saver = LedgerSaver(one)
    run_agent(saver, "trip", 6)
    saver.prune(["trip"], strategy="keep_latest")
    threads = Threads(one)
    threads.put_writes("trip", "", "later", task_id="t", task_path="~p", writes=[(0, "c", tree_of("soon"))])
    put(threads, "gone", "1", {"c": "x"})
    threads.delete("gone", within="")
    threads.copy("trip", "copy")
    take(other, export(one))

    assert export(one) == export(other)
    assert reads(LedgerSaver(one)) == reads(LedgerSaver(other))
    assert [info.thread_id for info in Threads(other).infos()] == ["trip", "gone", "copy"]
    other.verify()


def test_a_thread_of_thousands_of_steps_takes_several_commits(pair: Made) -> None:
    one, other = pair
    threads = Threads(one)
    for number in range(600):
        parent = f"{number - 1:05}" if number else None
        put(threads, "long", f"{number:05}", {"c": [str(n) for n in range(number % 40)]}, parent_id=parent)
    assert other.import_value(one.export_thread("long")).versions_added == 600
    assert one.export_thread("long") == other.export_thread("long")


def wide(ledger: Ledger, *, tasks: int = 1_100, **configurable: str) -> ImportedValue:
    """A thread with a checkpoint at which more tasks wrote than there are events in a commit."""
    saver: Any = LedgerSaver(ledger)
    config: Any = {"configurable": {"thread_id": "small", "checkpoint_ns": "", **configurable}}
    config = saver.put(config, empty_checkpoint(), {"source": "loop", "step": 0, "parents": {}}, {})
    saver.put_writes(config, [("found", 1)], "task")
    thread = ledger.export_thread("small")
    (step,) = thread.versions
    writes = tuple(msgspec.structs.replace(step.writes[0], task_id=f"task{number:05}") for number in range(tasks))
    return msgspec.structs.replace(thread, id="wide", versions=(msgspec.structs.replace(step, writes=writes),))


def test_a_checkpoint_of_more_tasks_than_fit_into_a_commit(pair: Made) -> None:
    thread = wide(pair[0])
    ledger = pair[1]
    result = ledger.import_value(thread)

    assert (result.versions_added, result.writes_added) == (1, 1_100)
    assert ledger.export_thread("wide") == thread
    assert ledger.import_value(thread).writes_added == 0
    for source, copy in (("wide", "copy"), ("copy", "copy of it")):
        LedgerSaver(ledger).copy_thread(source, copy)
        LedgerSaver(ledger).delete_thread(source)
        assert ledger.export_thread(copy).versions == thread.versions
    ledger.rebuild()
    assert ledger.export_thread("copy of it").versions == thread.versions


@pytest.mark.parametrize("tasks", [497, 498, 499, 500, 501])
def test_a_pruned_checkpoint_that_just_fits_into_a_commit(pair: Made, tasks: int) -> None:
    """It stays pruned, wherever the commits end."""
    thread = wide(pair[0], tasks=tasks)
    bare = msgspec.structs.replace(thread.versions[0], skeleton=("found",))
    pair[1].import_value(msgspec.structs.replace(thread, versions=(bare,)))

    assert pair[1].export_thread("wide").versions == (bare,)


def test_a_checkpoint_of_many_tasks_comes_to_its_assistant(pair: Made) -> None:
    ledger, _ = pair
    ledger.import_value(wide(ledger, assistant_id="planner"))
    saver = LedgerSaver(ledger)
    migration = saver.migrate_namespace("wide")
    config: Any = {"configurable": {"thread_id": "wide"}}
    found: Any = saver.for_assistant("planner").get_tuple(config)

    assert (migration.migrated, len(found.pending_writes)) == ({"planner": 1}, 1_100)


def test_a_change_during_an_import_is_not_said_to_have_written_nothing(pair: Made) -> None:
    one, other = pair
    run_agent(LedgerSaver(one), "trip", 1)
    thread = one.export_thread("trip")
    given = check_value(thread)
    changed = msgspec.structs.replace(thread.versions[0], runtime="go")
    other.import_value(msgspec.structs.replace(thread, versions=(changed,)))

    with (
        Threads(other).reading("trip") as found,
        pytest.raises(AlreadyExistsError, match="during the import") as caught,
    ):
        decide_import_value(found, given, [*given.versions.values()], 0, is_begun=False, replaced={}, limit=10)
    assert "Nothing" not in str(caught.value)


def test_the_owner_of_a_thread_is_kept(pair: Made) -> None:
    one, other = pair
    run_agent(LedgerSaver(one.for_user("ada")), "trip", 1)
    thread = one.for_user("ada").export_thread("trip")
    with pytest.raises(chatledger.AccessDeniedError):
        other.for_user("bob").import_value(thread)
    other.import_value(thread)

    assert [one.owner for one in Threads(other).infos()] == ["ada"]
    with pytest.raises(chatledger.NotFoundError):
        other.for_user("bob").export_thread("trip")
    assert not list(other.for_user("bob").export_all())
    assert list(other.for_user("ada").export_all()) == [thread]


SID = state_id("ada", "trip")


def test_a_state_reads_the_same_in_a_copy(pair: Made) -> None:
    one, other = pair
    store, copy = StateStore(one, ttl_seconds=3600), StateStore(other)
    for number in range(8):
        docs = [{"id": str(n), "text": "d" * 300} for n in range(number)]
        store.put(SID, {"docs": docs, "n": number, "long": "é" * 400_000, "small": list(range(500))}, node="a")
    data = export(one)
    take(other, data)

    assert store.history(SID, limit=99) == copy.history(SID, limit=99)
    assert store.list() == copy.list()
    assert [store.get(SID, n) for n in range(1, 9)] == [copy.get(SID, n) for n in range(1, 9)]
    assert data == export(other)
    other.verify()
    position = other.last_position()
    take(other, data)
    assert position == other.last_position()


def test_a_state_goes_on_where_it_ends_here_and_is_refused_where_it_differs(pair: Made) -> None:
    one, other = pair
    StateStore(one).put(SID, {"n": 1})
    early = one.export_state(SID)
    other.import_value(early)
    StateStore(one).put(SID, {"n": 2})
    late = one.export_state(SID)

    assert other.import_value(late).versions_added == 1
    assert other.import_value(early).versions_added == 0
    StateStore(other).put(SID, {"n": 9})
    StateStore(one).put(SID, {"n": 3})
    with pytest.raises(AlreadyExistsError, match=r"other content: version 3 differs") as caught:
        other.import_value(one.export_state(SID))
    assert "ada" not in str(caught.value)


def test_a_state_that_has_expired_stays_out_and_one_that_is_here_makes_place(pair: Made) -> None:
    one, other = pair
    StateStore(one).put(SID, {"n": 1})
    state = one.export_state(SID)

    assert other.import_value(msgspec.structs.replace(state, expires_at=1)).versions_added == 0
    assert other.last_position() == 0


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_cut_export_is_told_wherever_the_cut_is(pair: Made, cut: int) -> None:
    one, _ = pair
    run_agent(LedgerSaver(one), "trip", 1)
    StateStore(one).put(SID, {"n": 1})
    lines = export(one).splitlines(keepends=True)
    found, problems = parse(b"".join(lines[:-cut]) if cut < len(lines) else lines[0])

    assert any(problem.is_incomplete for problem in problems)
    whole, _ = parse(b"".join(lines))
    assert found == whole[: len(found)]


@pytest.mark.parametrize("kind", ["piece", "version"])
def test_a_lost_line_leaves_the_thread_or_state_out(pair: Made, kind: str) -> None:
    one, _ = pair
    run_agent(LedgerSaver(one), "trip", 3)
    StateStore(one).put(SID, {"n": 1})
    lines = export(one).splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if kind in json.loads(line))
    found, problems = parse(b"".join(lines[:at] + lines[at + 1 :]))

    assert len(found) == 1
    assert any(problem.is_incomplete for problem in problems)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"content": Leaf("msgpack", b"\0\0\0")}, "another digest"),
        ({"digest": b"\0\0\0"}, "another digest"),
        ({"content": Parts("msgpack", b"")}, "another digest"),
        ({"content": ListNode(b"", b"\0" * 20, 1)}, "does not stand before it"),
        ({"content": ListNode(b"\0" * 3)}, "does not stand before it"),
        ({"content": ListNode(b"", keep=1)}, "keeps elements of no list"),
        ({"content": DictNode(("a",), b"")}, "has 1 keys and 0 values"),
    ],
)
def test_a_damaged_piece_is_refused(pair: Made, change: dict[str, Any], reason: str) -> None:
    one, other = pair
    put(Threads(one), "t", "1", {"c": "one"})
    thread = one.export_thread("t")
    piece = msgspec.structs.replace(thread.pieces[0], **change)
    with pytest.raises(InvalidValueError, match=reason):
        other.import_value(msgspec.structs.replace(thread, pieces=(piece,)))


def test_chats_threads_and_states_in_one_file(pair: Made, tmp_path: Path) -> None:
    one, other = pair
    one.create_chat("c", "ada")
    one.append("c", [chatledger.user("hi")])
    run_agent(LedgerSaver(one), "c", 2)
    StateStore(one).put(SID, {"n": 1})
    path = tmp_path / "all.jsonl"
    with path.open("wb") as stream:
        assert write_all(stream, one.export_all()) == ExportCounts(chats=1, threads=1, states=1)
    problems: list[Problem] = []

    chat, *values = read_all(path, on_problem=problems.append)
    assert isinstance(chat, ImportedChat)
    assert [value.family for value in values if isinstance(value, ImportedValue)] == ["thread", "state"]
    assert [chat.id for chat in read_chats(path, on_problem=problems.append)] == ["c"]
    assert not problems
    take(other, path.read_bytes())
    assert other.graph("c") == one.graph("c")


@pytest.mark.anyio
async def test_the_same_for_asyncio() -> None:
    async with chatledger.open_async("memory:") as one, chatledger.open_async("memory:") as other:
        await one.run(lambda ledger: run_agent(LedgerSaver(ledger), "trip", 2))
        await one.run(lambda ledger: StateStore(ledger).put(SID, {"n": 1}))
        assert (await other.import_value(await one.export_thread("trip"))).versions_added == 2
        assert (await other.import_value(await one.export_state(SID))).versions_added == 1
        assert [found async for found in other.export_all()] == [found async for found in one.export_all()]


contents = st.recursive(
    texts, lambda inner: st.lists(inner, max_size=8) | st.dictionaries(texts, inner, max_size=3), max_leaves=12
)
numbers = st.integers(0, 9).map(str)
actions = st.one_of(
    st.tuples(
        st.just("put"), st.sampled_from("tu"), st.sampled_from(["", "assistant:a"]), numbers, st.none() | numbers,
        st.dictionaries(st.sampled_from("cd"), contents, max_size=2),
    ),
    st.tuples(
        st.just("write"), st.sampled_from("tu"), st.sampled_from(["", "assistant:a"]), numbers, st.integers(-2, 2), contents
    ),
    st.tuples(st.just("copy"), st.sampled_from("tu"), st.sampled_from("tuv")),
    st.tuples(st.just("state"), st.dictionaries(texts, contents, max_size=3)),
)  # fmt: skip


def act(ledger: Ledger, action: tuple[Any, ...]) -> None:
    threads = Threads(ledger)
    match action:
        case ("put", thread, namespace, number, parent, values):
            put(threads, thread, number, values, parent_id=parent, namespace=namespace)
        case ("write", thread, namespace, number, index, value):
            threads.put_writes(
                thread, namespace, number, task_id="t", task_path="", writes=[(index, "c", tree_of(value))]
            )
        case ("copy", source, target):
            threads.copy(source, target)
        case _:
            StateStore(ledger).put(SID, action[1])


def unplaced(record: VersionRecord) -> VersionRecord:
    """A version without the position of its event, which is each ledger's own."""
    return msgspec.structs.replace(record, position=0)


@given(st.lists(actions, max_size=20))
@settings(max_examples=examples(25), deadline=None)
def test_any_ledger_equals_its_copy(done: list[tuple[Any, ...]]) -> None:
    """Export, import, export again: the same bytes and the same reads. Importing once more writes nothing."""
    with two_ledgers() as (one, other):
        for action in done:
            with suppress(chatledger.ChatledgerError):
                act(one, action)
        data = export(one)
        take(other, data)
        position = other.last_position()
        take(other, data)

        assert data == export(other)
        assert position == other.last_position()
        for info in Threads(one).infos():
            mine, copy = (list(Threads(ledger).checkpoints(info.thread_id)) for ledger in (one, other))
            assert [(unplaced(one.record), one.writes, one.parent_id) for one in mine] == [
                (unplaced(one.record), one.writes, one.parent_id) for one in copy
            ]
            assert [values_of(found) for found in mine] == [values_of(found) for found in copy]
        assert StateStore(one).history(SID) == StateStore(other).history(SID)
        assert StateStore(one).get(SID) == StateStore(other).get(SID)
        other.verify()


DAMAGES: list[tuple[str, dict[str, Any]]] = [
    ("step", {"runtime": 1}),
    ("step", {"frames": (("msgpack",),)}),
    ("step", {"frames": (("msgpack", b""),)}),
    ("step", {"skeleton": ("n",)}),
    ("write", {"channel": None}),
    ("write", {"index": True}),
    ("thread", {"pieces": None}),
]


@pytest.mark.parametrize(("place", "changes"), DAMAGES)
def test_a_thread_that_could_not_be_read_is_refused(pair: Made, place: str, changes: dict[str, Any]) -> None:
    """Values of other types than those of their fields, and of channels that were pruned: nothing is written."""
    one, other = pair
    run_agent(LedgerSaver(one), "trip", 1)
    replace = msgspec.structs.replace
    thread = one.export_thread("trip")
    (step,) = thread.versions
    if place == "write":
        step = replace(step, writes=(replace(step.writes[0], **changes),))
    elif place == "step":
        step = replace(step, **changes)
    thread = replace(thread, **(changes if place == "thread" else {"versions": (step,)}))
    with pytest.raises(InvalidValueError):
        other.import_value(thread)
    assert other.last_position() == 0


@pytest.mark.parametrize("value", [None, 5, "trip", {}])
def test_what_is_no_thread_or_state_is_refused(pair: Made, value: Any) -> None:
    with pytest.raises(InvalidValueError, match="ImportedValue"):
        pair[0].import_value(value)


RECORDED = Path(__file__).resolve().parents[2] / "recorded"


@pytest.mark.parametrize("version", [5, 6])
def test_the_recorded_export_comes_back(pair: Made, version: int) -> None:
    """A file that a version of the format once was written with is read for ever; it is never changed."""
    ledger, _ = pair
    newest_export = (RECORDED / "export-6.jsonl").read_bytes()
    take(ledger, (RECORDED / f"export-{version}.jsonl").read_bytes())
    first, newest = (
        StateStore(ledger).get(state_id("ada:x", "trip/漢"), 1),
        StateStore(ledger).get(state_id("ada:x", "trip/漢")),
    )
    agent, plain = LedgerSaver(ledger).get_tuple(run_config("agent")), Threads(ledger).get("plain", "assistant:a", "7")
    assert first == {"docs": list(range(9_000)), "n": 0}
    assert newest == {"docs": list(range(9_003)), "n": 3}
    assert agent is not None
    assert agent.checkpoint["channel_values"]["long"] == "é" * 12_000 + "5"
    assert len(agent.checkpoint["channel_values"]["messages"]) == 6
    assert agent.pending_writes == [("task5", "__interrupt__", ["stop"]), ("task5", "messages", {"n": 5})]
    assert plain is not None
    elements = [f"element {number}" for number in range(8)]
    assert values_of(plain) == {"list": elements, "dict": {"a": "one", "b": "x" * 40_000}}
    assert [info.owner for info in Threads(ledger).infos()] == [None, "ada", "ada"]
    items = ItemStore(ledger.for_user("ada"))
    assert [item.value for item in items.history(("memories", "a/b"), "food")] == [
        None,
        {"likes": "bread"},
        {"likes": "soup"},
    ]
    assert items.get(("memories", "a/b"), "food") is None
    assert records(export(ledger)) == records((RECORDED / f"export-{version}.jsonl").read_bytes())
    ledger.verify()
    if version == 6:
        assert export(ledger) == newest_export
    ledger.rebuild()
    assert records(export(ledger)) == records((RECORDED / f"export-{version}.jsonl").read_bytes())


def records(text: bytes) -> list[Any]:
    """The records of an export, without what newer versions have beside them."""
    lines = [json.loads(line) for line in text.splitlines()[1:]]
    return [{key: value for key, value in line.items() if key not in {"chat_id", "text"}} for line in lines]


def run_config(thread_id: str) -> Any:
    """The config of LangGraph for a thread."""
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
