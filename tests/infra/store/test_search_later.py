"""Writing much, which a second process takes into the search index: what is found afterwards, whoever dies meanwhile."""

import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.ledger_world import internals

import chatledger
from chatledger import Ledger, user
from chatledger.infra.store import search_process
from chatledger.infra.store.search_process import filling_search
from chatledger.projections.search.manifest import manifest_of


def write(ledger: Ledger, chats: range) -> None:
    for number in chats:
        if ledger.get_chat(f"c{number}") is None:
            ledger.create_chat(f"c{number}", user_id="ada")
        ledger.append(f"c{number}", [user(f"fado {number}"), user("Alfama")])
        ledger.append(f"c{number}", [user("again")])


def found(ledger: Ledger, query: str) -> int:
    return len(ledger.search(query, limit=100))


@pytest.mark.parametrize("processes", [1, 2])
def test_what_was_written_together_is_found_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    """Also what chats say that were there before, and what is said afterwards; the index is that of a rebuild."""
    monkeypatch.setattr(search_process, "usable_processes", lambda: processes)
    with chatledger.open(tmp_path / "ledger") as ledger:
        write(ledger, range(3))
        with internals(ledger).search_later():
            write(ledger, range(2, 30))
            assert not found(ledger, '"fado 29"'), "it is taken in later"
        before = sorted(hit.message.text for hit in ledger.search("fado", limit=100))

        assert (found(ledger, '"fado 29"'), found(ledger, "alfama"), found(ledger, "again")) == (1, 31, 31)
        write(ledger, range(30, 32))
        assert found(ledger, '"fado 31"') == 1
        ledger.delete_chat("c30")
        ledger.delete_chat("c31")
        internals(ledger).rebuild_search()
        assert sorted(hit.message.text for hit in ledger.search("fado", limit=100)) == before


def _ended(folder: Path, end: Callable[[subprocess.Popen[str]], None]) -> None:
    program = """
        import sys, chatledger
        from chatledger.infra.ledger.port import store_of
        with chatledger.open(sys.argv[1]) as ledger, store_of(ledger).search_later():
            for number in range(20):
                ledger.create_chat(f"c{number}", user_id="ada")
                ledger.append(f"c{number}", [chatledger.user(f"fado {number}")])
            print("written", flush=True)
            sys.stdin.read()
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "written\n"
        end(process)


@pytest.mark.parametrize("end", [lambda process: process.kill(), lambda process: process.send_signal(signal.SIGINT)])
def test_whoever_is_ended_meanwhile_leaves_it_to_the_next(
    tmp_path: Path, end: Callable[[subprocess.Popen[str]], None]
) -> None:
    """The process beside it ends, too, and the next one who opens the ledger completes its index."""
    _ended(tmp_path / "ledger", end)
    with chatledger.open(tmp_path / "ledger") as ledger:
        assert found(ledger, "fado") == 20


def test_a_process_that_fails_is_not_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_process, "usable_processes", lambda: 2)
    monkeypatch.setattr(search_process, "_SERVE", "raise SystemExit(3)")
    with chatledger.open(tmp_path / "ledger") as ledger:
        with internals(ledger).search_later():
            write(ledger, range(5))
        assert found(ledger, "fado") == 5


def test_a_process_that_cannot_begin_is_not_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended what was to be kept."""
    monkeypatch.setattr(search_process, "usable_processes", lambda: 2)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "absent"))
    with chatledger.open("memory:") as ledger:
        with internals(ledger).search_later():
            write(ledger, range(5))
        assert found(ledger, "fado") == 5


def test_the_process_fills_the_index_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it took in is there before whoever wrote completes the index."""
    monkeypatch.setattr(search_process, "usable_processes", lambda: 2)
    with chatledger.open(tmp_path / "ledger") as ledger:
        index = internals(ledger).index
        caches = index._live.tables.caches  # pyright: ignore[reportPrivateUsage, reportOptionalMemberAccess]
        caches.is_search_deferred = True
        with filling_search(index.folder, index.identity):
            write(ledger, range(20))
        assert found(ledger, "fado") == 20


def test_parts_are_not_merged_while_a_second_process_adds_some(tmp_path: Path) -> None:
    """Both would wait for each other's steps."""
    with chatledger.open(tmp_path / "ledger") as ledger:
        index = internals(ledger).index
        with index.defer_search():
            for number in range(4):
                write(ledger, range(number, number + 1))
                index.fill_search(lambda: True)  # as the second process does
            live = index._current()
            with live.reading() as txn:
                assert manifest_of(txn, live.tables).small_segments
            assert not index.merge_search()
        assert found(ledger, "fado") == 4
