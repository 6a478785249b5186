"""Building the search index in pieces, while others write."""

import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.ledger_world import internals
from tests.support.search_world import build_search, drop_search, generation, search_rows, small_blocks
from tests.support.soak import examples

import chatledger
from chatledger import Ledger, NewMessage
from chatledger.projections.lmdb.environment import Reading, Transaction
from chatledger.projections.search import building, indexer
from chatledger.projections.search.building import Builder
from chatledger.projections.search.indexer import begin_anew
from chatledger.projections.search.manifest import totals_of

QUERIES = ("a", "w1*", "état", '"a b"', "b NOT w3")

texts = st.lists(st.sampled_from(["a", "b", "état", *(f"w{number}" for number in range(9))]), max_size=9).map(" ".join)


@contextmanager
def small_pieces(words: int, size: int) -> Generator[None]:
    with small_blocks(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(building, "_MAX_TERMS", words)
        patch.setattr(building, "CHUNK_BYTES", size)
        patch.setattr(building, "STEP_BYTES", size // 2)
        patch.setattr(building, "STEP_MESSAGES", 2)
        yield


def answers(ledger: Ledger) -> list[Any]:
    found = [ledger.search(query, limit=None) for query in QUERIES]
    assert not any(hits.is_degraded for hits in found)
    return found


def fill(ledger: Ledger, lines: list[str]) -> None:
    """Two branches that take turns, with roles, one message at a time, as most chats come to be."""
    for number, line in enumerate(lines):
        parent_id = f"m{max(number - 2, 0)}" if number else None
        message = NewMessage(f"r{number % 4}", line, id=f"m{number}", parent_id=parent_id, created_at=number % 5)
        ledger.add_messages("c", [message])


@settings(max_examples=examples(50))
@given(st.lists(texts, max_size=25), st.integers(1, 30), st.integers(1, 30), st.sampled_from([1, 200, 5000]))
def test_it_answers_as_the_one_that_was_written_along(lines: list[str], words: int, chunk: int, size: int) -> None:
    """However many messages, bytes and words are taken in at a time."""
    with small_blocks(), chatledger.open("memory:") as ledger:
        ledger.create_chat("c", "ada")
        fill(ledger, lines)
        expected = answers(ledger)
        with small_pieces(words, size):
            assert build_search(ledger, anew=True, chunk_messages=chunk)
        assert expected == answers(ledger)


def search_documents(ledger: Ledger) -> int:
    """Number of messages that the search index has."""
    live = generation(ledger)
    with live.reading() as txn:
        return totals_of(txn, live.tables).documents


class Meddling:
    """An environment in which something happens between reading and writing, once."""

    def __init__(self, env: Any, meddle: Callable[[], object]) -> None:
        self._env, self._meddle = env, [meddle]

    def reading(self) -> Reading:
        reading: Reading = self._env.reading()
        return reading

    def update(self, change: Callable[[Transaction], Any]) -> Any:
        while self._meddle:
            self._meddle.pop()()
        return self._env.update(change)


def take_in(ledger: Ledger, meddle: Callable[[], object]) -> list[int]:
    """Number of messages that each transaction took in."""
    live = generation(ledger)
    with internals(ledger).snapshot() as snapshot:
        chat_no = snapshot.chat("c").chat_no
    assert chat_no is not None
    env: Any = Meddling(live, meddle)
    return list(Builder(env, live.tables, chunk_messages=10).take_in([chat_no]))


@pytest.fixture(params=[5, 25], ids=["few", "many"])
def behind(request: pytest.FixtureRequest) -> Generator[Ledger]:
    """A chat of 5 messages, which are taken in at once, or of 25; none is in the search index."""
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("c", "ada")
        ledger.append("c", [NewMessage("user", f"a w{number}") for number in range(request.param)])
        drop_search(ledger)
        yield ledger


def test_what_is_written_meanwhile_is_taken_in_too(behind: Ledger) -> None:
    """It is left out by whoever writes it, as the index lags behind."""
    before = len(behind.get_messages("c"))
    taken = take_in(behind, lambda: behind.append("c", [NewMessage("user", "a late")]))
    assert before + 1 == sum(taken)
    assert before + 1 == len(behind.search("a", chat_id="c", limit=None))
    assert 1 == len(behind.search("late", chat_id="c"))


def test_a_chat_that_is_deleted_meanwhile_leaves_nothing(behind: Ledger) -> None:
    """Nothing but the counts, which say that."""
    assert [] == take_in(behind, lambda: behind.delete_chat("c"))
    assert {b"M", b"S"} == search_rows(behind).keys()
    assert 0 == search_documents(behind)


def test_an_index_that_is_begun_anew_meanwhile_is_not_mixed_up(behind: Ledger) -> None:
    """Another process that has another version does so: nothing is written, nor is the index taken for complete."""
    live = generation(behind)

    def forget(txn: Transaction) -> None:
        begin_anew(txn, live.tables)

    def begin() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("chatledger.projections.search.indexer.VERSION", b"another")
            live.update(forget)

    assert [] == take_in(behind, begin)
    assert {b"M", b"S"} == search_rows(behind).keys()
    assert not indexer.is_complete(live, live.tables)


def test_an_index_opens_without_numpy() -> None:
    """It takes a tenth of a second to import, and only those who build the search index or search need it."""
    program = "import sys, chatledger.projections.index; assert 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=60)
