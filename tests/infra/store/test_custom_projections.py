"""Custom projections in ledgers: built, kept up, read, broken, dropped, and rebuilt while others write and processes die."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contracts.store_world import each_raises
from tests.support.custom_world import Forks, Words, counted, expected, generations, say
from tests.support.ledger_world import store_behind
from tests.support.soak import examples

import chatledger
from chatledger import (
    AccessDeniedError,
    ConfigurationError,
    InvalidValueError,
    Ledger,
    LedgerClosedError,
    NotFoundError,
    Projection,
    ProjectionInfo,
    ProjectionRows,
    Recorded,
)
from chatledger.errors import ProjectionError
from chatledger.projections.lmdb import scrub as scrubbing

DEEP = 25
"""Number of messages that a ledger has before a process dies in it."""


@pytest.fixture
def location(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'log.db'}"


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks() as found:
        yield found


def fill(ledger: Ledger, count: int = DEEP) -> None:
    """Two users with a chat each, and a deleted one."""
    for user_id in ("ada", "bob"):
        ledger.create_chat(f"of {user_id}", user_id)
        for number in range(count):
            ledger.append(f"of {user_id}", [say(f"{user_id} says {number}")])
    ledger.create_chat("gone", "ada")
    ledger.append("gone", [say("a secret of three words")])
    ledger.delete_chat("gone")


class Mistaken(Words):
    """Fails at a word, until it is told not to."""

    word: str | None = "mistake"

    def apply(self, rows: ProjectionRows, recorded: Recorded) -> None:
        super().apply(rows, recorded)
        if self.word is not None and self.word in str(recorded.body):
            raise KeyError(self.word)


# Building and following


@pytest.mark.parametrize("kind", ["memory", "path", "sqlite"])
def test_a_projection_follows_every_write(tmp_path: Path, kind: str) -> None:
    """What a write returned is in the rows that are read next, and rows of a deleted chat are gone (PS-31, PS-33)."""
    at = {"memory": "memory:", "path": str(tmp_path / "data"), "sqlite": f"sqlite:///{tmp_path / 'log.db'}"}[kind]
    with chatledger.open(at, durability="fast", projections=[Words()]) as ledger:
        for number in range(1, 6):
            ledger.upsert_chat("c", "ada")
            ledger.append("c", [say("three words here")])
            assert counted(ledger) == {"ada": 3 * number}
        with ledger.projection("words") as rows:
            assert rows.of("c").get("words") == 15
            assert rows.position == store_behind(ledger).index.state.position
        ledger.delete_chat("c")
        assert counted(ledger) == {}
        with ledger.projection("words") as rows:
            assert list(rows.of("c").range()) == []
            assert rows.of("c").get("words", "none") == "none"


def test_a_new_projection_is_built_at_opening(location: str) -> None:
    """From the start of the log, which no longer has what was deleted; `progress` is told (PS-30)."""
    with chatledger.open(location) as ledger:
        fill(ledger)
    told: list[tuple[int, int]] = []
    with chatledger.open(
        location, projections=[Words()], progress=lambda done, total: told.append((done, total))
    ) as ledger:
        assert told
        assert all(0 <= done <= total for done, total in told)
        assert expected(ledger) == counted(ledger) == {"ada": 3 * DEEP, "bob": 3 * DEEP}
    told.clear()
    with chatledger.open(
        location, projections=[Words()], progress=lambda done, total: told.append((done, total))
    ) as ledger:
        assert told == []
        assert expected(ledger) == counted(ledger)


def test_a_new_version_is_built_at_opening(location: str) -> None:
    class Doubled(Words):
        def apply(self, rows: ProjectionRows, recorded: Recorded) -> None:
            super().apply(rows, recorded)
            if recorded.type == "message_appended":
                super().apply(rows, recorded)

    with chatledger.open(location, projections=[Words()]) as ledger:
        fill(ledger)
    with chatledger.open(location, projections=[Doubled(version=2)]) as ledger:
        assert counted(ledger) == {"ada": 6 * DEEP, "bob": 6 * DEEP}
        assert [info.version for info in ledger.projections()] == [2]
    with chatledger.open(location, projections=[Words()]) as ledger:
        assert expected(ledger) == counted(ledger)


@pytest.mark.parametrize("only", [None, "words"])
def test_rebuilding_gives_the_same_rows(location: str, only: str | None) -> None:
    """All of the index or this alone, with its old rows readable until then (PS-29)."""
    told: list[tuple[int, int]] = []
    with chatledger.open(location, projections=[Words()]) as ledger:
        fill(ledger)

        def report(done: int, total: int) -> None:
            assert counted(ledger) == {"ada": 3 * DEEP, "bob": 3 * DEEP}
            told.append((done, total))

        ledger.rebuild(only=only, progress=report)
        assert told[-1][0] == told[-1][1]
        assert expected(ledger) == counted(ledger)
        ledger.append("of ada", [say("and more")])
        assert expected(ledger) == counted(ledger)


def test_writes_go_on_while_a_projection_is_built(location: str) -> None:
    """Nothing that is written meanwhile is lost."""
    with chatledger.open(location) as ledger:
        fill(ledger)
        is_built = threading.Event()

        def write() -> None:
            number = 0
            while not is_built.is_set():
                ledger.append("of ada", [say(f"word {number}")])
                number += 1

        thread = threading.Thread(target=write)
        thread.start()
        try:
            for version in range(1, 6):
                with chatledger.open(location, projections=[type(f"V{version}", (Words,), {"name": f"v{version}"})()]):
                    pass
        finally:
            is_built.set()
            thread.join()
        for version in range(1, 6):
            assert expected(ledger) == counted(ledger, f"v{version}")


commands = st.lists(
    st.tuples(st.sampled_from(["say", "say", "fork", "delete", "rebuild", "one", "drop"]), st.integers(0, 2)),
    max_size=20,
)


@given(commands)
@settings(max_examples=examples(15), deadline=None)
def test_live_rows_equal_rebuilt_rows(script: list[tuple[str, int]]) -> None:
    """Whatever is done, in whatever order (PS-29)."""
    with chatledger.open("memory:", projections=[Words()]) as ledger:
        for number, (what, which) in enumerate(script):
            chat_id = f"c{which}"
            ledger.upsert_chat(chat_id, f"user{which % 2}")
            if what == "say":
                ledger.append(chat_id, [say("word " * (number + 1))])
            elif what == "fork" and (found := ledger.get_messages(chat_id)):
                ledger.fork(chat_id, found[0].id)
            elif what == "delete":
                ledger.delete_chat(chat_id)
            elif what in {"rebuild", "one"}:
                ledger.rebuild(only="words" if what == "one" else None)
        live = counted(ledger)
        with ledger.projection("words") as rows:
            chats = [list(rows.of(f"c{which}").range()) for which in range(3)]
        ledger.rebuild()

        assert live == counted(ledger)
        with ledger.projection("words") as rows:
            assert chats == [list(rows.of(f"c{which}").range()) for which in range(3)]


# Other processes


@pytest.mark.guard
def test_a_process_without_it_lets_it_lag_noticed(location: str, forks: Forks) -> None:
    """What it wrote is in the rows that are read next, in a process that was open all the time and in a later one."""
    with chatledger.open(location, projections=[Words()]) as ledger:
        fill(ledger)
        assert forks.run("write", location, "of ada", 5, with_projection=False)
        assert forks.run("write", location, "of bob", 5, with_projection=True)
        ledger.sync()
        assert expected(ledger) == counted(ledger) == {"ada": 3 * DEEP + 15, "bob": 3 * DEEP + 15}
    assert forks.run("write", location, "of ada", 5, with_projection=False)
    with chatledger.open(location) as ledger:
        ledger.append("of ada", [say("one two three")])
    with chatledger.open(location, projections=[Words()]) as ledger:
        assert expected(ledger) == counted(ledger) == {"ada": 3 * DEEP + 33, "bob": 3 * DEEP + 15}


@pytest.mark.guard
@pytest.mark.matrix
@pytest.mark.parametrize("is_wiped", [True, False])
def test_a_process_without_it_deletes(
    location: str,
    forks: Forks,
    monkeypatch: pytest.MonkeyPatch,
    is_wiped: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """The projection hears of it when it comes back; if it does not come for long, its rows go, and it is built anew."""
    with chatledger.open(location, projections=[Words()]) as ledger:
        fill(ledger)
    assert forks.run("delete", location, "of ada")
    if is_wiped:
        monkeypatch.setattr(scrubbing, "GRACE_S", 0.0)
        with chatledger.open(location) as ledger:
            assert ledger.projections() == []
            assert not store_behind(ledger).index.is_scrub_due
    with chatledger.open(location, projections=[Words()]) as ledger:
        assert expected(ledger) == counted(ledger) == {"bob": 3 * DEEP}
        store_behind(ledger).finish_erasures()
        assert not store_behind(ledger).index.is_scrub_due


def test_deleted_text_leaves_the_files(location: str, tmp_path: Path) -> None:
    """Rows under a chat with its text go from the bytes of every file (PS-13)."""

    class Texts(Projection):
        name = "texts"

        def apply(self, rows: ProjectionRows, recorded: Recorded) -> None:
            for message in getattr(recorded.body, "messages", ()):
                rows.of(recorded.chat_id).put(message.id, message.text)
                rows.of(recorded.chat_id).put(message.id, "long: " + message.text * 300)

    with chatledger.open(location, projections=[Texts()]) as ledger:
        ledger.create_chat("c", "ada")
        ledger.create_chat("kept", "ada")
        for number in range(20):
            ledger.append("c", [say(f"swordfish{number}")])
            ledger.append("kept", [say("harmless")])
        assert b"swordfish" in _bytes(tmp_path)
        ledger.delete_chat("c")
        assert b"swordfish" not in _bytes(tmp_path)
        with ledger.projection("texts") as rows:
            assert len(list(rows.of("kept").range())) == 20


def _bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def _refuse(done: int, total: int) -> None:
    """Refuse to build: what serves is whole."""
    pytest.fail(f"built {done} of {total}")


@pytest.mark.soak
@pytest.mark.parametrize("action", ["build", "rebuild", "rebuild_one", "renew"])
def test_killed_at_every_step(location: str, forks: Forks, action: str) -> None:
    """
    Kill -9 before and after each thing that touches the index: what serves is whole, and the next one completes the rest.

    Meanwhile another process writes. No folder of an old or half-built generation stays (PS-30).
    """
    with chatledger.open(location, projections=[Words()] if action != "build" else []) as ledger:
        fill(ledger, 4)
    step, is_complete = 0, False
    with Forks() as writer:
        while not is_complete:
            step += 1
            if step % 5 == 0:
                writer.begin("write", location, "of bob", 2, with_projection=action.startswith("rebuild"))
            is_complete = forks.run(action, location, step)
            with chatledger.open(location, progress=_refuse) as ledger:
                assert ledger.get_chat("of ada") is not None
            assert step % 5 or writer.end()
            version = step + 1 if action == "renew" else 1
            with chatledger.open(location, projections=[Words(version)]) as ledger:
                assert expected(ledger) == counted(ledger)
                if action == "build":
                    ledger.drop_projection("words")

    assert step > 20, step
    with chatledger.open(location, projections=[Words(step + 1 if action == "renew" else 1)]) as ledger:
        assert expected(ledger) == counted(ledger)
        assert counted(ledger)["bob"] == 3 * 4 + 3 * 2 * (step // 5)
        assert len(generations(location)) == 1


# Failures


@pytest.mark.soak
def test_a_broken_projection_says_so(location: str, caplog: pytest.LogCaptureFixture) -> None:
    """Writing, reading, and other projections go on; the error names position and remedy, and no content."""
    other = type("Other", (Words,), {"name": "other"})()
    with chatledger.open(location, projections=[Mistaken(), other]) as ledger:
        ledger.create_chat("c", "ada")
        ledger.append("c", [say("fine")])
        ledger.append("c", [say("a mistake")])
        ledger.append("c", [say("fine again")])

        assert [message.text for message in ledger.get_messages("c")] == ["fine", "a mistake", "fine again"]
        assert counted(ledger, "other") == {"ada": 5}
        with pytest.raises(ProjectionError, match=r"failed at position 3.*KeyError at test_custom") as failed:
            counted(ledger)
        assert ("words", 3) == (failed.value.name, failed.value.position)
        assert "rebuild(only='words')" in str(failed.value)
        assert "'mistake'" not in str(failed.value)
        broken = next(info for info in ledger.projections() if info.name == "words")
        assert (2, 3) == (broken.position, broken.error_position)
        assert "failed at position 3" in caplog.text
    with (
        chatledger.open(location, projections=[Mistaken()]) as ledger,
        pytest.raises(ProjectionError, match="failed at position 3"),
    ):
        counted(ledger)


@pytest.mark.soak
def test_a_corrected_projection_is_rebuilt(location: str) -> None:
    """With the same version by `rebuild(only=...)`, which may fail again; or by `rebuild`; or by another version."""
    mistaken = Mistaken()
    with chatledger.open(location, projections=[mistaken]) as ledger:
        ledger.create_chat("c", "ada")
        ledger.append("c", [say("a mistake")])
        with pytest.raises(ProjectionError, match="failed again"):
            ledger.rebuild(only="words")
        ledger.rebuild()
        with pytest.raises(ProjectionError, match="failed at position 2"):
            counted(ledger)
        mistaken.word = None
        ledger.rebuild(only="words")
        assert counted(ledger) == {"ada": 2}
        mistaken.word = "another"
        ledger.append("c", [say("another mistake")])
        mistaken.word = None
        ledger.rebuild()
        assert counted(ledger) == {"ada": 4}
        mistaken.word = "fatal"
        ledger.append("c", [say("fatal")])
    with chatledger.open(location, projections=[Words(version=2)]) as ledger:
        assert counted(ledger) == {"ada": 5}


def test_a_rebuild_that_fails_leaves_good_rows(location: str) -> None:
    mistaken = Mistaken()
    mistaken.word = None
    with chatledger.open(location, projections=[mistaken]) as ledger:
        ledger.create_chat("c", "ada")
        ledger.append("c", [say("a mistake")])
        mistaken.word = "mistake"
        with pytest.raises(ProjectionError, match="the old rows stay"):
            ledger.rebuild(only="words")
        ledger.append("c", [say("fine")])
        assert counted(ledger) == {"ada": 3}


class Curious(Projection):
    """Asks the ledger, which it must not."""

    name = "curious"
    ledger: Ledger | None = None

    def apply(self, rows: ProjectionRows, recorded: Recorded) -> None:
        if self.ledger is not None:
            self.ledger.get_chat(recorded.chat_id)


def test_a_projection_must_not_use_a_ledger() -> None:
    """It is told, and does not wait for itself for ever."""
    curious = Curious()
    with chatledger.open("memory:", projections=[curious]) as ledger:
        ledger.create_chat("c", "ada")
        curious.ledger = ledger
        ledger.append("c", [say("hello")])
        with pytest.raises(ProjectionError, match="InvalidValueError at"), ledger.projection("curious"):
            pass


# Reading and dropping


def test_a_view_is_of_one_moment(location: str) -> None:
    """Writes of others do not change it, and do not wait for it."""
    with chatledger.open(location, projections=[Words()]) as ledger:
        fill(ledger, 3)
        with ledger.projection("words") as rows:
            before = dict(rows.range())
            thread = threading.Thread(target=ledger.append, args=("of ada", [say("more words")]))
            thread.start()
            thread.join(30)
            assert not thread.is_alive()
            assert before == dict(rows.range()) == {"ada": 9, "bob": 9}
            assert list(rows.range(reverse=True, limit=1)) == [("bob", 9)]
            kept = rows
        assert counted(ledger) == {"ada": 11, "bob": 9}
        with pytest.raises(LedgerClosedError, match="cannot be used any more"):
            kept.get("ada")


def test_inside_a_view_the_ledger_is_refused(location: str) -> None:
    """Growing the index would wait for the view, which waits for the write: it is refused at once instead."""
    with chatledger.open(location, projections=[Words()]) as ledger, chatledger.open("memory:") as another:
        fill(ledger, 1)
        with ledger.projection("words"):
            each_raises(
                InvalidValueError,
                lambda: ledger.append("of ada", [say("x")]),
                lambda: ledger.get_chat("of ada"),
                lambda: ledger.projection("words").__enter__(),
                ledger.rebuild,
                match="use the ledger after the `with`",
            )
            another.create_chat("c", "ada")
        ledger.append("of ada", [say("x")])


def test_closing_ends_views(location: str) -> None:
    """A view that nobody ended does not keep the files open for ever."""
    ledger = chatledger.open(location, projections=[Words()])
    view = ledger.projection("words")
    rows = view.__enter__()
    ledger.close()
    with pytest.raises(LedgerClosedError):
        rows.get("ada")
    view.__exit__(None, None, None)
    with pytest.raises(LedgerClosedError):
        ledger.projections()


def test_dropping(location: str) -> None:
    with chatledger.open(location, projections=[Words()]) as ledger:
        fill(ledger, 2)
        assert ledger.drop_projection("words")
        assert not ledger.drop_projection("words")
        assert ledger.projections() == []
        with pytest.raises(NotFoundError, match="no projection 'words'"):
            counted(ledger)
        ledger.append("of ada", [say("x")])
    with chatledger.open(location, projections=[Words()]) as ledger:
        assert expected(ledger) == counted(ledger)
    with chatledger.open(location) as ledger:
        info = ProjectionInfo("words", 1, ledger.position, is_attached=False)
        assert [info] == ledger.projections()
        assert ledger.drop_projection("words")


@pytest.mark.parametrize(
    "projections",
    [[Words], [Words(), Words(2)], "words", [None], 5, [type("Bad", (Words,), {"name": ""})()]],
    ids=["a class", "two of a name", "text", "None", "a number", "no name"],
)
def test_wrong_projections_are_refused(tmp_path: Path, projections: Any) -> None:
    with pytest.raises(ConfigurationError):
        chatledger.open(tmp_path / "data", projections=projections)
    assert not (tmp_path / "data").exists()


def test_one_process_has_one_version(location: str) -> None:
    """A ledger that is open already is not changed by a second one, which may bring others."""
    with chatledger.open(location, projections=[Words()]) as ledger:
        with pytest.raises(ConfigurationError, match="as another class, or with version 1"):
            chatledger.open(location, projections=[Words(2)])
        with chatledger.open(location, projections=[Words(), type("New", (Words,), {"name": "new"})()]) as second:
            fill(second, 2)
        assert counted(ledger) == counted(ledger, "new") == {"ada": 6, "bob": 6}


def test_unknown_names(location: str) -> None:
    with chatledger.open(location, projections=[Words()]) as ledger:
        with pytest.raises(NotFoundError, match=r"give it to chatledger\.open"):
            counted(ledger, "nothing")
        with pytest.raises(InvalidValueError, match="name of a projection"):
            ledger.rebuild(only="nothing")
        assert not ledger.drop_projection("nothing")


def test_users_have_no_projections() -> None:
    """Rows belong to nobody, so a ledger that is limited to one user refuses them (GS)."""
    with chatledger.open("memory:", projections=[Words()]) as whole:
        ada = whole.for_user("ada")
        each_raises(
            AccessDeniedError,
            lambda: ada.projection("words").__enter__(),
            ada.projections,
            lambda: ada.drop_projection("words"),
            lambda: ada.rebuild(only="words"),
        )
        ada.create_chat("c", "ada")
        ada.append("c", [say("two words")])
        assert counted(whole) == {"ada": 2}


@pytest.mark.soak
def test_async_reading(location: str) -> None:
    """The same with `async with`; inside, other calls of the task are refused, and those of other tasks are not."""

    async def main() -> None:
        async with chatledger.open_async(location, projections=[Words()]) as ledger:
            await ledger.create_chat("c", "ada")
            await ledger.append("c", [say("two words")])
            async with ledger.projection("words") as rows:
                with pytest.raises(InvalidValueError, match="after the `with`"):
                    await ledger.get_chat("c")
                assert dict(rows.range()) == {"ada": 2}
            await asyncio.gather(*(_read(ledger) for _ in range(20)), ledger.append("c", [say("more")]))
            await ledger.rebuild(only="words")
            assert [info.name for info in await ledger.projections()] == ["words"]
            assert await ledger.drop_projection("words")

    async def _read(ledger: chatledger.AsyncLedger) -> None:
        async with ledger.projection("words") as rows:
            await asyncio.sleep(0)
            assert rows.of("c").get("words") in {2, 3}

    asyncio.run(main())
