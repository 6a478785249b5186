"""Threads that expire: absent from their end on, erased by the next sweep, and begun anew by whoever writes next."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.agent_threads import put

import chatledger
from chatledger import AccessDeniedError, InvalidValueError, Ledger, Swept, importers
from chatledger.infra.ledger.port import store_of
from chatledger.infra.ledger.threads import Threads
from chatledger.infra.testing.savers import Calls, config
from chatledger.langgraph import LedgerSaver

HOUR_S = 3600
CLOCKS = ("ledger.threads", "ledger.thread_lists", "ledger.chats", "ledger.interchange", "store.group_commit")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The time in ms, to be set."""
    moment = [1_700_000_000_000]
    for module in CLOCKS:
        monkeypatch.setattr(f"chatledger.infra.{module}.clock_ms", lambda: moment[0])
    return moment


@pytest.fixture
def ledger(clock: list[int]) -> Iterator[Ledger]:
    del clock
    with chatledger.open("memory:") as opened:
        yield opened


def hours_pass(clock: list[int], hours: float) -> None:
    clock[0] += round(hours * HOUR_S * 1000)


def types(ledger: Ledger) -> list[str]:
    return [recorded.type for recorded in ledger.history()]


def test_a_thread_is_absent_from_its_end_on(ledger: Ledger, clock: list[int]) -> None:
    """Each checkpoint puts the end off. What reads, lists, copies and exports threads finds none; a sweep erases it."""
    saver = Calls(LedgerSaver(ledger, ttl_seconds=HOUR_S), is_async=False)
    first = saver.put("t", {"text": "one"})
    hours_pass(clock, 0.9)
    saver.put("t", {"text": "two"}, parent=first)
    Calls(LedgerSaver(ledger), is_async=False).put("stays", {"text": "kept"})
    hours_pass(clock, 0.9)
    assert saver.get("t") is not None
    assert ledger.sweep() == Swept(chats=[], versioned=0)
    hours_pass(clock, 0.2)
    threads = Threads(ledger)

    assert (saver.get("t"), saver.ids(config("t"))) == (None, [])
    assert (
        ["stays"] == threads.thread_ids() == [info.thread_id for info in threads.ledger.list_threads(limit=9).threads]
    )
    with pytest.raises(chatledger.NotFoundError):
        threads.copy("t", "copy")
    assert ledger.sweep() == Swept(chats=[], versioned=1)
    assert types(ledger) == ["version_put", "versions_deleted"]
    ledger.verify()


def test_a_write_to_an_expired_thread_begins_a_new_life(ledger: Ledger, clock: list[int]) -> None:
    """Its end is written first, in the same commit; nothing of the old life is in the new one, also after a rebuild."""
    saver = Calls(LedgerSaver(ledger.for_user("ada"), ttl_seconds=HOUR_S), is_async=False)
    first = saver.put("t", {"text": "one"})
    hours_pass(clock, 2)
    second = saver.put("t", {"text": "two"})

    for _ in range(2):
        assert [second] == saver.ids(config("t"))
        assert saver.at("t", second).checkpoint["channel_values"] == {"text": "two"}
        assert "ada" == Threads(ledger).infos()[0].owner
        ledger.rebuild()
    assert first != second
    ledger.wait_erased()
    assert types(ledger) == ["versions_deleted", "version_put"]
    ledger.verify()


def test_reading_puts_the_end_off_where_the_saver_says_so(ledger: Ledger, clock: list[int]) -> None:
    """By an event, which is not written where it would gain little: else each reading would write one."""
    saver = Calls(LedgerSaver(ledger, ttl_seconds=HOUR_S, refresh="read"), is_async=False)
    saver.put("t", {"text": "one"})
    for _ in range(3):
        saver.get("t")
    assert types(ledger) == ["version_put"]
    for _ in range(3):
        hours_pass(clock, 0.9)
        assert saver.get("t") is not None
    assert types(ledger) == ["version_put", *["versions_expiry_set"] * 3]
    Calls(LedgerSaver(ledger, ttl_seconds=HOUR_S), is_async=False).get("t")
    hours_pass(clock, 1.1)
    assert saver.get("t") is None


def test_members_leave_the_end_as_it_is(ledger: Ledger, clock: list[int]) -> None:
    """When a thread ends is its owner's to say; a reader of it does not even try."""
    ledger.create_chat("t", "ada")
    for name, role in (("ben", "writer"), ("rea", "reader")):
        ledger.set_member("t", name, role)  # type: ignore[arg-type]
    own = Calls(LedgerSaver(ledger.for_user("ada"), ttl_seconds=10 * HOUR_S), is_async=False)
    first = own.put("t", {"text": "one"})
    writer = Calls(LedgerSaver(ledger.for_user("ben"), ttl_seconds=HOUR_S, refresh="read"), is_async=False)
    writer.put("t", {"text": "two"}, parent=first)
    reader = Calls(LedgerSaver(ledger.for_user("rea"), ttl_seconds=HOUR_S, refresh="read"), is_async=False)
    hours_pass(clock, 9)
    assert None not in (writer.get("t"), reader.get("t"))
    hours_pass(clock, 1.1)
    assert (own.get("t"), writer.get("t"), reader.get("t")) == (None, None, None)
    with pytest.raises(AccessDeniedError):
        reader.put("t", {"text": "three"})
    writer.put("t", {"text": "three"})
    assert ["ada"] == [info.owner for info in Threads(ledger).infos()]


@pytest.mark.parametrize(("option", "value"), [("ttl_seconds", 0), ("ttl_seconds", "1"), ("refresh", "both")])
def test_what_is_no_end_is_refused(ledger: Ledger, option: str, value: Any) -> None:
    with pytest.raises(InvalidValueError, match=option):
        LedgerSaver(ledger, **{option: value})


def test_a_saver_with_a_ledger_of_its_own(tmp_path: Path) -> None:
    """In real time."""
    with LedgerSaver.from_conn_string(tmp_path, ttl_seconds=0.001) as saver:
        Calls(saver, is_async=False).put("t", {"text": "one"})
        time.sleep(0.01)
        assert saver.ledger.sweep().versioned == 1


def test_an_export_says_when_a_thread_ends(ledger: Ledger, clock: list[int], tmp_path: Path) -> None:
    """Also the line of a file; what has expired is neither exported nor imported."""
    Calls(LedgerSaver(ledger, ttl_seconds=HOUR_S), is_async=False).put("t", {"text": "one"})
    with (tmp_path / "export.jsonl").open("wb") as stream:
        importers.write_all(stream, ledger.export_all())
    (thread,) = importers.read_all(tmp_path / "export.jsonl", on_problem=lambda problem: pytest.fail(str(problem)))
    assert isinstance(thread, importers.ImportedValue)
    with chatledger.open("memory:") as other:
        other.import_value(thread)
        assert [thread] == list(other.export_all()) == list(ledger.export_all())
        hours_pass(clock, 1.1)
        assert [] == list(other.export_all())
        assert not other.import_value(thread).is_new
        assert Swept(chats=[], versioned=1) == other.sweep()
        assert not other.import_value(thread).is_new


def test_a_thread_that_expires_while_it_is_imported_is_not_begun_anew(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, clock: list[int]
) -> None:
    """It takes several commits; a later one does not end what an earlier one wrote, and leave half a thread."""
    for number in range(1_100):
        put(Threads(ledger), "t", f"{number:05}", {}, ttl_ms=HOUR_S * 1000)
    thread = ledger.export_thread("t")
    with chatledger.open("memory:") as other:
        execute = store_of(other).execute

        def slow(*call: Any) -> Any:
            written = execute(*call)
            hours_pass(clock, 1.1)
            return written

        monkeypatch.setattr(store_of(other), "execute", slow)
        assert other.import_value(thread).versions_added == 1_100
        assert "VersionsDeleted" not in {type(event.body).__name__ for event in other.history()}
