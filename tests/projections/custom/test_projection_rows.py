"""The rows of custom projections: keys, values, and that they follow the log like everything else."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import lmdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.custom_making import (
    Failing,
    Tally,
    attach,
    building,
    catch_up,
    custom_rows,
    record_of,
    serving,
    tallied,
)
from tests.support.index_scripts import CHATS, apply_paged, erased, scripts
from tests.support.naive_index import live, opened, reader
from tests.support.soak import examples
from tests.support.stories import Command, Story, tell, user

from chatledger.domain.chat.events import Recorded
from chatledger.domain.errors import ChainIntegrityError, InvalidValueError, LedgerClosedError, ProjectionError
from chatledger.projections.custom.catching_up import CatchingUp
from chatledger.projections.custom.records import Entry, Projection, check_projection
from chatledger.projections.custom.rows import Key, ProjectionRows, ProjectionView, Reach, from_key, is_cut, to_key
from chatledger.projections.generations import Generation
from chatledger.projections.index import Index
from chatledger.projections.lmdb import scrub as scrubbing
from chatledger.projections.lmdb.environment import Transaction
from chatledger.projections.lmdb.scrub import scrub

T = TypeVar("T")

# Keys

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
parts = st.one_of(texts, st.integers(-(2**63), 2**63 - 1), texts.map(lambda text: text + "é" * 80))
keys = st.one_of(parts, st.lists(parts, max_size=3).map(lambda found: found[0] if len(found) == 1 else tuple(found)))


def order(key: Key) -> list[tuple[int, Any]]:
    """How a key sorts."""
    found = key if isinstance(key, tuple) else (key,)
    return [(0, part) if isinstance(part, int) else (1, part.encode()) for part in found]


@given(st.lists(keys, max_size=30))
@settings(max_examples=examples(100), deadline=None)
def test_keys_sort_and_come_back(found: list[Key]) -> None:
    """Numbers before text, text by its bytes, shorter tuples first; each key has bytes of its own."""
    for key in found:
        assert is_cut(key) or from_key(to_key(key)) == key
    plain = [key for key in found if not is_cut(key)]

    assert sorted(plain, key=order) == sorted(plain, key=to_key)
    assert len({to_key(key) for key in found}) == len(set(found))


@pytest.mark.parametrize(
    "key",
    [
        None,
        1.5,
        True,
        b"raw",
        ["list"],
        ("a", None),
        ("a", ("b",)),
        2**63,
        -(2**63) - 1,
        "nul\0",
        "\ud800",
        ("x" * 140,) * 4,
    ],
    ids=str,
)
def test_keys_that_can_not_be(key: Any) -> None:
    with pytest.raises(InvalidValueError):
        to_key(key)


def test_ids_of_any_length_are_keys() -> None:
    """Three parts of 2,048 bytes fit, and tell from each other what differs in the last byte (PS-16)."""
    long = "x" * 2047
    found = {to_key((a, b, c)) for a in (long + "a", long + "b") for b in (long, "b") for c in (long, 1)}

    assert len(found) == 8
    assert all(len(packed) <= 480 for packed in found)


# Rows


class Desk:
    """Rows in an index, which a test reads and writes as it likes."""

    def __init__(self, index: Index) -> None:
        self.index = index

    def write(self, change: Callable[[ProjectionRows], object]) -> None:
        """Call `change` with rows that can be written."""

        def update(_: Generation, txn: Transaction) -> None:
            with_table = live(self.index).tables.custom
            change(ProjectionRows(Reach(txn, with_table, lambda: None), 1, position=1))

        self.index.update(update)

    def read(self, look: Callable[[ProjectionView], T]) -> T:
        """The answer of `look` on rows that can be read."""
        with self.index.snapshot() as snapshot:
            return look(ProjectionView(Reach(snapshot.txn, snapshot.tables.custom, lambda: None), 1, position=1))


def _putting(key: Key, value: Any) -> Callable[[ProjectionRows], None]:
    return lambda rows: rows.put(key, value)


def _get(desk: Desk, key: Key) -> object:
    def look(rows: ProjectionView) -> object:
        return rows.get(key, "default")

    return desk.read(look)


@given(
    st.dictionaries(keys, st.integers(), max_size=20),
    st.lists(keys, max_size=5),
    keys,
    st.one_of(st.none(), keys),
    st.booleans(),
    st.one_of(st.none(), st.integers(0, 4)),
)
@settings(max_examples=examples(60), deadline=None)
def test_rows_are_a_sorted_dictionary(
    found: dict[Key, int],
    gone: list[Key],
    prefix: Key,
    after: Key | None,
    reverse: bool,  # noqa: FBT001 - drawn by name
    limit: int | None,
) -> None:
    """`put`, `delete`, `get` and `range` do what a dictionary with sorted keys does, and those of others are not touched."""
    expected = dict(found)
    with TemporaryDirectory() as folder, opened(Path(folder)) as index:
        desk = Desk(index)

        def fill(rows: ProjectionRows) -> None:
            for key, value in found.items():
                rows.put(key, value % 100)
                rows.of("c1").put(key, "under a chat")
            for key in gone:
                assert rows.delete(key) == (expected.pop(key, None) is not None)

        desk.write(fill)
        packed = {to_key(key): key for key in expected}
        wanted = [
            (packed[raw], expected[packed[raw]] % 100)
            for raw in sorted(packed, reverse=reverse)
            if raw.startswith(to_key(prefix))
            and (after is None or (raw < to_key(after) if reverse else raw > to_key(after)))
        ]

        assert wanted[:limit] == desk.read(
            lambda rows: list(rows.range(prefix, after=after, reverse=reverse, limit=limit))
        )
        assert [expected.get(key, -1) % 100 if key in expected else None for key in found] == desk.read(
            lambda rows: [rows.get(key) for key in found]
        )
        assert set(found) == {key for key, _ in desk.read(lambda rows: list(rows.of("c1").range()))}
        assert [] == desk.read(lambda rows: list(rows.of("c2").range()))


def test_many_rows_are_read_in_chunks(tmp_path: Path) -> None:
    """A range goes on over its chunks in both directions, also when rows are written meanwhile."""
    with opened(tmp_path) as index:
        desk = Desk(index)

        def change(rows: ProjectionRows) -> None:
            for number in range(1000):
                rows.put(("n", number), number)
            for key, value in rows.range("n"):
                rows.put(key, value + 1)
            assert [value for _, value in rows.range(("n"), limit=300)] == list(range(1, 301))

        desk.write(change)

        assert list(range(1, 1001)) == desk.read(lambda rows: [value for _, value in rows.range()])
        assert list(range(1000, 0, -1)) == desk.read(lambda rows: [value for _, value in rows.range(reverse=True)])


@pytest.mark.parametrize("value", [{1}, (1,), b"raw", float("nan"), {1: 2}, object(), "\ud800", 2**64])
def test_values_that_can_not_be(tmp_path: Path, value: Any) -> None:
    with opened(tmp_path) as index, pytest.raises(InvalidValueError, match="the value of a row"):
        Desk(index).write(lambda rows: rows.put("key", value))


@pytest.mark.parametrize(
    "value", [None, True, 0, -(2**63), 2**64 - 1, 1.5, "", "é", [1, [None]], {"b": 1, "a": {}}], ids=repr
)
def test_values_come_back(tmp_path: Path, value: Any) -> None:
    """Any JSON value, with the order of its keys; also under a key that is shortened."""
    with opened(tmp_path) as index:
        desk = Desk(index)
        for key in ("key", "k" * 2048):
            desk.write(_putting(key, value))
            assert repr(value) == repr(_get(desk, key))
        assert [("k" * 2048, value)] == desk.read(lambda rows: list(rows.range("k" * 2048)))


def test_wrong_use_of_rows(tmp_path: Path) -> None:
    """Rows of rows, negative limits, sums of text, and rows after the end."""
    kept: list[ProjectionRows] = []

    def change(rows: ProjectionRows) -> None:
        rows.put("text", "no number")
        with pytest.raises(InvalidValueError, match="rows under a chat already"):
            rows.of("c").of("c")
        with pytest.raises(InvalidValueError, match="chat_id"):
            rows.of("")
        with pytest.raises(InvalidValueError, match="limit"):
            rows.range(limit=-1)
        with pytest.raises(InvalidValueError, match="whole number"):
            rows.add("text")
        kept.append(rows)

    with opened(tmp_path) as index:
        Desk(index).write(change)
        kept[0]._reach.end()  # pyright: ignore[reportPrivateUsage] - as the end of apply does
        for use in (lambda: kept[0].get("a"), lambda: kept[0].put("a", 1), lambda: list(kept[0].range())):
            with pytest.raises(LedgerClosedError, match="cannot be used any more"):
                use()


# Following the log


@given(scripts, st.sampled_from([1, 3, 1000]), st.integers(0, 40))
@settings(max_examples=examples(25), deadline=None)
def test_live_built_and_rebuilt_rows_are_the_same(script: list[Command], page: int, start: int) -> None:
    """Followed from the start, or from the middle, built later, rebuilt, or built from the erased log (PS-29, PS-30)."""
    story = tell([*script, ("append", 0, 0, 0)], CHATS)
    with TemporaryDirectory() as folder, opened(Path(folder)) as index:
        attach(index, Tally())
        apply_paged(index, story.events, page)
        expected = tallied(index)

        assert serving(index).position == len(story.events)

        attach(index, Tally(version=2))
        assert catch_up(index, story.events, page=page).version == 2
        assert expected == tallied(index)
        assert [value for _, value in expected] == [value for _, value in custom_rows(index)]

        index.rebuild(reader(erased(story), page))
        assert expected == tallied(index)

    with TemporaryDirectory() as folder, opened(Path(folder)) as index:
        apply_paged(index, story.events[:start], page)
        attach(index, Tally())
        catch_up(index, story.events, page=page)
        apply_paged(index, story.events, page)
        assert expected == tallied(index)


@given(scripts, st.lists(st.booleans(), min_size=40, max_size=40))
@settings(max_examples=examples(30), deadline=None)
def test_a_lagging_projection_catches_up(script: list[Command], withs: list[bool]) -> None:
    """Whatever others applied without it, and erased from the log: it gives the rows of a fresh build, each event once."""
    story = tell([*script, ("append", 0, 0, 0)], CHATS)
    with TemporaryDirectory() as folder, opened(Path(folder)) as index:
        attach(index, Tally())
        for number, event in enumerate(story.events):
            index.custom.remove("tally")
            if withs[number % len(withs)]:
                attach(index, Tally())
                if record_of(index) is not None:
                    catch_up(index, story.events[: event.position - 1])
            index.apply([event])
        attach(index, Tally())
        catch_up(index, erased(story), page=2)
        found = tallied(index)
        assert serving(index).dirty_until == 0
        index.rebuild(reader(erased(story)))

        assert tallied(index) == found


def test_each_event_is_applied_once(tmp_path: Path) -> None:
    """Redelivered events change nothing, nor does catching up again (PS-31)."""
    story = Story().chain("m1", "m2", "m3")
    with opened(tmp_path) as index:
        attach(index, Tally())
        for _ in range(3):
            index.apply(story.events)
            index.apply(story.events[1:3])
            catch_up(index, story.events, page=1)

        rows = [(("chats", "ada"), 1), (("messages", "ada"), 3)]
        assert (rows, 3) == Desk(index).read(lambda view: (list(view.range()), view.of("chat-1").get("messages")))


def test_an_interrupted_build_goes_on(tmp_path: Path) -> None:
    """Each page is kept; nobody sees the rows before they are complete (PS-30)."""
    story = Story().chain(*(f"m{number}" for number in range(10)))

    class Cut(Exception):  # noqa: N818 - not an error, an event
        pass

    def read(after: int) -> list[Recorded]:
        if after >= 6:
            raise Cut
        return reader(story.events, 2)(after)

    with opened(tmp_path, story.events) as index:
        attach(index, Tally())
        entry = index.custom.get("tally")
        assert entry is not None
        with pytest.raises(Cut):
            CatchingUp(index, entry, read).run(can_build=True)
        begun = building(index)

        assert begun is not None
        assert (6, None) == (begun.position, record_of(index))
        assert CatchingUp(index, entry, read).run(can_build=False) is None

    with opened(tmp_path) as index:
        attach(index, Tally())
        told: list[int] = []
        entry = index.custom.get("tally")
        assert entry is not None
        CatchingUp(index, entry, reader(story.events, 2)).run(can_build=True, report=lambda done, _: told.append(done))
        assert told[0] == 6
        assert (begun.number, 11, None) == (serving(index).number, serving(index).position, building(index))


def test_the_old_version_serves_until_the_new_one_is_complete(tmp_path: Path) -> None:
    """Readers and writers go on with version 1 while version 2 is built; then its rows are gone."""
    story = Story().chain(*(f"m{number}" for number in range(6)))
    with opened(tmp_path) as index:
        attach(index, Tally())
        index.apply(story.events[:4])
        old, new = index.custom.get("tally"), Entry(Tally(version=2))
        assert old is not None
        catch_up(index, story.events)
        pages = 0

        def read(after: int) -> list[Recorded]:
            nonlocal pages
            pages += 1
            if pages == 3:
                index.apply(story.events)  # another process writes meanwhile
            assert serving(index).version == 1
            return reader(story.events, 1)(after)

        CatchingUp(index, new, read).run(can_build=True)

        assert (2, 7) == (serving(index).version, serving(index).position)
        assert len(tallied(index)) == len(custom_rows(index))
        with pytest.raises(ProjectionError, match="version 2 by another process"):
            catch_up(index, story.events)
        assert old.is_replaced


def test_holes_in_the_log_are_found(tmp_path: Path) -> None:
    """What is missing or altered is not passed over while a projection is built (PS-24)."""
    story = Story().chain("m1", "m2", "m3")
    story.create("other")
    with opened(tmp_path, story.events) as index:
        attach(index, Tally())
        for missing in (1, 2, 3):
            rest = [event for event in story.events if event.position != missing]
            with pytest.raises(ChainIntegrityError, match="missing or altered"):
                catch_up(index, rest, page=1)
        assert catch_up(index, story.events).position == 5


# Failures


def test_a_failure_stops_only_this_projection(tmp_path: Path) -> None:
    """What it wrote for the event is undone, and the position kept; the index and the others go on."""
    story = Story().chain("m1", "m2", "m3")
    with opened(tmp_path) as index:
        attach(index, Failing(3))
        other = type("Other", (Tally,), {"name": "other"})()
        attach(index, other)
        index.apply(story.events[:2])
        before = tallied(index)
        index.apply(story.events)

        broken = serving(index)
        assert (2, 3) == (broken.position, broken.error_position)
        assert broken.error is not None
        assert broken.error.startswith("ValueError at custom_making.py:")
        assert "secret" not in broken.error
        assert before == tallied(index)
        assert (4, 4) == (index.state.position, serving(index, "other").position)
        assert catch_up(index, story.events) == broken


def test_a_corrected_version_replaces_a_broken_one(tmp_path: Path) -> None:
    story = Story().chain("m1", "m2", "m3")
    with opened(tmp_path) as index:
        attach(index, Failing(3))
        index.apply(story.events)
        attach(index, Tally(version=2))
        assert catch_up(index, story.events).error is None
        assert len(custom_rows(index)) == len(tallied(index))


def test_a_new_version_that_fails_leaves_the_old_one(tmp_path: Path) -> None:
    """Processes that have the old version go on with it."""
    story = Story().chain("m1", "m2", "m3")
    with opened(tmp_path) as index:
        attach(index, Tally())
        index.apply(story.events)
        catch_up(index, story.events)
        failing = Entry(Failing(2, version=2))
        broken = CatchingUp(index, failing, reader(story.events)).run(can_build=True)
        assert broken is not None
        assert broken.error_position == 2
        assert (1, 4) == (catch_up(index, story.events).version, serving(index).position)


@pytest.mark.parametrize("is_swallowed", [True, False], ids=["swallowed", "raised"])
def test_a_full_map_is_not_a_failure_of_the_projection(
    tmp_path: Path,
    is_swallowed: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """The transaction is run again on a larger map, also when `apply` swallows what the write raises."""

    class Large(Projection):
        name = "tally"

        def apply(self, rows: ProjectionRows, recorded: Recorded) -> None:
            try:
                rows.put(recorded.position, "x" * 200_000)
            except lmdb.Error:
                if not is_swallowed:
                    raise

    story = Story().chain(*(f"m{number}" for number in range(20)))
    with opened(tmp_path, map_bytes=1024 * 1024) as index:
        attach(index, Large())
        for event in story.events:
            index.apply([event])

        assert (None, 21) == (serving(index).error, serving(index).position)
        assert len(tallied(index)) == 21


# Deletions


def _doomed() -> Story:
    story = Story().chain("m1", "m2")
    story.create("other")
    story.append(user("m9"), chat_id="other")
    story.delete()
    return story


def _lag(index: Index, story: Story, seen: int) -> None:
    """Let the projection see the first events only, and the index all."""
    attach(index, Tally())
    index.apply(story.events[:seen])
    index.custom.remove("tally")
    index.apply(story.events)


def test_rows_go_with_their_chat(tmp_path: Path) -> None:
    """In the transaction that deletes it; the event still sees them."""
    story = _doomed()
    with opened(tmp_path) as index:
        attach(index, Tally())
        index.apply(story.events)

        rows = [(("chats", "ada"), 1), (("messages", "ada"), 1)]
        assert (rows, 1) == Desk(index).read(lambda view: (list(view.range()), view.of("other").get("messages")))
        assert [] == Desk(index).read(lambda view: list(view.of("chat-1").range()))


def test_what_lags_behind_a_deletion_is_wiped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The scrub waits for a process that has the projection; when nobody comes, its rows go, so that nothing deleted stays.

    Afterwards the projection is built anew.
    """
    story = _doomed()
    with opened(tmp_path) as index:
        _lag(index, story, seen=5)

        assert serving(index).dirty_until == 6
        assert not scrub(live(index), is_last=True)
        assert serving(index).position == 5
        monkeypatch.setattr(scrubbing, "GRACE_S", 0.0)
        assert scrub(live(index), is_last=True)
        assert (None, []) == (record_of(index), custom_rows(index))
        attach(index, Tally())
        catch_up(index, erased(story))
        assert len(tallied(index)) == 5


def test_what_lags_behind_a_deletion_may_catch_up(tmp_path: Path) -> None:
    """Then the scrub goes on, and has not to wait."""
    story = _doomed()
    with opened(tmp_path) as index:
        _lag(index, story, seen=2)
        assert not scrub(live(index), is_last=True)
        attach(index, Tally())
        catch_up(index, erased(story))

        assert (6, 0) == (serving(index).position, serving(index).dirty_until)
        assert scrub(live(index), is_last=True)
        assert len(tallied(index)) == 5


def test_a_broken_projection_does_not_keep_what_is_deleted(tmp_path: Path) -> None:
    """Its rows go at once, and it stays broken."""
    story = _doomed()
    with opened(tmp_path) as index:
        attach(index, Failing(3))
        index.apply(story.events)

        assert serving(index).dirty_until == 6
        assert scrub(live(index), is_last=True)
        assert [] == custom_rows(index)
        assert (3, 0) == (serving(index).error_position, serving(index).dirty_until)


def test_what_never_had_it_is_not_wiped(tmp_path: Path) -> None:
    """A projection that stands before the chat began has nothing of it."""
    story = Story()
    story.create("other")
    story.chain("m1")
    story.delete()
    with opened(tmp_path) as index:
        _lag(index, story, seen=1)

        assert serving(index).dirty_until == 0
        assert scrub(live(index), is_last=True)
        assert serving(index).position == 1


# Definitions


class Nameless(Projection):
    def apply(self, rows: ProjectionRows, recorded: Recorded) -> None:
        """Do nothing."""


def _named(name: Any, version: Any = 1) -> Projection:
    projection = Nameless()
    projection.name, projection.version = name, version
    return projection


@pytest.mark.parametrize(
    ("projection", "why"),
    [
        (Tally, "instances of classes derived from"),
        (object(), "instances of classes derived from"),
        (Nameless(), "name of projection Nameless must be text"),
        (_named(""), "must not be empty"),
        (_named(1), "must be text"),
        (_named("search"), "taken by the index"),
        (_named("é" * 101), "longer than 200 bytes"),
        (_named("ok", 1.5), "version of projection 'ok'"),
        (_named("ok", -1), "version of projection 'ok'"),
        (_named("ok", version=True), "version of projection 'ok'"),
    ],
)
def test_projections_that_can_not_be(projection: Any, why: str) -> None:
    with pytest.raises(InvalidValueError, match=why):
        check_projection(projection)
