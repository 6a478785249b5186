"""Two indexes of one chat are compared whatever pages its messages lie on."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatledger.domain.values import Message
from chatledger.projections.chat.chains import Segment
from chatledger.projections.chat.forked import SEGMENT
from chatledger.projections.chat.pages import MessagePage, pack_page
from chatledger.projections.generations import Generation
from chatledger.projections.lmdb.checksums import with_checksum
from chatledger.projections.lmdb.environment import INITIAL_MAP_BYTES, Transaction
from chatledger.projections.lmdb.keys import Tag, chat_key, place_key, segment_key
from chatledger.projections.verify.search_check import KINDS, Row, find_difference

CHAT_NO = 7
BEFORE = Segment(0, 0, first_depth=0, length=9, level=0, jump=0, tail_start=0, tail_bytes=0)
encode = msgspec.msgpack.Encoder().encode
split = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
cuts = st.sets(st.integers(1, 11))


def body(text: str) -> bytes:
    return encode(Message(id=text, name="user", data=text, created_at=1))


def pages(segment: int, bodies: Sequence[bytes], cut: set[int]) -> list[Row]:
    """The pages of a segment, each up to a cut."""
    bounds = sorted({0, len(bodies), *(at for at in cut if at < len(bodies))})
    return [
        (
            place_key(CHAT_NO, Tag.PAGE, segment, start),
            with_checksum(pack_page([10 * segment + at for at in range(start, end)], bodies[start:end])),
        )
        for start, end in pairwise(bounds)
    ]


@pytest.fixture(scope="module")
def generation(tmp_path_factory: pytest.TempPathFactory) -> Generator[Generation]:
    found = Generation(0, tmp_path_factory.mktemp("index"), map_bytes=INITIAL_MAP_BYTES)
    yield found
    found.close()


@contextmanager
def holding(generation: Generation, rows: Sequence[Row]) -> Generator[Transaction]:
    """A transaction in which the chat has these rows."""

    def change(txn: Transaction) -> None:
        txn.drop(generation.tables.rows, delete=False)
        for key, value in rows:
            txn.put(key, value, db=generation.tables.rows)

    generation.update(change)
    with generation.reading() as txn:
        yield txn


def compared(
    here: Generation, live: Sequence[Row], there: Generation, replayed: Sequence[Row]
) -> tuple[str | None, list[tuple[int, MessagePage]]]:
    """The difference, and the pages that were compared."""
    taken: list[tuple[int, MessagePage]] = []
    with holding(here, live) as live_txn, holding(there, replayed) as replayed_txn:
        found = find_difference(
            (here.tables, live_txn),
            (there.tables, replayed_txn),
            CHAT_NO,
            take=lambda segment, page: taken.append((segment, page)),
        )
    return found, taken


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Generator[Generation]:
    found = Generation(0, tmp_path_factory.mktemp("other"), map_bytes=INITIAL_MAP_BYTES)
    yield found
    found.close()


@given(counts=st.lists(st.integers(1, 12), min_size=1, max_size=3), ours=cuts, theirs=cuts, data=st.data())
def test_messages_are_compared_across_pages(
    generation: Generation, other: Generation, counts: list[int], ours: set[int], theirs: set[int], data: st.DataObject
) -> None:
    """All of them are taken, once and in order; one that is changed, lost or moved to another segment is found."""
    segments = [[body(f"{segment}/{at}") for at in range(count)] for segment, count in enumerate(counts)]
    last = [(CHAT_NO.to_bytes(8, "big") + Tag.TURN + bytes(8), b"1")]
    rest = [(CHAT_NO.to_bytes(8, "big") + Tag.RECORD, b"record"), *last][: data.draw(st.integers(0, 2))]
    live = [row for segment, bodies in enumerate(segments) for row in pages(segment, bodies, ours)] + rest
    replayed = [row for segment, bodies in enumerate(segments) for row in pages(segment, bodies, theirs)] + rest

    found, taken = compared(generation, live, other, replayed)
    assert found is None
    messages = [
        (segment, page.first_offset + at, ordinal, bytes(one))
        for segment, page in taken
        for at, (ordinal, one) in enumerate(zip(page.ordinals, split(page.array), strict=True))
    ]
    expected = [
        (segment, at, 10 * segment + at, one) for segment, of in enumerate(segments) for at, one in enumerate(of)
    ]
    assert expected == messages

    segment = data.draw(st.integers(0, len(segments) - 1))
    at = data.draw(st.integers(0, len(segments[segment]) - 1))
    changed = [list(bodies) for bodies in segments]
    damage = data.draw(st.sampled_from(["changed", "lost", "moved"]))
    if damage == "changed":
        changed[segment][at] = body("another")
    else:
        moved = changed[segment].pop(at)
        changed += [[moved]] if damage == "moved" else []
    damaged = [row for number, bodies in enumerate(changed) if bodies for row in pages(number, bodies, ours)] + rest
    assert KINDS[Tag.PAGE] == compared(generation, damaged, other, replayed)[0]
    assert KINDS[Tag.PAGE] == compared(generation, replayed, other, damaged)[0]


@given(ours=cuts, theirs=cuts, data=st.data())
def test_a_page_with_a_wrong_checksum_is_found(
    generation: Generation, other: Generation, ours: set[int], theirs: set[int], data: st.DataObject
) -> None:
    """Also where its messages are right."""
    bodies = [body(str(at)) for at in range(12)]
    live = pages(0, bodies, ours)
    at = data.draw(st.integers(0, len(live) - 1))
    key, value = live[at]
    live[at] = key, value[:-1] + bytes([value[-1] ^ data.draw(st.integers(1, 255))])
    assert KINDS[Tag.PAGE] == compared(generation, live, other, pages(0, bodies, theirs))[0]


@pytest.mark.parametrize("name", Segment._fields)
def test_segments_are_compared_but_for_their_tails(generation: Generation, other: Generation, name: str) -> None:
    """How messages came together in transactions does not follow from the log."""
    key = segment_key(CHAT_NO, Tag.SEGMENT, 0)
    ours, theirs = BEFORE, BEFORE._replace(**{name: 3})
    found, _ = compared(
        *(generation, [(key, with_checksum(SEGMENT.pack(*ours)))]),
        *(other, [(key, with_checksum(SEGMENT.pack(*theirs)))]),
    )
    assert (None if name.startswith("tail") else KINDS[Tag.SEGMENT]) == found


def test_rows_that_only_one_has_are_named(generation: Generation, other: Generation) -> None:
    """By the first of them."""
    branch, run = (chat_key(CHAT_NO, Tag.BRANCH) + b"b", b"1"), (chat_key(CHAT_NO, Tag.RUN) + b"r", b"1")
    both: list[Row] = [(chat_key(CHAT_NO, Tag.PROFILE), b"p"), (chat_key(CHAT_NO + 1, Tag.PROFILE), b"p")]
    assert KINDS[Tag.BRANCH] == compared(generation, [*both, branch, run], other, [*both, run])[0]
    assert KINDS[Tag.RUN] == compared(generation, [*both, branch], other, [*both, branch, run])[0]
    assert compared(generation, [*both, run], other, [*both, run])[0] is None
