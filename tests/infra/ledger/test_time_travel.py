"""Time travel: a view of a moment answers as the ledger did then."""

import contextlib
import functools
import gc
import inspect
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contracts.store_world import together
from tests.support.ledger_world import internals, text
from tests.support.search_world import drop_search
from tests.support.soak import examples
from tests.support.time_travel_world import (
    CHATS,
    OWNERS,
    STEPS,
    WITH_DELETIONS,
    Step,
    Walk,
    answers_of_chat,
    check_walk,
    found,
)

import chatledger
from chatledger import (
    AsyncLedger,
    AsyncLedgerView,
    ChainIntegrityError,
    CorruptStateError,
    InvalidValueError,
    Ledger,
    LedgerClosedError,
    LedgerView,
    LogUnavailableError,
    Recorded,
    user,
)
from chatledger.errors import ChatNotFoundError, WrongChatError
from chatledger.infra.log import envelope
from chatledger.infra.store import group_commit
from chatledger.infra.store.commands import ChatsToRead
from chatledger.projections.lmdb.environment import Transaction
from chatledger.projections.lmdb.keys import number as position_key


@pytest.mark.soak
@settings(max_examples=examples(25))
@given(steps=STEPS)
def test_answers_of_each_moment(steps: list[Step]) -> None:
    """PS-28: whatever was asked, at whatever position, a view of it gives the same answer."""
    with chatledger.open("memory:") as ledger:
        check_walk(ledger, steps)


FIXED: Final[list[Step]] = [
    (kind, chat_id, number)
    for number, kind in enumerate(
        ["append", "append", "reply", "fork", "append", "checkpoint", "rename", "move", "forget"]
    )
    for chat_id in CHATS[: 2 + number % 2]
]


@pytest.mark.soak
@pytest.mark.parametrize("place", ["sqlite", "embedded"])
def test_answers_of_each_moment_on_other_logs(place: str, tmp_path: Path) -> None:
    location = f"sqlite:///{tmp_path}/log.db" if place == "sqlite" else str(tmp_path / "data")
    with chatledger.open(location, durability="fast") as ledger:
        check_walk(ledger, FIXED)


@settings(max_examples=examples(25))
@given(steps=WITH_DELETIONS)
def test_deleted_chats_are_in_no_moment(steps: list[Step]) -> None:
    """At each moment the chats that live on are as they were; those that were deleted since are not there."""
    with chatledger.open("memory:") as ledger:
        walk = Walk(ledger)
        recorded: list[tuple[int, dict[str, Any]]] = []
        for step in steps:
            walk.take(step)
            recorded.append((ledger.position, {chat_id: answers_of_chat(ledger, chat_id) for chat_id in CHATS}))
        nothing = {chat_id: answers_of_chat(ledger.as_of(0), chat_id) for chat_id in CHATS}
        for position, then in recorded:
            with ledger.as_of(position) as view:
                for chat_id in CHATS:
                    is_gone = position < walk.deleted_at.get(chat_id, 0)
                    assert (nothing if is_gone else then)[chat_id] == answers_of_chat(view, chat_id)
                listed = {chat.id for chat in view.list_chats()}
                assert listed == {chat_id for chat_id in CHATS if view.get_chat(chat_id) is not None}
                assert {hit.message.chat_id for hit in view.search("plan OR boat OR train")} <= listed


# Positions and times


def test_each_earlier_title_is_returned(ledger: Ledger) -> None:
    """PS, acceptance 11: three settings of a title, and the chat as of each position."""
    ledger.create_chat("riga", "ada", title="First")
    ledger.update_chat("riga", title="Second")
    ledger.update_chat("riga", title="Third")

    titles = [chat.title for position in (1, 2, 3) if (chat := ledger.as_of(position).get_chat("riga"))]

    assert ["First", "Second", "Third"] == titles
    assert ledger.as_of(0).get_chat("riga") is None


@pytest.mark.parametrize("moment", [4, -1, 1.5, True, "1", None, datetime(2026, 1, 1)])  # noqa: DTZ001 - refused
def test_there_is_no_such_moment(ledger: Ledger, moment: Any) -> None:
    ledger.create_chat("riga", "ada")
    ledger.append("riga", [user("a")])
    ledger.append("riga", [user("b")])

    with pytest.raises(InvalidValueError, match=r"time zone|whole number|is no time|log ends at position 3") as caught:
        ledger.as_of(moment)

    assert moment != 4 or "there is no moment 4 yet; the log ends at position 3" == str(caught.value)


class Clock:
    """A clock that is set by hand, ms since the epoch."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000
        for module in (group_commit, envelope):
            monkeypatch.setattr(module, "clock_ms", lambda: self.now)


def at(time_ms: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms)


@settings(max_examples=examples(6))
@given(steps=WITH_DELETIONS, times=st.lists(st.integers(-5, 50), min_size=14, max_size=14))
def test_a_list_as_of_each_time_has_what_a_replay_has(steps: list[Step], times: list[int]) -> None:
    """However clocks go, and whenever chats that were imported say that they changed."""
    with pytest.MonkeyPatch.context() as patch, chatledger.open("memory:") as ledger:
        clock, walk = Clock(patch), Walk(ledger)
        for step, elapsed in zip(steps, times, strict=False):
            clock.now += elapsed
            walk.take(step)
            if elapsed % 7 == 0 and ledger.get_chat(step[1]) is not None:
                ledger.import_chat(ledger.export_chat(step[1]), chat_id=f"copy-{len(walk.message_ids) % 3}")
        chat_ids = [*CHATS, *(chat.id for chat in ledger.list_chats() if chat.id not in CHATS)]
        for ms in {990, clock.now, *range(1_000, clock.now, 9)}:
            with ledger.as_of(at(ms)) as view:
                listed = view.list_chats()
                replayed = [chat for chat_id in chat_ids if (chat := view.get_chat(chat_id)) is not None]
                assert sorted(replayed, key=lambda chat: (-chat.updated_at, chat.id)) == listed


def test_as_of_a_time(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events count whose time is up to it, to the millisecond, in whatever zone it is given."""
    clock = Clock(monkeypatch)
    ledger.create_chat("riga", "ada", title="First")
    for clock.now, title in ((2_000, "Second"), (3_000, "Third")):
        ledger.update_chat("riga", title=title)

    def title_at(moment: datetime) -> str | None:
        with ledger.as_of(moment) as view:
            chat = view.get_chat("riga")
            return None if chat is None else chat.title

    assert [title_at(at(ms)) for ms in (0, 999.9, 1_000, 1_999.999, 2_000, 2_999, 3_000, 9_000)] == (
        [None, None, "First", "First", "Second", "Second", "Third", "Third"]
    )
    assert "Second" == title_at(at(2_500).astimezone(datetime.now().astimezone().tzinfo))
    assert [0, 1, 2, 3] == [ledger.as_of(at(ms)).position for ms in (500, 1_000, 2_500, 3_000)]
    assert [1, 2] == [event.position for event in ledger.as_of(at(2_500)).history()]
    assert "2026-11-21T12:00:00.000+00:00" in repr(ledger.as_of(datetime(2026, 11, 21, 12, tzinfo=UTC)))


def test_clocks_that_differ(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """One chat's events count up to a time even where another writer's clock is behind; `history(until=...)` does the same."""
    clock = Clock(monkeypatch)
    for clock.now, chat_id in ((5_000, "riga"), (1_000, "oslo"), (6_000, "riga"), (2_000, "oslo"), (7_000, "riga")):
        ledger.upsert_chat(chat_id, "ada")
        ledger.append(chat_id, [text("plan", id=f"{chat_id}-{clock.now}")])
    ledger.append("oslo", [text("plan", id="last")])  # at 7,000: the times of a chat do not go back

    for ms, expected in ((500, []), (1_500, [1]), (2_500, [2]), (5_500, [2, 1]), (6_500, [2, 2]), (8_000, [3, 3])):
        with ledger.as_of(at(ms)) as view:
            assert expected == [
                len(view.get_messages(chat_id)) for chat_id in ("oslo", "riga") if view.get_chat(chat_id)
            ]
            assert sum(expected) == len(view.search("plan"))
            assert len(expected) == len(view.list_chats())
            assert list(ledger.history(until=at(ms))) == list(view.history())


def test_what_comes_later_never_belongs_to_a_view(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """A view of the present, or of a time to come, stays as it is; even of what is written in the same millisecond."""
    Clock(monkeypatch)
    ledger.create_chat("riga", "ada")
    with ledger.as_of(at(1_000)) as now, ledger.as_of(at(99_000)) as later:
        ledger.append("riga", [user("plan")])
        ledger.create_chat("oslo", "ada")

        for view in (now, later):
            assert [] == view.get_messages("riga")
            assert view.get_chat("oslo") is None
            assert 1 == view.position == len(list(view.history()))


def test_nobody_saw_half_a_commit(ledger: Ledger) -> None:
    """A position inside a commit is the moment before it (PS-21)."""
    large = "x" * 600_000
    ledger.create_chat("riga", "ada")
    ledger.append("riga", [user(large), user(large), user(large)])
    assert [2, 1, 0] == [event.event.rest for event in ledger.history(after=1)]

    assert [0, 0, 0, 3] == [len(ledger.as_of(position).get_messages("riga")) for position in (1, 2, 3, 4)]
    assert [1, 1, 1, 4] == [ledger.as_of(position).position for position in (1, 2, 3, 4)]
    assert 1 == len(list(ledger.as_of(3).history()))


# The view itself

WRITES: Final = {
    "create_chat", "upsert_chat", "update_chat", "delete_chat", "append", "add_messages", "create_branch", "fork",
    "set_active_branch", "rename_branch", "delete_branch", "show", "move_head", "set_checkpoint", "delete_checkpoint", "save", "preview_save", "import_chat",
    "rebuild", "context", "feed", "sync", "wait", "as_of", "for_user", "annotate", "record_run", "start_run", "complete_run",
    "fail_run", "update_run", "mark_stale", "begin_regeneration", "approve_regeneration", "repeat_run", "fork_chat", "set_member", "remove_member",
}  # fmt: skip
READS: Final = {
    "get_chat", "list_chats", "count_chats", "get_message", "get_messages", "get_chain", "compare", "bisect", "has_children", "children", "siblings",
    "common_ancestor", "merge_base", "diff", "get_branch", "get_active_branch", "list_branches", "get_checkpoint", "list_checkpoints",
    "search", "count_hits", "export_chat", "graph", "owner_of", "history", "get_position", "get_annotations", "get_run", "runs",
    "get_context", "plan_regeneration", "get_regeneration", "regenerations", "forks", "get_rows", "list_bundled_lines", "get_row_line",
    "get_row_numbers", "get_row_strip", "list_branch_points", "get_page", "versions", "branches_of", "members",
}  # fmt: skip


def public(kind: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}


def test_a_view_reads_and_does_nothing_else() -> None:
    """It has the methods that read, under their names and with their arguments; of the others there is none."""
    assert public(LedgerView) == READS | {"close"}
    assert public(AsyncLedgerView) == READS | {"close", "run"}
    assert {name for name in WRITES if hasattr(LedgerView, name)} == set()
    for name in READS:
        expected = inspect.signature(getattr(Ledger, name))
        assert expected == inspect.signature(getattr(LedgerView, name)), name
        assert list(expected.parameters) == list(inspect.signature(getattr(AsyncLedgerView, name)).parameters), name


def test_a_view_ends_with_its_ledger() -> None:
    ledger = chatledger.open("memory:")
    ledger.create_chat("riga", "ada")
    closed, left_open = ledger.as_of(1), ledger.as_of(1)
    assert closed.get_chat("riga") == left_open.get_chat("riga")
    closed.close()
    closed.close()
    ledger.close()

    assert "<LedgerView as of position 1 (closed)>" == repr(closed)
    for view, why in ((closed, "the view is closed"), (left_open, "the ledger is closed")):
        asks: list[Callable[[], object]] = [
            functools.partial(view.get_chat, "riga"),
            view.get_position,
            functools.partial(next, view.history()),
        ]
        for ask in asks:
            with pytest.raises(LedgerClosedError, match=why):
                ask()
    left_open.close()


@pytest.mark.soak
def test_nothing_stays_behind(ledger: Ledger, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What was replayed has no name in the file system, and goes with the view, closed or forgotten."""
    monkeypatch.setattr(internals(ledger).scratch, "base", tmp_path)
    ledger.create_chat("riga", "ada")
    ledger.append("riga", [user("plan")])
    for _ in range(3):
        view = ledger.as_of(1)
        assert [] == view.get_messages("riga")
        assert _open_files(tmp_path)
        assert [] == list(tmp_path.iterdir())
        del view
        gc.collect()
        assert [] == _open_files(tmp_path)
    with ledger.as_of(1) as view:
        assert [] == view.get_messages("riga")
        assert _open_files(tmp_path)
    assert [] == _open_files(tmp_path)


def _open_files(folder: Path) -> list[str]:
    """The files of a folder that this process has open, also those that have no name any more."""
    names: list[str] = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            names.append(str(entry.readlink()))
    return [name for name in names if name.startswith(str(folder))]


# What is read


class CountedLog:
    """Counts what is read of a log, without a change of it."""

    def __init__(self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
        self.chats: list[str] = []
        self.pages = 0
        log = internals(ledger).log
        read, read_stream = log.read, log.read_stream
        thread = threading.get_ident()  # the one that follows the log is not counted

        def counted_read(*args: Any, **kwargs: Any) -> Any:
            self.pages += threading.get_ident() == thread
            return read(*args, **kwargs)

        def counted_read_stream(stream_id: str, **kwargs: Any) -> Any:
            self.chats.append(stream_id)
            return read_stream(stream_id, **kwargs)

        monkeypatch.setattr(log, "read", counted_read)
        monkeypatch.setattr(log, "read_stream", counted_read_stream)


def fill(ledger: Ledger, count: int) -> int:
    """Chats of which only one changes after the position that is returned."""
    for number in range(count):
        ledger.create_chat(f"chat-{number}", "ada")
        ledger.append(f"chat-{number}", [text(f"plan {number}", id=f"m{number}")])
    position = ledger.position
    ledger.append("chat-0", [text("plan again", id="late")])
    return position


def test_unchanged_chats_are_not_folded(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chat that has not changed since is read from the index: the log is not asked for it, nor for chats nobody asks for."""
    position = fill(ledger, 5)
    log = CountedLog(ledger, monkeypatch)
    with ledger.as_of(position) as view:
        for number in range(1, 5):
            assert 1 == len(view.get_messages(f"chat-{number}"))
            assert view.get_message(f"m{number}") is not None
        assert ([], 0) == (log.chats, log.pages)

        assert ["m0"] == [message.id for message in view.get_messages("chat-0")]
        assert {"chat-0"} == set(log.chats)
        reads = len(log.chats)

        # It is replayed once, whatever is asked.
        assert view.get_message("late") is None
        assert 5 == len(view.search("plan")) == len(view.list_chats())
        assert 1 == len(view.search("plan", chat_id="chat-0"))
        assert (reads, 0) == (len(log.chats), log.pages)


def test_many_changed_chats_are_read_in_one_go(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where most chats are touched, the log is read in order instead of chat by chat, and each page once."""
    fill(ledger, 30)
    position = ledger.position
    expected = ledger.list_chats(), found(ledger, "plan")
    for number in range(30):
        ledger.append(f"chat-{number}", [text("plan more")])
    log = CountedLog(ledger, monkeypatch)
    with ledger.as_of(position) as view:
        assert expected == (view.list_chats(), found(view, "plan"))

    assert [] == log.chats
    assert log.pages <= 3


def test_a_few_changed_chats_of_a_long_log_are_read_by_themselves(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.create_chat("riga", "ada")
    ledger.create_chat("oslo", "ada")
    position = ledger.position
    ledger.create_chat("other", "ada")
    for number in range(300):
        ledger.append("other", [text(f"{number}")])
    later = ledger.position
    for chat_id in ("riga", "oslo"):
        ledger.append(chat_id, [text("plan")])
    log = CountedLog(ledger, monkeypatch)
    with ledger.as_of(later) as view:
        assert not view.search("plan")
        assert ({"riga", "oslo"}, 0) == (set(log.chats), log.pages)
    with ledger.as_of(position) as view:
        assert 2 == len(view.list_chats())


def test_a_list_reads_nothing_of_the_log(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chats are counted back from how they stand now; only one that was described anew since is replayed."""
    fill(ledger, 4)
    ledger.upsert_chat("renamed", "ada", title="First")
    position, expected = ledger.position, (ledger.list_chats(), ledger.list_chats(order="created", ascending=True))
    for number in (2, 0, 3):
        ledger.append(f"chat-{number}", [text("plan more"), text("and more")])
        ledger.fork(f"chat-{number}", f"m{number}")
    ledger.delete_branch("chat-0", "main")
    ledger.set_checkpoint("chat-3", "mark", "m3")
    ledger.create_chat("later", "ada")
    log = CountedLog(ledger, monkeypatch)
    with ledger.as_of(position) as view:
        assert expected == (view.list_chats(), view.list_chats(order="created", ascending=True))
        assert expected[0][1:3] == view.list_chats(limit=2, after=expected[0][0])
        assert 5 == view.count_chats()
        assert ([], 0) == (log.chats, log.pages)
        assert expected[0] == view.list_chats()

        ledger.update_chat("renamed", title="Second")
        assert expected[0] == view.list_chats()
        assert ({"renamed"}, 0) == (set(log.chats), log.pages)


def test_a_damaged_entry_gives_no_wrong_list(ledger: Ledger) -> None:
    """What an event has changed is a row with a checksum, like the others."""
    position = fill(ledger, 2)
    generation = internals(ledger).index._generation()

    def damage(txn: Transaction) -> None:
        key, table = position_key(position + 1), generation.tables.log_entries
        raw = txn.get(key, db=table)
        assert raw is not None
        txn.put(key, raw[:-5] + bytes([raw[-5] ^ 1]) + raw[-4:], db=table)

    generation.update(damage)
    with ledger.as_of(position) as view, pytest.raises(CorruptStateError):
        view.list_chats()


# While others write


def test_a_chat_that_changes_while_a_view_is_open(ledger: Ledger) -> None:
    """It is read from the index as long as it has not changed, and replayed from then on; answers stay the same."""
    position = fill(ledger, 3)
    with ledger.as_of(position) as view:

        def asked() -> list[Any]:
            # The first search copies what is found in chat-1 and chat-2, and folds chat-0.
            return [view.get_chat("chat-1"), view.get_messages("chat-1"), found(view, "plan"), view.list_chats()]

        before = asked()
        for _ in range(3):
            ledger.append("chat-1", [text("plan and plan")])
            ledger.update_chat("chat-2", title=str(ledger.position))
            ledger.upsert_chat("new", "ada")

            assert before == asked()
            assert 1 == len(found(view, "plan", chat_id="chat-1"))


def test_a_read_says_which_chats_it_concerns() -> None:
    """Those are replayed before the snapshot is opened, which then shows them, and no other one that has changed."""
    with chatledger.open("memory:") as ledger, ledger.as_of(fill(ledger, 2)) as view:
        for chat_id in ("chat-0", "chat-1"):
            ledger.append(chat_id, [text("more")])
        store = cast("Any", view)._as_of_store

        with store.snapshot(ChatsToRead("chat-0")) as snapshot:
            assert snapshot.chat("chat-0").chat is not None
            with pytest.raises(RuntimeError, match="'chat-1' is not prepared"):
                snapshot.chat("chat-1")
        with store.snapshot(ChatsToRead(are_all=True)) as snapshot:
            assert 2 == len(snapshot.list_chats())


@pytest.mark.parametrize("is_folded", [False, True])
def test_a_chat_that_is_deleted_while_a_view_is_open(ledger: Ledger, is_folded: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Of it nothing is left, and no chat that gets its id later is taken for it."""
    ledger.create_chat("riga", "ada")
    ledger.append("riga", [text("plan", id="m")])
    position = ledger.position
    ledger.append("riga", [text("plan more")])
    with ledger.as_of(position) as view:
        if is_folded:
            assert 1 == len(view.get_messages("riga"))
        ledger.delete_chat("riga")
        for _ in range(2):
            assert view.get_chat("riga") is None
            assert view.get_message("m") is None
            assert not view.list_chats()
            assert not view.search("plan")
            with pytest.raises(ChatNotFoundError):
                view.get_messages("riga")
            assert {"chat_deleted"} >= {event.type for event in view.history("riga")}
            ledger.upsert_chat("riga", "ada")


def test_a_chat_that_is_made_anew(ledger: Ledger) -> None:
    """Its second life is replayed without its first one, whose events are erased."""
    ledger.create_chat("riga", "ada", title="First life")
    first = ledger.position
    ledger.delete_chat("riga")
    gone = ledger.position
    ledger.create_chat("riga", "ada", title="Second life")
    second = ledger.position
    ledger.append("riga", [text("plan")])
    ledger.update_chat("riga", title="Later")

    titles = [getattr(ledger.as_of(position).get_chat("riga"), "title", None) for position in (first, gone, second)]
    assert [None, None, "Second life"] == titles


def test_the_chats_of_two_messages(ledger: Ledger) -> None:
    """One of them unchanged, one replayed: they belong to different chats then as now."""
    position = fill(ledger, 3)
    with ledger.as_of(position) as view:
        for a, b in (("m1", "m0"), ("m0", "m2")):
            with pytest.raises(WrongChatError):
                view.diff(a, b)


def test_threads_share_a_view(ledger: Ledger) -> None:
    """Many threads ask one view of many chats, while another one writes: each gets the answer of that moment."""
    fill(ledger, 12)
    with ledger.as_of(ledger.position) as view:
        expected = [ledger.get_messages(f"chat-{number}") for number in range(12)], found(ledger, "plan")
        done: list[int] = []

        def work(number: int) -> None:
            if number == 0:
                while len(done) < 4:
                    ledger.append(f"chat-{ledger.position % 12}", [text("plan x")])
                return
            try:
                for turn in range(24):
                    at = (number + turn) % 12
                    assert expected[0][at] == view.get_messages(f"chat-{at}")
                    assert expected[1] == found(view, "plan")
            finally:
                done.append(number)

        together(5, work)


# Damage


def test_a_lost_event_is_noticed(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """PS-24: a hole in the events of a chat is no shorter chat."""
    ledger.create_chat("riga", "ada")
    for number in range(4):
        ledger.append("riga", [text(f"{number}")])
    log = internals(ledger).log
    read_stream = log.read_stream
    for lost in (1, 2, 3):
        monkeypatch.setattr(log, "read_stream", functools.partial(_without, read_stream, lost))
        with ledger.as_of(3) as view, pytest.raises(ChainIntegrityError, match="estore the log"):
            view.get_messages("riga")
    monkeypatch.setattr(log, "read_stream", read_stream)
    assert 2 == len(ledger.as_of(3).get_messages("riga"))


def _without(read_stream: Callable[..., list[Recorded]], position: int, *args: Any, **kwargs: Any) -> list[Recorded]:
    return [recorded for recorded in read_stream(*args, **kwargs) if recorded.position != position]


def test_a_log_that_does_not_answer_is_asked_again(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is raised as it is; asking again goes on with the same view."""
    ledger.create_chat("riga", "ada")
    ledger.append("riga", [text("plan")])
    ledger.append("riga", [text("plan")])
    log = internals(ledger).log

    def fail(*_args: Any, **_kwargs: Any) -> Any:
        msg = "the log did not answer"
        raise LogUnavailableError(msg)

    with ledger.as_of(2) as view:
        with monkeypatch.context() as patch:
            patch.setattr(log, "read_stream", fail)
            with pytest.raises(LogUnavailableError):
                view.get_messages("riga")
        assert 1 == len(view.get_messages("riga"))


@pytest.mark.soak
def test_a_chat_of_many_pages(ledger: Ledger) -> None:
    """More events than one page of the log holds."""
    ledger.create_chat("riga", "ada")
    for number in range(2_300):
        ledger.update_chat("riga", title=f"{number}")
    for position in (1, 1_000, 1_001, 2_000, 2_300):
        chat = ledger.as_of(position).get_chat("riga")
        assert chat is not None
        assert (None if position == 1 else f"{position - 2}") == chat.title


@pytest.mark.soak
@pytest.mark.parametrize("is_one", [True, False])
def test_a_chat_that_is_deleted_while_it_is_folded(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, *, is_one: bool
) -> None:
    """Events that are erased while they are read are no damage, if the chat was deleted; the others are as they were."""
    for chat_id in CHATS:
        ledger.create_chat(chat_id, "ada")
    for _ in range(600):
        for chat_id in CHATS:
            ledger.append(chat_id, [text("plan")])
    for _ in range(600):
        ledger.append("oslo", [text("plan")])
    for chat_id in CHATS:
        ledger.append(chat_id, [text("plan")])
    position = ledger.position - 3
    log = internals(ledger).log
    reads = {name: getattr(log, name) for name in ("read", "read_stream")}
    left = {"read": 2, "read_stream": 2}

    def delete_in_between(name: str, *args: Any, **kwargs: Any) -> Any:
        left[name] -= 1
        if left[name] == 0:  # when a page was read, and before the next one
            ledger.delete_chat("oslo")
        return reads[name](*args, **kwargs)

    with ledger.as_of(position) as view:
        with monkeypatch.context() as patch:
            for name in reads:
                patch.setattr(log, name, functools.partial(delete_in_between, name))
            if is_one:
                ledger.append("oslo", [text("plan")])
                assert view.get_chat("oslo") is None
            else:
                assert {"riga", "rome"} == {hit.message.chat_id for hit in view.search("plan", limit=None)}
        assert [600, 600] == [len(view.get_messages(chat_id)) for chat_id in ("riga", "rome")]
        assert view.get_chat("oslo") is None


def test_a_search_while_the_search_index_is_built(ledger: Ledger) -> None:
    """Of chats whose search index is not complete now, the messages are compared, and the answer says so."""
    position = fill(ledger, 3)
    drop_search(ledger)
    with ledger.as_of(position) as view:
        hits = view.search("plan")
        assert hits.is_degraded
        assert {"m0", "m1", "m2"} == {hit.message.id for hit in hits}
        assert ["m1"] == [hit.message.id for hit in view.search("plan", chat_id="chat-1")]
    ledger.rebuild(only="search")
    with ledger.as_of(position) as view:
        assert not view.search("plan").is_degraded


# Of one user, and asynchronous


def test_views_of_one_user(ledger: Ledger) -> None:
    """`for_user` limits views as it limits the ledger."""
    for chat_id in CHATS:
        ledger.create_chat(chat_id, OWNERS[chat_id])
        ledger.append(chat_id, [text(f"plan {chat_id}", id=chat_id)])
    position = ledger.position
    for chat_id in CHATS:
        ledger.append(chat_id, [text("plan more")])
    with ledger.for_user("ada").as_of(position) as view:
        assert {"riga", "oslo"} == {chat.id for chat in view.list_chats()}
        assert {"riga", "oslo"} == {hit.message.id for hit in view.search("plan")}
        assert view.get_chat("rome") is None
        assert view.get_message("rome") is None
        assert not view.list_chats(user_id="bob")
        assert not view.search("plan", chat_id="rome")
        assert 1 == len(view.get_messages("riga"))
        assert {"riga", "oslo"} == {event.chat_id for event in view.history()}
        assert 4 == len(list(view.history()))
        with pytest.raises(ChatNotFoundError):
            view.get_messages("rome")


@pytest.mark.anyio
async def test_asynchronous_view(async_ledger: AsyncLedger) -> None:
    await async_ledger.create_chat("riga", "ada", title="First")
    await async_ledger.append("riga", [text("plan", id="m")])
    await async_ledger.append("riga", [text("boat")])
    async with async_ledger.as_of(2) as view:
        assert ["m"] == [message.id for message in await view.get_messages("riga")]
        assert 1 == len(await view.search("plan"))
        assert [] == await view.search("boat")
        assert 2 == await view.get_position()
        assert [1, 2] == [recorded.position async for recorded in view.history("riga")]
        assert "<AsyncLedgerView as of position 2>" == repr(view)
    with pytest.raises(LedgerClosedError):
        await view.get_chat("riga")
    with pytest.raises(InvalidValueError):
        await async_ledger.as_of(9)
