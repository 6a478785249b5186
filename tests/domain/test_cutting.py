"""Long values in parts that are found again, and parts as edits of others."""

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.soak import examples

from chatledger.domain.versioned.content import PART_BYTES, Edit, cut, edited, edits_between

some_bytes = st.binary(max_size=200)
long_bytes = st.builds(lambda unit, count: unit * count, st.binary(min_size=1, max_size=80), st.integers(0, 3_000))


@given(data=long_bytes, before=st.lists(st.one_of(some_bytes, long_bytes), max_size=8))
@settings(max_examples=examples(200), deadline=None)
@example(data=b"x", before=[b""])
def test_parts_are_the_bytes(data: bytes, before: list[bytes]) -> None:
    """Whatever stood there before, also what is of another value; and the same each time."""
    parts = cut(data, before)

    assert b"".join(parts) == data
    assert all(parts)
    assert all(len(part) <= PART_BYTES or part in before for part in parts)
    assert parts == cut(data, before)


@given(data=st.integers(100_000, 400_000), at=st.integers(0, 2**32), length=st.integers(0, 50), seed=st.integers(0, 99))
@settings(max_examples=examples(100), deadline=None)
def test_what_did_not_change_is_found_again(data: int, at: int, length: int, seed: int) -> None:
    """Where something is put in, replaced or taken out, at most two parts are new, or three at their bounds."""
    old = random.Random(seed).randbytes(data)
    place = at % len(old)
    before = cut(old, [])
    for new in (
        old[:place] + bytes(length) + old[place:],
        old[:place] + bytes(length) + old[place + length :],
        old[:place] + old[place + length :],
    ):
        assert len([part for part in cut(new, before) if part not in before]) <= 3


def test_a_value_that_grows_leaves_no_crumbs() -> None:
    draw, value, parts = random.Random(1), b"", list[bytes]()
    for _ in range(2_000):
        value += draw.randbytes(draw.randrange(1, 300))
        parts = cut(value, parts)

    assert len(parts) < 2 * len(value) / PART_BYTES * 4  # of 8 KiB at least


@given(old=long_bytes, new=long_bytes)
@settings(max_examples=examples(200), deadline=None)
def test_edits_make_one_of_the_other(old: bytes, new: bytes) -> None:
    edits = edits_between(old, new)

    assert edited(old, edits) == new
    assert [] == edits_between(new, new)
    places = [bound for at, dropped, _ in edits for bound in (at, at + dropped)]
    assert places == sorted(places)


def test_edits_in_several_places_are_several() -> None:
    """Three words of a text take three words, and not all that is between them."""
    text = random.Random(2).randbytes(30_000)
    changed = text[:90] + b"one" + text[95:15_000] + b"two" + text[15_002:29_000] + b"three" + text[29_000:]
    edits = edits_between(text, changed)

    assert edited(text, edits) == changed
    assert sum(len(data) for _, _, data in edits) < 100


@pytest.mark.parametrize(
    "edits", [[(4, 0, b"x")], [(0, 4, b"")], [(2, 0, b""), (1, 0, b"")], [(0, -1, b"")], [(-1, 0, b"")]]
)
def test_edits_of_other_bytes_are_refused(edits: list[Edit]) -> None:
    with pytest.raises(ValueError, match="not of these bytes"):
        edited(b"abc", edits)
