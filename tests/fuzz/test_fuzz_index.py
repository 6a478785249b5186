"""Damaged rows of an index: what is asked is answered, or it is an error of ours. The log stays as it was."""

from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fuzz.fuzz_inputs import WILD, nearly
from tests.fuzz.targets_index import DAMAGED_TABLES, Rows, ask_damaged, fill, postings, questions, replace, rows_of
from tests.support.soak import examples

import chatledger
from chatledger import CorruptStateError, Ledger
from chatledger.domain.versioned.content import DIGEST_BYTES, ListNode
from chatledger.infra.ledger.threads import Threads
from chatledger.projections.search.blocks import PostingsBlock
from chatledger.projections.versioned.pieces import StoredPiece
from chatledger.projections.versioned.rows import PIECE, sealed, unsealed

FEW = settings(max_examples=examples(12), deadline=None)


@pytest.fixture(scope="module")
def ledger() -> Iterator[Ledger]:
    with chatledger.open("memory:") as opened:
        fill(opened)
        yield opened


@pytest.fixture(scope="module")
def rows(ledger: Ledger) -> Rows:
    """The rows of each table as they are to be."""
    return rows_of(ledger)


def test_the_questions_have_answers(ledger: Ledger) -> None:
    """Or else the tests below would say nothing."""
    for question in questions(ledger)[:-1]:
        question()


@pytest.mark.matrix
@pytest.mark.parametrize("table", DAMAGED_TABLES)
def test_a_damaged_row(table: str, ledger: Ledger, rows: Rows) -> None:
    position = ledger.last_position()

    @given(row=st.sampled_from(rows[table]), data=st.data())
    @FEW
    def check(row: tuple[bytes, bytes], data: st.DataObject) -> None:
        ask_damaged(ledger, table, row, data.draw(nearly([row[1]]) | st.sampled_from(WILD)))

    check()
    assert ledger.last_position() == position
    test_the_questions_have_answers(ledger)


def test_a_list_that_grew_out_of_itself(ledger: Ledger, rows: Rows) -> None:
    """What names itself as its base would be followed for ever."""
    grown: list[tuple[bytes, bytes, ListNode]] = []
    decoder = msgspec.msgpack.Decoder(StoredPiece)
    for key, value in rows["versioned"]:
        if key[8:9] != PIECE:
            continue
        stored = unsealed(key, value, decoder)
        if isinstance(stored.content, ListNode):
            grown.append((key, value, msgspec.structs.replace(stored.content, base=key[-DIGEST_BYTES:])))
    assert grown
    for key, value, content in grown:
        replace(ledger, "versioned", key, value, sealed(key, StoredPiece(content, 1)))
    with pytest.raises(CorruptStateError, match="does not end"):
        Threads(ledger).get("t", "", "11")
    for key, value, _ in grown:
        replace(ledger, "versioned", key, b"", value)


# Postings, which stand for more than they take


@pytest.mark.parametrize("count", [2**32 - 1, 2**31, 1000])
def test_postings_that_claim_to_be_many(count: int) -> None:
    """Refused before memory is taken for them."""
    (row, *_) = postings()
    damaged = row[:14] + count.to_bytes(4, "little") + row[18:]
    assert row != damaged
    with pytest.raises(CorruptStateError, match="search index"):
        PostingsBlock(damaged)
