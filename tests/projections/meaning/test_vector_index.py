"""The vectors of an embedding in LMDB: what is taken in, found, filtered and forgotten."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.support.soak import examples

from chatledger.domain.search.embedding import piece_digest
from chatledger.projections.lmdb.scrub import scrub_rows
from chatledger.projections.meaning.scan import Near, Selection, find_near
from chatledger.projections.meaning.vector_index import SLOTS, EmbeddedPiece, RefusedMessage, Taken, VectorIndex
from chatledger.projections.meaning.vectors import Codes, unit

DIMENSIONS = 16


@pytest.fixture
def index(tmp_path: Path) -> Iterator[VectorIndex]:
    vectors = VectorIndex(tmp_path / "vectors")
    yield vectors
    vectors.close()


def vector_of(text: str) -> NDArray[np.float32]:
    seed = int.from_bytes(piece_digest(text)[:4], "little")
    found: NDArray[np.float32] = unit(np.random.default_rng(seed).standard_normal((1, DIMENSIONS)))[0]
    return found


def piece(text: str) -> EmbeddedPiece:
    return EmbeddedPiece.of([piece_digest(text)], Codes.of(vector_of(text)[None, :]))[0]


def taken(chat_no: int, ordinal: int, *texts: str, at: int = 0, role: int = 1) -> Taken:
    """A message of a chat whose only segment has the number 0."""
    return Taken(chat_no, ordinal, 0, ordinal, at, role, [piece(text) for text in texts])


def take_in(index: VectorIndex, *messages: Taken) -> int:
    return index.update(lambda txn: index.take_in(txn, messages, DIMENSIONS))


def near(index: VectorIndex, query: str, limit: int | None = None, **conditions: Any) -> list[Near]:
    with index.reading() as txn:
        return find_near(index, txn, vector_of(query), Selection(**conditions), limit=limit)


def places(found: list[Near]) -> list[tuple[int, int]]:
    return [(one.chat_no, one.offset) for one in found]


def test_messages_are_taken_in_once_and_in_order(index: VectorIndex) -> None:
    """What another process has taken in, or what does not follow, is left out."""
    assert take_in(index, taken(7, 0, "a"), taken(7, 1, "b"), taken(9, 1, "out of order")) == 2
    assert take_in(index, taken(7, 1, "b"), taken(7, 2, "c"), taken(9, 0)) == 2
    assert sorted(places(near(index, "a"))) == [(7, 0), (7, 1), (7, 2)]
    with index.reading() as txn:
        assert index.counts(txn, [7, 8, 9]) == {7: 3, 8: 0, 9: 1}
        assert index.taken_in(txn).messages == 4


def test_a_message_is_as_near_as_its_nearest_piece(index: VectorIndex) -> None:
    take_in(index, taken(7, 0, "one", "two", "three"), taken(7, 1, "four"))
    (first, second) = near(index, "three")

    assert (first.offset, first.digest) == (0, piece_digest("three"))
    assert first.similarity == pytest.approx(1, abs=0.01)
    assert second.offset == 1


def test_equally_near_ones_are_newest_first(index: VectorIndex) -> None:
    take_in(index, *(taken(7, number, "same", at=at) for number, at in enumerate([5, 9, 1, 7])))

    assert [1, 3, 0, 2] == [one.offset for one in near(index, "same")]


def test_equal_contents_share_one_computation(index: VectorIndex) -> None:
    """A vector is known as long as one message has that content."""
    take_in(index, taken(7, 0, "same"), taken(8, 0, "same"))

    def known(*texts: str) -> set[bytes]:
        with index.reading() as txn:
            return set(index.known(txn, map(piece_digest, texts)))

    assert known("same", "other") == {piece_digest("same")}
    for chat_no, is_known in ((7, True), (8, False)):
        index.update(lambda txn, chat_no=chat_no: index.forget_chats(txn, [chat_no], DIMENSIONS))  # type: ignore[misc]
        assert bool(known("same")) == is_known


def test_failures_are_listed_until_they_succeed(index: VectorIndex) -> None:
    failed = Taken(7, 1, 0, 1, 0, 1, None)
    take_in(index, taken(7, 0, "a"), failed, taken(7, 2, "c"))
    with index.reading() as txn:
        (failure,) = index.failed(txn)
        assert failure == RefusedMessage(7, 1, 0, 1, 1)
        assert index.failed(txn, [8]) == []
        assert index.taken_in(txn).failed == 1
    index.update(lambda txn: index.retake(txn, failed, failure, DIMENSIONS))
    with index.reading() as txn:
        assert [one.attempts for one in index.failed(txn)] == [2]
    for _ in range(2):
        index.update(lambda txn: index.retake(txn, taken(7, 1, "b"), failure, DIMENSIONS))
    with index.reading() as txn:
        assert index.failed(txn) == []
        assert index.taken_in(txn).failed == 0
    assert sorted(places(near(index, "b"))) == [(7, 0), (7, 1), (7, 2)]


def test_slots_of_forgotten_chats_are_used_again(index: VectorIndex) -> None:
    """Many blocks; those that have room are filled before a new one is begun."""
    take_in(index, *(taken(1, number, f"a{number}") for number in range(SLOTS)))
    take_in(index, *(taken(2, number, f"b{number}") for number in range(SLOTS // 2)))
    index.update(lambda txn: index.forget_chats(txn, [1], DIMENSIONS))
    take_in(index, *(taken(3, number, f"c{number}") for number in range(SLOTS)))
    with index.reading() as txn:
        blocks = dict(index.directories(txn))

    assert len(blocks) == 2
    assert sum(np.count_nonzero(block.chats == 3) for block in blocks.values()) == SLOTS
    assert len(near(index, "b7")) == SLOTS + SLOTS // 2
    assert near(index, "b7")[0].offset == 7


def test_forgotten_chats_leave_no_bytes(index: VectorIndex) -> None:
    """After scrubbing, neither vectors nor digests are in the file, and later writes bring nothing back."""
    secret = [piece(f"secret {number}") for number in range(50)]
    take_in(index, *(taken(1, number, f"secret {number}") for number in range(50)))
    take_in(index, *(taken(2, number, f"kept {number}") for number in range(5)))

    def traces() -> int:
        raw = index.file.read_bytes()
        return sum((one.digest in raw) + (one.code in raw) for one in secret)

    before = traces()
    index.update(lambda txn: index.forget_chats(txn, [1], DIMENSIONS))
    assert scrub_rows(index)
    after = traces()
    take_in(index, *(taken(2, number, f"kept {number}") for number in range(5, 60)))

    assert (before, after, traces()) == (100, 0, 0)
    assert scrub_rows(index)
    assert len(near(index, "kept 1")) == 60


Message = tuple[int, int, int]  # chat, time, role


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 9), st.integers(0, 2)), max_size=40),
    st.none() | st.lists(st.integers(1, 5), unique=True),
    st.none() | st.frozensets(st.integers(0, 2)),
    st.none() | st.integers(0, 9),
    st.none() | st.integers(0, 9),
    st.lists(st.integers(1, 4), max_size=2),
)
@settings(max_examples=examples(300), deadline=None)
def test_filters_equal_a_scan(
    tmp_path_factory: pytest.TempPathFactory,
    written: list[Message],
    chats: list[int] | None,
    roles: frozenset[int] | None,
    since: int | None,
    until: int | None,
    forgotten: list[int],
) -> None:
    """The messages that pass, nearest first, as reading them all one by one finds them."""
    index = VectorIndex(tmp_path_factory.mktemp("vectors"))
    try:
        counts: dict[int, int] = {}
        messages: list[Taken] = []
        for number, (chat_no, at, role) in enumerate(written):
            ordinal = counts[chat_no] = counts.get(chat_no, -1) + 1
            messages.append(taken(chat_no, ordinal, f"text {number}", at=at, role=role))
        take_in(index, *messages)
        index.update(lambda txn: index.forget_chats(txn, forgotten, DIMENSIONS))
        found = near(index, "text 3", chats=chats, roles=roles, since=since, until=until)
    finally:
        index.close()
    query = vector_of("text 3")

    expected = {
        (one.chat_no, one.offset): float(Codes.of(vector_of(f"text {number}")[None, :]).similarities(query)[0])
        for number, one in enumerate(messages)
        if one.chat_no not in forgotten
        and (chats is None or one.chat_no in chats)
        and (roles is None or one.role in roles)
        and (since is None or one.created_at >= since)
        and (until is None or one.created_at < until)
    }
    assert {(one.chat_no, one.offset): one.similarity for one in found} == pytest.approx(expected, abs=1e-5)
    assert [one.similarity for one in found] == sorted((one.similarity for one in found), reverse=True)


def test_counts_and_runs(index: VectorIndex) -> None:
    """An earlier moment has the first messages of a chat; a branch has runs of places."""
    take_in(index, *(taken(1, number, f"a{number}") for number in range(9)), taken(2, 0, "b"))

    assert sorted(places(near(index, "a", chats=[2, 1], counts=[0, 3]))) == [(1, 0), (1, 1), (1, 2)]
    assert sorted(places(near(index, "a", chats=[1], runs={0: 1, 4: 9}))) == [(1, 0), (1, 1)]
    assert near(index, "a", chats=[1], runs={}) == near(index, "a", chats=[]) == []


def test_many_blocks_and_few_that_pass(index: VectorIndex) -> None:
    """Also where signs are looked at, of all slots and of a few."""
    size = 3 * SLOTS + 5
    for start in range(0, size, SLOTS):
        numbers = range(start, min(start + SLOTS, size))
        take_in(index, *(taken(1, number, f"a{number}", role=number % 2) for number in numbers))
    for conditions in ({}, {"roles": frozenset({1})}, {"roles": frozenset({0}), "since": 0}):
        found = near(index, "a2049" if "since" not in conditions else "a2048", limit=5, **conditions)

        assert found[0].similarity == pytest.approx(1, abs=0.01)
        assert found[0].offset == (2048 if "since" in conditions else 2049)
        assert len(found) == 5 + 2 + 20
