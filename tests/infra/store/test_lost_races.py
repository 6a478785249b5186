"""Commands that the log refuses again and again."""

# pyright: reportPrivateUsage=false

import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.support.ledger_world import store_behind

import chatledger
from chatledger import Ledger, NewMessage, user
from chatledger.domain.chat.decide_chats import decide_create_chat
from chatledger.domain.chat.events import Body, ChatDeleted, ChatUpdated
from chatledger.domain.errors import CorruptStateError, UpdateConflictError
from chatledger.errors import ChatExistsError, ChatNotFoundError
from chatledger.infra.ledger.scopes.user_store import UserStore
from chatledger.infra.log.port import LostRaceError
from chatledger.infra.store.commands import Decide
from chatledger.infra.store.group_commit import Command, GroupCommit
from chatledger.infra.store.store import Store
from chatledger.projections.chat.reader import IndexedChat
from chatledger.projections.lmdb.keys import id_key
from chatledger.projections.log.kinds import CHATS

CHAT = "c"


def test_an_index_that_lost_a_chat_is_told_from_another_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log has events that the index read and does not show. Others write to other chats meanwhile."""
    monkeypatch.setitem(Store.execute.__kwdefaults__ or {}, "timeout_s", 1.0)
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("c", "ada")
        ledger.create_chat("d", "ada")
        store_behind(ledger).index.update(
            lambda generation, txn: txn.delete(b"c" + id_key("c"), db=generation.tables.chat_ids)
        )
        assert ledger.get_chat("c") is None

        def write_elsewhere(pause_s: float) -> None:
            del pause_s
            ledger.append("d", [NewMessage("user", "busy")])

        with monkeypatch.context() as patch:
            patch.setattr(time, "sleep", write_elsewhere)
            with pytest.raises(CorruptStateError, match=r"'c'.*rebuild"):
                ledger.upsert_chat("c", "ada")
        ledger.rebuild()
        assert ledger.upsert_chat("c", "ada").user_id == "ada"


@contextmanager
def others_write(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """Somebody writes to another chat whenever the end of the log is looked for: a dozen times there is something new."""
    store = store_behind(ledger)
    catch_up = store.projector.catch_up
    left = iter(range(12))

    def write_first(*least: float) -> int:
        if threading.current_thread() is threading.main_thread() and next(left, None) is not None:
            in_another_thread(lambda: store.execute(CHATS, "busy", retitle, kind=None))
        return catch_up(*least)

    with monkeypatch.context() as patch:
        patch.setattr(store.projector, "catch_up", write_first)
        yield


def in_another_thread(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def overtake(store: Store, chat_id: str, decide: Decide) -> None:
    """Write to a chat without waiting for who writes now, as another process does."""
    limits = store._commits._limits
    others = GroupCommit(store.log, store.index, store.projector, limits, note=None)
    others.carry_out(Command(chat_id, CHATS, chat_id, decide, None))


def retitle(state: IndexedChat, now: int) -> list[Body]:
    del state
    return [ChatUpdated(changes={"title": str(now)})]


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("c", "ada")
        ledger.create_chat("busy", "ada")
        yield ledger


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_command_with_nothing_to_write_ends_while_others_write(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, *, is_refused: bool
) -> None:
    """It is decided again once, on what the log held after the call began: it need not wait for a moment of silence."""
    decided: list[int] = []

    def decide(state: object, now: int) -> list[Body]:
        del state, now
        decided.append(1)
        if is_refused:
            raise ChatExistsError(CHAT)
        return []

    with others_write(ledger, monkeypatch), pytest.raises(ChatExistsError) if is_refused else nullcontext():
        assert store_behind(ledger).execute(CHATS, "c", decide, kind=None) == []

    assert len(decided) == 2


def test_a_race_that_is_lost_after_many_attempts_is_no_damage(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen under load: an index that lacks nothing was called damaged, after one lost race among attempts that wrote nothing."""
    store = store_behind(ledger)
    attempts: list[int] = []

    def lose_at_last(state: IndexedChat, now: int) -> list[Body]:
        attempts.append(1)
        if len(attempts) < 10:
            return []
        in_another_thread(lambda: overtake(store, "c", retitle))
        return retitle(state, now)

    with others_write(ledger, monkeypatch), suppress(UpdateConflictError):  # a retry is what helps
        store.execute(CHATS, "c", lose_at_last, kind=None, timeout_s=0)


def test_a_log_that_refuses_for_ever_is_no_damage_of_the_index(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only events on the log that the index read and does not show are. Here there are none."""

    def refuse(*args: object, **kwargs: object) -> list[int]:
        raise LostRaceError

    monkeypatch.setattr(store_behind(ledger).log, "append", refuse)
    with pytest.raises(UpdateConflictError, match=r"'c'.* [1-9][0-9] attempts"):
        store_behind(ledger).execute(CHATS, "c", retitle, kind=None, timeout_s=0.5)


def test_a_chat_of_another_user_is_no_damage(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who loses the race for a new chat does not see it; that is as it should be."""
    store = store_behind(ledger)

    def create(state: IndexedChat, now: int) -> list[Body]:
        del now
        return decide_create_chat(state, user_id="ada", title=None, metadata=None, branch_id="b")

    append = store.log.append

    def first(*args: Any, **kwargs: Any) -> list[int]:
        monkeypatch.setattr(store.log, "append", append)
        in_another_thread(lambda: overtake(store, "new", create))
        return append(*args, **kwargs)

    monkeypatch.setattr(store.log, "append", first)
    monkeypatch.setitem(UserStore.execute.__kwdefaults__ or {}, "timeout_s", 0)
    with pytest.raises(UpdateConflictError):
        ledger.for_user("bob").create_chat("new", "bob")


def test_a_deletion_that_overtakes_an_append(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The version that the append was decided for was given, and erased since: it is refused, and not written behind the tombstone."""
    location = f"sqlite:///{tmp_path}/log.db"
    with (
        chatledger.open(location, index=tmp_path / "one") as ledger,
        chatledger.open(location, index=tmp_path / "other") as other,
    ):
        ledger.create_chat("c", "ada")
        log = store_behind(ledger).log
        append = log.append

        def overtaken(*args: Any, **kwargs: Any) -> list[int]:
            monkeypatch.setattr(log, "append", append)
            other.append("c", [user("first")])
            assert other.delete_chat("c")
            return append(*args, **kwargs)

        monkeypatch.setattr(log, "append", overtaken)
        with pytest.raises(ChatNotFoundError):
            ledger.append("c", [user("late")])
        ledger.verify()
        assert [ChatDeleted] == [type(recorded.body) for recorded in ledger.history("c")]
        assert ledger.create_chat("c", "bob").user_id == "bob"


def test_a_refusal_by_an_old_end_of_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is behind shows no chat; a majority is asked before a command is refused for that."""
    location = f"sqlite:///{tmp_path}/log.db"
    with (
        chatledger.open(location, index=tmp_path / "one") as ledger,
        chatledger.open(location, index=tmp_path / "other") as other,
    ):
        log = store_behind(ledger).log
        committed_position = log.committed_position
        asked: list[int] = []

        def ask_majority() -> int:
            monkeypatch.undo()
            asked.append(committed_position())
            return asked[-1]

        monkeypatch.setattr(log, "read", lambda *_args, **_kwargs: [])
        monkeypatch.setattr(log, "committed_position", ask_majority)
        other.create_chat("c", "ada")
        ledger.append("c", [user("hello")])
        assert asked == [1]


def test_a_write_waits_for_its_own_events_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others write whenever the log is read. Who followed them to the end of the log, which moves on, waited until they paused."""
    location = f"sqlite:///{tmp_path}/log.db"
    with (
        chatledger.open(location, index=tmp_path / "one") as ledger,
        chatledger.open(location, index=tmp_path / "other") as other,
    ):
        ledger.create_chat("c", "ada")
        other.create_chat("busy", "ada")
        log = store_behind(ledger).log
        read, left, reads = log.read, iter(range(30)), list[int]()

        def read_busily(after: int, *limit: int) -> Any:
            if threading.current_thread() is threading.main_thread() and next(left, None) is not None:
                reads.append(after)
                other.append("busy", [user("more")])
            return read(after, *limit)

        monkeypatch.setattr(log, "read", read_busily)
        ledger.append("c", [user("hello")])

        assert len(reads) < 5


def test_pauses_stay_short_however_many_there_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty seconds have room for more than a thousand attempts."""
    pauses: list[float] = []
    with chatledger.open("memory:") as ledger:
        caller, sleep = threading.get_ident(), time.sleep

        def note(pause: float) -> None:
            if threading.get_ident() == caller:
                pauses.append(pause)
            else:
                sleep(pause)

        monkeypatch.setattr(time, "sleep", note)
        for attempts in (1, 2, 5_001):
            store_behind(ledger)._await_other("c", attempts, time.monotonic() + 60)

    assert len(pauses) == 2
    assert all(0 <= pause <= 0.05 for pause in pauses)
