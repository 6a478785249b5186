"""`check_saver` on our savers and a peer, and that it notices a saver which breaks the contract."""

import contextlib
from collections.abc import Generator
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

import chatledger
from chatledger.langgraph import LedgerSaver
from chatledger.testing import check_saver


@contextlib.contextmanager
def ours() -> Generator[LedgerSaver]:
    with chatledger.open("memory:") as ledger:
        yield LedgerSaver(ledger)


@contextlib.contextmanager
def peer() -> Generator[InMemorySaver]:
    yield InMemorySaver()


class Forgetful(InMemorySaver):
    """Deletes nothing."""

    def delete_thread(self, thread_id: str) -> None:
        pass


class ForgetfulLater(InMemorySaver):
    """Deletes nothing when it is awaited."""

    async def adelete_thread(self, thread_id: str) -> None:
        pass


def test_our_saver_keeps_the_contract() -> None:
    check_saver(ours)


def test_a_peer_keeps_the_contract() -> None:
    check_saver(peer)


@pytest.mark.parametrize("kind", [Forgetful, ForgetfulLater])
def test_a_saver_that_breaks_a_rule_is_noticed(kind: type[Any]) -> None:
    @contextlib.contextmanager
    def make_saver() -> Generator[Any]:
        yield kind()

    with pytest.raises(AssertionError, match="a deleted thread is gone"):
        check_saver(make_saver)


def test_one_way_only() -> None:
    """Some savers have no asynchronous methods."""

    @contextlib.contextmanager
    def make_saver() -> Generator[Any]:
        yield ForgetfulLater()

    check_saver(make_saver, is_async=False)
