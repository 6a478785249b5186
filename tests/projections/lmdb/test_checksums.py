"""Rows with a checksum: any change is noticed, in a row by itself and in what the index answers."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.ledger_world import internals, text
from tests.support.naive_index import dump

import chatledger
from chatledger import CorruptStateError, Ledger
from chatledger.errors import LogRegressedError
from chatledger.projections.lmdb.checksums import (
    is_sound,
    with_checksum,
    without_checksum,
)
from chatledger.projections.lmdb.environment import Transaction
from chatledger.projections.lmdb.keys import Tag
from chatledger.projections.versioned.rows import is_sealed, sealed, unsealed


@given(row=st.binary(max_size=200), data=st.data())
def test_any_changed_byte_is_noticed(row: bytes, data: st.DataObject) -> None:
    stored = with_checksum(row)
    assert without_checksum(stored) == row
    at = data.draw(st.integers(0, len(stored) - 1))
    changed = stored[:at] + bytes([stored[at] ^ data.draw(st.integers(1, 255))]) + stored[at + 1 :]

    assert not is_sound(changed)
    with pytest.raises(CorruptStateError, match="rebuild"):
        without_checksum(changed)


@given(key=st.binary(min_size=1, max_size=50), row=st.binary(max_size=200), data=st.data())
def test_a_row_under_another_key_is_noticed(key: bytes, row: bytes, data: st.DataObject) -> None:
    """As is any changed byte."""
    stored, decoder = sealed(key, row), msgspec.msgpack.Decoder(bytes)
    assert is_sealed(key, stored)
    assert unsealed(key, stored, decoder) == row
    at = data.draw(st.integers(0, len(stored) - 1))
    changed = stored[:at] + bytes([stored[at] ^ data.draw(st.integers(1, 255))]) + stored[at + 1 :]

    for other_key, other in ((key, changed), (b"other" + key, stored)):
        assert not is_sealed(other_key, other)
        with pytest.raises(CorruptStateError):
            unsealed(other_key, other, decoder)


def flip(ledger: Ledger, tag: bytes, at: int) -> None:
    """One bit in the first row of a kind."""
    generation = internals(ledger).index._generation()

    def change(txn: Transaction) -> None:
        key, value = next(found for found in dump(txn, generation.tables.rows) if found[0][8:9] == tag)
        txn.put(key, value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :], db=generation.tables.rows)

    generation.update(change)


def use(ledger: Ledger) -> None:
    """Write to the chat, and read all of it."""
    ledger.append("c", [text("more")])
    ledger.get_messages("c")
    ledger.get_chat("c")


TAGS = {
    "record": Tag.RECORD,
    "branch": Tag.BRANCH,
    "page": Tag.PAGE,
    "segment": Tag.SEGMENT,
    "profile": Tag.PROFILE,
}


@pytest.mark.parametrize("tag", TAGS.values(), ids=TAGS)
def test_a_damaged_row_is_no_ground_for_a_write(tag: bytes, tmp_path: Path) -> None:
    """A decision on a flipped bit would put a wrong version, hash or head on the log, for ever. None is made."""
    with chatledger.open(tmp_path / "data", durability="fast") as ledger:
        ledger.create_chat("c", "u")
        ledger.append("c", [text("before", id="before")])
        flip(ledger, tag, 8)
        events = ledger.last_position()
        with pytest.raises(CorruptStateError, match="rebuild"):
            use(ledger)
        assert events <= ledger.last_position() <= events + 1
        ledger.rebuild()
        ledger.append("c", [text("after")])
        ledger.verify()


def test_positions_that_are_given_out_again(tmp_path: Path) -> None:
    """A log that lost its end under a running process takes writes to other chats: they are not taken for known ones."""
    with chatledger.open(tmp_path / "data", durability="fast") as ledger:
        ledger.create_chat("c", "u")
        ledger.append("c", [text("one")])
        index = internals(ledger).index
        generation = index._generation()
        recorded = next(iter(ledger.history("c")))
        with generation.reading() as txn:
            state = generation.state(txn)
            generation.check_applied(txn, state, recorded)
            other = msgspec.structs.replace(recorded.event, originator_id="other")
            stranger = msgspec.structs.replace(recorded, event=other)
            with pytest.raises(LogRegressedError):
                generation.check_applied(txn, state, stranger)
