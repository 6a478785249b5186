"""Copies of threads whose sources are deleted: what they have is on the log, whenever they were made."""

# pyright: reportPrivateUsage=false

from pathlib import Path
from typing import Any

import pytest
from tests.support.agent_threads import put, values_of

import chatledger
from chatledger.domain.chat.events import Recorded
from chatledger.domain.errors import NotFoundError
from chatledger.domain.versioned.events import VersionContentPut, VersionsCopied
from chatledger.infra.ledger.threads import Threads
from chatledger.projections.log.kinds import Decision, StreamKind

VALUES = {"messages": [f"m{number}" * 20 for number in range(10)]}


@pytest.fixture(params=["memory:", "path"])
def threads(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Threads on a ledger, with one that is to be copied."""
    location = "memory:" if request.param == "memory:" else tmp_path
    with chatledger.open(location, durability="fast") as ledger:
        found = Threads(ledger)
        put(found, "source", "1", VALUES)
        yield found


def test_a_copy_that_is_made_while_its_source_is_deleted_keeps_what_it_has(
    threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one makes it after the deletion began, and before its tombstone is on the log."""
    store = threads.ledger._store
    execute = store.execute

    def late(streams: StreamKind[Any], key: str, decide: Decision[Any]) -> list[Recorded]:
        monkeypatch.undo()
        threads.copy("source", "copy")
        return execute(streams, key, decide)

    monkeypatch.setattr(store, "execute", late)
    threads.delete("source")
    for _ in range(2):
        assert threads.thread_ids() == ["copy"]
        assert values_of(threads.get("copy", "")) == VALUES
        threads.ledger.rebuild()


def test_a_copy_of_a_copy_keeps_what_it_has(threads: Threads) -> None:
    threads.copy("source", "copy")
    put(threads, "copy", "2", {"messages": [*VALUES["messages"], "more"]}, parent_id="1")
    threads.copy("copy", "second")
    put(threads, "second", "3", {"messages": [*VALUES["messages"], "other"]}, parent_id="1")
    threads.copy("second", "third")
    threads.delete("source")
    for _ in range(2):
        for copy in ("copy", "second", "third"):
            assert values_of(threads.get(copy, "", "1")) == VALUES
        assert values_of(threads.get("third", "", "2")) == {"messages": [*VALUES["messages"], "more"]}
        assert values_of(threads.get("third", "", "3")) == {"messages": [*VALUES["messages"], "other"]}
        threads.ledger.rebuild()


@pytest.mark.parametrize("rebuilds", [False, True], ids=["", "rebuilt"])
def test_a_deletion_that_was_interrupted_leaves_copies_whole(
    threads: Threads, monkeypatch: pytest.MonkeyPatch, *, rebuilds: bool
) -> None:
    """Also where the copy in between, by which another one hangs, was deleted meanwhile."""
    threads.copy("source", "copy")
    threads.copy("copy", "second")
    with monkeypatch.context() as patch:
        patch.setattr(threads.ledger._store, "finish_erasures", lambda: None)
        threads.delete("source")
        threads.delete("copy")
    if rebuilds:
        threads.ledger.rebuild()
    threads.ledger._store.finish_erasures()
    for _ in range(2):
        assert threads.thread_ids() == ["second"]
        assert values_of(threads.get("second", "")) == VALUES
        threads.ledger.rebuild()


def test_a_copy_is_freed_once(threads: Threads, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not again when the erasure itself did not succeed, as for a login that may not erase."""
    threads.copy("source", "copy")
    log = threads.ledger._store.log

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    with monkeypatch.context() as patch:
        patch.setattr(log, "erase", refuse)
        for _ in range(3):
            with pytest.raises(PermissionError):
                threads.delete("source")
    freed = [one for one in threads.ledger.history() if isinstance(one.event.body, VersionContentPut)]
    assert len(freed) == 1


def test_a_source_that_is_deleted_first_is_not_found(threads: Threads, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another machine deletes it after the copy was decided on here: then there is nothing to copy."""
    threads.delete("source")

    def decided_before(*_: object, within: str | None) -> list[VersionsCopied]:
        return [VersionsCopied("source", (), within)]

    monkeypatch.setattr("chatledger.infra.ledger.threads.decide_copy", decided_before)
    with pytest.raises(NotFoundError, match="source"):
        threads.copy("source", "copy")
    assert threads.namespaces("copy") == []


def test_a_deleted_copy_is_no_damage(threads: Threads) -> None:
    """What is left of a copy in the index after its events are erased is in no rebuilt one, and says nothing."""
    threads.copy("source", "copy")
    threads.delete("copy")
    ledger = threads.ledger

    ledger.verify()
    ledger.rebuild()
    ledger.verify()
