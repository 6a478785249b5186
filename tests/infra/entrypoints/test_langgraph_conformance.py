"""LangGraph's own suite for savers, as it is published: in memory, on the disk, and encrypted."""

# pyright: reportUnusedImport=false

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate
from tests.support.encrypted_world import KEY, found_in, in_memory  # noqa: F401 - a fixture

import chatledger
from chatledger import Encryption
from chatledger.infra.testing.savers import Calls
from chatledger.langgraph import LedgerSaver

CHECKS = {
    "put": 17,
    "put_writes": 10,
    "get_tuple": 10,
    "list": 16,
    "delete_thread": 5,
    "delete_for_runs": 7,
    "copy_thread": 8,
    "prune": 8,
}


def unbound(ledger: chatledger.Ledger) -> LedgerSaver:
    """A saver of all assistants."""
    return LedgerSaver(ledger)


def bound(ledger: chatledger.Ledger) -> LedgerSaver:
    """A saver of one assistant, beside another one's checkpoints."""
    return LedgerSaver(ledger).for_assistant("team:a")


@contextlib.contextmanager
def memory() -> Generator[chatledger.Ledger]:
    with chatledger.open("memory:") as ledger:
        yield ledger


@contextlib.contextmanager
def directory() -> Generator[chatledger.Ledger]:
    with tempfile.TemporaryDirectory() as folder, chatledger.open(folder) as ledger:
        yield ledger


@contextlib.contextmanager
def encrypted() -> Generator[chatledger.Ledger]:
    with tempfile.TemporaryDirectory() as folder, chatledger.open(folder, encryption=Encryption(KEY)) as ledger:
        yield ledger


@pytest.mark.matrix
@pytest.mark.usefixtures("in_memory")
@pytest.mark.parametrize("place", [memory, directory, encrypted])
@pytest.mark.parametrize("make", [unbound, bound])
def test_every_published_check_passes_and_none_is_skipped(
    make: Callable[[chatledger.Ledger], LedgerSaver],
    place: Callable[[], contextlib.AbstractContextManager[chatledger.Ledger]],
) -> None:
    @checkpointer_test(name="chatledger")
    async def saver() -> AsyncGenerator[Any]:
        with place() as ledger:
            yield make(ledger)

    report = asyncio.run(validate(saver))

    seen = {name: (result.detected, result.tests_passed, result.failures) for name, result in report.results.items()}
    assert seen == {name: (True, count, []) for name, count in CHECKS.items()}


@pytest.mark.usefixtures("in_memory")
def test_encryption_covers_values_writes_metadata_and_names(tmp_path: Path) -> None:
    """What a caller puts into `configurable` becomes metadata: it is as secret as the rest."""
    secrets = {
        "value": "swordfish " * 80,
        "key": "api-key-4711",
        "channel": "channel-of-elsinore",
        "thread": "thread-yorick",
    }
    with chatledger.open(tmp_path, encryption=Encryption(KEY)) as ledger:
        saver = Calls(LedgerSaver(ledger), is_async=False)
        where = {"configurable": {"thread_id": secrets["thread"], "api_key": secrets["key"]}}
        checkpoint_id = saver.put(
            secrets["thread"], {secrets["channel"]: [secrets["value"]]}, metadata=where["configurable"]
        )
        saver.writes(secrets["thread"], checkpoint_id, [(secrets["channel"], secrets["value"])])
        assert saver.at(secrets["thread"]).metadata["api_key"] == secrets["key"]  # type: ignore[typeddict-item]  # a key of the caller's

        assert found_in(tmp_path, secrets) == set()
